//! The work that a cut interrupts: synced records in volumes of every kind, volumes and snapshots that come and go, objects in
//! the store. Each step is said before it begins and after it was acknowledged.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail, ensure};
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use super::calls::{DriverCalls, VolumeSort};
use super::inspect::{file_of, unsynced_file_of};
use super::ledger::GONE;
use super::mutation::Mutation;
use super::records::{self, SeededNumbers, UNSYNCED};
use super::voice::ConsoleVoice;
use crate::kubernetes::{Client, Question};

const MADE: &str = "made";
pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(super) const NAME_PREFIX: &str = "power-";
/// Volumes that come and go are raw and small.
pub(super) const SMALL_BYTES: i64 = 1 << 20;
/// So many volumes, snapshots and objects of a round stay.
const KEPT: u64 = 2;

/// A volume that is written to.
#[derive(Debug, Clone)]
pub(super) struct WriteTarget {
    pub(super) kind: &'static str,
    pub(super) sort: VolumeSort,
    pub(super) path: PathBuf,
    pub(super) id: String,
    pub(super) staging: PathBuf,
    pub(super) acknowledged: u64,
    pub(super) state: u64,
}

/// How the volumes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteWay {
    pub(super) seed: u64,
    pub(super) mutation: Option<Mutation>,
    /// Write also records that are never synced.
    pub(super) with_unsynced: bool,
}

/// How far a writer came.
#[derive(Debug)]
pub(super) struct WriterEnd {
    /// The last record of those that are never synced; `None` if one of them could not be written.
    pub(super) unsynced: Option<u64>,
    pub(super) done: anyhow::Result<()>,
}

/// What the work is done with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hands<'a> {
    pub(super) voice: &'a Arc<ConsoleVoice>,
    pub(super) calls: &'a DriverCalls,
    pub(super) api: &'a Client,
    pub(super) round: u64,
    pub(super) stop_after: Option<u64>,
    pub(super) way: WriteWay,
}

impl Hands<'_> {
    fn is_enough(&self) -> bool {
        self.stop_after.is_some_and(|enough| self.voice.count() >= enough)
    }
}

/// Works until the power goes, something fails, or enough was said.
pub(super) async fn run(hands: Hands<'_>, targets: Vec<WriteTarget>) -> anyhow::Result<()> {
    let ended = Ended(Arc::new(AtomicBool::new(false)));
    let mut writers = JoinSet::new();
    for target in targets {
        let (voice, ended, stop_after, way) =
            (Arc::clone(hands.voice), Arc::clone(&ended.0), hands.stop_after, hands.way);
        writers.spawn_blocking(move || {
            let is_enough =
                || ended.load(Ordering::Relaxed) || stop_after.is_some_and(|enough| voice.count() >= enough);
            let end = write_records(&voice, &target, way, &is_enough);
            end.done.with_context(|| format!("WRONG: writing to the {} volume", target.kind))
        });
    }
    let writing = async {
        while let Some(done) = writers.join_next().await {
            done??;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(call(hands, &ended.0), writing).map(|_| ())
}

/// Tells the writers to end, also when the work ends with an error.
#[derive(Debug)]
pub(super) struct Ended(pub(super) Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Volumes, snapshots and objects, one after the other.
pub(super) async fn call(hands: Hands<'_>, ended: &AtomicBool) -> anyhow::Result<()> {
    let (mut volumes, mut snapshots) = (Vec::new(), Vec::new());
    for number in 0.. {
        if hands.is_enough() || ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = format!("r{}-{number}", hands.round);
        let id = make(hands, "vol", &name, hands.calls.create(&name, VolumeSort::Block, SMALL_BYTES)).await?;
        object(hands, &name, number).await?;
        if number % 2 == 0 {
            // Of a volume that no one uses: a pool that makes full copies refuses others.
            snapshots.push((name.clone(), make(hands, "snap", &name, hands.calls.snapshot(&name, &id)).await?));
        }
        volumes.push((name, id));
        if number >= KEPT {
            let (name, id) = volumes.remove(0);
            remove(hands, &format!("vol/{name}"), hands.calls.delete(&id)).await?;
        }
        if snapshots.len() as u64 > KEPT {
            let (name, id) = snapshots.remove(0);
            remove(hands, &format!("snap/{name}"), hands.calls.delete_snapshot(&id)).await?;
        }
    }
    Ok(())
}

async fn make(
    hands: Hands<'_>,
    kind: &str,
    name: &str,
    call: impl Future<Output = anyhow::Result<String>>,
) -> anyhow::Result<String> {
    hands.voice.start(&format!("{kind}/{name}"), MADE)?;
    let id = call.await?;
    hands.voice.done(&format!("{kind}-id/{name}"), &id)?;
    hands.voice.done(&format!("{kind}/{name}"), MADE)?;
    Ok(id)
}

async fn remove(hands: Hands<'_>, key: &str, call: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    hands.voice.start(key, GONE)?;
    call.await?;
    hands.voice.done(key, GONE)
}

/// An object is made and changed; one of the round's earlier ones is deleted.
async fn object(hands: Hands<'_>, name: &str, number: u64) -> anyhow::Result<()> {
    let key = format!("obj/{name}");
    let body = |value: u64| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("{NAME_PREFIX}{name}") },
            "data": { "value": value.to_string() } });
        object.to_string()
    };
    let path = format!("{CONFIG_MAPS}/{NAME_PREFIX}{name}");
    hands.voice.start(&key, "1")?;
    ask(hands, Question::new(Method::POST, CONFIG_MAPS).body("application/json", body(1))).await?;
    hands.voice.done(&key, "1")?;
    hands.voice.start(&key, "2")?;
    ask(hands, Question::new(Method::PUT, &path).body("application/json", body(2))).await?;
    hands.voice.done(&key, "2")?;
    if let Some(earlier) = number.checked_sub(KEPT) {
        let name = format!("r{}-{earlier}", hands.round);
        let path = format!("{CONFIG_MAPS}/{NAME_PREFIX}{name}");
        remove(hands, &format!("obj/{name}"), ask(hands, Question::new(Method::DELETE, &path))).await?;
    }
    Ok(())
}

