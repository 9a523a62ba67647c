//! The driver as a process: two halves on one pool, stopping, and not being two (WIRE-B.6, LOCAL-R6).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use tonic::Code;

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{Driver, MIB, Options, Scratch, run};

fn half(mode: &str) -> Options {
    Options { socket: format!("{mode}.sock"), ..Options::args(["--mode", mode]) }
}

#[test]
fn a_controller_and_a_node_process_share_a_pool() {
    needs!(Ext4);
    let scratch = Scratch::new();
    scratch.plain_pool();
    let mut controller = Driver::start(&scratch, &half("controller"));
    let mut node = Driver::start(&scratch, &half("node"));
    run(async {
        let clients = controller.clients().await;
        let mut both = clients.clone();
        both.node = node.clients().await.node;
        let volume = create(&clients, "v", 64 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&scratch, &volume.volume_id, mount("ext4"));
        refused(stage(&clients, &using).await, Code::Unimplemented, &[]);
        bring_up(&both, &using).await.unwrap();
        fs::write(using.target.join("file"), b"not synced").unwrap();
        // The controller freezes what the other process mounted.
        let cut = snapshot(&both, "s", &using.id).await.unwrap();
        fs::write(using.target.join("file"), b"later").unwrap();
        let mut request = create_request("copy", 64 * MIB, mount("ext4"));
        request.volume_content_source = from_snapshot(&cut.snapshot_id);
        let copy = create_with(&both, request).await.unwrap();
        let copy = Use::new(&scratch, &copy.volume_id, mount("ext4"));
        bring_up(&both, &copy).await.unwrap();
        assert_eq!(fs::read(copy.target.join("file")).unwrap(), b"not synced");

        refused(delete(&both, &using.id).await, Code::FailedPrecondition, &["attached"]);
        refused(detach(&both, &using.id).await, Code::Aborted, &["still in use"]);
        controller.kill();
        controller = Driver::start(&scratch, &half("controller"));
        fs::write(using.target.join("file"), b"alive").unwrap();
        let inline = Use::new(&scratch, "csi-inline", mount(""));
        publish_with(&both, inline_request(&inline, map([("size", "32Mi")]))).await.unwrap();
        let mut both = controller.clients().await;
        both.node = node.clients().await.node;
        unpublish(&both, &inline).await.unwrap();
        for using in [&using, &copy] {
            bring_down(&both, using).await.unwrap();
            delete(&both, &using.id).await.unwrap();
        }
        delete_snapshot(&both, &cut.snapshot_id).await.unwrap();
    });
    let other = Driver::try_start(&scratch, &half("node")).unwrap_err();
    assert!(other.contains(&node.pid().to_string()), "{other}");
    assert!(node.stop() && controller.stop());
    scratch.assert_clean();
}

/// A mkfs.ext4 that says when it starts and waits until it is let go.
fn slow_mkfs(scratch: &Scratch) -> Options {
    let dir = scratch.dir("bin");
    let (started, go) = (scratch.path("started"), scratch.path("go"));
    tool("mkfifo", [&started, &go]);
    let script = format!(
        "#!/bin/sh\necho started > {}\nread word < {}\nexec /usr/sbin/mkfs.ext4 \"$@\"\n",
        started.display(),
        go.display()
    );
    fs::write(dir.join("mkfs.ext4"), script).unwrap();
    fs::set_permissions(dir.join("mkfs.ext4"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    Options::default().env("PATH", format!("{}:{path}", dir.display()))
}

/// Rule: LOCAL-R30
#[test]
fn a_signal_to_stop_lets_the_running_call_finish() {
    needs!(Ext4);
    let scratch = Scratch::new();
    scratch.plain_pool();
    let mut driver = Driver::start(&scratch, &slow_mkfs(&scratch));
    let using = run(async {
        let clients = driver.clients().await;
        let volume = create(&clients, "v", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&scratch, &volume.volume_id, mount("ext4"));
        attach(&clients, &using).await.unwrap();
        let (calling, called) = (clients.clone(), using.clone());
        let staging = tokio::spawn(async move { stage(&calling, &called).await });
        let started = scratch.path("started");
        let word = tokio::task::spawn_blocking(move || fs::read_to_string(started)).await.unwrap().unwrap();
        assert_eq!(word, "started\n");
        driver.terminate();
        assert!(driver.wait_for_log("stops accepting calls"), "{}", driver.log());
        let go = scratch.path("go");
        fs::File::options().write(true).open(go).unwrap().write_all(b"go\n").unwrap();
        staging.await.unwrap().unwrap();
        using
    });
    assert!(driver.wait().success(), "{}", driver.log());
    assert!(!driver.socket.exists(), "the socket goes with the driver");
    assert!(is_mounted(&using.staging), "the call did its work");

    let driver = Driver::start(&scratch, &Options::default());
    run(async {
        let clients = driver.clients().await;
        stage(&clients, &using).await.unwrap();
        unstage(&clients, &using).await.unwrap();
        detach(&clients, &using.id).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    World { driver, scratch }.end_clean();
}

/// Rules: WIRE-B.6, LOCAL-R6
#[test]
fn a_second_driver_is_refused_by_the_pool_and_by_the_socket_with_the_first_ones_pid() {
    needs!();
    let scratch = Scratch::new();
    scratch.plain_pool();
    let mut first = Driver::start(&scratch, &Options::default());
    let pid = first.pid().to_string();
    let other_socket = Options { socket: "other.sock".to_owned(), ..Default::default() };
    let log = Driver::try_start(&scratch, &other_socket).unwrap_err();
    assert!(log.contains("in use by the driver process") && log.contains(&pid), "{log}");

    let pool = scratch.dir("second-pool");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["driver", "--node-id", "n", "--endpoint"]).arg(&first.socket).arg("--pool").arg(&pool);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains("already served by") && last.contains(&pid), "{text}");

    run(async {
        let clients = first.clients().await;
        let id = create(&clients, "v", MIB, block()).await.unwrap().volume_id;
        delete(&clients, &id).await.unwrap();
    });
    assert!(first.stop(), "the first one noticed nothing");
    Driver::start(&scratch, &Options::default());
    scratch.assert_clean();
}

/// Rule: WIRE-B.6
#[test]
fn a_driver_that_was_killed_leaves_a_socket_that_the_next_one_takes_over() {
    needs!();
    let scratch = Scratch::new();
    scratch.plain_pool();
    let mut first = Driver::start(&scratch, &Options::default());
    first.kill();
    assert!(first.socket.exists());
    let second = Driver::start(&scratch, &Options::default());
    run(async {
        let clients = second.clients().await;
        let id = create(&clients, "v", MIB, block()).await.unwrap().volume_id;
        delete(&clients, &id).await.unwrap();
    });
    World { driver: second, scratch }.end_clean();
}
