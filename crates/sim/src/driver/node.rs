//! The driver's side on one machine: the Node service, whose effects are mounts and devices of that machine.
//!
//! A volume is the device `/dev/sim/<id>` of a machine; a filesystem volume is a filesystem of that source. Its calls meet
//! the same faults as those to the backend. Two calls for a volume on one machine do not work at once, and what is under
//! way ends with the machine's power.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use csi::v1;
use futures_util::future::BoxFuture;
use node::host::{Access, Force};
use runtime::csi::{Connection, Dial};
use runtime::watch;
use rustix::io::Errno;
use tokio::time::sleep;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use v1::identity_server::IdentityServer;
use v1::node_server::{Node, NodeServer};
use v1::node_service_capability::{self as capability, rpc::Type as Rpc};
use v1::volume_capability::AccessType;

use super::attach::{DEVICE, device};
use super::disk::{SyncAnswer, VolumeUse, Writeback};
use super::{Answer, Attach, Call, Door, Found, Model, Places, Staging, Up, no_connection};
use crate::keys;
use crate::machine::{Kernel, Machine, Node as FileNode, Owner, Power, Superblock};

const STAGE: &str = "NodeStageVolume";
const UNSTAGE: &str = "NodeUnstageVolume";
const PUBLISH: &str = "NodePublishVolume";
const UNPUBLISH: &str = "NodeUnpublishVolume";
const EXPAND: &str = "NodeExpandVolume";
const STATS: &str = "NodeGetVolumeStats";
const INFO: &str = "NodeGetInfo";

/// The driver on one machine. Clones are the same.
#[derive(Debug, Clone)]
pub struct NodeSide {
    model: Model,
    machine: Machine,
    /// The zone that the machine is in.
    zone: Option<String>,
    up: Arc<watch::Sender<Up>>,
}

/// What one call on a machine needs to take effect.
#[derive(Debug, Clone)]
struct Site {
    side: NodeSide,
    power: Power,
}

impl Model {
    /// The driver's side on a machine, which the backend knows by the machine's name from now on.
    pub fn on(&self, machine: &Machine, zone: Option<&str>) -> NodeSide {
        self.lock().state.know_node(machine.name());
        let up = Arc::new(watch::Sender::new(Up::Listening));
        NodeSide { model: self.clone(), machine: machine.clone(), zone: zone.map(str::to_owned), up }
    }
}

impl NodeSide {
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Comes and goes, until the world is calm; then it stays, for ever.
    pub async fn live_then_rest(&self) {
        let habits = self.model.shared.habits.clone();
        while !self.model.shared.weather.is_calm() {
            let (stay, leave) = {
                let random = &mut self.model.lock().random;
                (random.between(&habits.up), random.between(&habits.down))
            };
            sleep(stay).await;
            if self.model.shared.weather.is_calm() {
                break;
            }
            self.note("gone");
            self.up.send_replace(Up::Gone);
            sleep(leave).await;
            self.note("back");
            self.up.send_replace(Up::Listening);
        }
        std::future::pending().await
    }

    fn note(&self, what: &str) {
        self.model.note(format_args!("on {} {what}", self.machine.name()));
    }

    fn is_there(&self) -> bool {
        self.machine.power() != Power::Off && *self.up.borrow() == Up::Listening
    }

