//! The driver as the SDK sees it: every slot, each call handed to a blocking thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use driver_sdk::*;

use crate::config::{Attachment, Config};
use crate::controller::AttachAs;
use crate::core::{Core, StartError};
use crate::params;
use crate::pool::Ballast;

/// How long a question about a mounted filesystem may take before it counts as hung.
const STATS_PATIENCE: Duration = Duration::from_secs(20);

/// How often the hidden folders of the pools are cleared.
const CLEARING_PERIOD: Duration = Duration::from_secs(300);

type Result<T> = std::result::Result<T, Error>;

/// The reference driver.
#[derive(Debug)]
pub struct LocalDriver {
    core: Arc<Core>,
}

impl LocalDriver {
    /// Opens the pools and brings them back to order.
    pub fn start(config: Config) -> std::result::Result<Arc<Self>, StartError> {
        Ok(Arc::new(Self { core: Arc::new(Core::start(config)?) }))
    }

    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The driver with all its slots filled.
    pub fn definition(self: &Arc<Self>, identity: Identity) -> std::result::Result<Driver, DefinitionError> {
        let mut controller = ControllerSlots::new(Arc::clone(self))
            .snapshots()
            .clones()
            .list_volumes()
            .get_volume()
            .list_snapshots()
            .get_snapshot()
            .capacity()
            .expansion()
            .health()
            .modification()
            .group_snapshots()
            .snapshot_metadata();
        if let Attachment::On { .. } = self.core.config.attachment {
            controller = controller.readonly_attachment().list_attachments();
        }
        let node = NodeSlots::new(Arc::clone(self))
            .staging()
            .stats()
            .health()
            .expansion()
            .mount_group()
            .writer_tracking()
            .ephemeral_inline();
        let driver = Driver::builder(identity).controller(controller).node(node).topology(Arc::clone(self)).build()?;
        let core = Arc::clone(&self.core);
        driver.metrics().show_beside(move || core.measured());
        Ok(driver)
    }

    /// Runs synchronous work on a blocking thread. A panic there is a panic here, where the SDK isolates it.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Core) -> Result<T> + Send + 'static) -> Result<T> {
        let core = Arc::clone(&self.core);
        match tokio::task::spawn_blocking(move || work(&core)).await {
            Ok(answer) => answer,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::unavailable("the driver is shutting down")),
        }
    }

    /// As [`Self::run`], for calls that take something away. If they fail for want of space, the ballast of the pools is given
    /// up and they are tried once more: what takes away must work in a full pool.
    async fn undo<T: Send + 'static>(&self, work: impl Fn(&Core) -> Result<T> + Send + 'static) -> Result<T> {
        self.run(move |core| match work(core) {
            Err(error) if matches!(error.reason(), Reason::NoSpace(_)) => {
                let released = core.open_pools().filter(|pool| pool.release_ballast() == Ballast::Released).count();
                if released > 0 { work(core) } else { Err(error) }
            }
            other => other,
        })
        .await
    }

    /// Watches the space of the pools and clears what is left in them, for as long as it is polled.
    pub async fn watch_space(&self) {
        // Clearing may take long, and space is watched meanwhile.
        tokio::join!(self.keep_watching_space(), self.keep_clearing_leftovers());
    }

    async fn keep_watching_space(&self) {
        loop {
            match self.run(|core| Ok(core.watch_space())).await {
                Ok(wait) => tokio::time::sleep(wait).await,
                // The runtime ends.
                Err(_) => return,
            }
        }
    }

    /// The start has cleared them once.
    async fn keep_clearing_leftovers(&self) {
        loop {
            tokio::time::sleep(CLEARING_PERIOD).await;
            let cleared = self.run(|core| {
                core.clear_leftovers();
                Ok(())
            });
            if cleared.await.is_err() {
                return;
            }
        }
    }

    /// As [`Self::run`], for questions to filesystems that may never answer: the caller is told so in time.
    async fn ask<T: Send + 'static>(&self, work: impl FnOnce(&Core) -> Result<T> + Send + 'static) -> Result<T> {
        match tokio::time::timeout(STATS_PATIENCE, self.run(work)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::unavailable("the volume's filesystem does not answer")),
        }
    }
}

#[async_trait]
impl Provisioner for LocalDriver {
    fn volume_id(&self, name: &str) -> Option<VolumeId> {
        Some(Core::volume_id(name))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume> {
        self.run(move |core| core.create_volume(&request, None)).await
    }

    async fn delete(&self, volume: VolumeId, _secrets: Secrets) -> Result<()> {
        self.undo(move |core| core.delete_volume(&volume)).await
    }

    async fn validate(&self, request: ValidateVolume) -> Result<Support> {
        self.run(move |core| core.validate_volume(&request)).await
    }
}

#[async_trait]
impl SnapshotSource for LocalDriver {
    fn snapshot_id(&self, name: &str) -> Option<SnapshotId> {
        Some(Core::snapshot_id(name))
    }

