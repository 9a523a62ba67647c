//! Other people's drivers beside the local one.

use serde_json::json;

use crate::program::{CLAIMS, CLASSES, PODS, Program, User, driver_flag, mounts_of, other_driver, refusal, with};
use crate::rig::{self, Scratch};

const OTHER: &str = "other.csi.orlop.dev";
const UP: [&str; 4] = ["up", "--listen=127.0.0.1:0", "--page=off", "--log-level=info"];

#[tokio::test]
async fn claims_of_two_drivers_are_served_though_one_comes_late_and_goes_and_a_pod_mounts_both() {
    let scratch = Scratch::new();
    let (data, socket, pool) = (scratch.path("data"), scratch.path("other.sock"), scratch.path("other-pool"));
    let up = Program::start(&[&UP[..], &[&with("--data", &data), &driver_flag(&socket)]].concat());
    let user = User::of(&data.join("kubeconfig"), &up.address()).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "other"},
        "provisioner": OTHER});
    user.create(CLASSES, &class).await;
    user.claim("theirs", "other").await;
    user.claim("ours", "local").await;
    user.bound("ours").await;
    let waits = user.get(&format!("{CLAIMS}/theirs")).await.1;
    assert_eq!(waits["status"]["phase"], "Pending", "its driver is not there yet");
    let said = up.said();
    assert_eq!(said.matches("is waited for").count(), 1, "{said}");
    assert_eq!(said.matches("the driver is not ready").count(), 1, "an absence is told once: {said}");

    let driver = other_driver(OTHER, &socket, &pool);
    let volume = user.bound("theirs").await;
    let volume = user.get(&format!("{}/{volume}", crate::program::VOLUMES)).await.1;
    assert_eq!(volume["spec"]["csi"]["driver"], OTHER);
    driver.kill();
    let driver = other_driver(OTHER, &socket, &pool);
    user.claim("again", "other").await;
    user.bound("again").await;

    match rig::cannot_run(&[linux::fs::FsType::Ext4]) {
        Some(why) => rig::skip("a pod mounts volumes of two drivers", &why),
        None => {
            let uid = user.pod("both", &["ours", "theirs"]).await;
            user.mounted("both").await;
            let mounts = mounts_of(&data, &uid);
            assert_eq!(mounts.len(), 2, "{mounts:?}");
            for mount in &mounts {
                std::fs::write(mount.mount_point.join("file"), "written").expect("it can be written");
            }
            user.delete(&format!("{PODS}/both")).await;
            user.gone(&format!("{PODS}/both")).await;
            assert!(mounts_of(&data, &uid).is_empty());
        }
    }
    for claim in ["ours", "theirs", "again"] {
        user.delete(&format!("{CLAIMS}/{claim}")).await;
        user.gone(&format!("{CLAIMS}/{claim}")).await;
    }
    up.stop();
    driver.stop();
}

#[tokio::test]
async fn of_two_drivers_with_one_name_none_is_used_at_random() {
    let scratch = Scratch::new();
    let (socket, pool) = (scratch.path("twin.sock"), scratch.path("twin-pool"));
    let twin = other_driver("local.csi.orlop.dev", &socket, &pool);
    let (data, flag) = (scratch.path("data"), driver_flag(&socket));
    let data = with("--data", &data);
    let said = refusal(&[&UP[..], &[&data, &flag]].concat());
    for word in ["both call themselves \"local.csi.orlop.dev\"", "twin.sock", "csi.sock", "--local-driver=false"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let instead = Program::start(&[&UP[..], &[&data, &flag, "--local-driver=false"]].concat());
    instead.address();
    assert!(!scratch.path("data/csi.sock").exists(), "the local driver is left out");
    instead.stop();
    twin.kill();

    let _ = std::fs::remove_file(&socket);
    let up = Program::start(&[&UP[..], &[&data, &flag]].concat());
    let user = User::of(&scratch.path("data/kubeconfig"), &up.address()).await;
    let twin = other_driver("local.csi.orlop.dev", &socket, &pool);
    let line = up.says("this driver is not used");
    assert!(line.contains("both call themselves"), "{line}");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "ours"},
        "provisioner": "local.csi.orlop.dev"});
    user.create(CLASSES, &class).await;
    user.claim("data", "ours").await;
    user.bound("data").await;
    up.stop();
    twin.stop();
}
