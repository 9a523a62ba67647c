//! The operator of a cluster: kubectl, and `orlop up` with an account of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::kubernetes::{Beside, Credential, Endpoint};

const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Somebody with kubectl.
pub(super) struct Operator {
    kubectl: PathBuf,
    admin: PathBuf,
    orlop: PathBuf,
    /// Of the account that `orlop up` has.
    account: PathBuf,
    /// Data directories and logs.
    pub(super) folder: PathBuf,
}

/// An `orlop up` that is ready.
pub(super) struct Up {
    process: Beside,
    log: PathBuf,
    pub(super) data: PathBuf,
}

impl Operator {
    pub(super) fn new(kubectl: &Path, admin: &Path, orlop: &Path, folder: &Path) -> Self {
        Self {
            kubectl: kubectl.to_owned(),
            admin: admin.to_owned(),
            orlop: orlop.to_owned(),
            account: folder.join("account.kubeconfig"),
            folder: folder.to_owned(),
        }
    }

    /// Runs kubectl as an administrator. Gives what it prints.
    pub(super) async fn kubectl(&self, words: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.admin).args(words).env_remove("KUBECONFIG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("starting kubectl")?;
        let mut stdin = child.stdin.take().context("it is piped")?;
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {said}", words.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.kubectl(&["apply", "-f", "-"], &object.to_string()).await.map(drop)
    }

    /// Gives `orlop up` an account with the roles of the examples and no others.
    pub(super) async fn prepare(&mut self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let roles = crate::root().join("examples/rbac").display().to_string();
        self.kubectl(&["apply", "-f", &roles], "").await?;
        // Nobody here makes it, and pods need it.
        self.kubectl(&["create", "serviceaccount", "default"], "").await?;
        let token = self.kubectl(&["--namespace=kube-system", "create", "token", "orlop-up"], "").await?;
        endpoint.as_user(Credential::Token(token.trim().to_owned())).write_kubeconfig(&self.account)
    }

    /// What this machine's Node is called.
    pub(super) fn node(&self) -> anyhow::Result<String> {
        let name = rustix::system::uname();
        Ok(name.nodename().to_str().context("a host's name is text")?.to_lowercase())
    }

    /// Starts `orlop up` and waits until it is ready. Its log and data directory have its name.
    pub(super) async fn up(&self, name: &'static str, more: &[&str]) -> anyhow::Result<Up> {
        let data = self.folder.join(name);
        let mut command = Command::new(&self.orlop);
        command.args(["up", "--page=off"]).args(more).arg("--kubeconfig").arg(&self.account).arg("--data").arg(&data);
        command.env_remove("KUBECONFIG");
        let log = self.folder.join(format!("{name}.log"));
        let mut up = Up { process: Beside::start(name, command, &self.folder)?, log, data };
        up.says("ready cluster=").await?;
        Ok(up)
    }

    pub(super) async fn class(&self, name: &str, driver: &str, mode: &str) -> anyhow::Result<()> {
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": driver, "volumeBindingMode": mode});
        self.apply(&class).await
    }

    pub(super) async fn claim(&self, name: &str, class: &str) -> anyhow::Result<()> {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "resources": {"requests": {"storage": "64Mi"}}}});
        self.apply(&claim).await
    }

    /// A claim, and a pod of the same name with it.
    pub(super) async fn make(&self, name: &str, class: &str) -> anyhow::Result<()> {
        self.claim(name, class).await?;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}});
        self.apply(&pod).await
    }

    async fn wait(&self, what: &str, condition: &str) -> anyhow::Result<()> {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl(&["wait", what, &format!("--for={condition}"), &timeout], "").await.map(drop)
    }

    pub(super) async fn bound(&self, claim: &str) -> anyhow::Result<()> {
        self.wait(&format!("pvc/{claim}"), "jsonpath={.status.phase}=Bound").await
    }

    /// Waits until a pod has its volume. Gives where it is.
    pub(super) async fn mounted(&self, name: &str, data: &Path) -> anyhow::Result<PathBuf> {
        let ready = r#"jsonpath={.status.conditions[?(@.type=="orlop.dev/VolumesReady")].status}=True"#;
        self.wait(&format!("pod/{name}"), ready).await?;
        let uid = self.kubectl(&["get", "pod", name, "-o", "jsonpath={.metadata.uid}"], "").await?;
        let volume = self.kubectl(&["get", "pvc", name, "-o", "jsonpath={.spec.volumeName}"], "").await?;
        let pods = data.canonicalize()?.join("node/pods");
        Ok(pods.join(uid).join("volumes/kubernetes.io~csi").join(volume).join("mount"))
    }

    /// Takes a pod and its claim away.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl(&["delete", &format!("pod/{name}"), &format!("pvc/{name}"), &timeout], "").await.map(drop)
    }

    /// Waits until the cluster knows of no volume and no attachment.
    pub(super) async fn nothing_left(&self) -> anyhow::Result<()> {
        let empty = async {
            loop {
                let left = self.kubectl(&["get", "pv,volumeattachments", "-o", "name"], "").await?;
                if left.trim().is_empty() {
                    return anyhow::Ok(());
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(PATIENCE, empty).await.context("volumes or attachments stay")?
    }
}

impl Up {
    /// Everything that it has said.
    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it says this.
    async fn says(&mut self, words: &str) -> anyhow::Result<()> {
        let (log, process) = (self.log.clone(), &mut self.process);
        let said = async {
            while !std::fs::read_to_string(&log).unwrap_or_default().contains(words) {
                sleep(LOOK_AGAIN).await;
            }
        };
        tokio::select! {
            said = timeout(PATIENCE, said) => said.with_context(|| format!("it never said {words:?}:\n{}", self.said())),
            died = process.died() => Err(died),
        }
    }

    /// Waits until it leads for all of these leases.
    pub(super) async fn leads(&self, leases: &[&str]) -> anyhow::Result<()> {
        let led = |said: &str| leases.iter().all(|lease| said.contains(&format!("leading lease=\"{lease}\"")));
        let leading = async {
            while !led(&self.said()) {
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(PATIENCE, leading).await.with_context(|| format!("it never leads for {leases:?}:\n{}", self.said()))
    }

    /// What it answers over plain HTTP.
    pub(super) async fn read(&self, path: &str) -> anyhow::Result<String> {
        let said = self.said();
        let address = said.split("http=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.with_context(|| format!("it serves no metrics:\n{said}"))?;
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: orlop\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// SIGTERM and a good end, after a life without complaints about rights.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let Self { process, log, .. } = self;
        let status = process.end().await?;
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        ensure!(status.success(), "orlop up ended with {status}:\n{said}");
        for word in ["lacks rights", "forbidden", " ERROR "] {
            if said.contains(word) {
                bail!("orlop up said {word:?}:\n{said}");
            }
        }
        Ok(())
    }
}