    async fn create_snapshot(&self, request: CreateSnapshot) -> Result<Snapshot> {
        self.run(move |core| {
            let made = core.create_snapshot(&request);
            made.map_err(|error| core.frozen_because_full(error, std::slice::from_ref(&request.source)))
        })
        .await
    }

    async fn delete_snapshot(&self, snapshot: SnapshotId, _secrets: Secrets) -> Result<()> {
        self.undo(move |core| core.delete_snapshot(&snapshot)).await
    }

    async fn create_from_snapshot(&self, request: CreateVolume, source: SnapshotId) -> Result<Volume> {
        self.run(move |core| core.create_volume(&request, Some(&Source::Snapshot(source)))).await
    }
}

#[async_trait]
impl CloneSource for LocalDriver {
    async fn create_from_volume(&self, request: CreateVolume, source: VolumeId) -> Result<Volume> {
        self.run(move |core| {
            let made = core.create_volume(&request, Some(&Source::Volume(source.clone())));
            made.map_err(|error| core.frozen_because_full(error, &[source]))
        })
        .await
    }
}

#[async_trait]
impl VolumeLister for LocalDriver {
    async fn list_volumes(&self, page: Page<VolumeId>) -> Result<Vec<Volume>> {
        self.run(move |core| core.list_volumes(&page)).await
    }
}

#[async_trait]
impl VolumeGetter for LocalDriver {
    async fn get_volume(&self, volume: VolumeId) -> Result<Volume> {
        self.run(move |core| core.get_volume(&volume)).await
    }
}

#[async_trait]
impl SnapshotLister for LocalDriver {
    async fn list_snapshots(&self, filter: SnapshotFilter, page: Page<SnapshotId>) -> Result<Vec<Snapshot>> {
        self.run(move |core| core.list_snapshots(&filter, &page)).await
    }
}

#[async_trait]
impl SnapshotGetter for LocalDriver {
    async fn get_snapshot(&self, snapshot: SnapshotId, _secrets: Secrets) -> Result<Snapshot> {
        self.run(move |core| core.get_snapshot(&snapshot)).await
    }
}

#[async_trait]
impl CapacityReporter for LocalDriver {
    async fn capacity(&self, query: CapacityQuery) -> Result<Capacity> {
        self.run(move |core| core.capacity(&query)).await
    }
}

#[async_trait]
impl ControllerExpander for LocalDriver {
    fn mode(&self) -> ExpansionMode {
        ExpansionMode::Online
    }

    async fn expand_volume(&self, request: ExpandVolume) -> Result<Expanded> {
        self.run(move |core| core.expand_volume(&request)).await
    }
}

#[async_trait]
impl Attacher for LocalDriver {
    async fn attach(&self, request: AttachVolume) -> Result<StringMap> {
        self.run(move |core| core.attach_volume(&request, AttachAs::ReadWrite)).await
    }

    async fn detach(&self, volume: VolumeId, from: DetachFrom, _secrets: Secrets) -> Result<()> {
        self.undo(move |core| core.detach_volume(&volume, &from)).await
    }
}

#[async_trait]
impl ReadonlyAttacher for LocalDriver {
    async fn attach_readonly(&self, request: AttachVolume) -> Result<StringMap> {
        self.run(move |core| core.attach_volume(&request, AttachAs::ReadOnly)).await
    }
}

#[async_trait]
impl AttachmentLister for LocalDriver {
    async fn attached_nodes(&self, volume: &VolumeId) -> Result<Vec<NodeId>> {
        let volume = volume.clone();
        self.run(move |core| Ok(core.attached_nodes(&volume))).await
    }
}

#[async_trait]
impl ControllerHealth for LocalDriver {
    async fn volume_condition(&self, volume: &VolumeId) -> Result<Condition> {
        let volume = volume.clone();
        self.run(move |core| core.volume_condition(&volume)).await
    }
}

#[async_trait]
impl Modifier for LocalDriver {
    fn check(&self, changes: &StringMap) -> Result<()> {
        params::check_mutable(changes)
    }

    async fn modify(&self, request: ModifyVolume) -> Result<()> {
        self.run(move |core| core.modify_volume(&request)).await
    }
}

#[async_trait]
impl GroupSnapshotter for LocalDriver {
    fn group_id(&self, name: &str) -> Option<GroupSnapshotId> {
        Some(Core::group_id(name))
    }

    async fn create_group(&self, request: CreateGroupSnapshot) -> Result<GroupSnapshot> {
        self.run(move |core| {
            let made = core.create_group(&request);
            made.map_err(|error| core.frozen_because_full(error, &request.sources))
        })
        .await
    }

