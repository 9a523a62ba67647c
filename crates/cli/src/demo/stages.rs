//! The stages: one volume from its claim to its end, with everything killed in the middle.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use api::{Attachment, Claim, ClaimPhase, Key, Kind, Meta, Object, Pod, Volume};
use driver_local::keys;
use linux::fs::FsType;
use linux::mountinfo::Mount;
use runtime::client::{Preconditions, Selection};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::life::{Life, Log};
use super::namespace::Ground;
use super::show::Show;
use super::site::{Site, Substance};
use super::view::{Teller, View, has_its_volumes};
use crate::explain;

const NAMESPACE: &str = "default";
const CLASS: &str = "local";
const CLAIM: &str = "data";
const POD: &str = "web";
/// How much is written through the mount.
const BLOCK: usize = 1 << 20;

/// What the demonstration is played with.
#[derive(Debug)]
pub(super) struct Play<'a> {
    pub(super) site: &'a Site,
    pub(super) show: &'a Show,
    pub(super) ground: &'a Ground,
    pub(super) size: &'a str,
    pub(super) log: Log,
    /// Of the process that is demonstrated.
    pub(super) level: &'a str,
}

/// A life of `orlop up`, and the view of it, which ends first.
struct Running {
    view: View,
    life: Life,
}

impl Running {
    async fn until<T>(&mut self, what: &str, done: impl Fn(&View) -> Option<T>) -> anyhow::Result<T> {
        tokio::select! {
            biased;
            found = self.view.until(what, done) => match found {
                Ok(found) => Ok(found),
                Err(error) => Err(self.explained(error).await),
            },
            error = self.life.failed() => Err(error),
        }
    }

    /// With what Orlop itself has to say about it.
    async fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let (client, pod) = (&self.view.client, Key::namespaced(NAMESPACE, POD));
        let explanation = match self.view.pods.get(&pod) {
            Some(_) => explain::of_pod(client, &pod).await,
            None => explain::of_claim(client, &claim_key()).await,
        };
        match explanation {
            Ok(explanation) => anyhow!("{error:#}\n{explanation}"),
            Err(_) => error,
        }
    }
}

/// The volume in use: what must be the same after everything was killed.
struct InUse {
    pod: Meta,
    mount: Mount,
    digest: Vec<u8>,
    /// Held open, as a program in the pod would.
    journal: File,
}

