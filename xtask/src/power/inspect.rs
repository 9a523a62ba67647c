//! The look at a disk after a cut: is all there that was acknowledged, and nothing that is half made?

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::calls::{KINDS, VolumeSort};
use super::guest::{Machine, step};
use super::ledger::{GONE, Ledger};
use super::records::{self, UNSYNCED};
use super::work::{CONFIG_MAPS, NAME_PREFIX, SMALL_BYTES, WriteTarget, read_state};

const MADE: &str = "made";
/// The first words of the condition of a volume that lost writes (docs/local-driver.md).
const LOST: &str = "writes were lost:";

/// What was found, and the volumes as they are shown now.
#[derive(Debug, Default)]
pub(super) struct Inspection {
    pub(super) wrong: Vec<String>,
    /// Ids of volumes that say that they lost writes.
    marked: BTreeSet<String>,
    pub(super) targets: Vec<WriteTarget>,
}

/// The id that the driver gave, if it was told.
fn known_id(ledger: &Ledger, kind: &str, name: &str) -> Option<String> {
    let history = ledger.key(&format!("{kind}-id/{name}"));
    history.allowed().iter().rev().find(|id| *id != GONE).cloned()
}

/// The sort and size of a volume, by its name.
fn described(name: &str) -> (VolumeSort, i64) {
    let main = KINDS.iter().find(|(kind, ..)| name == *kind);
    main.map_or((VolumeSort::Block, SMALL_BYTES), |(_, sort, bytes)| (*sort, *bytes))
}

impl Inspection {
    pub(super) async fn make(machine: &Machine, ledger: &Ledger) -> anyhow::Result<Self> {
        let mut inspection = Self::default();
        inspection.objects(machine, ledger).await?;
        // Before the volumes: an unfinished snapshot is asked for again, and for that its source is needed.
        inspection.snapshots(machine, ledger).await?;
        inspection.volumes(machine, ledger).await?;
        inspection.hidden(&machine.pool);
        // What is missing already would only fail once more.
        if inspection.wrong.is_empty() {
            inspection.contents(machine, ledger).await?;
        }
        Ok(inspection)
    }

    fn expect(&mut self, is_right: bool, wrong: impl FnOnce() -> String) {
        if !is_right {
            self.wrong.push(wrong());
        }
    }

    /// Objects of the API: each in a state that its history allows.
    async fn objects(&mut self, machine: &Machine, ledger: &Ledger) -> anyhow::Result<()> {
        let answer = machine.api.ask(&crate::kubernetes::Question::get(CONFIG_MAPS)).await?;
        ensure!(answer.status == 200, "listing objects: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        let list: Value = serde_json::from_slice(&answer.body).context("reading a list")?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let read = |item: &Value| {
            let name = item["metadata"]["name"].as_str()?.strip_prefix(NAME_PREFIX)?.to_owned();
            Some((name, item["data"]["value"].as_str().unwrap_or("nothing").to_owned()))
        };
        let found: BTreeMap<String, String> = items.iter().filter_map(read).collect();
        for (name, history) in ledger.of_kind("obj") {
            let state = found.get(name).map_or(GONE, String::as_str);
            let allowed = history.allowed();
            self.expect(history.allows(state), || format!("object {name} is {state}; it may be {allowed:?}"));
            if !history.is_surely(state) {
                machine.voice.start(&format!("obj/{name}"), state)?;
                machine.voice.done(&format!("obj/{name}"), state)?;
            }
        }
        for name in found.keys() {
            let known = ledger.of_kind("obj").any(|(begun, _)| begun == name);
            self.expect(known, || format!("object {name} was never asked for"));
        }
        Ok(())
    }

