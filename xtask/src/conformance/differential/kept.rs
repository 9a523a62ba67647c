//! Differences that are kept on purpose. `docs/api-differences.md` tells users about each under the same name.

use std::collections::BTreeSet;

use super::diff::Difference;

/// A difference that is expected. `*` in a pattern stands for any text.
#[derive(Debug)]
pub(super) struct Kept {
    /// The name in the document.
    pub(super) name: &'static str,
    /// Of the case; `sequence` for random ones.
    case: &'static str,
    path: &'static str,
    /// What orlop says, as JSON; `-` for nothing.
    ours: &'static str,
    /// What kube-apiserver says.
    theirs: &'static str,
}

pub(super) const KEPT: [Kept; 0] = [];

/// Which of the table's entries have been met.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    met: BTreeSet<usize>,
}

impl Ledger {
    /// Whether a difference is expected.
    pub(super) fn expects(&mut self, case: &str, difference: &Difference) -> bool {
        let text =
            |value: &Option<serde_json::Value>| value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let (ours, theirs) = (text(&difference.ours), text(&difference.theirs));
        let entry = KEPT.iter().position(|kept| {
            matches(kept.case, case)
                && matches(kept.path, &difference.path)
                && matches(kept.ours, &ours)
                && matches(kept.theirs, &theirs)
        });
        self.met.extend(entry);
        entry.is_some()
    }

    /// Entries that matched nothing: they only hide the next bug.
    pub(super) fn unmet(&self) -> Vec<String> {
        let unmet = KEPT.iter().enumerate().filter(|(at, _)| !self.met.contains(at));
        unmet.map(|(_, kept)| format!("{} ({} {})", kept.name, kept.case, kept.path)).collect()
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("body.*.message", "body.details.causes[0].message"));
        assert!(matches("*", ""));
        assert!(matches("a*b*", "a1b2"));
        assert!(!matches("a*b", "a1b2"));
        assert!(!matches("body", "body.message"));
    }

    #[test]
    fn the_document_names_what_the_table_keeps() {
        let text =
            std::fs::read_to_string(crate::root().join("docs/api-differences.md")).expect("the document is there");
        let (_, section) = text.split_once("\n## Checked\n").expect("the document has the section");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let documented: BTreeSet<&str> = rows.map(|(name, _)| name).collect();
        let kept: BTreeSet<&str> = KEPT.iter().map(|kept| kept.name).collect();
        assert_eq!(documented, kept);
    }
}
