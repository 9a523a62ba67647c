//! What the black-box tests of `orlop api` share: the real program as a process, and clients that trust it.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support; each test file uses a part of it"
)]

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::sync::mpsc;

/// A server as a process of its own. Dropping it kills it.
pub struct Server {
    child: Child,
    serving: mpsc::UnboundedReceiver<String>,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// On a free port. The kubeconfig goes to `DIR.kubeconfig`.
    pub fn spawn(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_orlop"))
            .args(["api", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .arg("--write-kubeconfig")
            .arg(data.with_extension("kubeconfig"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was just built");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (started, serving) = mpsc::unbounded_channel();
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some(address) = line.split("serving address=").nth(1) {
                    let _ = started.send(address.split(' ').next().unwrap_or_default().to_owned());
                }
                *kept.lock().unwrap() += &format!("{line}\n");
            }
        });
        Self { child, serving, log }
    }

    /// Its address, once it serves.
    pub async fn address(&mut self) -> String {
        match self.serving.recv().await {
            Some(address) => address,
            None => panic!("the server ended: {}", self.log.lock().unwrap()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Waits for its end. Gives whether it ended well, and its log.
    pub async fn ended(mut self) -> (bool, String) {
        // The sender is dropped when the log has ended, and that is when the process has.
        while self.serving.recv().await.is_some() {}
        let success = self.child.wait().expect("it is our child").success();
        let log = self.log.lock().unwrap().clone();
        (success, log)
    }

    /// SIGTERM, and its end.
    pub fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is our child");
        assert!(self.child.wait().expect("it is our child").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client with the certificates of this kubeconfig, for a server at this address. It repeats nothing by itself.
pub async fn client(kubeconfig: &Path, address: &str) -> kube::Client {
    let mut config = Kubeconfig::read_from(kubeconfig).expect("the server wrote it");
    config.clusters[0].cluster.as_mut().unwrap().server = Some(format!("https://{address}"));
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    config.default_retry = false;
    config.read_timeout = None;
    kube::Client::try_from(config).unwrap()
}

/// One request and its whole answer; why not, if the connection did not hold.
pub async fn ask(
    client: &kube::Client,
    (method, path): (&str, &str),
    body: Option<&Value>,
) -> Result<(u16, Value), String> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes = body.map(Value::to_string).unwrap_or_default();
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Body::from(bytes.into_bytes())).unwrap();
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    let answer = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    Ok((code, answer))
}

pub fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("no version in {object}"));
    text.parse().unwrap()
}

pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The seed of a run, which it prints.
pub fn seed(variable: &str) -> u64 {
    let seed = number(variable).unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("{variable}={seed}");
    seed
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
