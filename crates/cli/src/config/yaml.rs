//! One mapping of scalars and lists of scalars, read from YAML with the line of everything.
//!
//! Serde would stop at the first problem and know no lines of values; the parser's events tell both.

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, StrInput};

/// A key with what stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing, or null.
    Nothing,
    One(Scalar),
    Many(Vec<Scalar>),
    /// A mapping, or a list with something else than scalars in it.
    Nested,
    /// A problem, which was told.
    Told,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) line: usize,
    pub(super) kind: Kind,
}

/// What YAML takes a scalar for. In quotes everything is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    Text,
}

impl Kind {
    fn of(text: &str, style: ScalarStyle) -> Self {
        if style != ScalarStyle::Plain {
            return Self::Text;
        }
        let numeric = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Self::Bool,
            _ if numeric && text.parse::<f64>().is_ok() => Self::Number,
            _ => Self::Text,
        }
    }
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Reads all entries, and everything that is wrong with the form of the file.
pub(super) fn read(text: &str) -> (Vec<Entry>, Vec<Problem>) {
    let mut reader = Reader { events: Parser::new_from_str(text), problems: Vec::new() };
    let entries = reader.document();
    (entries, reader.problems)
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    problems: Vec<Problem>,
}

const REFERENCES: &str = "anchors, aliases and tags are not understood here; write the value itself";

impl<'a> Reader<'a> {
    fn wrong(&mut self, line: usize, text: impl Into<String>) {
        self.problems.push(Problem { line, text: text.into() });
    }

    /// The next event that says something; none after an error.
    fn next(&mut self) -> Option<(Event<'a>, usize)> {
        loop {
            let (event, span) = match self.events.next()? {
                Ok(next) => next,
                Err(error) => {
                    let line = error.marker().line();
                    self.wrong(line, format!("this is not YAML: {}", hinted(&sentence(&error.to_string()))));
                    return None;
                }
            };
            let line = span.start.line();
            match event {
                Event::Comment(..) | Event::StreamStart | Event::DocumentStart(..) => continue,
                Event::Scalar(_, _, anchor, ref tag) if anchor != 0 || tag.is_some() => self.wrong(line, REFERENCES),
                Event::SequenceStart(_, anchor, ref tag) | Event::MappingStart(_, anchor, ref tag)
                    if anchor != 0 || tag.is_some() =>
                {
                    self.wrong(line, REFERENCES);
                }
                Event::Alias(_) => self.wrong(line, REFERENCES),
                _ => {}
            }
            return Some((event, line));
        }
    }

    fn document(&mut self) -> Vec<Entry> {
        let entries = match self.next() {
            Some((Event::MappingStart(..), _)) => self.mapping(),
            // A file with nothing but comments.
            Some((Event::Scalar(text, style, ..), _)) if Kind::of(&text, style) == Kind::Null => Vec::new(),
            Some((Event::StreamEnd | Event::DocumentEnd, _)) | None => return Vec::new(),
            Some((event, line)) => {
                self.wrong(line, "the file must be a mapping, with lines such as `data: /var/lib/orlop`");
                self.skip(&event);
                return Vec::new();
            }
        };
        if !self.problems.is_empty() {
            return entries;
        }
        loop {
            match self.next() {
                Some((Event::DocumentEnd, _)) => {}
                Some((Event::StreamEnd, _)) | None => return entries,
                Some((_, line)) => {
                    self.wrong(line, "a second document begins here; put all settings into one");
                    return entries;
                }
            }
        }
    }

    fn mapping(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            match self.next() {
                Some((Event::MappingEnd, _)) | None => return entries,
                Some((Event::Scalar(key, ..), line)) => {
                    let Some(value) = self.value() else { return entries };
                    entries.push(Entry { key: key.into_owned(), line, value });
                }
                Some((event, line)) => {
                    self.wrong(line, "a key must be the name of a flag");
                    self.skip(&event);
                    if self.value().is_none() {
                        return entries;
                    }
                }
            }
        }
    }

    fn value(&mut self) -> Option<Value> {
        let (event, line) = self.next()?;
        Some(match event {
            Event::Scalar(text, style, ..) => match Kind::of(&text, style) {
                Kind::Null => Value::Nothing,
                kind => Value::One(Scalar { text: text.into_owned(), line, kind }),
            },
            Event::SequenceStart(..) => self.list(),
            Event::Alias(_) => Value::Told,
            event => {
                self.skip(&event);
                Value::Nested
            }
        })
    }

    fn list(&mut self) -> Value {
        let mut items = Some(Vec::new());
        loop {
            match self.next() {
                Some((Event::SequenceEnd, _)) | None => return items.map_or(Value::Nested, Value::Many),
                Some((Event::Scalar(text, style, ..), line)) => {
                    let kind = Kind::of(&text, style);
                    let scalar = Scalar { text: text.into_owned(), line, kind };
                    items.iter_mut().for_each(|items| items.push(scalar.clone()));
                }
                Some((event, _)) => {
                    self.skip(&event);
                    items = None;
                }
            }
        }
    }

    /// Passes over the rest of what began with `event`.
    fn skip(&mut self, event: &Event<'_>) {
        let mut depth = usize::from(matches!(event, Event::SequenceStart(..) | Event::MappingStart(..)));
        while depth > 0 {
            match self.next() {
                Some((Event::SequenceStart(..) | Event::MappingStart(..), _)) => depth += 1,
                Some((Event::SequenceEnd | Event::MappingEnd, _)) => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }
}

/// The parser's words without the place, which is told in front.
fn sentence(text: &str) -> String {
    text.split(" at ").next().unwrap_or(text).split(" at byte").next().unwrap_or(text).to_owned()
}

/// What is usually behind the parser's words.
fn hinted(said: &str) -> String {
    match said.contains("tab") || said.contains("mapping values") || said.contains("indent") {
        true => format!("{said}; look at the indentation: each setting begins its line, and tabs are not allowed"),
        false => said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, line: usize, kind: Kind) -> Value {
        Value::One(Scalar { text: text.to_owned(), line, kind })
    }

    #[test]
    fn scalars_and_lists_have_their_lines_and_what_yaml_takes_them_for() {
        let (entries, problems) = read("# first\na: /x\nb:\n  - 1\n  - 'true'\nc: \"5\"\nd: ~\ne: {f: g}\n");
        assert_eq!(problems, []);
        let lines: Vec<_> = entries.iter().map(|entry| (entry.key.as_str(), entry.line)).collect();
        assert_eq!(lines, [("a", 2), ("b", 3), ("c", 6), ("d", 7), ("e", 8)]);
        assert_eq!(entries[0].value, one("/x", 2, Kind::Text));
        let Value::Many(items) = &entries[1].value else { panic!("{:?}", entries[1]) };
        assert_eq!((items[0].kind, items[0].line, items[1].kind), (Kind::Number, 4, Kind::Text));
        assert_eq!(entries[2].value, one("5", 6, Kind::Text));
        assert_eq!((&entries[3].value, &entries[4].value), (&Value::Nothing, &Value::Nested));
    }

    #[test]
    fn a_file_of_comments_is_empty_and_other_forms_are_refused() {
        assert_eq!(read("# nothing\n"), (Vec::new(), Vec::new()));
        assert_eq!(read(""), (Vec::new(), Vec::new()));
        for text in ["- a\n", "just words\n", "a: b\n---\nc: d\n", "a: &x b\n", "a: [b\n", "a: b\n c: d\n"] {
            assert!(!read(text).1.is_empty(), "{text:?}");
        }
    }
}
