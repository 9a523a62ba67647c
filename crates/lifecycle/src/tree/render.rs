//! The tree for people and for programs.
//!
//! The JSON is described in docs/reading-the-state.md. It changes only by new members; one that changes its meaning gets a
//! new number as `form`.

use api::Kind;
use serde_json::{Value, json};

use super::{Branch, Tree};
use crate::decision::Standing;
use crate::explain::Unseen;
use crate::measured::Usage;
use crate::table::{self, Cell, Column, Look, Table, Tone};

/// The form of the JSON.
const FORM: u32 = 1;

const COLUMNS: [Column; 12] = [
    Column::left("NAMESPACE"),
    Column::left("NAME"),
    Column::left("STATE"),
    Column::right("SIZE"),
    Column::right("USED"),
    Column::right("AGE"),
    Column::wide("CLASS"),
    Column::wide("ACCESS"),
    Column::wide("RECLAIM"),
    Column::wide("DRIVER"),
    Column::wide("HANDLE"),
    Column::prose("WHY"),
];

/// Which of the columns the tree stands in.
const NAME: usize = 1;

impl Tree {
    pub fn text(&self, look: Look) -> String {
        let mut table = Table::new(COLUMNS);
        for branch in &self.claims {
            self.rows(&mut table, branch, &Place { before: "", joint: "", below: "" });
        }
        if !self.loose.is_empty() {
            let mut row = [const { Cell::EMPTY }; COLUMNS.len()];
            row[NAME] = "without a claim".into();
            table.push(row);
            self.below(&mut table, &self.loose, "");
        }
        let nothing = match &self.scope.namespace {
            Some(namespace) => format!("There is nothing to show in namespace {namespace}; -A shows all namespaces.\n"),
            None => "There is nothing to show.\n".to_owned(),
        };
        let rows = if table.is_empty() { nothing } else { table.render(look) };
        rows + &unseen_text(&self.unseen)
    }

    fn rows(&self, table: &mut Table<12>, branch: &Branch, place: &Place<'_>) {
        let standing = branch.why.as_ref().map(|why| why.standing);
        let tone = match (standing, branch.state) {
            (Some(Standing::Settled) | None, "Bound" | "attached" | "mounted") => Tone::Good,
            (Some(standing), _) if standing != Standing::Settled => standing.into(),
            (_, _) => Tone::Plain,
        };
        let details = &branch.details;
        let why = branch.why.as_ref();
        // The namespace is that of the claim; what stands below it is in the same one or in none.
        let namespace = branch.subject.namespace.as_deref();
        let namespace = namespace.filter(|_| self.scope.namespace.is_none() && place.joint.is_empty());
        table.push([
            Cell::of(namespace),
            format!("{}{}{}", place.before, place.joint, name(branch)).into(),
            Cell::new(branch.state, tone),
            Cell::of(branch.size.as_ref().map(|(text, _)| &**text)),
            branch.usage.as_ref().and_then(used).unwrap_or_default(),
            Cell::of(branch.age.map(table::age)),
            Cell::of(details.class.as_deref()),
            Cell::of(details.access.as_deref()),
            Cell::of(details.reclaim),
            Cell::of(details.driver.as_deref()),
            Cell::of(details.handle.as_deref()),
            why.map(|why| Cell::new(&*why.sentence, why.standing.into())).unwrap_or_default(),
        ]);
        self.below(table, &branch.below, &format!("{}{}", place.before, place.below));
    }

    fn below(&self, table: &mut Table<12>, branches: &[Branch], before: &str) {
        for (index, branch) in branches.iter().enumerate() {
            let last = index + 1 == branches.len();
            let (joint, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.rows(table, branch, &Place { before, joint, below });
        }
    }

    pub fn value(&self) -> Value {
        json!({
            "form": FORM,
            "settled": self.settled(),
            "claims": self.claims.iter().map(value).collect::<Vec<_>>(),
            "loose": self.loose.iter().map(value).collect::<Vec<_>>(),
            "unseen": unseen_value(&self.unseen),
        })
    }
}

/// Where a branch stands: what is to its left, its joint, and what stands under its joint.
struct Place<'a> {
    before: &'a str,
    joint: &'a str,
    below: &'a str,
}

/// The name as `orlop explain` takes it, where it does.
fn name(branch: &Branch) -> String {
    let node = branch.details.node.as_deref();
    match branch.subject.kind {
        kind if kind == Kind::CLAIM.kind => format!("pvc/{}", branch.subject.name),
        kind if kind == Kind::VOLUME.kind => format!("pv/{}", branch.subject.name),
        // Its own name is a hash that tells nobody anything.
        kind if kind == Kind::ATTACHMENT.kind => format!("attachment to {}", node.unwrap_or_default()),
        kind if kind == Kind::POD.kind => match node {
            Some(node) => format!("pod/{} on {node}", branch.subject.name),
            None => format!("pod/{}", branch.subject.name),
        },
        _ => match &branch.details.claim {
            Some(claim) => format!("intent for {} of claim {claim}", branch.subject.name),
            None => format!("intent for {}", branch.subject.name),
        },
    }
}

fn used(usage: &Usage) -> Option<Cell> {
    let percent = usage.percent()?;
    let tone = match (percent, usage.abnormal) {
        (_, Some(true)) | (95.., _) => Tone::Bad,
        (80.., _) => Tone::Waiting,
        (_, _) => Tone::Plain,
    };
    let ill = if usage.abnormal == Some(true) { " ill" } else { "" };
    Some(Cell::new(format!("{percent}%{ill}"), tone))
}

fn value(branch: &Branch) -> Value {
    let details = &branch.details;
    json!({
        "kind": branch.subject.kind,
        "namespace": branch.subject.namespace,
        "name": branch.subject.name,
        "state": branch.state,
        "ageSeconds": branch.age,
        "size": branch.size.as_ref().map(|(text, _)| text),
        "bytes": branch.size.as_ref().map(|(_, bytes)| bytes),
        "usage": branch.usage.as_ref().map(usage_value),
        "reason": branch.why.as_ref().map(|why| json!({
            "step": why.step, "reason": why.code, "standing": why.standing.name(), "sentence": why.sentence,
        })),
        "class": details.class,
        "access": details.access,
        "reclaim": details.reclaim,
        "node": details.node,
        "driver": details.driver,
        "handle": details.handle,
        "claim": details.claim,
        "below": branch.below.iter().map(value).collect::<Vec<_>>(),
    })
}

/// How full a volume is, for programs.
pub(crate) fn usage_value(usage: &Usage) -> Value {
    json!({
        "capacityBytes": usage.capacity,
        "availableBytes": usage.available,
        "usedBytes": usage.used,
        "inodes": usage.inodes,
        "inodesUsed": usage.inodes_used,
        "abnormal": usage.abnormal,
    })
}

/// What could not be looked at, below whatever could.
pub(crate) fn unseen_text(unseen: &[Unseen]) -> String {
    if unseen.is_empty() {
        return String::new();
    }
    let lines: String = unseen.iter().map(|one| format!("  - {}: {}\n", one.what, one.why)).collect();
    format!("\nCould not look at:\n{lines}")
}

pub(crate) fn unseen_value(unseen: &[Unseen]) -> Value {
    unseen.iter().map(|one| json!({"what": one.what, "why": one.why})).collect()
}
