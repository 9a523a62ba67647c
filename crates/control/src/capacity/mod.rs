//! Tells the scheduler how much room there is: CSIStorageCapacity objects, kept true (PROVISION-2.12).
//!
//! The unit of work is an item, one class in one place. Its object is written when the driver's answer changed, when
//! the object was changed by others, and when volumes come and go; each item is asked again after the poll interval.
//!
//! # Invariants
//! 1. Work is queued by value: however often something is told, an item waits once (SIDECAR-13.26).
//! 2. A place that many nodes share is one place (SIDECAR-13.27).
//! 3. An object's name follows from its item, so that a lost answer cannot make two.

mod measure;
mod owner;
mod refresh;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::keys::{label, value};
use api::{Capacity, Class, CsiNode, Key, Kind, Node, Object as _};
use csi::v1;
use lifecycle::capacity::{self, Immediate, Item, OwnedBy, Room, Step};
use lifecycle::provision::csi::parameters;
use lifecycle::provision::csi::topology::Term;
use runtime::client::{Deleted, Error, Preconditions, Selection};
use runtime::csi::{Driver, Link};
use runtime::failed_writes::may_look_again;
use runtime::queue::{self, Backoff};
use runtime::{Cache, Index, Lookup, Patch, Queue, Stop, Subscription, Verdict};
use serde_json::{Value, json};

pub use owner::{Owner, OwnerLevel};
pub use refresh::{Changed, Refresh};

use crate::Context;
use crate::provision::csi::{Cached, relabelled};
use measure::Measured;

/// How often a pass over one item writes at most before it lets others go first.
const ROUNDS: usize = 16;
/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// Objects by what they stand for.
const OBJECTS_BY_ITEM: Index<Capacity> = Index {
    name: "capacity-item-index",
    values: |object, value| {
        if let Some(item) = capacity::item_of(object) {
            value(&text_of(&item));
        }
    },
};

fn text_of(item: &Item) -> String {
    let place: Vec<String> = item.place.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{}\n{}", item.class, place.join(","))
}

/// Where room is told and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the objects are: `NAMESPACE`.
    pub namespace: String,
    /// `--capacity-for-immediate-binding`.
    pub immediate: Immediate,
    /// `--capacity-poll-interval`.
    pub poll: Duration,
    /// `--capacity-threads`.
    pub workers: usize,
    /// `--timeout`.
    pub timeout: Duration,
    pub backoff: Backoff,
    /// Whom the objects belong to.
    pub owner: Owner,
    /// In node mode, the node: its own place is the only one.
    pub node: Option<String>,
}

/// What is worked on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Item(Item),
    /// An object with our labels that stands for nothing.
    Stray(Key),
}

/// Keeps the objects of one driver.
#[derive(Debug)]
pub struct Producer {
    context: Context,
    driver: Driver,
    name: String,
    options: Options,
    queue: Queue<Job>,
    /// One key: the places have to be found anew.
    places: Queue<()>,
    _subscriptions: Vec<Subscription>,
    objects: Cache<Capacity>,
    by_item: Lookup<Capacity>,
    known: Arc<Known>,
    /// Shown for as long as the producer lives.
    _measured: Arc<Measured>,
}

/// The places that are known, shared with who is told about changes.
#[derive(Debug, Default)]
struct Known {
    places: Mutex<BTreeSet<Term>>,
}

impl Known {
    fn get(&self) -> BTreeSet<Term> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Who keeps the objects, as a label says it.
fn manager(node: Option<&str>) -> String {
    let Some(node) = node else {
        return value::CAPACITY_MANAGER.to_owned();
    };
    let full = format!("{}-{node}", value::CAPACITY_MANAGER);
    if full.len() <= LONGEST_LABEL {
        return full;
    }
    let hash = format!("{:08x}", fnv1a(&full) & 0xffff_ffff);
    // Names of nodes are ASCII, so that no letter is cut in two.
    let kept: String = full.chars().take(LONGEST_LABEL - hash.len() - 1).collect();
    format!("{kept}-{hash}")
}

/// 64-bit FNV-1a.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Producer {
    /// A producer for the driver of this name.
    pub fn new(context: &Context, driver: &Driver, name: &str, options: Options) -> Self {
        let (metrics, entropy) = (&context.metrics, &context.entropy);
        let queue = Queue::new("csistoragecapacity", options.backoff, metrics, entropy);
        let places = Queue::new("csitopology", options.backoff, metrics, entropy);
        let labels = format!(
            "{}={name},{}={}",
            label::CAPACITY_DRIVER,
            label::CAPACITY_MANAGED_BY,
            manager(options.node.as_deref())
        );
        let selection =
            Selection { namespace: Some(options.namespace.clone()), labels: Some(labels), ..Selection::default() };
        let objects = context.caches.selected::<Capacity>(selection);
        let by_item = objects.index(OBJECTS_BY_ITEM);
        let known: Arc<Known> = Arc::default();
        let measured = Arc::new(Measured {
            classes: context.cache(),
            objects: objects.clone(),
            known: known.clone(),
            driver: name.to_owned(),
            immediate: options.immediate,
        });
        measured.show(metrics);
        let producer = Self {
            context: context.clone(),
            driver: driver.clone(),
            name: name.to_owned(),
            options,
            queue,
            places,
            _subscriptions: Vec::new(),
            objects,
            by_item,
            known,
            _measured: measured,
        };
        let subscriptions = producer.subscribe();
        Self { _subscriptions: subscriptions, ..producer }
    }

