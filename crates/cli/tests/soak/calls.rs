//! Random calls: all methods, on few names, so that they meet.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use csi::v1::controller_client::ControllerClient;
use csi::v1::node_client::NodeClient;
use csi::v1::*;
use driver_local::core::Core;
use driver_sdk::testing::Clients;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::rig::call::{Use, block, create_request, from_snapshot, from_volume, map, mount};
use crate::rig::{MIB, NODE, Scratch, ask};

pub(crate) const VOLUMES: [&str; 10] = ["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"];
pub(crate) const SNAPSHOTS: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];
pub(crate) const GROUPS: [&str; 2] = ["g0", "g1"];

/// Every method of this soak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    CreateVolume,
    RestoreVolume,
    CloneVolume,
    DeleteVolume,
    CreateSnapshot,
    DeleteSnapshot,
    CreateGroup,
    DeleteGroup,
    ControllerExpand,
    ControllerModify,
    Attach,
    Detach,
    ListVolumes,
    GetVolume,
    Validate,
    GetCapacity,
    Stage,
    Unstage,
    Publish,
    Unpublish,
    Stats,
}

/// How often each is called. Calls that need two volumes at rest come more often, because fewer of them get through.
pub(crate) const MIX: [(Method, u64); 21] = [
    (Method::CreateVolume, 6),
    (Method::RestoreVolume, 10),
    (Method::CloneVolume, 10),
    (Method::DeleteVolume, 9),
    (Method::CreateSnapshot, 8),
    (Method::DeleteSnapshot, 1),
    (Method::CreateGroup, 10),
    (Method::DeleteGroup, 1),
    (Method::ControllerExpand, 3),
    (Method::ControllerModify, 3),
    (Method::Attach, 6),
    (Method::Detach, 3),
    (Method::ListVolumes, 2),
    (Method::GetVolume, 2),
    (Method::Validate, 2),
    (Method::GetCapacity, 2),
    (Method::Stage, 8),
    (Method::Unstage, 4),
    (Method::Publish, 8),
    (Method::Unpublish, 4),
    (Method::Stats, 2),
];

impl Method {
    fn pick(random: &mut Random) -> Self {
        let all = MIX.iter().map(|(_, weight)| weight).sum();
        let mut left = random.below(all);
        for (method, weight) in MIX {
            match left.checked_sub(weight) {
                None => return method,
                Some(rest) => left = rest,
            }
        }
        unreachable!("the number is below the sum of all weights")
    }
}

/// Sorts of volumes: a copy has the sort of its source, so copies are asked for within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Ext4,
    Block,
    Directory,
}

impl Sort {
    fn of(volume: &str) -> Self {
        match volume {
            "v5" | "v6" | "v7" => Self::Block,
            "v8" | "v9" => Self::Directory,
            _ => Self::Ext4,
        }
    }

    fn capability(self) -> VolumeCapability {
        match self {
            Self::Ext4 => mount("ext4"),
            Self::Block => block(),
            Self::Directory => mount(""),
        }
    }

    fn volumes(self) -> Vec<&'static str> {
        VOLUMES.into_iter().filter(|volume| Self::of(volume) == self).collect()
    }

    fn snapshots(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &SNAPSHOTS[..4],
            Self::Block => &SNAPSHOTS[4..5],
            Self::Directory => &SNAPSHOTS[5..],
        }
    }
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// Where the volumes of the soak are used.
#[derive(Debug)]
pub(crate) struct Stand {
    uses: BTreeMap<&'static str, Use>,
}

/// The members of a group are numbered; all groups here have two.
pub(crate) fn group_members(name: &str) -> VolumeGroupSnapshot {
    let group_snapshot_id = Core::group_id(name).into_string();
    let member = |number| Snapshot { snapshot_id: format!("{group_snapshot_id}.{number}"), ..Default::default() };
    VolumeGroupSnapshot { snapshots: (0..2).map(member).collect(), group_snapshot_id, ..Default::default() }
}

