//! The server as a whole: a store, what it takes from outside, and the service over them.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::{CertificateSigner, SignerError, StaticTokens, TokenSigner};
use crate::bootstrap::{BootstrapError, bootstrap};
use crate::catalog::Catalog;
use crate::controllers;
use crate::discovery::SwaggerCache;
use crate::http::{Beside, Flow, Gate, JoinAttempts, Service, Shared};
use crate::relations::Relations;
use crate::rights::Rights;
use crate::sources::{Clock, Entropy};
use crate::store::{CommitError, Options, Store};
use crate::verbs::{Core, OpenWatches, VolumesInCreation};

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
            relations: Relations::default(),
            volumes: VolumesInCreation::default(),
            catalog: Catalog::default(),
            stopping,
            watches: OpenWatches::default(),
        });
        bootstrap(&core).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                core,
                gate: Gate::new(signer, tokens),
                flow: Flow::default(),
                address,
                swagger: SwaggerCache::default(),
                metrics: Arc::default(),
                machines: std::sync::OnceLock::new(),
                attempts: JoinAttempts::default(),
                beside: std::sync::OnceLock::new(),
            }),
        })
    }

    /// The service. Requests to it need credentials; [`Service::as_user`] makes one for callers in process.
    pub fn service(&self) -> Service {
        Service::new(Arc::clone(&self.shared))
    }

    /// Serves what the rest of the process measures, too: `/metrics` then answers for all of it. The names must not be the
    /// server's own, and only the first caller is heard.
    pub fn measure_beside(&self, text: impl Fn() -> String + Send + Sync + 'static) {
        // A process is one whole: who comes second would answer for the same numbers.
        let _ = self.shared.beside.set(Beside(Box::new(text)));
    }

    /// Lets other machines join with tokens, and signs their certificates. Only the first caller is heard.
    pub fn admit_machines(&self, authority: CertificateSigner) {
        // The authority of a server does not change while it runs.
        let _ = self.shared.machines.set(authority);
    }

    pub fn store(&self) -> &Store {
        &self.shared.core.store
    }

    /// How many watches clients hold open. A dropped stream is counted no more.
    pub fn open_watches(&self) -> usize {
        self.shared.core.watches.count()
    }

    /// Runs what happens without a request, until the server stops: upkeep of the store, removal of the content of
    /// deleted namespaces and of objects whose owners are gone, establishing of definitions, counting for quotas.
    ///
    /// It ends early when the store takes no more writes, with the reason: only who opens the store anew can go on.
    pub async fn run(&self) -> Result<(), CommitError> {
        let core = &self.shared.core;
        let mut stopping = core.stopping.subscribe();
        let work = async {
            tokio::join!(
                controllers::namespaces::run(core),
                controllers::garbage::run(core),
                controllers::definitions::run(core),
                controllers::quotas::run(core),
            );
        };
        tokio::select! {
            biased;
            error = upkeep(core) => Err(error),
            () = work => Ok(()),
            _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
        }
    }
}

/// Ends with the reason why the store takes no more writes.
async fn upkeep(core: &Core) -> CommitError {
    loop {
        if let Err(error) = core.store.tick(core.clock.now()).await {
            // Every write will say it again, and so does health.
            return error;
        }
        tokio::time::sleep(TICK).await;
    }
}
