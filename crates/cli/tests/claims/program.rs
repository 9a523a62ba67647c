//! A command of `orlop` as a process that a test can kill.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How many lines of a log are shown when a test fails.
const SHOWN: usize = 40;

/// A running command. Dropping it kills it; if a test fails, it shows its last words.
#[derive(Debug)]
pub(super) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `orlop COMMAND ARGS...` with its log in `folder`.
    pub(super) fn start(folder: &Path, name: &str, args: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(args);
        Self::launch(folder, name, command)
    }

    /// The same on a host that calls itself `host`, as replicas of a deployment do.
    pub(super) fn start_on(folder: &Path, host: &str, args: &[String]) -> Self {
        let mut command = Command::new("unshare");
        // The shell only sets the name of its own small world, and then becomes the program.
        command.args([
            "--uts",
            "sh",
            "-c",
            "echo \"$0\" > /proc/sys/kernel/hostname && exec \"$@\"",
            host,
            env!("CARGO_BIN_EXE_orlop"),
        ]);
        command.args(args);
        Self::launch(folder, host, command)
    }

    /// Any command, with its log in `folder`.
    pub(super) fn launch(folder: &Path, name: &str, mut command: Command) -> Self {
        let log = folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = command.env_remove("KUBECONFIG").spawn().unwrap();
        Self { name: name.to_owned(), child, log }
    }

    /// SIGKILL, and waits for the end.
    pub(super) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// SIGTERM; it must end with success.
    pub(super) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{} ended with {status} after SIGTERM:\n{}", self.name, self.last_words());
    }

    /// How it ended, if nobody killed it and it did.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// How many lines of its log have this in them.
    pub(super) fn said(&self, text: &str) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(text)).count()
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("--- {} said last:\n{}", self.name, self.last_words());
        }
    }
}
