//! A session at a terminal, as a file that people can read.
//!
//! Lines that are indented by four spaces are the terminal: `$ ` starts a command, `> ` goes on with it, everything else
//! is what it printed. Lines of the error output start with `2| `, and a last line `[exit 1]` tells of failure. All other
//! lines are prose. An output that depends on the version of kubectl is given once per version: a line `[kubectl 1.36]`
//! starts what that version and later ones print instead.

use std::fmt;

const INDENT: &str = "    ";

#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript(Vec<Part>);

#[derive(Debug, Clone)]
enum Part {
    Prose(String),
    Step(Step),
}

/// What a transcript is about, by a line `Needs: controllers` or `Needs: orlop` in its prose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The commands show what every API server does.
    AnyServer,
    /// They wait for something that no API server does by itself.
    Controllers,
    /// They show what this server does in its own way.
    Orlop,
}

/// One command and what it says.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    command: Vec<String>,
    /// What it prints in general, then from which version on something else.
    outputs: Vec<(Option<Version>, Vec<String>)>,
}

/// The minor version of a kubectl, the only part that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

impl Transcript {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        // Empty lines belong to an output only if more of it follows.
        let mut empty = 0;
        for line in text.lines() {
            let terminal = line.strip_prefix(INDENT);
            match (terminal, parts.last_mut()) {
                (None, Some(Part::Step(_))) if line.is_empty() => empty += 1,
                (Some(line), Some(Part::Step(step))) if !line.starts_with("$ ") => {
                    step.read(line, std::mem::take(&mut empty))
                }
                _ => {
                    parts.extend((0..std::mem::take(&mut empty)).map(|_| Part::Prose(String::new())));
                    parts.push(match terminal.and_then(|line| line.strip_prefix("$ ")) {
                        Some(command) => Part::Step(Step { command: vec![command.to_owned()], outputs: Vec::new() }),
                        None => Part::Prose(line.to_owned()),
                    });
                }
            }
        }
        Self(parts)
    }

    /// On which servers the commands say what they say here.
    pub(crate) fn needs(&self) -> Needs {
        let says = |what: &str| self.0.iter().any(|part| matches!(part, Part::Prose(line) if line == what));
        match (says("Needs: orlop"), says("Needs: controllers")) {
            (true, _) => Needs::Orlop,
            (false, true) => Needs::Controllers,
            (false, false) => Needs::AnyServer,
        }
    }

    pub(crate) fn steps(&mut self) -> impl Iterator<Item = &mut Step> {
        self.0.iter_mut().filter_map(|part| match part {
            Part::Step(step) => Some(step),
            Part::Prose(_) => None,
        })
    }

    /// One text per command whose output is not the same in both.
    pub(crate) fn differences(&self, now: &Self, version: &Version) -> Vec<String> {
        let steps = |transcript: &Self| transcript.clone().steps().map(|step| step.clone()).collect::<Vec<_>>();
        steps(self)
            .iter()
            .zip(&steps(now))
            .filter_map(|(want, got)| {
                let (want_lines, got_lines) = (want.output(*version), got.output(*version));
                (want_lines != got_lines).then(|| {
                    let mut text = format!("$ {}\n", want.command().lines().next().unwrap_or_default());
                    for line in compare(want_lines, got_lines) {
                        text.push_str(&line);
                        text.push('\n');
                    }
                    text
                })
            })
            .collect()
    }
}

impl Step {
    fn read(&mut self, line: &str, empty: usize) {
        if let (Some(more), true) = (line.strip_prefix('>'), self.outputs.is_empty()) {
            self.command.push(more.strip_prefix(' ').unwrap_or(more).to_owned());
            return;
        }
        let version = line.strip_prefix("[kubectl 1.").and_then(|rest| rest.strip_suffix(']')?.parse().ok());
        if let Some(version) = version {
            if self.outputs.is_empty() {
                self.outputs.push((None, Vec::new()));
            }
            self.outputs.push((Some(Version(version)), Vec::new()));
            return;
        }
        if self.outputs.is_empty() {
            self.outputs.push((None, Vec::new()));
        }
        if let Some((_, lines)) = self.outputs.last_mut() {
            lines.extend((0..empty).map(|_| String::new()));
            lines.push(line.to_owned());
        }
    }

