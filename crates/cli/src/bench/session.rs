//! A run's connection to the cluster: what follows it, and how the run ends.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use runtime::args::KubeArgs;
use runtime::time::SystemClock;
use runtime::{Caches, Client, Entropy, Metrics, Stop, Stopper, stop};
use tokio::time::timeout;

use super::site::LABEL;
use super::writes::Census;

/// How long what is left may take to go before a bench gives up on it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Everything a run needs to look and to act.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) caches: Caches,
    pub(super) census: Census,
    stop: Stop,
}

/// Connects and works until the end, or until the second signal.
pub(super) async fn run<F>(kube: &KubeArgs, work: impl FnOnce(Session) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let explained = |error| crate::process::connect::explained(error, kube.kubeconfig.as_deref());
    let inner = kube.connect().await.map_err(explained)?;
    let (metrics, entropy) = (Metrics::new(&SystemClock), Entropy::from_system());
    let client = Client::new(inner.clone(), kube.client_options("orlop-bench"), &metrics, &entropy);
    let caches = Caches::new(&client, &entropy);
    let (stopper, stop) = Stopper::new();
    let session = Session { client, caches, census: Census::new(inner), stop };
    tokio::select! {
        biased;
        done = work(session) => done,
        // Whoever sends a second one does not want to wait for the cleaning.
        signals = stop::on_signals(stopper) => {
            signals?;
            bail!("interrupted while cleaning up; look for what is labelled {LABEL}")
        }
    }
}

impl Session {
    /// Follows the cluster and measures; then, however that ended, clears.
    pub(super) async fn measure<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
        clear: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<T> {
        let (ended, until) = Stopper::new();
        let following = tokio::spawn({
            let caches = self.caches.clone();
            async move { caches.run(&until).await }
        });
        let synced = async {
            timeout(PATIENCE, self.caches.synced()).await.context("the cluster cannot be watched")?;
            work.await
        };
        let measured = tokio::select! {
            biased;
            measured = synced => measured,
            () = self.stop.stopped() => Err(anyhow!("interrupted; everything this run made was taken away")),
        };
        let cleared = clear.await;
        ended.stop();
        following.await.context("following the cluster")?;
        match (measured, cleared) {
            (Ok(measured), Ok(())) => Ok(measured),
            // Both matter: why it failed, and what is left of it.
            (Err(error), Err(left)) => Err(anyhow!("{error:#}; and {left:#}")),
            (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        }
    }
}
