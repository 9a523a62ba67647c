//! What the kernel shows of a mounted filesystem that is in trouble, asked without writing anything.

use std::fs;
use std::path::Path;

use rustix::io::Errno;

use super::seen::mounts_of_loop;
use linux::loopdev::LoopStatus;
use linux::mountinfo::MountTable;

/// What is known of one mounted filesystem.
#[derive(Debug, Clone, Default)]
struct Evidence {
    /// It answers a request to list its root.
    answers: bool,
    super_options: Vec<String>,
    /// The device below was attached for reading only.
    device_read_only: bool,
    /// Errors that ext4 has noted, of this and of earlier mounts.
    ext4_errors: u64,
    /// Writes that btrfs counts as failed, of this and of earlier mounts.
    btrfs_write_errors: u64,
}

/// What the evidence says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// Something is wrong, and says nothing of lost writes.
    Wrong(String),
    /// What was written last is lost.
    Lost {
        doing: &'static str,
        error: String,
    },
}

fn judge(evidence: &Evidence) -> Health {
    let has = |name: &str| evidence.super_options.iter().any(|option| option == name);
    let lost = |error: &str| Health::Lost { doing: "writing the mounted filesystem", error: error.to_owned() };
    if !evidence.answers || has("shutdown") {
        return lost("the kernel has shut it down after an error, and it answers no request");
    }
    if has("emergency_ro") {
        return lost("the kernel has made it read-only after an error");
    }
    let turned = has("ro") && !evidence.device_read_only;
    match (turned, evidence.ext4_errors.max(evidence.btrfs_write_errors)) {
        (false, 0) => Health::Good,
        (true, 0) => Health::Wrong("the filesystem has turned read-only".to_owned()),
        (true, errors) => lost(&format!("the kernel has made it read-only after {errors} errors")),
        (false, errors) => Health::Wrong(format!("the filesystem has noted {errors} errors; unmount and check it")),
    }
}

/// Asks the kernel about the filesystem on a device. `path` is one of its mounts.
pub(super) fn of_filesystem(status: &LoopStatus, path: &Path, table: &MountTable) -> Health {
    let name = status.device.path.file_name().unwrap_or_default();
    let mount = mounts_of_loop(table, &status.device).next();
    judge(&Evidence {
        answers: answers(path),
        super_options: mount.map(|mount| mount.super_options.clone()).unwrap_or_default(),
        // A device that cannot be asked is not taken for writable: that would mark a volume for nothing.
        device_read_only: status.read_only || status.device.is_read_only().unwrap_or(true),
        ext4_errors: number_in(&Path::new("/sys/fs/ext4").join(name).join("errors_count")),
        btrfs_write_errors: if mount.is_some_and(|mount| mount.fs_type == "btrfs") {
            btrfs_write_errors(name)
        } else {
            0
        },
    })
}

/// False if the filesystem answers with an input/output error, as one does that was shut down.
pub(super) fn answers(path: &Path) -> bool {
    let is_io = |error: &std::io::Error| Errno::from_io_error(error) == Some(Errno::IO);
    match fs::read_dir(path) {
        Ok(mut entries) => !entries.next().is_some_and(|entry| entry.is_err_and(|error| is_io(&error))),
        Err(error) => !is_io(&error),
    }
}

fn number_in(file: &Path) -> u64 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// btrfs lists its filesystems by uuid, each with its devices, and counts errors for each device.
fn btrfs_write_errors(device: &std::ffi::OsStr) -> u64 {
    let filesystems = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(ours) = filesystems.into_iter().find(|place| place.join("devices").join(device).exists()) else {
        return 0;
    };
    let stats = fs::read_dir(ours.join("devinfo")).into_iter().flatten().flatten();
    stats
        .filter_map(|entry| fs::read_to_string(entry.path().join("error_stats")).ok())
        .flat_map(|text| {
            text.lines().filter_map(|line| line.strip_prefix("write_errs ")?.trim().parse().ok()).collect::<Vec<u64>>()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_writes_are_told_from_other_trouble() {
        let healthy = Evidence { answers: true, super_options: vec!["rw".to_owned()], ..Default::default() };
        let options = |options: &[&str]| options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>();
        let is_lost = |evidence: Evidence| matches!(judge(&evidence), Health::Lost { .. });
        let is_wrong = |evidence: Evidence| matches!(judge(&evidence), Health::Wrong(_));
        assert_eq!(judge(&healthy), Health::Good);
        assert!(is_lost(Evidence { answers: false, ..healthy.clone() }));
        assert!(is_lost(Evidence { super_options: options(&["rw", "shutdown"]), ..healthy.clone() }));
        assert!(is_lost(Evidence { super_options: options(&["rw", "emergency_ro"]), ..healthy.clone() }));
        let turned = Evidence { super_options: options(&["ro"]), ..healthy.clone() };
        assert!(is_wrong(turned.clone()), "an administrator may have remounted it");
        assert!(is_lost(Evidence { ext4_errors: 1, ..turned.clone() }));
        assert!(is_lost(Evidence { btrfs_write_errors: 1, ..turned.clone() }));
        assert_eq!(judge(&Evidence { device_read_only: true, ..turned.clone() }), Health::Good, "it was staged so");
        assert!(is_wrong(Evidence { ext4_errors: 2, ..healthy }), "the errors may be of an earlier mount");
    }
}
