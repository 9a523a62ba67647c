//! `orlop mount` and `orlop umount`: a claim for a plain machine, without a container in sight.
//!
//! The machine's use of the claim is a pod that never runs: everybody who knows pods protects the claim from deletion,
//! attaches the volume and lets nobody else have it. The node agent makes the pod's volume ready under its own directory;
//! what is done here is one bind mount from there to the path, and on the way back one unmount.
//!
//! # Crash anywhere
//! The pod's name follows from node and path. A second `orlop mount` finds what the first one made and goes on; a second
//! `orlop umount`, too. The pod has a finalizer of ours until nothing is mounted at the path, so that deleting the pod does
//! not take the claim's protection away while the machine still writes.

mod agent;
mod consumer;
mod fstab;
mod path;
mod unit;

pub(crate) use unit::word;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::keys::annotation;
use api::keys::finalizer::HOST_MOUNT;
use api::{Claim, Key, Kind, Object as _, Source, Volume, VolumeMode, Word};
use runtime::client::{Error, Preconditions, Selection};
use runtime::{Caches, Client, Entropy, Patch, Stopper};
use serde_json::json;

use crate::cluster::{Cluster, ClusterArgs, output};
use crate::process;
use agent::Presence;
use consumer::{Consumer, Use};
pub(crate) use fstab::arguments as helper_arguments;
use path::Shown;

/// How to reach the cluster, and who we are in it.
#[derive(Debug, Clone, clap::Args)]
struct Where {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Name of this machine's node, as its agent has it. Without it: the host's name.
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// How long to wait for the node agent.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = runtime::args::parse_duration)]
    timeout: Duration,
}

impl Where {
    fn node(&self) -> String {
        self.node_name.clone().unwrap_or_else(|| process::identity().to_lowercase())
    }
}

/// Mount a claim at a path of this machine.
///
/// The machine needs a node agent: `orlop up` has one, or run `orlop node`.
#[derive(Debug, clap::Args)]
#[command(after_help = MOUNT_EXAMPLES)]
pub(crate) struct MountArgs {
    /// The claim: NAME, or NAMESPACE/NAME.
    claim: String,
    /// Where to show it: an existing directory; for a raw block claim a file, which is made.
    path: PathBuf,
    /// Nothing can be written through this mount.
    #[arg(short, long)]
    read_only: bool,
    /// Group that the volume's files belong to.
    #[arg(long, value_name = "GID")]
    fs_group: Option<u32>,
    /// Only print a systemd unit that mounts at boot and unmounts at shutdown.
    #[arg(long)]
    print_systemd: bool,
    #[command(flatten)]
    to: Where,
}

const MOUNT_EXAMPLES: &str = "\
Examples:
  orlop mount data /mnt/data
  orlop mount shop/data /mnt/data --read-only
  orlop mount data /mnt/data --print-systemd > /etc/systemd/system/mnt-data.service

In /etc/fstab, after `ln -s $(command -v orlop) /sbin/mount.orlop` and the same for umount.orlop:
  shop/data  /mnt/data  orlop  kubeconfig=/etc/orlop/kubeconfig,_netdev,nofail  0 0";

/// Unmount what `orlop mount` mounted, and give the claim back.
#[derive(Debug, clap::Args)]
pub(crate) struct UmountArgs {
    /// The path it was mounted at.
    path: PathBuf,
    #[command(flatten)]
    to: Where,
}

pub(crate) fn mount(args: &MountArgs) -> ExitCode {
    process::ended("mount", process::block_on(mount_claim(args)))
}

pub(crate) fn umount(args: &UmountArgs) -> ExitCode {
    process::ended("umount", process::block_on(umount_path(args)))
}

