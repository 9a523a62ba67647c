//! No byte is promised twice, and none is lost (LOCAL-F.11).

use std::fs;

use csi::v1::{GetCapacityRequest, Topology, TopologyRequirement};
use driver_sdk::testing::Clients;
use linux::fs::FsType;
use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{GIB, MIB, NODE, Options, run};

const TOPOLOGY_KEY: &str = "topology.local.csi.orlop.dev/node";
/// Records and directories take a little space of their own.
const SMALL_CHANGE: u64 = 2 * MIB;

#[track_caller]
fn assert_near(got: u64, want: u64) {
    assert!(got.abs_diff(want) <= SMALL_CHANGE, "{got} is not about {want}");
}

/// As [`assert_near`], for space that a filesystem gives back in its own time (XFS after a deletion).
async fn assert_comes_near(clients: &Clients, want: u64) {
    for _ in 0..2000 {
        if available(clients).await.abs_diff(want) <= SMALL_CHANGE {
            return;
        }
    }
    assert_near(available(clients).await, want);
}

/// Rule: LOCAL-F.11
#[test]
fn thin_volumes_are_promised_no_more_than_the_pool_has() {
    needs!();
    let world = World::on(FsType::Ext4, GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let pool = rustix::fs::statvfs(world.scratch.path("pool")).unwrap();
        let at_first = available(&clients).await;
        assert_near(at_first, pool.f_bavail * pool.f_frsize - 64 * MIB);
        let mut ids = Vec::new();
        let last = loop {
            match create(&clients, &format!("v{}", ids.len()), 100 * MIB, block()).await {
                Ok(volume) => ids.push(volume.volume_id),
                Err(status) => break status,
            }
            assert_near(available(&clients).await, at_first - 100 * MIB * u64::try_from(ids.len()).unwrap());
        };
        refused(Err::<(), _>(last), Code::ResourceExhausted, &["pool \"p\" can promise", "are needed"]);
        assert_eq!(u64::try_from(ids.len()).unwrap(), at_first / (100 * MIB), "Σ promised is what there was");
        world.scratch.assert_pool_holds(ids.len(), 0, 0);

        // Every promise is kept: all of them can be written to the end.
        for id in &ids {
            tool(
                "dd",
                [
                    "if=/dev/zero",
                    &format!("of={}", world.image(id).display()),
                    "bs=1M",
                    "count=100",
                    "conv=notrunc,fsync",
                ],
            );
        }
        refused(create(&clients, "one-more", 100 * MIB, block()).await, Code::ResourceExhausted, &["can promise"]);
        for id in &ids {
            delete(&clients, id).await.unwrap();
        }
        assert_near(available(&clients).await, at_first);
    });
    world.end_clean();
}

/// Rule: LOCAL-F.11
#[test]
fn what_a_volume_writes_was_promised_before_and_what_it_discards_still_is() {
    needs!(Ext4, Xfs);
    let world = World::on(FsType::Xfs, GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let at_first = available(&clients).await;
        let volume = create(&clients, "v", 256 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        assert_near(available(&clients).await, at_first - 256 * MIB);
        write_synced(using.target.join("file"), &vec![0x5a; usize::try_from(128 * MIB).unwrap()]);
        assert_near(available(&clients).await, at_first - 256 * MIB);
        let promised = create(&clients, "after-write", available(&clients).await / MIB * MIB, block()).await.unwrap();
        delete(&clients, &promised.volume_id).await.unwrap();

        fs::remove_file(using.target.join("file")).unwrap();
        rustix::fs::syncfs(fs::File::open(&using.target).unwrap()).unwrap();
        tool("fstrim", [&using.target]);
        assert!(on_disk(&world.image(&using.id)) < 64 * MIB, "the blocks went back to the pool");
        assert_near(available(&clients).await, at_first - 256 * MIB);
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
        assert_comes_near(&clients, at_first).await;
    });
    world.end_clean();
}

