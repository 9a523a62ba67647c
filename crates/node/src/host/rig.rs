//! What the tests of this crate share: a scratch directory in a mount namespace of its own, which goes with the test
//! whatever happens, and filesystems that misbehave.

use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux::loopdev::{self, Attach, BackingFile, LoopSupport};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::host::{Host, HostError, LinuxHost, Options};
use crate::layout::{Layout, Name};

pub(crate) const MIB: u64 = 1 << 20;

/// A machine under load may be slow; only in [`with_silent_paths`] is that the point.
const PATIENT: Options = Options {
    question: Duration::from_secs(60),
    change: Duration::from_secs(60),
    tool: Duration::from_secs(60),
    format: Duration::from_secs(60),
};

/// Runs a test as root in a mount namespace of its own. Threads and children that it starts are in it, too, and its mounts
/// are gone with the last of them.
pub(crate) fn on_this_machine<F, T>(test: F)
where
    F: FnOnce(Rig) -> T + Send + 'static,
    T: Future<Output = ()>,
{
    on_machine(PATIENT, test);
}

/// As above, for a test in which a path does not answer.
pub(crate) fn with_silent_paths<F, T>(test: F)
where
    F: FnOnce(Rig) -> T + Send + 'static,
    T: Future<Output = ()>,
{
    on_machine(Options { question: Duration::from_secs(2), ..PATIENT }, test);
}

fn on_machine<F, T>(options: Options, test: F)
where
    F: FnOnce(Rig) -> T + Send + 'static,
    T: Future<Output = ()>,
{
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let alone = std::thread::spawn(move || {
        if let Err(errno) = linux::ioctl::own_mount_namespace() {
            println!("skipped: no mount namespace for the test: {errno}");
            return;
        }
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        leave_others_devices();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(Rig::new(options)));
    });
    if let Err(panic) = alone.join() {
        std::panic::resume_unwind(panic);
    }
}

/// The copies of other programs' mounts that came with this namespace would keep their loop devices busy.
fn leave_others_devices() {
    let table = linux::mountinfo::MountTable::read().unwrap();
    let of_loop = |mount: &&linux::mountinfo::Mount| mount.source.as_encoded_bytes().starts_with(b"/dev/loop");
    for mount in table.iter().filter(of_loop) {
        let _ = linux::mounts::unmount_top(&mount.mount_point, linux::mounts::Force::Detach);
    }
}

pub(crate) struct Rig {
    pub(crate) host: LinuxHost,
    pub(crate) layout: Layout,
    dir: tempfile::TempDir,
}

impl Rig {
    fn new(options: Options) -> Self {
        let dir = tempfile::Builder::new().prefix("orlop-node-").tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        // A filesystem of its own, so that nothing in the test can touch the machine's.
        mount("tmpfs", &root, "tmpfs", MountFlags::empty(), None).unwrap();
        let layout = Layout::new(root.join("root")).unwrap();
        Self { host: LinuxHost::new(options), layout, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) async fn mount_tmpfs(&self, target: &Path) {
        std::fs::create_dir_all(target).unwrap();
        mount("tmpfs", target, "tmpfs", MountFlags::empty(), None).unwrap();
        assert!(self.is_mounted(target).await);
    }

    pub(crate) async fn is_mounted(&self, path: &Path) -> bool {
        self.host.mounts().await.unwrap().at(path).is_some()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The mount would keep the directory from being removed. Only this namespace has it.
        if let Ok(root) = self.dir.path().canonicalize() {
            let _ = rustix::mount::unmount(&root, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn errno(error: &HostError) -> i32 {
    match error {
        HostError::Refused { errno, .. } => *errno,
        HostError::Hung { .. } | HostError::WrongFilesystem { .. } => panic!("{error}"),
    }
}

/// An image file as a block device. The device goes by itself once this and the last mount of it are gone.
pub(crate) struct Disk {
    pub(crate) device: PathBuf,
    image: File,
    attached: loopdev::Attached,
}

impl Disk {
    /// `None` where there are no loop devices, having said so.
    pub(crate) fn new(rig: &Rig, name: &str, size: u64) -> Option<Disk> {
        if let LoopSupport::No(why) = loopdev::available() {
            println!("skipped: {why}");
            return None;
        }
        let image = linux::image::create_sparse(&rig.path(name), size).unwrap();
        let how = Attach { read_only: false, autoclear: true, direct_io: false, block_size: 512 };
        let attached = loopdev::attach(&image, how).unwrap();
        Some(Disk { device: attached.device.path.clone(), image, attached })
    }

    pub(crate) fn grow(&self, size: u64) {
        self.image.set_len(size).unwrap();
        self.attached.device.refresh_capacity().unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Those who hold the node would keep it for ever.
        let node = BackingFile::of(&self.attached.fd).ok();
        for held in node.and_then(|node| loopdev::find(node).ok()).unwrap_or_default() {
            let _ = loopdev::detach_and_wait(&held.device, held.backing, Duration::from_secs(5));
        }
    }
}

/// A FUSE filesystem that says hello and nothing ever after. Dropping it is the end of its server.
pub(crate) struct Silent {
    pub(crate) point: PathBuf,
    server: Option<File>,
}

impl Silent {
    /// `None` where there is no FUSE, having said so.
    pub(crate) fn mount(point: PathBuf) -> Option<Silent> {
        let mut server = match File::options().read(true).write(true).open("/dev/fuse") {
            Ok(server) => server,
            Err(error) => {
                println!("skipped: /dev/fuse cannot be opened: {error}");
                return None;
            }
        };
        std::fs::create_dir_all(&point).unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        mount("silent", &point, "fuse", MountFlags::NOSUID | MountFlags::NODEV, data.as_c_str()).unwrap();
        answer_init(&mut server);
        Some(Silent { point, server: Some(server) })
    }

    /// The server dies: from now on every question is answered with ENOTCONN.
    pub(crate) fn die(&mut self) {
        self.server = None;
    }
}

impl Silent {
    /// From now on every question is answered with this error, until it is unmounted.
    pub(crate) fn answer_all(mut self, errno: rustix::io::Errno) {
        let mut server = self.server.take().unwrap();
        std::thread::spawn(move || {
            let mut request = vec![0; 128 << 10];
            // Reading fails once the filesystem is gone.
            while let Ok(40..) = server.read(&mut request) {
                let mut answer = 16_u32.to_ne_bytes().to_vec();
                answer.extend((-errno.raw_os_error()).to_ne_bytes());
                answer.extend(&request[8..16]);
                // Some requests want no answer, and refuse one.
                let _ = server.write_all(&answer);
            }
        });
    }
}

/// The one request that is answered: which protocol we speak.
fn answer_init(server: &mut File) {
    let mut request = vec![0; 128 << 10];
    let length = server.read(&mut request).unwrap();
    assert!(length >= 40, "a request has a header");
    let unique: [u8; 8] = request[8..16].try_into().unwrap();
    let mut answer = Vec::new();
    answer.extend(80_u32.to_ne_bytes());
    answer.extend(0_i32.to_ne_bytes());
    answer.extend(unique);
    // Protocol 7.31, and defaults for everything.
    answer.extend(7_u32.to_ne_bytes());
    answer.extend(31_u32.to_ne_bytes());
    answer.resize(80, 0);
    server.write_all(&answer).unwrap();
}