    /// How others say that room has changed.
    pub fn refresh(&self) -> Refresh {
        Refresh::new(&self.context, &self.name, self.queue.clone(), self.known.clone())
    }

    fn subscribe(&self) -> Vec<Subscription> {
        let queue = self.queue.clone();
        let objects = self.objects.subscribe(move |change| {
            let object = change.object();
            match capacity::item_of(object) {
                Some(item) => queue.add(Job::Item(item)),
                None => queue.add(Job::Stray(object.key().clone())),
            }
        });
        let (queue, known) = (self.queue.clone(), self.known.clone());
        let classes = self.context.cache::<Class>().subscribe(move |change| {
            for place in known.get() {
                queue.add(Job::Item(Item { class: change.object().name().to_owned(), place }));
            }
        });
        if self.options.node.is_some() {
            return vec![objects, classes];
        }
        let places = self.places.clone();
        let csi_nodes = self.context.cache::<CsiNode>().subscribe(move |_| places.add(()));
        let places = self.places.clone();
        let nodes = self.context.cache::<Node>().subscribe(move |change| {
            if relabelled(change) {
                places.add(());
            }
        });
        vec![objects, classes, csi_nodes, nodes]
    }

    pub async fn run(&self, stop: &Stop) {
        tokio::select! {
            biased;
            () = stop.stopped() => return,
            () = self.synced() => {}
        }
        let Some(owner) = self.options.owner.find(&self.context.client, self.options.backoff, stop).await else {
            return;
        };
        self.places.add(());
        tokio::join!(
            queue::run(&self.places, 1, stop, |()| self.survey()),
            queue::run(&self.queue, self.options.workers, stop, |job| self.work(&owner, job)),
            self.follow_driver(stop),
        );
    }

    async fn synced(&self) {
        self.objects.synced().await;
        self.context.cache::<Class>().synced().await;
        if self.options.node.is_none() {
            self.context.cache::<CsiNode>().synced().await;
            self.context.cache::<Node>().synced().await;
        }
    }

