//! One policy rule: what it allows, and which rules it contains.

use std::fmt;

use serde_json::Value;

use crate::auth::{Attributes, Object};
use crate::request::go_quote_list;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRule {
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub non_resource_urls: Vec<String>,
    pub resource_names: Vec<String>,
    pub verbs: Vec<String>,
}

impl PolicyRule {
    /// The rules of a Role or a ClusterRole. What is not a string grants nothing.
    pub fn all_of(role: &Value) -> Vec<Self> {
        let rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        rules
            .iter()
            .map(|rule| Self {
                api_groups: strings(&rule["apiGroups"]),
                resources: strings(&rule["resources"]),
                non_resource_urls: strings(&rule["nonResourceURLs"]),
                resource_names: strings(&rule["resourceNames"]),
                verbs: strings(&rule["verbs"]),
            })
            .collect()
    }

    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has_or_star(&self.verbs, &attributes.verb) {
            return false;
        }
        match attributes.object {
            Object::Path(path) => self.non_resource_urls.iter().any(|url| url_covers(url, path)),
            Object::Resource { group, resource, subresource, name, .. } => {
                has_or_star(&self.api_groups, group)
                    && self.resources.iter().any(|known| resource_matches(known, resource, subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, name))
            }
        }
    }

    /// Whether this rule alone grants all of `other`, which is one that [`PolicyRule::pieces`] made.
    pub fn covers(&self, other: &Self) -> bool {
        let all = |ours: &[String], theirs: &[String]| theirs.iter().all(|word| has_or_star(ours, word));
        let names = if other.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            self.resource_names.is_empty() || other.resource_names.iter().all(|name| has(&self.resource_names, name))
        };
        let resource = |wanted: &String| match wanted.split_once('/') {
            Some((resource, sub)) => self.resources.iter().any(|known| resource_matches(known, resource, sub)),
            None => has_or_star(&self.resources, wanted),
        };
        let url = |wanted: &String| self.non_resource_urls.iter().any(|known| url_covers(known, wanted));
        all(&self.verbs, &other.verbs)
            && all(&self.api_groups, &other.api_groups)
            && other.resources.iter().all(resource)
            && other.non_resource_urls.iter().all(url)
            && names
    }

    /// How many rules [`PolicyRule::pieces`] makes.
    pub fn piece_count(&self) -> usize {
        let names = self.resource_names.len().max(1);
        let resources = self.api_groups.len().saturating_mul(self.resources.len()).saturating_mul(names);
        self.verbs.len().saturating_mul(resources.saturating_add(self.non_resource_urls.len()))
    }

    /// The same rights as rules of one verb on one resource or path each, so that a single other rule covers a piece
    /// wholly or not at all.
    pub fn pieces(&self) -> Vec<Self> {
        let one = |word: &String| vec![word.clone()];
        let names: Vec<Vec<String>> = if self.resource_names.is_empty() {
            vec![Vec::new()]
        } else {
            self.resource_names.iter().map(one).collect()
        };
        let mut pieces = Vec::new();
        for verb in &self.verbs {
            for (group, resource) in
                self.api_groups.iter().flat_map(|group| self.resources.iter().map(move |r| (group, r)))
            {
                pieces.extend(names.iter().map(|names| Self {
                    api_groups: one(group),
                    resources: one(resource),
                    resource_names: names.clone(),
                    verbs: one(verb),
                    ..Self::default()
                }));
            }
            pieces.extend(self.non_resource_urls.iter().map(|url| Self {
                non_resource_urls: one(url),
                verbs: one(verb),
                ..Self::default()
            }));
        }
        pieces
    }
}

/// `{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}`, as refusals name rights.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = parts
            .iter()
            .filter(|(_, words)| !words.is_empty())
            .map(|(name, words)| format!("{name}:{}", go_quote_list(words)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|known| known == word)
}

fn has_or_star(words: &[String], word: &str) -> bool {
    words.iter().any(|known| known == "*" || known == word)
}

/// `*`, `resource`, `resource/sub` or `*/sub`. A rule for a resource is none for its subresources.
fn resource_matches(known: &str, resource: &str, subresource: &str) -> bool {
    match known.split_once('/') {
        None => known == "*" || (known == resource && subresource.is_empty()),
        Some((left, right)) => !subresource.is_empty() && right == subresource && (left == "*" || left == resource),
    }
}

/// The same path, or one under a prefix that ends in a star.
fn url_covers(known: &str, path: &str) -> bool {
    known == path || (known.ends_with('*') && path.starts_with(known.trim_end_matches('*')))
}
