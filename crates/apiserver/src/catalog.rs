//! Which resources are served: the built-in ones, which are the rows of [`crate::schema::kinds`] joined with the rules of
//! [`crate::kinds`], and the custom ones, which follow the stored definitions. Discovery prints this catalogue, routing
//! reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::crd::{self, Custom};
use crate::kinds::{self, Rules, Timestamp};
use crate::request::{FieldLabels, ResourceFlavor};
use crate::schema::kinds::{Kind, Persistence, Scope};
use crate::schema::types::Struct;
use crate::store::{Change, List, Start, Store, Watch};
use crate::verbs::decode;

/// One served resource.
#[derive(Debug)]
pub struct Resource {
    pub group: String,
    pub version: String,
    /// `v1` or `storage.k8s.io/v1`.
    pub api_version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// In the order of discovery.
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Its name in the store. Two resources with one name are two views of the same objects.
    pub stored_as: String,
    pub nature: Nature,
}

/// Where a resource comes from.
#[derive(Debug)]
pub enum Nature {
    /// Questions have no rules: they are answered and forgotten.
    BuiltIn {
        row: &'static Kind,
        rules: Option<&'static dyn Rules>,
    },
    Custom(Box<Custom>),
}

/// What hangs below an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    Status,
    /// Namespaces: removes finalizers of the spec.
    Finalize,
    /// Pods: gives a pod its node.
    Binding,
    /// Pods: a polite delete.
    Eviction,
    /// Service accounts: a new token.
    Token,
}

impl Subresource {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "status" => Self::Status,
            "finalize" => Self::Finalize,
            "binding" => Self::Binding,
            "eviction" => Self::Eviction,
            "token" => Self::Token,
            _ => return None,
        })
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalize => "finalize",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Token => "token",
        }
    }
}

impl Resource {
    /// None for kinds that nobody has rules for.
    fn of_row(row: &'static Kind) -> Option<Self> {
        let rules = match (row.group, row.kind) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Some(crd::RULES),
            (group, kind) => kinds::rules_for(group, kind),
        };
        let question = row.persistence == Persistence::Virtual;
        // A binding is posted below its pod; the resource of that name is a leftover nobody uses.
        if (rules.is_none() && !question) || row.resource == "bindings" {
            return None;
        }
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Some(Self {
            group: row.group.to_owned(),
            version: row.version.to_owned(),
            api_version: row.api_version(),
            kind: row.kind.to_owned(),
            list_kind: row.list_kind.to_owned(),
            plural: row.resource.to_owned(),
            singular: row.singular.to_owned(),
            short_names: owned(row.short_names),
            categories: owned(row.categories),
            namespaced: row.scope == Scope::Namespaced,
            verbs: row.verbs.iter().map(|verb| verb.name()).collect(),
            subresources: row.subresources.iter().filter_map(|row| Subresource::of_name(row.name)).collect(),
            stored_as: row.resource.to_owned(),
            nature: Nature::BuiltIn { row, rules },
        })
    }

    /// How its objects behave; none for questions.
    pub fn rules(&self) -> Option<&dyn Rules> {
        match &self.nature {
            Nature::BuiltIn { rules, .. } => rules.map(|rules| rules as &dyn Rules),
            Nature::Custom(custom) => Some(&**custom),
        }
    }

    /// The table of its type; custom resources have a schema instead.
    pub fn table(&self) -> Option<&'static Struct> {
        match &self.nature {
            Nature::BuiltIn { row, .. } => Some(row.schema),
            Nature::Custom(_) => None,
        }
    }

    pub fn custom(&self) -> Option<&Custom> {
        match &self.nature {
            Nature::BuiltIn { .. } => None,
            Nature::Custom(custom) => Some(&**custom),
        }
    }

    pub fn flavor(&self) -> ResourceFlavor {
        match &self.nature {
            Nature::BuiltIn { .. } => ResourceFlavor::BuiltIn,
            Nature::Custom(_) => ResourceFlavor::Custom,
        }
    }

    /// The fields its objects can be selected by.
    pub fn field_labels(&self) -> FieldLabels {
        match &self.nature {
            Nature::BuiltIn { .. } => FieldLabels::of(&self.group, &self.plural),
            Nature::Custom(custom) => FieldLabels::custom(custom.selectable()),
        }
    }

    /// The columns of its table.
    pub fn columns(&self) -> Vec<Value> {
        match &self.nature {
            Nature::BuiltIn { rules, .. } => {
                rules.iter().flat_map(|rules| rules.columns()).map(|column| column.to_json()).collect()
            }
            Nature::Custom(custom) => custom.column_definitions(),
        }
    }

    /// The cells of an object's row.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.nature {
            Nature::BuiltIn { rules, .. } => rules.map(|rules| rules.row(object, now)).unwrap_or_default(),
            Nature::Custom(custom) => custom.cells(object, now),
        }
    }

    /// What an object shows when nothing is set: the body of bookmarks.
    pub fn blank(&self) -> Value {
        let mut object = match self.table() {
            Some(table) => crate::schema::encode::empty(table),
            None => Value::Object(Map::new()),
        };
        self.label(&mut object);
        object
    }

    /// Says in an object what it is.
    pub fn label(&self, object: &mut Value) {
        object["apiVersion"] = self.api_version.as_str().into();
        object["kind"] = self.kind.as_str().into();
    }

    pub fn scope(&self) -> kinds::Scope {
        if self.namespaced { kinds::Scope::Namespaced } else { kinds::Scope::Cluster }
    }

    pub fn is_question(&self) -> bool {
        matches!(&self.nature, Nature::BuiltIn { row, .. } if row.persistence == Persistence::Virtual)
    }

    /// Whether the store forgets its objects by itself.
    pub fn expires(&self) -> bool {
        matches!(&self.nature, Nature::BuiltIn { row, .. } if row.persistence == Persistence::Expiring)
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<Subresource> {
        self.subresources.iter().copied().find(|subresource| subresource.name() == name)
    }

    /// As errors about objects name it: the plural.
    pub fn named(&self) -> crate::status::Resource<'_> {
        crate::status::Resource::new(&self.group, &self.plural)
    }

    /// As errors about fields name it: the Kind.
    pub fn kind_named(&self) -> crate::status::Resource<'_> {
        // Events are of the core group, whichever way they came.
        let group = if self.kind == "Event" { "" } else { self.group.as_str() };
        crate::status::Resource::new(group, &self.kind)
    }
}

