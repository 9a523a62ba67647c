//! The indexed evaluator against a naive one that reads API-8 line by line, over random objects and changes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Attributes, Object, Rbac, RbacKind, User};

type Key = (String, String);

/// Every object, searched from end to end for every question.
#[derive(Default)]
struct Model {
    roles: BTreeMap<Key, Value>,
    cluster_roles: BTreeMap<Key, Value>,
    bindings: BTreeMap<Key, Value>,
    cluster_bindings: BTreeMap<Key, Value>,
}

impl Model {
    fn objects(&mut self, kind: RbacKind) -> &mut BTreeMap<Key, Value> {
        match kind {
            RbacKind::Role => &mut self.roles,
            RbacKind::ClusterRole => &mut self.cluster_roles,
            RbacKind::RoleBinding => &mut self.bindings,
            RbacKind::ClusterRoleBinding => &mut self.cluster_bindings,
        }
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        let namespace = match attributes.object {
            Object::Resource { namespace, .. } => namespace,
            Object::Path(_) => "",
        };
        let wide = self.cluster_bindings.values().map(|binding| (binding, ""));
        let narrow = self.bindings.iter().filter(|((home, _), _)| !namespace.is_empty() && home == namespace);
        wide.chain(narrow.map(|((home, _), binding)| (binding, home.as_str()))).any(|(binding, home)| {
            binding["subjects"].as_array().unwrap().iter().any(|subject| is_subject(subject, home, attributes.user))
                && self.rules(binding, home).iter().any(|rule| matches(rule, attributes))
        })
    }

    fn rules(&self, binding: &Value, home: &str) -> Vec<Value> {
        let name = binding["roleRef"]["name"].as_str().unwrap().to_owned();
        let role = match binding["roleRef"]["kind"].as_str().unwrap() {
            "ClusterRole" => self.cluster_roles.get(&(String::new(), name)),
            _ if home.is_empty() => None,
            _ => self.roles.get(&(home.to_owned(), name)),
        };
        role.map(|role| role["rules"].as_array().unwrap().clone()).unwrap_or_default()
    }
}

fn is_subject(subject: &Value, home: &str, user: &User) -> bool {
    let name = subject["name"].as_str().unwrap();
    match subject["kind"].as_str().unwrap() {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        _ => {
            let home = subject["namespace"].as_str().unwrap_or(home);
            !home.is_empty() && user.name == format!("system:serviceaccount:{home}:{name}")
        }
    }
}

fn matches(rule: &Value, attributes: &Attributes<'_>) -> bool {
    let list = |field: &str| rule[field].as_array().cloned().unwrap_or_default();
    let has = |field: &str, word: &str| list(field).iter().any(|known| known == "*" || known == word);
    if !has("verbs", &attributes.verb) {
        return false;
    }
    match attributes.object {
        Object::Path(path) => list("nonResourceURLs").iter().any(|url| {
            let url = url.as_str().unwrap();
            url == path || url.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
        }),
        Object::Resource { group, resource, subresource, name, .. } => {
            let wanted = if subresource.is_empty() {
                vec![resource.to_owned()]
            } else {
                vec![format!("{resource}/{subresource}"), format!("*/{subresource}")]
            };
            has("apiGroups", group)
                && (wanted.iter().any(|resource| list("resources").contains(&json!(resource))) || has("resources", "*"))
                && (list("resourceNames").is_empty() || list("resourceNames").contains(&json!(name)))
        }
    }
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn some_of(words: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(words, 0..=2)
}

const NAMESPACES: &[&str] = &["x", "y"];
const NAMES: &[&str] = &["a", "b"];

fn rule() -> impl Strategy<Value = Value> {
    let fields = (
        some_of(&["*", "get", "list"]),
        some_of(&["*", "", "apps"]),
        some_of(&["*", "pods", "pods/status", "*/status"]),
        some_of(NAMES),
        some_of(&["*", "/v", "/v*"]),
    );
    fields.prop_map(|(verbs, groups, resources, names, urls)| {
        json!({
            "verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names,
            "nonResourceURLs": urls,
        })
    })
}

fn subject() -> impl Strategy<Value = Value> {
    let home = prop::option::of(one_of(NAMESPACES));
    (one_of(&["User", "Group", "ServiceAccount"]), one_of(NAMES), home).prop_map(|(kind, name, home)| match home {
        Some(home) if kind == "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": home}),
        _ => json!({"kind": kind, "name": name}),
    })
}

/// A kind, a key and the object that is now there, or nothing.
fn change() -> impl Strategy<Value = (RbacKind, Key, Option<Value>)> {
    let kind = prop::sample::select(vec![
        RbacKind::Role,
        RbacKind::ClusterRole,
        RbacKind::RoleBinding,
        RbacKind::ClusterRoleBinding,
    ]);
    let body = (
        prop::collection::vec(rule(), 0..3),
        prop::collection::vec(subject(), 0..3),
        one_of(&["Role", "ClusterRole"]),
        one_of(NAMES),
    );
    (kind, one_of(NAMESPACES), one_of(NAMES), prop::option::weighted(0.8, body)).prop_map(
        |(kind, namespace, name, body)| {
            let namespace = match kind {
                RbacKind::Role | RbacKind::RoleBinding => namespace,
                RbacKind::ClusterRole | RbacKind::ClusterRoleBinding => "",
            };
            let object = body.map(|(rules, subjects, role_kind, role)| {
                json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules, "subjects": subjects,
                "roleRef": {"kind": role_kind, "name": role}})
            });
            (kind, (namespace.to_owned(), name.to_owned()), object)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    /// Rule: API-8
    #[test]
    fn the_index_decides_as_a_plain_reading_of_the_rules_does(changes in prop::collection::vec(change(), 1..24)) {
        let (mut rbac, mut model) = (Rbac::default(), Model::default());
        for (kind, key, object) in changes {
            if let Some(object) = object {
                rbac.apply(kind, &object);
                model.objects(kind).insert(key, object);
            } else {
                rbac.remove(kind, &key.0, &key.1);
                model.objects(kind).remove(&key);
            }
        }
        let users = [("a", "b"), ("c", "a"), ("system:serviceaccount:x:a", "c"), ("system:serviceaccount:y:b", "c")];
        for (name, group) in users {
            let user = User { name: name.into(), groups: vec![group.into()], ..User::default() };
            let resources = ["", "x", "y"].into_iter().flat_map(|namespace| {
                ["", "status"].into_iter().flat_map(move |subresource| {
                    ["", "a"].into_iter().map(move |name| {
                        Object::Resource { group: "", resource: "pods", subresource, namespace, name }
                    })
                })
            });
            for object in resources.chain([Object::Path("/v"), Object::Path("/v/w"), Object::Path("/")]) {
                let attributes = Attributes { user: &user, verb: "get".into(), object, fields: None };
                prop_assert_eq!(rbac.decide(&attributes).is_allowed(), model.allows(&attributes), "{:?}", attributes);
            }
        }
    }
}
