//! A tool that outlives the driver that started it (LOCAL-R13).

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{FlockOperation, Mode, flock};
use tonic::Code;

use crate::rig::ask::refused;
use crate::rig::call::*;
use crate::rig::world::World;
use crate::rig::{Driver, MIB, Options, Scratch, run};

/// A `mkfs.ext4` that opens its device as the real one does, says so, and then waits. It goes on when this is dropped.
struct StuckMkfs {
    options: Options,
    started: std::path::PathBuf,
    release: Option<File>,
}

impl StuckMkfs {
    fn new(scratch: &Scratch) -> Self {
        let bin = scratch.dir("bin");
        let (started, release) = (scratch.path("started"), scratch.path("release"));
        for fifo in [&started, &release] {
            rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let script = format!(
            "#!/bin/sh\nfor device; do :; done\nexec 3<>\"$device\"\necho > {}\ncat {} > /dev/null\nPATH={path}:/usr/sbin:/sbin\nmkfs.ext4 \"$@\"\n",
            started.display(),
            release.display(),
        );
        let tool = bin.join("mkfs.ext4");
        fs::write(&tool, script).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        // Open for both, so that the tool meets a writer, and the end of the file once this is closed.
        let release = File::options().read(true).write(true).open(release).unwrap();
        let options = Options::default().env("PATH", format!("{}:{path}", bin.display()));
        Self { options, started, release: Some(release) }
    }

    /// Returns once the tool has its device open.
    async fn wait_until_it_runs(&self) {
        let started = self.started.clone();
        let said =
            tokio::task::spawn_blocking(move || File::open(started).unwrap().read_to_end(&mut Vec::new()).unwrap());
        said.await.unwrap();
    }
}

/// Rule: LOCAL-R13
#[test]
fn while_an_orphaned_mkfs_runs_its_volume_is_left_alone() {
    crate::needs!(Ext4);
    let mut world = World::plain(&Options::default());
    let mut stuck = StuckMkfs::new(&world.scratch);
    run(async {
        let clients = world.clients().await;
        let volume = create(&clients, "claim", 32 * MIB, mount("ext4")).await.unwrap();
        let using = Use::new(&world.scratch, &volume.volume_id, mount("ext4"));
        attach(&clients, &using).await.unwrap();
        world.driver.kill();
        world.driver = Driver::start(&world.scratch, &stuck.options);
        let clients = world.clients().await;
        let call = tokio::spawn({
            let using = using.clone();
            async move { stage(&clients, &using).await }
        });
        stuck.wait_until_it_runs().await;
        world.driver.kill();
        call.await.unwrap().unwrap_err();

        world.driver = Driver::start(&world.scratch, &Options::default());
        let clients = world.clients().await;
        refused(stage(&clients, &using).await, Code::Aborted, &["another process"]);
        refused(unstage(&clients, &using).await, Code::Aborted, &["another process"]);
        refused(delete(&clients, &using.id).await, Code::Aborted, &["another process"]);

        drop(stuck.release.take());
        let held = File::open(world.volume(&using.id)).unwrap();
        flock(&held, FlockOperation::LockExclusive).expect("the lock dies with the tool");
        drop(held);
        stage(&clients, &using).await.unwrap();
        publish(&clients, &using).await.unwrap();
        fs::write(using.target.join("note"), b"kept").unwrap();
        bring_down(&clients, &using).await.unwrap();
        delete(&clients, &using.id).await.unwrap();
    });
    world.end_clean();
}