    /// Volumes: first as they were found, then, with the unfinished calls repeated, exactly the ones that must be there.
    async fn volumes(&mut self, machine: &Machine, ledger: &Ledger) -> anyhow::Result<()> {
        let found = machine.calls.volumes().await.context("listing volumes")?;
        for (id, trouble) in found.iter().filter_map(|(id, trouble)| Some((id, trouble.as_ref()?))) {
            if machine.after_fault && trouble.starts_with(LOST) {
                self.marked.insert(id.clone());
                println!("volume {id}: {trouble}");
            } else {
                self.wrong.push(format!("volume {id} is listed as abnormal: {trouble}"));
            }
        }
        let (mut unfinished, mut known) = (0, BTreeSet::new());
        for (name, history) in ledger.of_kind("vol") {
            let id = known_id(ledger, "vol", name);
            let is_found = id.as_ref().is_some_and(|id| found.contains_key(id));
            if history.is_surely(MADE) {
                self.expect(is_found, || format!("volume {name} ({id:?}) was acknowledged and is not there"));
            } else if history.is_surely(GONE) {
                self.expect(!is_found, || format!("volume {name} ({id:?}) was deleted and is there again"));
            } else if id.is_none() {
                unfinished += 1;
            }
            known.extend(id);
        }
        let strange = found.keys().filter(|id| !known.contains(*id)).count();
        self.expect(strange <= unfinished, || format!("{strange} volumes are unknown, {unfinished} were unfinished"));
        let mut wanted = BTreeSet::new();
        for (name, history) in ledger.of_kind("vol") {
            wanted.extend(settle_volume(machine, ledger, (name, history)).await?);
        }
        let found: BTreeSet<String> = machine.calls.volumes().await?.into_keys().collect();
        self.expect(found == wanted, || format!("the driver has the volumes {found:?} and should have {wanted:?}"));
        Ok(())
    }

    async fn snapshots(&mut self, machine: &Machine, ledger: &Ledger) -> anyhow::Result<()> {
        let found = machine.calls.snapshots().await.context("listing snapshots")?;
        let mut wanted = BTreeSet::new();
        for (name, history) in ledger.of_kind("snap") {
            let id = known_id(ledger, "snap", name);
            let is_found = id.as_ref().is_some_and(|id| found.contains(id));
            if history.is_surely(MADE) {
                self.expect(is_found, || format!("snapshot {name} ({id:?}) was acknowledged and is not there"));
                wanted.extend(id);
            } else if history.is_surely(GONE) {
                self.expect(!is_found, || format!("snapshot {name} ({id:?}) was deleted and is there again"));
            } else {
                let (key, id_key) = (format!("snap/{name}"), format!("snap-id/{name}"));
                let source = volume_id(machine, ledger, name).await?;
                machine.voice.start(&key, MADE)?;
                let id = machine.calls.snapshot(name, &source).await?;
                machine.voice.done(&id_key, &id)?;
                machine.voice.done(&key, MADE)?;
                wanted.insert(id);
            }
        }
        let found: BTreeSet<String> = machine.calls.snapshots().await?.into_iter().collect();
        self.expect(found == wanted, || format!("the driver has the snapshots {found:?} and should have {wanted:?}"));
        Ok(())
    }

    /// With all unfinished calls repeated, nothing is left where unfinished things are.
    fn hidden(&mut self, pool: &Path) {
        for folder in [".tmp", ".trash"] {
            let entries = fs::read_dir(pool.join(folder)).into_iter().flatten().flatten();
            let left: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            self.expect(left.is_empty(), || format!("{folder} of the pool has {left:?}"));
        }
    }

