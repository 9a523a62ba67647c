//! A provisioner whose storage is a map, and whose answers follow a script.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use api::keys::{annotation, finalizer};
use api::{Source, Volume};
use control::provision::{Attempt, Failed, Made, Provisioner, Settled, Unplanned, Wish};
use lifecycle::outcome::Retry;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sim::Journal;
use tokio::sync::Notify;

pub(crate) const DRIVER: &str = "fake.orlop.dev";

/// What the storage does with a call. Without a script it does what it should, at once.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    Works,
    /// Nothing happens, and nobody knows.
    RequestLost,
    /// It happens, and nobody knows.
    AnswerLost,
    /// It happens, and the process that called dies.
    Kills,
    Refuses(Retry),
    /// The answer names this volume, whatever was asked for.
    Gives(&'static str),
    Takes(Duration),
}

/// What was called, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Called {
    Create { name: String, zone: String },
    Delete { handle: String },
    Stored { name: String },
    Nothing { name: String },
}

#[derive(Debug, Default)]
struct State {
    /// What exists: handle by name.
    volumes: BTreeMap<String, String>,
    made: u32,
    zone: String,
    plan: VecDeque<Unplanned>,
    create: VecDeque<Turn>,
    delete: VecDeque<Turn>,
    calls: Vec<Called>,
    /// Volumes that a call is about right now.
    busy: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Storage {
    names: Vec<String>,
    state: Mutex<State>,
    killed: Notify,
    journal: Journal,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    name: String,
    zone: String,
    class: String,
    policy: String,
    size: i64,
    namespace: String,
    claim: String,
    uid: String,
}

impl Storage {
    /// Calls are noted in the world's journal, between the requests.
    pub(crate) fn new(journal: &Journal) -> Self {
        let state = State { zone: "first".to_owned(), ..State::default() };
        Self {
            names: vec![DRIVER.to_owned()],
            state: Mutex::new(state),
            killed: Notify::new(),
            journal: journal.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked with it")
    }

    pub(crate) fn will_plan(&self, answers: impl IntoIterator<Item = Unplanned>) {
        self.state().plan.extend(answers);
    }

    pub(crate) fn will_create(&self, turns: impl IntoIterator<Item = Turn>) {
        self.state().create.extend(turns);
    }

    pub(crate) fn will_delete(&self, turns: impl IntoIterator<Item = Turn>) {
        self.state().delete.extend(turns);
    }

    /// Where plans go from now on.
    pub(crate) fn move_to(&self, zone: &str) {
        self.state().zone = zone.to_owned();
    }

    /// What exists: handle by name.
    pub(crate) fn volumes(&self) -> BTreeMap<String, String> {
        self.state().volumes.clone()
    }

    pub(crate) fn calls(&self) -> Vec<Called> {
        self.state().calls.clone()
    }

    pub(crate) fn creates(&self) -> usize {
        self.calls().iter().filter(|call| matches!(call, Called::Create { .. })).count()
    }

    pub(crate) fn deletes(&self) -> usize {
        self.calls().iter().filter(|call| matches!(call, Called::Delete { .. })).count()
    }

    /// Waits until a call kills the process.
    pub(crate) async fn killed(&self) {
        self.killed.notified().await;
    }

    fn make(&self, name: &str) -> String {
        let mut state = self.state();
        let State { volumes, made, .. } = &mut *state;
        let handle = volumes.entry(name.to_owned()).or_insert_with(|| {
            *made += 1;
            format!("handle-{made}")
        });
        handle.clone()
    }

    /// What comes of a call whose effect is `effect`.
    async fn act<T>(&self, name: &str, turn: Option<Turn>, effect: impl FnOnce() -> T) -> Result<T, Failed> {
        assert!(self.state().busy.insert(name.to_owned()), "two calls at once about {name}");
        let _call = Call { storage: self, name };
        let lost = || Failed::Unknown { message: "the answer was lost".to_owned() };
        match turn.unwrap_or(Turn::Works) {
            Turn::Works | Turn::Gives(_) => Ok(effect()),
            Turn::RequestLost => Err(lost()),
            Turn::AnswerLost => {
                effect();
                Err(lost())
            }
            Turn::Kills => {
                effect();
                self.killed.notify_one();
                std::future::pending().await
            }
            Turn::Refuses(retry) => Err(Failed::Refused { message: "the storage refuses".to_owned(), retry }),
            Turn::Takes(time) => {
                tokio::time::sleep(time).await;
                Ok(effect())
            }
        }
    }
}

/// A call that is going on; it ends with the process, too.
struct Call<'a> {
    storage: &'a Storage,
    name: &'a str,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.storage.state().busy.remove(self.name);
    }
}

impl Provisioner for Storage {
    type Plan = Plan;

    fn names(&self) -> &[String] {
        &self.names
    }

    async fn plan(&self, wish: &Wish) -> Result<Plan, Unplanned> {
        if let Some(answer) = self.state().plan.pop_front() {
            return Err(answer);
        }
        let Wish { claim, class, volume_name, .. } = wish;
        Ok(Plan {
            name: volume_name.clone(),
            zone: self.state().zone.clone(),
            class: class.name().to_owned(),
            policy: class.reclaim_policy.map_or("Delete", api::ReclaimPolicy::name).to_owned(),
            size: claim.request_bytes(),
            namespace: claim.namespace().to_owned(),
            claim: claim.name().to_owned(),
            uid: claim.uid().to_string(),
        })
    }

    async fn create(&self, plan: &Plan, _: Attempt) -> Result<Made, Failed> {
        self.journal.note("storage", "create");
        let turn = {
            let mut state = self.state();
            state.calls.push(Called::Create { name: plan.name.clone(), zone: plan.zone.clone() });
            state.create.pop_front()
        };
        let given = match &turn {
            Some(Turn::Gives(handle)) => Some((*handle).to_owned()),
            _ => None,
        };
        let handle = self.act(&plan.name, turn, || given.unwrap_or_else(|| self.make(&plan.name))).await?;
        let Plan { name, class, policy, size, namespace, claim, uid, .. } = plan;
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name,
                "annotations": {annotation::PROVISIONED_BY.text(): DRIVER},
                "finalizers": [finalizer::EXTERNAL_PROVISIONER.text()]},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size.to_string()},
                "storageClassName": class, "persistentVolumeReclaimPolicy": policy,
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": namespace, "name": claim, "uid": uid},
                "csi": {"driver": DRIVER, "volumeHandle": handle},
            },
        });
        Ok(Made { volume })
    }

    async fn delete(&self, volume: &Volume) -> Result<(), Failed> {
        let Source::Csi { handle, .. } = &volume.source else { panic!("not of this storage: {volume:?}") };
        self.journal.note("storage", "delete");
        let turn = {
            let mut state = self.state();
            state.calls.push(Called::Delete { handle: handle.to_string() });
            state.delete.pop_front()
        };
        self.act(volume.name(), turn, || self.state().volumes.retain(|_, held| **held != **handle)).await
    }

    async fn settled(&self, plan: &Plan, end: Settled<'_>) {
        let name = plan.name.clone();
        self.state().calls.push(match end {
            Settled::Stored(_) => Called::Stored { name },
            Settled::Nothing => Called::Nothing { name },
        });
    }
}
