//! One set of behaviours for every `node::host::Host`: the model answers as Linux does, or the simulator proves nothing.

mod cases;

use std::path::{Path, PathBuf};

use cases::Needs;
use linux::mountinfo::MountTable;
use node::host::Host as _;
use node::host::{LinuxHost, Options};
use sim::faults::Fair;
use sim::machine::{Machine, ModelHost};
use sim::{Seed, Setup, World, simulate};

#[test]
fn the_model_behaves_as_a_machine_does() {
    for case in cases::ALL {
        println!("{}", case.name);
        let scenario = async |world: World| {
            let component = world.component("agent", Fair);
            let machine = Machine::new(&world, "node-a");
            let host = ModelHost::new(&machine, &component, Fair);
            let root = Path::new("/var/lib/case");
            host.make_directory(root, 0o750).await.expect("a root can be made");
            (case.run)(&host, root).await;
        };
        simulate(Seed(1), Setup::default(), scenario).expect("a world can be made");
    }
}

/// A directory of this machine, without mounts in the end.
struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self { directory: tempfile::Builder::new().prefix("orlop-host-").tempdir().expect("a directory can be made") }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().canonicalize().expect("it exists")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Ok(root) = self.directory.path().canonicalize() else { return };
        let Ok(table) = MountTable::read() else { return };
        let mut points: Vec<&PathBuf> = table.below(&root).map(|mount| &mount.mount_point).collect();
        // Deepest first, so that nothing is unmounted under another mount.
        points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
        for point in points {
            if let Err(error) = linux::mounts::unmount_all(point) {
                eprintln!("a mount stays: {error}");
            }
        }
    }
}

#[test]
fn this_machine_behaves_as_the_model_does() {
    let root_user = rustix::process::geteuid().is_root();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    for case in cases::ALL {
        if case.needs == Needs::Mounts && !root_user {
            println!("{}: skipped: not root", case.name);
            continue;
        }
        println!("{}", case.name);
        let scratch = Scratch::new();
        let host = LinuxHost::new(Options::default());
        runtime.block_on((case.run)(&host, &scratch.root()));
    }
}
