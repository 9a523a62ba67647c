//! Admission as the verbs see it: what must be true of the rest of the world for a write to be let through.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::{Core, Deletion, Outcome, Write, codec, shown};
use crate::admission::{self, Charge, Lookup, NamespaceLife, Operation, Request, TokenTerms, User};
use crate::auth::{
    Attributes, Authority, Decision, JOIN_TOKEN, Object, RoleWrite, TOKEN_NAMESPACE, UnixSeconds, WithNodes,
    check_binding_write, check_role_write, forbidden, join,
};
use crate::catalog;
use crate::kinds::{Endpoint, read};
use crate::sources;
use crate::status::{ApiError, Resource};
use crate::store::{self, CommitError, Expect, Key, List, Revision, Scope};

/// Where quotas are stored.
const QUOTAS: &str = "resourcequotas";

/// The stored state, as admission reads it: the newest there is.
struct State<'a>(&'a Core);

impl Lookup for State<'_> {
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = stored_kind(kind)?;
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        self.0.load(resource, namespace, name).map(|live| live.object)
    }

    fn namespace(&self, name: &str) -> Option<NamespaceLife> {
        self.0.find(stored_kind("Namespace")?, None, name).map(|stored| codec::namespace_life(&stored))
    }

    fn is_copied_elsewhere(&self, source: (&str, &str, &str), node: &str) -> bool {
        self.0.relations.with(&self.0.store, |index| index.is_copied_elsewhere(source, node))
    }

    fn is_handle_of_another(&self, (driver, handle): (&str, &str), name: &str) -> bool {
        self.0.relations.with(&self.0.store, |index| index.is_handle_of_another(driver, handle, name))
    }

    fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let Some(resource) = stored_kind(kind) else { return Vec::new() };
        let scope = match namespace {
            "" => Scope::all(&resource.stored_as),
            namespace => Scope::namespace(&resource.stored_as, namespace),
        };
        let page = self.0.store.list(&List::latest(&scope));
        let items = page.map(|page| page.items).unwrap_or_default();
        items.iter().map(|stored| shown(resource, codec::decode(stored))).collect()
    }
}

/// Admission asks about built-in kinds only.
fn stored_kind(kind: &str) -> Option<&'static catalog::Resource> {
    static KINDS: LazyLock<BTreeMap<&str, &catalog::Resource>> = LazyLock::new(|| {
        let stored = catalog::built_in().stored().filter(|resource| !resource.expires());
        stored.map(|resource| (resource.kind.as_str(), &**resource)).collect()
    });
    KINDS.get(kind).copied()
}

/// A quota that was read has a name that can be a key and a version that is a number.
fn put_charge(charge: &Charge) -> Option<store::Write> {
    let version = read::text(&charge.quota, "/metadata/resourceVersion").parse().ok()?;
    let key = Key::new(QUOTAS, Some(&charge.namespace), &charge.name).ok()?;
    Some(store::Write::put(key, Expect::At(Revision(version)), codec::encode(&charge.quota)))
}

/// Whether a commit failed because somebody else has charged or changed a quota: then there is a new usage to look at.
pub(super) fn is_about_quota(error: &CommitError) -> bool {
    match error {
        CommitError::Changed { current, .. } => current.key.resource() == QUOTAS,
        CommitError::Missing { key } => key.resource() == QUOTAS,
        CommitError::Exists { .. } | CommitError::NoSpace { .. } | CommitError::Poisoned { .. } => false,
    }
}

impl<'a> Write<'a> {
    fn admission<'b>(&'b self, operation: Operation, name: &'b str, old: Option<&'b Value>) -> Request<'b> {
        Request {
            operation,
            resource: self.resource.named(),
            subresource: match self.endpoint {
                Endpoint::Main => "",
                Endpoint::Status => "status",
            },
            namespace: self.namespace.unwrap_or_default(),
            name,
            old,
        }
    }
}

impl Core {
    /// Mutating admission of a create.
    pub(super) fn admit_create(&self, write: &Write<'_>, object: &mut Value) -> Outcome<()> {
        let name = read::name(object).to_owned();
        self.mutate(&write.admission(Operation::Create, &name, None), write.user, object)
    }

    /// Mutating admission of an update.
    pub(super) fn admit_update(&self, write: &Write<'_>, object: &mut Value, old: &Value) -> Outcome<()> {
        let name = read::name(old).to_owned();
        self.mutate(&write.admission(Operation::Update, &name, Some(old)), write.user, object)
    }

    fn mutate(&self, request: &Request<'_>, user: &crate::auth::User, object: &mut Value) -> Outcome<()> {
        let mut pick = |limit: usize| {
            let limit = u64::try_from(limit).unwrap_or(u64::MAX);
            usize::try_from(sources::below(&*self.entropy, limit)).unwrap_or_default()
        };
        admission::mutate(request, object, &State(self), &mut pick)?;
        self.restrict(request, user, Some(object))
    }

    /// What nodes may not do.
    fn restrict(&self, request: &Request<'_>, user: &crate::auth::User, object: Option<&Value>) -> Outcome<()> {
        let groups: Vec<&str> = user.groups.iter().map(String::as_str).collect();
        Ok(admission::restrict_node(request, object, &User { name: &user.name, groups: &groups }, &State(self))?)
    }

    /// Admission of a new volume while another one with the same handle is being created.
    pub(super) fn admit_beside_twin(&self, write: &Write<'_>, name: &str) -> Outcome<()> {
        let groups: Vec<&str> = write.user.groups.iter().map(String::as_str).collect();
        let request = write.admission(Operation::Create, name, None);
        Ok(admission::restrict_twin(&request, &User { name: &write.user.name, groups: &groups })?)
    }

