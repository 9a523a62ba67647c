//! Programs that are not installed.

use std::process::{Command, Stdio};

use tonic::Code;

use super::holders::leave_others_devices;
use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{Driver, MIB, NODE, Scratch, run};

/// A driver to which some programs look as if they were not installed. Its mounts are its own, so nothing is staged.
fn driver_without(scratch: &Scratch, tools: &[&str]) -> Driver {
    let hide: Vec<String> =
        tools.iter().map(|tool| format!("mount --bind /dev/null \"$(command -v {tool})\" || exit 3; ")).collect();
    let socket = scratch.path("csi.sock");
    let script = format!("{}{}exec \"$@\"", leave_others_devices(&scratch.path("")), hide.concat());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_orlop")).args(["driver", "--node-id", NODE]).arg("--endpoint").arg(&socket);
    command.arg("--pool").arg(scratch.path("pool")).stdout(Stdio::null());
    Driver::launch(command, socket).unwrap_or_else(|log| panic!("{log}"))
}

#[test]
fn a_filesystem_without_its_tools_is_refused_by_package_and_the_others_work() {
    needs!(Ext4, Xfs, Btrfs);
    let scratch = Scratch::new();
    scratch.plain_pool();
    let world = World { driver: driver_without(&scratch, &["mkfs.xfs", "btrfs"]), scratch };
    run(async {
        let clients = world.clients().await;
        let xfs = create(&clients, "x", 300 * MIB, mount("xfs")).await;
        refused(xfs, Code::InvalidArgument, &["xfs", "mkfs.xfs is not installed", "package xfsprogs"]);
        let btrfs = create(&clients, "b", 300 * MIB, mount("btrfs")).await;
        refused(btrfs, Code::InvalidArgument, &["btrfs", "package btrfs-progs"]);
        world.scratch.assert_pool_holds(0, 0, 0);
        for (name, capability) in [("e", mount("ext4")), ("raw", block())] {
            let volume = create(&clients, name, 32 * MIB, capability).await.unwrap();
            delete(&clients, &volume.volume_id).await.unwrap();
        }
    });
    world.end_clean();
}
