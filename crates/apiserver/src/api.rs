//! The server as a whole: a store, what it takes from outside, and the service over them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::auth::{self, SignerError, StaticTokens, TokenSigner, User};
use crate::catalog::{self, Catalog};
use crate::controllers;
use crate::http::{Gate, Service, Shared};
use crate::kinds::Endpoint;
use crate::request::FieldValidation;
use crate::rights::Rights;
use crate::sources::{Clock, Entropy};
use crate::store::{Options, Store};
use crate::verbs::{Core, Effect, Failure, OpenWatches, Warnings, Write};

/// Namespaces that always exist.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// How often the store does its upkeep.
const TICK: Duration = Duration::from_secs(1);

/// What a server is made of.
#[derive(Debug)]
pub struct Settings {
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Signs and checks the tokens of service accounts.
    pub signer: TokenSigner,
    pub tokens: StaticTokens,
    /// `127.0.0.1:6443`: what discovery tells clients.
    pub address: String,
}

impl Settings {
    /// A server over an empty store in memory, for callers in this process. It has no threads and no files: on a
    /// current-thread runtime with paused time, equal requests in equal order give equal answers. Only the tokens of
    /// service accounts differ from run to run.
    pub fn in_memory(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Result<Self, SignerError> {
        Ok(Self {
            store: Store::memory(Options::default()),
            clock,
            entropy,
            signer: TokenSigner::ephemeral("https://kubernetes.default.svc")?,
            tokens: StaticTokens::default(),
            address: "127.0.0.1:6443".to_owned(),
        })
    }
}

/// What the server needs of its store could not be put there.
#[derive(Debug, thiserror::Error)]
#[error("{what} could not be created: {why}")]
pub struct BootstrapError {
    what: String,
    why: String,
}

/// A running API. Dropping it does not stop services made from it.
#[derive(Debug, Clone)]
pub struct Api {
    shared: Arc<Shared>,
}

impl Api {
    /// Puts what every server has into the store and is then ready to serve.
    pub async fn start(settings: Settings) -> Result<Self, BootstrapError> {
        let Settings { store, clock, entropy, signer, tokens, address } = settings;
        let (stopping, _) = tokio::sync::watch::channel(false);
        let core = Arc::new(Core {
            store,
            clock,
            entropy,
            rights: Rights::default(),
            catalog: Catalog::default(),
            store_works: AtomicBool::new(true),
            stopping,
            watches: OpenWatches::default(),
        });
        bootstrap(&core).await?;
        Ok(Self { shared: Arc::new(Shared { core, gate: Gate::new(signer, tokens), address }) })
    }

    /// The service. Requests to it need credentials; [`Service::as_user`] makes one for callers in process.
    pub fn service(&self) -> Service {
        Service::new(Arc::clone(&self.shared))
    }

    pub fn store(&self) -> &Store {
        &self.shared.core.store
    }

    /// How many watches clients hold open. A dropped stream is counted no more.
    pub fn open_watches(&self) -> usize {
        self.shared.core.watches.count()
    }

    /// Runs what happens without a request, until the server stops: upkeep of the store, removal of the content of
    /// deleted namespaces, and of objects whose owners are gone.
    pub async fn run(&self) {
        let core = &self.shared.core;
        let mut stopping = core.stopping.subscribe();
        let work = async {
            tokio::join!(
                upkeep(core),
                controllers::namespaces::run(core),
                controllers::garbage::run(core),
                controllers::definitions::run(core),
            );
        };
        tokio::select! {
            biased;
            () = work => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
}

async fn upkeep(core: &Core) {
    loop {
        if let Err(error) = core.store.tick(core.clock.now()).await {
            // Every write will say it again, and so does health.
            core.store_works.store(false, Ordering::Relaxed);
            return tracing::error!(%error, "the store stopped");
        }
        tokio::time::sleep(TICK).await;
    }
}

async fn bootstrap(core: &Core) -> Result<(), BootstrapError> {
    for name in NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ensure(core, "namespaces", namespace).await?;
    }
    for role in auth::cluster_roles() {
        ensure(core, "clusterroles", role).await?;
    }
    for binding in auth::cluster_role_bindings() {
        ensure(core, "clusterrolebindings", binding).await?;
    }
    Ok(())
}

/// Creates a cluster-scoped object unless it exists.
async fn ensure(core: &Core, plural: &str, object: Value) -> Result<(), BootstrapError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let what = format!("{plural}/{name}");
    let resource = catalog::built_in().all().find(|resource| resource.plural == plural);
    let Some((resource, rules)) = resource.and_then(|resource| Some((resource, resource.rules()?))) else {
        return Err(BootstrapError { what, why: "the kind is not served".to_owned() });
    };
    // From the second start on nothing is missing, and a start should take no longer than a look.
    if core.find(resource, None, &name).is_some() {
        return Ok(());
    }
    let user = User::loopback();
    let write = Write {
        resource,
        rules,
        endpoint: Endpoint::Main,
        namespace: None,
        user: &user,
        effect: Effect::Stored,
        manager: "kube-apiserver",
        validation: FieldValidation::Ignore,
        now: core.now(),
        warnings: Warnings::default(),
    };
    match core.create(&write, object).await {
        Ok(_) => Ok(()),
        Err(Failure { code: 409, .. }) => Ok(()),
        Err(failure) => Err(BootstrapError { what, why: failure.message().to_owned() }),
    }
}
