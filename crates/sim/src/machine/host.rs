//! A machine as one life of an agent sees it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use node::host::{
    Access, Answer, Entry, Force, Found, Host, HostError, MountCall, Mounts, Owned, Ownership, Progress, Selinux,
    SubPath, Usage, When,
};
use rustix::io::Errno;
use tokio::time::sleep;

use super::kernel::{Last, Node, Owner};
use super::{Done, Event, HostFate, HostFates, Kernel, Machine, Power, Superblock};
use crate::Component;
use crate::faults::Line;

/// How long a caller waits for what does not answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Errors of a filesystem that is not there any more, rather than of a question to it.
const CORRUPTED: [Errno; 6] =
    [Errno::NOTCONN, Errno::STALE, Errno::IO, Errno::ACCESS, Errno::HOSTDOWN, Errno::NOMEDIUM];

/// The machine of one life of an agent. It ends with the agent and with the machine's power: what is asked afterwards is
/// never answered and has no effect.
pub struct ModelHost {
    machine: Machine,
    power: Power,
    line: Line,
    fates: Mutex<Box<dyn HostFates>>,
    asked: AtomicU64,
}

impl fmt::Debug for ModelHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelHost({})", self.machine.name())
    }
}

/// One call: what it does, to which path, and whether it changes something.
#[derive(Clone, Copy)]
struct Call<'a> {
    doing: &'static str,
    path: &'a Path,
    changes: bool,
}

impl Call<'_> {
    fn refused(&self, errno: Errno) -> HostError {
        let message = std::io::Error::from(errno).to_string();
        HostError::Refused { doing: self.doing, path: self.path.to_owned(), errno: errno.raw_os_error(), message }
    }

    fn hung(&self) -> HostError {
        HostError::Hung { doing: self.doing, path: self.path.to_owned(), waited: DEADLINE }
    }
}

fn ask<'a>(doing: &'static str, path: &'a Path) -> Call<'a> {
    Call { doing, path, changes: false }
}

fn change<'a>(doing: &'static str, path: &'a Path) -> Call<'a> {
    Call { doing, path, changes: true }
}

impl ModelHost {
    /// What the agent that runs in this component sees of the machine, until either ends. A fate that is a crash kills the
    /// component.
    pub fn new(machine: &Machine, component: &Component, fates: impl HostFates) -> Self {
        let (machine, power, line) = (machine.clone(), machine.power(), component.line().clone());
        Self { machine, power, line, fates: Mutex::new(Box::new(fates)), asked: AtomicU64::new(0) }
    }

    fn is_over(&self) -> bool {
        self.line.is_dead() || self.machine.power() != self.power
    }

    /// Makes a call, as its fate wants.
    async fn call<T>(&self, call: Call<'_>, how: impl FnOnce(&mut Kernel) -> Done<T>) -> Result<T, HostError> {
        if self.is_over() {
            return std::future::pending().await;
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let Call { doing, path, changes } = call;
        let (fate, takes) = {
            let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
            (fates.call(&Event { number, doing, path, changes }), fates.takes())
        };
        if fate != HostFate::Done {
            self.machine.note(format_args!("{doing} {}{fate}", path.display()));
        }
        if fate == HostFate::CrashBefore {
            return self.crash().await;
        }
        if !takes.is_zero() {
            sleep(takes).await;
        }
        if self.is_over() {
            return std::future::pending().await;
        }
        match fate {
            HostFate::Refused(errno) => return Err(call.refused(errno)),
            HostFate::Hung => {
                sleep(DEADLINE).await;
                return Err(call.hung());
            }
            _ => {}
        }
        let done = match changes {
            true => self.machine.act(&format!("{doing} {}", path.display()), how),
            false => self.machine.with_kernel(how),
        };
        match fate {
            HostFate::CrashAfter => self.crash().await,
            HostFate::HungAndDone => {
                sleep(DEADLINE).await;
                Err(call.hung())
            }
            _ => done.map_err(|errno| call.refused(errno)),
        }
    }

    async fn crash<T>(&self) -> T {
        self.line.kill();
        std::future::pending().await
    }
}

fn found(kernel: &Kernel, path: &Path) -> Done<Found> {
    Ok(match kernel.look(path) {
        Ok(None) => Found::Nothing,
        Ok(Some(Node::Directory(_))) => Found::Directory,
        Ok(Some(Node::File(..))) => Found::File,
        Ok(Some(Node::Symlink(_))) => Found::Symlink,
        Ok(Some(Node::Device(_))) => Found::Device,
        Err(errno) if CORRUPTED.contains(&errno) => {
            Found::Corrupted { errno: errno.raw_os_error(), message: std::io::Error::from(errno).to_string() }
        }
        Err(errno) => return Err(errno),
    })
}

fn mount(kernel: &mut Kernel, call: &MountCall, source: &str) -> Done<()> {
    let access = match call.options.iter().any(|option| option == "ro") {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    kernel.mount(Superblock { fs_type: &call.fs_type, source }, &call.target, access)
}

impl Host for ModelHost {
    fn mounts(&self) -> Answer<'_, Mounts> {
        Box::pin(
            self.call(ask("read the mount table", Path::new("/proc/self/mountinfo")), |kernel| Ok(kernel.mounts())),
        )
    }

    fn boot(&self) -> Answer<'_, Option<String>> {
        let boot = match self.power {
            Power::On { boot } => Some(format!("boot-{boot}")),
            Power::Off => None,
        };
        Box::pin(std::future::ready(Ok(boot)))
    }

