//! Inline volumes live from publish to unpublish, and not a moment longer.

use std::fs;

use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

/// Rule: WIRE-B.9.NodePublishVolume
#[test]
fn an_inline_volume_is_made_by_publishing_and_gone_after_unpublishing() {
    needs!(Ext4);
    let mut world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let using = Use::new(&world.scratch, "csi-0123", mount(""));
        let request = inline_request(&using, map([("size", "48Mi"), (driver_sdk::keys::POD_NAME, "pod")]));
        publish_with(&clients, request.clone()).await.unwrap();
        publish_with(&clients, request.clone()).await.unwrap();
        assert!(
            fs_bytes(&using.target) > 32 * MIB && fs_bytes(&using.target) <= 48 * MIB,
            "the size is from the attributes"
        );
        fs::write(using.target.join("file"), b"for now").unwrap();
        assert!(list(&clients, 0, "").await.unwrap().entries.is_empty(), "nobody else knows of it");

        world.restart(&Options::default()).await;
        let clients = world.clients().await;
        assert_eq!(fs::read(using.target.join("file")).unwrap(), b"for now", "a restart does not end it");
        publish_with(&clients, request.clone()).await.unwrap();
        assert_eq!(fs::read(using.target.join("file")).unwrap(), b"for now", "nor does republishing");

        unpublish(&clients, &using).await.unwrap();
        world.scratch.assert_pool_holds(0, 0, 0);
        assert!(!using.target.exists());
        unpublish(&clients, &using).await.unwrap();
        publish_with(&clients, request).await.unwrap();
        assert!(!using.target.join("file").exists(), "the next one is empty");
        unpublish(&clients, &using).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn an_inline_volume_can_be_readonly_another_filesystem_or_a_directory() {
    needs!(Ext4, Xfs);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        for (id, attributes, fs) in [
            ("csi-x", map([("size", "1Mi"), ("fsType", "xfs")]), Some("xfs")),
            ("csi-d", map([("size", "32Mi"), ("kind", "directory")]), None),
        ] {
            let using = Use::new(&world.scratch, id, mount(""));
            publish_with(&clients, inline_request(&using, attributes)).await.unwrap();
            fs::write(using.target.join("file"), b"x").unwrap();
            let found = tool("findmnt", ["-no", "FSTYPE", using.target.to_str().unwrap()]);
            assert!(fs.is_none_or(|fs| found.trim() == fs), "{found}");
            unpublish(&clients, &using).await.unwrap();
        }
        let using = Use::new(&world.scratch, "csi-r", mount("")).readonly();
        publish_with(&clients, inline_request(&using, map([("size", "32Mi")]))).await.unwrap();
        let wrote = fs::write(using.target.join("file"), b"x");
        assert!(wrote.is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem));
        unpublish(&clients, &using).await.unwrap();
    });
    world.end_clean();
}

#[test]
fn wrong_attributes_of_an_inline_volume_are_refused_and_leave_nothing() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let using = Use::new(&world.scratch, "csi-0123", mount(""));
        let cases = [
            (map([("size", "many")]), Code::InvalidArgument, "many"),
            (map([("sise", "64Mi")]), Code::InvalidArgument, "sise"),
            (map([("size", "64Mi"), ("fsType", "ntfs")]), Code::InvalidArgument, "ntfs"),
            (map([("size", "64Mi"), ("pool", "none")]), Code::InvalidArgument, "none"),
            (map([("size", "4Pi")]), Code::OutOfRange, "above the limit"),
        ];
        for (attributes, code, words) in cases {
            refused(publish_with(&clients, inline_request(&using, attributes)).await, code, &[words]);
            assert!(!using.target.exists());
            world.scratch.assert_clean();
        }
    });
    world.end_clean();
}
