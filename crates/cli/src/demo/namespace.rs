//! What the demonstration may do on this machine, and how it gets the right to mount without root: in a user and mount
//! namespace of its own.
//!
//! A process can move into a new user namespace only while it has one thread, so this comes before the runtime. Whether it
//! works is tried first in a child that ends again: a process that is half in cannot go back. What a machine forbids is
//! said with the setting that forbids it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use linux::fs::FsType;
use linux::loopdev::{self, LoopSupport};
use linux::mounts::Rights;
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

/// What the demonstration can show here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ground {
    /// Volumes are image files with a filesystem, on loop devices.
    Images,
    /// Volumes are directories, for this reason.
    Directories(String),
    /// Nothing can be mounted, for this reason.
    Unmountable(Forbidden),
}

/// Where this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    /// Where the user started it.
    Outside,
    /// In the namespace that it made.
    Namespace,
}

/// What a machine forbids, and how to allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Forbidden {
    pub(super) what: String,
    pub(super) allow: String,
}

impl Ground {
    /// Finds out; where only a namespace helps, this process goes on in one and does not return from here.
    pub(super) fn settle(inside: Inside) -> anyhow::Result<Self> {
        match (Rights::ask(), inside) {
            (Rights::Devices, _) => Ok(Self::with_devices()),
            (Rights::Directories, Inside::Namespace) => Ok(Self::Directories(
                "without root's rights, mounts are made in a user and mount namespace of the demonstration's own"
                    .to_owned(),
            )),
            (Rights::Directories, Inside::Outside) => {
                Ok(Self::Directories("root of a user namespace may mount no devices".to_owned()))
            }
            (Rights::Nothing, Inside::Namespace) => Ok(Self::Unmountable(judge(Step::Mount, None, &Facts::read()))),
            (Rights::Nothing, Inside::Outside) => match try_in_a_child()? {
                Ok(()) => Err(go_inside()),
                Err(forbidden) => Ok(Self::Unmountable(forbidden)),
            },
        }
    }

    fn with_devices() -> Self {
        match (loopdev::available(), FsType::Ext4.missing_tools().first()) {
            (LoopSupport::No(why), _) => Self::Directories(format!("there are no loop devices: {why}")),
            (LoopSupport::Yes, Some(missing)) => Self::Directories(format!("no filesystem can be made: {missing}")),
            (LoopSupport::Yes, None) => Self::Images,
        }
    }
}

/// The flag by which the child knows that it is only to try.
pub(super) const TRY: &str = "--try-namespace";
/// The flag by which this program knows that it is inside.
pub(super) const INSIDE: &str = "--in-namespace";

/// The child: moves in, and says how that went.
pub(super) fn try_and_tell() -> ExitCode {
    let said = enter().err();
    println!("{}", serde_json::json!(said));
    ExitCode::SUCCESS
}

fn try_in_a_child() -> anyhow::Result<Result<(), Forbidden>> {
    let output = Command::new("/proc/self/exe").args(["demo", TRY]).output().context("trying a user namespace")?;
    let said: Option<Forbidden> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("trying a user namespace: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(said.map_or(Ok(()), Err))
}

/// The same program with the same words, in a namespace. Returns only why that did not work.
fn go_inside() -> anyhow::Error {
    if let Err(forbidden) = enter() {
        return anyhow::anyhow!("{}; {}", forbidden.what, forbidden.allow);
    }
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| "orlop".into());
    let error = Command::new("/proc/self/exe").arg0(name).args(words).arg(INSIDE).exec();
    anyhow::Error::from(error).context("starting again in a user namespace")
}

/// Moves this process into a user and a mount namespace, in which the user is root.
fn enter() -> Result<(), Forbidden> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Read before: inside, the limits are those of the new namespace.
    let facts = Facts::read();
    unshare().map_err(|errno| judge(Step::Unshare, Some(errno), &facts))?;
    let maps = [
        // Without giving up this right, no group may be mapped.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ];
    for (file, text) in maps {
        fs::write(file, text).map_err(|error| judge(Step::Map, errno_of(&error), &facts))?;
    }
    match Rights::ask() {
        Rights::Nothing => Err(judge(Step::Mount, None, &facts)),
        Rights::Directories | Rights::Devices => Ok(()),
    }
}

#[allow(deprecated, reason = "deprecated for the flag FILES, which parts threads' descriptors and is not given here")]
fn unshare() -> Result<(), Errno> {
    rustix::thread::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
}