    fn find<'a>(&'a self, path: &'a Path) -> Answer<'a, Found> {
        Box::pin(self.call(ask("look at", path), move |kernel| found(kernel, path)))
    }

    fn list<'a>(&'a self, path: &'a Path) -> Answer<'a, Vec<Entry>> {
        Box::pin(self.call(ask("list", path), move |kernel| kernel.list(path)))
    }

    fn read<'a>(&'a self, path: &'a Path) -> Answer<'a, Option<Vec<u8>>> {
        Box::pin(self.call(ask("read", path), move |kernel| kernel.read(path)))
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8], mode: u32) -> Answer<'a, ()> {
        Box::pin(self.call(change("write", path), move |kernel| kernel.write(path, content, mode)))
    }

    fn make_directory<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()> {
        Box::pin(self.call(change("make the directory", path), move |kernel| kernel.make_directory(path, mode)))
    }

    fn make_file<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()> {
        let how = move |kernel: &mut Kernel| match kernel.make(path, Node::File(Owner::new(mode), Vec::new())) {
            Err(Errno::EXIST) if !matches!(kernel.look(path)?, Some(Node::Directory(_))) => Ok(()),
            made => made,
        };
        Box::pin(self.call(change("make the file", path), how))
    }

    fn set_mode<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()> {
        Box::pin(self.call(change("change the mode of", path), move |kernel| kernel.set_mode(path, mode)))
    }

    fn link<'a>(&'a self, target: &'a Path, link: &'a Path) -> Answer<'a, ()> {
        Box::pin(self.call(change("make the link", link), move |kernel| kernel.link(target, link)))
    }

    fn resolve<'a>(&'a self, path: &'a Path) -> Answer<'a, PathBuf> {
        Box::pin(self.call(ask("resolve", path), move |kernel| kernel.resolve(path)))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        Box::pin(self.call(change("remove", path), move |kernel| kernel.remove_file(path)))
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        Box::pin(self.call(change("remove the directory", path), move |kernel| kernel.remove_directory(path)))
    }

    fn remove_tree<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        Box::pin(self.call(change("remove the tree", path), move |kernel| kernel.remove_tree(path)))
    }

    fn bind<'a>(&'a self, source: &'a Path, target: &'a Path, access: Access) -> Answer<'a, ()> {
        Box::pin(self.call(change("bind to", target), move |kernel| kernel.bind(source, target, access)))
    }

    fn make_shared<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        Box::pin(self.call(change("share the mounts below", path), move |kernel| kernel.make_shared(path)))
    }

    fn mount<'a>(&'a self, call: &'a MountCall) -> Answer<'a, ()> {
        Box::pin(self.call(change("mount", &call.target), move |kernel| mount(kernel, call, &call.source)))
    }

    fn unmount<'a>(&'a self, path: &'a Path, force: Force) -> Answer<'a, ()> {
        Box::pin(self.call(change("unmount", path), move |kernel| kernel.unmount(path, force)))
    }

    fn format_and_mount<'a>(&'a self, device: &'a Path, call: &'a MountCall) -> Answer<'a, ()> {
        let how = move |kernel: &mut Kernel| {
            let spot = kernel.walk(device, Last::Followed)?;
            match kernel.node(&spot) {
                Some(Node::Device(_)) => mount(kernel, call, &spot.path.to_string_lossy()),
                _ => Err(Errno::NOTBLK),
            }
        };
        Box::pin(self.call(change("format and mount at", &call.target), how))
    }

    fn grow<'a>(&'a self, mounted: &'a Path) -> Answer<'a, ()> {
        let how = move |kernel: &mut Kernel| match kernel.mounts().at(mounted) {
            Some(_) => kernel.walk(mounted, Last::Followed).map(drop),
            None => Err(Errno::INVAL),
        };
        Box::pin(self.call(change("grow the filesystem at", mounted), how))
    }

    fn expose<'a>(&'a self, sub_path: &'a SubPath) -> Answer<'a, ()> {
        Box::pin(self.call(change("expose a part of", &sub_path.volume), move |kernel| expose(kernel, sub_path)))
    }

    fn hold<'a>(&'a self, device: &'a Path) -> Answer<'a, PathBuf> {
        Box::pin(self.call(change("hold", device), move |kernel| kernel.hold(device)))
    }

    fn let_go<'a>(&'a self, device: &'a Path) -> Answer<'a, ()> {
        Box::pin(self.call(change("let go", device), move |kernel| kernel.let_go(device)))
    }

    fn own<'a>(&'a self, ownership: &'a Ownership, progress: Progress<'a>) -> Answer<'a, Owned> {
        let how = move |kernel: &mut Kernel| own(kernel, ownership, progress);
        Box::pin(self.call(change("give to a group", &ownership.root), how))
    }

    fn usage<'a>(&'a self, path: &'a Path) -> Answer<'a, Usage> {
        let how = move |kernel: &mut Kernel| {
            let spot = kernel.walk(path, Last::Followed)?;
            let files = kernel.filesystems.get(&spot.filesystem).map_or(0, |held| held.nodes.len() as u64);
            let (capacity, inodes) = (1 << 30, 1 << 16);
            let used = files << 12;
            Ok(Usage {
                capacity,
                available: capacity - used,
                used,
                inodes,
                inodes_free: inodes - files,
                inodes_used: files,
            })
        };
        Box::pin(self.call(ask("measure", path), how))
    }

    fn set_label<'a>(&'a self, path: &'a Path, _: &'a str) -> Answer<'a, ()> {
        let how = move |kernel: &mut Kernel| kernel.walk(path, Last::Followed).map(drop);
        Box::pin(self.call(change("give an SELinux context to", path), how))
    }

    fn selinux(&self) -> Answer<'_, Selinux> {
        let found = match self.machine.label() {
            Some(label) => Selinux::On { files: Some(label) },
            None => Selinux::Off,
        };
        Box::pin(self.call(ask("read the SELinux policy at", Path::new("/etc/selinux/config")), move |_| Ok(found)))
    }
}

