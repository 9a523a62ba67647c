//! A world with a provisioner that can die and come back, and a user who also plays the binder's part.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::keys::{annotation, finalizer, label};
use api::{Claim, ConfigMap, Key, Kind, Object, Uid, Volume};
use control::provision::{Engine, Options};
use runtime::client::{Preconditions, Selection};
use runtime::{Client, Patch, Stop};
use serde_json::{Value, json};
use sim::faults::{Action, Ask, Fair, Fate, Fates, Flow, Verdict};
use sim::{Ended, Process, Seed, Setup, World, simulate};
use tokio::time::sleep;

use crate::storage::{DRIVER, Storage};

pub(crate) const NAMESPACE: &str = "default";
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Its time was over.
    Stopped,
    /// It died at a request to the API server.
    Crashed,
    /// It died in a call to the storage.
    Killed,
}

pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) storage: Arc<Storage>,
    pub(crate) user: Client,
    lives: AtomicU64,
}

/// Plays a scenario in a world of its own.
pub(crate) fn play<T: Send, F: Future<Output = T>>(scenario: impl FnOnce(Rig) -> F + Send) -> T {
    let seed = Seed(4);
    println!("seed {seed}");
    let play = async |world: World| {
        let user = world.component("user", Fair);
        let user = Process::new(&world, &user, 0).context.client;
        let storage = Arc::new(Storage::new(world.journal()));
        let rig = Rig { world, storage, user, lives: AtomicU64::new(0) };
        rig.class("fast", json!({})).await;
        scenario(rig).await
    };
    simulate(seed, Setup::default(), play).expect("a world can be made")
}

impl Rig {
    /// A process that provisions for so long, or until it dies.
    pub(crate) async fn live(&self, fates: impl Fates + 'static, time: Duration) -> End {
        self.live_beside(fates, sleep(time)).await
    }

    /// A process that provisions until `play` has ended, or until it dies.
    pub(crate) async fn live_beside(&self, fates: impl Fates + 'static, play: impl Future<Output = ()>) -> End {
        let life = self.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let component = self.world.component("provisioner", fates);
        let process = Process::new(&self.world, &component, life);
        let engine = Engine::new(&process.context, self.storage.clone(), Options::new("fake_host_1", NAMESPACE));
        let stop = Stop::never();
        let work = async {
            tokio::select! {
                biased;
                () = self.storage.killed() => End::Killed,
                () = play => End::Stopped,
                () = engine.run(&stop) => End::Stopped,
            }
        };
        // On the heap: lives may be nested, and a test's stack is small.
        match component.run(Box::pin(process.run(&stop, Box::pin(work)))).await {
            Ended::Finished(end) => end,
            Ended::Crashed => End::Crashed,
        }
    }

    pub(crate) async fn class(&self, name: &str, patch: Value) {
        let mut body = json!({"apiVersion": Kind::STORAGE_CLASS.api_version(), "kind": "StorageClass",
            "metadata": {"name": name}, "provisioner": DRIVER, "reclaimPolicy": "Delete"});
        for (key, value) in patch.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        self.user.create::<Value>(Kind::STORAGE_CLASS, None, &body).await.expect("the user's request is answered");
    }

    pub(crate) async fn delete_class(&self, name: &str) {
        let key = Key::cluster(name);
        self.user.delete::<api::Class>(&key, &Preconditions::default()).await.expect("the user's request is answered");
    }

    /// A claim that the binder asks us to serve.
    pub(crate) async fn claim(&self, name: &str) -> Uid {
        self.claim_with(name, json!({annotation::STORAGE_PROVISIONER.text(): DRIVER})).await
    }

