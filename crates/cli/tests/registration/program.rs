//! Our own program as a process, with its log.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// A running program. Dropping it kills it.
pub(super) struct Program {
    child: Child,
    log: Arc<Mutex<String>>,
    lines: watch::Receiver<usize>,
}

impl Program {
    pub(super) fn orlop(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
        command.args(args).env_remove("KUBECONFIG").env_remove("NODE_NAME");
        Self::start(command)
    }

    pub(super) fn start(mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("the program can be started");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let log = Arc::new(Mutex::new(String::new()));
        let (grown, lines) = watch::channel(0);
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *kept.lock().expect("nobody panicked") += &format!("{line}\n");
                grown.send_modify(|count| *count += 1);
            }
        });
        Self { child, log, lines }
    }

    pub(super) fn log(&self) -> String {
        self.log.lock().expect("nobody panicked").clone()
    }

    /// Waits until the log has so many lines with these words.
    pub(super) async fn says(&mut self, words: &str, times: usize) {
        while self.log().lines().filter(|line| line.contains(words)).count() < times {
            // The sender goes with the process' last line.
            assert!(self.lines.changed().await.is_ok(), "it ended without {words:?}:\n{}", self.log());
        }
    }

    /// The address that it says it answers at.
    pub(super) async fn address(&mut self) -> String {
        self.says("address=127.0.0.1:", 1).await;
        let log = self.log();
        let rest = log.split("address=127.0.0.1:").nth(1).expect("it was just said");
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        format!("127.0.0.1:{port}")
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }

    /// Waits for its end.
    pub(super) async fn ended(mut self) -> (Option<i32>, String) {
        while self.lines.changed().await.is_ok() {}
        let status: ExitStatus = self.child.wait().expect("it is our child");
        (status.code().or(status.signal().map(|signal| -signal)), self.log())
    }

    /// SIGKILL, and its end.
    pub(super) fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status and the body of an answer.
pub(super) async fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("it is HTTP");
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    (code, body)
}
