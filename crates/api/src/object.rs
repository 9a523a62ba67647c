//! What every Kubernetes object has: a kind, a key, a revision, and metadata kept small.
//!
//! A watch cache holds *projections*: types that deserialise from the wire and keep only what somebody reads. They share
//! [`Meta`]. Managed fields and what kubectl remembers for itself are never kept, and what repeats over many objects is
//! stored once: words ([`Word`]), whole sets of labels and annotations ([`Pairs`]), and lists of finalizers. 100,000 volumes
//! and claims have to fit into 150 MB.
//!
//! # Invariants
//! 1. [`Key`] orders by namespace, then name; nothing in this project iterates objects in another order.
//! 2. A resource version is read in [`Revision::parse`] and nowhere else.
//! 3. Labels and annotations are sorted by key and hold each key once.
//! 4. What is shared between objects is never changed, and how it is shared cannot be seen.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::jiff;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::shared::Shared;

/// Whether objects of a kind live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One name space for the whole cluster.
    Cluster,
    /// A name is unique within its namespace.
    Namespaced,
}

/// A type the API serves. The constants below are the ones this project knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    /// Such as `v1`.
    pub version: &'static str,
    /// The name in paths and in metrics, such as `persistentvolumeclaims`.
    pub plural: &'static str,
    /// The name in objects, such as `PersistentVolumeClaim`.
    pub kind: &'static str,
    /// Whether its paths have a namespace.
    pub scope: Scope,
}

const STORAGE: &str = "storage.k8s.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";