    async fn get_group(&self, group: GroupSnapshotId, _secrets: Secrets) -> Result<GroupSnapshot> {
        self.run(move |core| core.get_group(&group)).await
    }

    async fn delete_group(&self, group: GroupSnapshotId, _secrets: Secrets) -> Result<()> {
        self.undo(move |core| core.delete_group(&group)).await
    }
}

#[async_trait]
impl SnapshotMetadata for LocalDriver {
    async fn allocated(&self, snapshot: SnapshotId, from: u64, _secrets: Secrets) -> Result<BlockMap> {
        self.run(move |core| core.allocated_ranges(&snapshot, from)).await.map(block_map)
    }

    async fn changed(&self, base: SnapshotId, target: SnapshotId, from: u64, _secrets: Secrets) -> Result<BlockMap> {
        self.run(move |core| core.changed_ranges(&base, &target, from)).await.map(block_map)
    }
}

fn block_map((capacity, ranges): (u64, Vec<BlockRange>)) -> BlockMap {
    let ranges = Box::pin(futures_util::stream::iter(ranges.into_iter().map(Ok)));
    BlockMap { capacity, kind: BlockMapKind::VariableLength, ranges }
}

#[async_trait]
impl Topology for LocalDriver {
    fn node_segments(&self) -> Segments {
        Segments::from([self.core.segment()])
    }

    async fn volume_segments(&self, _volume: &VolumeId) -> Result<Vec<Segments>> {
        Ok(vec![self.node_segments()])
    }
}

#[async_trait]
impl NodePublisher for LocalDriver {
    fn info(&self) -> NodeInfo {
        let max_volumes = match self.core.config.attachment {
            Attachment::On { limit } => limit,
            Attachment::Off => None,
        };
        NodeInfo { id: NodeId::new(&self.core.config.node_id), max_volumes }
    }

    async fn publish(&self, request: PublishVolume) -> Result<()> {
        self.run(move |core| core.refuse_frozen(&request.volume).and_then(|()| core.publish(&request))).await
    }

    async fn unpublish(&self, volume: VolumeId, target: &Path) -> Result<()> {
        let target: PathBuf = target.to_owned();
        self.undo(move |core| {
            let _thawed = core.keep_thawed(volume.as_str());
            core.unpublish(&volume, &target)
        })
        .await
    }
}

#[async_trait]
impl NodeStager for LocalDriver {
    async fn stage(&self, request: StageVolume) -> Result<()> {
        self.run(move |core| core.refuse_frozen(&request.volume).and_then(|()| core.stage(&request))).await
    }

    async fn unstage(&self, volume: VolumeId, staging: &Path) -> Result<()> {
        let staging = staging.to_owned();
        self.undo(move |core| {
            let _thawed = core.keep_thawed(volume.as_str());
            core.unstage(&volume, &staging)
        })
        .await
    }
}

#[async_trait]
impl NodeStats for LocalDriver {
    async fn stats(&self, query: StatsQuery) -> Result<Vec<Usage>> {
        self.ask(move |core| core.stats(&query)).await
    }
}

#[async_trait]
impl NodeHealth for LocalDriver {
    async fn node_condition(&self, volume: &VolumeId, path: &Path) -> Result<Condition> {
        let (volume, path) = (volume.clone(), path.to_owned());
        self.ask(move |core| match core.node_condition(&volume, &path)? {
            Condition::Normal(text) => Ok(core.space_condition(&volume)?.unwrap_or(Condition::Normal(text))),
            abnormal @ Condition::Abnormal(_) => Ok(abnormal),
        })
        .await
    }
}

#[async_trait]
impl NodeExpander for LocalDriver {
    async fn node_expand(&self, request: NodeExpand) -> Result<Option<u64>> {
        self.run(move |core| core.refuse_frozen(&request.volume).and_then(|()| core.node_expand(&request).map(Some)))
            .await
    }
}

impl MountGroup for LocalDriver {
    fn check_group(&self, group: &str) -> Result<()> {
        crate::node::parse_group(group).map(drop)
    }
}

#[async_trait]
impl WriterTracking for LocalDriver {
    async fn published(&self, volume: &VolumeId) -> Result<Vec<Publication>> {
        let volume = volume.clone();
        self.run(move |core| core.published(&volume)).await
    }
}

#[async_trait]
impl EphemeralInline for LocalDriver {
    async fn publish_ephemeral(&self, request: PublishEphemeral) -> Result<()> {
        self.run(move |core| core.publish_inline(&request)).await
    }

    async fn unpublish_ephemeral(&self, volume: VolumeId, target: &Path) -> Result<Inline> {
        let target = target.to_owned();
        self.undo(move |core| {
            let _thawed = core.keep_thawed(&Core::inline_id(&volume));
            core.unpublish_inline(&volume, &target)
        })
        .await
    }
}