    pub(crate) async fn claim_with(&self, name: &str, annotations: Value) -> Uid {
        let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}}}});
        let claim = self
            .user
            .create::<Claim>(Kind::CLAIM, Some(NAMESPACE), &body)
            .await
            .expect("the user's request is answered");
        claim.uid().clone()
    }

    pub(crate) async fn get<T: Object>(&self, key: &Key) -> Option<T> {
        match self.user.get::<T>(T::KIND, key).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn volume(&self, claim: &Uid) -> Option<Volume> {
        self.get(&Key::cluster(&format!("pvc-{claim}"))).await
    }

    pub(crate) async fn patch(&self, kind: Kind, key: &Key, patch: Value) {
        self.user.patch::<Value>(kind, key, &Patch::Merge(patch)).await.expect("the user's request is answered");
    }

    /// Deletes a claim for good, as its protection would after its last user.
    pub(crate) async fn delete_claim(&self, name: &str) {
        let key = Key::namespaced(NAMESPACE, name);
        self.user.delete::<Claim>(&key, &Preconditions::default()).await.expect("the user's request is answered");
        self.patch(Kind::CLAIM, &key, json!({"metadata": {"finalizers": null}})).await;
        assert!(self.get::<Claim>(&key).await.is_none());
    }

    /// What the binder does when it joins the two.
    pub(crate) async fn bind(&self, claim: &str, uid: &Uid) {
        let volume = format!("pvc-{uid}");
        self.set_phase(&volume, "Bound").await;
        self.patch(Kind::CLAIM, &Key::namespaced(NAMESPACE, claim), json!({"spec": {"volumeName": volume}})).await;
    }

    pub(crate) async fn set_phase(&self, volume: &str, phase: &str) {
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        self.user
            .patch_status::<Value>(Kind::VOLUME, &Key::cluster(volume), &patch)
            .await
            .expect("the user's request is answered");
    }

    /// What the binder and the volume's protection do when the claim is gone.
    pub(crate) async fn release(&self, volume: &str) {
        let ours = json!([finalizer::EXTERNAL_PROVISIONER.text()]);
        self.patch(Kind::VOLUME, &Key::cluster(volume), json!({"metadata": {"finalizers": ours}})).await;
        self.set_phase(volume, "Released").await;
    }

    /// Releases a volume to be deleted. One whose claim was gone when its intent was found is kept until an operator decides.
    pub(crate) async fn release_for_good(&self, volume: &Volume) {
        if volume.reclaim == api::ReclaimPolicy::Retain {
            let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
            self.patch(Kind::VOLUME, &volume.meta.key, patch).await;
        }
        self.release(volume.name()).await;
    }

    pub(crate) async fn volumes(&self) -> Vec<Volume> {
        self.user
            .list(Kind::VOLUME, &Selection::default(), 0, None)
            .await
            .expect("the user's request is answered")
            .items
    }

    /// What the journal holds, by claim.
    pub(crate) async fn intents(&self) -> Vec<(String, String)> {
        let labels = Some(label::INTENTS.text().to_owned());
        let selection = Selection { namespace: Some(NAMESPACE.to_owned()), labels, ..Selection::default() };
        let pages = self
            .user
            .list::<ConfigMap>(Kind::CONFIG_MAP, &selection, 0, None)
            .await
            .expect("the user's request is answered")
            .items;
        let entries = pages.into_iter().flat_map(|page| page.data.unwrap_or_default());
        entries.map(|(key, text)| (key.to_string(), text.to_string())).collect()
    }

    /// The reasons of all events about an object, sorted.
    pub(crate) async fn events(&self, about: &str) -> Vec<String> {
        let events = self
            .user
            .list::<Value>(Kind::EVENT, &Selection::default(), 0, None)
            .await
            .expect("the user's request is answered")
            .items;
        let about = events.iter().filter(|event| event["involvedObject"]["name"] == about);
        let mut reasons: Vec<String> = about.filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect();
        reasons.sort();
        reasons.dedup();
        reasons
    }

    /// Nothing in the storage without an object, or an open intent, that stands for it.
    pub(crate) async fn nothing_is_lost(&self) {
        let (stored, open) = (self.volumes().await, self.intents().await);
        for (name, handle) in self.storage.volumes() {
            let is_it =
                |volume: &Volume| matches!(&volume.source, api::Source::Csi { handle: held, .. } if **held == *handle);
            let begun = open.iter().any(|(_, text)| text.contains(&format!("\"{name}\"")));
            assert!(begun || stored.iter().any(is_it), "{name} ({handle}) is lost: {stored:#?} {open:?}");
        }
    }

    /// After everything has come to rest: exactly what is stored exists, and nothing is open.
    pub(crate) async fn at_rest(&self) {
        self.nothing_is_lost().await;
        assert_eq!(self.intents().await, [], "intents are left open");
        assert_eq!(self.storage.volumes().len(), self.volumes().await.len(), "{:?}", self.storage.volumes());
    }
}

/// Does this request change anything but events?
pub(crate) fn writes(ask: &Ask<'_>) -> bool {
    matches!(ask.action, Action::Create | Action::Update | Action::Delete) && !ask.path.contains("/events")
}

/// The `number`th write meets this fate, everything else is answered.
pub(crate) fn at_write(number: u64, fate: Fate) -> impl Fates {
    let mut seen = 0;
    move |ask: &Ask<'_>| -> Verdict {
        seen += u64::from(writes(ask));
        match writes(ask) && seen == number {
            true => fate.clone().into(),
            false => Fate::Answered.into(),
        }
    }
}

/// The first `times` writes to a path that holds `part` meet this fate.
pub(crate) fn on_path(part: &'static str, times: u64, fate: Fate) -> impl Fates {
    let mut seen = 0;
    move |ask: &Ask<'_>| -> Verdict {
        if writes(ask) && ask.path.contains(part) && seen < times {
            seen += 1;
            return fate.clone().into();
        }
        Fate::Answered.into()
    }
}

/// How many requests of the world's journal a component made, by what its line holds.
pub(crate) fn requests(world: &World, parts: &[&str]) -> usize {
    let lines = world.journal().lines();
    lines.iter().filter(|line| line.contains(" provisioner ") && parts.iter().all(|part| line.contains(part))).count()
}

/// Holds back what the process hears of one kind, from a moment on: each event comes ten minutes after the one before.
pub(crate) struct Deaf {
    plural: &'static str,
    watches: Vec<u64>,
    deaf: Arc<Mutex<bool>>,
}

impl Deaf {
    pub(crate) fn to(plural: &'static str, deaf: &Arc<Mutex<bool>>) -> Self {
        Self { plural, watches: Vec::new(), deaf: deaf.clone() }
    }
}

impl Fates for Deaf {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        if ask.action == Action::Watch && ask.path.ends_with(self.plural) {
            self.watches.push(ask.number);
        }
        Fate::Answered.into()
    }

    fn event(&mut self, watch: u64) -> Flow {
        match *self.deaf.lock().expect("nobody panicked with it") && self.watches.contains(&watch) {
            true => Flow::Held(10 * MINUTE),
            false => Flow::Passes,
        }
    }
}
