//! The machine as Linux has it.
//!
//! Every method is one call of the kernel or of a tool, in [`files`], [`mounting`], [`devices`], [`ownership`] or
//! [`selinux`], made on a thread of its own ([`isolate`]).

#[cfg(test)]
mod device_tests;
mod devices;
mod files;
mod isolate;
mod mounting;
mod ownership;
mod selinux;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isolate::{Call, Isolation, Lane};

use super::{
    Access, Answer, Entry, Force, Found, Host, HostError, MountCall, Mounts, Owned, Ownership, Progress, Seen, Selinux,
    SubPath, Usage,
};

/// How long the machine may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// To say what is at a path.
    pub question: Duration,
    /// To make, write or remove files.
    pub change: Duration,
    /// To mount and unmount, and for a tool to finish. Unmounting writes out what is not on disk yet.
    pub tool: Duration,
    /// To make a filesystem.
    pub format: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            question: Duration::from_secs(10),
            change: Duration::from_secs(60),
            tool: Duration::from_secs(120),
            format: Duration::from_secs(600),
        }
    }
}

/// How much longer than a tool its thread may take: a tool that is too slow is killed, which takes a moment.
const GRACE: Duration = Duration::from_secs(5);

/// This machine. Clones share what they know about paths that do not answer.
#[derive(Debug, Clone)]
pub struct LinuxHost {
    options: Options,
    isolation: Isolation,
    table: Arc<mounting::Table>,
}

impl LinuxHost {
    pub fn new(options: Options) -> Self {
        Self { options, isolation: Isolation::new(options.question), table: Arc::default() }
    }

    /// The paths that do not answer at the moment, and for how long.
    pub fn silent(&self) -> Vec<(PathBuf, Duration)> {
        self.isolation.all_silent()
    }

    /// Waits until every path answers again.
    #[cfg(test)]
    pub(crate) async fn quiet(&self) {
        self.isolation.quiet().await;
    }

    fn answer<'a, T: Send + 'static>(
        &'a self,
        (doing, path, deadline): (&'static str, &Path, Duration),
        lane: Lane,
        job: impl FnOnce(&Call) -> Result<T, HostError> + Send + 'static,
    ) -> Answer<'a, T> {
        let call = Call { doing, path: path.to_path_buf(), lane, deadline: Some(deadline) };
        Box::pin(self.isolation.run(call, job))
    }

    fn ask<'a, T: Send + 'static>(
        &'a self,
        doing: &'static str,
        path: &Path,
        job: impl FnOnce(&Call) -> Result<T, HostError> + Send + 'static,
    ) -> Answer<'a, T> {
        self.answer((doing, path, self.options.question), Lane::Ask, job)
    }

    fn change<'a>(
        &'a self,
        doing: &'static str,
        path: &Path,
        job: impl FnOnce(&Call) -> Result<(), HostError> + Send + 'static,
    ) -> Answer<'a, ()> {
        self.answer((doing, path, self.options.change), Lane::Ask, job)
    }

    /// For a call that is about a second path, too: if that is known not to answer, so is this.
    fn unless_silent<'a, T: Send + 'a>(
        &'a self,
        doing: &'static str,
        path: &'a Path,
        call: Answer<'a, T>,
    ) -> Answer<'a, T> {
        match self.isolation.silent(path) {
            Some(waited) => {
                let hung = HostError::Hung { doing, path: path.to_path_buf(), waited };
                Box::pin(std::future::ready(Err(hung)))
            }
            None => call,
        }
    }
}

