//! Where a transcript is played: a server, a folder, and a shell in which `kubectl` is the program under test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::plain::Plain;
use crate::program;
use crate::transcript::{Needs, Version};

/// No command of a transcript takes longer, unless it hangs.
const SECONDS_PER_COMMAND: &str = "90";

/// Words for transcripts: a watch that is read line by line while other commands run, a command that is repeated until
/// the server has come so far, and the part of `kubectl explain` that is not prose.
const WORDS: &str = r#"
start() { coproc WATCH { exec kubectl "$@" 2>&1; }; }
next() { IFS= read -r -t 60 -u "${WATCH[0]}" line && printf '%s\n' "$line"; }
stop() { kill "$WATCH_PID"; wait "$WATCH_PID" 2> /dev/null; return 0; }
retry() { for _ in $(seq 100); do "$@" > out 2> err && break; done; cat out; cat err >&2; }
fields() { grep -E '^([A-Z]+:|  +[^ ]+'$'\t'')'; }
"#;

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    path: PathBuf,
    version: Version,
    server: Option<Server>,
}

/// What a command has printed.
pub(crate) struct Said {
    stdout: String,
    stderr: String,
    code: Option<i32>,
}

/// The kubeconfig of a server that is not ours, if the caller has named one.
pub(crate) fn foreign() -> Option<PathBuf> {
    std::env::var_os("ORLOP_KUBECTL_CONFIG").map(PathBuf::from)
}

impl Stage {
    /// Says why not, if something is missing here.
    pub(crate) fn set(needs: Needs) -> Result<Self, String> {
        let kubectl = program::find().ok_or("there is no kubectl on the path")?;
        if !Path::new("/bin/bash").is_file() {
            return Err("there is no /bin/bash".into());
        }
        match (foreign(), needs) {
            (Some(_), Needs::Orlop) => return Err("it is about orlop api only".into()),
            (Some(_), Needs::Controllers) if std::env::var_os("ORLOP_KUBECTL_CONTROLLERS").is_none() => {
                return Err("the other server has no controllers (ORLOP_KUBECTL_CONTROLLERS is not set)".into());
            }
            (_, Needs::AnyServer | Needs::Controllers) | (None, Needs::Orlop) => {}
        }
        let folder = tempfile::Builder::new().prefix("orlop-kubectl-").tempdir().expect("a folder can be made");
        let path = folder.path().canonicalize().expect("the folder is there");
        for name in ["bin", "home/.kube", "here", "tmp"] {
            fs::create_dir_all(path.join(name)).expect("a folder can be made");
        }
        symlink(&kubectl, path.join("bin/kubectl")).expect("a link can be made");
        let config = path.join("home/.kube/config");
        let server = match foreign() {
            Some(given) => {
                fs::copy(&given, &config).expect("ORLOP_KUBECTL_CONFIG names a readable file");
                None
            }
            None => Some(Server::start(&path.join("data"), &config)),
        };
        Ok(Self { folder, path, version: program::version(&kubectl), server })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.path
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Everything that our server has logged so far; it is ended first, so that nothing is missing.
    pub(crate) fn log(&mut self) -> String {
        let server = self.server.take().expect("the server is ours");
        let log = Arc::clone(&server.log);
        server.end();
        log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn run(&self, command: String) -> Said {
        let script = format!("{WORDS}\n{command}\n");
        let at = |name: &str| self.folder.path().join(name);
        let search = format!("{}:/usr/local/bin:/usr/bin:/bin", self.path.join("bin").display());
        // `timeout` ends the whole group of processes, also what a transcript left in the background.
        let output = Command::new("timeout")
            .args(["--kill-after=5", SECONDS_PER_COMMAND, "/bin/bash", "-c", &script])
            .current_dir(at("here"))
            .env_clear()
            .env("PATH", search)
            .env("HOME", self.path.join("home"))
            .env("TMPDIR", self.path.join("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .output()
            .expect("a shell can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { stdout: text(&output.stdout), stderr: text(&output.stderr), code: output.status.code() }
    }
}

impl Said {
    pub(crate) fn stdout(&self) -> &str {
        &self.stdout
    }

    /// As a transcript shows it.
    pub(crate) fn shown(&self, plain: &mut Plain) -> Vec<String> {
        let mut text = |text: &str| plain.text(text).lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        let mut lines = text(&self.stdout);
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.extend(text(&self.stderr).into_iter().map(|line| format!("2| {line}").trim_end().to_owned()));
        match self.code {
            Some(0) => {}
            Some(code) => lines.push(format!("[exit {code}]")),
            None => lines.push("[killed]".to_owned()),
        }
        assert!(lines.iter().all(|line| !line.starts_with("$ ")), "an output looks like a command: {lines:?}");
        lines
    }
}

/// `orlop api` as a process, killed when it goes.
struct Server {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it and waits until it says that it serves.
    fn start(data: &Path, kubeconfig: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["api", "--log-level", "trace", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .arg("--write-kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was just built");
        let log = child.stderr.take().expect("it is piped");
        let mut server = Self { child, log: Arc::default(), reader: None };
        let mut lines = BufReader::new(log).lines();
        let mut said = String::new();
        loop {
            let line = lines.next().and_then(Result::ok).unwrap_or_else(|| panic!("orlop api ended early:\n{said}"));
            said.push_str(&line);
            said.push('\n');
            if line.contains("serving address=") {
                break;
            }
        }
        // A full pipe would stop the server.
        *server.log.lock().unwrap_or_else(PoisonError::into_inner) = said;
        let log = Arc::clone(&server.log);
        server.reader = Some(std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        }));
        server
    }

    /// Ends it, and waits for the last line of its log.
    fn end(mut self) {
        self.kill();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log can be read");
        }
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