    /// Resolves when nobody listens any more.
    fn gone(&self) -> BoxFuture<'static, ()> {
        let (mut up, mut power) = (self.up.subscribe(), self.machine.powers());
        Box::pin(async move {
            // The senders live as long as the driver and the machine; if one is gone, so is the connection.
            tokio::select! {
                biased;
                _ = up.changed() => {}
                _ = power.changed() => {}
            }
        })
    }

    /// Takes in a call about a volume on this machine.
    async fn act<T: Send + 'static>(
        &self,
        (method, volume, found): (&'static str, &str, Found),
        effect: impl Fn(&Site) -> Result<T, Status> + Send + Sync + 'static,
    ) -> Result<T, Status> {
        if volume.is_empty() {
            return Err(Status::invalid_argument("which volume?"));
        }
        if !self.is_there() {
            return Err(no_connection());
        }
        let power = self.machine.power();
        // A driver that starts again knows nothing of what it was doing.
        let boot = match power {
            Power::On { boot } => boot,
            Power::Off => 0,
        };
        let object = format!("{volume} on {} (boot {boot})", self.machine.name());
        let site = Site { side: self.clone(), power };
        let effect = move |model: &Model| {
            if site.side.machine.power() != site.power {
                return Err(Status::unavailable("the machine is another one by now"));
            }
            let done = effect(&site);
            model.happened();
            done
        };
        let door = Door { open: self.is_there(), closed: self.gone() };
        self.model.answer_at(door, Call { method, object, found }, Box::new(effect)).await
    }

    async fn stage(&self, request: v1::NodeStageVolumeRequest) -> Result<v1::NodeStageVolumeResponse, Status> {
        let id = request.volume_id.clone();
        let call = (STAGE, &*id, self.found(&id));
        self.act(call, move |site| site.stage(&request).map(|()| v1::NodeStageVolumeResponse {})).await
    }

    async fn unstage(&self, request: v1::NodeUnstageVolumeRequest) -> Result<v1::NodeUnstageVolumeResponse, Status> {
        let id = request.volume_id.clone();
        let call = (UNSTAGE, &*id, Found::Whatever);
        self.act(call, move |site| site.unstage(&request).map(|()| v1::NodeUnstageVolumeResponse {})).await
    }

    async fn publish(&self, request: v1::NodePublishVolumeRequest) -> Result<v1::NodePublishVolumeResponse, Status> {
        let id = request.volume_id.clone();
        let target = PathBuf::from(&request.target_path);
        let mounted = self.machine.with_kernel(|kernel| kernel.mounts().at(&target).is_some());
        let call = (PUBLISH, &*id, if mounted { Found::Something } else { Found::Nothing });
        self.act(call, move |site| site.publish(&request).map(|()| v1::NodePublishVolumeResponse {})).await
    }

    async fn unpublish(
        &self,
        request: v1::NodeUnpublishVolumeRequest,
    ) -> Result<v1::NodeUnpublishVolumeResponse, Status> {
        let id = request.volume_id.clone();
        let call = (UNPUBLISH, &*id, Found::Whatever);
        self.act(call, move |site| site.unpublish(&request).map(|()| v1::NodeUnpublishVolumeResponse {})).await
    }

    async fn expand(&self, request: v1::NodeExpandVolumeRequest) -> Result<v1::NodeExpandVolumeResponse, Status> {
        let id = request.volume_id.clone();
        let effect = move |site: &Site| {
            let path = Path::new(&request.volume_path);
            if !site.shows(&request.volume_id, path) {
                return Err(Status::not_found(format!("{} is not at {}", request.volume_id, path.display())));
            }
            let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
            Ok(v1::NodeExpandVolumeResponse { capacity_bytes })
        };
        self.act((EXPAND, &*id, Found::Something), effect).await
    }

    async fn stats(&self, request: v1::NodeGetVolumeStatsRequest) -> Result<v1::NodeGetVolumeStatsResponse, Status> {
        let id = request.volume_id.clone();
        let effect = move |site: &Site| {
            let path = Path::new(&request.volume_path);
            let bytes = site.side.model.lock().state.get(&request.volume_id).map(|volume| volume.bytes);
            let Some(total) = bytes.filter(|_| site.shows(&request.volume_id, path)) else {
                return Err(Status::not_found(format!("{} is not at {}", request.volume_id, path.display())));
            };
            let unit = v1::volume_usage::Unit::Bytes.into();
            let usage = vec![v1::VolumeUsage { available: total / 2, total, used: total - total / 2, unit }];
            Ok(v1::NodeGetVolumeStatsResponse { usage, volume_condition: None })
        };
        self.act((STATS, &*id, Found::Something), effect).await
    }

    async fn info(&self, _: v1::NodeGetInfoRequest) -> Result<v1::NodeGetInfoResponse, Status> {
        if !self.is_there() {
            return Err(no_connection());
        }
        *self.model.lock().calls.entry(INFO).or_default() += 1;
        let habits = &self.model.shared.habits;
        let place = |zone: &String| v1::Topology { segments: [(keys::ZONE.to_owned(), zone.clone())].into() };
        let accessible_topology = match habits.places {
            Places::Zones => self.zone.as_ref().map(place),
            Places::None => None,
        };
        let (node_id, max_volumes_per_node) = (self.machine.name().to_owned(), habits.per_node.into());
        Ok(v1::NodeGetInfoResponse { node_id, max_volumes_per_node, accessible_topology })
    }

    async fn capabilities(&self, _: v1::NodeGetCapabilitiesRequest) -> Result<v1::NodeGetCapabilitiesResponse, Status> {
        let habits = &self.model.shared.habits;
        let mut rpcs = habits.node.clone();
        if habits.staging == Staging::Required {
            rpcs.insert(Rpc::StageUnstageVolume);
        }
        let one = |rpc: Rpc| v1::NodeServiceCapability {
            r#type: Some(capability::Type::Rpc(capability::Rpc { r#type: rpc.into() })),
        };
        Ok(v1::NodeGetCapabilitiesResponse { capabilities: rpcs.into_iter().map(one).collect() })
    }

    /// Whether anything of a volume is on this machine.
    fn found(&self, volume: &str) -> Found {
        match self.machine.with_kernel(|kernel| is_on(kernel, volume)) {
            true => Found::Something,
            false => Found::Nothing,
        }
    }
}

