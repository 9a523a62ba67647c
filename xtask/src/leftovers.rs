//! What a run left on the machine: loop devices, mounts and processes that belong to its folders.
//!
//! Belonging is decided by path, so that two runs on one machine do not blame each other. One thing has no path: a free
//! loop device that is still write-protected, which its next user, whoever that is, would inherit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Something that outlived its maker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leftover {
    Loop {
        device: String,
        file: String,
    },
    /// Free, and read-only for whoever gets it next.
    Protected {
        device: String,
    },
    Mount {
        point: String,
        source: String,
    },
    Process {
        pid: u32,
        command: String,
    },
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Loop { device, file } => write!(f, "loop device {device} on {file}"),
            Self::Protected { device } => write!(f, "write protection of the free loop device {device}"),
            Self::Mount { point, source } => write!(f, "mount of {source} at {point}"),
            Self::Process { pid, command } => write!(f, "process {pid}: {command}"),
        }
    }
}

/// Everything on the machine now that belongs to one of the folders.
pub(crate) fn under(folders: &[PathBuf]) -> BTreeSet<Leftover> {
    let mut found = loops(Path::new("/sys/block"));
    found.extend(mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()));
    found.retain(|leftover| match leftover {
        Leftover::Loop { file, .. } => is_under(file, folders),
        Leftover::Mount { point, source } => is_under(point, folders) || is_under(source, folders),
        Leftover::Protected { .. } | Leftover::Process { .. } => true,
    });
    found.extend(processes(folders));
    found
}

/// Takes away every mount and loop device that belongs to a folder, the latest first: what a killed driver leaves.
pub(crate) fn remove(folder: &Path) {
    let folders = [folder.to_path_buf()];
    let mut mounts: Vec<String> = Vec::new();
    let mut devices: Vec<String> = Vec::new();
    for leftover in under(&folders) {
        match leftover {
            Leftover::Mount { point, .. } => mounts.push(point),
            Leftover::Loop { device, .. } => devices.push(device),
            Leftover::Protected { .. } | Leftover::Process { .. } => {}
        }
    }
    // A mount below another one is longer than it.
    mounts.sort_by_key(|point| std::cmp::Reverse(point.len()));
    let unmounted = mounts.iter().map(|point| crate::disk::run("umount", &["-l"], &[Path::new(point)]));
    let detached = devices.iter().map(|device| crate::disk::run("losetup", &["--detach"], &[Path::new(device)]));
    unmounted.chain(detached).filter_map(Result::err).for_each(|error| eprintln!("cleaning up: {error:#}"));
}

fn is_under(path: &str, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| Path::new(path).starts_with(folder))
}

/// Loop devices with a backing file, and protected ones without. The kernel marks a file that is gone ` (deleted)`.
fn loops(block: &Path) -> BTreeSet<Leftover> {
    let entries = fs::read_dir(block).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let device = format!("/dev/{}", name.strip_prefix("loop").map(|_| &name)?);
        match fs::read_to_string(entry.path().join("loop/backing_file")) {
            Ok(file) => {
                let file = file.trim_end().trim_end_matches(" (deleted)").to_owned();
                Some(Leftover::Loop { device, file })
            }
            Err(_) => {
                let protected = fs::read_to_string(entry.path().join("ro")).is_ok_and(|ro| ro.trim() == "1");
                protected.then_some(Leftover::Protected { device })
            }
        }
    });
    found.collect()
}

/// Lines of mountinfo: the mount point is field five, the source the second one after the lone hyphen.
fn mounts(mountinfo: &str) -> BTreeSet<Leftover> {
    let parse = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let point = unescape(before.split(' ').nth(4)?);
        let source = unescape(after.split(' ').nth(1)?);
        Some(Leftover::Mount { point, source })
    };
    mountinfo.lines().filter_map(parse).collect()
}

/// mountinfo writes blanks and backslashes as three octal digits.
fn unescape(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

/// Processes whose command line names one of the folders, ourselves excepted.
fn processes(folders: &[PathBuf]) -> Vec<Leftover> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let running = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
        let ours = folders.iter().any(|folder| command.contains(&folder.display().to_string()));
        (ours && pid != std::process::id()).then_some(Leftover::Process { pid, command })
    });
    running.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
90 22 7:0 / /tmp/run\\0401/mnt rw - xfs /dev/loop0 rw
91 22 254:0 /x /elsewhere rw - ext4 /tmp/run\\0401/img rw
";

    #[test]
    fn mounts_belong_by_point_or_by_source() {
        let mut found = mounts(TABLE);
        assert_eq!(found.len(), 3);
        let folders = [PathBuf::from("/tmp/run 1")];
        found.retain(|leftover| match leftover {
            Leftover::Mount { point, source } => is_under(point, &folders) || is_under(source, &folders),
            _ => false,
        });
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["mount of /tmp/run 1/img at /elsewhere", "mount of /dev/loop0 at /tmp/run 1/mnt"]);
    }

    #[test]
    fn a_neighbour_with_a_longer_name_is_somebody_elses() {
        assert!(is_under("/tmp/run-1/img", &[PathBuf::from("/tmp/run-1")]));
        assert!(!is_under("/tmp/run-12/img", &[PathBuf::from("/tmp/run-1")]));
    }

    #[test]
    fn a_loop_device_is_found_though_its_file_is_deleted() {
        let block = tempfile::tempdir().unwrap();
        fs::create_dir_all(block.path().join("loop3/loop")).unwrap();
        fs::create_dir_all(block.path().join("vda")).unwrap();
        fs::write(block.path().join("loop3/loop/backing_file"), "/tmp/a/img (deleted)\n").unwrap();
        let found = loops(block.path());
        assert_eq!(found, BTreeSet::from([Leftover::Loop { device: "/dev/loop3".into(), file: "/tmp/a/img".into() }]));
    }

    #[test]
    fn a_free_loop_device_that_stayed_read_only_is_found() {
        let block = tempfile::tempdir().unwrap();
        for (name, ro) in [("loop1", "0\n"), ("loop2", "1\n"), ("sr0", "1\n")] {
            fs::create_dir(block.path().join(name)).unwrap();
            fs::write(block.path().join(name).join("ro"), ro).unwrap();
        }
        assert_eq!(loops(block.path()), BTreeSet::from([Leftover::Protected { device: "/dev/loop2".into() }]));
    }
}