/// A group and its versions, the preferred one first.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: String,
    pub versions: Vec<Version>,
}

#[derive(Debug, Clone)]
pub struct Version {
    pub name: String,
    pub resources: Vec<Arc<Resource>>,
}

/// The order in which short names are looked up: the core group first, custom groups last.
const ORDER: [&str; 8] = [
    "",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "storage.k8s.io",
    "rbac.authorization.k8s.io",
    "coordination.k8s.io",
    "apiextensions.k8s.io",
];

/// Everything that is served at one moment.
#[derive(Debug)]
pub struct Snapshot {
    pub groups: Vec<Group>,
}

static BUILT_IN: LazyLock<Arc<Snapshot>> = LazyLock::new(|| {
    let rows = crate::schema::kinds::ALL;
    let of_group = |name: &str| {
        let rows = rows.iter().filter(|row| row.group == name);
        rows.filter_map(|row| Resource::of_row(row).map(Arc::new)).collect::<Vec<_>>()
    };
    let groups = ORDER.iter().map(|name| Group {
        name: (*name).to_owned(),
        versions: vec![Version { name: "v1".to_owned(), resources: of_group(name) }],
    });
    Arc::new(Snapshot { groups: groups.collect() })
});

/// What is served without any definition.
pub fn built_in() -> &'static Snapshot {
    &BUILT_IN
}

impl Snapshot {
    /// The built-in resources and those of the definitions, each version where it belongs.
    fn with(definitions: &BTreeMap<String, Value>) -> Self {
        let mut groups = BUILT_IN.groups.clone();
        let mut custom: BTreeMap<String, BTreeMap<String, Vec<Arc<Resource>>>> = BTreeMap::new();
        for resource in definitions.values().flat_map(crd::served) {
            let versions = custom.entry(resource.group.clone()).or_default();
            versions.entry(resource.version.clone()).or_default().push(Arc::new(resource));
        }
        // A definition cannot add to a built-in group.
        custom.retain(|name, _| !ORDER.contains(&name.as_str()));
        for (name, versions) in custom {
            let mut versions: Vec<Version> =
                versions.into_iter().map(|(name, resources)| Version { name, resources }).collect();
            versions.sort_by_key(|version| std::cmp::Reverse(crd::version_priority(&version.name)));
            groups.push(Group { name, versions });
        }
        Self { groups }
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let version = self.group(group)?.versions.iter().find(|known| known.name == version)?;
        version.resources.iter().find(|resource| resource.plural == plural)
    }

    /// The resource that serves a kind, as owner references name it.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all().find(|resource| resource.api_version == api_version && resource.kind == kind)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }

    /// Every resource with objects, each stored name once.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let first = |resource: &Arc<Resource>| {
            self.all()
                .find(|other| other.stored_as == resource.stored_as)
                .is_some_and(|other| Arc::ptr_eq(other, resource))
        };
        self.all().filter(move |resource| !resource.is_question() && first(resource))
    }
}