impl Kind {
    /// `PersistentVolumeClaim`.
    pub const CLAIM: Kind = Kind::core("persistentvolumeclaims", "PersistentVolumeClaim", Scope::Namespaced);
    /// `PersistentVolume`.
    pub const VOLUME: Kind = Kind::core("persistentvolumes", "PersistentVolume", Scope::Cluster);
    /// `Pod`.
    pub const POD: Kind = Kind::core("pods", "Pod", Scope::Namespaced);
    /// `Node`.
    pub const NODE: Kind = Kind::core("nodes", "Node", Scope::Cluster);
    /// `Namespace`.
    pub const NAMESPACE: Kind = Kind::core("namespaces", "Namespace", Scope::Cluster);
    /// `ResourceQuota`.
    pub const QUOTA: Kind = Kind::core("resourcequotas", "ResourceQuota", Scope::Namespaced);
    /// `Secret`.
    pub const SECRET: Kind = Kind::core("secrets", "Secret", Scope::Namespaced);
    /// `ConfigMap`.
    pub const CONFIG_MAP: Kind = Kind::core("configmaps", "ConfigMap", Scope::Namespaced);
    /// `Event` of the core group.
    pub const EVENT: Kind = Kind::core("events", "Event", Scope::Namespaced);
    /// `StorageClass`.
    pub const STORAGE_CLASS: Kind = Kind::of(STORAGE, "v1", "storageclasses", "StorageClass", Scope::Cluster);
    /// `VolumeAttributesClass`.
    pub const ATTRIBUTES_CLASS: Kind =
        Kind::of(STORAGE, "v1", "volumeattributesclasses", "VolumeAttributesClass", Scope::Cluster);
    /// `VolumeAttachment`.
    pub const ATTACHMENT: Kind = Kind::of(STORAGE, "v1", "volumeattachments", "VolumeAttachment", Scope::Cluster);
    /// `CSINode`.
    pub const CSI_NODE: Kind = Kind::of(STORAGE, "v1", "csinodes", "CSINode", Scope::Cluster);
    /// `CSIDriver`.
    pub const CSI_DRIVER: Kind = Kind::of(STORAGE, "v1", "csidrivers", "CSIDriver", Scope::Cluster);
    /// `CSIStorageCapacity`.
    pub const CAPACITY: Kind = Kind::of(STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity", Scope::Namespaced);
    /// `Lease`.
    pub const LEASE: Kind = Kind::of("coordination.k8s.io", "v1", "leases", "Lease", Scope::Namespaced);
    /// `VolumeSnapshot`.
    pub const SNAPSHOT: Kind = Kind::of(SNAPSHOT, "v1", "volumesnapshots", "VolumeSnapshot", Scope::Namespaced);
    /// `VolumeSnapshotContent`.
    pub const SNAPSHOT_CONTENT: Kind =
        Kind::of(SNAPSHOT, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", Scope::Cluster);
    /// `VolumeSnapshotClass`.
    pub const SNAPSHOT_CLASS: Kind =
        Kind::of(SNAPSHOT, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", Scope::Cluster);
    /// `ReferenceGrant`.
    pub const REFERENCE_GRANT: Kind =
        Kind::of("gateway.networking.k8s.io", "v1beta1", "referencegrants", "ReferenceGrant", Scope::Namespaced);

    /// A type outside the core group.
    pub const fn of(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
        scope: Scope,
    ) -> Kind {
        Kind { group, version, plural, kind, scope }
    }

    /// A type of the core group, version 1.
    pub const fn core(plural: &'static str, kind: &'static str, scope: Scope) -> Kind {
        Kind::of("", "v1", plural, kind, scope)
    }

    /// What objects say as `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of the collection, of an object in it, or of a part of that object.
    ///
    /// Without a namespace the collection is the cluster's; a cluster-scoped kind ignores the namespace.
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis/" };
        let mut path = format!("{root}{}/{}", self.group, self.version);
        let namespace = namespace.filter(|_| self.scope == Scope::Namespaced);
        let parts = [namespace.map(|_| "namespaces"), namespace, Some(self.plural), name, subresource];
        for part in parts.into_iter().flatten() {
            path.push('/');
            path.push_str(part);
        }
        path
    }

    /// The path of one object.
    pub fn path_of(&self, key: &Key) -> String {
        self.path(key.namespace(), Some(key.name()), None)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }
}

/// A short text that many objects repeat: a namespace, a label's key, a driver's name. Equal words share memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word(Arc<str>);

static WORDS: Shared<str> = Shared::new(16 * 1024);
const LONGEST_WORD: usize = 128;

impl Word {
    /// The word, shared with its equals if it is short.
    pub fn new(text: &str) -> Word {
        Word(if text.len() > LONGEST_WORD { text.into() } else { WORDS.share(text) })
    }

    /// No text at all.
    pub fn empty() -> Word {
        Word::new("")
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for Word {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Word {
        Word::new(text)
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                Ok(Word::new(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Which object of a kind: its namespace, if the kind has them, and its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    namespace: Option<Word>,
    name: Box<str>,
}

impl Key {
    /// An object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> Key {
        Key { namespace: Some(Word::new(namespace)), name: name.into() }
    }

    /// An object of a cluster-scoped kind.
    pub fn cluster(name: &str) -> Key {
        Key { namespace: None, name: name.into() }
    }

    /// The namespace, if the kind has them.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another object in the same namespace, if there is one.
    pub fn sibling(&self, name: &str) -> Key {
        Key { namespace: self.namespace.clone(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither NAME nor NAMESPACE/NAME")]
pub struct NotAKey {
    text: String,
}

impl FromStr for Key {
    type Err = NotAKey;
    fn from_str(text: &str) -> Result<Key, NotAKey> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [name] if !name.is_empty() => Ok(Key::cluster(name)),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok(Key::namespaced(namespace, name)),
            _ => Err(NotAKey { text: text.to_owned() }),
        }
    }
}

/// When an object was last written, as a number that grows with every write to its kind.
///
/// Kubernetes called the text opaque for a decade; upstream's own binder compares it as a number, and since 1.35 the API
/// promises that it can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Before every write.
    pub const NONE: Revision = Revision(0);

    /// Reads a `resourceVersion`. `None` if it is not a decimal number.
    pub fn parse(text: &str) -> Option<Revision> {
        text.parse().ok().map(Revision)
    }

    /// For tests and for stores that number their writes.
    pub const fn new(number: u64) -> Revision {
        Revision(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of an object: a new one of the same name has another.
///
/// Servers give the 36 characters of a UUID, which are held in place: one for the object and one in each reference to it
/// are worth it. Any other text is as good.
#[derive(Clone)]
pub struct Uid(Identity);

#[derive(Clone)]
enum Identity {
    /// ASCII.
    Usual([u8; 36]),
    Other(Box<str>),
}

impl Uid {
    /// The text; empty if the server gave none.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Identity::Usual(bytes) => std::str::from_utf8(bytes).expect("only ASCII is held like this"),
            Identity::Other(text) => text,
        }
    }

    /// Whether there is none: an object that was never stored, or a reference that names only a name.
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        Uid(match <[u8; 36]>::try_from(text.as_bytes()) {
            Ok(bytes) if text.is_ascii() => Identity::Usual(bytes),
            _ => Identity::Other(text.into()),
        })
    }
}

impl Default for Uid {
    fn default() -> Uid {
        Uid(Identity::Other(Box::default()))
    }
}

impl PartialEq for Uid {
    fn eq(&self, other: &Uid) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Uid {}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Uid) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Uid {
    fn cmp(&self, other: &Uid) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl std::hash::Hash for Uid {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uid").field(&self.as_str()).finish()
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Uid, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Uid::from(&*text))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A moment of the server's clock, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct UnixSeconds(pub i64);

impl<'de> Deserialize<'de> for UnixSeconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UnixSeconds, D::Error> {
        let moment = jiff::Timestamp::deserialize(deserializer)?;
        Ok(UnixSeconds(moment.as_second()))
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(moment) => write!(f, "{moment}"),
            Err(_) => write!(f, "{} s", self.0),
        }
    }
}

/// Labels or annotations: pairs in order of their keys. Equal sets share memory: all claims that one class made have the
/// same annotations.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Pairs(Arc<[(Word, Box<str>)]>);

static SETS: Shared<[(Word, Box<str>)]> = Shared::new(4 * 1024);
/// Larger sets, in bytes of values, are hardly ever equal.
const LARGEST_SET: usize = 1024;

/// Finalizers of many objects are the same.
static LISTS: Shared<[Word]> = Shared::new(1024);

impl Pairs {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(held, _)| held.as_str().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    /// Whether the key is there, with any value.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), &**value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Pairs {
        let pairs = pairs.into_iter().map(|(key, value)| (Word::new(key.as_ref()), value.as_ref().into()));
        Pairs::sorted(pairs.collect())
    }
}

impl Pairs {
    /// Of a key given twice the last one counts, as in any JSON reader.
    fn sorted(mut pairs: Vec<(Word, Box<str>)>) -> Pairs {
        pairs.reverse();
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs.dedup_by(|(later, _), (kept, _)| later == kept);
        let size: usize = pairs.iter().map(|(_, value)| value.len()).sum();
        Pairs(if size > LARGEST_SET { pairs.into() } else { SETS.share(pairs) })
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_unit<E>(self) -> Result<Pairs, E> {
                Ok(Pairs::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(0).min(64));
                while let Some(key) = map.next_key::<Word>()? {
                    if key.ends_with(KUBECTL_MEMORY) {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    } else {
                        pairs.push((key, map.next_value::<Box<str>>()?));
                    }
                }
                Ok(Pairs::sorted(pairs))
            }
        }
        deserializer.deserialize_any(Map)
    }
}

/// The annotation in which `kubectl apply` keeps a copy of the whole object. No decision reads it.
const KUBECTL_MEMORY: &str = "/last-applied-configuration";

/// An owner reference.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The owner's `apiVersion`.
    pub api_version: Word,
    /// The owner's kind.
    pub kind: Word,
    /// The owner's name.
    pub name: Box<str>,
    /// The owner's identity.
    pub uid: Uid,
    /// Whether it is the one that manages the object.
    #[serde(default)]
    pub controller: bool,
}

/// What this project keeps of `metadata`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Meta {
    /// Namespace and name.
    pub key: Key,
    /// Identity.
    pub uid: Uid,
    /// Last write. [`Revision::NONE`] if the server sent none or no number.
    pub revision: Revision,
    /// Counts changes of the specification; 0 for kinds that do not count.
    pub generation: i64,
    /// When the server stored it first.
    pub created: UnixSeconds,
    /// Set once deletion was asked for: when, to the second.
    pub deleting: Option<UnixSeconds>,
    /// Labels.
    pub labels: Pairs,
    /// Annotations, without kubectl's own memory.
    pub annotations: Pairs,
    /// Who still has work to do before the object may go.
    pub finalizers: Arc<[Word]>,
    /// Whom it belongs to.
    pub owners: Box<[Owner]>,
}

impl Meta {
    /// Metadata of an object that nobody stored; tests and defaults start here.
    pub fn new(key: Key) -> Meta {
        Meta {
            key,
            uid: Uid::default(),
            revision: Revision::NONE,
            generation: 0,
            created: UnixSeconds::default(),
            deleting: None,
            labels: Pairs::default(),
            annotations: Pairs::default(),
            finalizers: Arc::default(),
            owners: Box::default(),
        }
    }

    /// The value of a label.
    pub fn label(&self, key: impl AsRef<str>) -> Option<&str> {
        self.labels.get(key.as_ref())
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: impl AsRef<str>) -> Option<&str> {
        self.annotations.get(key.as_ref())
    }

    /// Whether `finalizer` holds the object.
    pub fn has_finalizer(&self, finalizer: impl AsRef<str>) -> bool {
        self.finalizers.iter().any(|held| held.as_str() == finalizer.as_ref())
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deleting.is_some()
    }

    /// The owner that manages the object, if one does.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }
}

/// `metadata` as it arrives. Unknown members, managed fields first of all, are skipped without being built.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    namespace: Option<Word>,
    name: Box<str>,
    uid: Uid,
    resource_version: RawRevision,
    generation: Option<i64>,
    creation_timestamp: Option<UnixSeconds>,
    deletion_timestamp: Option<UnixSeconds>,
    labels: Pairs,
    annotations: Pairs,
    finalizers: Option<Vec<Word>>,
    owner_references: Option<Box<[Owner]>>,
}

#[derive(Default)]
struct RawRevision(Revision);

impl<'de> Deserialize<'de> for RawRevision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawRevision, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(RawRevision(Revision::parse(&text).unwrap_or(Revision::NONE)))
    }
}

