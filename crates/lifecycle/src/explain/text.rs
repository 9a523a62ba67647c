//! How an explanation reads.

use std::fmt;

use api::{AccessModes, Claim, ClassName, Event};

use super::{Explanation, Picture, Subject};
use crate::table::{Lines, Look, Tone};

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
    let labels = if claim.selector.is_some() { ", with the labels of its selector" } else { "" };
    format!("it asks for {size}, {}, {}, {class}{labels}", modes(claim.access), claim.mode.name())
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
        f.write_str(&self.text(Look::PLAIN))
    }
}

impl Explanation {
    /// The answer for people. Nothing is left out of it, so that wide is the same.
    pub fn text(&self, look: Look) -> String {
        let mut lines = Lines { text: String::new(), paint: look.paint, width: look.width };
        lines.add(0, "", &self.sentence, Tone::Heading);
        lines.blank();
        for link in &self.chain {
            let indent = 2 * (link.depth + 1);
            let who = format!("{} ({}/{}, {})", link.subject, link.step.name(), link.code, link.standing.name());
            lines.add(indent, "", &who, link.standing.into());
            lines.add(indent + 2, "", &link.sentence, Tone::Plain);
            for line in &link.evidence {
                lines.add(indent + 2, "- ", line, Tone::Quiet);
            }
        }
        if !self.fix.is_empty() {
            lines.blank();
            lines.add(0, "", "Fix:", Tone::Heading);
            for advice in &self.fix {
                // A command is copied from the terminal, and must come whole.
                let commands = ["kubectl ", "orlop driver ", "findmnt ", "df -h "];
                lines.width = look.width.filter(|_| !commands.iter().any(|command| advice.contains(command)));
                lines.add(2, "- ", advice, Tone::Plain);
            }
            lines.width = look.width;
        }
        if !self.unseen.is_empty() {
            lines.blank();
            lines.add(0, "", "Could not look at:", Tone::Heading);
            for unseen in &self.unseen {
                lines.add(2, "- ", &format!("{}: {}", unseen.what, unseen.why), Tone::Plain);
            }
        }
        lines.text
    }
}
