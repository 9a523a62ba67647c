//! `--feature-gates Name=bool,...`.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Gates that were set, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

/// A text that is not a list of gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is not a feature gate; write Name=true or Name=false, separated by commas")]
pub struct NotAGate {
    part: String,
}

impl FeatureGates {
    /// Whether the gate is on; `default` if it was not set.
    pub fn enabled(&self, name: &str, default: bool) -> bool {
        self.0.get(name).copied().unwrap_or(default)
    }

    /// Gates that were set and that nobody here knows, for a warning.
    pub fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.0.keys().map(String::as_str).filter(|name| !known.contains(name))
    }
}

impl FromStr for FeatureGates {
    type Err = NotAGate;
    fn from_str(text: &str) -> Result<FeatureGates, NotAGate> {
        let mut gates = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let error = || NotAGate { part: part.to_owned() };
            let (name, value) = part.split_once('=').ok_or_else(error)?;
            let value = match value.trim() {
                "true" | "True" | "TRUE" | "1" | "t" | "T" => true,
                "false" | "False" | "FALSE" | "0" | "f" | "F" => false,
                _ => return Err(error()),
            };
            if name.trim().is_empty() {
                return Err(error());
            }
            gates.insert(name.trim().to_owned(), value);
        }
        Ok(FeatureGates(gates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_and_nonsense_is_refused() {
        let gates: FeatureGates = "Topology=true, Other=false,".parse().unwrap();
        assert!(gates.enabled("Topology", false) && !gates.enabled("Other", true) && gates.enabled("Third", true));
        assert_eq!(gates.unknown(&["Topology"]).collect::<Vec<_>>(), ["Other"]);
        for bad in ["Topology", "=true", "A=maybe"] {
            assert!(bad.parse::<FeatureGates>().is_err(), "{bad}");
        }
    }
}
