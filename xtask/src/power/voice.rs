//! How the machine says what it did: on its console, and if wished also on the disk that is tested.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

/// The first part of the disk holds the lines; the filesystem follows.
pub(super) const LINES_BYTES: u64 = 16 << 20;
const LINE_BYTES: usize = 4096;

/// Numbers the lines of one boot and prints them.
#[derive(Debug)]
pub(super) struct ConsoleVoice {
    state: Mutex<VoiceState>,
}

#[derive(Debug)]
struct VoiceState {
    number: u64,
    disk: Option<File>,
}

impl ConsoleVoice {
    pub(super) fn new(disk: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            let flags = rustix::fs::OFlags::DIRECT.bits();
            let flags = i32::try_from(flags)?;
            OpenOptions::new().write(true).custom_flags(flags).open(path).context("opening the disk for its lines")
        };
        let disk = disk.map(open).transpose()?;
        Ok(Self { state: Mutex::new(VoiceState { number: 0, disk }) })
    }

    /// Before something is asked for.
    pub(super) fn start(&self, key: &str, state: &str) -> anyhow::Result<()> {
        self.say("start", key, state)
    }

    /// After something was acknowledged.
    pub(super) fn done(&self, key: &str, state: &str) -> anyhow::Result<()> {
        self.say("done", key, state)
    }

    pub(super) fn count(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).number
    }

    fn say(&self, verb: &str, key: &str, text: &str) -> anyhow::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.number += 1;
        let line = format!("@{} {verb} {key} {text}\n", state.number);
        if let Some(disk) = &state.disk {
            write_line(disk, state.number, &line)?;
        }
        // One write for one line, so that a cut leaves whole lines but for the last.
        let mut output = std::io::stdout().lock();
        output.write_all(line.as_bytes()).and_then(|()| output.flush()).context("writing to the console")
    }
}

/// Direct writing needs memory at a multiple of the block size.
fn write_line(disk: &File, number: u64, line: &str) -> anyhow::Result<()> {
    let mut buffer = vec![0; 2 * LINE_BYTES];
    let from = buffer.as_ptr().align_offset(LINE_BYTES);
    let block = buffer.get_mut(from..from + LINE_BYTES).context("aligning a line")?;
    block.get_mut(..line.len()).context("a line is too long")?.copy_from_slice(line.as_bytes());
    disk.write_all_at(block, (number - 1) * LINE_BYTES as u64).context("writing a line to the disk")
}

/// The lines that a disk has.
pub(super) fn lines_of(disk: &File) -> std::io::Result<String> {
    let mut text = String::new();
    let mut block = vec![0; LINE_BYTES];
    for number in 0..LINES_BYTES / LINE_BYTES as u64 {
        disk.read_exact_at(&mut block, number * LINE_BYTES as u64)?;
        let end = block.iter().position(|byte| *byte == 0).unwrap_or(block.len());
        text.push_str(&String::from_utf8_lossy(&block[..end]));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_on_a_disk_are_found_again() {
        let disk = tempfile::tempfile().expect("a file");
        disk.set_len(LINES_BYTES).expect("sizing");
        write_line(&disk, 1, "@1 start a b\n").expect("writing");
        write_line(&disk, 3, "@3 done a b\n").expect("writing");
        assert_eq!(lines_of(&disk).expect("reading"), "@1 start a b\n@3 done a b\n");
    }
}
