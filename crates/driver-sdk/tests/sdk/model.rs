//! A driver that keeps everything in memory and does what a test tells it to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use driver_sdk::csi::v1;
use driver_sdk::testing::Clients;
use driver_sdk::*;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::{Semaphore, watch};

type Result<T> = std::result::Result<T, Error>;

pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const NODE: &str = "node-1";

/// What a driver method does instead of only working.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Waits until the semaphore gives a permit.
    Wait(Arc<Semaphore>),
    Panic(String),
    Fail(fn() -> Error),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) volumes: BTreeMap<String, Vol>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    pub(crate) groups: BTreeMap<String, GroupSnapshot>,
    pub(crate) ranges: Vec<std::result::Result<BlockRange, &'static str>>,
    behaviours: BTreeMap<&'static str, Behaviour>,
    pub(crate) calls: Vec<&'static str>,
    pub(crate) deadlines: Vec<Option<tokio::time::Instant>>,
    pub(crate) readiness: Option<Readiness>,
}

#[derive(Clone, Default)]
pub(crate) struct Vol {
    pub(crate) capacity: u64,
    pub(crate) source: Option<Source>,
    pub(crate) parameters: Parameters,
    pub(crate) attached: BTreeMap<String, bool>,
    pub(crate) staged: Option<PathBuf>,
    pub(crate) published: Vec<Publication>,
    pub(crate) inline: bool,
}

pub(crate) struct Model {
    pub(crate) state: Mutex<State>,
    pub(crate) started: watch::Sender<usize>,
    pub(crate) node_id: String,
    pub(crate) block_map: BlockMapKind,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            started: watch::Sender::new(0),
            node_id: NODE.into(),
            block_map: BlockMapKind::VariableLength,
        }
    }
}

impl Model {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn on(&self, method: &'static str, behaviour: Behaviour) {
        self.state().behaviours.insert(method, behaviour);
    }

    /// Makes `method` wait until the returned semaphore gets a permit.
    pub(crate) fn hold(&self, method: &'static str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.on(method, Behaviour::Wait(gate.clone()));
        gate
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.state().calls.iter().filter(|call| **call == method).count()
    }

    /// Ends when `count` methods have been entered since the start.
    pub(crate) async fn entered(&self, count: usize) {
        self.started.subscribe().wait_for(|started| *started >= count).await.unwrap();
    }

