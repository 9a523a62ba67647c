//! What came of comparing, for people and for programs.
//!
//! The JSON is described in docs/reading-the-state.md.

use serde_json::{Value, json};

use super::{Gone, Keep, OnOtherMachine, Orphan, Report, What};
use crate::table::{self, Cell, Column, Look, Table, Tone};
use crate::tree::{unseen_text, unseen_value};

const FORM: u32 = 1;

const COLUMNS: [Column; 6] = [
    Column::left("KIND"),
    Column::left("NAME"),
    Column::right("SIZE"),
    Column::left("STATE"),
    Column::wide("SOURCE"),
    Column::prose("WHY"),
];

/// How many reasons to keep something are told in a sentence.
const NAMED: usize = 3;

impl Orphan {
    /// Why it is where it is, in one sentence.
    pub fn sentence(&self) -> String {
        let object = match self.what {
            What::Volume => "PersistentVolume",
            What::Snapshot => "VolumeSnapshotContent",
        };
        let mut keep: Vec<String> = self.keep.iter().take(NAMED).map(Keep::to_string).collect();
        if let Some(more) = self.keep.len().checked_sub(NAMED).filter(|more| *more > 0) {
            keep.push(format!("and {more} more such reasons (-o json has them)"));
        }
        match keep.is_empty() {
            true => format!("no {object} names it"),
            false => format!("no {object} names it, but {}", keep.join("; ")),
        }
    }

    fn state(&self) -> (&'static str, Tone) {
        match self.keep.is_empty() {
            true => ("unknown", Tone::Bad),
            false => ("kept", Tone::Waiting),
        }
    }
}

impl Gone {
    /// What is wrong, and for whom.
    pub fn sentence(&self) -> String {
        let user = match (&self.user, self.what) {
            (Some(user), What::Volume) => format!("; claim {user} has it"),
            (Some(user), What::Snapshot) => format!("; VolumeSnapshot {user} has it"),
            (None, _) => String::new(),
        };
        format!("the driver has no {} {:?}{user}", self.what.name(), self.handle)
    }
}

impl OnOtherMachine {
    /// Whose it is, and who can tell more.
    pub fn sentence(&self) -> String {
        let what = self.what.name();
        match (&self.machines[..], self.what) {
            ([], What::Snapshot) => {
                format!("the {what} may be on another machine and cannot be judged from here; ask the driver there")
            }
            ([], What::Volume) => {
                format!("the {what} is on another machine and cannot be judged from here; ask the driver there")
            }
            (machines, _) => format!(
                "the {what} is on machine {} and cannot be judged from here; ask the driver there",
                machines.join(" or ")
            ),
        }
    }
}

fn kind(what: What) -> &'static str {
    match what {
        What::Volume => "pv",
        What::Snapshot => "content",
    }
}

impl Report {
    pub fn text(&self, look: Look) -> String {
        let mut text = self.heading();
        let mut table = Table::new(COLUMNS);
        for orphan in &self.orphans {
            let (state, tone) = orphan.state();
            let size = u64::try_from(orphan.held.bytes).ok().filter(|bytes| *bytes > 0).map(table::bytes);
            table.push([
                orphan.what.name().into(),
                (&*orphan.held.handle).into(),
                Cell::of(size),
                Cell::new(state, tone),
                Cell::of(orphan.held.source.as_deref()),
                orphan.sentence().into(),
            ]);
        }
        for gone in &self.gone {
            table.push([
                kind(gone.what).into(),
                (&*gone.object).into(),
                Cell::default(),
                Cell::new("gone", Tone::Bad),
                Cell::default(),
                gone.sentence().into(),
            ]);
        }
        for other in &self.elsewhere {
            table.push([
                kind(other.what).into(),
                (&*other.object).into(),
                Cell::default(),
                Cell::new("elsewhere", Tone::Quiet),
                Cell::default(),
                other.sentence().into(),
            ]);
        }
        if !table.is_empty() {
            text.push('\n');
            text.push_str(&table.render(look));
        }
        for (what, why) in &self.unlisted {
            text.push_str(&format!("\nThe {}s of the driver are not known: {why}.\n", what.name()));
        }
        text + &unseen_text(&self.unseen)
    }

    fn heading(&self) -> String {
        let has = |count: Option<usize>, what: What| match count {
            Some(1) => format!("1 {}", what.name()),
            Some(count) => format!("{count} {}s", what.name()),
            None => format!("an unknown number of {}s", what.name()),
        };
        let (volumes, snapshots) = (has(self.volumes, What::Volume), has(self.snapshots, What::Snapshot));
        let told = self.unlisted.is_empty() && self.unseen.is_empty();
        let verdict = match (self.agrees(), told) {
            (true, true) if !self.elsewhere.is_empty() => "; the cluster knows them all",
            (true, true) => "; the cluster knows them all, and they are all there",
            (true, false) => "; no difference was found in what could be looked at",
            (false, _) => "",
        };
        format!("Driver {} has {volumes} and {snapshots}{verdict}.\n", self.driver)
    }

    pub fn value(&self) -> Value {
        json!({
            "form": FORM,
            "driver": self.driver,
            "volumes": self.volumes,
            "snapshots": self.snapshots,
            "orphans": self.orphans.iter().map(orphan).collect::<Vec<_>>(),
            "gone": self.gone.iter().map(gone).collect::<Vec<_>>(),
            "elsewhere": self.elsewhere.iter().map(elsewhere).collect::<Vec<_>>(),
            "unlisted": self.unlisted.iter().map(|(what, why)| json!({"what": what.name(), "why": why})).collect::<Vec<_>>(),
            "unseen": unseen_value(&self.unseen),
        })
    }
}

fn orphan(orphan: &Orphan) -> Value {
    json!({
        "kind": orphan.what.name(),
        "handle": orphan.held.handle,
        "bytes": orphan.held.bytes,
        "nodes": orphan.held.nodes,
        "source": orphan.held.source,
        "deletable": orphan.keep.is_empty(),
        "keep": orphan.keep.iter().map(Keep::to_string).collect::<Vec<_>>(),
        "sentence": orphan.sentence(),
    })
}

fn gone(gone: &Gone) -> Value {
    json!({
        "kind": gone.what.name(),
        "object": gone.object,
        "handle": gone.handle,
        "namespace": gone.user.as_ref().and_then(api::Key::namespace),
        "user": gone.user.as_ref().map(api::Key::name),
        "reclaim": gone.reclaim.map(api::ReclaimPolicy::name),
        "sentence": gone.sentence(),
    })
}

fn elsewhere(other: &OnOtherMachine) -> Value {
    json!({
        "kind": other.what.name(),
        "object": other.object,
        "handle": other.handle,
        "machines": other.machines,
        "sentence": other.sentence(),
    })
}
