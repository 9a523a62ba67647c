//! What the tests share: a pool on a small filesystem of its own, the driver's core on it, and the end of all mounts and loop
//! devices whatever happens in a test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use driver_local::config::{Attachment, Clock, Config, MissingPool, PoolConfig, Role};
use driver_local::core::Core;
use driver_sdk::{
    Access, AccessMode, Capability, CapacityRange, Condition, CreateSnapshot, CreateVolume, Error, MountOptions,
    Parameters, Secrets, StageVolume, VolumeId,
};
use linux::fs::{FsType, Mkfs, Uuid, mkfs};
use linux::loopdev::{self, Attach, BackingFile, LoopSupport};
use linux::mountinfo::MountTable;
use linux::mounts::{self, MountFlags};
use linux::{freeze, image};

pub(crate) const MIB: u64 = 1 << 20;
/// In the place of a filesystem: a raw device.
pub(crate) const BLOCK: &str = "block";
const GUARD_VARIABLE: &str = "ORLOP_TEST_LOST_GUARD";
const MINUTE: Duration = Duration::from_secs(60);

/// Says why a test cannot run on this machine.
pub(crate) fn cannot_run(needs: &[FsType]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if let LoopSupport::No(why) = loopdev::available() {
        return Some(why);
    }
    needs.iter().flat_map(|fs| fs.missing_tools()).next().map(|tool| tool.to_string())
}

/// Returns from the test, stating the reason, when the machine lacks what the test needs.
macro_rules! needs {
    ($($fs:expr),*) => {
        if let Some(why) = $crate::lost::bench::cannot_run(&[$($fs),*]) {
            println!("skipped: {why}");
            return;
        }
    };
}
pub(crate) use needs;

/// Not a test of its own: the driver runs it as its guard process, with the opened mounts as arguments.
#[test]
fn acts_as_the_guard() {
    let Ok(budget) = std::env::var(GUARD_VARIABLE) else { return };
    let budget = Duration::from_millis(budget.parse().unwrap());
    let mounts: Vec<PathBuf> = std::env::args().filter(|arg| arg.starts_with("/proc/")).map(PathBuf::from).collect();
    assert_eq!(freeze::guard_main(&mounts, budget), ExitCode::SUCCESS);
}

/// The command line of the guard process: this test binary, which thaws each time this budget has passed.
pub(crate) fn guard(budget: Duration) -> Vec<OsString> {
    let variable = format!("{GUARD_VARIABLE}={}", budget.as_millis());
    let mut guard: Vec<OsString> = vec!["env".into(), variable.into(), std::env::current_exe().unwrap().into()];
    let name = "lost::bench::acts_as_the_guard";
    guard.extend(["--exact", "--nocapture", "--test-threads=2", name].map(OsString::from));
    guard
}

/// A pool on a filesystem of its own, and the driver's core on it.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) core: Option<Core>,
}

impl Bench {
    /// An ext4 pool of this size.
    pub(crate) fn new(size: u64) -> Self {
        Self::on(FsType::Ext4, size)
    }

    /// A pool on this filesystem.
    pub(crate) fn on(fs: FsType, size: u64) -> Self {
        let dir = tempfile::Builder::new().prefix("orlop-lost-").tempdir().unwrap();
        let mut bench = Self { dir, core: None };
        let image = image::create_sparse(&bench.path("pool.img"), size).unwrap();
        let how = Attach { read_only: false, autoclear: true, direct_io: false, block_size: 512 };
        let attached = loopdev::attach(&image, how).unwrap();
        let mut bytes = [7; 16];
        let inode = std::os::unix::fs::MetadataExt::ino(&image.metadata().unwrap());
        bytes[..8].copy_from_slice(&inode.to_le_bytes());
        let how = Mkfs { uuid: Uuid::from_digest(bytes), sector_size: 512, lock: None };
        mkfs(fs, &attached.device.path, &how, MINUTE).unwrap();
        mounts::mount_fs(&attached.device.path, &bench.dir("pool"), fs.name(), &MountFlags::default()).unwrap();
        bench.core = Some(Core::start(bench.config()).unwrap());
        bench
    }

