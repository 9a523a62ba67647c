//! `orlop bench driver`: a CSI driver whose volumes are entries of a map.
//!
//! It answers at once, so that a bench of provisioners measures them and not a disk. Volumes end with the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use driver_sdk::csi::{Endpoint, Listener, SocketMode};
use driver_sdk::{
    ControllerSlots, CreateVolume, Driver, Error, Identity, Kind, Mode, Page, Provisioner, Secrets, StringMap, Support,
    ValidateVolume, Volume, VolumeId, VolumeLister, async_trait, derive_id,
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
    /// Name of the driver, which classes give as their provisioner.
    #[arg(long, value_name = "NAME", default_value = "bench.orlop.dev")]
    driver_name: String,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let driver = define(&args.driver_name)?;
    let listener = Listener::bind(&args.endpoint, SocketMode::default());
    let listener = listener.with_context(|| format!("listening on {}", args.endpoint))?;
    let (stopper, stop) = Stopper::new();
    let signals = tokio::spawn(stop::on_signals(stopper));
    eprintln!("serving {} on {}", args.driver_name, args.endpoint);
    let served = driver.serve([listener], Mode::Controller, async move { stop.stopped().await }, GRACE).await;
    signals.abort();
    served.context("serving")
}

fn define(name: &str) -> anyhow::Result<Driver> {
    let identity = Identity::new(name, env!("CARGO_PKG_VERSION")).with_context(|| format!("--driver-name {name:?}"))?;
    let slots = ControllerSlots::new(Arc::new(Memory::default())).list_volumes();
    Driver::builder(identity).controller(slots).build().context("defining the driver")
}

/// Sizes by id.
#[derive(Debug, Default)]
struct Memory {
    volumes: Mutex<BTreeMap<VolumeId, u64>>,
}

impl Memory {
    fn volumes(&self) -> MutexGuard<'_, BTreeMap<VolumeId, u64>> {
        // Each change is one call on the map, which a panic elsewhere cannot leave half done.
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
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
