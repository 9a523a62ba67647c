//! How an explanation reads.

use std::fmt;

use api::{AccessModes, Claim, ClassName, Event};

use super::{Explanation, Picture, Subject};

/// How long ago: the largest unit that is at least one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Age(pub(crate) i64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.max(0) {
            seconds @ ..120 => write!(f, "{seconds}s"),
            seconds @ ..7_200 => write!(f, "{}m", seconds / 60),
            seconds @ ..172_800 => write!(f, "{}h", seconds / 3_600),
            seconds => write!(f, "{}d", seconds / 86_400),
        }
    }
}

/// A text on one line, without anything that moves a terminal's cursor: others wrote it.
pub(crate) fn plain(text: &str) -> String {
    let printable: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    printable.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Access modes as people write them.
pub(super) fn modes(modes: AccessModes) -> String {
    let names: Vec<&str> = modes.iter().map(api::AccessMode::name).collect();
    match (names.is_empty(), modes.has_unknown()) {
        (true, false) => "no access mode".to_owned(),
        (false, false) => names.join(", "),
        (_, true) => "an access mode that is not known".to_owned(),
    }
}

/// What a claim asks for.
pub(super) fn wish(claim: &Claim) -> String {
    let size = claim.request.as_ref().map_or("no size", api::Amount::text);
    let class = match claim.class() {
        ClassName::Unset => "no class named".to_owned(),
        ClassName::None => "expressly no class".to_owned(),
        ClassName::Named(name) => format!("class {name:?}"),
    };
    format!("it asks for {size}, {}, {}, {class}", modes(claim.access), claim.mode.name())
}

/// An event as evidence.
pub(super) fn said(picture: &Picture, event: &Event) -> String {
    let times = if event.count > 1 { format!(", {} times", event.count) } else { String::new() };
    let by = if event.by.is_empty() { String::new() } else { format!(" from {}", event.by) };
    format!("event {}{by}, {} ago{times}: {}", event.reason, picture.age(event.last), event.message)
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.sentence)?;
        writeln!(f)?;
        for link in &self.chain {
            let indent = "  ".repeat(link.depth + 1);
            writeln!(f, "{indent}{} ({}/{}, {})", link.subject, link.step.name(), link.code, link.standing.name())?;
            writeln!(f, "{indent}  {}", link.sentence)?;
            for line in &link.evidence {
                writeln!(f, "{indent}  - {line}")?;
            }
        }
        if !self.fix.is_empty() {
            writeln!(f, "\nFix:")?;
            for advice in &self.fix {
                writeln!(f, "  - {advice}")?;
            }
        }
        if !self.unseen.is_empty() {
            writeln!(f, "\nCould not look at:")?;
            for unseen in &self.unseen {
                writeln!(f, "  - {}: {}", unseen.what, unseen.why)?;
            }
        }
        Ok(())
    }
}