    /// Every synced record of every kind of volume.
    async fn contents(&mut self, machine: &Machine, ledger: &Ledger) -> anyhow::Result<()> {
        for (kind, sort, _) in KINDS {
            let (staging, target) =
                (machine.run.join(format!("staging-{kind}")), machine.run.join(format!("target-{kind}")));
            let id = volume_id(machine, ledger, kind).await?;
            machine.calls.bring_up(&id, sort, &staging, &target).await?;
            step(&format!("staged {kind}"));
            let (acknowledged, state) =
                (ledger.counter(&format!("rec/{kind}")), ledger.counter(&format!("state/{kind}")));
            let file = place_in(sort, &target, "log");
            match File::open(&file) {
                Ok(file) => self.wrong.extend(records::missing(&file, kind, acknowledged)),
                Err(error) => {
                    self.expect(acknowledged == 0, || format!("{kind}: its records cannot be opened: {error}"))
                }
            }
            let found = if sort == VolumeSort::Block { Ok(state) } else { read_state(&target) };
            match found {
                Ok(found) => {
                    self.expect(found >= state, || format!("{kind}: state {state} was synced, {found} is there"))
                }
                Err(error) => self.expect(state == 0, || format!("{kind}: state {state} was synced: {error:#}")),
            }
            self.unsynced_contents(ledger, kind, (&id, sort), &target);
            self.targets.push(WriteTarget { kind, sort, path: target, id, staging, acknowledged, state });
        }
        Ok(())
    }
}

impl Inspection {
    /// Of a volume that was let go of after its disk had failed: records that were written without an error and never synced, or
    /// the mark.
    fn unsynced_contents(&mut self, ledger: &Ledger, kind: &str, (id, sort): (&str, VolumeSort), target: &Path) {
        let is_marked = self.marked.contains(id);
        let must_be_marked = ledger.counter(&format!("marked/{kind}")) > 0;
        self.expect(is_marked || !must_be_marked, || {
            format!("{kind}: unstaging said that it is marked, and it is not")
        });
        let written = ledger.counter(&format!("unsynced/{kind}"));
        if is_marked || written == 0 {
            return;
        }
        let file = place_in(sort, target, "unsynced");
        match File::open(&file) {
            Ok(file) => self.wrong.extend(records::missing(&file, &format!("{kind}{UNSYNCED}"), written)),
            Err(error) => self.wrong.push(format!("{kind}: records without a sync cannot be opened: {error}")),
        }
    }
}

/// The id of a volume, which is made now if none is known.
async fn volume_id(machine: &Machine, ledger: &Ledger, name: &str) -> anyhow::Result<String> {
    if let Some(id) = known_id(ledger, "vol", name) {
        return Ok(id);
    }
    make_volume(machine, name).await
}

async fn make_volume(machine: &Machine, name: &str) -> anyhow::Result<String> {
    let (sort, bytes) = described(name);
    machine.voice.start(&format!("vol/{name}"), MADE)?;
    let id = machine.calls.create(name, sort, bytes).await?;
    machine.voice.done(&format!("vol-id/{name}"), &id)?;
    machine.voice.done(&format!("vol/{name}"), MADE)?;
    Ok(id)
}

/// Repeats the last call for a volume if its outcome is not known. Gives the id of a volume that is there then.
async fn settle_volume(
    machine: &Machine,
    ledger: &Ledger,
    (name, history): (&str, &super::ledger::KeyHistory),
) -> anyhow::Result<Option<String>> {
    if history.is_surely(GONE) {
        return Ok(None);
    }
    let known = known_id(ledger, "vol", name);
    if history.is_surely(MADE) {
        return Ok(known);
    }
    let is_leaving = history.allowed().last().is_some_and(|last| last == GONE);
    if !is_leaving {
        return make_volume(machine, name).await.map(Some);
    }
    // A volume whose id is not known is found by its name.
    let id = match known {
        Some(id) => id,
        None => make_volume(machine, name).await?,
    };
    machine.voice.start(&format!("vol/{name}"), GONE)?;
    machine.calls.delete(&id).await?;
    machine.voice.done(&format!("vol/{name}"), GONE)?;
    Ok(None)
}

/// A device is its own file.
fn place_in(sort: VolumeSort, target: &Path, name: &str) -> PathBuf {
    if sort == VolumeSort::Block { target.to_owned() } else { target.join(name) }
}

/// Where the records of a volume are.
pub(super) fn file_of(target: &WriteTarget) -> PathBuf {
    place_in(target.sort, &target.path, "log")
}

/// Where the records are that are never synced.
pub(super) fn unsynced_file_of(target: &WriteTarget) -> PathBuf {
    place_in(target.sort, &target.path, "unsynced")
}