    pub(crate) fn config(&self) -> Config {
        let guard = guard(MINUTE);
        Config {
            driver_name: "lost.test".to_owned(),
            node_id: "node-1".to_owned(),
            role: Role::All,
            pools: vec![PoolConfig { name: "p".to_owned(), path: self.path("pool") }],
            missing_pool: MissingPool::Create,
            attachment: Attachment::Off,
            overcommit: 100.0,
            reserve: 0,
            default_fs: FsType::Ext4,
            largest_volume: 1 << 40,
            freeze_budget: Duration::from_secs(5),
            freeze_guard: guard.clone(),
            hold_guard: guard,
            state_dir: Some(self.path("state")),
            provisioning: None,
            clock: Clock::new(|| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        }
    }

    /// Ends the core and starts one with this guard on the same pool.
    pub(crate) fn restart_with_guard(&mut self, freeze_guard: Vec<OsString>) {
        self.core = None;
        self.core = Some(Core::start(Config { freeze_guard, ..self.config() }).unwrap());
    }

    /// Ends the core and unmounts its pool.
    pub(crate) fn take_pool_away(&mut self) {
        self.core = None;
        mounts::unmount_all(&self.path("pool")).unwrap();
    }

    /// Ends the core and starts one with this role on the same pool.
    pub(crate) fn restart_as(&mut self, role: Role) {
        self.core = None;
        self.core = Some(Core::start(Config { role, ..self.config() }).unwrap());
    }

    pub(crate) fn core(&self) -> &Core {
        self.core.as_ref().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn image(&self, id: &VolumeId) -> PathBuf {
        self.path("pool/volumes").join(id.as_str()).join("image")
    }

    pub(crate) fn create(&self, name: &str, fs: &str, size: u64) -> VolumeId {
        self.create_from(name, fs, size, None)
    }

    pub(crate) fn create_from(&self, name: &str, fs: &str, size: u64, source: Option<&driver_sdk::Source>) -> VolumeId {
        self.try_create_from(name, fs, size, source).unwrap()
    }

    pub(crate) fn try_create_from(
        &self,
        name: &str,
        fs: &str,
        size: u64,
        source: Option<&driver_sdk::Source>,
    ) -> Result<VolumeId, Error> {
        let request = CreateVolume {
            name: name.to_owned(),
            capacity: CapacityRange { required: size, limit: None },
            capabilities: vec![capability(fs, AccessMode::SingleNodeWriter)],
            parameters: Parameters::default(),
            secrets: Secrets::default(),
            topology: None,
        };
        self.core().create_volume(&request, source).map(|made| made.id)
    }

    /// The staging path of a volume, which is made as a caller makes it.
    pub(crate) fn staging(&self, id: &VolumeId) -> PathBuf {
        self.dir(&format!("staging-{id}"))
    }

    pub(crate) fn stage(&self, id: &VolumeId, fs: &str, mode: AccessMode) -> Result<PathBuf, Error> {
        let staging = self.staging(id);
        self.core().stage(&StageVolume {
            volume: id.clone(),
            staging: staging.clone(),
            capability: capability(fs, mode),
            publish_context: Default::default(),
            volume_context: Default::default(),
            secrets: Secrets::default(),
        })?;
        Ok(staging)
    }

    pub(crate) fn stage_writable(&self, id: &VolumeId, fs: &str) -> PathBuf {
        self.stage(id, fs, AccessMode::SingleNodeWriter).unwrap()
    }

    pub(crate) fn unstage(&self, id: &VolumeId) -> Result<(), Error> {
        self.core().unstage(id, &self.staging(id))
    }

    pub(crate) fn snapshot(&self, name: &str, source: &VolumeId) -> Result<driver_sdk::Snapshot, Error> {
        let request = CreateSnapshot {
            name: name.to_owned(),
            source: source.clone(),
            parameters: Default::default(),
            secrets: Secrets::default(),
        };
        self.core().create_snapshot(&request)
    }

    /// What the controller says of a volume that is not well.
    pub(crate) fn trouble(&self, id: &VolumeId) -> Option<String> {
        abnormal(self.core().volume_condition(id).unwrap())
    }

    /// What the node says of a staged volume that is not well.
    pub(crate) fn node_trouble(&self, id: &VolumeId) -> Option<String> {
        abnormal(self.core().node_condition(id, &self.staging(id)).unwrap())
    }

    pub(crate) fn is_mounted(&self, place: &Path) -> bool {
        MountTable::read().unwrap().top(place).is_some()
    }

    /// Takes all space of the pool. What is written here is limited: the pool is small.
    pub(crate) fn fill(&self) {
        let pool = self.path("pool");
        assert!(self.is_mounted(&pool), "only a pool of its own filesystem is filled");
        let total = linux::statfs::usage(&pool).unwrap().total;
        let mut filler = File::create(pool.join("filler")).unwrap();
        for size in [MIB, 4096] {
            let chunk = vec![1; usize::try_from(size).unwrap()];
            for _ in 0..total / size {
                if filler.write_all(&chunk).is_err() {
                    break;
                }
            }
        }
        // Delayed allocation is settled, so that no space comes back.
        drop(filler.sync_all());
        let mut rest = File::create(pool.join("filler-rest")).unwrap();
        for _ in 0..total / 4096 {
            if rest.write_all(&[1; 4096]).is_err() {
                break;
            }
        }
        drop(rest.sync_all());
    }

    pub(crate) fn make_space(&self) {
        for name in ["filler", "filler-rest"] {
            fs::remove_file(self.path("pool").join(name)).unwrap();
        }
        rustix::fs::syncfs(File::open(self.path("pool")).unwrap()).unwrap();
    }
}

/// A mount capability with this filesystem, or that of a raw device.
pub(crate) fn capability(fs: &str, mode: AccessMode) -> Capability {
    if fs == BLOCK {
        return Capability { access: Access::Block, mode };
    }
    let options = MountOptions { fs_type: Some(fs.to_owned()), ..Default::default() };
    Capability { access: Access::Mount(options), mode }
}

fn abnormal(condition: Condition) -> Option<String> {
    match condition {
        Condition::Abnormal(why) => Some(why),
        Condition::Normal(_) => None,
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.core = None;
        let Ok(root) = self.dir.path().canonicalize() else { return };
        let pool = root.join("pool");
        drop(fs::remove_file(pool.join("filler")));
        drop(fs::remove_file(pool.join("filler-rest")));
        let Ok(table) = MountTable::read() else { return };
        let mut places: Vec<PathBuf> = table.below(&root).map(|mount| mount.mount_point.clone()).collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.components().count()));
        drop(freeze::thaw_sweep(&places));
        for place in places.iter().filter(|place| **place != pool) {
            drop(mounts::unmount_all(place));
        }
        for entry in fs::read_dir(pool.join("volumes")).into_iter().flatten().flatten() {
            let Ok(image) = File::open(entry.path().join("image")) else { continue };
            let Ok(backing) = BackingFile::of(&image) else { continue };
            for status in loopdev::find(backing).unwrap_or_default() {
                drop(loopdev::detach_and_wait(&status.device, backing, Duration::from_secs(2)));
            }
        }
        drop(mounts::unmount_all(&pool));
    }
}
