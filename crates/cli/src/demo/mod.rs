//! `orlop demo`: everything at once, in a directory that goes away again.
//!
//! It starts the whole stack, makes a class, a claim and a pod, shows each stage when it happens, writes and reads through
//! the pod's mount, deletes everything and shows that nothing is left: no volume, no file, no mount, no loop device, no
//! attachment. The exit code says whether all of that was true. Mounting needs root; without, it ends with the volume.

use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use api::{Attachment, Claim, ClaimPhase, Key, Kind, Pod, Source, Volume};
use linux::loopdev;
use linux::mountinfo::MountTable;
use runtime::client::Preconditions;
use runtime::{Change, stop};
use serde_json::json;

use crate::process::{self, LogArgs};
use crate::stack::{self, Place, Stack};

/// No stage takes this long on a machine that works.
const PATIENCE: Duration = Duration::from_secs(30);
const CLASS: &str = "local";
const CLAIM: &str = "data";
const POD: &str = "web";
const WRITTEN: &str = "a claim goes in, a mounted volume comes out\n";

/// Shows a claim become a mounted volume: starts everything in a temporary directory, and cleans up.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Size of the claim.
    #[arg(long, value_name = "SIZE", default_value = "1Gi")]
    size: String,
    /// Keep the directory, so that it can be looked at.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop demo
  orlop demo --size 10Gi --keep --log-level debug";

pub(crate) fn run(mut args: Args) -> ExitCode {
    // The demonstration tells what happens; the log is for when it does not.
    if args.log.log_level == tracing::level_filters::LevelFilter::INFO {
        args.log.log_level = tracing::level_filters::LevelFilter::WARN;
    }
    process::ended("demo", args.log.start().and_then(|()| process::block_on(demonstrate(args))))
}

async fn demonstrate(args: Args) -> anyhow::Result<()> {
    let directory = tempfile::Builder::new().prefix("orlop-demo-").tempdir().context("making a directory")?;
    let place = Place { data: directory.path().to_owned(), listen: SocketAddr::from(([127, 0, 0, 1], 0)) };
    let (stopper, stopped) = runtime::Stopper::new();
    let telling = Teller::new();
    let shown = tokio::select! {
        biased;
        shown = show(&args, &place, &telling) => shown,
        // Ctrl-C: whatever was started ends with its directory.
        signals = stop::on_signals(stopper) => signals.context("listening for signals"),
        () = stopped.stopped() => bail!("interrupted"),
    };
    if args.keep {
        println!("\nEverything is kept in {}", directory.keep().display());
    }
    shown
}

/// Tells what happens, with the time since the beginning.
#[derive(Debug, Clone)]
struct Teller {
    start: Instant,
}

impl Teller {
    fn new() -> Self {
        Self { start: Instant::now() }
    }

    fn tell(&self, what: impl Display) {
        println!("{:>8.1} ms  {what}", self.start.elapsed().as_secs_f64() * 1000.0);
    }
}

async fn show(args: &Args, place: &Place, teller: &Teller) -> anyhow::Result<()> {
    let (stack, mut parts) = Stack::start(place).await?;
    teller.tell(format!("API server on https://{}, driver {:?} and controllers are up", stack.address, stack.driver));
    let told = tokio::select! {
        biased;
        told = tell_a_life(args, place, &stack, teller) => told,
        error = parts.failed() => Err(error),
    };
    let ended = parts.end().await;
    if stack::may_mount() {
        // What a failure left is taken away as well: the directory could not go otherwise.
        clear(place);
    }
    told?;
    ended?;
    teller.tell("everything is stopped; its directory goes with it");
    println!(
        "\nThe same, to stay:  orlop up --data ./orlop\nthen:               KUBECONFIG=./orlop/kubeconfig kubectl get \
         storageclass,pvc,pv"
    );
    Ok(())
}

/// Unmounts what is mounted in the demonstration's directory, the deepest first.
fn clear(place: &Place) {
    let Ok(data) = place.data.canonicalize() else { return };
    let Ok(table) = MountTable::read() else { return };
    let mut points: Vec<_> = table.below(&data).map(|mount| mount.mount_point.clone()).collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        if let Err(error) = linux::mounts::unmount_all(&point) {
            tracing::warn!(%error, "what the demonstration mounted is left");
        }
    }
}