impl Play<'_> {
    /// All stages.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let teller = Teller::new(self.show);
        let running = self.start(&teller).await?;
        self.ask(&running).await?;
        let running = match self.ground {
            Ground::Images | Ground::Directories(_) => self.use_a_volume(running, &teller).await?,
            Ground::Unmountable(_) => self.only_a_volume(running, &teller).await?,
        };
        self.clean_up(running).await
    }

    /// With a mount.
    async fn use_a_volume(&self, mut running: Running, teller: &Teller) -> anyhow::Result<Running> {
        let pod = self.make_a_pod(&mut running).await?;
        let used = self.write_and_read(&pod).await?;
        let mut running = self.kill(running, teller, Some(&used)).await?;
        self.delete_the_pod(&mut running, used).await?;
        Ok(running)
    }

    /// Where nothing can be mounted.
    async fn only_a_volume(&self, mut running: Running, teller: &Teller) -> anyhow::Result<Running> {
        self.show.begin("a volume for the claim", "Make the class: the claim gets its volume at once");
        self.make_the_class(&running.view, "Immediate").await?;
        self.show_the_volume(&mut running).await?;
        self.show.done().await;
        self.kill(running, teller, None).await
    }

    async fn start(&self, teller: &Teller) -> anyhow::Result<Running> {
        let what =
            "Start everything: API server, CSI driver, controllers, provisioner, attacher, scheduler, node agent";
        self.show.begin("start everything", what);
        let running = self.begin_life(SocketAddr::from(([127, 0, 0, 1], 0)), teller).await?;
        self.show.tell(&format!(
            "one process, `orlop up`, pid {}: it serves the Kubernetes API on https://{}",
            running.life.pid(),
            running.life.address
        ));
        self.show.done().await;
        Ok(running)
    }

    async fn begin_life(&self, listen: SocketAddr, teller: &Teller) -> anyhow::Result<Running> {
        let life = Life::begin(self.site.data(), listen, (self.log, self.level)).await?;
        let view = View::open(&self.site.kubeconfig(), teller).await?;
        Ok(Running { life, view })
    }

    async fn make_the_class(&self, view: &View, binding: &str) -> anyhow::Result<()> {
        let mut class = json!({"apiVersion": Kind::STORAGE_CLASS.api_version(), "kind": Kind::STORAGE_CLASS.kind,
            "metadata": {"name": CLASS}, "provisioner": keys::DRIVER_NAME, "volumeBindingMode": binding});
        // The driver knows whether it may use loop devices; that no filesystem can be made on one it would find too late.
        if !FsType::Ext4.missing_tools().is_empty() {
            class["parameters"] = json!({keys::KIND: "directory"});
        }
        view.client.create::<api::Class>(Kind::STORAGE_CLASS, None, &class).await.context("making the class")?;
        self.show.tell(&format!("class {CLASS} is there: its volumes come from {}", keys::DRIVER_NAME));
        Ok(())
    }

    /// A claim that waits, and why.
    async fn ask(&self, running: &Running) -> anyhow::Result<()> {
        let view = &running.view;
        self.show.begin("make a claim", &format!("Make a claim of {}", self.size));
        if !matches!(self.ground, Ground::Unmountable(_)) {
            self.make_the_class(view, "WaitForFirstConsumer").await?;
        }
        let claim = json!({"apiVersion": Kind::CLAIM.api_version(), "kind": Kind::CLAIM.kind,
            "metadata": {"namespace": NAMESPACE, "name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                "resources": {"requests": {"storage": self.size}}}});
        view.client.create::<Claim>(Kind::CLAIM, Some(NAMESPACE), &claim).await.context("making the claim")?;
        let waits = |view: &View| view.claims.get(&claim_key()).filter(|claim| claim.phase == ClaimPhase::Pending);
        view.until("the claim is Pending", waits).await?;
        self.show.done().await;

        self.show.begin("explain", &format!("It is Pending. Why? $ orlop explain pvc/{CLAIM}"));
        let explanation = explain::of_claim(&view.client, &claim_key()).await?;
        self.show.quote(&explanation.to_string());
        self.show.done().await;
        Ok(())
    }

    async fn make_a_pod(&self, running: &mut Running) -> anyhow::Result<Meta> {
        self.show.begin("from a pod to its mount", "Make a pod that uses the claim");
        let pod = json!({"apiVersion": Kind::POD.api_version(), "kind": Kind::POD.kind,
            "metadata": {"namespace": NAMESPACE, "name": POD},
            "spec": {"containers": [{"name": "main", "image": "none", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": CLAIM}}]}});
        let pod =
            running.view.client.create::<Pod>(Kind::POD, Some(NAMESPACE), &pod).await.context("making the pod")?;
        self.show_the_volume(running).await?;
        let ready = |view: &View| view.pods.get(&pod.meta.key).filter(|pod| has_its_volumes(pod));
        running.until("the pod has its volume", ready).await?;
        self.show.done().await;
        Ok(pod.meta)
    }

    /// Waits for the volume, and shows what it is made of.
    async fn show_the_volume(&self, running: &mut Running) -> anyhow::Result<Arc<Volume>> {
        let bound = |view: &View| {
            let claim = view.claims.get(&claim_key()).filter(|claim| claim.phase == ClaimPhase::Bound)?;
            view.volumes.get(&Key::cluster(&claim.volume_name))
        };
        let volume = running.until("the claim is bound", bound).await?;
        let mib = |bytes: u64| bytes >> 20;
        self.show.tell(&match self.site.substance(&volume) {
            Substance::Image { path, size, used } => {
                format!("it is the file {}: {} MiB, {} of them on disk", self.site.short(&path), mib(size), mib(used))
            }
            Substance::Directory { path } => format!("it is the directory {}", self.site.short(&path)),
            Substance::Nothing => bail!("the volume {} is made of nothing", volume.name()),
        });
        Ok(volume)
    }

    async fn write_and_read(&self, pod: &Meta) -> anyhow::Result<InUse> {
        self.show.begin("write and read", "Write and read through the pod's mount");
        let mount = self.site.mount_of(pod.uid.as_str())?;
        self.show.tell(&format!("mount {} is {} on {}", mount.id, mount.fs_type, mount.source.display()));
        self.show.tell(&format!("at {}", self.site.short(&mount.mount_point)));
        let block: Vec<u8> = (0..BLOCK).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect();
        let digest = Sha256::digest(&block).to_vec();
        let path = mount.mount_point.join("block");
        let mut file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        file.write_all(&block).and_then(|()| file.sync_all()).with_context(|| format!("writing {}", path.display()))?;
        let read = digest_of(&path)?;
        if read != digest {
            bail!("{} holds something else than what was written", path.display());
        }
        self.show.tell(&format!("{} KiB written, synced and read back, sha256 {}", BLOCK >> 10, hex(&digest)));
        let path = mount.mount_point.join("journal");
        let mut journal = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("making {}", path.display()))?;
        writeln!(journal, "before").with_context(|| format!("writing {}", path.display()))?;
        self.show.tell("a second file stays open");
        self.show.done().await;
        Ok(InUse { pod: pod.clone(), mount, digest, journal })
    }

    /// SIGKILL for everything at once; then a new life goes on where the old one was.
    async fn kill(&self, running: Running, teller: &Teller, used: Option<&InUse>) -> anyhow::Result<Running> {
        let heading = match used {
            Some(_) => "Kill everything while the volume is in use, and start it again",
            None => "Kill everything, and start it again",
        };
        self.show.begin("kill -9, and back", heading);
        let Running { life, view } = running;
        let (pid, address) = (life.pid(), life.address);
        let before = view.volumes.walk().map(|volume| volume.meta.uid.clone()).collect::<Vec<_>>();
        drop(view);
        life.kill()?;
        self.show.tell(&format!("pid {pid} got SIGKILL: no API, no driver, no agent"));
        if let Some(InUse { journal, .. }) = used {
            let mut journal = journal;
            writeln!(journal, "meanwhile").context("writing while everything is dead")?;
            self.show.tell("the open file is written to all the same");
        }
        let running = self.begin_life(address, teller).await?;
        self.show.tell(&format!("pid {} is ready", running.life.pid()));
        let after = running.view.volumes.walk().map(|volume| volume.meta.uid.clone()).collect::<Vec<_>>();
        let claim = running.view.claims.get(&claim_key());
        if before != after || claim.is_none_or(|claim| claim.phase != ClaimPhase::Bound) {
            bail!("the claim or its volume are not what they were");
        }
        match used {
            Some(used) => self.compare(used)?,
            None => self.show.tell("claim and volume are what they were"),
        }
        self.show.done().await;
        Ok(running)
    }

    /// The mount and the data are the same as before.
    fn compare(&self, used: &InUse) -> anyhow::Result<()> {
        let mount = self.site.mount_of(used.pod.uid.as_str())?;
        if mount != used.mount {
            bail!("the mount was {:?} and is {mount:?}", used.mount);
        }
        self.show.tell(&format!("mount {} is the same one", mount.id));
        let mut journal = &used.journal;
        writeln!(journal, "after").and_then(|()| journal.sync_all()).context("writing after the restart")?;
        let path = mount.mount_point.join("journal");
        let lines = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if lines != "before\nmeanwhile\nafter\n" {
            bail!("{} holds {lines:?}", path.display());
        }
        self.show.tell("the file that stayed open has all three lines: before, meanwhile, after");
        if digest_of(&mount.mount_point.join("block"))? != used.digest {
            bail!("the data is not what it was");
        }
        self.show.tell(&format!("sha256 of the block is still {}", hex(&used.digest)));
        Ok(())
    }

    async fn delete_the_pod(&self, running: &mut Running, used: InUse) -> anyhow::Result<()> {
        self.show.begin("give the volume back", "Close the file, and delete the pod");
        let InUse { pod, journal, .. } = used;
        // What is in use is not unmounted.
        drop(journal);
        let client = &running.view.client;
        client.delete::<Pod>(&pod.key, &Preconditions::same(&pod)).await.context("deleting the pod")?;
        let gone = |view: &View| (view.pods.is_empty() && view.attachments.is_empty()).then_some(());
        running.until("the pod is gone and its volume detached", gone).await?;
        self.show.done().await;
        Ok(())
    }

    /// Deletes the claim, looks for what is left, and ends.
    async fn clean_up(&self, mut running: Running) -> anyhow::Result<()> {
        self.show.begin("delete the claim", "Delete the claim, and its volume with it");
        let key = claim_key();
        running.view.client.delete::<Claim>(&key, &Preconditions::default()).await.context("deleting the claim")?;
        let gone = |view: &View| (view.claims.is_empty() && view.volumes.is_empty()).then_some(());
        running.until("the claim and its volume are gone", gone).await?;
        self.show.done().await;

        self.show.begin("look for leftovers", "Look for what is left, and stop");
        let Running { life, view } = running;
        let mut left = self.site.leftovers()?;
        left.extend(stored::<Volume>(&view).await?);
        left.extend(stored::<Attachment>(&view).await?);
        if !left.is_empty() {
            bail!("this is left: {}", left.join(", "));
        }
        self.show.tell("no PersistentVolume, no VolumeAttachment, no mount, no loop device, no file");
        drop(view);
        life.end().await?;
        self.show.tell("orlop up has ended");
        Ok(())
    }
}

/// What the server still has of a kind.
async fn stored<T: Object>(view: &View) -> anyhow::Result<Vec<String>> {
    let page = view.client.list::<Value>(T::KIND, &Selection::default(), 10, None).await;
    let items = page.with_context(|| format!("listing {}", T::KIND))?.items;
    Ok(items.iter().map(|item| format!("the {} {}", T::KIND, item["metadata"]["name"])).collect())
}

fn claim_key() -> Key {
    Key::namespaced(NAMESPACE, CLAIM)
}

fn digest_of(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Sha256::digest(&bytes).to_vec())
}

/// The first digits, which are enough to compare by eye.
fn hex(digest: &[u8]) -> String {
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