/// Binds a part of a volume, which is made if there is nothing, and refuses one that leads out of it.
fn expose(kernel: &mut Kernel, sub_path: &SubPath) -> Done<()> {
    let volume = kernel.resolve(&sub_path.volume)?;
    let part = volume.join(&sub_path.sub_path);
    let found = match kernel.resolve(&part) {
        Ok(found) => found,
        Err(Errno::NOENT) => {
            kernel.make_directory(&part, 0o750)?;
            kernel.resolve(&part)?
        }
        Err(errno) => return Err(errno),
    };
    if !found.starts_with(&volume) {
        return Err(Errno::XDEV);
    }
    if kernel.mounts().at(&sub_path.target).is_some() {
        return Ok(());
    }
    let is_directory = matches!(kernel.look(&found)?, Some(Node::Directory(_)));
    if let Some(parent) = sub_path.target.parent() {
        kernel.make_directory(parent, 0o750)?;
    }
    if kernel.look(&sub_path.target)?.is_none() {
        let node = match is_directory {
            true => Node::Directory(Owner::new(0o750)),
            false => Node::File(Owner::new(0o640), Vec::new()),
        };
        kernel.make(&sub_path.target, node)?;
    }
    kernel.bind(&found, &sub_path.target, sub_path.access)
}

fn own(kernel: &mut Kernel, ownership: &Ownership, progress: Progress<'_>) -> Done<Owned> {
    let spot = kernel.walk(&ownership.root, Last::Followed)?;
    let group = ownership.group;
    let nodes = kernel.change(&spot)?;
    let right = nodes.get_mut(&spot.inner).and_then(Node::owner).is_some_and(|owner| owner.group == group);
    if right && ownership.when == When::OnRootMismatch {
        return Ok(Owned::Already);
    }
    let mut files = 0;
    for (_, node) in nodes.iter_mut().filter(|(path, _)| path.starts_with(&spot.inner)) {
        if let Some(owner) = node.owner() {
            owner.group = group;
            owner.mode |= if ownership.access == Access::ReadOnly { 0o040 } else { 0o060 };
        }
        files += 1;
        progress(files);
    }
    Ok(Owned::Changed { files, refused: 0 })
}
