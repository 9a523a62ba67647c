//! Where the wrong things are typed: a directory with nothing in it but what a test put there, and an environment with
//! nothing in it but what a row says.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use regex::Regex;

use crate::table::Answer;

/// A wrong command line ends by itself. One that does not is killed then, and fails its row.
const PATIENCE: Duration = Duration::from_secs(120);
const NOBODY: u32 = 65534;

pub(crate) struct Room {
    folder: tempfile::TempDir,
    /// What stands for a value of this machine in a row and in its answer.
    names: Vec<(&'static str, String)>,
}

/// A command line as it was typed: variables, words.
struct Typed {
    variables: Vec<(String, String)>,
    words: Vec<String>,
}

impl Room {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory can be made");
        for name in ["home", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).expect("a directory can be made");
        }
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("its mode can be set");
        Self { folder, names: Vec::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("it exists")
    }

    /// `<name>` in a row means this value, and this value in an answer is shown as `<name>`.
    pub(crate) fn name(&mut self, name: &'static str, value: &str) {
        self.names.push((name, value.to_owned()));
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("a file can be written");
    }

    /// Runs one line, and sees that nothing in the room has changed.
    pub(crate) fn run(&self, line: &str) -> Answer {
        let before = self.picture();
        let answer = self.run_freely(line);
        let after = self.picture();
        let changed = |path: &&PathBuf| before.get(*path) != after.get(*path);
        let changed: Vec<&PathBuf> = before.keys().chain(after.keys()).filter(changed).collect();
        assert!(changed.is_empty(), "{line}: something was changed on disk: {changed:?}\n{answer:?}");
        answer
    }

    /// Runs one line.
    pub(crate) fn run_freely(&self, line: &str) -> Answer {
        let Typed { variables, words } = self.typed(line);
        let (as_nobody, words) = match words.strip_prefix(&["sudo".to_owned(), "-u".to_owned(), "nobody".to_owned()]) {
            Some(rest) => (true, rest.to_vec()),
            None => (false, words),
        };
        let (program, arguments) = words.split_first().expect("a line has words");
        let binary = env!("CARGO_BIN_EXE_orlop");
        let mut command = Command::new(binary);
        if program == "kubectl-orlop" {
            command.arg0(program);
        }
        if as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        let folder = self.folder.path();
        command
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.join("home"))
            .env("TMPDIR", folder.join("tmp"))
            .env("COLUMNS", "100")
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = finish(command.spawn().expect("the binary was just built"), line);
        Answer {
            code: output.status.code(),
            out: self.plain(&String::from_utf8_lossy(&output.stdout)),
            err: self.plain(&String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Whether somebody else could start the program here.
    pub(crate) fn open_to_others(&self) -> bool {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.arg("--version").uid(NOBODY).gid(NOBODY).stdout(Stdio::null());
        command.current_dir(self.folder.path()).status().is_ok_and(|status| status.success())
    }

    fn typed(&self, line: &str) -> Typed {
        let mut line = line.to_owned();
        for (name, value) in &self.names {
            line = line.replace(&format!("<{name}>"), value);
        }
        let mut words = split(&line);
        let first = words.iter().position(|word| !word.contains('=')).unwrap_or(0);
        let rest = words.split_off(first);
        let pair = |word: String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Typed { variables: words.into_iter().filter_map(pair).collect(), words: rest }
    }

    /// The text without what differs from machine to machine.
    pub(crate) fn plain(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.names {
            text = text.replace(value, &format!("<{name}>"));
        }
        text = text.replace(&self.path().display().to_string(), "<here>");
        let rules = [
            (r"process \d+ \([^)]*\)", "process <pid> (<program>)"),
            (r"process \d+", "process <pid>"),
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
            (r"orlop-mount-[0-9a-f]{16}", "orlop-mount-<hash>"),
            (r"can promise \d+ more bytes \([^)]*\)", "can promise <room>"),
            (r"\.\d+\.tmp\b", ".<pid>.tmp"),
            // Which of the first objects meets a full disk is up to how they are written together.
            (r"prepared: \S+ could not be created", "prepared: <object> could not be created"),
            (r"has \d+ bytes", "has <n> bytes"),
            (r"may have \d+", "may have <n>"),
            (r"(?m)^20\d\d-\S+Z +(INFO|WARN|ERROR) .*\n", ""),
        ];
        for (pattern, by) in rules {
            text = Regex::new(pattern).expect("the pattern is good").replace_all(&text, by).into_owned();
        }
        text
    }

    /// Every file of the room with its content. What a server in it works on is its own business, and a lock holds the
    /// number of whoever looked last.
    fn picture(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        look(self.folder.path(), &mut found);
        found
    }
}

/// The name of a directory that something alive works in.
pub(crate) const ALIVE: &str = "alive";

fn look(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("it was just listed"));
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(ALIVE) || name == "lock" {
            continue;
        }
        if kind.is_dir() {
            look(&path, found);
            found.insert(path, Vec::new());
        } else {
            let content = if kind.is_file() { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
            found.insert(path, content);
        }
    }
}

/// The end of a program, which is killed when it takes too long.
fn finish(child: Child, line: &str) -> Output {
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, heard) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if heard.recv_timeout(PATIENCE).is_err() {
            // Between the child's end and the message lies an instant, not two minutes: the number is still its own.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{line}: {error}"));
    let _ = ended.send(());
    watchdog.join().expect("it does not panic");
    output
}

/// Words as a shell would see them, as far as rows need it: blanks separate, quotes hold together.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
