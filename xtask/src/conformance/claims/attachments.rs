//! VolumeAttachments on a real kube-apiserver, carried out by our attacher and by Go's, in turn: what either of them attached,
//! the other one can detach.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::foreign::{self, Foreign, NODE};
use crate::kubernetes::{Beside, Client, Question};

const NAME: &str = "attached";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Who carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    Ours,
    Theirs,
}

/// Where everything is.
#[derive(Debug)]
pub(super) struct Attachments<'a> {
    pub(super) foreign: &'a Foreign,
    pub(super) client: &'a Client,
    pub(super) orlop: &'a Path,
    pub(super) socket: &'a Path,
    pub(super) kubeconfig: &'a Path,
    pub(super) folder: &'a Path,
    /// csi-attacher, or why there is none.
    pub(super) attacher: Result<&'a PathBuf, &'a anyhow::Error>,
}

impl Attachments<'_> {
    /// One volume, attached and detached by everybody.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let handle = foreign::create(self.orlop, self.socket, NAME).await?;
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": NAME},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "64Mi"}, "storageClassName": "by-hand",
                "csi": {"driver": self.foreign.name(), "volumeHandle": handle}},
        });
        self.post(VOLUMES, &volume).await?;
        let mut turns = vec![(Hand::Ours, Hand::Ours)];
        match self.attacher {
            Ok(_) => turns.extend([(Hand::Ours, Hand::Theirs), (Hand::Theirs, Hand::Ours)]),
            Err(why) => println!("skipped: turns with csi-attacher: {why:#}"),
        }
        for (attaching, detaching) in turns {
            self.turn(attaching, detaching).await.with_context(|| format!("{attaching:?}, then {detaching:?}"))?;
            println!("attached by {attaching:?}, detached by {detaching:?}");
        }
        foreign::delete(self.orlop, self.socket, &handle).await
    }

    async fn turn(&self, attaching: Hand, detaching: Hand) -> anyhow::Result<()> {
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": NAME},
            "spec": {"attacher": self.foreign.name(), "nodeName": NODE, "source": {"persistentVolumeName": NAME}},
        });
        self.post(ATTACHMENTS, &attachment).await?;
        self.by(attaching, "attached", |found| found["status"]["attached"] == true).await?;
        let path = format!("{ATTACHMENTS}/{NAME}");
        let answer = self.client.ask(&Question::new(Method::DELETE, &path)).await?;
        ensure!(answer.status == 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        self.by(detaching, "gone", Value::is_null).await
    }

    /// Starts one of the two, waits until the attachment is as it should be, and stops it.
    async fn by(&self, hand: Hand, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let Self { orlop, kubeconfig, socket, folder, .. } = self;
        let mut program = match (hand, self.attacher) {
            (Hand::Ours, _) => Beside::sidecar(orlop, kubeconfig, socket, folder)?,
            (Hand::Theirs, Ok(attacher)) => Beside::attacher(attacher, kubeconfig, socket, folder)?,
            (Hand::Theirs, Err(why)) => bail!("{why:#}"),
        };
        let done = tokio::select! {
            done = self.until(what, is) => done,
            died = program.died() => Err(died),
        };
        program.stop().await?;
        done
    }

    /// Asks until the attachment is as it should be; `null` stands for none.
    async fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.client.ask(&Question::get(&format!("{ATTACHMENTS}/{NAME}"))).await?;
            let found = match answer.status {
                404 => Value::Null,
                _ => serde_json::from_slice(&answer.body).context("reading an attachment")?,
            };
            if is(&found) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "the attachment is not {what} after {PATIENCE:?}: {found:#}");
            sleep(PAUSE).await;
        }
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<()> {
        let question = Question::new(Method::POST, path).body("application/json", body.to_string());
        let answer = self.client.ask(&question).await?;
        ensure!(answer.status == 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
        Ok(())
    }
}
