//! The writers of the volumes, and the other writer, which fills the pool.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use rustix::fs::FallocateFlags;

use crate::rig::MIB;

const RECORD: usize = 16 << 10;
/// Records of one writer, and of those the ones that are written and synced before the pool is filled.
const RECORDS: u64 = 1024;
const BEFORE: u64 = 16;
/// Of two writers of a device, the second begins here.
const SECOND_HALF: u64 = 32 * MIB;

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct SeededNumbers(pub(crate) u64);

impl SeededNumbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The one right content of a record: it begins with its number.
fn record(key: u64, number: u64) -> Vec<u8> {
    let mut words = SeededNumbers(key ^ number.wrapping_mul(0x1000_0001));
    let rest = (1..RECORD / 8).map(|_| words.next());
    std::iter::once(number).chain(rest).flat_map(u64::to_le_bytes).collect()
}

/// The writers wait here after their first records, and end when it is closed.
#[derive(Debug, Default)]
pub(crate) struct WriterGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum GateState {
    #[default]
    Waiting,
    Open,
    Closed,
}

impl WriterGate {
    pub(crate) fn open(&self) {
        self.set(GateState::Open);
    }

    pub(crate) fn close(&self) {
        self.set(GateState::Closed);
    }

    fn set(&self, state: GateState) {
        *self.state.lock().unwrap() = state;
        self.changed.notify_all();
    }

    /// May a writer go on?
    fn pass(&self) -> bool {
        let state = self.changed.wait_while(self.state.lock().unwrap(), |state| *state == GateState::Waiting).unwrap();
        *state == GateState::Open
    }
}

/// Where a writer writes.
#[derive(Debug, Clone)]
pub(crate) struct WritePlace {
    pub(crate) file: PathBuf,
    pub(crate) is_device: bool,
    /// Gives each writer's records their own content.
    pub(crate) key: u64,
    /// Calls fsync now and then. The other sort of writer never does.
    pub(crate) syncs: bool,
}

/// How far a writer came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WriterReport {
    /// The last record that an fsync returned without an error for.
    pub(crate) synced: u64,
    /// The last record that was written without an error.
    pub(crate) written: u64,
    /// The error at which the writer ended.
    pub(crate) error: Option<WriterError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriterError {
    pub(crate) text: String,
    /// The filesystem refuses all writes, as the kernel makes it do after an error.
    is_read_only: bool,
}

impl WritePlace {
    fn open(&self) -> io::Result<File> {
        File::options().read(true).write(true).create(!self.is_device).truncate(false).open(&self.file)
    }

    fn offset(&self, number: u64) -> u64 {
        let from = if self.is_device && !self.syncs { SECOND_HALF } else { 0 };
        from + (number - 1) * RECORD as u64
    }

    /// Writes until all is written, an error comes, or the gate is closed. `begun` is called when the first records are there.
    fn write(&self, seed: u64, gate: &WriterGate, begun: impl FnOnce()) -> WriterReport {
        let mut report = WriterReport::default();
        let mut random = SeededNumbers(seed ^ self.key);
        let mut begun = Some(begun);
        let done = (|| {
            let file = self.open()?;
            for number in 1..=RECORDS {
                if number > BEFORE && !gate.pass() {
                    break;
                }
                file.write_all_at(&record(self.key, number), self.offset(number))?;
                report.written = number;
                if number == BEFORE || self.syncs && random.next().is_multiple_of(16) {
                    file.sync_all()?;
                    report.synced = number;
                }
                if number == BEFORE
                    && let Some(begun) = begun.take()
                {
                    begun();
                }
            }
            io::Result::Ok(())
        })();
        report.error = done.err().map(|error| WriterError {
            text: error.to_string(),
            is_read_only: error.kind() == io::ErrorKind::ReadOnlyFilesystem,
        });
        if let Some(begun) = begun.take() {
            begun();
        }
        report
    }

