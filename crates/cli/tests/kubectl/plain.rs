//! Takes out of an output what is different in every run: ids, times, ages, revisions, ports, folders, tokens.
//!
//! Widths are kept where kubectl aligns columns, so that a table is still a table.

use std::collections::BTreeMap;
use std::path::Path;

use regex::{Captures, Regex};

const UUID: &str = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
/// An age as kubectl prints it, alone in its cell.
const AGE: &str = r"(?m)(^|for |[ (])(\d+[smhd](?:\d+[smh])?|<invalid>)( +|$|\))";

pub(crate) struct Plain {
    folder: String,
    uuid: Regex,
    age: Regex,
    rules: Vec<(Regex, &'static str)>,
    /// The ids in the order in which they were first seen.
    ids: BTreeMap<String, usize>,
}

impl Plain {
    pub(crate) fn new(folder: &Path) -> Self {
        let rules = [
            (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-01-01T00:00:00Z"),
            (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "2026-01-01T00:00:00.000000Z"),
            (r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+]0000( UTC)?", "2026-01-01 00:00:00 +0000"),
            (r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} 20\d\d \d\d:\d\d:\d\d [+-]\d{4}", "Thu, 01 Jan 2026 00:00:00 +0000"),
            (r#"(resourceVersion"?): ?"\d+""#, "$1: \"1\""),
            (r"(Resource Version: +)\d+", "${1}1"),
            (r"(Server Version: v[0-9.]+)\S*", "$1"),
            (r"(127\.0\.0\.1|localhost):\d+", "127.0.0.1:6443"),
            (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
            (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=<hash>"),
            (r#"Context "[^"]*""#, "Context \"here\""),
            (r"\bgen-[a-z0-9]{5}\b", "gen-xxxxx"),
            // Newer ones say from where.
            (r"deleted from \S+ namespace", "deleted"),
            (r"(LIVE|MERGED)-\d+", "$1-1"),
        ];
        let rules = rules.map(|(pattern, by)| (Regex::new(pattern).expect("the pattern is good"), by));
        Self {
            folder: folder.display().to_string(),
            uuid: Regex::new(UUID).expect("the pattern is good"),
            age: Regex::new(AGE).expect("the pattern is good"),
            rules: rules.into(),
            ids: BTreeMap::new(),
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.folder, "/folder");
        let ids = &mut self.ids;
        text = self.uuid.replace_all(&text, |found: &Captures<'_>| number(ids, &found[0])).into_owned();
        for (pattern, by) in &self.rules {
            text = pattern.replace_all(&text, *by).into_owned();
        }
        // Twice, because one space can end an age and start the next one.
        for _ in 0..2 {
            text = self.age.replace_all(&text, young).into_owned();
        }
        text
    }
}

fn number(ids: &mut BTreeMap<String, usize>, id: &str) -> String {
    let next = ids.len() + 1;
    let number = *ids.entry(id.to_owned()).or_insert(next);
    format!("00000000-0000-0000-0000-{number:012}")
}

/// Every age is one second, in the width that it had, if something stands to its right.
fn young(found: &Captures<'_>) -> String {
    let (before, age, after) = (&found[1], &found[2], &found[3]);
    // A length of time that somebody chose is not an age.
    if before == "for " {
        return found[0].to_owned();
    }
    let fill = if after.starts_with(' ') { age.len().saturating_sub(2) } else { 0 };
    format!("{before}1s{}{after}", " ".repeat(fill))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_from_run_to_run_is_taken_out_and_the_rest_is_kept() {
        let mut plain = Plain::new(Path::new("/folder-of-this-run"));
        let mut text = |text: &str| plain.text(text);
        assert_eq!(text("data   12s   x"), "data   1s    x");
        assert_eq!(text("data   3m4s"), "data   1s");
        assert_eq!(text("uid: 9bdaa53e-0e1c-4bb9-a8a8-0a5b5e0d3c11"), "uid: 00000000-0000-0000-0000-000000000001");
        assert_eq!(text("again 9bdaa53e-0e1c-4bb9-a8a8-0a5b5e0d3c11"), "again 00000000-0000-0000-0000-000000000001");
        assert_eq!(text("  resourceVersion: \"532\""), "  resourceVersion: \"1\"");
        assert_eq!(text("at 2026-05-06T07:08:09Z"), "at 2026-01-01T00:00:00Z");
        assert_eq!(text("Exists for 300s"), "Exists for 300s");
        assert_eq!(text("storage: 5Gi"), "storage: 5Gi");
        assert_eq!(text("/folder-of-this-run/a.yaml"), "/folder/a.yaml");
    }
}
