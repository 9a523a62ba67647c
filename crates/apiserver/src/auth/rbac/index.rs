//! All roles and bindings, kept as they are written and found by subject: a decision reads only the bindings that name
//! the user or one of its groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use serde_json::Value;

use super::PolicyRule;
use crate::auth::{Attributes, Decision, Object, User, service_account_user};
use crate::request::go_quote;

/// The four kinds of objects that grant rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RbacKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

/// The rights of everybody at one moment.
#[derive(Debug, Clone, Default)]
pub struct Rbac {
    /// By namespace, which is empty for cluster roles, and name.
    roles: BTreeMap<(String, String), Vec<PolicyRule>>,
    /// By namespace, which is empty for cluster role bindings, and name.
    bindings: BTreeMap<(String, String), Binding>,
    /// Names of bindings by namespace and by whom they bind; service accounts are users here.
    by_subject: BTreeMap<(String, Who), BTreeSet<String>>,
}

#[derive(Debug, Clone)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

#[derive(Debug, Clone)]
pub(in crate::auth) struct RoleRef {
    pub(in crate::auth) kind: String,
    pub(in crate::auth) name: String,
}

#[derive(Debug, Clone)]
struct Subject {
    who: Who,
    /// As reasons name it: `Group "system:masters"`.
    shown: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    User(String),
    Group(String),
}

/// A role that is bound and does not exist, or a reference that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::auth) enum Unresolved {
    NoRole { name: String },
    NoClusterRole { name: String },
    BadKind(String),
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRole { name } => write!(f, "role.rbac.authorization.k8s.io {} not found", go_quote(name)),
            Self::NoClusterRole { name } => {
                write!(f, "clusterrole.rbac.authorization.k8s.io {} not found", go_quote(name))
            }
            Self::BadKind(kind) => write!(f, "unsupported role reference kind: {}", go_quote(kind)),
        }
    }
}

/// One step of a walk over the rights of a user.
enum Step<'a> {
    Rule { key: &'a (String, String), binding: &'a Binding, rule: &'a PolicyRule },
    Unresolved(Unresolved),
}

impl RbacKind {
    /// The kind that a resource of rbac.authorization.k8s.io holds.
    pub fn of_resource(resource: &str) -> Option<Self> {
        Some(match resource {
            "roles" => Self::Role,
            "clusterroles" => Self::ClusterRole,
            "rolebindings" => Self::RoleBinding,
            "clusterrolebindings" => Self::ClusterRoleBinding,
            _ => return None,
        })
    }
}

impl RoleRef {
    pub(in crate::auth) fn of(binding: &Value) -> Self {
        let text = |name: &str| binding["roleRef"][name].as_str().unwrap_or_default().to_owned();
        Self { kind: text("kind"), name: text("name") }
    }
}