impl Cluster {
    /// Waits until the pod looks as `done` wants it, which is told `None` once the pod is gone.
    async fn until<T>(
        &self,
        pod: &Key,
        patience: Duration,
        done: impl Fn(Option<&Consumer>) -> Option<T>,
    ) -> Result<T, Option<Arc<Consumer>>> {
        let fields = Some(format!("metadata.name={}", pod.name()));
        let selection = Selection { namespace: pod.namespace().map(str::to_owned), fields, ..Selection::default() };
        let caches = Caches::new(&self.client, &Entropy::from_system());
        let cache = caches.selected::<Consumer>(selection);
        let news = Arc::new(tokio::sync::Notify::new());
        let tell = news.clone();
        let _telling = cache.subscribe(move |_| tell.notify_one());
        let (stopper, stop) = Stopper::new();
        let look = async {
            cache.synced().await;
            loop {
                if let Some(found) = done(cache.get(pod).as_deref()) {
                    return found;
                }
                news.notified().await;
            }
        };
        let waited = tokio::select! {
            found = look => Some(found),
            () = caches.run(&stop) => None,
            () = tokio::time::sleep(patience) => None,
        };
        stopper.stop();
        waited.ok_or_else(|| cache.get(pod))
    }
}

async fn mount_claim(args: &MountArgs) -> anyhow::Result<()> {
    check_claim(&args.claim, &args.path)?;
    let path = path::settle(&args.path)?;
    if args.print_systemd {
        return output::write(&unit::text(args, &path)?);
    }
    require_root("mount")?;
    let cluster = args.to.cluster.connect("orlop-mount").await?;
    let claim = claim_key(&args.claim, &cluster.namespace)?;
    let found: Claim = match cluster.client.get(Kind::CLAIM, &claim).await {
        Ok(found) => found,
        Err(Error::NotFound { .. }) => {
            let place = claim.namespace().unwrap_or_default();
            let meant = match args.claim.split_once('/') {
                // As `orlop explain` takes it.
                Some(("pvc" | "claim" | "persistentvolumeclaim", name)) => {
                    format!(
                        "; {place:?} is taken for a namespace: did you mean `orlop mount {name} {}`?",
                        path.display()
                    )
                }
                _ => format!("; `orlop tree -n {place}` shows those there are"),
            };
            bail!("there is no PersistentVolumeClaim {claim}{meant}")
        }
        Err(error) => return Err(anyhow!(error).context(format!("reading PersistentVolumeClaim {claim}"))),
    };
    path::check(&path, found.mode)?;
    let node = args.to.node();
    agent::require(&cluster.client, &node).await?;
    let wish = Use { claim: &found, node: &node, path: &path, read_only: args.read_only, fs_group: args.fs_group };
    if let Err(Error::NotFound { .. }) = cluster.client.get::<Consumer>(Kind::POD, &wish.pod()).await {
        path::require_free(&path)?;
    }
    let pod = ensure(&cluster, &wish, args.to.timeout).await?;
    let ready = cluster.until(pod.key(), args.to.timeout, |seen| match seen {
        None => Some(Err(anyhow!("pod {} was deleted meanwhile", pod.key()))),
        Some(seen) => seen.ready().then(|| Ok(seen.clone())),
    });
    let pod = match ready.await {
        Ok(ready) => ready?,
        Err(last) => {
            let why = last.map_or_else(|| "the pod was not seen".to_owned(), |last| last.waits_for(&node));
            let named = args.to.node_name.as_ref().map_or_else(String::new, |name| format!(" --node-name {name}"));
            bail!(
                "not ready after {:?}: {why}\n  look closer: orlop explain pvc/{} -n {}\n  \
                 the machine's wish stays: repeat the command to wait on, or give up with: orlop umount {}{named}",
                args.to.timeout,
                claim.name(),
                claim.namespace().unwrap_or_default(),
                path.display()
            );
        }
    };
    let source = source(&cluster, &claim, &pod).await?;
    note_shown(&cluster.client, &pod, &Shown::at(&source)?).await?;
    path::show(&source, &path, args.read_only)?;
    output::write(&format!("{claim} is mounted at {}\n", path.display()))
}