fn errno_of(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Unshare,
    Map,
    Mount,
}

/// The settings by which machines forbid user namespaces; `None` where the machine does not have the setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Facts {
    /// user.max_user_namespaces
    most: Option<u64>,
    /// kernel.unprivileged_userns_clone, of Debian's kernels
    clone: Option<u64>,
    /// kernel.apparmor_restrict_unprivileged_userns, of Ubuntu's
    apparmor: Option<u64>,
    /// A filter decides about this process' system calls, as in most containers.
    filtered: bool,
}

impl Facts {
    fn read() -> Self {
        let number = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let filter = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            most: number("user/max_user_namespaces"),
            clone: number("kernel/unprivileged_userns_clone"),
            apparmor: number("kernel/apparmor_restrict_unprivileged_userns"),
            filtered: filter.is_some_and(|mode| mode.trim() == "2"),
        }
    }
}

/// Names the setting that forbids it.
fn judge(step: Step, errno: Option<Errno>, facts: &Facts) -> Forbidden {
    let forbidden = |what: String, allow: &str| Forbidden { what, allow: allow.to_owned() };
    let said = errno.map_or_else(|| "no right to mount".to_owned(), |errno| errno.to_string());
    match (step, errno) {
        (Step::Unshare, Some(Errno::NOSPC | Errno::USERS)) => {
            let most = facts.most.map_or_else(|| "reached".to_owned(), |most| most.to_string());
            forbidden(
                format!("this machine allows no further user namespaces (user.max_user_namespaces is {most})"),
                "sysctl -w user.max_user_namespaces=15000",
            )
        }
        (Step::Unshare, Some(Errno::PERM | Errno::ACCESS)) if facts.clone == Some(0) => forbidden(
            "this machine keeps user namespaces from ordinary users (kernel.unprivileged_userns_clone is 0)".to_owned(),
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (_, None | Some(Errno::PERM | Errno::ACCESS)) if facts.apparmor.is_some_and(|mode| mode != 0) => forbidden(
            "AppArmor lets ordinary users do nothing in a user namespace \
             (kernel.apparmor_restrict_unprivileged_userns is on)"
                .to_owned(),
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (_, Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS)) if facts.filtered => forbidden(
            format!(
                "this process is under a seccomp filter, as containers have it, which refuses user namespaces ({said})"
            ),
            "start the container with --privileged, or with --cap-add SYS_ADMIN --security-opt seccomp=unconfined",
        ),
        (Step::Unshare, Some(Errno::INVAL | Errno::NOSYS)) => {
            forbidden(format!("this kernel has no user namespaces ({said})"), "use a kernel with CONFIG_USER_NS")
        }
        (Step::Unshare, _) => {
            forbidden(format!("no user namespace can be made here ({said})"), "ask who runs this machine")
        }
        (Step::Map, _) => {
            forbidden(format!("a user namespace can be made here, but not used ({said})"), "ask who runs this machine")
        }
        (Step::Mount, _) => forbidden(
            "nothing can be mounted here, not even in a user namespace".to_owned(),
            "ask who runs this machine",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_forbids_is_said_with_the_setting_that_forbids_it() {
        let free = Facts { most: Some(15_000), ..Facts::default() };
        let rows = [
            (Step::Unshare, Some(Errno::NOSPC), Facts { most: Some(0), ..free }, "user.max_user_namespaces is 0"),
            (Step::Unshare, Some(Errno::PERM), Facts { clone: Some(0), ..free }, "unprivileged_userns_clone is 0"),
            (Step::Unshare, Some(Errno::PERM), Facts { filtered: true, ..free }, "seccomp"),
            (Step::Unshare, Some(Errno::INVAL), free, "this kernel has no user namespaces"),
            (Step::Unshare, Some(Errno::PERM), free, "no user namespace can be made here"),
            (Step::Map, Some(Errno::PERM), Facts { apparmor: Some(1), ..free }, "AppArmor"),
            (Step::Mount, None, Facts { apparmor: Some(1), ..free }, "AppArmor"),
            (Step::Map, Some(Errno::PERM), Facts { apparmor: Some(0), ..free }, "can be made here, but not used"),
            (Step::Mount, None, free, "nothing can be mounted here"),
        ];
        for (step, errno, facts, want) in rows {
            let said = judge(step, errno, &facts);
            assert!(said.what.contains(want), "{step:?} {errno:?} {facts:?}: {said:?}");
            assert!(!said.allow.is_empty());
        }
    }
}
