//! What only a model has: power, crashes and faults. The rest is in `tests/host`, where the real machine answers as well.

use node::host::{Force, Host, HostError};

use super::*;
use crate::faults::Fair;
use crate::{Ended, Seed, Setup, simulate};

fn on_a_machine<T: Send>(fates: impl HostFates, play: impl AsyncFnOnce(&Machine, &ModelHost) -> T + Send) -> Ended<T> {
    let scenario = async |world: World| {
        let component = world.component("agent", Fair);
        let machine = Machine::new(&world, "node-a");
        let host = ModelHost::new(&machine, &component, fates);
        component.run(play(&machine, &host)).await
    };
    simulate(Seed(1), Setup::default(), scenario).expect("a world can be made")
}

#[test]
fn a_reboot_takes_mounts_and_devices_and_leaves_the_disk() {
    let ended = on_a_machine(Fair, async |machine, host| {
        host.make_directory(Path::new("/var/x"), 0o750).await.expect("it is made");
        host.write(Path::new("/var/x/file"), b"kept", 0o600).await.expect("it is written");
        host.make_shared(Path::new("/var/x")).await.expect("it is shared");
        machine
            .with_kernel(|kernel| kernel.make(Path::new("/dev/disk"), Node::Device(Owner::new(0o600))))
            .expect("made");
        host.hold(Path::new("/dev/disk")).await.expect("it is held");
        machine.reboot();
        machine.with_kernel(|kernel| {
            assert_eq!(kernel.read(Path::new("/var/x/file")), Ok(Some(b"kept".to_vec())));
            assert!(kernel.mounts().at(Path::new("/var/x")).is_none());
            assert_eq!(kernel.loops().count(), 0);
            assert_eq!(kernel.look(Path::new("/dev/disk")), Ok(None));
        });
    });
    assert_eq!(ended, Ended::Finished(()));
}

#[test]
fn an_agent_dies_before_or_after_a_call_and_nothing_else_changes() {
    for (fate, there) in [(HostFate::CrashBefore, false), (HostFate::CrashAfter, true)] {
        let script = move |event: &Event<'_>| if event.number == 1 { fate } else { HostFate::Done };
        let scenario = async |world: World| {
            let machine = Machine::new(&world, "node-a");
            let component = world.component("agent", Fair);
            let host = ModelHost::new(&machine, &component, script);
            let ended = component.run(host.make_directory(Path::new("/a"), 0o750)).await;
            assert_eq!(ended, Ended::Crashed);
            let next = world.component("agent", Fair);
            let host = ModelHost::new(&machine, &next, Fair);
            host.list(Path::new("/")).await.expect("a root can be listed").iter().any(|entry| entry.name == "a")
        };
        assert_eq!(simulate(Seed(1), Setup::default(), scenario).expect("a world can be made"), there, "{fate:?}");
    }
}

#[test]
fn a_hung_call_says_so_after_a_while_and_may_have_happened() {
    for (fate, there) in [(HostFate::Hung, false), (HostFate::HungAndDone, true)] {
        let script = move |event: &Event<'_>| if event.number == 1 { fate } else { HostFate::Done };
        let ended = on_a_machine(script, async |_, host| {
            let error = host.make_directory(Path::new("/a"), 0o750).await.expect_err("it hangs");
            assert!(error.is_hung(), "{error}");
            host.find(Path::new("/a")).await.expect("it is answered") == node::host::Found::Directory
        });
        assert_eq!(ended, Ended::Finished(there), "{fate:?}");
    }
}

#[test]
fn a_corrupted_mount_is_found_as_such_and_can_be_unmounted() {
    let ended = on_a_machine(Fair, async |machine, host| {
        let point = Path::new("/mnt");
        host.make_directory(point, 0o755).await.expect("it is made");
        machine.with_kernel(|kernel| {
            let superblock = Superblock { fs_type: "fuse", source: "server" };
            kernel.mount(superblock, point, node::host::Access::ReadWrite).expect("it is mounted");
        });
        assert!(machine.corrupt(point, Errno::NOTCONN));
        let found = host.find(point).await.expect("a corrupted mount is an answer");
        assert!(matches!(found, node::host::Found::Corrupted { errno: 107, .. }), "{found:?}");
        let read = host.list(point).await.expect_err("it does not answer");
        assert!(matches!(read, HostError::Refused { errno: 107, .. }), "{read}");
        host.unmount(point, Force::No).await.expect("it can be unmounted");
        assert_eq!(host.list(point).await, Ok(Vec::new()));
    });
    assert_eq!(ended, Ended::Finished(()));
}

#[test]
fn after_the_power_is_gone_a_host_answers_nothing() {
    let ended = on_a_machine(Fair, async |machine, host| {
        machine.reboot();
        let asked = tokio::time::timeout(std::time::Duration::from_secs(3_600), host.list(Path::new("/"))).await;
        asked.is_err()
    });
    assert_eq!(ended, Ended::Finished(true));
}