/// A call, to be given up by the server after a while in one of eight cases.
fn request<T>(random: &mut Random, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if random.one_in(8) {
        request.set_timeout(Duration::from_millis(1 + random.below(80)));
    }
    request
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn bytes(mib: u64) -> i64 {
    i64::try_from(mib * MIB).unwrap()
}

impl Stand {
    pub(crate) fn new(scratch: &Scratch) -> Self {
        let uses =
            VOLUMES.map(|name| (name, Use::new(scratch, Core::volume_id(name).as_str(), Sort::of(name).capability())));
        Self { uses: uses.into_iter().collect() }
    }

    pub(crate) fn using(&self, name: &str) -> &Use {
        &self.uses[name]
    }

    /// One random call, and how it ended.
    pub(crate) async fn call(&self, clients: &Clients, random: &mut Random) -> (Method, Result<(), Status>) {
        let method = Method::pick(random);
        let name = random.pick(&VOLUMES);
        let on = On { using: &self.uses[name], sort: Sort::of(name), name, clients };
        let ended = match method {
            Method::CreateVolume => on.create(random).await,
            Method::RestoreVolume => {
                let source = random.pick(on.sort.snapshots());
                on.copy(random, from_snapshot(Core::snapshot_id(source).as_str())).await
            }
            Method::CloneVolume => {
                let source = random.pick(&on.sort.volumes());
                on.copy(random, from_volume(Core::volume_id(source).as_str())).await
            }
            Method::DeleteVolume => on.delete(random).await,
            Method::CreateSnapshot => on.snapshot(random).await,
            Method::DeleteSnapshot => on.delete_snapshot(random).await,
            Method::CreateGroup => on.group(random).await,
            Method::DeleteGroup => on.delete_group(random).await,
            Method::ControllerExpand => on.expand(random).await,
            Method::ControllerModify => on.modify(random).await,
            Method::Attach => on.attach(random).await,
            Method::Detach => on.detach(random).await,
            Method::ListVolumes => on.list().await,
            Method::GetVolume => on.get(random).await,
            Method::Validate => on.validate(random).await,
            Method::GetCapacity => on.capacity(random).await,
            Method::Stage => on.stage(random).await,
            Method::Unstage => on.unstage(random).await,
            Method::Publish => on.publish(random).await,
            Method::Unpublish => on.unpublish(random).await,
            Method::Stats => on.stats(random).await,
        };
        (method, ended)
    }
}

/// One volume and the connection to call over.
struct On<'a> {
    name: &'static str,
    sort: Sort,
    using: &'a Use,
    clients: &'a Clients,
}

type Ended = Result<(), Status>;

