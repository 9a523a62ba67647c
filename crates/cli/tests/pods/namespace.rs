//! A mount namespace as a thing that a test holds.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use linux::mountinfo::MountTable;

/// A mount namespace. A process that does nothing keeps it, and ends with this or, whatever happens, with the test: it
/// reads from it.
#[derive(Debug)]
pub(super) struct Namespace {
    keeper: Child,
}

impl Namespace {
    /// A copy of ours as it is now; what is mounted in one later is not seen in the other. Other programs' loop devices are
    /// not in it: a copy of their mounts would keep the devices busy for as long as this namespace lives.
    pub(super) fn new() -> Self {
        let script = "while read -r id parent device root point rest; do \
                          case $rest in *' /dev/loop'*) umount -l \"$point\" ;; esac; \
                      done < /proc/self/mountinfo; echo made; exec cat";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        Self::kept_by(command, script)
    }

    /// A copy of this one; mounts that are shared here are shared with it.
    #[allow(dead_code, reason = "the tests of machines use it")]
    pub(super) fn sharing(&self) -> Self {
        let mut command = self.command("unshare");
        command.args(["--mount", "--propagation", "unchanged"]);
        Self::kept_by(command, "echo made; exec cat")
    }

    /// What is started in a new namespace by this command stays in it and does nothing once it has said `made`.
    fn kept_by(mut command: Command, script: &str) -> Self {
        command.args(["sh", "-c", script]);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare is there");
        let mut line = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "made\n", "there is a namespace");
        Self { keeper }
    }

    /// A command that runs this program inside. It dies with the test's thread, and is a child of it.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = mortal("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.keeper.id())).arg(program);
        command
    }

    /// A path inside, for us outside.
    pub(super) fn see(&self, path: &Path) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.keeper.id())).join(path.strip_prefix("/").unwrap())
    }

    /// What is mounted inside.
    pub(super) fn mounts(&self) -> MountTable {
        let table = std::fs::read(format!("/proc/{}/mountinfo", self.keeper.id())).expect("its keeper lives");
        MountTable::parse(&table).expect("the kernel wrote it")
    }

    /// Runs a command to its success with this input. Gives what it says.
    #[allow(dead_code, reason = "the tests of machines use it")]
    pub(super) fn run(&self, program: &str, args: &[&std::ffi::OsStr], input: &[u8]) -> Vec<u8> {
        let mut command = self.command(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // What it does not want to read is no failure by itself.
        drop(child.stdin.take().unwrap().write_all(input));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Mounts with `options` inside, the mount's file descriptor 0 being `input`.
    pub(super) fn mount(&self, (kind, options): (&str, &str), target: &Path, input: File) {
        let mut command = self.command("mount");
        command.args(["-i", "-t", kind, "-o", options, kind]).arg(target).stdin(input);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Namespace {
    /// Nobody keeps it any more: it goes with the last program inside.
    pub(super) fn end(&mut self) {
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.end();
    }
}

/// A command that dies with the thread that starts it.
pub(super) fn mortal(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// Why there are no such namespaces here.
pub(super) fn missing() -> Option<&'static str> {
    let runs = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !runs(Command::new("unshare").args(["--mount", "true"])) {
        return Some("unshare --mount does not work");
    }
    if !runs(Command::new("setpriv").args(["--pdeathsig", "KILL", "nsenter", "--version"])) {
        return Some("setpriv and nsenter of util-linux are needed");
    }
    None
}
