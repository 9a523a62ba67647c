//! Parts of volumes (NODE-25), with somebody in the volume who would like to see more than that.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::mounts::unmount_all;
use crate::rig::{Rig, needs};

/// Says that it is over, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Volume {
    rig: Rig,
    volume: PathBuf,
    outside: PathBuf,
    target: PathBuf,
}

fn volume() -> Volume {
    let rig = Rig::new();
    let (volume, outside) = (rig.dir("volume"), rig.dir("outside"));
    fs::write(outside.join("whose"), "outside").unwrap();
    fs::create_dir(volume.join("part")).unwrap();
    fs::write(volume.join("part/whose"), "inside").unwrap();
    fs::create_dir(rig.path("targets")).unwrap();
    let target = rig.path("targets/0");
    Volume { rig, volume, outside, target }
}

impl Volume {
    fn expose(&self, part: &str) -> Result<Exposed, SubPathError> {
        expose(&self.volume, Path::new(part), &self.target, false)
    }

    fn shown(&self) -> String {
        fs::read_to_string(self.target.join("whose")).unwrap()
    }

    fn refused(&self, part: &str) -> String {
        let error = self.expose(part).unwrap_err();
        assert!(MountTable::read().unwrap().top(&self.target).is_none(), "{part}");
        assert!(!self.outside.join("made").exists(), "{part}");
        error.to_string()
    }
}

/// Rule: NODE-25
#[test]
fn a_directory_and_a_file_of_a_volume_are_shown() {
    needs!();
    let volume = volume();
    assert_eq!(volume.expose("part").unwrap(), Exposed::Mounted);
    assert_eq!(volume.shown(), "inside");
    let file = volume.rig.path("targets/1");
    expose(&volume.volume, Path::new("part/whose"), &file, false).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "inside");
    unmount_all(&file).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
}

/// Rule: NODE-25
#[test]
fn what_is_missing_is_made_with_the_mode_of_the_root() {
    needs!();
    let volume = volume();
    fs::set_permissions(&volume.volume, fs::Permissions::from_mode(0o2777)).unwrap();
    volume.expose("new/sub").unwrap();
    for made in ["new", "new/sub"] {
        assert_eq!(volume.volume.join(made).metadata().unwrap().mode() & 0o7777, 0o2777, "{made}");
    }
}

/// Rules: NODE-25, NODE-30.27
#[test]
fn links_that_stay_inside_work_and_those_that_lead_out_do_not() {
    needs!();
    let volume = volume();
    symlink("part", volume.volume.join("current")).unwrap();
    volume.expose("current").unwrap();
    assert_eq!(volume.shown(), "inside");
    unmount_all(&volume.target).unwrap();
    symlink(&volume.outside, volume.volume.join("absolute")).unwrap();
    symlink("../outside", volume.volume.join("relative")).unwrap();
    symlink("/proc/self/root", volume.volume.join("magic")).unwrap();
    symlink("../outside/made", volume.volume.join("dangling")).unwrap();
    symlink("loop", volume.volume.join("loop")).unwrap();
    for part in ["absolute", "relative", "relative/made", "magic", "magic/tmp", "loop", "absolute/made/deeper"] {
        assert!(volume.refused(part).contains("leads out"), "{part}");
    }
    volume.refused("dangling");
}

/// Rule: NODE-25
#[test]
fn paths_that_are_not_below_the_volume_are_refused() {
    needs!();
    let volume = volume();
    for part in ["..", "part/../../outside", "/etc", ""] {
        assert!(volume.refused(part).contains("not a relative path"), "{part}");
    }
}

/// Rule: NODE-25
#[test]
fn a_target_is_kept_if_it_is_right_and_replaced_if_it_is_not() {
    needs!();
    let volume = volume();
    fs::create_dir(volume.volume.join("other")).unwrap();
    assert_eq!(volume.expose("part").unwrap(), Exposed::Mounted);
    assert_eq!(volume.expose("part").unwrap(), Exposed::Already);
    assert_eq!(volume.expose("other").unwrap(), Exposed::Mounted);
    assert!(!volume.target.join("whose").exists());
    assert_eq!(MountTable::read().unwrap().at(&volume.target).count(), 1);
    assert_eq!(expose(&volume.volume, Path::new("other"), &volume.target, true).unwrap(), Exposed::Mounted);
    assert!(fs::write(volume.target.join("file"), "x").is_err());
    assert_eq!(expose(&volume.volume, Path::new("other"), &volume.target, true).unwrap(), Exposed::Already);
}

/// Rule: NODE-30.27
#[test]
fn whoever_swaps_a_directory_for_a_link_sees_nothing_of_the_machine() {
    needs!();
    let volume = volume();
    let (there, link) = (volume.volume.join("part"), volume.volume.join("link"));
    symlink(&volume.outside, &link).unwrap();
    let done = AtomicBool::new(false);
    let mut shown = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &there, CWD, &link, exchange).unwrap();
            }
        });
        let _over = Over(&done);
        for _ in 0..300 {
            if let Ok(Exposed::Mounted) = volume.expose("part") {
                let whose = fs::read_to_string(volume.target.join("whose"));
                unmount_all(&volume.target).unwrap();
                if whose.unwrap() != "inside" {
                    shown += 1;
                }
            }
        }
    });
    assert_eq!(shown, 0, "times the machine was shown");
}