/// One volume from its claim to its end.
async fn tell_a_life(args: &Args, place: &Place, stack: &Stack, teller: &Teller) -> anyhow::Result<()> {
    let stages = Stages::follow(stack, teller);
    let client = &stack.context.client;
    let class = json!({"apiVersion": Kind::STORAGE_CLASS.api_version(), "kind": Kind::STORAGE_CLASS.kind,
        "metadata": {"name": CLASS}, "provisioner": stack.driver});
    client.create::<api::Class>(Kind::STORAGE_CLASS, None, &class).await.context("making the class")?;
    let claim = json!({"apiVersion": Kind::CLAIM.api_version(), "kind": Kind::CLAIM.kind,
        "metadata": {"namespace": "default", "name": CLAIM},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "resources": {"requests": {"storage": args.size}}}});
    client.create::<Claim>(Kind::CLAIM, Some("default"), &claim).await.context("making the claim")?;
    let key = Key::namespaced("default", CLAIM);
    let volume = stages.until("the claim is bound", |seen| seen.bound.clone()).await?;

    match substance(place, &volume) {
        Some(substance) => teller.tell(format!("it is made of {substance}")),
        None => bail!("the volume {} has nothing in {}", volume.name(), place.pool().display()),
    }
    match stack::may_mount() {
        true => use_it(place, stack, &stages, teller).await?,
        false => {
            teller.tell("mounting needs root, so no pod is made; with root the volume is mounted, written and read")
        }
    }
    client.delete::<Claim>(&key, &Preconditions::default()).await.context("deleting the claim")?;
    stages.until("the volume is gone", |seen| seen.gone.then_some(())).await?;
    match substance(place, &volume) {
        None => teller.tell("nothing of it is left"),
        Some(substance) => bail!("the claim and its volume are gone, and {substance} is left"),
    }
    Ok(())
}