    /// The first of these records that is not there.
    fn first_missing(&self, until: u64) -> Option<String> {
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) => return (until > 0).then(|| format!("its file cannot be opened: {error}")),
        };
        let mut found = vec![0; RECORD];
        (1..=until).find_map(|number| match file.read_exact_at(&mut found, self.offset(number)) {
            Ok(()) if found == record(self.key, number) => None,
            Ok(()) if found.iter().all(|byte| *byte == 0) => Some(format!("record {number} is zeros")),
            Ok(()) => Some(format!("record {number} has other bytes")),
            Err(error) => Some(format!("record {number} cannot be read: {error}")),
        })
    }

    /// Everything that was synced is there, and whoever got no error finds everything, or the mark. `device_reported`: the kernel has
    /// reported failed writes of the raw device to one of its writers.
    pub(crate) fn judge(&self, report: &WriterReport, is_marked: bool, device_reported: bool) -> Result<(), String> {
        let who = if self.syncs { "who syncs" } else { "who never syncs" };
        if let Some(missing) = self.first_missing(report.synced) {
            return Err(format!(
                "{who}: of {} records that were synced, {missing} (marked: {is_marked})",
                report.synced
            ));
        }
        if report.error.as_ref().is_some_and(|error| error.is_read_only) && !is_marked {
            return Err(format!("{who}: the filesystem turned read-only and the volume is not marked"));
        }
        if report.error.is_some() || is_marked || device_reported {
            return Ok(());
        }
        match self.first_missing(report.written) {
            None => Ok(()),
            Some(missing) => Err(format!("{who}: of {} records without an error, {missing}", report.written)),
        }
    }
}

/// A writer on a thread of its own.
#[derive(Debug)]
pub(crate) struct VolumeWriter {
    pub(crate) place: WritePlace,
    thread: Option<JoinHandle<WriterReport>>,
    begun: Receiver<()>,
}

impl VolumeWriter {
    pub(crate) fn start(place: WritePlace, seed: u64, gate: &Arc<WriterGate>) -> Self {
        let (say, begun) = mpsc::channel();
        let (doing, gate) = (place.clone(), Arc::clone(gate));
        let thread = std::thread::spawn(move || doing.write(seed, &gate, || _ = say.send(())));
        Self { place, thread: Some(thread), begun }
    }

    /// Waits until the first records are synced, or the writer has ended.
    pub(crate) fn wait_until_begun(&self) {
        _ = self.begun.recv();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(crate) fn join(&mut self) -> WriterReport {
        self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

/// The other writer of the pool's filesystem.
#[derive(Debug)]
pub(crate) struct PoolFiller {
    pool: PathBuf,
    files: u32,
}

impl PoolFiller {
    pub(crate) fn new(pool: &Path) -> Self {
        Self { pool: pool.to_owned(), files: 0 }
    }

    /// A full pool may have no room for another file.
    fn next_file(&mut self) -> Option<File> {
        self.files += 1;
        File::create(self.path(self.files)).ok()
    }

    fn path(&self, number: u32) -> PathBuf {
        self.pool.join(format!("foreign-file-{number}"))
    }

    fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.pool).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Takes space in one go until about this much is left.
    pub(crate) fn leave(&mut self, left: u64) {
        let Some(file) = self.next_file() else { return };
        let mut taken = 0;
        loop {
            let more = self.free().saturating_sub(left).min(64 * MIB);
            if more < MIB || rustix::fs::fallocate(&file, FallocateFlags::empty(), taken, more).is_err() {
                return;
            }
            taken += more;
        }
    }

    /// Writes until nothing more can be written, with ever smaller pieces.
    pub(crate) fn fill(&mut self) {
        for size in [MIB, 64 << 10, 4096] {
            let chunk = vec![1; usize::try_from(size).unwrap()];
            let Some(file) = self.next_file() else { return };
            let mut at = 0;
            while file.write_all_at(&chunk, at).is_ok() {
                at += size;
            }
            // Delayed allocation is settled, so that no space comes back.
            drop(file.sync_all());
        }
    }

    pub(crate) fn free_all(&mut self) {
        for number in 1..=self.files {
            drop(fs::remove_file(self.path(number)));
        }
        // A failure here shows up later, with more to say.
        drop(File::open(&self.pool).map(rustix::fs::syncfs));
        self.files = 0;
    }
}