impl Host for LinuxHost {
    fn mounts(&self) -> Answer<'_, Mounts> {
        let table = Arc::clone(&self.table);
        self.ask("read", Path::new(mounting::TABLE), move |call| table.read(call))
    }

    fn boot(&self) -> Answer<'_, Option<String>> {
        self.ask("read", Path::new("/proc/sys/kernel/random/boot_id"), |call| {
            let read = files::read(call)?;
            let id = read.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
            Ok(id.filter(|id| !id.is_empty()))
        })
    }

    fn find<'a>(&'a self, path: &'a Path) -> Answer<'a, Found> {
        self.ask("look at", path, files::find)
    }

    fn look<'a>(&'a self, path: &'a Path) -> Answer<'a, Seen> {
        self.ask("look at", path, files::look)
    }

    fn list<'a>(&'a self, path: &'a Path) -> Answer<'a, Vec<Entry>> {
        self.ask("list", path, files::list)
    }

    fn read<'a>(&'a self, path: &'a Path) -> Answer<'a, Option<Vec<u8>>> {
        self.ask("read", path, files::read)
    }

    fn write<'a>(&'a self, path: &'a Path, content: &'a [u8], mode: u32) -> Answer<'a, ()> {
        let content = content.to_vec();
        self.change("write", path, move |call| files::write(call, &content, mode))
    }

    fn make_directory<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()> {
        self.change("make the directory", path, move |call| files::make_directory(call, mode))
    }

    fn make_file<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()> {
        self.change("make the file", path, move |call| files::make_file(call, mode))
    }

    fn set_mode<'a>(&'a self, path: &'a Path, mode: u32) -> Answer<'a, ()> {
        self.change("set the permissions of", path, move |call| files::set_mode(call, mode))
    }

    fn link<'a>(&'a self, target: &'a Path, link: &'a Path) -> Answer<'a, ()> {
        let target = target.to_path_buf();
        self.change("make the link", link, move |call| files::link(call, &target))
    }

    fn resolve<'a>(&'a self, path: &'a Path) -> Answer<'a, PathBuf> {
        self.ask("resolve", path, files::resolve)
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        self.change("remove", path, files::remove_file)
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        self.change("remove the directory", path, files::remove_directory)
    }

    fn remove_tree<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        self.change("remove everything in", path, files::remove_tree)
    }

    fn bind<'a>(&'a self, source: &'a Path, target: &'a Path, access: Access) -> Answer<'a, ()> {
        let at = target.to_path_buf();
        let call =
            self.answer(("bind", source, self.options.tool), Lane::Ask, move |call| mounting::bind(call, &at, access));
        self.unless_silent("bind to", target, call)
    }

    fn make_shared<'a>(&'a self, path: &'a Path) -> Answer<'a, ()> {
        self.change("share the mounts below", path, mounting::make_shared)
    }

    fn mount<'a>(&'a self, call: &'a MountCall) -> Answer<'a, ()> {
        let (mount, deadline) = (call.clone(), self.options.tool);
        let on = ("mount", call.target.as_path(), deadline + GRACE);
        self.answer(on, Lane::Ask, move |call| mounting::mount(call, &mount, deadline))
    }

    fn unmount<'a>(&'a self, path: &'a Path, force: Force) -> Answer<'a, ()> {
        let lane = match force {
            Force::No => Lane::Unmount,
            Force::Yes => Lane::ForcedUnmount,
            Force::Lazy => Lane::LazyUnmount,
        };
        self.answer(("unmount", path, self.options.tool), lane, move |call| mounting::unmount(call, force))
    }

    fn format_and_mount<'a>(&'a self, device: &'a Path, call: &'a MountCall) -> Answer<'a, ()> {
        let (mount, options) = (call.clone(), self.options);
        let on = ("mount", device, options.format + options.tool + GRACE);
        let answer = self.answer(on, Lane::Ask, move |call| devices::format_and_mount(call, &mount, options));
        self.unless_silent("mount at", &call.target, answer)
    }

    fn grow<'a>(&'a self, mounted: &'a Path) -> Answer<'a, ()> {
        self.answer(("grow the filesystem at", mounted, self.options.tool + GRACE), Lane::Ask, devices::grow)
    }

    fn expose<'a>(&'a self, sub_path: &'a SubPath) -> Answer<'a, ()> {
        let part = sub_path.clone();
        let on = ("show a part of", sub_path.volume.as_path(), self.options.tool);
        let call = self.answer(on, Lane::Ask, move |call| mounting::expose(call, &part));
        self.unless_silent("show a part of a volume at", &sub_path.target, call)
    }

    fn hold<'a>(&'a self, device: &'a Path) -> Answer<'a, PathBuf> {
        self.answer(("hold", device, self.options.question), Lane::Hold, devices::hold)
    }

    fn let_go<'a>(&'a self, device: &'a Path) -> Answer<'a, ()> {
        self.answer(("let go of", device, self.options.question), Lane::Hold, devices::let_go)
    }

    fn own<'a>(&'a self, ownership: &'a Ownership, progress: Progress<'a>) -> Answer<'a, Owned> {
        Box::pin(ownership::own(&self.isolation, ownership, progress))
    }

    fn usage<'a>(&'a self, path: &'a Path) -> Answer<'a, Usage> {
        self.ask("measure", path, files::usage)
    }

    fn selinux(&self) -> Answer<'_, Selinux> {
        self.ask("read the SELinux policy at", Path::new(selinux::CONFIG), selinux::read)
    }

    fn set_label<'a>(&'a self, path: &'a Path, label: &'a str) -> Answer<'a, ()> {
        let label = label.to_owned();
        self.change("give an SELinux context to", path, move |call| selinux::set(call, &label))
    }
}

/// What an error of the layer below says, with its causes, as what became of a call.
fn refused(call: &Call, errno: Option<rustix::io::Errno>, error: &dyn std::error::Error) -> HostError {
    call.refused(errno.map_or(0, rustix::io::Errno::raw_os_error), runtime::causes(error))
}

/// What a failed system call about the path of the call itself says.
fn failed(call: &Call, error: &linux::SysError) -> HostError {
    if error.path.as_deref().is_none_or(|path| path == call.path) {
        return call.refused(error.source.raw_os_error().unwrap_or(0), error.source.to_string());
    }
    refused(call, error.errno(), error)
}
