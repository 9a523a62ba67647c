//! `orlop bench driver`: a CSI driver whose volumes are entries of a map.
//!
//! It answers at once, so that a bench of provisioners measures them and not a disk. Volumes end with the process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use driver_sdk::csi::{Endpoint, Listener, SocketMode};
use driver_sdk::{
    AttachVolume, Attacher, ControllerSlots, CreateVolume, DetachFrom, Driver, Error, Identity, Kind, Mode, NodeId,
    NodeInfo, NodePublisher, NodeSlots, Page, Provisioner, PublishVolume, Secrets, StringMap, Support, ValidateVolume,
    Volume, VolumeId, VolumeLister, async_trait, derive_id,
};
use runtime::{Stopper, stop};

/// How long calls may take to end once the driver is told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a CSI controller that keeps its volumes in memory.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct Args {
    /// Socket to serve on, such as unix:///tmp/bench/csi.sock.
    #[arg(long, value_name = "ENDPOINT")]
    endpoint: Endpoint,
    /// Attach volumes, too: also such that it never made, so that volumes made by hand can be attached.
    #[arg(long)]
    attach: bool,
    /// Name of the driver, which classes give as their provisioner.
    #[arg(long, value_name = "NAME", default_value = "bench.orlop.dev")]
    driver_name: String,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let driver = define(&args)?;
    let listener = Listener::bind(&args.endpoint, SocketMode::default());
    let listener = listener.with_context(|| format!("listening on {}", args.endpoint))?;
    let (stopper, stop) = Stopper::new();
    let signals = tokio::spawn(stop::on_signals(stopper));
    eprintln!("serving {} on {}", args.driver_name, args.endpoint);
    let served = driver.serve([listener], Mode::Controller, async move { stop.stopped().await }, GRACE).await;
    signals.abort();
    served.context("serving")
}

fn define(args: &Args) -> anyhow::Result<Driver> {
    let name = &args.driver_name;
    let identity = Identity::new(name, env!("CARGO_PKG_VERSION")).with_context(|| format!("--driver-name {name:?}"))?;
    let memory = Arc::new(Memory::default());
    let slots = ControllerSlots::new(memory.clone()).list_volumes();
    let driver = match args.attach {
        true => Driver::builder(identity).controller(slots.attachment()).node(NodeSlots::new(memory)),
        false => Driver::builder(identity).controller(slots),
    };
    driver.build().context("defining the driver")
}

/// What there is, and where it is attached.
#[derive(Debug, Default)]
struct Memory {
    /// Sizes by id.
    volumes: Mutex<BTreeMap<VolumeId, u64>>,
    /// Nodes by id.
    attached: Mutex<BTreeMap<VolumeId, NodeId>>,
}

impl Memory {
    fn volumes(&self) -> MutexGuard<'_, BTreeMap<VolumeId, u64>> {
        // Each change is one call on the map, which a panic elsewhere cannot leave half done.
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Attacher for Memory {
    async fn attach(&self, request: AttachVolume) -> Result<StringMap, Error> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let node = attached.entry(request.volume.clone()).or_insert_with(|| request.node.clone());
        match *node == request.node {
            true => Ok(StringMap::new()),
            false => Err(Error::precondition(format!("{} is attached to {node}", request.volume))),
        }
    }

    async fn detach(&self, volume: VolumeId, from: DetachFrom, _: Secrets) -> Result<(), Error> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let there = |node: &NodeId| from == DetachFrom::AllNodes || from == DetachFrom::Node(node.clone());
        if attached.get(&volume).is_some_and(there) {
            attached.remove(&volume);
        }
        Ok(())
    }
}

/// Who attaches has to have nodes. Those of a bench are played, and the node service is not served.
#[async_trait]
impl NodePublisher for Memory {
    fn info(&self) -> NodeInfo {
        NodeInfo { id: NodeId::new("none"), max_volumes: None }
    }

    async fn publish(&self, request: PublishVolume) -> Result<(), Error> {
        Err(Error::precondition(format!("{} is nowhere but in memory", request.volume)))
    }

    async fn unpublish(&self, _: VolumeId, _: &Path) -> Result<(), Error> {
        Ok(())
    }
}

fn id_of(name: &str) -> VolumeId {
    VolumeId::new(derive_id("mem-", "volume", name))
}

fn volume(id: &VolumeId, capacity: u64) -> Volume {
    Volume { id: id.clone(), capacity, context: StringMap::new(), source: None }
}

#[async_trait]
impl Provisioner for Memory {
    fn volume_id(&self, name: &str) -> Option<VolumeId> {
        Some(id_of(name))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume, Error> {
        let (id, range) = (id_of(&request.name), request.capacity);
        let capacity = *self.volumes().entry(id.clone()).or_insert(range.required.max(1));
        if capacity < range.required || range.limit.is_some_and(|limit| capacity > limit) {
            return Err(Error::exists(format!("{id} has {capacity} bytes, which is outside of what is asked for")));
        }
        Ok(volume(&id, capacity))
    }

    async fn delete(&self, volume: VolumeId, _: Secrets) -> Result<(), Error> {
        self.volumes().remove(&volume);
        Ok(())
    }

    async fn validate(&self, request: ValidateVolume) -> Result<Support, Error> {
        match self.volumes().contains_key(&request.volume) {
            true => Ok(Support::Yes),
            false => Err(Error::not_found(Kind::Volume, request.volume.as_str())),
        }
    }
}

#[async_trait]
impl VolumeLister for Memory {
    async fn list_volumes(&self, page: Page<VolumeId>) -> Result<Vec<Volume>, Error> {
        let volumes = self.volumes();
        let after = volumes.iter().filter(|(id, _)| page.after.as_ref().is_none_or(|after| *id > after));
        Ok(after.take(page.limit).map(|(id, capacity)| volume(id, *capacity)).collect())
    }
}
