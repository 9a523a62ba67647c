//! The steps that scenarios are made of: every mutating call, and what a workload does with its data.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use csi::v1::*;
use driver_local::core::Core;
use driver_sdk::testing::Clients;
use linux::fs::{Probe, probe};
use tonic::Status;

use crate::rig::call::{self, Use, map};
use crate::rig::world::{World, fs_bytes};
use crate::rig::{MIB, ask};

/// How a volume is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Ext4,
    /// ext4 with all its space reserved.
    Thick,
    Xfs,
    Block,
    /// A directory; on btrfs that is a subvolume.
    Directory,
    /// ext4 that lives from publishing to unpublishing.
    Inline,
    InlineBlock,
}

/// A volume of a scenario, known by its name before the driver has ever heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Vol {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) mib: u64,
}

/// Where a new volume has its data from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    Nothing,
    Snapshot(&'static str),
    Volume(Vol),
}

/// One step. The calls come first, then what the test itself does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create(Vol, From),
    Delete(Vol),
    Snapshot(&'static str, Vol),
    DeleteSnapshot(&'static str),
    Group(&'static str, Vec<Vol>),
    DeleteGroup(&'static str, usize),
    /// To this many MiB.
    Expand(Vol, u64),
    NodeExpand(Vol),
    /// To thick, with another read-ahead.
    Modify(Vol),
    Attach(Vol),
    Detach(Vol),
    Stage(Vol),
    Unstage(Vol),
    Publish(Vol),
    PublishReadonly(Vol),
    Unpublish(Vol),
    /// Publishes a volume that exists only by this call; [`Step::Unpublish`] ends it.
    PublishInline(Vol),

    /// Writes the data called so through the published volume.
    Fill(Vol, &'static str),
    /// The published volume holds the data called so, byte for byte.
    Holds(Vol, &'static str),
    /// The published filesystem has about this many MiB.
    HasRoom(Vol, u64),
    /// The two filesystems have different UUIDs.
    OwnIdentity(Vol, Vol),
    /// The image has all its blocks, and its device the read-ahead that [`Step::Modify`] set.
    IsModified(Vol),
}

/// What a call answered. Times are apart, because only they may differ between two runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) created: Vec<(i64, i32)>,
}

impl Answer {
    fn of(response: impl std::fmt::Debug) -> Self {
        Self { text: format!("{response:?}"), created: Vec::new() }
    }

    fn of_snapshots(id: &str, snapshots: impl IntoIterator<Item = Snapshot>) -> Self {
        let mut answer = Self { text: id.to_owned(), created: Vec::new() };
        for mut snapshot in snapshots {
            let time = snapshot.creation_time.take().expect("a snapshot has a time");
            answer.created.push((time.seconds, time.nanos));
            answer.text.push_str(&format!(" {snapshot:?}"));
        }
        answer
    }
}

pub(crate) const READ_AHEAD_KIB: &str = "512";

impl Vol {
    pub(crate) fn id(self) -> String {
        match self.shape {
            Shape::Inline | Shape::InlineBlock => self.name.to_owned(),
            _ => Core::volume_id(self.name).into_string(),
        }
    }

    pub(crate) fn is_inline(self) -> bool {
        matches!(self.shape, Shape::Inline | Shape::InlineBlock)
    }

    pub(crate) fn using(self, world: &World) -> Use {
        Use::new(&world.scratch, &self.id(), self.capability())
    }

    fn capability(self) -> VolumeCapability {
        match self.shape {
            Shape::Ext4 | Shape::Thick | Shape::Inline => call::mount("ext4"),
            Shape::Xfs => call::mount("xfs"),
            Shape::Directory => call::mount(""),
            Shape::Block | Shape::InlineBlock => call::block(),
        }
    }

    fn create(self, from: From) -> CreateVolumeRequest {
        let mut request = call::create_request(self.name, self.mib * MIB, self.capability());
        request.parameters = match self.shape {
            Shape::Thick => map([("provisioning", "thick")]),
            Shape::Directory => map([("kind", "directory")]),
            _ => map([]),
        };
        request.volume_content_source = match from {
            From::Nothing => None,
            From::Snapshot(name) => call::from_snapshot(&snapshot_id(name)),
            From::Volume(source) => call::from_volume(&source.id()),
        };
        request
    }

    /// The file that holds the workload's data, or the device itself.
    fn data(self, world: &World) -> PathBuf {
        let target = self.using(world).target;
        match self.shape {
            Shape::Block | Shape::InlineBlock => target,
            _ => target.join("data"),
        }
    }

    /// As much data as shows torn copies, and fits.
    fn data_bytes(self) -> usize {
        let bytes = match self.shape {
            // Copies note their progress every 16 MiB.
            Shape::Block if self.mib > 32 => 36 * MIB,
            _ => 4 * MIB,
        };
        usize::try_from(bytes).unwrap()
    }
}

pub(crate) fn snapshot_id(name: &str) -> String {
    Core::snapshot_id(name).into_string()
}

fn group(name: &str, members: usize) -> VolumeGroupSnapshot {
    let group_snapshot_id = Core::group_id(name).into_string();
    let member = |number| Snapshot { snapshot_id: format!("{group_snapshot_id}.{number}"), ..Default::default() };
    VolumeGroupSnapshot { snapshots: (0..members).map(member).collect(), group_snapshot_id, ..Default::default() }
}

/// Bytes that look random, are always the same for one seed, and differ from page to page.
fn pattern(seed: &str, length: usize) -> Vec<u8> {
    const PAGE: usize = 4096;
    let start = 0x9e37_79b9_7f4a_7c15_u64;
    let mut state = seed.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut page = Vec::with_capacity(PAGE);
    while page.len() < PAGE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        page.extend_from_slice(&state.to_le_bytes());
    }
    let mut bytes = page.repeat(length / PAGE);
    for (number, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}

impl Step {
    /// Does the step. A call answers or is refused; a check of the test's own panics.
    pub(crate) async fn run(&self, world: &World, clients: &Clients) -> Result<Answer, Status> {
        match self {
            Self::Create(vol, from) => call::create_with(clients, vol.create(*from)).await.map(Answer::of),
            Self::Delete(vol) => call::delete(clients, &vol.id()).await.map(Answer::of),
            Self::Snapshot(name, vol) => {
                let snapshot = call::snapshot(clients, name, &vol.id()).await?;
                Ok(Answer::of_snapshots("", [snapshot]))
            }
            Self::DeleteSnapshot(name) => call::delete_snapshot(clients, &snapshot_id(name)).await.map(Answer::of),
            Self::Group(name, vols) => {
                let ids: Vec<String> = vols.iter().map(|vol| vol.id()).collect();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                let group = ask::create_group(clients, name, &ids).await?;
                Ok(Answer::of_snapshots(&group.group_snapshot_id, group.snapshots))
            }
            Self::DeleteGroup(name, members) => {
                ask::delete_group(clients, &group(name, *members)).await.map(Answer::of)
            }
            Self::Expand(vol, mib) => call::expand(clients, &vol.id(), mib * MIB).await.map(Answer::of),
            Self::NodeExpand(vol) => {
                call::node_expand(clients, &vol.id(), &vol.using(world).target).await.map(Answer::of)
            }
            Self::Modify(vol) => {
                let changes = map([("provisioning", "thick"), ("readAheadKiB", READ_AHEAD_KIB)]);
                ask::modify(clients, &vol.id(), changes).await.map(Answer::of)
            }
            Self::Attach(vol) => call::attach(clients, &vol.using(world)).await.map(Answer::of),
            Self::Detach(vol) => call::detach(clients, &vol.id()).await.map(Answer::of),
            Self::Stage(vol) => call::stage(clients, &vol.using(world)).await.map(Answer::of),
            Self::Unstage(vol) => call::unstage(clients, &vol.using(world)).await.map(Answer::of),
            Self::Publish(vol) => call::publish(clients, &vol.using(world)).await.map(Answer::of),
            Self::PublishReadonly(vol) => call::publish(clients, &vol.using(world).readonly()).await.map(Answer::of),
            Self::Unpublish(vol) => call::unpublish(clients, &vol.using(world)).await.map(Answer::of),
            Self::PublishInline(vol) => {
                let attributes = map([("size", "32Mi")]);
                ask::publish_with(clients, ask::inline_request(&vol.using(world), attributes)).await.map(Answer::of)
            }
            Self::Fill(..) | Self::Holds(..) | Self::HasRoom(..) | Self::OwnIdentity(..) | Self::IsModified(_) => {
                self.look(world);
                Ok(Answer::default())
            }
        }
    }

    fn look(&self, world: &World) {
        match self {
            Self::Fill(vol, seed) => {
                let mut file = File::options()
                    .write(true)
                    .create(vol.shape != Shape::Block)
                    .truncate(false)
                    .open(vol.data(world))
                    .unwrap();
                file.write_all(&pattern(seed, vol.data_bytes())).unwrap();
                file.sync_all().unwrap();
            }
            Self::Holds(vol, seed) => {
                let found = fs::read(vol.data(world)).unwrap();
                assert!(
                    found.starts_with(&pattern(seed, vol.data_bytes())),
                    "the data of {} is not {seed:?}",
                    vol.name
                );
            }
            Self::HasRoom(vol, mib) => {
                let found = fs_bytes(&vol.using(world).target) / MIB;
                assert!(found > mib * 3 / 4, "the filesystem of {} has {found} MiB and its device {mib}", vol.name);
            }
            Self::OwnIdentity(one, other) => {
                let uuid = |vol: &Vol| match probe(&world.image(&vol.id())).unwrap() {
                    Probe::Known(_, uuid) => uuid,
                    odd => panic!("{} holds {odd:?}", vol.name),
                };
                assert_ne!(uuid(one), uuid(other), "two filesystems with one identity");
            }
            Self::IsModified(vol) => {
                assert!(
                    crate::rig::world::on_disk(&world.image(&vol.id())) >= vol.mib * MIB,
                    "not all blocks are there"
                );
                let sys = format!("/sys/block/loop{}/queue/read_ahead_kb", world.device(&vol.id()).device.index);
                assert_eq!(fs::read_to_string(sys).unwrap().trim(), READ_AHEAD_KIB);
            }
            call => unreachable!("{call:?} is a call"),
        }
    }

    /// Times of what this call would make, if it is there already.
    pub(crate) async fn committed(&self, clients: &Clients) -> Vec<(i64, i32)> {
        let snapshots: Vec<Snapshot> = match self {
            Self::Snapshot(name, _) => {
                let request = ListSnapshotsRequest { snapshot_id: snapshot_id(name), ..Default::default() };
                let page = clients.controller.clone().list_snapshots(request).await.unwrap().into_inner();
                page.entries.into_iter().filter_map(|entry| entry.snapshot).collect()
            }
            Self::Group(name, vols) => match ask::get_group(clients, &group(name, vols.len())).await {
                Ok(group) => group.snapshots,
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::NotFound, "{status:?}");
                    Vec::new()
                }
            },
            _ => Vec::new(),
        };
        Answer::of_snapshots("", snapshots).created
    }

    pub(crate) fn vols(&self) -> Vec<Vol> {
        match self {
            Self::Group(_, vols) => vols.clone(),
            Self::DeleteSnapshot(_) | Self::DeleteGroup(..) => Vec::new(),
            Self::OwnIdentity(one, other) => vec![*one, *other],
            Self::Create(vol, _)
            | Self::Delete(vol)
            | Self::Snapshot(_, vol)
            | Self::Expand(vol, _)
            | Self::NodeExpand(vol)
            | Self::Modify(vol)
            | Self::Attach(vol)
            | Self::Detach(vol)
            | Self::Stage(vol)
            | Self::Unstage(vol)
            | Self::Publish(vol)
            | Self::PublishReadonly(vol)
            | Self::Unpublish(vol)
            | Self::PublishInline(vol)
            | Self::Fill(vol, _)
            | Self::Holds(vol, _)
            | Self::HasRoom(vol, _)
            | Self::IsModified(vol) => vec![*vol],
        }
    }

    /// The call that removes the snapshots this step may have made.
    pub(crate) fn removal(&self) -> Option<Step> {
        match self {
            Self::Snapshot(name, _) => Some(Self::DeleteSnapshot(name)),
            Self::Group(name, vols) => Some(Self::DeleteGroup(name, vols.len())),
            _ => None,
        }
    }
}