impl From<Wire> for Meta {
    fn from(wire: Wire) -> Meta {
        let namespace = wire.namespace.filter(|namespace| !namespace.is_empty());
        Meta {
            key: Key { namespace, name: wire.name },
            uid: wire.uid,
            revision: wire.resource_version.0,
            generation: wire.generation.unwrap_or(0),
            created: wire.creation_timestamp.unwrap_or_default(),
            deleting: wire.deletion_timestamp,
            labels: wire.labels,
            annotations: wire.annotations,
            finalizers: wire.finalizers.map(|list| LISTS.share(list)).unwrap_or_default(),
            owners: wire.owner_references.unwrap_or_default(),
        }
    }
}

/// A projection of one kind: what a cache holds of an object.
///
/// It deserialises from the whole object as the API sends it and keeps only what somebody reads.
pub trait Object: DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static {
    /// The kind it is a projection of.
    const KIND: Kind;

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// Namespace and name.
    fn key(&self) -> &Key {
        &self.meta().key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_keeps_what_is_read_and_skips_the_rest() {
        let meta: Meta = serde_json::from_str(
            r#"{"name":"c","namespace":"n","uid":"u","resourceVersion":"17","creationTimestamp":"2026-01-02T03:04:05Z",
            "deletionTimestamp":null,"labels":{"b":"2","a":"1"},"finalizers":["x/f"],
            "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"o","controller":true}],
            "annotations":{"k":"v","kubectl.example/last-applied-configuration":"{}"},
            "managedFields":[{"manager":"m","fieldsV1":{"f:spec":{}}}]}"#,
        )
        .unwrap();
        assert_eq!(meta.key, Key::namespaced("n", "c"));
        assert_eq!(meta.revision, Revision::new(17));
        assert_eq!(meta.created.to_string(), "2026-01-02T03:04:05Z");
        assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        assert_eq!(meta.annotations.iter().collect::<Vec<_>>(), [("k", "v")]);
        assert!(meta.has_finalizer("x/f") && !meta.is_deleting());
        assert_eq!(meta.controller().map(|owner| &*owner.name), Some("p"));
    }

