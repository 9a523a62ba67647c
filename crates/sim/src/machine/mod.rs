//! A model of a machine: what the node agent and a driver's node side do to it, and what of that survives what.
//!
//! A [`Machine`] is the hardware and its kernel. It outlives the agent, whose death changes nothing on it, and a reboot,
//! which leaves its disk and takes its mounts, its devices and what was under way. An agent works on it through a
//! [`ModelHost`], which is a life's view of it, with faults of its own.
//!
//! # Invariants
//! 1. Everything is refused that Linux refuses, with the same number (`kernel`). The same behaviour is asked of the real
//!    machine in `tests/host`.
//! 2. Every effect is a line in the journal.
//! 3. What was under way in the machine ends with a reboot and has no effect afterwards.

mod fates;
mod host;
mod kernel;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use runtime::watch;
use rustix::io::Errno;

pub use fates::{Event, HostFate, HostFates, Rough};
pub use host::ModelHost;
pub use kernel::{Done, Kernel, Node, Owner, Superblock};

use crate::World;
use crate::journal::Journal;

/// One machine. Clones are the same.
#[derive(Clone)]
pub struct Machine {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    journal: Journal,
    kernel: Mutex<Kernel>,
    power: watch::Sender<Power>,
    onlooker: Mutex<Option<Weak<dyn Onlooker>>>,
    label: Mutex<Option<String>>,
    /// Whether there is another machine that this one is a copy of.
    is_clone: bool,
}

/// Who sees every change of a machine, right after it.
pub trait Onlooker: Send + Sync + 'static {
    fn changed(&self, machine: &Machine);
}

/// Whether it runs, and for which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    On { boot: u64 },
    Off,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({})", self.shared.name)
    }
}

impl Machine {
    /// A machine that runs, with an empty disk.
    pub fn new(world: &World, name: &str) -> Self {
        Self::with(world.journal().clone(), name, false)
    }

    /// Makes it a machine that is off and stands for a copy of the one of its name.
    pub(crate) fn into_clone(self) -> Self {
        let clone = Self::with(self.shared.journal.clone(), self.name(), true);
        clone.shared.power.send_replace(Power::Off);
        clone
    }

    pub(crate) fn is_clone(&self) -> bool {
        self.shared.is_clone
    }

    /// What tells it from a copy of it.
    pub(crate) fn body(&self) -> String {
        match self.is_clone() {
            true => format!("the clone of {}", self.name()),
            false => self.name().to_owned(),
        }
    }

    /// Takes over the disk of another machine, and nothing else.
    pub(crate) fn copy_disk(&self, from: &Self) {
        let mut copied = from.kernel().clone();
        copied.boot();
        *self.kernel() = copied;
    }

    fn with(journal: Journal, name: &str, is_clone: bool) -> Self {
        let (kernel, power) = (Mutex::new(Kernel::new()), watch::Sender::new(Power::On { boot: 1 }));
        Self {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                journal,
                kernel,
                power,
                onlooker: Mutex::new(None),
                label: Mutex::new(None),
                is_clone,
            }),
        }
    }

    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Turns SELinux on: this is what files in containers have.
    pub fn with_selinux(&self, label: &str) {
        *self.shared.label.lock().unwrap_or_else(PoisonError::into_inner) = Some(label.to_owned());
    }

    fn label(&self) -> Option<String> {
        self.shared.label.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn power(&self) -> Power {
        *self.shared.power.borrow()
    }

    /// Follows the power.
    pub fn powers(&self) -> watch::Receiver<Power> {
        self.shared.power.subscribe()
    }

    /// Off at once: mounts, devices and what was under way are gone.
    pub fn power_off(&self) {
        self.note("power off");
        self.kernel().boot();
        self.shared.power.send_replace(Power::Off);
    }

    /// Runs again; `boots` counts how often.
    pub fn power_on(&self, boot: u64) {
        self.note(format_args!("boot {boot}"));
        self.shared.power.send_replace(Power::On { boot });
    }

    /// Off and on in one moment.
    pub fn reboot(&self) {
        let boot = match self.power() {
            Power::On { boot } => boot + 1,
            Power::Off => 1,
        };
        self.power_off();
        self.power_on(boot);
    }

    /// Breaks the filesystem that is mounted here: it answers everything with this error. False if nothing is mounted.
    pub fn corrupt(&self, point: &Path, errno: Errno) -> bool {
        self.note(format_args!("{} is broken: {errno}", point.display()));
        self.kernel().corrupt(point, errno)
    }

    /// A process uses what is below a path, so that it is busy.
    pub fn occupy(&self, path: &Path) {
        self.kernel().occupy(path);
    }

    /// No process does so any more.
    pub fn vacate(&self, path: &Path) {
        self.kernel().vacate(path);
    }

    /// Does something to the machine. A success is a line in the journal, and whoever looks on sees it.
    pub fn act<T>(&self, what: &str, how: impl FnOnce(&mut Kernel) -> Done<T>) -> Done<T> {
        let done = how(&mut self.kernel());
        match &done {
            Ok(_) => self.note(what),
            Err(errno) => self.note(format_args!("{what}: {errno}")),
        }
        let onlooker = self.shared.onlooker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(onlooker) = onlooker.as_ref().and_then(Weak::upgrade) {
            onlooker.changed(self);
        }
        done
    }

    /// Lets this one see every change from now on, for as long as it lives. It may hold the machine, which does not hold it.
    pub fn watched_by(&self, onlooker: &Arc<impl Onlooker>) {
        let weak = Arc::downgrade(onlooker);
        *self.shared.onlooker.lock().unwrap_or_else(PoisonError::into_inner) = Some(weak);
    }

    /// The state, to look at or to change behind everybody's back.
    pub fn with_kernel<T>(&self, what: impl FnOnce(&mut Kernel) -> T) -> T {
        what(&mut self.kernel())
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.shared.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, what: impl fmt::Display) {
        self.shared.journal.note(&self.body(), what);
    }
}

#[cfg(test)]
mod tests;