/// Whether a machine has a volume: its device, or its filesystem anywhere.
pub fn is_on(kernel: &Kernel, volume: &str) -> bool {
    let device = device(volume);
    let mounted = kernel.mounts().0.iter().any(|mount| *mount.source == *device);
    mounted || matches!(kernel.look(Path::new(&device)), Ok(Some(_)))
}

impl Site {
    /// Whether a path shows a volume.
    fn shows(&self, volume: &str, path: &Path) -> bool {
        let device = device(volume);
        self.side.machine.with_kernel(|kernel| {
            let there = |mount: &node::host::Mount| *mount.source == *device || *mount.root == *shown_device(volume);
            kernel.mounts().at(path).is_some_and(there)
        })
    }

    /// The volume exists and may be used here.
    fn usable(&self, volume: &str, context: Option<&String>) -> Result<(), Status> {
        let inner = self.side.model.lock();
        if inner.state.get(volume).is_none() {
            return Err(Status::not_found(format!("there is no volume {volume:?}")));
        }
        if self.side.model.shared.habits.attach == Attach::Not {
            return Ok(());
        }
        let node = self.side.machine.name();
        if context.is_none() || !inner.state.is_published(volume, node) {
            return Err(Status::failed_precondition(format!("{volume} is not published to {node}")));
        }
        Ok(())
    }

    fn change(&self, what: String, how: impl FnOnce(&mut Kernel) -> Result<(), Errno>) -> Result<(), Status> {
        self.side.machine.act(&what, how).map_err(|errno| Status::internal(format!("{what}: {errno}")))
    }

    fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        let (id, path) = (&*request.volume_id, Path::new(&request.staging_target_path));
        let access = access_type(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Status::invalid_argument("where?"));
        }
        self.usable(id, request.publish_context.get(DEVICE))?;
        let device = device(id);
        match access {
            AccessType::Mount(mount) => {
                if self.shows(id, path) {
                    return Ok(());
                }
                let fs_type = if mount.fs_type.is_empty() { "ext4" } else { &mount.fs_type };
                let what = format!("{device} is mounted at {}", path.display());
                self.change(what, |kernel| {
                    kernel.mount(Superblock { fs_type, source: &device }, path, Access::ReadWrite)
                })
            }
            AccessType::Block(_) => self.make_device(id),
        }
    }

    fn make_device(&self, id: &str) -> Result<(), Status> {
        let device = PathBuf::from(device(id));
        if self.side.machine.with_kernel(|kernel| matches!(kernel.look(&device), Ok(Some(_)))) {
            return Ok(());
        }
        self.change(format!("{} appears", device.display()), |kernel| {
            kernel.make_directory(device.parent().unwrap_or(Path::new("/dev")), 0o755)?;
            kernel.make(&device, FileNode::Device(Owner { mode: 0o660, group: 0 }))
        })
    }

    fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        let (id, path) = (&*request.volume_id, Path::new(&request.staging_target_path));
        self.flush(id, path)?;
        self.unmount(path)?;
        self.drop_device(id)
    }

    /// Writes to the disk what this machine has in memory of a volume. If that fails, the volume is marked and stays.
    fn flush(&self, id: &str, path: &Path) -> Result<(), Status> {
        let machine = &self.side.machine;
        let Power::On { boot } = self.power else { return Ok(()) };
        let works = match machine.with_kernel(|kernel| kernel.is_broken(&device(id))) {
            true => Writeback::Fails,
            false => Writeback::Works,
        };
        let at = VolumeUse { body: machine.body(), boot, volume: id.to_owned() };
        match self.side.model.sync(&at, works, self.shows(id, path)) {
            SyncAnswer::Written | SyncAnswer::LostAndTold => Ok(()),
            SyncAnswer::Lost => Err(Status::data_loss("writes were lost: writing the filesystem to its device failed")),
        }
    }

    fn drop_device(&self, id: &str) -> Result<(), Status> {
        let device = PathBuf::from(device(id));
        match self.side.machine.with_kernel(|kernel| matches!(kernel.look(&device), Ok(Some(_)))) {
            true => self.change(format!("{} goes", device.display()), |kernel| kernel.remove_file(&device)),
            false => Ok(()),
        }
    }

    fn unmount(&self, path: &Path) -> Result<(), Status> {
        // What a person mounted over the volume goes first, as with the local driver.
        let layers = |kernel: &mut Kernel| kernel.mounts().0.iter().filter(|mount| mount.point == path).count();
        for _ in 0..self.side.machine.with_kernel(layers) {
            self.change(format!("unmount {}", path.display()), |kernel| kernel.unmount(path, Force::No))?;
        }
        Ok(())
    }

    fn publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(), Status> {
        let v1::NodePublishVolumeRequest { volume_id: id, staging_target_path: staged, readonly, .. } = request;
        let target = Path::new(&request.target_path);
        let kind = access_type(request.volume_capability.as_ref())?;
        let access = if *readonly { Access::ReadOnly } else { Access::ReadWrite };
        self.usable(id, request.publish_context.get(DEVICE))?;
        if self.side.machine.with_kernel(|kernel| kernel.mounts().at(target).is_some()) {
            return match self.shows(id, target) {
                true => Ok(()),
                false => Err(Status::internal(format!("something else is at {}", target.display()))),
            };
        }
        let staging = self.side.model.shared.habits.staging == Staging::Required;
        let missing = || Err(Status::failed_precondition(format!("{id} is not staged")));
        match kind {
            AccessType::Mount(_) if staging && !self.shows(id, Path::new(staged)) => missing(),
            AccessType::Mount(_) if staging => self.show(Path::new(staged), target, access),
            AccessType::Mount(mount) => {
                let fs_type = if mount.fs_type.is_empty() { "ext4" } else { &mount.fs_type };
                let (device, what) = (device(id), format!("{id} is mounted at {}", target.display()));
                self.change(what, |kernel| {
                    make_target(kernel, target, FileNode::Directory(Owner { mode: 0o750, group: 0 }))?;
                    kernel.mount(Superblock { fs_type, source: &device }, target, access)
                })
            }
            AccessType::Block(_) => {
                if staging && self.side.found(id) == Found::Nothing {
                    return missing();
                }
                self.make_device(id)?;
                let (device, file) = (device(id), FileNode::File(Owner { mode: 0o660, group: 0 }, Vec::new()));
                self.change(format!("{device} is shown at {}", target.display()), |kernel| {
                    make_target(kernel, target, file)?;
                    kernel.bind(Path::new(&device), target, access)
                })
            }
        }
    }

    fn show(&self, staged: &Path, target: &Path, access: Access) -> Result<(), Status> {
        let what = format!("{} is shown at {}", staged.display(), target.display());
        self.change(what, |kernel| {
            make_target(kernel, target, FileNode::Directory(Owner { mode: 0o750, group: 0 }))?;
            kernel.bind(staged, target, access)
        })
    }

    fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let (id, target) = (&*request.volume_id, Path::new(&request.target_path));
        let direct = self.side.model.shared.habits.staging == Staging::Not;
        if direct {
            self.flush(id, target)?;
        }
        self.unmount(target)?;
        let node = self.side.machine.with_kernel(|kernel| kernel.look(target).map(|node| node.cloned()));
        match node {
            Ok(Some(FileNode::Directory(_))) => {
                self.change(format!("rmdir {}", target.display()), |kernel| kernel.remove_directory(target))?;
            }
            Ok(Some(_)) => self.change(format!("unlink {}", target.display()), |kernel| kernel.remove_file(target))?,
            Ok(None) => {}
            Err(errno) => return Err(Status::internal(format!("{}: {errno}", target.display()))),
        }
        let shown = self.side.machine.with_kernel(|kernel| {
            let mounts = kernel.mounts();
            mounts.0.iter().any(|mount| *mount.root == *shown_device(id))
        });
        if direct && !shown { self.drop_device(id) } else { Ok(()) }
    }
}

