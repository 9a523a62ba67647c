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
    /// Of the request's line.
    request: &'static str,
    path: &'static str,
    /// What orlop says, as JSON; `-` for nothing.
    ours: &'static str,
    /// What kube-apiserver says.
    theirs: &'static str,
}

const fn kept(name: &'static str, path: &'static str, ours: &'static str, theirs: &'static str) -> Kept {
    Kept { name, case: "*", request: "*", path, ours, theirs }
}

impl Kept {
    const fn of(self, request: &'static str) -> Self {
        Self { request, ..self }
    }

    const fn only_in(self, case: &'static str) -> Self {
        Self { case, ..self }
    }
}

pub(super) const KEPT: &[Kept] = &[
    kept("column-descriptions", "*columnDefinitions*.description", "*", "*"),
    kept("go-texts", "body*message", "*", "*json: cannot unmarshal*"),
    kept("go-texts", "body*message", "*", "*in scheme *"),
    kept("go-texts", "body*message", "*", "*invalid character*"),
    kept("go-texts", "body*message", "*", "*unexpected end of JSON input*"),
    kept("go-texts", "body*message", "*", "*error decoding from json: *"),
    kept("go-texts", "body*message", "*", "*yaml: *"),
    kept("go-texts", "body*message", "*", "*unknown conversion*"),
    kept("go-texts", "body*message", "*", "*unexpected GroupVersion string*"),
    kept("go-texts", "body.message", "*", "*requested object is *list (*core.*"),
    kept(
        "patched-object",
        "body.message",
        "*is invalid: patch: Invalid value: *",
        "*is invalid: patch: Invalid value: *",
    ),
    kept("patched-object", "body.details.causes[0].message", "\"Invalid value: \\\"{*", "\"Invalid value: \\\"{*"),
    kept("spec-diffs", "body*message", "*", "*\\n@@ -*"),
    kept("first-write-of-a-claim", "body.metadata.resourceVersion", "\"<same>\"", "\"<newer>\"").of("*${C}/*"),
    kept("empty-metadata-lists", "body.items", "[]", "null").of("GET [partials]*"),
    kept("owners-of-reviews", "body.metadata.managedFields", "-", "*").of("POST *reviews*"),
    kept("owners-of-reviews", "body.metadata.managedFields", "-", "*").of("POST */token *"),
    kept("owners-of-reviews", "body*message", "*", "*managedFields*").of("POST *reviews*"),
    kept("version", "body.*", "*", "*").of("GET * /version"),
    kept("version", "/body/gitVersion", "*", "*").of("GET * /version"),
    kept("yaml-answers", "*ontentType", "\"application/json\"", "\"application/yaml\""),
    kept("yaml-answers", "body", "*", "\"apiVersion: v1*").of("GET [accept=application/yaml]*"),
    kept("definition-texts", "body*", "*", "*").only_in("definitions-are-checked"),
    kept("rules-not-checked", "body*", "*", "*some validation rules were not checked*"),
    kept("rules-not-checked", "body*", "*", "*Checked value must be of type*"),
    kept("order-of-errors", "body*", "*", "*").only_in("custom-objects").of("POST ${F} FOO:g{*"),
    kept("key-order", "body*message", "*", "*Only one reference can have Controller set to true*"),
    kept("metadata-list-watch", "status", "\"406: *", "\"200: \"").of("GET [partials]*watch=1*"),
    kept("dry-run-version", "body.metadata.resourceVersion", "-", "\"<first>\"").of("PUT *${L}/*dryRun=All*"),
    kept("empty-lists-in-tables", "body.rows", "[]", "null").of("GET [table]*"),
    kept("certificates-in-secrets", "warnings[0]", "-", "\"299 - \\\"tls: *"),
    kept("namespace-finalize", "*", "*", "*").only_in("namespaces-that-go"),
    kept("bindings", "status", "\"404: *", "\"500: target.name*").of("POST ${N}/bindings *"),
    kept(
        "token-authenticators",
        "body.status.error",
        "\"token audiences*",
        "\"[invalid bearer token, token audiences*",
    ),
    kept("go-texts", "body.message", "*", "*without impersonating a user name*"),
    kept("old-meta-version", "body.rows[0].object.apiVersion", "\"meta.k8s.io/v1\"", "\"meta.k8s.io/v1beta1\""),
    kept("snapshot-definitions", "body.*snapshot.storage.k8s.io]", "*", "-").of("GET */apis"),
    kept("storage-version-hash", "body.resources[0].storageVersionHash", "-", "*"),
    kept("empty-continue", "body.metadata.continue", "-", "\"\"").of("GET *${F}*"),
    kept("discovery-is-json", "body.message", "*", "*").of("GET [accept=application/json;g=apidiscovery*"),
    kept("owners-of-definitions", "*managedFields[1]", "-", "*").only_in("a-definition-is-established"),
    kept("node-finalizers", "status", "\"403: *modify finalizers\"", "\"200: *").only_in("nodes-are-held-tighter-here"),
    kept("node-tokens", "/body/spec/expirationSeconds", "172800", "604800").only_in("nodes-are-held-tighter-here"),
    kept("secrets-of-unbound-volumes", "status", "\"403: *no relationship found*", "\"200: *")
        .only_in("nodes-are-held-tighter-here"),
];

/// Which of the table's entries have been met.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    met: BTreeSet<usize>,
}

impl Ledger {
    /// Whether a difference is expected.
    pub(super) fn expects(&mut self, case: &str, request: &str, difference: &Difference) -> bool {
        let text =
            |value: &Option<serde_json::Value>| value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let (ours, theirs) = (text(&difference.ours), text(&difference.theirs));
        let entry = KEPT.iter().position(|kept| {
            matches(kept.case, case)
                && matches(kept.request, request)
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