/// The pod that stands for this machine's use of the claim, made if it is not there.
async fn ensure(cluster: &Cluster, wish: &Use<'_>, patience: Duration) -> anyhow::Result<Consumer> {
    let key = wish.pod();
    loop {
        let delayed = consumer::waits_for_consumer(&cluster.client, wish.claim).await?;
        let namespace = wish.claim.key().namespace();
        match cluster.client.create::<Consumer>(Kind::POD, namespace, &wish.object(delayed)).await {
            Ok(pod) => return Ok(pod),
            Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(anyhow!(error).context(format!("making pod {key}"))),
        }
        let pod: Consumer = match cluster.client.get(Kind::POD, &key).await {
            Ok(pod) => pod,
            Err(Error::NotFound { .. }) => continue,
            Err(error) => return Err(anyhow!(error).context(format!("reading pod {key}"))),
        };
        if !pod.meta().is_deleting() {
            wish.agrees_with(&pod)?;
            return Ok(pod);
        }
        // The use before this one is on its way out; its finalizer goes with the mount.
        let gone = |seen: Option<&Consumer>| seen.is_none_or(|seen| seen.meta().uid != pod.meta().uid).then_some(());
        if cluster.until(&key, patience, gone).await.is_err() {
            bail!("pod {key} of an earlier mount is still being deleted; `orlop umount {}` first", wish.path.display());
        }
    }
}

/// Where the agent shows the pod's volume.
async fn source(cluster: &Cluster, claim: &Key, pod: &Consumer) -> anyhow::Result<PathBuf> {
    let claim: Claim = cluster.client.get(Kind::CLAIM, claim).await.context("reading the claim again")?;
    let volume: Volume =
        cluster.client.get(Kind::VOLUME, &Key::cluster(&claim.volume_name)).await.context("reading the volume")?;
    if let (Source::HostPath { path }, VolumeMode::Filesystem) = (&volume.source, volume.mode) {
        // The mount table has no links in it.
        return std::fs::canonicalize(&**path).with_context(|| format!("the volume's path {path}"));
    }
    path::of_pod(pod.meta().uid.as_str(), volume.mode)?.with_context(|| {
        format!("the agent says that pod {} is ready, and nothing of it is mounted in this mount namespace", pod.key())
    })
}

/// Writes down what is about to be shown: `orlop umount` takes away that and nothing else, also when the agent's own mount is
/// dead or gone by then.
async fn note_shown(client: &Client, pod: &Consumer, shown: &Shown) -> anyhow::Result<()> {
    let annotations = json!({annotation::HOST_MOUNT_SHOWS.text(): shown.text()?});
    let patch = json!({"metadata": {"uid": pod.meta().uid.as_str(), "annotations": annotations}});
    let noted = client.patch::<Consumer>(Kind::POD, pod.key(), &Patch::Merge(patch)).await;
    noted.map(drop).with_context(|| format!("noting what is mounted on pod {}", pod.key()))
}

async fn umount_path(args: &UmountArgs) -> anyhow::Result<()> {
    let path = path::settle(&args.path)?;
    if std::fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        bail!("{} does not exist: name the PATH that was given to `orlop mount`, not the claim", path.display());
    }
    require_root("umount")?;
    let cluster = args.to.cluster.connect("orlop-mount").await?;
    let node = args.to.node();
    let pods = consumer::of_path(&cluster.client, &node, &path).await?;
    if pods.is_empty() {
        bail!(
            "nothing was mounted at {} by `orlop mount` on node {node}; `findmnt {0}` says what is there",
            path.display()
        );
    }
    let ours: Vec<Shown> = pods.iter().filter_map(Consumer::shows).collect();
    path::hide(&path, &ours)?;
    let presence = agent::presence(&cluster.client, &node).await;
    for pod in pods {
        let key = pod.key().clone();
        let_go(&cluster.client, &pod).await.with_context(|| format!("letting pod {key} go; run this again"))?;
        end(&cluster.client, &pod, presence).await.with_context(|| format!("deleting pod {key}; run this again"))?;
        let gone = |seen: Option<&Consumer>| seen.is_none_or(|seen| seen.meta().uid != pod.meta().uid).then_some(());
        if let Err(last) = cluster.until(&key, args.to.timeout, gone).await {
            let why = last.map_or_else(String::new, |last| format!(": {}", last.waits_for(&node)));
            bail!("{} is unmounted, and the node agent has not let go of the volume yet{why}", path.display());
        }
    }
    output::write(&format!("{} is unmounted\n", path.display()))
}