    /// A driver that comes back may have other room, and in node mode another place.
    async fn follow_driver(&self, stop: &Stop) {
        let mut link = self.driver.link();
        loop {
            let up = matches!(&*link.borrow_and_update(), Link::Up(_));
            if up {
                self.places.add(());
                self.enqueue_all(&self.known.get());
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                changed = link.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Finds the places anew and looks at what came and went.
    async fn survey(&self) -> Verdict {
        let now = match self.options.node {
            None => {
                let (nodes, csi_nodes) = (self.context.cache::<Node>(), self.context.cache::<CsiNode>());
                capacity::places(&self.name, &Cached { nodes, csi_nodes })
            }
            Some(_) => match self.driver.node_get_info(v1::NodeGetInfoRequest {}, self.options.timeout).await {
                Ok(info) => {
                    BTreeSet::from([Term(info.accessible_topology.map(|place| place.segments).unwrap_or_default())])
                }
                Err(error) => return Verdict::Failed(error.to_string()),
            },
        };
        let before = {
            let mut places = self.known.places.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *places, now.clone())
        };
        self.enqueue_all(&before.symmetric_difference(&now).cloned().collect());
        // Objects of places that were gone before we started are looked at, too.
        for object in self.objects.walk() {
            if let Some(item) = capacity::item_of(&object).filter(|item| !now.contains(&item.place)) {
                self.queue.add(Job::Item(item));
            }
        }
        Verdict::Done
    }

    fn enqueue_all(&self, places: &BTreeSet<Term>) {
        for class in self.context.cache::<Class>().walk() {
            for place in places {
                self.queue.add(Job::Item(Item { class: class.name().to_owned(), place: place.clone() }));
            }
        }
    }

    fn is_wanted(&self, item: &Item) -> bool {
        let class = self.context.cache::<Class>().get(&Key::cluster(&item.class));
        let told = class.is_some_and(|class| capacity::is_told(&class, &self.name, self.options.immediate));
        told && self.known.places.lock().unwrap_or_else(PoisonError::into_inner).contains(&item.place)
    }

    async fn work(&self, owner: &OwnedBy, job: Job) -> Verdict {
        let verdict = match job {
            Job::Item(item) => self.keep(owner, &item).await,
            Job::Stray(key) => match self.objects.get(&key).filter(|object| capacity::item_of(object).is_none()) {
                Some(object) => self.remove(&object).await.map(|()| Verdict::Done),
                None => Ok(Verdict::Done),
            },
        };
        verdict.unwrap_or_else(|error| Verdict::Failed(error.to_string()))
    }

    /// Makes the object of one item true.
    async fn keep(&self, owner: &OwnedBy, item: &Item) -> Result<Verdict, Error> {
        for _ in 0..ROUNDS {
            let wanted = self.is_wanted(item);
            let objects = self.by_item.all(&text_of(item));
            let seen: Vec<&Capacity> = objects.iter().map(|object| &**object).collect();
            let held = match capacity::step(wanted, &seen) {
                Step::Remove(names) if names.is_empty() => return Ok(Verdict::Done),
                Step::Remove(names) => {
                    for object in objects.iter().filter(|object| names.contains(&object.key().name())) {
                        self.remove(object).await?;
                    }
                    continue;
                }
                Step::Ask { held } => objects.iter().find(|object| Some(object.key().name()) == held),
            };
            let room = match self.ask(item).await {
                Ok(room) => room,
                Err(why) => return Ok(Verdict::Failed(why)),
            };
            let written = match held {
                None => self.create(owner, item, room).await,
                Some(object) => match capacity::change(object, room, owner) {
                    None => return Ok(Verdict::Again(self.options.poll)),
                    Some(change) => self.patch(object.key(), change).await,
                },
            };
            match written {
                Ok(()) => return Ok(Verdict::Again(self.options.poll)),
                Err(error) => self.reconsider(item, held.map(|object| object.key()), error).await?,
            }
        }
        Ok(Verdict::Again(Duration::ZERO))
    }

    async fn ask(&self, item: &Item) -> Result<Room, String> {
        let class = self.context.cache::<Class>().get(&Key::cluster(&item.class));
        let class = class.ok_or_else(|| format!("the class {} is gone", item.class))?;
        // The driver gets what it gets with CreateVolume: nothing that was meant for the provisioner.
        let parameters = parameters::for_driver(&class.parameters).map_err(|bad| bad.to_string())?;
        let request = v1::GetCapacityRequest {
            volume_capabilities: Vec::new(),
            parameters,
            accessible_topology: Some(v1::Topology { segments: item.place.0.clone() }),
        };
        let answer =
            self.driver.get_capacity(request, self.options.timeout).await.map_err(|error| error.to_string())?;
        Ok(Room { bytes: answer.available_capacity, largest: answer.maximum_volume_size.map(|size| size.max(0)) })
    }

    async fn create(&self, owner: &OwnedBy, item: &Item, room: Room) -> Result<(), Error> {
        let body = self.body(owner, item, room);
        let namespace = Some(self.options.namespace.as_str());
        let object: Capacity = self.context.client.create(Kind::CAPACITY, namespace, &body).await?;
        self.objects.wrote(object);
        Ok(())
    }

    fn body(&self, owner: &OwnedBy, item: &Item, room: Room) -> Value {
        let manager = manager(self.options.node.as_deref());
        let mut body = json!({
            "apiVersion": Kind::CAPACITY.api_version(), "kind": Kind::CAPACITY.kind,
            "metadata": {
                "namespace": self.options.namespace, "name": self.name_of(item),
                "labels": {label::CAPACITY_DRIVER.text(): self.name, label::CAPACITY_MANAGED_BY.text(): manager},
                "ownerReferences": capacity::references(owner),
            },
            "storageClassName": item.class,
            "nodeTopology": {"matchLabels": item.place},
            "capacity": capacity::amount(room.bytes),
        });
        if let Some(largest) = room.largest {
            body["maximumVolumeSize"] = capacity::amount(largest).into();
        }
        body
    }

    /// The name of an item's object, if we make it; one that upstream made has another and is kept.
    fn name_of(&self, item: &Item) -> String {
        let manager = manager(self.options.node.as_deref());
        format!("csisc-{:016x}", fnv1a(&format!("{}\n{manager}\n{}", self.name, text_of(item))))
    }

    async fn patch(&self, key: &Key, change: Value) -> Result<(), Error> {
        let object: Capacity = self.context.client.patch(Kind::CAPACITY, key, &Patch::Merge(change)).await?;
        self.objects.wrote(object);
        Ok(())
    }

    async fn remove(&self, object: &Capacity) -> Result<(), Error> {
        let (key, uid) = (object.key(), &object.meta.uid);
        match self.context.client.delete::<Capacity>(key, &Preconditions::same(&object.meta)).await {
            Ok(Deleted::Pending(object)) => drop(self.objects.wrote(object)),
            Ok(Deleted::Gone) => self.objects.deleted(key, uid),
            Err(error) if error.is_not_found() => self.objects.deleted(key, uid),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// After a write that failed: the truth is read, and decided about again.
    async fn reconsider(&self, item: &Item, held: Option<&Key>, error: Error) -> Result<(), Error> {
        let own = Key::namespaced(&self.options.namespace, &self.name_of(item));
        let key = held.unwrap_or(&own);
        if !error.is_unsettled() || !may_look_again(Kind::CAPACITY, key) {
            return Err(error);
        }
        match self.context.client.get::<Capacity>(Kind::CAPACITY, key).await {
            Ok(object) => {
                self.objects.wrote(object);
            }
            Err(error) if error.is_not_found() => {
                if let Some(object) = self.objects.get(key) {
                    self.objects.deleted(key, &object.meta.uid);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