impl On<'_> {
    fn id(&self) -> String {
        self.using.id.clone()
    }

    fn controller(&self) -> ControllerClient<Channel> {
        self.clients.controller.clone()
    }

    fn node(&self) -> NodeClient<Channel> {
        self.clients.node.clone()
    }

    async fn create(&self, random: &mut Random) -> Ended {
        let mut message = create_request(self.name, random.pick(&[32, 48]) * MIB, self.sort.capability());
        if self.sort == Sort::Directory {
            message.parameters = map([("kind", "directory")]);
        }
        self.controller().create_volume(request(random, message)).await.map(drop)
    }

    /// Larger than any source can have become.
    async fn copy(&self, random: &mut Random, source: Option<VolumeContentSource>) -> Ended {
        let mut message = create_request(self.name, 80 * MIB, self.sort.capability());
        message.volume_content_source = source;
        self.controller().create_volume(request(random, message)).await.map(drop)
    }

    async fn delete(&self, random: &mut Random) -> Ended {
        let message = DeleteVolumeRequest { volume_id: self.id(), ..Default::default() };
        self.controller().delete_volume(request(random, message)).await.map(drop)
    }

    async fn snapshot(&self, random: &mut Random) -> Ended {
        let name = random.pick(self.sort.snapshots()).to_owned();
        let message = CreateSnapshotRequest { name, source_volume_id: self.id(), ..Default::default() };
        self.controller().create_snapshot(request(random, message)).await.map(drop)
    }

    async fn delete_snapshot(&self, random: &mut Random) -> Ended {
        let snapshot_id = Core::snapshot_id(random.pick(&SNAPSHOTS)).into_string();
        let message = DeleteSnapshotRequest { snapshot_id, ..Default::default() };
        self.controller().delete_snapshot(request(random, message)).await.map(drop)
    }

    async fn group(&self, random: &mut Random) -> Ended {
        let others: Vec<&str> = VOLUMES.into_iter().filter(|name| *name != self.name).collect();
        let other = Core::volume_id(random.pick(&others)).into_string();
        let name = random.pick(&GROUPS).to_owned();
        let source_volume_ids = vec![self.id(), other];
        let message = CreateVolumeGroupSnapshotRequest { name, source_volume_ids, ..Default::default() };
        self.clients.group.clone().create_volume_group_snapshot(request(random, message)).await.map(drop)
    }

    async fn delete_group(&self, random: &mut Random) -> Ended {
        let group = group_members(random.pick(&GROUPS));
        let snapshot_ids = group.snapshots.into_iter().map(|snapshot| snapshot.snapshot_id).collect();
        let group_snapshot_id = group.group_snapshot_id;
        let message = DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
        self.clients.group.clone().delete_volume_group_snapshot(request(random, message)).await.map(drop)
    }

    async fn expand(&self, random: &mut Random) -> Ended {
        let range = CapacityRange { required_bytes: bytes(random.pick(&[40, 56, 72])), limit_bytes: 0 };
        let capacity_range = Some(range);
        let message = ControllerExpandVolumeRequest { volume_id: self.id(), capacity_range, ..Default::default() };
        self.controller().controller_expand_volume(request(random, message)).await.map(drop)
    }

    async fn modify(&self, random: &mut Random) -> Ended {
        let changes = [("readAheadKiB", "256"), ("directIo", "false"), ("provisioning", "thick")];
        let mutable_parameters = map([random.pick(&changes)]);
        let message = ControllerModifyVolumeRequest { volume_id: self.id(), mutable_parameters, ..Default::default() };
        self.controller().controller_modify_volume(request(random, message)).await.map(drop)
    }

    async fn attach(&self, random: &mut Random) -> Ended {
        let message = ControllerPublishVolumeRequest {
            volume_id: self.id(),
            node_id: NODE.to_owned(),
            volume_capability: Some(self.using.capability.clone()),
            ..Default::default()
        };
        self.controller().controller_publish_volume(request(random, message)).await.map(drop)
    }

    async fn detach(&self, random: &mut Random) -> Ended {
        let node_id = NODE.to_owned();
        let message = ControllerUnpublishVolumeRequest { volume_id: self.id(), node_id, ..Default::default() };
        self.controller().controller_unpublish_volume(request(random, message)).await.map(drop)
    }

    async fn list(&self) -> Ended {
        let page = ask::list(self.clients, 3, "").await?;
        // A token outlives the volumes it was made of (LOCAL-R15).
        if page.next_token.is_empty() { Ok(()) } else { ask::list(self.clients, 3, &page.next_token).await.map(drop) }
    }

    async fn get(&self, random: &mut Random) -> Ended {
        let message = ControllerGetVolumeRequest { volume_id: self.id() };
        self.controller().controller_get_volume(request(random, message)).await.map(drop)
    }

    async fn validate(&self, random: &mut Random) -> Ended {
        let volume_capabilities = vec![self.using.capability.clone()];
        let message =
            ValidateVolumeCapabilitiesRequest { volume_id: self.id(), volume_capabilities, ..Default::default() };
        self.controller().validate_volume_capabilities(request(random, message)).await.map(drop)
    }

    async fn capacity(&self, random: &mut Random) -> Ended {
        self.controller().get_capacity(request(random, GetCapacityRequest::default())).await.map(drop)
    }

    async fn stage(&self, random: &mut Random) -> Ended {
        self.node().node_stage_volume(request(random, ask::stage_request(self.using))).await.map(drop)
    }

    async fn unstage(&self, random: &mut Random) -> Ended {
        let staging_target_path = text(&self.using.staging);
        let message = NodeUnstageVolumeRequest { volume_id: self.id(), staging_target_path };
        self.node().node_unstage_volume(request(random, message)).await.map(drop)
    }

    async fn publish(&self, random: &mut Random) -> Ended {
        self.node().node_publish_volume(request(random, ask::publish_request(self.using))).await.map(drop)
    }

    async fn unpublish(&self, random: &mut Random) -> Ended {
        let message = NodeUnpublishVolumeRequest { volume_id: self.id(), target_path: text(&self.using.target) };
        self.node().node_unpublish_volume(request(random, message)).await.map(drop)
    }

    async fn stats(&self, random: &mut Random) -> Ended {
        let volume_path = text(&self.using.target);
        let message = NodeGetVolumeStatsRequest { volume_id: self.id(), volume_path, ..Default::default() };
        self.node().node_get_volume_stats(request(random, message)).await.map(drop)
    }
}