    async fn enter(&self, method: &'static str) -> Result<()> {
        let behaviour = {
            let mut state = self.state();
            state.calls.push(method);
            state.deadlines.push(call::deadline());
            state.behaviours.get(method).cloned()
        };
        self.started.send_modify(|started| *started += 1);
        match behaviour {
            None => Ok(()),
            Some(Behaviour::Panic(text)) => panic!("{text}"),
            Some(Behaviour::Fail(error)) => Err(error()),
            Some(Behaviour::Wait(gate)) => {
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    }

    fn find(&self, id: &VolumeId) -> Result<Vol> {
        let found = self.state().volumes.get(id.as_str()).cloned();
        found.ok_or_else(|| Error::not_found(Kind::Volume, id.as_str()))
    }

    fn make(&self, request: CreateVolume, source: Option<Source>) -> Result<Volume> {
        let id = self.volume_id(&request.name).unwrap();
        let mut state = self.state();
        let capacity = request.capacity.required.max(1);
        let vol = state.volumes.entry(id.as_str().to_owned()).or_insert_with(|| Vol {
            capacity,
            source,
            parameters: request.parameters,
            ..Vol::default()
        });
        Ok(Volume { id, capacity: vol.capacity, context: StringMap::new(), source: vol.source.clone() })
    }

    fn snapshot(&self, name: &str, source: &VolumeId, group: Option<GroupSnapshotId>) -> Result<Snapshot> {
        let size = self.find(source)?.capacity;
        let id = self.snapshot_id(name).unwrap();
        let created = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let fresh = Snapshot { id: id.clone(), source: source.clone(), size, created, ready: true, group };
        let snapshot = self.state().snapshots.entry(id.into_string()).or_insert(fresh).clone();
        match &snapshot.source == source {
            true => Ok(snapshot),
            false => Err(Error::exists("a snapshot of that name has another source")),
        }
    }

    fn blocks(&self, snapshot: &SnapshotId) -> Result<BlockMap> {
        if !self.state().snapshots.contains_key(snapshot.as_str()) {
            return Err(Error::not_found(Kind::Snapshot, snapshot.as_str()));
        }
        let ranges = self.state().ranges.clone();
        let ranges = stream::iter(ranges).map(|range| match range {
            Ok(range) => Ok(range),
            Err("panic") => panic!("in the stream"),
            Err(why) => Err(Error::backend("reading the map", why)),
        });
        Ok(BlockMap { capacity: GIB, kind: self.block_map, ranges: ranges.boxed() })
    }
}

impl Health for Model {
    fn readiness(&self) -> Readiness {
        self.state().readiness.clone().unwrap_or(Readiness::Ready)
    }
}

#[async_trait]
impl Provisioner for Model {
    fn volume_id(&self, name: &str) -> Option<VolumeId> {
        Some(VolumeId::new(format!("vol-{name}").chars().take(128).collect::<String>()))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume> {
        self.enter("create").await?;
        self.make(request, None)
    }

    async fn delete(&self, volume: VolumeId, _: Secrets) -> Result<()> {
        self.enter("delete").await?;
        self.state().volumes.remove(volume.as_str());
        Ok(())
    }

    async fn validate(&self, request: ValidateVolume) -> Result<Support> {
        self.find(&request.volume)?;
        match request.capabilities.iter().any(|capability| capability.mode.is_multi_node()) {
            true => Ok(Support::No("this volume lives on one node".into())),
            false => Ok(Support::Yes),
        }
    }
}

#[async_trait]
impl SnapshotSource for Model {
    fn snapshot_id(&self, name: &str) -> Option<SnapshotId> {
        Some(SnapshotId::new(format!("snap-{name}").chars().take(128).collect::<String>()))
    }

    async fn create_snapshot(&self, request: CreateSnapshot) -> Result<Snapshot> {
        self.enter("create_snapshot").await?;
        self.snapshot(&request.name, &request.source, None)
    }

    async fn delete_snapshot(&self, snapshot: SnapshotId, _: Secrets) -> Result<()> {
        self.enter("delete_snapshot").await?;
        self.state().snapshots.remove(snapshot.as_str());
        Ok(())
    }

    async fn create_from_snapshot(&self, request: CreateVolume, source: SnapshotId) -> Result<Volume> {
        self.enter("create_from_snapshot").await?;
        if !self.state().snapshots.contains_key(source.as_str()) {
            return Err(Error::not_found(Kind::Snapshot, source.as_str()));
        }
        self.make(request, Some(Source::Snapshot(source)))
    }
}

#[async_trait]
impl CloneSource for Model {
    async fn create_from_volume(&self, request: CreateVolume, source: VolumeId) -> Result<Volume> {
        self.enter("create_from_volume").await?;
        self.find(&source)?;
        self.make(request, Some(Source::Volume(source)))
    }
}

#[async_trait]
impl VolumeLister for Model {
    async fn list_volumes(&self, page: Page<VolumeId>) -> Result<Vec<Volume>> {
        let state = self.state();
        let after = page.after.map(VolumeId::into_string).unwrap_or_default();
        let later = state.volumes.iter().filter(|(id, _)| **id > after);
        Ok(later.take(page.limit).map(|(id, vol)| volume(id, vol)).collect())
    }
}

fn volume(id: &str, vol: &Vol) -> Volume {
    Volume { id: VolumeId::new(id), capacity: vol.capacity, context: StringMap::new(), source: vol.source.clone() }
}

#[async_trait]
impl VolumeGetter for Model {
    async fn get_volume(&self, id: VolumeId) -> Result<Volume> {
        self.find(&id).map(|vol| volume(id.as_str(), &vol))
    }
}

#[async_trait]
impl SnapshotLister for Model {
    async fn list_snapshots(&self, filter: SnapshotFilter, page: Page<SnapshotId>) -> Result<Vec<Snapshot>> {
        let state = self.state();
        let fits = |snapshot: &&Snapshot| {
            filter.id.as_ref().is_none_or(|id| *id == snapshot.id)
                && filter.source.as_ref().is_none_or(|source| *source == snapshot.source)
                && page.after.as_ref().is_none_or(|after| snapshot.id > *after)
        };
        Ok(state.snapshots.values().filter(fits).take(page.limit).cloned().collect())
    }
}

#[async_trait]
impl SnapshotGetter for Model {
    async fn get_snapshot(&self, id: SnapshotId, _: Secrets) -> Result<Snapshot> {
        let found = self.state().snapshots.get(id.as_str()).cloned();
        found.ok_or_else(|| Error::not_found(Kind::Snapshot, id.as_str()))
    }
}

#[async_trait]
impl CapacityReporter for Model {
    async fn capacity(&self, query: CapacityQuery) -> Result<Capacity> {
        let elsewhere = query.topology.is_some_and(|place| place.get("zone").is_none_or(|zone| zone != "a"));
        let available = if elsewhere { 0 } else { 10 * GIB };
        Ok(Capacity { available, largest_volume: Some(GIB), smallest_volume: None })
    }
}

#[async_trait]
impl ControllerExpander for Model {
    fn mode(&self) -> ExpansionMode {
        ExpansionMode::Online
    }

    async fn expand_volume(&self, request: ExpandVolume) -> Result<Expanded> {
        self.enter("expand_volume").await?;
        let mut vol = self.find(&request.volume)?;
        vol.capacity = vol.capacity.max(request.capacity.required);
        let capacity = vol.capacity;
        self.state().volumes.insert(request.volume.into_string(), vol);
        Ok(Expanded { capacity, node_must_expand: true })
    }
}

#[async_trait]
impl Attacher for Model {
    async fn attach(&self, request: AttachVolume) -> Result<StringMap> {
        self.attach_as(request, false)
    }

    async fn detach(&self, volume: VolumeId, from: DetachFrom, _: Secrets) -> Result<()> {
        if let Some(vol) = self.state().volumes.get_mut(volume.as_str()) {
            match from {
                DetachFrom::AllNodes => vol.attached.clear(),
                DetachFrom::Node(node) => drop(vol.attached.remove(node.as_str())),
            }
        }
        Ok(())
    }
}

impl Model {
    fn attach_as(&self, request: AttachVolume, readonly: bool) -> Result<StringMap> {
        let mut vol = self.find(&request.volume)?;
        if request.node.as_str() != NODE {
            return Err(Error::not_found(Kind::Node, request.node.as_str()));
        }
        let before = *vol.attached.entry(request.node.into_string()).or_insert(readonly);
        if before != readonly {
            return Err(Error::exists("attached the other way"));
        }
        self.state().volumes.insert(request.volume.into_string(), vol);
        Ok(StringMap::from([("readonly".into(), readonly.to_string())]))
    }
}

#[async_trait]
impl ReadonlyAttacher for Model {
    async fn attach_readonly(&self, request: AttachVolume) -> Result<StringMap> {
        self.attach_as(request, true)
    }
}

#[async_trait]
impl AttachmentLister for Model {
    async fn attached_nodes(&self, volume: &VolumeId) -> Result<Vec<NodeId>> {
        Ok(self.find(volume)?.attached.into_keys().map(NodeId::new).collect())
    }
}

#[async_trait]
impl ControllerHealth for Model {
    async fn volume_condition(&self, volume: &VolumeId) -> Result<Condition> {
        self.find(volume).map(|_| Condition::Normal("fine".into()))
    }
}

#[async_trait]
impl Modifier for Model {
    fn check(&self, changes: &StringMap) -> Result<()> {
        match changes.keys().find(|key| *key != "speed") {
            None => Ok(()),
            Some(key) => Err(Error::invalid("mutable_parameters", format!("unknown key {key:?}"))),
        }
    }

    async fn modify(&self, request: ModifyVolume) -> Result<()> {
        let mut vol = self.find(&request.volume)?;
        vol.parameters.mutable.extend(request.changes);
        self.state().volumes.insert(request.volume.into_string(), vol);
        Ok(())
    }
}

#[async_trait]
impl GroupSnapshotter for Model {
    fn group_id(&self, name: &str) -> Option<GroupSnapshotId> {
        Some(GroupSnapshotId::new(format!("group-{name}")))
    }

    async fn create_group(&self, request: CreateGroupSnapshot) -> Result<GroupSnapshot> {
        self.enter("create_group").await?;
        let id = self.group_id(&request.name).unwrap();
        let name = |source: &VolumeId| format!("{}-{source}", request.name);
        let member = |source| self.snapshot(&name(source), source, Some(id.clone()));
        let snapshots = request.sources.iter().map(member).collect::<Result<Vec<_>>>()?;
        let created = snapshots[0].created;
        let group = GroupSnapshot { id, snapshots, created };
        self.state().groups.insert(group.id.as_str().to_owned(), group.clone());
        Ok(group)
    }

    async fn get_group(&self, group: GroupSnapshotId, _: Secrets) -> Result<GroupSnapshot> {
        let found = self.state().groups.get(group.as_str()).cloned();
        found.ok_or_else(|| Error::not_found(Kind::GroupSnapshot, group.as_str()))
    }

    async fn delete_group(&self, group: GroupSnapshotId, _: Secrets) -> Result<()> {
        self.enter("delete_group").await?;
        let mut state = self.state();
        let members = state.groups.remove(group.as_str()).map(|group| group.snapshots).unwrap_or_default();
        members.iter().for_each(|member| drop(state.snapshots.remove(member.id.as_str())));
        Ok(())
    }
}

#[async_trait]
impl SnapshotMetadata for Model {
    async fn allocated(&self, snapshot: SnapshotId, _: u64, _: Secrets) -> Result<BlockMap> {
        self.blocks(&snapshot)
    }

    async fn changed(&self, base: SnapshotId, target: SnapshotId, _: u64, _: Secrets) -> Result<BlockMap> {
        self.blocks(&base)?;
        self.blocks(&target)
    }
}

#[async_trait]
impl Topology for Model {
    fn node_segments(&self) -> Segments {
        Segments::from([("zone".into(), "a".into())])
    }

    async fn volume_segments(&self, _: &VolumeId) -> Result<Vec<Segments>> {
        self.enter("volume_segments").await?;
        Ok(vec![self.node_segments()])
    }
}

#[async_trait]
impl NodePublisher for Model {
    fn info(&self) -> NodeInfo {
        NodeInfo { id: NodeId::new(&*self.node_id), max_volumes: Some(8) }
    }

    async fn publish(&self, request: PublishVolume) -> Result<()> {
        self.enter("publish").await?;
        let mut vol = self.find(&request.volume)?;
        let PublishVolume { target, capability, fingerprint, .. } = request;
        vol.published.retain(|publication| publication.target != target);
        vol.published.push(Publication { target, mode: capability.mode, fingerprint: Some(fingerprint) });
        self.state().volumes.insert(request.volume.into_string(), vol);
        Ok(())
    }

    async fn unpublish(&self, volume: VolumeId, target: &Path) -> Result<()> {
        self.enter("unpublish").await?;
        if let Some(vol) = self.state().volumes.get_mut(volume.as_str()) {
            vol.published.retain(|publication| publication.target != target);
        }
        Ok(())
    }
}

#[async_trait]
impl NodeStager for Model {
    async fn stage(&self, request: StageVolume) -> Result<()> {
        self.enter("stage").await?;
        let mut vol = self.find(&request.volume)?;
        vol.staged = Some(request.staging);
        self.state().volumes.insert(request.volume.into_string(), vol);
        Ok(())
    }

    async fn unstage(&self, volume: VolumeId, _: &Path) -> Result<()> {
        self.enter("unstage").await?;
        if let Some(vol) = self.state().volumes.get_mut(volume.as_str()) {
            vol.staged = None;
        }
        Ok(())
    }
}

#[async_trait]
impl NodeStats for Model {
    async fn stats(&self, query: StatsQuery) -> Result<Vec<Usage>> {
        self.enter("stats").await?;
        let vol = self.find(&query.volume)?;
        match vol.published.iter().any(|publication| publication.target == query.path) {
            true => Ok(vec![Usage { unit: Unit::Bytes, total: vol.capacity, used: 1, available: vol.capacity - 1 }]),
            false => Err(Error::not_found(Kind::Path, query.path.display().to_string())),
        }
    }
}

#[async_trait]
impl NodeHealth for Model {
    async fn node_condition(&self, _: &VolumeId, _: &Path) -> Result<Condition> {
        Ok(Condition::Abnormal("scratched".into()))
    }
}

#[async_trait]
impl NodeExpander for Model {
    async fn node_expand(&self, request: NodeExpand) -> Result<Option<u64>> {
        let vol = self.find(&request.volume)?;
        match request.path.is_absolute() {
            true => Ok(Some(vol.capacity)),
            false => Err(Error::not_found(Kind::Path, request.path.display().to_string())),
        }
    }
}

impl MountGroup for Model {
    fn check_group(&self, group: &str) -> Result<()> {
        group.parse::<u32>().map(drop).map_err(|_| Error::invalid("volume_mount_group", "not a number"))
    }
}

#[async_trait]
impl WriterTracking for Model {
    async fn published(&self, volume: &VolumeId) -> Result<Vec<Publication>> {
        Ok(self.find(volume).map(|vol| vol.published).unwrap_or_default())
    }
}

#[async_trait]
impl EphemeralInline for Model {
    async fn publish_ephemeral(&self, request: PublishEphemeral) -> Result<()> {
        self.enter("publish_ephemeral").await?;
        let vol = Vol { capacity: 1, inline: true, ..Vol::default() };
        self.state().volumes.insert(request.volume.into_string(), vol);
        Ok(())
    }

    async fn unpublish_ephemeral(&self, volume: VolumeId, _: &Path) -> Result<Inline> {
        let mut state = self.state();
        match state.volumes.get(volume.as_str()).is_some_and(|vol| vol.inline) {
            true => {
                state.volumes.remove(volume.as_str());
                Ok(Inline::Gone)
            }
            false => Ok(Inline::NotInline),
        }
    }
}

pub(crate) fn identity() -> Identity {
    Identity::new("model.csi.example", "1.0").unwrap().manifest("built", "by a test")
}

/// A driver with every slot filled.
pub(crate) fn full(model: &Arc<Model>) -> Driver {
    let controller = ControllerSlots::new(model.clone())
        .clones()
        .get_volume()
        .list_snapshots()
        .get_snapshot()
        .capacity()
        .expansion()
        .readonly_attachment()
        .list_attachments()
        .health()
        .modification()
        .group_snapshots()
        .snapshot_metadata();
    let node =
        NodeSlots::new(model.clone()).staging().health().expansion().mount_group().writer_tracking().ephemeral_inline();
    let builder = Driver::builder(identity()).health(model.clone()).controller(controller).node(node);
    builder.topology(model.clone()).build().unwrap()
}

/// A driver that only makes and publishes volumes.
pub(crate) fn small(model: &Arc<Model>) -> Driver {
    let controller = ControllerSlots::new(model.clone()).provisioner();
    Driver::builder(identity()).controller(controller).node(NodeSlots::new(model.clone())).build().unwrap()
}

/// The model behind a full driver, and clients for it.
pub(crate) fn served() -> (Arc<Model>, Driver, Clients) {
    let model = Model::new();
    let driver = full(&model);
    let clients = Clients::in_memory(&driver, Mode::All);
    (model, driver, clients)
}

pub(crate) fn capability(mode: v1::volume_capability::access_mode::Mode) -> v1::VolumeCapability {
    v1::VolumeCapability {
        access_mode: Some(v1::volume_capability::AccessMode { mode: mode.into() }),
        access_type: Some(v1::volume_capability::AccessType::Mount(Default::default())),
    }
}

pub(crate) fn writer() -> v1::VolumeCapability {
    capability(v1::volume_capability::access_mode::Mode::SingleNodeWriter)
}

pub(crate) fn create(name: &str) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.into(),
        volume_capabilities: vec![writer()],
        capacity_range: Some(v1::CapacityRange { required_bytes: 1 << 20, limit_bytes: 0 }),
        ..Default::default()
    }
}

pub(crate) fn publish(volume: &str, target: &str) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: volume.into(),
        target_path: target.into(),
        staging_target_path: "/staging".into(),
        volume_capability: Some(writer()),
        ..Default::default()
    }
}

pub(crate) fn delete(volume: &str) -> v1::DeleteVolumeRequest {
    v1::DeleteVolumeRequest { volume_id: volume.into(), ..Default::default() }
}

/// The code a call ended with.
pub(crate) fn code<T>(result: std::result::Result<tonic::Response<T>, tonic::Status>) -> tonic::Code {
    result.map_or_else(|status| status.code(), |_| tonic::Code::Ok)
}