/// What the mount table calls the device of a volume that is shown somewhere.
fn shown_device(volume: &str) -> PathBuf {
    PathBuf::from(format!("/sim/{volume}"))
}

fn make_target(kernel: &mut Kernel, target: &Path, node: FileNode) -> Result<(), Errno> {
    match kernel.look(target)? {
        Some(_) => Ok(()),
        None => kernel.make(target, node),
    }
}

fn access_type(capability: Option<&v1::VolumeCapability>) -> Result<AccessType, Status> {
    let found = capability.and_then(|capability| capability.access_type.clone());
    found.ok_or_else(|| Status::invalid_argument("as what?"))
}

impl Dial for NodeSide {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async {
            if !self.is_there() {
                return Err("nobody listens on the socket".to_owned());
            }
            let identity = IdentityServer::new(self.model.clone());
            let routes = Routes::new(identity).add_service(NodeServer::new(self.clone()));
            let routes = routes.add_service(v1::controller_server::ControllerServer::new(self.model.clone()));
            Ok(Connection { channel: csi::in_memory(routes), lost: self.gone() })
        })
    }
}

macro_rules! node {
    ($($name:ident => $by:ident, $request:ident => $response:ident;)*) => {
        #[tonic::async_trait]
        impl Node for NodeSide {
            $(async fn $name(&self, request: Request<v1::$request>) -> Answer<v1::$response> {
                self.$by(request.into_inner()).await.map(Response::new)
            })*
        }
    };
}

node! {
    node_stage_volume => stage, NodeStageVolumeRequest => NodeStageVolumeResponse;
    node_unstage_volume => unstage, NodeUnstageVolumeRequest => NodeUnstageVolumeResponse;
    node_publish_volume => publish, NodePublishVolumeRequest => NodePublishVolumeResponse;
    node_unpublish_volume => unpublish, NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse;
    node_get_volume_stats => stats, NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse;
    node_expand_volume => expand, NodeExpandVolumeRequest => NodeExpandVolumeResponse;
    node_get_capabilities => capabilities, NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse;
    node_get_info => info, NodeGetInfoRequest => NodeGetInfoResponse;
}
