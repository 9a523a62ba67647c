//! Cases as text: one request per line, the same for both servers.
//!
//! ```text
//! case a-stale-version-is-refused
//! POST ${C} PVC:c1{}
//! PUT [only=/reason] ${C}/c1 PVC:c1{"metadata":{"resourceVersion":"1"}}
//! ```
//!
//! A line is a method, options in brackets, a path without spaces, and a body up to the end of the line. `${name}` stands
//! for a variable: a place of the case (see [`super::play`]) or something that `[set:name=/pointer]` took from an answer.

use std::path::Path;

use anyhow::{Context as _, bail};

/// One request, and how to look at its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Option<String>,
    pub(super) options: Vec<(String, String)>,
}

impl Step {
    /// The value of an option; `Some("")` when it is given without one.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Every `[set:name=place]` as name and place.
    pub(super) fn captures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().filter_map(|(name, place)| Some((name.strip_prefix("set:")?, place.as_str())))
    }

    /// Every `[keep:name=place]`: the same, but a missing place leaves the variable as it is.
    pub(super) fn kept_captures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().filter_map(|(name, place)| Some((name.strip_prefix("keep:")?, place.as_str())))
    }

    /// The line again, for a report.
    pub(super) fn line(&self) -> String {
        let options: String = self
            .options
            .iter()
            .map(|(name, value)| if value.is_empty() { format!("[{name}] ") } else { format!("[{name}={value}] ") })
            .collect();
        format!("{} {options}{} {}", self.method, self.path, self.body.as_deref().unwrap_or_default())
            .trim_end()
            .to_owned()
    }
}

/// A named list of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// Every case of every file in a folder, in the order of the files' names.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<Case>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut cases: Vec<Case> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        for case in parse(&text).with_context(|| file.display().to_string())? {
            if cases.iter().any(|other| other.name == case.name) {
                bail!("{}: there are two cases {}", file.display(), case.name);
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

fn parse(text: &str) -> anyhow::Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("case ") {
            cases.push(Case { name: name.trim().to_owned(), steps: Vec::new() });
            continue;
        }
        let step = step(line).with_context(|| format!("line {}", at + 1))?;
        cases.last_mut().with_context(|| format!("line {}: a request before the first case", at + 1))?.steps.push(step);
    }
    Ok(cases)
}

fn step(line: &str) -> anyhow::Result<Step> {
    let (method, mut rest) = line.split_once(' ').context("a request is a method and a path")?;
    if !METHODS.contains(&method) {
        bail!("{method} is no method");
    }
    let mut options = Vec::new();
    rest = rest.trim_start();
    while let Some(after) = rest.strip_prefix('[') {
        let (option, tail) = after.split_once("] ").context("an option that is not closed, or no path after it")?;
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        options.push((name.to_owned(), value.to_owned()));
        rest = tail.trim_start();
    }
    let (path, body) = match rest.split_once(' ') {
        Some((path, body)) => (path, Some(body.trim().to_owned()).filter(|body| !body.is_empty())),
        None => (rest, None),
    };
    Ok(Step { method: method.to_owned(), path: path.to_owned(), body, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_method_options_a_path_and_a_body() {
        let text =
            "# words\ncase one\nPATCH [merge] [set:rv=/metadata/resourceVersion] ${C}/c1 {\"a\": [1]}\nGET /api\n";
        let cases = parse(text).expect("reads");
        let patch = &cases[0].steps[0];
        assert_eq!(patch.path, "${C}/c1");
        assert_eq!(patch.body.as_deref(), Some("{\"a\": [1]}"));
        assert_eq!(patch.option("merge"), Some(""));
        assert_eq!(patch.captures().collect::<Vec<_>>(), [("rv", "/metadata/resourceVersion")]);
        assert_eq!(cases[0].steps[1].body, None);
        assert_eq!(patch.line(), text.lines().nth(2).expect("third line"));
    }

    #[test]
    fn a_line_without_a_method_is_refused() {
        assert!(parse("case one\nFETCH /api").is_err());
        assert!(parse("GET /api").is_err());
    }
}
