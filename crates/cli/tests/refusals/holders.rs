//! Devices that somebody else holds (NODE-31.26).

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tonic::{Code, Status};

use crate::needs;
use crate::rig::ask::*;
use crate::rig::call::*;
use crate::rig::world::*;
use crate::rig::{MIB, Options, run};

/// For a shell in a new mount namespace: leaves the copies of mounts from loop devices, but those below `kept`, so that the
/// devices of other tests do not stay busy because of it.
pub(super) fn leave_others_devices(kept: &Path) -> String {
    format!(
        "while read -r id parent device root point rest; do case $point in '{}'*) continue ;; esac; \
         case $rest in *' /dev/loop'*) umount -l \"$point\" ;; esac; done < /proc/self/mountinfo; ",
        kept.display()
    )
}

/// A process in a mount namespace of its own, which has a copy of what is mounted below a path.
struct Copy(Child);

impl Copy {
    fn of(path: &Path) -> Self {
        let script = format!("{}echo made; exec cat", leave_others_devices(path));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare is there");
        let mut line = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "made\n");
        Self(keeper)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Repeats what is aborted, as callers do: any program that copies the machine's mounts holds this device, too, for a moment.
/// The driver itself waits before it answers so.
async fn patiently(call: impl AsyncFn() -> Result<(), Status>) {
    for _ in 0..120 {
        match call().await {
            Err(status) if status.code() == Code::Aborted => {}
            answer => return answer.unwrap(),
        }
    }
    panic!("somebody held the device for a minute");
}

/// Rule: NODE-31.26
#[test]
fn a_device_that_another_mount_namespace_holds_is_refused_by_name_and_goes_with_it() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let id = create(&clients, "held", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
        let using = Use::new(&world.scratch, &id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        let copy = Copy::of(&using.staging);
        unpublish(&clients, &using).await.unwrap();
        let holder = format!("mount namespace of process {}", copy.0.id());
        refused(unstage(&clients, &using).await, Code::Aborted, &["still in use", &holder]);
        refused(unstage(&clients, &using).await, Code::Aborted, &["still in use", &holder]);
        drop(copy);
        patiently(async || unstage(&clients, &using).await).await;
        detach(&clients, &id).await.unwrap();
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}

/// Rule: NODE-31.26
#[test]
fn a_file_that_somebody_has_open_keeps_the_mount_and_is_named() {
    needs!(Ext4);
    let world = World::plain(&Options::default());
    run(async {
        let clients = world.clients().await;
        let id = create(&clients, "open", 32 * MIB, mount("ext4")).await.unwrap().volume_id;
        let using = Use::new(&world.scratch, &id, mount("ext4"));
        bring_up(&clients, &using).await.unwrap();
        let file = std::fs::File::create(using.target.join("open")).unwrap();
        let me = format!("process {}", std::process::id());
        refused(unpublish(&clients, &using).await, Code::Aborted, &["cannot be unmounted", &me]);
        drop(file);
        unpublish(&clients, &using).await.unwrap();
        patiently(async || unstage(&clients, &using).await).await;
        detach(&clients, &id).await.unwrap();
        delete(&clients, &id).await.unwrap();
    });
    world.end_clean();
}
