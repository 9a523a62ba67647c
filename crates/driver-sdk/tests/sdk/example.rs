//! The example driver: short, as the guide shows it, and working.

use driver_sdk::Mode;
use driver_sdk::csi::v1::*;
use driver_sdk::testing::Clients;
use rustix::mount::{UnmountFlags, unmount};
use tonic::Code;

use crate::model::{code, create, publish};

#[path = "../../examples/ramdisk.rs"]
#[allow(dead_code, unreachable_pub)]
mod ramdisk;

const SOURCE: &str = include_str!("../../examples/ramdisk.rs");
const GUIDE: &str = include_str!("../../../../docs/writing-a-driver.md");

#[test]
fn the_example_is_a_driver_in_under_100_lines() {
    let code = SOURCE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    let count = code.count();
    assert!(count < 100, "{count} lines of code");
}

#[test]
fn the_guide_shows_the_example_as_it_is() {
    let blocks = GUIDE.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for block in blocks {
        assert!(SOURCE.contains(block), "not in the example:\n{block}");
        count += 1;
    }
    assert!(count >= 4, "{count} blocks");
}

/// Unmounts whatever is left below a directory, deepest first, also when the test fails.
struct Below(tempfile::TempDir);

impl Drop for Below {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().rev().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| point.starts_with(self.0.path().to_str().unwrap())) {
            let _ = unmount(point, UnmountFlags::DETACH);
        }
    }
}

#[tokio::test]
async fn the_example_keeps_data_in_memory() {
    let dir = Below(tempfile::tempdir().unwrap());
    let root = dir.0.path().join("pool");
    let driver = ramdisk::driver(root.clone(), "node-1".into()).unwrap();
    driver.self_test(Mode::All).await.unwrap();
    let mut clients = Clients::in_memory(&driver, Mode::All);
    let created = match clients.controller.create_volume(create("../v")).await {
        Err(status) if status.message().contains("Operation not permitted") => {
            println!("skipped: mounting needs privileges: {}", status.message());
            return;
        }
        created => created.unwrap().into_inner().volume.unwrap(),
    };
    assert_eq!(created.capacity_bytes, 1 << 20);
    let (first, second) = (dir.0.path().join("first"), dir.0.path().join("second"));
    let show = |target: &std::path::Path, readonly| NodePublishVolumeRequest {
        readonly,
        ..publish(&created.volume_id, target.to_str().unwrap())
    };
    for _ in 0..2 {
        assert_eq!(code(clients.node.node_publish_volume(show(&first, false)).await), Code::Ok);
        assert_eq!(code(clients.node.node_publish_volume(show(&second, true)).await), Code::Ok);
    }
    std::fs::write(first.join("file"), "data").unwrap();
    assert_eq!(std::fs::read_to_string(second.join("file")).unwrap(), "data");
    assert!(std::fs::write(second.join("other"), "data").is_err(), "read-only");
    assert!(std::fs::write(first.join("large"), vec![0; 2 << 20]).is_err(), "the size holds");
    for target in [&first, &first, &second] {
        let request = NodeUnpublishVolumeRequest {
            volume_id: created.volume_id.clone(),
            target_path: target.to_str().unwrap().into(),
        };
        assert_eq!(code(clients.node.node_unpublish_volume(request).await), Code::Ok);
        assert!(!target.exists());
    }
    for volume in [created.volume_id.as_str(), created.volume_id.as_str(), "ram-/../../first", "../first"] {
        assert_eq!(code(clients.controller.delete_volume(crate::model::delete(volume)).await), Code::Ok);
    }
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
}
