//! What a run makes on the cluster, and how it goes away again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::keys::provisioner;
use api::{Claim, Class, Key, Kind, Meta, Object, ReclaimPolicy, Volume};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use runtime::Client;
use runtime::client::{Error, Preconditions};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::ledger::{Ledger, claim_name};

/// A label on all that a run makes.
pub(super) const LABEL: &str = "orlop.dev/bench";
/// Who is named as the driver of volumes that nobody is ever asked to serve.
pub(super) const NO_DRIVER: &str = "bench.orlop.dev";

/// What a run needs.
#[derive(Debug)]
pub(super) struct Options<'a> {
    /// The bench's name, for labels.
    pub(super) bench: &'static str,
    pub(super) supply: Supply<'a>,
    /// Of each claim.
    pub(super) size: &'a str,
    /// Requests under way at once.
    pub(super) concurrency: usize,
}

/// Where volumes come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Supply<'a> {
    /// A class that is there, and how it may bind.
    Class(&'a str, Binding),
    /// A class made for the run, of this provisioner.
    Provisioner(&'a str),
    /// Volumes that the run makes itself, in a driver's name.
    ByHand { driver: &'a str },
}

/// When claims of a class may become bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    /// Nobody makes a pod they could wait for.
    AtOnce,
    /// Or with their pod.
    Whenever,
}

/// An object of which nothing but its metadata matters.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Named {
    pub(super) metadata: Meta,
}

/// The run's place on the cluster.
#[derive(Debug)]
pub(super) struct Site {
    client: Client,
    namespace: String,
    bench: &'static str,
    class: Class,
    owns_class: bool,
    driver: String,
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
    pub(super) async fn prepare(options: &Options<'_>, client: Client) -> anyhow::Result<Self> {
        let found = match options.supply {
            Supply::Class(name, binding) => Some(existing(&client, name, binding).await?),
            Supply::Provisioner(_) | Supply::ByHand { .. } => None,
        };
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"generateName": "orlop-bench-", "labels": labels(options.bench)},
        });
        let made = client.create::<Named>(Kind::NAMESPACE, None, &body).await;
        let namespace = made.map_err(|error| anyhow!(error)).context("making a namespace")?;
        let namespace = namespace.metadata.key.name().to_owned();
        let owns_class = found.is_none();
        let class = match found {
            Some(class) => class,
            None => {
                let class = make_class(&client, &namespace, options).await;
                if class.is_err() {
                    drop(client.delete::<Namespace>(&Key::cluster(&namespace), &Preconditions::default()).await);
                }
                class?
            }
        };
        let driver = match options.supply {
            Supply::ByHand { driver } => driver.to_owned(),
            Supply::Class(..) | Supply::Provisioner(_) => class.provisioner.to_string(),
        };
        let (size, concurrency, bench) = (options.size.to_owned(), options.concurrency, options.bench);
        Ok(Self { client, namespace, bench, class, owns_class, driver, size, concurrency })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn provisioner(&self) -> &str {
        &self.class.provisioner
    }

    /// The driver that serves the volumes.
    pub(super) fn driver(&self) -> &str {
        &self.driver
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether claims wait for a scheduled pod.
    pub(super) fn binds_late(&self) -> bool {
        self.class.delayed()
    }

    pub(super) fn labels(&self) -> BTreeMap<&'static str, &'static str> {
        labels(self.bench)
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

    /// Does something with all of them, some at once.
    pub(super) async fn each<T, F>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl FnMut(T) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        stream::iter(items).map(work).buffer_unordered(self.concurrency).try_collect::<Vec<()>>().await.map(drop)
    }

    /// Whatever has the name goes: names within the run's namespace are the run's.
    pub(super) async fn delete<T: Object>(&self, key: &Key) -> anyhow::Result<()> {
        gone::<T, _>(key, self.client.delete::<T>(key, &Preconditions::default()).await)
    }

    /// The same for an object that is given no time to end.
    pub(super) async fn delete_now<T: Object>(&self, key: &Key) -> anyhow::Result<()> {
        gone::<T, _>(key, self.client.delete_now::<T>(key, &Preconditions::default()).await)
    }

    /// The name of a volume that was made by hand, which its driver knows it by, too.
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
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": self.labels()},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": self.class.meta.key.name(),
                "capacity": {"storage": self.size}, "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": self.driver, "volumeHandle": name},
            },
        })
    }
}

fn gone<T: Object, A>(key: &Key, answer: Result<A, Error>) -> anyhow::Result<()> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(anyhow!(error)).with_context(|| format!("deleting {} {key}", T::KIND)),
    }
}

fn labels(bench: &'static str) -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([(LABEL, bench)])
}

/// Refuses what is not a size.
pub(super) fn check_size(size: &str) -> anyhow::Result<()> {
    match api::Amount::parse(size) {
        Ok(_) => Ok(()),
        Err(_) => bail!("--size {size:?} is no size; write one such as 500Mi or 1Gi{}", crate::usage::meant(size)),
    }
}

async fn make_class(client: &Client, name: &str, options: &Options<'_>) -> anyhow::Result<Class> {
    let provisioner = match options.supply {
        Supply::Provisioner(name) => name,
        Supply::ByHand { .. } | Supply::Class(..) => provisioner::NONE,
    };
    let body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name, "labels": labels(options.bench)},
        "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    });
    client.create(Kind::STORAGE_CLASS, None, &body).await.map_err(|error| anyhow!(error)).context("making a class")
}

/// A class somebody made, if claims of it come and go by themselves.
async fn existing(client: &Client, name: &str, binding: Binding) -> anyhow::Result<Class> {
    let class = match client.get::<Class>(Kind::STORAGE_CLASS, &Key::cluster(name)).await {
        Ok(class) => class,
        Err(Error::NotFound { .. }) => bail!("--class {name}: there is no such StorageClass"),
        Err(error) => return Err(anyhow!(error)).context("reading the class"),
    };
    if binding == Binding::AtOnce && class.delayed() {
        bail!(
            "--class {name}: its claims wait for a pod that is scheduled, and none comes; take a class with Immediate binding"
        );
    }
    match class.reclaim_policy {
        None | Some(ReclaimPolicy::Delete) => Ok(class),
        Some(other) => {
            bail!("--class {name}: its volumes would stay (reclaimPolicy {}); take a class with Delete", other.name())
        }
    }
}
