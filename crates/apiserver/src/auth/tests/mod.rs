//! Credentials, rights and refusals, as clients meet them. The rules are those of API-8.

mod credentials;
mod escalation;
mod model;
mod pki;
mod rbac;
mod reviews;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    AUTHENTICATED, Authenticator, BoundKind, BoundObjects, Rbac, RbacKind, StaticTokens, TokenSigner, UnixSeconds,
    User, cluster_role_bindings, cluster_roles,
};
use crate::request::Refusal;

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
const ISSUER: &str = "https://kubernetes.default.svc";

/// Code, reason and message, the three parts that every client reads.
fn shown<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
    match result {
        Ok(value) => format!("accepted: {value:?}"),
        Err(refusal) => format!("{} {}: {refusal}", refusal.code(), refusal.reason()),
    }
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().copied().chain([AUTHENTICATED]).map(str::to_owned).collect();
    User { name: name.into(), groups, ..User::default() }
}

/// The rights of a server at its first start.
fn first_start() -> Rbac {
    let mut rbac = Rbac::default();
    cluster_roles().iter().for_each(|role| rbac.apply(RbacKind::ClusterRole, role));
    cluster_role_bindings().iter().for_each(|binding| rbac.apply(RbacKind::ClusterRoleBinding, binding));
    rbac
}

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules})
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> Value {
    let (kind, role) = role;
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": subjects,
    })
}

/// A store of the few objects that tokens are tied to.
#[derive(Default)]
struct Objects(BTreeMap<(String, String, String), Arc<Value>>);

impl Objects {
    fn with(mut self, kind: BoundKind, namespace: &str, name: &str, object: Value) -> Self {
        self.0.insert((format!("{kind:?}"), namespace.into(), name.into()), Arc::new(object));
        self
    }
}

impl BoundObjects for Objects {
    fn find(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.get(&(format!("{kind:?}"), namespace.into(), name.into())).cloned()
    }
}

/// Service account `conf/sa1`, pod `p` on node `n`, and a secret.
fn objects() -> Objects {
    let uid = |uid: &str| json!({"metadata": {"uid": uid}});
    let pod = json!({"metadata": {"uid": "pod-uid"}, "spec": {"serviceAccountName": "sa1", "nodeName": "n"}});
    Objects::default()
        .with(BoundKind::ServiceAccount, "conf", "sa1", uid("sa-uid"))
        .with(BoundKind::ServiceAccount, "conf", "sa2", uid("sa2-uid"))
        .with(BoundKind::Pod, "conf", "p", pod)
        .with(BoundKind::Secret, "conf", "s", uid("secret-uid"))
        .with(BoundKind::Node, "", "n", uid("node-uid"))
}

fn signer() -> TokenSigner {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    TokenSigner::new(key.serialized_der(), ISSUER).unwrap()
}

fn authenticator() -> Authenticator {
    let tokens = "boot-secret,bootstrap,u1,\"system:masters, ops\"\n# a comment\n\nplain,bob,\n";
    Authenticator::new(signer(), StaticTokens::parse(tokens).unwrap())
}