    #[test]
    fn absent_and_null_members_are_empty() {
        let meta: Meta = serde_json::from_str(
            r#"{"name":"v","labels":null,"annotations":null,"finalizers":null,"ownerReferences":null,"uid":"u"}"#,
        )
        .unwrap();
        assert_eq!(meta, Meta { uid: "u".into(), ..Meta::new(Key::cluster("v")) });
    }

    #[test]
    fn keys_order_by_namespace_then_name_and_read_back() {
        let mut keys = ["b/a", "a/z", "a/b"].map(|text| text.parse::<Key>().unwrap());
        keys.sort();
        assert_eq!(keys.map(|key| key.to_string()), ["a/b", "a/z", "b/a"]);
        assert_eq!("pv-1".parse::<Key>().unwrap(), Key::cluster("pv-1"));
        for bad in ["", "/", "a/", "/b", "a/b/c"] {
            assert!(bad.parse::<Key>().is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_follow_group_scope_and_subresource() {
        assert_eq!(
            Kind::CLAIM.path(Some("n"), Some("c"), Some("status")),
            "/api/v1/namespaces/n/persistentvolumeclaims/c/status"
        );
        assert_eq!(Kind::CLAIM.path(None, None, None), "/api/v1/persistentvolumeclaims");
        assert_eq!(Kind::VOLUME.path(Some("n"), Some("v"), None), "/api/v1/persistentvolumes/v");
        assert_eq!(Kind::STORAGE_CLASS.path_of(&Key::cluster("fast")), "/apis/storage.k8s.io/v1/storageclasses/fast");
    }

    #[test]
    fn a_repeated_key_counts_once_with_its_last_value() {
        let pairs: Pairs = serde_json::from_str(r#"{"a":"1","b":"2","a":"3"}"#).unwrap();
        assert_eq!(pairs.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
    }

    #[test]
    fn equal_sets_share_memory_and_a_large_one_is_kept_for_itself() {
        let read = |json: &str| serde_json::from_str::<Meta>(json).unwrap();
        let same = r#"{"name":"a","annotations":{"k/1":"yes","k/2":"no"},"finalizers":["f/1"]}"#;
        let (one, two) = (read(same), read(&same.replace(r#""a""#, r#""b""#)));
        assert!(Arc::ptr_eq(&one.annotations.0, &two.annotations.0) && Arc::ptr_eq(&one.finalizers, &two.finalizers));
        let large = |name: &str| [("k", name.repeat(LARGEST_SET + 1))].into_iter().collect::<Pairs>();
        assert_eq!(large("x"), large("x"));
        assert!(!Arc::ptr_eq(&large("x").0, &large("x").0));
    }

    #[test]
    fn a_uid_is_its_text_whatever_its_form() {
        let usual = "0b1c2d3e-0000-4000-8000-00805f9b34fb";
        let odd = ["", "u", "0b1c2d3e-0000-4000-8000-00805f9b34fbx", "ü234567890123456789012345678901234"];
        for text in odd.into_iter().chain([usual]) {
            let uid: Uid = serde_json::from_value(serde_json::json!(text)).unwrap();
            assert_eq!((uid.as_str(), uid.to_string().as_str(), uid.is_empty()), (text, text, text.is_empty()));
            assert_eq!(serde_json::to_value(&uid).unwrap(), serde_json::json!(text));
        }
        let mut order = [Uid::from("z"), Uid::from(usual), Uid::from("0")];
        order.sort();
        assert_eq!(order.map(|uid| uid.to_string()), ["0", usual, "z"]);
    }

    #[test]
    fn equal_words_share_memory() {
        let (a, b) = (Word::new("shared-by-two"), Word::new("shared-by-two"));
        assert!(Arc::ptr_eq(&a.0, &b.0));
        assert_ne!(Word::new("x"), Word::new("y"));
    }
}
