//! A writer: owns its objects, writes until the server is gone, and remembers what it was promised.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::objects::{Kind, is_being_deleted, mark, marks, token};
use crate::api_rig::{Random, ask, revision};

/// Objects of each kind that a writer has.
const SLOTS: u64 = 2;

/// A write that was acknowledged.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// Of what was written; a removal does not tell its own.
    pub(crate) written: Option<(u64, String)>,
}

/// A write whose answer did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Puts this token there.
    Put(String),
    /// Removes the object, or marks it as being deleted if it has finalizers.
    Delete,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// As last acknowledged, or as found after a restart.
    pub(crate) settled: Option<Value>,
    pub(crate) pending: Option<Pending>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    number: u64,
    random: Random,
    writes: u64,
    pub(crate) slots: BTreeMap<(Kind, String), Slot>,
    pub(crate) acknowledged: Vec<Acknowledged>,
}

impl Writer {
    pub(crate) fn new(number: u64, seed: u64) -> Self {
        let names = (0..SLOTS).flat_map(|slot| Kind::ALL.map(|kind| (kind, format!("w{number}-{slot}"))));
        let slots = names.map(|name| (name, Slot::default())).collect();
        Self { number, random: Random::new(seed.wrapping_add(number)), writes: 0, slots, acknowledged: Vec::new() }
    }

    /// Returns when the connection breaks. `count` goes up with each acknowledged write.
    pub(crate) async fn run(mut self, client: kube::Client, count: Arc<watch::Sender<u64>>) -> Self {
        while self.write(&client).await.is_ok() {
            count.send_modify(|count| *count += 1);
        }
        self
    }

    async fn write(&mut self, client: &kube::Client) -> Result<(), String> {
        let at = self.random.below(self.slots.len() as u64) as usize;
        let dice = self.random.below(10);
        let ((kind, name), slot) = self.slots.iter_mut().nth(at).expect("the slot is below their number");
        self.writes += 1;
        let mark_with = format!("{}-{}", self.number, self.writes);
        let (collection, single) = (kind.path().to_owned(), format!("{}/{name}", kind.path()));
        let (method, path, body, pending) = match &slot.settled {
            None => ("POST", collection, Some(kind.object(name, &mark_with)), Pending::Put(mark_with.clone())),
            Some(object) if is_being_deleted(object) => {
                ("PATCH", single, Some(json!({"metadata": {"finalizers": null}})), Pending::Delete)
            }
            Some(_) if dice < 2 => ("DELETE", single, None, Pending::Delete),
            Some(object) if dice < 6 => {
                let mut object = object.clone();
                mark(&mut object, &mark_with);
                ("PUT", single, Some(object), Pending::Put(mark_with.clone()))
            }
            Some(_) => ("PATCH", single, Some(marks(&mark_with)), Pending::Put(mark_with.clone())),
        };
        let removes = method == "PATCH" && pending == Pending::Delete;
        slot.pending = Some(pending);
        let (code, answer) = ask(client, (method, &path), body.as_ref()).await?;
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        slot.pending = None;
        let gone = removes || answer["kind"] == "Status";
        slot.settled = (!gone).then_some(answer);
        let written = slot.settled.as_ref().map(|object| (revision(object), token(object).to_owned()));
        self.acknowledged.push(Acknowledged { kind: *kind, name: name.clone(), written });
        Ok(())
    }

    /// Compares what it knows with what is there after a restart, and goes on from that. Gives how many writes without
    /// an answer had happened all the same.
    pub(crate) fn compare(&mut self, found: &BTreeMap<(Kind, String), Value>) -> u64 {
        let mut happened = 0;
        for (key, slot) in &mut self.slots {
            let found = found.get(key);
            let same = plain(found) == plain(slot.settled.as_ref());
            match slot.pending.take() {
                _ if same => {}
                None => panic!("{key:?} was acknowledged as {:?} and is {found:?}", slot.settled),
                Some(pending) => {
                    happened += 1;
                    let whole = match (&pending, found) {
                        (Pending::Put(wanted), Some(object)) => token(object) == wanted,
                        (Pending::Delete, Some(object)) => is_being_deleted(object),
                        (Pending::Delete, None) => true,
                        (Pending::Put(_), None) => false,
                    };
                    assert!(whole, "{key:?}: {pending:?} was done by half: {found:?}");
                    let before = slot.settled.as_ref().map_or(0, revision);
                    assert!(found.is_none_or(|object| revision(object) > before), "{key:?}: {found:?} after {before}");
                    slot.settled = found.cloned();
                }
            }
        }
        happened
    }
}

/// Objects in a list do not say their kind.
fn plain(object: Option<&Value>) -> Option<Value> {
    let mut object = object?.clone();
    for field in ["kind", "apiVersion"] {
        object.as_object_mut()?.remove(field);
    }
    Some(object)
}