async fn ask(hands: Hands<'_>, question: Question) -> anyhow::Result<()> {
    let answer = hands.api.ask(&question).await?;
    let said = String::from_utf8_lossy(&answer.body);
    ensure!((200..300).contains(&answer.status), "{} {}: {} {said}", question.method, question.path, answer.status);
    Ok(())
}

/// Writes records and syncs them; every now and then replaces a small file, as programs do that want old or new and nothing
/// in between.
pub(super) fn write_records(
    voice: &ConsoleVoice,
    target: &WriteTarget,
    way: WriteWay,
    is_enough: &dyn Fn() -> bool,
) -> WriterEnd {
    let mut unsynced = Some(0);
    let mut write = || {
        let mut writer = RecordWriter::open(voice, target, way)?;
        while !is_enough() {
            if let Some(last) = unsynced.filter(|_| way.with_unsynced) {
                unsynced = writer.write_unsynced(last + 1).map(|()| last + 1).ok();
            }
            writer.write_synced()?;
        }
        anyhow::Ok(())
    };
    let done = write();
    WriterEnd { unsynced, done }
}

/// The writer of one volume.
#[derive(Debug)]
struct RecordWriter<'a> {
    voice: &'a ConsoleVoice,
    target: &'a WriteTarget,
    way: WriteWay,
    random: SeededNumbers,
    file: File,
    unsynced: File,
    number: u64,
    state: u64,
}

impl<'a> RecordWriter<'a> {
    fn open(voice: &'a ConsoleVoice, target: &'a WriteTarget, way: WriteWay) -> anyhow::Result<Self> {
        let is_block = target.sort == VolumeSort::Block;
        let open = |path: &Path| {
            let file = File::options().read(true).write(true).create(!is_block).truncate(false).open(path);
            file.with_context(|| format!("opening {}", path.display()))
        };
        let file = open(&file_of(target))?;
        let unsynced = if way.with_unsynced { open(&unsynced_file_of(target))? } else { file.try_clone()? };
        if !is_block {
            File::open(&target.path)?.sync_all().context("syncing the directory")?;
        }
        let random = SeededNumbers::new(way.seed ^ records::hash(target.kind));
        let (number, state) = (target.acknowledged, target.state);
        Ok(Self { voice, target, way, random, file, unsynced, number, state })
    }

    fn write_unsynced(&mut self, number: u64) -> std::io::Result<()> {
        records::write(&self.unsynced, &format!("{}{UNSYNCED}", self.target.kind), number)
    }

    fn write_synced(&mut self) -> anyhow::Result<()> {
        let kind = self.target.kind;
        for _ in 0..=self.random.below(records::AHEAD / 2) {
            self.number += 1;
            records::write(&self.file, kind, self.number)?;
        }
        self.sync()?;
        self.voice.done(&format!("rec/{kind}"), &self.number.to_string())?;
        if self.target.sort != VolumeSort::Block && self.random.below(3) == 0 {
            self.state += 1;
            write_state(&self.target.path, self.state)?;
            self.voice.done(&format!("state/{kind}"), &self.state.to_string())?;
        }
        Ok(())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        let with_times = self.random.below(2) == 0;
        if self.way.mutation == Some(Mutation::UnsyncedRecords) {
            return Ok(());
        }
        let synced = if with_times { self.file.sync_data() } else { self.file.sync_all() };
        if self.way.mutation == Some(Mutation::IgnoredErrors) {
            return Ok(());
        }
        synced.context("syncing")
    }
}

fn state_text(number: u64) -> String {
    format!("{number} {:016x}\n", records::hash(&number.to_string()))
}

fn write_state(folder: &Path, number: u64) -> anyhow::Result<()> {
    let new = folder.join("state.new");
    let mut file = File::create(&new)?;
    file.write_all(state_text(number).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, folder.join("state"))?;
    File::open(folder)?.sync_all().context("syncing the directory")
}

/// The number in the state file, which must be whole.
pub(super) fn read_state(folder: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(folder.join("state")).context("reading the state file")?;
    let number = text.split(' ').next().and_then(|word| word.parse().ok());
    match number {
        Some(number) if text == state_text(number) => Ok(number),
        _ => bail!("the state file is torn: {text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_is_whole_or_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(read_state(folder.path()).is_err());
        write_state(folder.path(), 7).expect("writing");
        assert_eq!(read_state(folder.path()).expect("it was written"), 7);
        fs::write(folder.path().join("state"), "7 0000").expect("writing");
        assert!(read_state(folder.path()).is_err());
    }
}