    pub(crate) fn command(&self) -> String {
        self.command.join("\n")
    }

    fn output(&self, version: Version) -> &[String] {
        let fits = |given: &Option<Version>| given.is_none_or(|from| from <= version);
        self.outputs.iter().rev().find(|(given, _)| fits(given)).map(|(_, lines)| lines.as_slice()).unwrap_or_default()
    }

    /// Takes what the command has printed now in the place of what it printed by then.
    pub(crate) fn said(&mut self, version: &Version, lines: Vec<String>) {
        if self.outputs.is_empty() {
            self.outputs.push((None, Vec::new()));
        }
        let fits = |given: &Option<Version>| given.is_none_or(|from| from <= *version);
        if let Some((_, place)) = self.outputs.iter_mut().rev().find(|(given, _)| fits(given)) {
            *place = lines;
        }
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                Part::Prose(line) => writeln!(f, "{line}")?,
                Part::Step(step) => step.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.command.iter().enumerate() {
            let sign = if number == 0 { '$' } else { '>' };
            writeln!(f, "{}", format!("{INDENT}{sign} {line}").trim_end())?;
        }
        for (version, lines) in &self.outputs {
            if let Some(version) = version {
                writeln!(f, "{INDENT}[kubectl {version}]")?;
            }
            for line in lines {
                writeln!(f, "{}", format!("{INDENT}{line}").trim_end())?;
            }
        }
        Ok(())
    }
}

/// The lines of both, marked: a longest common subsequence by the plain table, since outputs are short.
fn compare(want: &[String], got: &[String]) -> Vec<String> {
    let mut common = vec![vec![0_usize; got.len() + 1]; want.len() + 1];
    for (i, a) in want.iter().enumerate().rev() {
        for (j, b) in got.iter().enumerate().rev() {
            common[i][j] = if a == b { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < want.len() || j < got.len() {
        match (want.get(i), got.get(j)) {
            (Some(a), Some(b)) if a == b => (i, j) = (i + 1, j + 1),
            (Some(a), b) if b.is_none() || common[i + 1][j] >= common[i][j + 1] => {
                lines.push(format!("-{a}"));
                i += 1;
            }
            (_, Some(b)) => {
                lines.push(format!("+{b}"));
                j += 1;
            }
            (_, None) => break,
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title\n\n    $ one <<E\n    > more\n    > E\n    first\n\n    third\n    [exit 1]\n\nProse.\n\n    \
                        $ two\n\n    $ three\n    old\n    [kubectl 1.34]\n    new\n";

    #[test]
    fn a_transcript_is_read_and_written_without_loss() {
        let mut transcript = Transcript::parse(TEXT);
        assert_eq!(transcript.to_string(), TEXT);
        let commands: Vec<String> = transcript.steps().map(|step| step.command()).collect();
        assert_eq!(commands, ["one <<E\nmore\nE", "two", "three"]);
    }

    #[test]
    fn a_version_sees_and_changes_its_own_output() {
        let mut transcript = Transcript::parse(TEXT);
        let step = transcript.steps().last().expect("there are three");
        assert_eq!(
            (step.output(Version(33)), step.output(Version(36))),
            (&["old".to_owned()][..], &["new".to_owned()][..])
        );
        step.said(&Version(36), vec!["newer".to_owned()]);
        assert_eq!(
            (step.output(Version(33)), step.output(Version(36))),
            (&["old".to_owned()][..], &["newer".to_owned()][..])
        );
    }

    #[test]
    fn a_difference_names_the_command_and_marks_the_lines() {
        let (want, mut got) = (Transcript::parse(TEXT), Transcript::parse(TEXT));
        assert!(want.differences(&got, &Version(33)).is_empty());
        got.steps().next().expect("there are three").said(&Version(33), vec!["first".to_owned(), "fourth".to_owned()]);
        assert_eq!(want.differences(&got, &Version(33)), ["$ one <<E\n-\n-third\n-[exit 1]\n+fourth\n"]);
    }
}