/// Rules: LOCAL-0.22, LOCAL-F.11
#[test]
fn a_volume_that_shares_extents_keeps_its_right_to_write_them_all_again() {
    // LOCAL-0.22.
    needs!(Xfs);
    let world = World::on(FsType::Xfs, 2 * GIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let at_first = available(&clients).await;
        let thick = map([("provisioning", "thick")]);
        let mut request = create_request("v", 256 * MIB, block());
        request.parameters = thick.clone();
        let volume = create_with(&clients, request).await.unwrap();
        assert!(on_disk(&world.image(&volume.volume_id)) >= 256 * MIB, "thick means allocated");
        assert_near(available(&clients).await, at_first - 256 * MIB);
        let cut = snapshot(&clients, "s", &volume.volume_id).await.unwrap();
        assert_near(available(&clients).await, at_first - 512 * MIB);
        // Neither growing nor becoming thick again makes it forget that it shares. What it alone has of its 320 MiB is
        // counted twice meanwhile, which errs on the safe side.
        expand(&clients, &volume.volume_id, 320 * MIB).await.unwrap();
        assert_near(available(&clients).await, at_first - 640 * MIB);
        modify(&clients, &volume.volume_id, map([("provisioning", "thin")])).await.unwrap();
        modify(&clients, &volume.volume_id, thick).await.unwrap();
        assert!(available(&clients).await <= at_first - 256 * MIB - 320 * MIB);
        delete_snapshot(&clients, &cut.snapshot_id).await.unwrap();
        assert_comes_near(&clients, at_first - 320 * MIB).await;
        delete(&clients, &volume.volume_id).await.unwrap();
        assert_comes_near(&clients, at_first).await;
    });
    world.end_clean();
}