/// Deletes the pod. Its agent ends it once nothing of it is mounted; a pod that no agent ever looked at, on a node that is
/// not there, has nobody to wait for.
async fn end(client: &Client, pod: &Consumer, presence: Presence) -> Result<(), Error> {
    let same = Preconditions::same(pod.meta());
    let deleted = match presence {
        Presence::Missing if !pod.was_seen() => client.delete_now::<Consumer>(pod.key(), &same).await,
        Presence::Missing | Presence::Known | Presence::Unsaid => client.delete::<Consumer>(pod.key(), &same).await,
    };
    match deleted {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes our finalizer off, whatever else changes about the pod meanwhile: its agent writes, too.
async fn let_go(client: &Client, pod: &Consumer) -> Result<(), Error> {
    let mut pod = pod.clone();
    loop {
        let ours = |name: &&Word| &***name == HOST_MOUNT.0;
        if !pod.meta().finalizers.iter().any(|name| ours(&name)) {
            return Ok(());
        }
        let kept: Vec<&str> = pod.meta().finalizers.iter().filter(|name| !ours(name)).map(|name| &**name).collect();
        let (uid, revision) = (pod.meta().uid.as_str(), pod.meta().revision.to_string());
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": revision, "finalizers": kept}});
        match client.patch::<Consumer>(Kind::POD, pod.key(), &Patch::Merge(patch)).await {
            Ok(_) | Err(Error::NotFound { .. }) => return Ok(()),
            // A pod of that name with another uid is not the one that was let go.
            Err(error) if error.is_conflict() => match client.get::<Consumer>(Kind::POD, pod.key()).await {
                Ok(now) if now.meta().uid == pod.meta().uid => pod = now,
                Ok(_) | Err(Error::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}

/// Only root mounts; whoever is not finds out before anything is asked or made.
fn require_root(command: &str) -> anyhow::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => bail!("this needs root: sudo --preserve-env=KUBECONFIG orlop {command} ..."),
    }
}

/// A claim that cannot be one, told before any cluster is asked.
fn check_claim(claim: &str, path: &Path) -> anyhow::Result<()> {
    if claim.starts_with(['/', '.']) {
        bail!(
            "{claim:?} is a path, and the claim comes first: orlop mount CLAIM PATH; did you mean `orlop mount {} {claim}`?",
            path.display()
        );
    }
    let parts: Vec<&str> = claim.split('/').collect();
    match parts[..] {
        [""] => bail!("the claim is empty: give its NAME, or NAMESPACE/NAME"),
        [name] => crate::usage::check_name("CLAIM", name),
        [namespace, name] => {
            crate::usage::check_name("NAMESPACE", namespace).and_then(|()| crate::usage::check_name("CLAIM", name))
        }
        _ => bail!("{claim:?} is not a claim: say NAME or NAMESPACE/NAME"),
    }
}

/// NAME or NAMESPACE/NAME.
fn claim_key(text: &str, namespace: &str) -> anyhow::Result<Key> {
    let key = match text.split_once('/') {
        Some(_) => text.to_owned(),
        None => format!("{namespace}/{text}"),
    };
    key.parse().map_err(|_| anyhow!("{text:?} is not a claim: say NAME or NAMESPACE/NAME"))
}

/// The path as the pod's annotation has it.
fn spelled(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8, which annotations need", path.display()))
}