    /// Admission of what is asked of a pod by a subresource: its binding or its eviction.
    pub(super) fn admit_below(&self, write: &Write<'_>, name: &str, subresource: &str) -> Outcome<()> {
        let pod = self.load(write.resource, write.namespace, name);
        let request =
            Request { subresource, ..write.admission(Operation::Create, name, pod.as_ref().map(|live| &live.object)) };
        self.restrict(&request, write.user, None)
    }

    /// Admission of a request for a token of a service account: on which terms it is given.
    pub(crate) fn admit_token(
        &self,
        user: &crate::auth::User,
        (namespace, account): (&str, &str),
        body: &Value,
    ) -> Outcome<TokenTerms> {
        let groups: Vec<&str> = user.groups.iter().map(String::as_str).collect();
        let request = Request {
            operation: Operation::Create,
            resource: Resource::new("", "serviceaccounts"),
            subresource: "token",
            namespace,
            name: account,
            old: None,
        };
        let may_request = |audience: &str| {
            let object = Object::Resource { group: "", resource: audience, subresource: "", namespace, name: account };
            let verb = "request-serviceaccounts-token-audience".into();
            let attributes = Attributes { user, verb, object, fields: None };
            self.with_authority(|authority| authority.judge(&attributes)).is_allowed()
        };
        let asker = User { name: &user.name, groups: &groups };
        Ok(admission::restrict_token(&request, body, &asker, &State(self), may_request)?)
    }

    /// Validating admission of a create: what has to be written together with the object.
    pub(super) fn validate_create(&self, write: &Write<'_>, object: &Value) -> Outcome<Vec<store::Write>> {
        self.check_rights(write, object, None)?;
        self.check_token_rate(write, object)?;
        self.judge(&write.admission(Operation::Create, read::name(object), None), object)
    }

    /// Join tokens are made by hand, a few at a time.
    fn check_token_rate(&self, write: &Write<'_>, object: &Value) -> Outcome<()> {
        let is_token =
            write.resource.group.is_empty() && write.resource.plural == "secrets" && object["type"] == JOIN_TOKEN;
        let now = UnixSeconds(write.now.seconds());
        if is_token && join::too_many_tokens(&State(self).list("Secret", TOKEN_NAMESPACE), now) {
            let why =
                "too many join tokens were made in the last minute: wait a minute, and look at `orlop token list`";
            return Err(ApiError::too_many_requests(why).into());
        }
        Ok(())
    }

    /// Validating admission of an update: what has to be written together with the object.
    pub(super) fn validate_update(&self, write: &Write<'_>, object: &Value, old: &Value) -> Outcome<Vec<store::Write>> {
        self.check_rights(write, object, Some(old))?;
        self.judge(&write.admission(Operation::Update, read::name(old), Some(old)), object)
    }

    /// Asks the plugins. Quotas are charged in the same commit that stores the object, and only if nobody has changed
    /// them since they were looked at here.
    fn judge(&self, request: &Request<'_>, object: &Value) -> Outcome<Vec<store::Write>> {
        let charges = admission::validate(request, object, &State(self))?;
        Ok(charges.iter().filter_map(put_charge).collect())
    }

    /// Admission of a delete; `old` is what is there, if anything is.
    pub(super) fn admit_delete(&self, deletion: &Deletion<'_>, name: &str, old: Option<&Value>) -> Outcome<()> {
        let request = Request {
            operation: Operation::Delete,
            resource: deletion.resource.named(),
            subresource: "",
            namespace: deletion.namespace.unwrap_or_default(),
            name,
            old,
        };
        admission::check_delete(&request, &State(self))?;
        self.restrict(&request, deletion.user, None)
    }

    /// Whether a PUT or an apply of an object that does not exist may create it: that is a right of its own.
    pub(super) fn may_create(&self, write: &Write<'_>, name: &str) -> Outcome<()> {
        if write.user.is_master() {
            return Ok(());
        }
        let object = Object::Resource {
            group: &write.resource.group,
            resource: &write.resource.plural,
            subresource: "",
            namespace: write.namespace.unwrap_or_default(),
            name,
        };
        let attributes = Attributes { user: write.user, verb: "create".into(), object, fields: None };
        match self.with_authority(|authority| authority.judge(&attributes)) {
            Decision::Allowed { .. } => Ok(()),
            Decision::NoOpinion { reason } => Err(forbidden(&attributes, &reason).into()),
        }
    }

    /// Asks those who can say yes to a request.
    pub(crate) fn with_authority<T>(&self, question: impl FnOnce(&dyn Authority) -> T) -> T {
        self.rights.with(&self.store, |rbac| {
            let (relations, store) = (&self.relations, &self.store);
            question(&WithNodes { rbac, lookup: &State(self), relations, store })
        })
    }

    /// Nobody hands out rights that they do not have themselves.
    fn check_rights(&self, write: &Write<'_>, object: &Value, old: Option<&Value>) -> Outcome<()> {
        if write.resource.group != "rbac.authorization.k8s.io" || write.user.is_master() {
            return Ok(());
        }
        let resource = write.resource.plural.as_str();
        let namespace = write.namespace.unwrap_or_default();
        let name = if old.is_some() { read::name(object) } else { "" };
        let asked = RoleWrite { user: write.user, resource, namespace, name, object, old };
        Ok(self.rights.with(&self.store, |rbac| match resource {
            "roles" | "clusterroles" => check_role_write(rbac, &asked),
            _ => check_binding_write(rbac, &asked),
        })?)
    }
}
