//! An explanation for people and for programs.
//!
//! The JSON is described in docs/orlop-explain.md. It changes only by new members; one that changes its meaning gets a new
//! number as `form`.

use lifecycle::explain::{Explanation, Link, Subject, Unseen};
use lifecycle::table::Look;
use serde_json::{Value, json};

use crate::cluster::output::Answer;

/// The form of the JSON.
const FORM: u32 = 1;

impl Answer for Explanation {
    /// Nothing is left out of the text, so that wide is the same.
    fn text(&self, look: Look) -> String {
        Explanation::text(self, look)
    }

    fn value(&self) -> Value {
        value(self)
    }
}

fn value(explanation: &Explanation) -> Value {
    json!({
        "form": FORM,
        "subject": subject(&explanation.subject),
        "state": explanation.state,
        "standing": explanation.standing.name(),
        "healthy": explanation.healthy(),
        "sentence": explanation.sentence,
        "chain": explanation.chain.iter().map(link).collect::<Vec<_>>(),
        "fix": explanation.fix,
        "unseen": explanation.unseen.iter().map(unseen).collect::<Vec<_>>(),
    })
}

fn subject(subject: &Subject) -> Value {
    json!({"kind": subject.kind, "namespace": subject.namespace, "name": subject.name})
}

fn link(link: &Link) -> Value {
    json!({
        "subject": subject(&link.subject),
        "depth": link.depth,
        "step": link.step.name(),
        "reason": link.code,
        "standing": link.standing.name(),
        "sentence": link.sentence,
        "evidence": link.evidence,
    })
}

fn unseen(unseen: &Unseen) -> Value {
    json!({"what": unseen.what, "why": unseen.why})
}
