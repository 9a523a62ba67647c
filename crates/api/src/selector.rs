//! Selectors over labels: of claims for volumes, of volumes for nodes, of capacity for topology.
//!
//! One requirement type serves label selectors and node selectors; which operators are allowed was checked by the API
//! server. An operator this program does not know matches nothing: doubt must not place data.

use serde::Deserialize;

use crate::object::{Pairs, Word};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Requirement {
    pub key: Word,
    pub operator: Operator,
    #[serde(default)]
    pub values: Box<[Word]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    #[serde(other)]
    Unknown,
}

impl Requirement {
    pub fn is_in(key: &str, value: &str) -> Self {
        Self { key: key.into(), operator: Operator::In, values: Box::new([value.into()]) }
    }

    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|held| held.as_str() == value);
        match (self.operator, value) {
            (Operator::In, Some(value)) => listed(value),
            (Operator::NotIn, Some(value)) => !listed(value),
            (Operator::NotIn | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::Gt, Some(value)) => self.compares(value, i64::gt),
            (Operator::Lt, Some(value)) => self.compares(value, i64::lt),
            _ => false,
        }
    }

    fn compares(&self, value: &str, holds: fn(&i64, &i64) -> bool) -> bool {
        match &*self.values {
            [bound] => matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if holds(&value, &bound)),
            _ => false,
        }
    }
}

/// A `LabelSelector`: everything must match; an empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    pub match_labels: Pairs,
    pub match_expressions: Box<[Requirement]>,
}

impl LabelSelector {
    pub fn matches(&self, labels: &Pairs) -> bool {
        let label = |key: &str| labels.get(key);
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

/// A `NodeSelector`: one of its terms must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    pub node_selector_terms: Box<[NodeTerm]>,
}

/// Every expression must match. A term without any matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTerm {
    pub match_expressions: Box<[Requirement]>,
    pub match_fields: Box<[Requirement]>,
}

/// The one field of a node that can be selected.
const NAME_FIELD: &str = "metadata.name";

impl NodeSelector {
    /// Upstream's matcher forgets the node's name here, so that volumes which name their node fit nowhere
    /// (BIND-4.7.7); we give it.
    pub fn matches(&self, name: &str, labels: &Pairs) -> bool {
        self.node_selector_terms.iter().any(|term| term.matches(name, labels))
    }
}

impl NodeTerm {
    fn matches(&self, name: &str, labels: &Pairs) -> bool {
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        let label = |key: &str| labels.get(key);
        let field = |key: &str| (key == NAME_FIELD).then_some(name);
        !empty
            && self.match_expressions.iter().all(|requirement| requirement.matches(label(&requirement.key)))
            && self.match_fields.iter().all(|requirement| requirement.matches(field(&requirement.key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Pairs {
        pairs.iter().copied().collect()
    }

    fn node_selector(json: serde_json::Value) -> NodeSelector {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_term_matches_nothing() {
        let zone = serde_json::json!({"key": "zone", "operator": "In", "values": ["a"]});
        let selector = node_selector(serde_json::json!({"nodeSelectorTerms": [{}, {"matchExpressions": [zone]}]}));
        assert!(selector.matches("n", &labels(&[("zone", "a")])));
        assert!(!selector.matches("n", &labels(&[("zone", "b")])));
        assert!(!NodeSelector::default().matches("n", &labels(&[])));
    }

    #[test]
    fn a_node_can_be_chosen_by_name() {
        let name = serde_json::json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let selector = node_selector(serde_json::json!({"nodeSelectorTerms": [{"matchFields": [name]}]}));
        assert!(selector.matches("n1", &labels(&[])));
        assert!(!selector.matches("n2", &labels(&[])));
    }

    #[test]
    fn an_operator_nobody_knows_matches_nothing() {
        let odd: Requirement = serde_json::from_str(r#"{"key": "a", "operator": "Near", "values": ["x"]}"#).unwrap();
        assert!(!odd.matches(Some("x")));
        assert!(!odd.matches(None));
    }

    #[test]
    fn numbers_compare_and_texts_do_not() {
        let more: Requirement = serde_json::from_str(r#"{"key": "a", "operator": "Gt", "values": ["4"]}"#).unwrap();
        assert!(more.matches(Some("5")));
        assert!(!more.matches(Some("4")));
        assert!(!more.matches(Some("many")));
    }

    #[test]
    fn a_label_selector_wants_everything_it_lists() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"tier": "gold"},
            "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}],
        }))
        .unwrap();
        assert!(selector.matches(&labels(&[("tier", "gold")])));
        assert!(!selector.matches(&labels(&[("tier", "gold"), ("old", "")])));
        assert!(LabelSelector::default().matches(&labels(&[])));
    }
}
