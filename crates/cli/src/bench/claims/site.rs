//! What a run makes on the cluster, and how it goes away again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::keys::provisioner;
use api::{BindingMode, Claim, Class, Key, Kind, Meta, Object, ReclaimPolicy, Volume};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use runtime::Client;
use runtime::client::{Error, Preconditions};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::args::Args;
use super::ledger::{Ledger, claim_name};

/// A label on all that a run makes.
pub(super) const LABEL: &str = "orlop.dev/bench";
/// Who is named as the driver of volumes that are made by hand. Nobody is ever asked to serve them.
const NO_DRIVER: &str = "bench.orlop.dev";

/// An object of which nothing but its metadata matters.
#[derive(Debug, Clone, Deserialize)]
struct Named {
    metadata: Meta,
}

/// The run's place on the cluster.
#[derive(Debug)]
pub(super) struct Site {
    client: Client,
    namespace: String,
    class: Class,
    owns_class: bool,
    size: String,
    concurrency: usize,
}

/// A namespace, as far as it is deleted.
#[derive(Debug, Clone, Deserialize)]
struct Namespace {
    metadata: Meta,
}

impl Object for Namespace {
    const KIND: Kind = Kind::NAMESPACE;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Site {
    /// Finds or makes the class, and makes the namespace.
    pub(super) async fn prepare(args: &Args, client: Client) -> anyhow::Result<Self> {
        let found = match &args.class {
            Some(name) => Some(existing(&client, name).await?),
            None => None,
        };
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"generateName": "orlop-bench-", "labels": labels()},
        });
        let made = client.create::<Named>(Kind::NAMESPACE, None, &body).await;
        let namespace = made.map_err(|error| anyhow!(error)).context("making a namespace")?;
        let namespace = namespace.metadata.key.name().to_owned();
        let owns_class = found.is_none();
        let class = match found {
            Some(class) => class,
            None => {
                let provisioner = args.provisioner.as_deref().unwrap_or(provisioner::NONE);
                let class = make_class(&client, &namespace, provisioner).await;
                if class.is_err() {
                    drop(client.delete::<Namespace>(&Key::cluster(&namespace), &Preconditions::default()).await);
                }
                class?
            }
        };
        let (size, concurrency) = (args.size.clone(), args.concurrency);
        Ok(Self { client, namespace, class, owns_class, size, concurrency })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn provisioner(&self) -> &str {
        &self.class.provisioner
    }

    /// Makes volumes by hand. Gives the time it took, if there were any to make.
    pub(super) async fn make_volumes(&self, count: usize) -> anyhow::Result<Option<Duration>> {
        let started = Instant::now();
        self.each(0..count, |number| async move {
            let body = self.volume(number);
            let made = self.client.create::<Named>(Kind::VOLUME, None, &body).await;
            made.map(drop).map_err(|error| anyhow!(error)).context("making a volume")
        })
        .await?;
        Ok((count > 0).then(|| started.elapsed()))
    }

    /// Creates the claims. Gives the time of the first request.
    pub(super) async fn create_claims(&self, ledger: &Ledger, count: usize) -> anyhow::Result<Instant> {
        let started = Instant::now();
        self.each(0..count, |number| async move {
            let body = self.claim(number);
            ledger.creating(number);
            let made = self.client.create::<Named>(Kind::CLAIM, Some(&self.namespace), &body).await;
            made.map(drop).map_err(|error| anyhow!(error)).context("creating a claim")
        })
        .await?;
        Ok(started)
    }

    /// Deletes the claims. Gives the time of the first request.
    pub(super) async fn delete_claims(&self, ledger: &Ledger, count: usize) -> anyhow::Result<Instant> {
        let started = Instant::now();
        self.each(0..count, |number| async move {
            ledger.deleting(number);
            self.delete::<Claim>(&Key::namespaced(&self.namespace, &claim_name(number))).await
        })
        .await?;
        Ok(started)
    }

    /// Deletes volumes that were made by hand. Gives the time of the first request.
    pub(super) async fn delete_volumes(&self, ledger: &Ledger, count: usize) -> anyhow::Result<Instant> {
        let started = Instant::now();
        self.each(0..count, |number| async move {
            let name = self.volume_name(number);
            ledger.deleting_volume(&name);
            self.delete::<Volume>(&Key::cluster(&name)).await
        })
        .await?;
        Ok(started)
    }

    /// Takes away whatever is left of the run. An error says what stays.
    pub(super) async fn clear(&self, ledger: &Ledger, patience: Duration) -> anyhow::Result<()> {
        let claims = ledger.claims_left();
        self.each(claims, |claim| async move { self.delete::<Claim>(claim.key()).await }).await?;
        let by_hand = |name: &str| name.starts_with(&self.namespace);
        let volumes = ledger.volumes_left().into_iter().filter(|volume| by_hand(volume.key().name()));
        self.each(volumes, |volume| async move { self.delete::<Volume>(volume.key()).await }).await?;
        let emptied = timeout(patience, ledger.emptied()).await;
        if self.owns_class {
            self.delete::<Class>(&self.class.meta.key).await?;
        }
        self.delete::<Namespace>(&Key::cluster(&self.namespace)).await?;
        if emptied.is_err() {
            let (claims, volumes) = (ledger.claims_left(), ledger.volumes_left());
            let example = volumes.first().map(|volume| format!(", such as volume {}", volume.key().name()));
            bail!(
                "{} claims in namespace {} and {} volumes do not go away{}; whoever removes their finalizers has to run",
                claims.len(),
                self.namespace,
                volumes.len(),
                example.unwrap_or_default(),
            );
        }
        Ok(())
    }

    async fn each<T, F>(&self, items: impl IntoIterator<Item = T>, work: impl FnMut(T) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        stream::iter(items).map(work).buffer_unordered(self.concurrency).try_collect::<Vec<()>>().await.map(drop)
    }

    /// Whatever has the name goes: names within the run's namespace are the run's.
    async fn delete<T: Object>(&self, key: &Key) -> anyhow::Result<()> {
        match self.client.delete::<T>(key, &Preconditions::default()).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(anyhow!(error)).with_context(|| format!("deleting {} {key}", T::KIND)),
        }
    }

    fn volume_name(&self, number: usize) -> String {
        format!("{}-{number:06}", self.namespace)
    }

    fn claim(&self, number: usize) -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim_name(number)},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": self.class.meta.key.name(),
                "resources": {"requests": {"storage": self.size}},
            },
        })
    }

    fn volume(&self, number: usize) -> Value {
        let name = self.volume_name(number);
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels()},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": self.class.meta.key.name(),
                "capacity": {"storage": self.size}, "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": NO_DRIVER, "volumeHandle": name},
            },
        })
    }
}

fn labels() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([(LABEL, "claims")])
}

async fn make_class(client: &Client, name: &str, provisioner: &str) -> anyhow::Result<Class> {
    let body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name, "labels": labels()},
        "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    });
    client.create(Kind::STORAGE_CLASS, None, &body).await.map_err(|error| anyhow!(error)).context("making a class")
}

/// A class somebody made, if claims of it come and go by themselves.
async fn existing(client: &Client, name: &str) -> anyhow::Result<Class> {
    let class = match client.get::<Class>(Kind::STORAGE_CLASS, &Key::cluster(name)).await {
        Ok(class) => class,
        Err(Error::NotFound { .. }) => bail!("--class {name}: there is no such StorageClass"),
        Err(error) => return Err(anyhow!(error)).context("reading the class"),
    };
    if class.volume_binding_mode == Some(BindingMode::WaitForFirstConsumer) {
        bail!(
            "--class {name}: its claims wait for a pod, and this bench makes none; take a class with Immediate binding"
        );
    }
    match class.reclaim_policy {
        None | Some(ReclaimPolicy::Delete) => Ok(class),
        Some(other) => {
            bail!("--class {name}: its volumes would stay (reclaimPolicy {}); take a class with Delete", other.name())
        }
    }
}
