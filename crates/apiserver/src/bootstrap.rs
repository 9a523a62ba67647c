//! What every server has in its store before it answers its first request: namespaces, roles, and the definitions of
//! snapshots.
//!
//! What is missing is put there at every start. What is there is left alone, with one exception: a definition that the
//! server installed, and that nobody has changed since, follows the server to its new form. To tell, the server notes a
//! digest of the spec it installed in an annotation; while the stored spec has that digest, it is the server's. Any
//! change of the spec by somebody else makes the definition theirs, and so does taking the annotation away.

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::auth::{self, User};
use crate::catalog::{self, Resource};
use crate::controllers::definitions;
use crate::crd;
use crate::keys::INSTALLED_SPEC;
use crate::kinds::{Endpoint, Rules, read};
use crate::verbs::{Core, Failure, Outcome, Replacement, Write, settle};

/// Namespaces that always exist.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// What the server needs of its store could not be put there.
#[derive(Debug, thiserror::Error)]
#[error("{what} could not be created: {why}")]
pub struct BootstrapError {
    what: String,
    why: String,
}

pub(crate) async fn bootstrap(core: &Core) -> Result<(), BootstrapError> {
    let namespaces =
        NAMESPACES.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let namespaces = namespaces.into_iter().map(|namespace| ("namespaces", namespace));
    let roles = auth::cluster_roles().into_iter().map(|role| ("clusterroles", role));
    let bindings = auth::cluster_role_bindings().into_iter().map(|binding| ("clusterrolebindings", binding));
    // All at once: the store puts them on disk together, and a new server waits for its disk a few times instead of often.
    let objects = namespaces.chain(roles).chain(bindings);
    try_join_all(objects.map(|(plural, object)| ensure(core, plural, object))).await?;
    try_join_all(crd::snapshot_definitions().into_iter().map(|definition| async move {
        let what = format!("{}/{}", crd::DEFINITIONS, read::name(&definition));
        let installed = install(core, definition).await;
        installed.map_err(|failure| BootstrapError { what, why: failure.message().to_owned() })
    }))
    .await?;
    Ok(())
}

/// Creates a cluster-scoped object unless it exists.
async fn ensure(core: &Core, plural: &str, object: Value) -> Result<(), BootstrapError> {
    let what = format!("{plural}/{}", read::name(&object));
    let outcome = async {
        let (resource, rules) = kind(plural)?;
        let user = User::loopback();
        create(core, &Write::own(core, (resource, rules), Endpoint::Main, &user), object).await
    };
    outcome.await.map_err(|failure| BootstrapError { what, why: failure.message().to_owned() })
}

fn kind(plural: &str) -> Outcome<(&'static std::sync::Arc<Resource>, &'static dyn Rules)> {
    let resource = catalog::built_in().all().find(|resource| resource.plural == plural);
    let found = resource.and_then(|resource| Some((resource, resource.rules()?)));
    Ok(found.ok_or_else(crate::status::ApiError::unknown_resource)?)
}

async fn create(core: &Core, write: &Write<'_>, object: Value) -> Outcome<()> {
    match core.create(write, object).await {
        Ok(_) | Err(Failure { code: 409, .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Puts a definition there, or brings the server's own one up to date, and has it served at once.
async fn install(core: &Core, mut definition: Value) -> Outcome<()> {
    let (resource, rules) = kind(crd::DEFINITIONS)?;
    settle(resource, rules, &mut definition);
    let digest = digest_of(&definition);
    definition["metadata"]["annotations"][INSTALLED_SPEC] = digest.as_str().into();
    let name = read::name(&definition).to_owned();
    let user = User::loopback();
    let write = Write::own(core, (resource, rules), Endpoint::Main, &user);
    match core.load(resource, None, &name) {
        None => create(core, &write, definition).await?,
        Some(live) => match judge(&live.object, &digest) {
            Standing::Current => {}
            Standing::Outdated => {
                let mut renewed = live.object;
                renewed["spec"] = definition["spec"].take();
                renewed["metadata"]["annotations"][INSTALLED_SPEC] = digest.into();
                core.update(&write, &name, &Replacement(renewed)).await?;
                tracing::info!(definition = name, "brought up to date");
            }
            Standing::Foreign => tracing::info!(definition = name, "left as somebody else has made it"),
        },
    }
    definitions::settle_names(core, &name).await
}

/// What a stored definition is to this server.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// As this server installs it.
    Current,
    /// As an earlier server installed it.
    Outdated,
    /// Changed or installed by somebody else, or on its way out.
    Foreign,
}

fn judge(live: &Value, digest: &str) -> Standing {
    let stored = digest_of(live);
    match read::annotation(live, INSTALLED_SPEC) {
        Some(installed) if installed == stored && !read::deleting(live) => match stored == digest {
            true => Standing::Current,
            false => Standing::Outdated,
        },
        _ => Standing::Foreign,
    }
}

fn digest_of(definition: &Value) -> String {
    // Keys of objects are sorted, so equal specs have equal texts.
    let digest = Sha256::digest(definition["spec"].to_string());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_the_servers_until_somebody_changes_its_spec() {
        let mut live = json!({"metadata": {"name": "x"}, "spec": {"group": "a.b"}});
        let digest = digest_of(&live);
        assert_eq!(judge(&live, &digest), Standing::Foreign, "nobody says who installed it");
        live["metadata"]["annotations"] = json!({INSTALLED_SPEC: digest});
        assert_eq!(judge(&live, &digest), Standing::Current);
        assert_eq!(judge(&live, "another"), Standing::Outdated);
        live["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(judge(&live, "another"), Standing::Outdated, "labels are not its meaning");
        live["spec"]["group"] = "a.c".into();
        assert_eq!(judge(&live, &digest), Standing::Foreign);
    }
}
