//! Attaching, and the Node service on a model machine.

use std::path::Path;

use csi::v1;
use runtime::csi::Driver;
use runtime::time::VirtualClock;
use runtime::{Metrics, Stopper};
use v1::volume_capability::access_mode::Mode;
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::attach::DEVICE;
use super::*;
use crate::machine::Machine;
use crate::{Odds, Seed, Setup, simulate};

const WAIT: Duration = Duration::from_secs(10);

fn attaching() -> Habits {
    Habits { attach: Attach::Required, per_node: 2, ..Habits::fair() }
}

fn capability(mode: Mode, block: bool) -> Option<v1::VolumeCapability> {
    let access_type = Some(match block {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume::default()),
    });
    Some(v1::VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type })
}

fn publish(volume: &str, node: &str, mode: Mode) -> v1::ControllerPublishVolumeRequest {
    let (volume_id, node_id, volume_capability) = (volume.to_owned(), node.to_owned(), capability(mode, false));
    v1::ControllerPublishVolumeRequest { volume_id, node_id, volume_capability, ..Default::default() }
}

fn unpublish(volume: &str, node: &str) -> v1::ControllerUnpublishVolumeRequest {
    let (volume_id, node_id) = (volume.to_owned(), node.to_owned());
    v1::ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() }
}

fn stage(volume: &str, path: &str) -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: volume.to_owned(),
        publish_context: [(DEVICE.to_owned(), "any".to_owned())].into(),
        staging_target_path: path.to_owned(),
        volume_capability: capability(Mode::SingleNodeWriter, false),
        ..Default::default()
    }
}

fn publish_at(volume: &str, staged: &str, target: &str) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: volume.to_owned(),
        publish_context: [(DEVICE.to_owned(), "any".to_owned())].into(),
        staging_target_path: staged.to_owned(),
        target_path: target.to_owned(),
        volume_capability: capability(Mode::SingleNodeWriter, false),
        ..Default::default()
    }
}

/// A driver with three volumes on two machines, and clients of the controller and of the first machine.
struct Stage {
    model: Model,
    machine: Machine,
    controller: Driver,
    node: Driver,
}

