//! A new program in the place of the old one, under pods that write.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use crate::needs;
use crate::program::{CLAIMS, PODS, Program, User, binary, mounts_of, with};
use crate::rig::Scratch;

#[tokio::test]
async fn a_pods_mount_and_its_open_files_outlive_the_upgrade_of_the_program() {
    needs!(Ext4);
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let words = ["up", "--listen=127.0.0.1:0", "--page=off", &with("--data", &data)];
    let up = Program::start(&words);
    let user = User::of(&data.join("kubeconfig"), &up.address()).await;
    user.claim("data", "local").await;
    let uid = user.pod("web", &["data"]).await;
    user.mounted("web").await;
    let [mount] = mounts_of(&data, &uid).try_into().expect("one volume is mounted");
    let path = mount.mount_point.join("log");
    let mut file = File::create(&path).expect("it can be made");
    writeln!(file, "before").expect("it can be written");
    up.stop();
    writeln!(file, "between").expect("no program is needed to write");

    let newer = scratch.path("orlop-of-tomorrow");
    fs::copy(binary(), &newer).expect("there is room");
    let up = Program::spawn(Command::new(&newer).args(words));
    let user = User::of(&data.join("kubeconfig"), &up.address()).await;
    user.mounted("web").await;
    // A claim that the new program serves shows that its agent has looked at what the old one left.
    user.claim("more", "local").await;
    let more = user.pod("next", &["more"]).await;
    user.mounted("next").await;
    let [same] = mounts_of(&data, &uid).try_into().expect("one volume is mounted");
    assert_eq!((same.id, &same.mount_point), (mount.id, &mount.mount_point), "the mount is the same, not a new one");
    writeln!(file, "after").and_then(|()| file.sync_all()).expect("it can be written");
    assert_eq!(fs::read_to_string(&path).expect("it can be read"), "before\nbetween\nafter\n");
    drop(file);

    for (pod, uid) in [("web", uid), ("next", more)] {
        user.delete(&format!("{PODS}/{pod}")).await;
        user.gone(&format!("{PODS}/{pod}")).await;
        assert!(mounts_of(&data, &uid).is_empty());
    }
    for claim in ["data", "more"] {
        user.delete(&format!("{CLAIMS}/{claim}")).await;
        user.gone(&format!("{CLAIMS}/{claim}")).await;
    }
    up.stop();
}