/// Rule: LOCAL-F.11
#[test]
fn an_operator_may_allow_more_promises_than_there_is_space() {
    needs!();
    let options = Options::args(["--overcommit", "2"]);
    let mut world = World::on(FsType::Ext4, GIB, &options);
    run(async {
        let clients = world.clients().await;
        let at_first = available(&clients).await;
        assert!(at_first > GIB + 512 * MIB, "{at_first}");
        let volume = create(&clients, "v", GIB + 256 * MIB, block()).await.unwrap();
        assert_near(available(&clients).await, at_first - GIB - 256 * MIB);
        refused(create(&clients, "w", GIB, block()).await, Code::ResourceExhausted, &["can promise"]);
        world.restart(&Options::args(["--overcommit", "1.0"])).await;
        let clients = world.clients().await;
        assert_eq!(available(&clients).await, 0, "more is promised than there is; nothing more is");
        delete(&clients, &volume.volume_id).await.unwrap();
        assert!(available(&clients).await > 512 * MIB);
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.GetCapacity
#[test]
fn capacity_is_asked_for_by_class_and_place() {
    needs!(Ext4, Xfs);
    let world = World::plain(&Options::args(["--max-volume-size", "1Gi"]));
    run(async {
        let clients = world.clients().await;
        let place = |node: &str| Some(Topology { segments: map([(TOPOLOGY_KEY, node)]) });
        let here = GetCapacityRequest { accessible_topology: place(NODE), ..Default::default() };
        let there = GetCapacityRequest { accessible_topology: place("node-2"), ..Default::default() };
        assert!(capacity(&clients, here).await.unwrap().available_capacity > 0);
        assert_eq!(capacity(&clients, there).await.unwrap().available_capacity, 0);
        let of_class = |fs: &str| GetCapacityRequest { parameters: map([("fsType", fs)]), ..Default::default() };
        let xfs = capacity(&clients, of_class("xfs")).await.unwrap();
        assert_eq!(xfs.minimum_volume_size, Some(i64::try_from(300 * MIB).unwrap()));
        assert_eq!(xfs.maximum_volume_size, Some(i64::try_from(GIB).unwrap()));
        refused(create(&clients, "v", GIB + MIB, mount("ext4")).await, Code::OutOfRange, &["above the limit"]);
    });
    world.end_clean();
}

#[test]
fn a_request_below_what_a_filesystem_needs_gets_what_it_needs() {
    needs!(Ext4, Xfs, Btrfs);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (fs, least) in [("ext4", 32 * MIB), ("xfs", 300 * MIB), ("btrfs", 256 * MIB)] {
            let asked = create_request(fs, MIB, mount(fs));
            let volume = create_with(&clients, asked.clone()).await.unwrap();
            assert_eq!(volume.capacity_bytes, i64::try_from(least).unwrap(), "{fs}");
            assert_eq!(create_with(&clients, asked.clone()).await.unwrap(), volume, "{fs}: a repeat finds it");
            let using = Use::new(&world.scratch, &volume.volume_id, mount(fs));
            bring_up(&clients, &using).await.unwrap();
            fs::write(using.target.join("file"), [7; 4096]).unwrap();
            bring_down(&clients, &using).await.unwrap();

            let mut clone = create_request(&format!("{fs}-clone"), MIB, mount(fs));
            clone.volume_content_source = from_volume(&volume.volume_id);
            let clone = create_with(&clients, clone).await.unwrap();
            assert_eq!(clone.capacity_bytes, volume.capacity_bytes, "{fs}: the clone of a small claim is as small");

            let mut limited = create_request(&format!("{fs}-limited"), MIB, mount(fs));
            limited.capacity_range.as_mut().unwrap().limit_bytes = i64::try_from(least - 1).unwrap();
            refused(create_with(&clients, limited.clone()).await, Code::OutOfRange, &["at least", &least.to_string()]);
            limited.capacity_range.as_mut().unwrap().limit_bytes = i64::try_from(least).unwrap();
            let limited = create_with(&clients, limited).await.unwrap();
            for id in [&volume.volume_id, &clone.volume_id, &limited.volume_id] {
                delete(&clients, id).await.unwrap();
            }
        }
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.GetCapacity
#[test]
fn a_pool_without_room_for_the_smallest_volume_of_a_class_has_no_capacity_for_it() {
    needs!(Ext4, Xfs);
    let world = World::on(FsType::Ext4, 256 * MIB, &Options::default());
    run(async {
        let clients = world.clients().await;
        let of_class = |fs: &str| GetCapacityRequest { parameters: map([("fsType", fs)]), ..Default::default() };
        let xfs = capacity(&clients, of_class("xfs")).await.unwrap();
        assert_eq!((xfs.available_capacity, xfs.maximum_volume_size), (0, Some(0)));
        refused(create(&clients, "v", MIB, mount("xfs")).await, Code::ResourceExhausted, &["can promise"]);
        assert!(capacity(&clients, of_class("ext4")).await.unwrap().available_capacity > 0);
    });
    world.end_clean();
}

/// Rule: WIRE-B.8.CreateVolume
#[test]
fn a_volume_says_where_it_is_and_goes_nowhere_else() {
    needs!();
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let place = |node: &str| Topology { segments: map([(TOPOLOGY_KEY, node)]) };
        let mut request = create_request("v", 16 * MIB, block());
        request.accessibility_requirements = Some(TopologyRequirement {
            requisite: vec![place("node-2"), place(NODE)],
            preferred: vec![place("node-2")],
        });
        let volume = create_with(&clients, request.clone()).await.unwrap();
        assert_eq!(volume.accessible_topology, [place(NODE)]);
        delete(&clients, &volume.volume_id).await.unwrap();
        request.accessibility_requirements =
            Some(TopologyRequirement { requisite: vec![place("node-2")], preferred: Vec::new() });
        refused(create_with(&clients, request).await, Code::ResourceExhausted, &[TOPOLOGY_KEY, NODE]);
    });
    world.end_clean();
}