/// A pod gets the volume: data goes through its mount, and the mount goes with the pod.
async fn use_it(place: &Place, stack: &Stack, stages: &Stages, teller: &Teller) -> anyhow::Result<()> {
    let client = &stack.context.client;
    let pod = json!({"apiVersion": Kind::POD.api_version(), "kind": Kind::POD.kind,
        "metadata": {"namespace": "default", "name": POD},
        "spec": {"containers": [{"name": "main", "image": "none", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": CLAIM}}]}});
    let pod = client.create::<Pod>(Kind::POD, Some("default"), &pod).await.context("making the pod")?;
    stages.until("the pod has its volume", |seen| seen.ready.then_some(())).await?;
    let uid = pod.meta.uid.as_str();
    let under = place.root().canonicalize().context("the agent's directory")?.join("pods").join(uid);
    let table = MountTable::read().context("reading the mount table")?;
    let mount = table.below(&under).next().with_context(|| format!("nothing is mounted under {}", under.display()))?;
    let file = mount.mount_point.join("greeting");
    fs::write(&file, WRITTEN).with_context(|| format!("writing {}", file.display()))?;
    let read = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    if read != WRITTEN {
        bail!("{} holds {read:?} and not what was written", file.display());
    }
    teller.tell(format!(
        "{} bytes written and read through {} ({})",
        read.len(),
        mount.mount_point.display(),
        mount.fs_type
    ));
    client.delete::<Pod>(&pod.meta.key, &Preconditions::same(&pod.meta)).await.context("deleting the pod")?;
    stages
        .until("the pod is gone and its volume detached", |seen| (seen.left && seen.attached == 0).then_some(()))
        .await?;
    unmounted(place)?;
    teller.tell("no mount, no loop device and no attachment is left");
    Ok(())
}

/// What the kernel still has of this demonstration's volumes.
fn unmounted(place: &Place) -> anyhow::Result<()> {
    let root = place.root().canonicalize().context("the agent's directory")?;
    let table = MountTable::read().context("reading the mount table")?;
    // The agent's own directory is a mount, so that what it mounts below is seen elsewhere.
    if let Some(left) = table.below(&root).find(|mount| mount.mount_point != root) {
        bail!("{} is still mounted", left.mount_point.display());
    }
    let pool = fs::metadata(place.pool()).context("the pool")?;
    let of_pool = |status: &loopdev::LoopStatus| status.backing.dev == std::os::unix::fs::MetadataExt::dev(&pool);
    for status in loopdev::bound().context("asking for loop devices")?.iter().filter(|status| of_pool(status)) {
        let name = fs::read_to_string(format!("/sys/block/loop{}/loop/backing_file", status.device.index));
        if name.is_ok_and(|name| Path::new(&name).starts_with(place.pool())) {
            bail!("loop device {} still holds an image of the pool", status.device.path.display());
        }
    }
    Ok(())
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Seen {
    bound: Option<Arc<Volume>>,
    gone: bool,
    /// The agent says that the pod has its volumes.
    ready: bool,
    /// The pod was there and is not any more.
    left: bool,
    attached: usize,
}

/// The stages of one claim, told when the caches hear of them.
struct Stages {
    seen: Arc<Mutex<Seen>>,
    changed: Arc<tokio::sync::Notify>,
}

impl Stages {
    fn follow(stack: &Stack, teller: &Teller) -> Self {
        let (seen, changed) = (Arc::<Mutex<Seen>>::default(), Arc::new(tokio::sync::Notify::new()));
        let (claims, volumes) = (stack.context.cache::<Claim>(), stack.context.cache::<Volume>());
        let (held, wake, tell) = (seen.clone(), changed.clone(), teller.clone());
        volumes.subscribe(move |change| match change {
            Change::Added(volume) => tell.tell(format!("PersistentVolume {} is stored", volume.name())),
            Change::Changed { old, new } if old.phase != new.phase => {
                tell.tell(format!("PersistentVolume {} is {}", new.name(), new.phase.name()));
            }
            Change::Changed { .. } => {}
            Change::Removed(volume) => {
                tell.tell(format!("PersistentVolume {} is gone", volume.name()));
                held.lock().unwrap_or_else(PoisonError::into_inner).gone = true;
                wake.notify_one();
            }
        });
        let (held, wake, tell) = (seen.clone(), changed.clone(), teller.clone());
        let of = stack.context.cache::<Volume>();
        claims.subscribe(move |change| match change {
            Change::Added(claim) => tell.tell(format!("claim {} is made", claim.key())),
            Change::Changed { old, new } if old.phase != new.phase => {
                tell.tell(format!("claim {} is {}", new.key(), new.phase.name()));
                if new.phase == ClaimPhase::Bound {
                    held.lock().unwrap_or_else(PoisonError::into_inner).bound = of.get(&Key::cluster(&new.volume_name));
                    wake.notify_one();
                }
            }
            Change::Changed { old, new } if !old.meta.is_deleting() && new.meta.is_deleting() => {
                tell.tell(format!("claim {} is being deleted", new.key()));
            }
            Change::Changed { .. } => {}
            Change::Removed(claim) => tell.tell(format!("claim {} is gone", claim.key())),
        });
        Self::follow_the_pod(stack, teller, (&seen, &changed));
        Self { seen, changed }
    }

    fn follow_the_pod(stack: &Stack, teller: &Teller, (seen, changed): (&Arc<Mutex<Seen>>, &Arc<tokio::sync::Notify>)) {
        let (held, wake, tell) = (seen.clone(), changed.clone(), teller.clone());
        stack.context.cache::<Pod>().subscribe(move |change| {
            let ready = |pod: &Arc<Pod>| pod.volumes_ready.as_ref().is_some_and(|said| said.ready);
            let (before, now) = (change.before().is_some_and(ready), change.after().is_some_and(ready));
            let pod = change.key();
            match change {
                Change::Added(_) => tell.tell(format!("pod {pod} is made")),
                Change::Changed { old, new } if old.node != new.node => {
                    tell.tell(format!("pod {pod} goes to node {}", new.node));
                }
                Change::Changed { .. } if now && !before => tell.tell(format!("pod {pod} has its volume mounted")),
                Change::Changed { .. } => {}
                Change::Removed(_) => tell.tell(format!("pod {pod} is gone")),
            }
            let mut seen = held.lock().unwrap_or_else(PoisonError::into_inner);
            seen.ready |= now;
            seen.left |= change.after().is_none();
            wake.notify_one();
        });
        let (held, wake, tell) = (seen.clone(), changed.clone(), teller.clone());
        stack.context.cache::<Attachment>().subscribe(move |change| {
            let mut seen = held.lock().unwrap_or_else(PoisonError::into_inner);
            match change {
                Change::Added(_) => seen.attached += 1,
                Change::Changed { old, new } if !old.attached && new.attached => {
                    tell.tell(format!("the volume is attached to node {}", new.node));
                }
                Change::Changed { .. } => {}
                Change::Removed(gone) => {
                    seen.attached = seen.attached.saturating_sub(1);
                    tell.tell(format!("the volume is detached from node {}", gone.node));
                }
            }
            wake.notify_one();
        });
    }

    async fn until<T>(&self, what: &str, done: impl Fn(&Seen) -> Option<T>) -> anyhow::Result<T> {
        let wait = async {
            loop {
                if let Some(found) = done(&self.seen.lock().unwrap_or_else(PoisonError::into_inner)) {
                    return found;
                }
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("waited {PATIENCE:?} until {what}"))
    }
}

/// What a volume is made of: an image file with root's rights, a directory without.
fn substance(place: &Place, volume: &Volume) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let Source::Csi { handle, .. } = &volume.source else { return None };
    let object = place.pool().join("volumes").join(&**handle);
    let mib = |bytes: u64| bytes >> 20;
    let (image, directory) = (object.join("image"), object.join("data"));
    match (fs::metadata(&image), fs::metadata(&directory)) {
        (Ok(meta), _) => {
            let (size, used) = (mib(meta.len()), mib(meta.blocks() * 512));
            Some(format!("the image file {} of {size} MiB, {used} MiB of them on disk", image.display()))
        }
        (Err(_), Ok(_)) => Some(format!("the directory {} (image files need root)", directory.display())),
        (Err(_), Err(_)) => None,
    }
}
