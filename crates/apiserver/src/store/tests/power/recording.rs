//! What strace wrote down, as operations on the files below one directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Paths are relative to the root.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Create(PathBuf),
    CreateDirectory(PathBuf),
    Write {
        path: PathBuf,
        offset: usize,
        data: Vec<u8>,
    },
    Resize {
        path: PathBuf,
        length: usize,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove(PathBuf),
    Sync(PathBuf),
    SyncDirectory(PathBuf),
    /// The program said that this revision is written, or that a reader sees it.
    Acknowledge(u64),
}

impl Operation {
    pub(super) fn acknowledged(&self) -> Option<u64> {
        match self {
            Self::Acknowledge(revision) => Some(*revision),
            _ => None,
        }
    }
}

/// One call that came back without an error.
#[derive(Debug)]
struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    result: i64,
}

/// `files` were there before.
pub(super) fn operations(trace: &str, root: &Path, files: BTreeSet<PathBuf>) -> Vec<Operation> {
    let mut recording = Recording { root, open: BTreeMap::new(), files, operations: Vec::new() };
    for line in joined(trace) {
        if let Some(call) = parse(&line) {
            recording.take(&call);
        }
    }
    recording.operations
}

/// Lines that strace had to interrupt for another thread, put together again where they ended.
fn joined(trace: &str) -> Vec<String> {
    let mut begun: BTreeMap<&str, &str> = BTreeMap::new();
    let mut lines = Vec::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(beginning) = rest.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, beginning);
        } else if let Some((_, end)) = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            lines.push(format!("{}{end}", begun.remove(thread).unwrap_or_default()));
        } else {
            lines.push(rest.to_owned());
        }
    }
    lines
}

/// Texts are written as \x.. throughout, so that commas and brackets mean what they seem to.
fn parse(line: &str) -> Option<Call<'_>> {
    let (call, result) = line.rsplit_once(" = ")?;
    let result = result.split(' ').next()?.parse().ok().filter(|result| *result >= 0)?;
    let (name, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
    Some(Call { name, arguments: arguments.split(", ").collect(), result })
}

fn bytes(argument: &str) -> Vec<u8> {
    let hex = argument.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let hex = hex.unwrap_or_else(|| panic!("a text was cut: {:.40}", argument));
    hex.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    position: usize,
}

struct Recording<'a> {
    root: &'a Path,
    open: BTreeMap<i64, Open>,
    /// Files that exist, as the program sees it.
    files: BTreeSet<PathBuf>,
    operations: Vec<Operation>,
}

impl Recording<'_> {
    fn path(&self, argument: &str) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes(argument)));
        path.strip_prefix(self.root).ok().map(Path::to_owned)
    }

    fn number(call: &Call<'_>, index: usize) -> i64 {
        call.arguments[index].parse().unwrap_or_else(|_| panic!("{call:?}"))
    }

    fn take(&mut self, call: &Call<'_>) {
        match call.name {
            "openat" => self.opened(call),
            "close" => drop(self.open.remove(&Self::number(call, 0))),
            "rename" => self.renamed(call.arguments[0], call.arguments[1]),
            "renameat" | "renameat2" => self.renamed(call.arguments[1], call.arguments[3]),
            "unlink" => self.removed(call.arguments[0]),
            "unlinkat" => self.removed(call.arguments[1]),
            "write" if Self::number(call, 0) == 1 => self.said(&bytes(call.arguments[1])),
            "pwrite64" | "write" | "lseek" | "fsync" | "fdatasync" | "ftruncate" => self.on_open_file(call),
            // Blocks without content: for the reserve, which nobody reads, and behind the end of the write-ahead file.
            "fallocate" => {}
            "mkdir" => self.made_directory(call.arguments[0]),
            "mkdirat" => self.made_directory(call.arguments[1]),
            _ => {
                let touched = call.arguments.first().and_then(|first| first.parse().ok());
                assert!(touched.is_none_or(|fd| !self.open.contains_key(&fd)), "{call:?} is not understood");
            }
        }
    }

    fn opened(&mut self, call: &Call<'_>) {
        let Some(path) = self.path(call.arguments[1]) else { return };
        let flags = call.arguments[2];
        let directory = self.root.join(&path).is_dir();
        if !directory && flags.contains("O_CREAT") && self.files.insert(path.clone()) {
            self.operations.push(Operation::Create(path.clone()));
        }
        if flags.contains("O_TRUNC") {
            self.operations.push(Operation::Resize { path: path.clone(), length: 0 });
        }
        self.open.insert(call.result, Open { path, position: 0 });
    }

    fn on_open_file(&mut self, call: &Call<'_>) {
        let Some(open) = self.open.get_mut(&Self::number(call, 0)) else { return };
        let path = open.path.clone();
        let operation = match call.name {
            "lseek" => {
                open.position = call.result as usize;
                return;
            }
            "write" | "pwrite64" => {
                let mut data = bytes(call.arguments[1]);
                data.truncate(call.result as usize);
                let offset = match call.name {
                    "write" => open.position,
                    _ => Self::number(call, 3) as usize,
                };
                if call.name == "write" {
                    open.position += data.len();
                }
                Operation::Write { path, offset, data }
            }
            "ftruncate" => Operation::Resize { path, length: Self::number(call, 1) as usize },
            _ if self.root.join(&path).is_dir() => Operation::SyncDirectory(path),
            _ => Operation::Sync(path),
        };
        self.operations.push(operation);
    }

    fn renamed(&mut self, from: &str, to: &str) {
        let (Some(from), Some(to)) = (self.path(from), self.path(to)) else { return };
        self.files.remove(&from);
        self.files.insert(to.clone());
        for open in self.open.values_mut().filter(|open| open.path == from) {
            open.path = to.clone();
        }
        self.operations.push(Operation::Rename { from, to });
    }

    fn made_directory(&mut self, path: &str) {
        let Some(path) = self.path(path) else { return };
        self.operations.push(Operation::CreateDirectory(path));
    }

    fn removed(&mut self, path: &str) {
        let Some(path) = self.path(path) else { return };
        self.files.remove(&path);
        self.operations.push(Operation::Remove(path));
    }

    fn said(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        for line in text.lines() {
            if let Some(revision) = line.split("acknowledged ").nth(1).and_then(|rest| rest.trim().parse().ok()) {
                self.operations.push(Operation::Acknowledge(revision));
            }
        }
    }
}
