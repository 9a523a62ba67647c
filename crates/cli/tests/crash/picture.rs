//! Everything of a driver that outlives it, as text: files, records, mounts and loop devices. Two runs that ended in the
//! same state have the same picture.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use linux::loopdev::{self, BackingFile};
use linux::mountinfo::MountTable;

use crate::rig::Scratch;

/// The state of the machine below one scratch folder, by place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    places: BTreeMap<String, String>,
    left_out: &'static [&'static str],
}

/// What a picture leaves out of records.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Without {
    /// When something was made.
    Times,
    /// Times, and whether a volume was formatted: unstaging does not take that back.
    TimesAndFormat,
}

impl Picture {
    pub(crate) fn take(scratch: &Scratch, without: Without) -> Self {
        let left_out: &[&str] = match without {
            Without::Times => &["createdMs"],
            Without::TimesAndFormat => &["createdMs", "format"],
        };
        let mut picture = Self { places: BTreeMap::new(), left_out };
        let pool = scratch.path("pool");
        for folder in ["volumes", "snapshots", "groups", ".tmp", ".trash"] {
            picture.folder(&pool, &pool.join(folder));
        }
        picture.targets(&scratch.dir("targets"));
        picture.mounts(scratch);
        picture
    }

    fn note(&mut self, place: String, what: impl Into<String>) {
        let before = self.places.insert(place.clone(), what.into());
        assert_eq!(before, None, "{place} is in the picture twice");
    }

    fn folder(&mut self, pool: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let place = path.strip_prefix(pool).unwrap().display().to_string();
            match entry.file_name().to_str().unwrap() {
                // A volume's own files are the workload's.
                "data" | "staged" => self.note(place, "a directory of files"),
                "image" => {
                    self.note(format!("{place} bytes"), fs::metadata(&path).unwrap().len().to_string());
                    self.loops(&place, &path);
                }
                _ if kind.is_dir() => {
                    self.note(place, "a directory");
                    self.folder(pool, &path);
                }
                _ => self.note(place, self.record(&fs::read_to_string(&path).unwrap())),
            }
        }
    }

    /// A record without its header, which has a checksum.
    fn record(&self, text: &str) -> String {
        let Some((_, body)) = text.split_once('\n') else { return text.to_owned() };
        let mut fields: BTreeMap<String, serde_json::Value> = serde_json::from_str(body).unwrap();
        fields.retain(|name, _| !self.left_out.contains(&name.as_str()));
        serde_json::to_string(&fields).unwrap()
    }

    fn loops(&mut self, place: &str, image: &Path) {
        let backing = BackingFile::of(File::open(image).unwrap()).unwrap();
        for (number, status) in loopdev::find(backing).unwrap().into_iter().enumerate() {
            let size = status.device.size().unwrap();
            let what = format!("{size} bytes, read-only {}, autoclear {}", status.read_only, status.autoclear);
            self.note(format!("{place} loop device {number}"), what);
        }
    }

    fn targets(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            self.note(format!("target {}", entry.file_name().display()), "");
        }
    }

    fn mounts(&mut self, scratch: &Scratch) {
        let table = MountTable::read().unwrap();
        let root = scratch.path("");
        for (number, mount) in table.below(&root).enumerate() {
            if mount.mount_point != scratch.path("pool") {
                let place = mount.mount_point.strip_prefix(&root).unwrap().display();
                self.note(
                    format!("mount {number:02} at {place}"),
                    if mount.is_read_only() { "read-only" } else { "writable" },
                );
            }
        }
    }

    /// Fails with the places where the two differ.
    #[track_caller]
    pub(crate) fn assert_same(&self, expected: &Self) {
        let mut differences = Vec::new();
        let only_expected = expected.places.keys().filter(|place| !self.places.contains_key(*place));
        for place in self.places.keys().chain(only_expected) {
            let (found, wanted) = (self.places.get(place), expected.places.get(place));
            if found != wanted {
                differences.push(format!("{place}: found {found:?}, expected {wanted:?}"));
            }
        }
        assert!(differences.is_empty(), "not as without the kill:\n{}", differences.join("\n"));
    }
}

/// Fails if a loop device has a file of the pool, be it one that was removed under it.
#[track_caller]
pub(crate) fn assert_no_loops(scratch: &Scratch) {
    let pool = scratch.path("pool");
    for entry in fs::read_dir("/sys/block").unwrap().map(Result::unwrap) {
        // Only a device that is bound to a file has this attribute.
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let device = entry.file_name();
        assert!(!Path::new(file.trim()).starts_with(&pool), "{} is left on {file}", device.display());
    }
}

/// How long a write may take before its filesystem counts as frozen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails if a mounted filesystem does not take writes. A frozen one would hold a writer for ever, so a thread asks.
#[track_caller]
pub(crate) fn assert_nothing_frozen(scratch: &Scratch) {
    for place in scratch.mounts().into_iter().filter(|place| place.is_dir()) {
        let (send, receive) = mpsc::channel();
        let probe = place.join("write-probe");
        std::thread::spawn(move || drop(send.send(write_and_remove(&probe))));
        match receive.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
            Ok(Err(error)) => panic!("{} takes no writes: {error}", place.display()),
            Err(_) => panic!("{} is frozen", place.display()),
        }
    }
}

fn write_and_remove(path: &PathBuf) -> io::Result<()> {
    let file = File::create(path)?;
    file.sync_all()?;
    fs::remove_file(path)
}
