//! A configuration file that was read: its settings as words of a command line, or everything that is wrong with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::flags::{Flags, Takes, takes};
use super::yaml::{self, Entry, Problem, Scalar, Value};

/// Everything that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub(super) struct Problems {
    pub(super) file: PathBuf,
    pub(super) problems: Vec<Problem>,
}

impl Problems {
    fn text(&self) -> String {
        let Self { file, problems } = self;
        let count = problems.len();
        let lines = problems.iter().map(|Problem { line, text }| format!("{}:{line}: {text}", file.display()));
        let end = format!("{}: {count} problem{}", file.display(), if count == 1 { "" } else { "s" });
        lines.chain([end]).collect::<Vec<_>>().join("\n")
    }
}

/// A file without problems.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    settings: BTreeMap<String, Setting>,
}

#[derive(Debug)]
struct Setting {
    line: usize,
    words: Vec<OsString>,
}

impl ConfigFile {
    /// Reads and checks each setting by itself.
    pub(super) fn read(path: &Path, flags: &Flags) -> anyhow::Result<Self> {
        let text = text_of(path)?;
        let full = std::path::absolute(path).with_context(|| format!("the configuration file {}", path.display()))?;
        let base = full.parent().unwrap_or(Path::new("/"));
        let (entries, mut problems) = yaml::read(&text);
        let mut settings = BTreeMap::<String, Setting>::new();
        for entry in entries {
            if let Some(first) = settings.get(&entry.key) {
                let text = format!("{} is given twice, first in line {}", entry.key, first.line);
                problems.push(Problem { line: entry.line, text });
                continue;
            }
            let words = match words(flags, &entry, base) {
                Ok(words) => words,
                Err(wrong) => {
                    problems.extend(wrong);
                    Vec::new()
                }
            };
            settings.insert(entry.key, Setting { line: entry.line, words });
        }
        problems.sort_by_key(|problem| problem.line);
        match problems.is_empty() {
            true => Ok(Self { path: path.to_owned(), settings }),
            false => Err(Problems { file: path.to_owned(), problems }.into()),
        }
    }

    pub(super) fn line(&self, key: &str) -> Option<usize> {
        self.settings.get(key).map(|setting| setting.line)
    }

    pub(super) fn len(&self) -> usize {
        self.settings.len()
    }

    /// The words of all settings but those that are given otherwise.
    pub(super) fn words(&self, given: impl Fn(&str) -> bool) -> Vec<OsString> {
        let kept = self.settings.iter().filter(|(key, _)| !given(key));
        kept.flat_map(|(_, setting)| setting.words.iter().cloned()).collect()
    }
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no configuration file {shown}; `orlop config show > {shown}` writes one with every setting")
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            bail!(
                "the configuration file {shown} is not text in UTF-8; it is YAML, with lines such as `data: /var/lib/orlop`"
            )
        }
        Err(error) => Err(error).with_context(|| format!("reading the configuration file {shown}")),
    }
}

/// What an entry says as words of a command line; or everything that is wrong with it.
fn words(flags: &Flags, entry: &Entry, base: &Path) -> Result<Vec<OsString>, Vec<Problem>> {
    let Entry { key, line, value } = entry;
    let wrong = |line: usize, text: String| Problem { line, text };
    let Some(flag) = flags.find(key) else { return Err(vec![wrong(*line, flags.unknown(key))]) };
    let scalars: &[Scalar] = match (value, takes(flag)) {
        (Value::One(scalar), Takes::Switch | Takes::One | Takes::Many) => std::slice::from_ref(scalar),
        (Value::Many(scalars), Takes::Many) if !scalars.is_empty() => scalars,
        (Value::Many(_), Takes::Many) => {
            return Err(vec![wrong(*line, format!("{key} is an empty list; leave the key out for the default"))]);
        }
        (Value::Many(_), Takes::Switch | Takes::One) => {
            return Err(vec![wrong(*line, format!("{key} takes one value, not a list"))]);
        }
        (Value::Told, _) => return Ok(Vec::new()),
        (Value::Nothing, _) => {
            return Err(vec![wrong(*line, format!("{key} has no value; leave the key out for the default"))]);
        }
        (Value::Nested, Takes::Many) => {
            return Err(vec![wrong(*line, format!("{key} takes a list of plain values"))]);
        }
        (Value::Nested, Takes::Switch | Takes::One) => {
            return Err(vec![wrong(*line, format!("{key} takes one value, not a mapping"))]);
        }
    };
    let refused =
        |scalar: &Scalar| flags.check(flag, scalar).err().map(|why| wrong(scalar.line, format!("{key}: {why}")));
    let problems: Vec<Problem> = scalars.iter().filter_map(refused).collect();
    match problems.is_empty() {
        true => Ok(scalars.iter().filter_map(|scalar| flags.word(flag, &scalar.text, base)).collect()),
        false => Err(problems),
    }
}
