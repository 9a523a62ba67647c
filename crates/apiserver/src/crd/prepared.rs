//! A schema prepared for checking objects: patterns are compiled, rules are read and lists of allowed values are indexed
//! once per definition, and not for every object or every item.
//!
//! Guarantees: checking an object takes time proportional to its size times the logarithm of the schema's size, times the
//! size of a pattern for texts that have one, plus at most [`MOST_STEPS`] steps of rules. All patterns of a definition
//! together have at most [`PATTERNS_BYTES`] bytes when compiled; a definition with more is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::rule::Rule;
use crate::apply::Json;
use crate::kinds::read;

/// Bytes that one pattern may have when it is compiled.
const PATTERN_BYTES: usize = 4 << 20;
/// Bytes that all patterns of one definition may have when they are compiled.
pub(super) const PATTERNS_BYTES: usize = 8 << 20;
/// The smallest size that a pattern counts with. Sizes are known up to a factor of four.
const LEAST_PATTERN_BYTES: usize = 16 << 10;
/// Bytes of the table that a pattern fills while it is matched; without room it is matched more slowly.
const TABLE_BYTES: usize = 256 << 10;
/// Steps that the rules of a definition may take for one object.
pub(super) const MOST_STEPS: usize = 4_000_000;

/// The schema of one version of a definition.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) raw: Value,
    pub(super) root: Node,
}

impl Schema {
    pub(super) fn new(raw: Value) -> Self {
        let root = Node::of(&raw);
        Self { raw, root }
    }
}

/// What is prepared of one part of a schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    pattern: Option<Pattern>,
    /// In the order of `x-kubernetes-validations`; a definition with a rule that cannot be read was refused.
    pub(super) rules: Vec<Option<Rule>>,
    pub(super) allowed: Option<BTreeSet<Json>>,
    pub(super) properties: BTreeMap<String, Node>,
    /// The properties that have a default.
    pub(super) defaulted: Vec<String>,
    pub(super) additional: Option<Box<Node>>,
    pub(super) items: Option<Box<Node>>,
}

impl Node {
    fn of(schema: &Value) -> Self {
        let child = |key: &str| {
            let schema = schema.get(key).filter(|schema| schema.is_object());
            schema.map(|schema| Box::new(Self::of(schema)))
        };
        let properties = || schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let allowed = schema.get("enum").and_then(Value::as_array);
        Self {
            pattern: Some(read::text(schema, "/pattern")).filter(|text| !text.is_empty()).map(Pattern::new),
            rules: read::list(schema, "/x-kubernetes-validations")
                .iter()
                .map(|declared| Rule::parse(read::text(declared, "/rule")))
                .collect(),
            allowed: allowed.map(|allowed| allowed.iter().cloned().map(Json).collect()),
            properties: properties().map(|(name, schema)| (name.clone(), Self::of(schema))).collect(),
            defaulted: properties()
                .filter(|(_, schema)| schema.get("default").is_some())
                .map(|(name, _)| name.clone())
                .collect(),
            additional: child("additionalProperties"),
            items: child("items"),
        }
    }

    /// Whether a text matches the pattern, if there is one. A pattern that cannot be compiled was refused with its
    /// definition; one that is there all the same matches nothing.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
    }
}

/// A pattern that is compiled when it is used first.
#[derive(Debug)]
struct Pattern {
    text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), compiled: OnceLock::new() }
    }

    fn matches(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compile(&self.text, PATTERN_BYTES).ok());
        compiled.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }
}

fn compile(text: &str, bytes: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(bytes).dfa_size_limit(TABLE_BYTES.min(bytes)).build()
}

/// The bytes that a pattern counts with, or why it cannot be used.
pub(super) fn pattern_bytes(text: &str) -> Result<usize, regex::Error> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut bytes = LEAST_PATTERN_BYTES;
    loop {
        match compile(text, bytes) {
            Ok(_) => return Ok(bytes),
            Err(regex::Error::CompiledTooBig(_)) if bytes < PATTERN_BYTES => bytes *= 4,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_is_compiled_once_and_only_when_it_is_used() {
        let schema = Schema::new(json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^x+$"}}}));
        let node = &schema.root.properties["a"];
        let compiled = || node.pattern.as_ref().and_then(|pattern| pattern.compiled.get()).map(std::ptr::from_ref);
        assert_eq!(compiled(), None);
        assert!(node.matches("xx") && !node.matches("y"));
        let first = compiled();
        assert!(first.is_some());
        assert!(node.matches("x"));
        assert_eq!(compiled(), first);
    }

    #[test]
    fn patterns_count_with_about_the_bytes_that_they_have() {
        assert_eq!(pattern_bytes("^[a-z]+$").ok(), Some(LEAST_PATTERN_BYTES));
        let larger = pattern_bytes("[a-z]{500}").expect("it can be compiled");
        assert!((LEAST_PATTERN_BYTES..PATTERN_BYTES).contains(&larger), "{larger}");
        assert!(matches!(pattern_bytes(r"(\w{200}){200}"), Err(regex::Error::CompiledTooBig(_))));
        assert!(matches!(pattern_bytes("("), Err(regex::Error::Syntax(_))));
    }
}
