//! What was seen of a cluster, and what could not be.

use api::object::UnixSeconds;
use api::{
    Attachment, Capacity, Claim, Class, CsiDriver, CsiNode, Event, Grant, Key, Lease, Meta, Namespace, Node, Pod,
    Quota, Snapshot, Uid, Volume, Word,
};

use crate::decision::Lookup;
use crate::provision::intent;

/// The objects around one claim or volume, as the server listed them after the subject itself was read.
#[derive(Debug, Default)]
pub struct Picture {
    pub now: UnixSeconds,
    /// Of the subject's namespace, and those that volumes or data sources name.
    pub claims: Listing<Claim>,
    pub volumes: Listing<Volume>,
    pub classes: Listing<Class>,
    /// Of the claim's namespace.
    pub pods: Listing<Pod>,
    pub nodes: Listing<Node>,
    pub csi_nodes: Listing<CsiNode>,
    pub drivers: Listing<CsiDriver>,
    pub attachments: Listing<Attachment>,
    pub capacities: Listing<Capacity>,
    /// Of the claim's namespace.
    pub quotas: Listing<Quota>,
    pub leases: Listing<Lease>,
    /// Of the claim's namespace, and those about the volume.
    pub events: Listing<Event>,
    /// Those about nodes, which are in a namespace of their own.
    pub node_events: Listing<Event>,
    /// Of the claim's namespace and of its data source's.
    pub snapshots: Listing<Snapshot>,
    /// Of the data source's namespace, if that is another one.
    pub grants: Listing<Grant>,
    /// Volumes whose creation was begun, from the provisioners' journals.
    pub intents: Listing<Begun>,
    pub namespaces: Listing<Namespace>,
}

/// What came of looking.
#[derive(Debug, Clone, Default)]
pub enum Listing<T> {
    /// All there are.
    Seen(Vec<T>),
    /// Nobody looked, because nothing depends on it.
    #[default]
    NotAsked,
    NotAllowed,
    /// The server does not know the kind.
    NotServed,
    Failed(String),
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// The plural of the kind, such as `nodes`.
    pub what: &'static str,
    pub why: String,
}

/// A creation that a provisioner of ours wrote down before it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The claim it is for.
    pub claim: Uid,
    /// The same by name, where the entry says it.
    pub key: Option<Key>,
    /// The provisioner, as its journal's label says it.
    pub by: Word,
    pub volume: Box<str>,
    /// The node that the first attempt was for.
    pub node: Option<Box<str>>,
}

impl<T> Listing<T> {
    /// What was seen. Nothing, where nobody could look: ask [`Listing::is_seen`] before anything follows from absence.
    pub fn items(&self) -> &[T] {
        match self {
            Self::Seen(items) => items,
            Self::NotAsked | Self::NotAllowed | Self::NotServed | Self::Failed(_) => &[],
        }
    }

    /// Whether what is not in it does not exist. A kind that is not served has no objects.
    pub fn is_seen(&self) -> bool {
        matches!(self, Self::Seen(_) | Self::NotServed)
    }

    pub fn lookup(&self, is: impl Fn(&T) -> bool) -> Lookup<'_, T> {
        match self.items().iter().find(|item| is(item)) {
            Some(item) => Lookup::Found(item),
            None if self.is_seen() => Lookup::Absent,
            None => Lookup::NotCached,
        }
    }

    pub(crate) fn unseen(&self, what: &'static str) -> Option<Unseen> {
        let why = match self {
            Self::Seen(_) | Self::NotAsked | Self::NotServed => return None,
            Self::NotAllowed => "not allowed".to_owned(),
            Self::Failed(why) => why.clone(),
        };
        Some(Unseen { what, why })
    }
}

impl Picture {
    pub(crate) fn unseen(&self) -> Vec<Unseen> {
        let all = [
            self.claims.unseen("persistentvolumeclaims"),
            self.volumes.unseen("persistentvolumes"),
            self.classes.unseen("storageclasses"),
            self.pods.unseen("pods"),
            self.nodes.unseen("nodes"),
            self.csi_nodes.unseen("csinodes"),
            self.drivers.unseen("csidrivers"),
            self.attachments.unseen("volumeattachments"),
            self.capacities.unseen("csistoragecapacities"),
            self.quotas.unseen("resourcequotas"),
            self.leases.unseen("leases"),
            self.events.unseen("events"),
            self.node_events.unseen("events of nodes"),
            self.snapshots.unseen("volumesnapshots"),
            self.grants.unseen("referencegrants"),
            self.intents.unseen("configmaps"),
            self.namespaces.unseen("namespaces"),
        ];
        all.into_iter().flatten().collect()
    }

    pub(crate) fn volume(&self, name: &str) -> Lookup<'_, Volume> {
        self.volumes.lookup(|volume| volume.name() == name)
    }

    pub(crate) fn class(&self, name: &str) -> Lookup<'_, Class> {
        self.classes.lookup(|class| class.name() == name)
    }

    pub(crate) fn claim(&self, key: &Key) -> Lookup<'_, Claim> {
        self.claims.lookup(|claim| claim.key() == key)
    }

    pub(crate) fn node(&self, name: &str) -> Lookup<'_, Node> {
        self.nodes.lookup(|node| node.name() == name)
    }

    pub(crate) fn csi_node(&self, name: &str) -> Lookup<'_, CsiNode> {
        self.csi_nodes.lookup(|node| node.meta.key.name() == name)
    }

    /// The open intent of a claim.
    pub(super) fn begun(&self, claim: &Claim) -> Option<&Begun> {
        self.intents.items().iter().find(|begun| begun.claim == *claim.uid())
    }

    /// Whether what was begun is stored as a volume of its claim: then it is at its end, though the journal may not say so
    /// yet (the decision is `provision::intent`'s).
    pub(crate) fn stored(&self, begun: &Begun) -> bool {
        let seen = intent::Seen {
            uid: &begun.claim,
            volume_name: &begun.volume,
            claim: None,
            stored: self.volume(&begun.volume).found(),
            twin: None,
            origin: intent::IntentOrigin::Here,
            attempt: intent::Attempt::Open,
        };
        matches!(intent::decide(&seen).because, intent::Because::Stored { .. })
    }

    /// Pods that name a claim, whatever becomes of them.
    pub(crate) fn users<'a>(&'a self, claim: &Claim) -> impl Iterator<Item = &'a Pod> {
        let (namespace, name) = (claim.namespace().to_owned(), claim.name().to_owned());
        let uses = move |pod: &&Pod| pod.namespace() == namespace && pod.claims().any(|used| *used == *name);
        self.pods.items().iter().filter(uses)
    }

    /// What was said last about an object with one of these reasons.
    pub(super) fn last_event(&self, kind: api::Kind, meta: &Meta, reasons: &[&str]) -> Option<&Event> {
        let about = self.events.items().iter().filter(|event| event.about.is(kind, meta));
        about.filter(|event| reasons.contains(&event.reason.as_str())).max_by_key(|event| event.last)
    }

    /// How long ago something was.
    pub(super) fn age(&self, at: UnixSeconds) -> super::text::Age {
        super::text::Age(self.now.0.saturating_sub(at.0))
    }
}
