//! Conflicts: fields that an applier wants to change and another manager owns. The texts are part of the protocol
//! (API-4.6).

use std::collections::BTreeMap;
use std::fmt;

use super::managed::{Entry, Operation};
use super::path::{Path, path_text};
use super::set::FieldSet;

/// One field that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who owns it, as `"m1"` or `"upd" using v1`.
    pub owner: String,
    pub path: Path,
    identity: String,
}

impl Conflict {
    /// The cause's message in a Status.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.owner)
    }

    /// The cause's field in a Status.
    pub fn field(&self) -> String {
        path_text(&self.path)
    }
}

/// Conflicts that an answer names, and the bytes of their paths; the first one is named whatever its length. The message
/// still says how many there are.
const MOST_CONFLICTS: usize = 1_000;
const MOST_PATH_BYTES: usize = 1 << 20;

/// All conflicts of an apply; its text is the Status message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    pub(super) fn of(owned: &BTreeMap<String, (Entry, FieldSet)>) -> Self {
        let all = owned.iter().flat_map(|(identity, (entry, fields))| {
            let conflict = |path| Conflict { owner: owner_text(entry), path, identity: identity.clone() };
            fields.paths().into_iter().map(conflict)
        });
        Self(all.collect())
    }

    /// The conflicts that are named, each with its field.
    pub fn named(&self) -> impl Iterator<Item = (&Conflict, String)> {
        let mut bytes = 0;
        self.0.iter().take(MOST_CONFLICTS).map_while(move |conflict| {
            let room = bytes < MOST_PATH_BYTES;
            let field = room.then(|| conflict.field())?;
            bytes += field.len();
            Some((conflict, field))
        })
    }

    pub(super) fn without(self, allowed: &FieldSet) -> Self {
        Self(self.0.into_iter().filter(|conflict| !allowed.contains(&conflict.path)).collect())
    }
}

fn owner_text(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

impl fmt::Display for Conflicts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(out, "Apply failed with 1 conflict: {}: {}", only.message(), only.field());
        }
        let mut by_owner: BTreeMap<&str, Vec<(&Conflict, String)>> = BTreeMap::new();
        for (conflict, field) in self.named() {
            by_owner.entry(&conflict.identity).or_default().push((conflict, field));
        }
        let mut lines = Vec::new();
        for conflicts in by_owner.values() {
            lines.extend(conflicts.first().map(|(first, _)| format!("conflicts with {}:", first.owner)));
            lines.extend(conflicts.iter().map(|(_, field)| format!("- {field}")));
        }
        write!(out, "Apply failed with {} conflicts: {}", self.0.len(), lines.join("\n"))
    }
}

impl std::error::Error for Conflicts {}