impl Rbac {
    /// Takes an object as created or updated.
    pub fn apply(&mut self, kind: RbacKind, object: &Value) {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let key = match kind {
            RbacKind::Role | RbacKind::RoleBinding => (text("namespace"), text("name")),
            RbacKind::ClusterRole | RbacKind::ClusterRoleBinding => (String::new(), text("name")),
        };
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                self.roles.insert(key, PolicyRule::all_of(object));
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => self.bind(key, object),
        }
    }

    /// Takes an object as deleted. `namespace` is ignored for the two cluster kinds.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        let namespace = match kind {
            RbacKind::Role | RbacKind::RoleBinding => namespace,
            RbacKind::ClusterRole | RbacKind::ClusterRoleBinding => "",
        };
        let key = (namespace.to_owned(), name.to_owned());
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                self.roles.remove(&key);
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => self.unbind(&key),
        }
    }

    fn bind(&mut self, key: (String, String), object: &Value) {
        self.unbind(&key);
        let subjects = object["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let subjects: Vec<Subject> = subjects.iter().filter_map(|subject| read_subject(subject, &key.0)).collect();
        for subject in &subjects {
            let entry = (key.0.clone(), subject.who.clone());
            self.by_subject.entry(entry).or_default().insert(key.1.clone());
        }
        self.bindings.insert(key, Binding { role: RoleRef::of(object), subjects });
    }

    fn unbind(&mut self, key: &(String, String)) {
        let Some(binding) = self.bindings.remove(key) else { return };
        for subject in binding.subjects {
            let entry = (key.0.clone(), subject.who);
            if let Some(names) = self.by_subject.get_mut(&entry) {
                names.remove(&key.1);
                if names.is_empty() {
                    self.by_subject.remove(&entry);
                }
            }
        }
    }

    /// Allowed if any rule of any role bound to the user allows it: cluster-wide ones first, then those of the
    /// namespace.
    pub fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let namespace = match attributes.object {
            Object::Resource { namespace, .. } => namespace,
            Object::Path(_) => "",
        };
        let mut unresolved = Vec::new();
        let walk = self.walk(attributes.user, namespace, |step| match step {
            Step::Rule { key, binding, rule } if rule.allows(attributes) => {
                ControlFlow::Break(allowed_by(attributes.user, key, binding))
            }
            Step::Rule { .. } => ControlFlow::Continue(()),
            Step::Unresolved(error) => {
                unresolved.push(error.to_string());
                ControlFlow::Continue(())
            }
        });
        match walk {
            ControlFlow::Break(reason) => Decision::Allowed { reason },
            ControlFlow::Continue(()) if unresolved.is_empty() => Decision::NoOpinion { reason: String::new() },
            ControlFlow::Continue(()) => {
                Decision::NoOpinion { reason: format!("RBAC: {}", crate::request::aggregate(unresolved)) }
            }
        }
    }

    /// Every rule that holds for a user in a namespace, and what could not be resolved.
    pub(in crate::auth) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<&PolicyRule>, Vec<Unresolved>) {
        let (mut rules, mut unresolved) = (Vec::new(), Vec::new());
        let _: ControlFlow<()> = self.walk(user, namespace, |step| {
            match step {
                Step::Rule { rule, .. } => rules.push(rule),
                Step::Unresolved(error) => unresolved.push(error),
            }
            ControlFlow::Continue(())
        });
        (rules, unresolved)
    }

    /// The rules behind a reference in a binding of `namespace`, which is empty for a cluster role binding.
    pub(in crate::auth) fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<&[PolicyRule], Unresolved> {
        let name = role.name.clone();
        let (key, missing) = match role.kind.as_str() {
            "Role" => ((namespace.to_owned(), name.clone()), Unresolved::NoRole { name }),
            "ClusterRole" => ((String::new(), name.clone()), Unresolved::NoClusterRole { name }),
            other => return Err(Unresolved::BadKind(other.to_owned())),
        };
        // Cluster roles live under the empty namespace, where a Role must not find them.
        if role.kind == "Role" && namespace.is_empty() {
            return Err(missing);
        }
        self.roles.get(&key).map(Vec::as_slice).ok_or(missing)
    }

    fn walk<'a, B>(
        &'a self,
        user: &User,
        namespace: &str,
        mut visit: impl FnMut(Step<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for namespace in std::iter::once("").chain(Some(namespace).filter(|namespace| !namespace.is_empty())) {
            let who = std::iter::once(Who::User(user.name.clone())).chain(user.groups.iter().cloned().map(Who::Group));
            let names: BTreeSet<&String> =
                who.filter_map(|who| self.by_subject.get(&(namespace.to_owned(), who))).flatten().collect();
            for name in names {
                let key = (namespace.to_owned(), name.clone());
                let Some((key, binding)) = self.bindings.get_key_value(&key) else { continue };
                match self.resolve(&binding.role, namespace) {
                    Err(error) => visit(Step::Unresolved(error))?,
                    Ok(rules) => {
                        for rule in rules {
                            visit(Step::Rule { key, binding, rule })?;
                        }
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// `None` for what binds nobody: an unknown kind, or a service account without a namespace in a cluster role binding.
fn read_subject(subject: &Value, namespace: &str) -> Option<Subject> {
    let text = |name: &str| subject[name].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let (who, shown) = match kind {
        "User" => (Who::User(name.to_owned()), name.to_owned()),
        "Group" => (Who::Group(name.to_owned()), name.to_owned()),
        "ServiceAccount" => {
            let home = if text("namespace").is_empty() { namespace } else { text("namespace") };
            if home.is_empty() {
                return None;
            }
            (Who::User(service_account_user(home, name)), format!("{name}/{home}"))
        }
        _ => return None,
    };
    Some(Subject { who, shown: format!("{kind} {}", go_quote(&shown)) })
}

fn allowed_by(user: &User, (namespace, name): &(String, String), binding: &Binding) -> String {
    let is_user = |subject: &&Subject| match &subject.who {
        Who::User(name) => *name == user.name,
        Who::Group(group) => user.groups.contains(group),
    };
    let subject = binding.subjects.iter().find(is_user).map(|subject| subject.shown.as_str()).unwrap_or_default();
    let shown = if namespace.is_empty() {
        format!("ClusterRoleBinding {}", go_quote(name))
    } else {
        format!("RoleBinding {}", go_quote(&format!("{name}/{namespace}")))
    };
    let RoleRef { kind, name } = &binding.role;
    format!("RBAC: allowed by {shown} of {kind} {} to {subject}", go_quote(name))
}
