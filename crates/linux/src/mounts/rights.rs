//! What this process may mount here, by asking the kernel and not by its user id.
//!
//! Root of a user namespace looks like root: it opens `/dev/loop-control` where the file's owner lets it, and binds
//! directories to its heart's content, but a filesystem on a device is refused to it at the very last step. And root of a
//! container may mount nothing at all. The kernel says which of these it is before anything is made: it looks at the right
//! first and at the missing source of the filesystem after that.

use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, fsconfig_create, fsopen};

use crate::fs::FsType;

/// What may be mounted, in growing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Nothing: this process has no CAP_SYS_ADMIN over its mount namespace.
    Nothing,
    /// Directories and filesystems without a device: this is a user namespace.
    Directories,
    /// Also filesystems on devices, such as a loop device's.
    Devices,
}

impl Rights {
    /// Asks the kernel. Nothing is mounted, and nothing is left.
    pub fn ask() -> Rights {
        match fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC) {
            Ok(_) => {}
            Err(Errno::NOSYS) => return by_user(),
            Err(_) => return Rights::Nothing,
        }
        for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
            // A filesystem that this kernel does not have says nothing.
            let Ok(context) = fsopen(fs_type.name(), FsOpenFlags::FSOPEN_CLOEXEC) else { continue };
            return match fsconfig_create(&context) {
                Err(Errno::PERM | Errno::ACCESS) => Rights::Directories,
                // What is wrong is only that no device was named.
                Ok(()) | Err(_) => Rights::Devices,
            };
        }
        by_user()
    }
}

/// A kernel that cannot be asked is too old for surprises: root may mount.
fn by_user() -> Rights {
    if rustix::process::geteuid().is_root() { Rights::Devices } else { Rights::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_attach_a_loop_device_may_mount_it() {
        if crate::loopdev::available() == crate::loopdev::LoopSupport::Yes {
            assert_eq!(Rights::ask(), Rights::Devices);
        }
    }

    #[test]
    fn a_user_without_any_right_may_mount_nothing() {
        if rustix::process::geteuid().is_root() {
            println!("skipped: root has rights");
            return;
        }
        assert_eq!(Rights::ask(), Rights::Nothing);
    }
}