fn on_stage<T: Send>(seed: Seed, habits: Habits, play: impl AsyncFnOnce(&Stage) -> T + Send) -> T {
    let scenario = async |world: World| {
        let model = Model::new(&world, habits, State::new(&[], 1 << 40));
        ["vol-1", "vol-2", "vol-3"].iter().for_each(|id| model.tamper(|state| state.put(id, 1 << 30)));
        let [machine, other] = ["node-a", "node-b"].map(|name| Machine::new(&world, name));
        let (side, _) = (model.on(&machine, None), model.on(&other, None));
        machine.with_kernel(|kernel| {
            kernel.make_directory(Path::new("/staged"), 0o750).expect("it is made");
            kernel.make_directory(Path::new("/pods"), 0o750).expect("it is made");
        });
        let clock = VirtualClock::starting_at(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let metrics = Metrics::new(&clock);
        let controller = Driver::new(model.clone(), runtime::csi::Options::default(), &metrics);
        let options = runtime::csi::Options::on_node();
        let node = Driver::new(side, options, &metrics);
        let stage = Stage { model, machine, controller, node };
        let (stopper, stop) = Stopper::new();
        let playing = async {
            let _ = tokio::join!(stage.controller.ready(), stage.node.ready());
            let out = play(&stage).await;
            stopper.stop();
            out
        };
        let (_, _, out) = tokio::join!(stage.controller.run(&stop), stage.node.run(&stop), playing);
        out
    };
    simulate(seed, Setup::default(), scenario).expect("a world can be made")
}

#[test]
fn a_single_node_volume_is_on_one_node_and_a_node_has_so_many_volumes() {
    on_stage(Seed(1), attaching(), async |stage| {
        let Stage { model, controller, .. } = stage;
        let ask = async |volume: &str, node: &str, mode| {
            let answer = controller.controller_publish_volume(publish(volume, node, mode), WAIT).await;
            answer.map(|answer| answer.publish_context[DEVICE].clone()).map_err(|error| error.code().expect("a code"))
        };
        let one = Mode::SingleNodeWriter;
        assert_eq!(ask("vol-1", "node-a", one).await, Ok("/dev/sim/vol-1".to_owned()));
        assert_eq!(ask("vol-1", "node-a", one).await, Ok("/dev/sim/vol-1".to_owned()), "it is idempotent");
        assert_eq!(ask("vol-1", "node-a", Mode::MultiNodeReaderOnly).await, Err(Code::AlreadyExists));
        assert_eq!(ask("vol-1", "node-b", one).await, Err(Code::FailedPrecondition));
        assert_eq!(ask("vol-1", "node-c", one).await, Err(Code::NotFound));
        assert_eq!(ask("vol-9", "node-a", one).await, Err(Code::NotFound));
        for node in ["node-a", "node-b"] {
            ask("vol-2", node, Mode::MultiNodeMultiWriter).await.expect("it may be on many nodes");
        }
        assert_eq!(ask("vol-3", "node-a", one).await, Err(Code::ResourceExhausted));
        let listed = controller.list_volumes(v1::ListVolumesRequest::default(), WAIT).await.expect("it lists");
        let nodes: Vec<_> = listed.entries.into_iter().filter_map(|entry| entry.status).collect();
        let nodes: Vec<_> = nodes.iter().map(|status| status.published_node_ids.join(" ")).collect();
        assert_eq!(nodes, ["node-a", "node-a node-b", ""]);
        let delete = v1::DeleteVolumeRequest { volume_id: "vol-1".to_owned(), ..Default::default() };
        let refused = controller.delete_volume(delete, WAIT).await.expect_err("it is published");
        assert_eq!(refused.code(), Some(Code::FailedPrecondition));
        for _ in 0..2 {
            controller.controller_unpublish_volume(unpublish("vol-1", "node-a"), WAIT).await.expect("it is idempotent");
        }
        ask("vol-1", "node-b", one).await.expect("it is free");
        model.tamper(|state| assert!(state.is_published("vol-1", "node-b")));
    });
}

#[test]
fn a_volume_goes_to_a_pod_and_back_in_the_order_of_csi() {
    on_stage(Seed(1), attaching(), async |stage| {
        let Stage { controller, node, machine, .. } = stage;
        let code = |error: runtime::csi::CallError| error.code();
        let early = node.node_stage_volume(stage_request(), WAIT).await.map_err(code);
        assert_eq!(early, Err(Some(Code::FailedPrecondition)), "it is not published");
        let one = publish("vol-1", "node-a", Mode::SingleNodeWriter);
        controller.controller_publish_volume(one, WAIT).await.expect("it is free");
        let unstaged = node.node_publish_volume(publish_at("vol-1", "/staged", "/pods/1"), WAIT).await.map_err(code);
        assert_eq!(unstaged, Err(Some(Code::FailedPrecondition)), "it is not staged");
        for _ in 0..2 {
            node.node_stage_volume(stage_request(), WAIT).await.expect("it is idempotent");
            node.node_publish_volume(publish_at("vol-1", "/staged", "/pods/1"), WAIT).await.expect("it is idempotent");
        }
        let mounts = machine.with_kernel(|kernel| kernel.mounts());
        let copies: Vec<_> = mounts.copies(Path::new("/staged")).map(|mount| mount.point.clone()).collect();
        assert_eq!(copies, [Path::new("/pods/1")]);
        let stats = v1::NodeGetVolumeStatsRequest {
            volume_id: "vol-1".to_owned(),
            volume_path: "/pods/1".to_owned(),
            ..Default::default()
        };
        assert_eq!(node.node_get_volume_stats(stats, WAIT).await.expect("it is there").usage[0].total, 1 << 30);
        let (volume_id, target_path) = ("vol-1".to_owned(), "/pods/1".to_owned());
        let back = v1::NodeUnpublishVolumeRequest { volume_id, target_path };
        let unstage =
            v1::NodeUnstageVolumeRequest { volume_id: "vol-1".to_owned(), staging_target_path: "/staged".to_owned() };
        for _ in 0..2 {
            node.node_unpublish_volume(back.clone(), WAIT).await.expect("it is idempotent");
            node.node_unstage_volume(unstage.clone(), WAIT).await.expect("it is idempotent");
        }
        machine.with_kernel(|kernel| {
            assert!(!is_on(kernel, "vol-1"));
            assert_eq!(kernel.list(Path::new("/pods")), Ok(Vec::new()));
        });
    });
}

fn stage_request() -> v1::NodeStageVolumeRequest {
    stage("vol-1", "/staged")
}

#[test]
fn a_block_volume_is_a_device_in_a_file() {
    let habits = Habits { attach: Attach::Not, ..Habits::fair() };
    on_stage(Seed(1), habits, async |stage| {
        let Stage { node, machine, .. } = stage;
        let block = capability(Mode::SingleNodeWriter, true);
        let request = v1::NodeStageVolumeRequest { volume_capability: block.clone(), ..stage_request() };
        node.node_stage_volume(request, WAIT).await.expect("nothing has to be attached");
        let request = publish_at("vol-1", "/staged", "/pods/1");
        let request = v1::NodePublishVolumeRequest { volume_capability: block, ..request };
        for _ in 0..2 {
            node.node_publish_volume(request.clone(), WAIT).await.expect("it is idempotent");
        }
        machine.with_kernel(|kernel| {
            assert_eq!(kernel.hold(Path::new("/pods/1")), Ok("/dev/loop0".into()));
            assert_eq!(kernel.unmount(Path::new("/pods/1"), ::node::host::Force::No), Err(rustix::io::Errno::BUSY));
            kernel.let_go(Path::new("/pods/1")).expect("it is held");
        });
        let (volume_id, target_path) = ("vol-1".to_owned(), "/pods/1".to_owned());
        node.node_unpublish_volume(v1::NodeUnpublishVolumeRequest { volume_id, target_path }, WAIT)
            .await
            .expect("done");
        machine.with_kernel(|kernel| assert!(is_on(kernel, "vol-1"), "it is still staged"));
    });
}

#[test]
fn what_is_under_way_on_a_machine_ends_with_its_power() {
    let slow = Habits { slow: Odds::of_10_000(10_000), slowness: 5 * WAIT..=5 * WAIT, ..Habits::fair() };
    on_stage(Seed(1), slow, async |stage| {
        let Stage { node, machine, .. } = stage;
        let staging = node.node_stage_volume(stage_request(), 6 * WAIT);
        let power = async {
            sleep(WAIT).await;
            machine.reboot();
        };
        let (staged, ()) = tokio::join!(staging, power);
        assert_eq!(staged.expect_err("the machine went").code(), Some(Code::Unavailable));
        sleep(10 * WAIT).await;
        machine.with_kernel(|kernel| assert!(!is_on(kernel, "vol-1")));
    });
}
