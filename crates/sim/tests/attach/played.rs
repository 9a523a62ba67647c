//! An attacher and the agents of nodes, each as simple as its contract allows, and the storage they work on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::{Key, Kind};
use apiserver::store::Store;
use lifecycle::attach::unique_name;
use runtime::client::Selection;
use runtime::{Client, Patch};
use serde_json::{Value, json};
use tokio::time::sleep;

pub(crate) const DRIVER: &str = "d.example.com";
const FINALIZER: &str = "external-attacher/d-example-com";

pub(crate) fn unique(handle: &str) -> String {
    unique_name(DRIVER, handle)
}

/// What the played parts are told to do.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// The attacher does nothing.
    pub(crate) asleep: bool,
    pub(crate) attach_error: Option<String>,
    pub(crate) detach_error: Option<String>,
    /// Handles that the attacher has not come to yet.
    pub(crate) slow: BTreeSet<String>,
    /// Nodes that are switched off: their agents do nothing.
    pub(crate) dead: BTreeSet<String>,
    /// Nodes that cannot unmount.
    pub(crate) stuck: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Storage {
    pub(crate) orders: Orders,
    /// Nodes by handle.
    published: BTreeMap<String, BTreeSet<String>>,
    /// Node and handle.
    mounted: BTreeSet<(String, String)>,
    /// What attachments are for, by uid, as a driver remembers it.
    handles: BTreeMap<String, String>,
    violations: Vec<String>,
    /// Whether there are orders that nobody has looked at.
    ordered: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Played {
    client: Client,
    store: Store,
    storage: Arc<Mutex<Storage>>,
}

fn names(list: &Value) -> BTreeSet<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(|one| one.as_str().or_else(|| one["name"].as_str()));
    texts.map(str::to_owned).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Played {
    pub(crate) fn new(client: Client, store: Store) -> Self {
        Self { client, store, storage: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Storage> {
        self.storage.lock().expect("nobody panicked with it")
    }

    /// The storage, for whoever gives orders: they are followed at once.
    pub(crate) fn storage(&self) -> MutexGuard<'_, Storage> {
        let mut storage = self.lock();
        storage.ordered = true;
        storage
    }

    pub(crate) fn mounted(&self, node: &str, handle: &str) -> bool {
        self.lock().mounted.contains(&(node.to_owned(), handle.to_owned()))
    }

    pub(crate) fn published(&self, handle: &str) -> BTreeSet<String> {
        self.lock().published.get(handle).cloned().unwrap_or_default()
    }

    /// What must never happen has not.
    pub(crate) fn check(&self) {
        let violations = std::mem::take(&mut self.lock().violations);
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Everybody looks when something has changed.
    pub(crate) async fn run(&self) {
        let mut seen = None;
        loop {
            let now = Some(self.store.revision());
            if std::mem::take(&mut self.lock().ordered) || now != seen {
                seen = now;
                self.attacher().await;
                for node in self.list(Kind::NODE).await {
                    self.agent(text(&node["metadata"]["name"])).await;
                }
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn list(&self, kind: Kind) -> Vec<Value> {
        self.client.list::<Value>(kind, &Selection::default(), 0, None).await.expect("the server lists").items
    }

    async fn patch(&self, kind: Kind, name: &str, status: bool, patch: Value) -> Option<Value> {
        let (key, patch) = (Key::cluster(name), Patch::Merge(patch));
        let patched = match status {
            true => self.client.patch_status::<Value>(kind, &key, &patch).await,
            false => self.client.patch::<Value>(kind, &key, &patch).await,
        };
        // Somebody else may have ended it meanwhile.
        patched.ok()
    }

    async fn attacher(&self) {
        if self.lock().orders.asleep {
            return;
        }
        for attachment in self.list(Kind::ATTACHMENT).await {
            let (meta, spec) = (&attachment["metadata"], &attachment["spec"]);
            if let Some(handle) = handle(spec) {
                self.lock().handles.entry(text(&meta["uid"]).to_owned()).or_insert(handle);
            }
            match meta["deletionTimestamp"].is_string() {
                true => self.unpublish(&attachment).await,
                false if attachment["status"]["attached"] != true && !self.is_slow(spec) => {
                    self.publish(&attachment).await;
                }
                false => {}
            }
        }
    }

    fn is_slow(&self, spec: &Value) -> bool {
        handle(spec).is_some_and(|handle| self.lock().orders.slow.contains(&handle))
    }

    async fn publish(&self, attachment: &Value) {
        let name = text(&attachment["metadata"]["name"]);
        let guarded = json!({"metadata": {"finalizers": [FINALIZER]}});
        if self.patch(Kind::ATTACHMENT, name, false, guarded).await.is_none() {
            return;
        }
        let refused = self.lock().orders.attach_error.clone();
        let status = match refused {
            Some(message) => json!({"attachError": {"message": message, "time": "2027-01-01T00:00:00Z"}}),
            None => {
                self.publish_now(attachment);
                json!({"attached": true, "attachError": null})
            }
        };
        self.patch(Kind::ATTACHMENT, name, true, json!({"status": status})).await;
    }

    fn publish_now(&self, attachment: &Value) {
        let node = text(&attachment["spec"]["nodeName"]).to_owned();
        let mut storage = self.lock();
        let Some(handle) = storage.handles.get(text(&attachment["metadata"]["uid"])).cloned() else { return };
        let nodes = storage.published.entry(handle.clone()).or_default();
        nodes.insert(node);
        if handle.starts_with("one") && nodes.len() > 1 {
            let violation = format!("CTRL-I15: {handle} is on {nodes:?}");
            storage.violations.push(violation);
        }
    }

    async fn unpublish(&self, attachment: &Value) {
        let (meta, node) = (&attachment["metadata"], text(&attachment["spec"]["nodeName"]).to_owned());
        if meta["finalizers"].as_array().is_none_or(Vec::is_empty) {
            return;
        }
        let refused = self.lock().orders.detach_error.clone();
        if let Some(message) = refused {
            let status = json!({"detachError": {"message": message, "time": "2027-01-01T00:00:00Z"}});
            self.patch(Kind::ATTACHMENT, text(&meta["name"]), true, json!({"status": status})).await;
            return;
        }
        {
            let mut storage = self.lock();
            let handle = storage.handles.get(text(&meta["uid"])).cloned().unwrap_or_default();
            let mounted = storage.mounted.contains(&(node.clone(), handle.clone()));
            if mounted && !storage.orders.dead.contains(&node) {
                storage.violations.push(format!("{handle} was taken from {node}, which has it mounted"));
            }
            storage.mounted.remove(&(node.clone(), handle.clone()));
            storage.published.entry(handle).or_default().remove(&node);
        }
        self.patch(Kind::ATTACHMENT, text(&meta["name"]), false, json!({"metadata": {"finalizers": null}})).await;
    }

    /// Takes a volume away behind everybody's back, as a fence does, and says so.
    pub(crate) async fn fence(&self, node: &str, handle: &str) {
        {
            let mut storage = self.lock();
            storage.orders.asleep = true;
            storage.published.entry(handle.to_owned()).or_default().remove(node);
            storage.mounted.remove(&(node.to_owned(), handle.to_owned()));
        }
        let name = lifecycle::attach::attachment_name(DRIVER, handle, node);
        self.patch(Kind::ATTACHMENT, &name, true, json!({"status": {"attached": false}})).await;
    }

    /// One look of a node's agent: it says what it uses, then looks at what it has, and only then mounts (ATTACH-6.7).
    async fn agent(&self, name: &str) {
        if self.lock().orders.dead.contains(name) {
            return;
        }
        let pods = self.list(Kind::POD).await;
        let here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == name);
        let living = here.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let wanted: BTreeSet<String> = living.flat_map(handles).collect();
        let used: BTreeSet<String> = {
            let mut storage = self.lock();
            let stuck = storage.orders.stuck.contains(name);
            storage.mounted.retain(|(node, handle)| stuck || node != name || wanted.contains(handle));
            let mounted = storage.mounted.iter().filter(|(node, _)| node == name).map(|(_, handle)| handle.clone());
            wanted.iter().cloned().chain(mounted).map(|handle| unique(&handle)).collect()
        };
        let Ok(node) = self.client.get::<Value>(Kind::NODE, &Key::cluster(name)).await else { return };
        if names(&node["status"]["volumesInUse"]) != used {
            let said = json!({"status": {"volumesInUse": used}});
            if self.patch(Kind::NODE, name, true, said).await.is_none() {
                return;
            }
        }
        let Ok(node) = self.client.get::<Value>(Kind::NODE, &Key::cluster(name)).await else { return };
        let attached = names(&node["status"]["volumesAttached"]);
        for handle in wanted.iter().filter(|handle| attached.contains(&unique(handle))) {
            self.mount(name, handle);
        }
    }

    fn mount(&self, node: &str, handle: &str) {
        let mut storage = self.lock();
        if !storage.mounted.insert((node.to_owned(), handle.to_owned())) {
            return;
        }
        if !storage.published.get(handle).is_some_and(|nodes| nodes.contains(node)) {
            storage.violations.push(format!("CTRL-I13: {handle} was mounted on {node}, where it is not attached"));
        }
    }
}

/// What an attachment is for: the volume `pv-HANDLE`, or what it carries.
fn handle(spec: &Value) -> Option<String> {
    let source = &spec["source"];
    let inline = source["inlineVolumeSpec"]["csi"]["volumeHandle"].as_str();
    source["persistentVolumeName"].as_str().and_then(|name| name.strip_prefix("pv-")).or(inline).map(str::to_owned)
}

/// The volumes of a pod: its claims are named like their volumes.
fn handles(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()).map(str::to_owned).collect()
}