/// The catalogue, kept up to date with the stored definitions whenever it is asked.
#[derive(Debug, Default)]
pub(crate) struct Catalog(Mutex<View>);

#[derive(Debug)]
struct View {
    definitions: BTreeMap<String, Value>,
    /// None before the first look and after falling behind.
    changes: Option<Watch>,
    snapshot: Arc<Snapshot>,
}

impl Default for View {
    fn default() -> Self {
        Self { definitions: BTreeMap::new(), changes: None, snapshot: Arc::clone(&BUILT_IN) }
    }
}

impl Catalog {
    pub(crate) fn snapshot(&self, store: &Store) -> Arc<Snapshot> {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if view.follow(store) {
            view.snapshot = Arc::new(Snapshot::with(&view.definitions));
        }
        Arc::clone(&view.snapshot)
    }
}

impl View {
    /// Takes what changed since the last look, and says whether anything did.
    fn follow(&mut self, store: &Store) -> bool {
        let Some(changes) = &mut self.changes else { return self.start(store) };
        let mut changed = false;
        loop {
            match changes.try_next() {
                Ok(None) => return changed,
                Ok(Some(event)) => {
                    changed = true;
                    match &event.change {
                        Change::Created { new } | Change::Updated { new, .. } => {
                            self.definitions.insert(new.key.name().to_owned(), decode(new));
                        }
                        Change::Deleted { old } => drop(self.definitions.remove(old.key.name())),
                    }
                }
                Err(_) => return self.start(store),
            }
        }
    }

    fn start(&mut self, store: &Store) -> bool {
        let scope = crate::store::Scope::all(crd::DEFINITIONS);
        let Ok(page) = store.list(&List::latest(&scope)) else { return false };
        self.definitions = page.items.iter().map(|stored| (stored.key.name().to_owned(), decode(stored))).collect();
        self.changes = store.watch(scope, Start::After(page.revision)).ok();
        true
    }
}

/// How discovery names a subresource's own kind, where it has one.
pub(crate) fn foreign_kind(resource: &Resource, subresource: Subresource) -> Option<Value> {
    let Nature::BuiltIn { row, .. } = &resource.nature else { return None };
    let foreign = row.subresource(subresource.name())?.body.as_ref()?;
    Some(json!({"group": foreign.group, "version": foreign.version, "kind": foreign.kind}))
}

/// In the order of discovery.
pub(crate) fn subresource_verbs(resource: &Resource, subresource: Subresource) -> Vec<&'static str> {
    match &resource.nature {
        Nature::BuiltIn { row, .. } => {
            let row = row.subresource(subresource.name());
            row.into_iter().flat_map(|row| row.verbs).map(|verb| verb.name()).collect()
        }
        Nature::Custom(_) => vec!["get", "patch", "update"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_a_listed_group_and_version() {
        for row in crate::schema::kinds::ALL {
            assert!(ORDER.contains(&row.group), "{}", row.group);
            assert_eq!(row.version, "v1");
        }
    }

    #[test]
    fn every_subresource_of_a_row_is_served() {
        for resource in built_in().all() {
            let Nature::BuiltIn { row, .. } = &resource.nature else { continue };
            assert_eq!(row.subresources.len(), resource.subresources.len(), "{}", resource.kind);
        }
    }

    /// Rule: API-0.6
    #[test]
    fn deletes_answer_the_object_for_these_kinds_and_a_status_for_the_others() {
        let object = with_policy(|policy| policy.delete_answer == kinds::DeleteAnswer::Object);
        let expected = [
            "Namespace",
            "PersistentVolumeClaim",
            "PersistentVolume",
            "Pod",
            "ResourceQuota",
            "ServiceAccount",
            "CSIDriver",
            "CSINode",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ];
        assert_eq!(object, expected);
    }

    /// Rule: API-4.2
    #[test]
    fn only_leases_events_limit_ranges_and_roles_are_created_by_put() {
        let creating = with_policy(|policy| policy.missing == kinds::Missing::Created);
        let expected = ["Event", "LimitRange", "ClusterRoleBinding", "ClusterRole", "RoleBinding", "Role", "Lease"];
        assert_eq!(creating, expected);
    }

    fn with_policy(wanted: impl Fn(&kinds::Policy) -> bool) -> Vec<&'static str> {
        let kinds =
            built_in().stored().filter(|resource| resource.rules().is_some_and(|rules| wanted(&rules.policy())));
        kinds.map(|resource| resource.kind.as_str()).collect()
    }

    #[test]
    fn rows_and_rules_agree_about_namespaces() {
        for resource in built_in().stored() {
            let Some(rules) = resource.rules() else { continue };
            assert_eq!(rules.policy().scope == kinds::Scope::Namespaced, resource.namespaced, "{}", resource.kind);
        }
    }
}
