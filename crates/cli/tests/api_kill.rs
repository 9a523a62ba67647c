//! `orlop api` killed under load, again and again, on one data directory.
//!
//! Writers remember what was acknowledged, watchers what they saw; the server is killed with SIGKILL at a moment that
//! depends on the seed and on the machine, and started again. `ORLOP_KILLS` says how often, `ORLOP_KILL_SEED` repeats a
//! run's choices (not its interleaving).

#![allow(clippy::unwrap_used, reason = "a test")]

mod api_rig;
#[path = "api_kill/objects.rs"]
mod objects;
#[path = "api_kill/watcher.rs"]
mod watcher;
#[path = "api_kill/writer.rs"]
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api_rig::{Random, Server, ask, client, number, revision, seed};
use objects::{Kind, name, token};
use serde_json::Value;
use tokio::sync::watch;
use watcher::Watcher;
use writer::Writer;

const WRITERS: u64 = 4;
/// Acknowledged writes between two kills, at most.
const LOAD: u64 = 24;
/// One in so many kills hits a server that is still starting.
const EARLY: u64 = 10;
const LAST: &str = "w-last";

struct Drill {
    data: PathBuf,
    random: Random,
    writers: Vec<Writer>,
    watchers: Vec<Watcher>,
    /// The newest revision that anybody was told of.
    highest: u64,
    unanswered: u64,
}

impl Drill {
    /// Kills a server that may not have come so far as to serve.
    async fn kill_early(&mut self) {
        let mut server = Server::spawn(&self.data);
        let patience = Duration::from_micros(self.random.below(150_000));
        let _ = tokio::time::timeout(patience, server.address()).await;
        server.kill();
    }

    async fn start(&self) -> (Server, kube::Client) {
        let mut server = Server::spawn(&self.data);
        let address = server.address().await;
        // Always the certificates of the first start.
        let client = client(&self.data.with_extension("first"), &address).await;
        (server, client)
    }

    /// Everything must be as it was told. Then load, and a kill in the midst of it.
    async fn round(&mut self) {
        let (server, client) = self.start().await;
        let now = self.compare(&client).await;
        let count = Arc::new(watch::channel(0).0);
        let writers = std::mem::take(&mut self.writers).into_iter();
        let writers: Vec<_> =
            writers.map(|writer| tokio::spawn(writer.run(client.clone(), Arc::clone(&count)))).collect();
        let watchers = std::mem::take(&mut self.watchers).into_iter();
        let watchers: Vec<_> = watchers.map(|watcher| tokio::spawn(watcher.run(client.clone(), None))).collect();
        let enough = 1 + self.random.below(LOAD);
        count.subscribe().wait_for(|count| *count >= enough).await.unwrap();
        for _ in 0..self.random.below(40) {
            tokio::task::yield_now().await;
        }
        server.kill();
        for writer in writers {
            self.writers.push(writer.await.unwrap());
        }
        for watcher in watchers {
            self.watchers.push(watcher.await.unwrap());
        }
        let acknowledged = self.writers.iter().flat_map(|writer| &writer.acknowledged);
        let newest = acknowledged.filter_map(|write| Some(write.written.as_ref()?.0)).max().unwrap_or(0);
        let seen = self.watchers.iter().map(|watcher| watcher.position).max().unwrap_or(0);
        self.highest = newest.max(seen).max(now);
    }

    /// Lists everything and compares it with what the writers know. Gives the revision of the lists.
    async fn compare(&mut self, client: &kube::Client) -> u64 {
        let (now, found) = list(client).await;
        assert!(now >= self.highest, "the server is at {now}, and {} was seen", self.highest);
        for writer in &mut self.writers {
            self.unanswered += writer.compare(&found);
        }
        now
    }
}

async fn list(client: &kube::Client) -> (u64, BTreeMap<(Kind, String), Value>) {
    let (mut found, mut newest) = (BTreeMap::new(), 0);
    for kind in Kind::ALL {
        let (code, list) = ask(client, ("GET", kind.path()), None).await.unwrap();
        assert_eq!(code, 200, "{list}");
        newest = newest.max(revision(&list));
        for item in list["items"].as_array().unwrap() {
            found.insert((kind, name(item).to_owned()), item.clone());
        }
    }
    (newest, found)
}

#[tokio::test]
async fn killed_under_load_the_server_keeps_every_promise() {
    let kills = number("ORLOP_KILLS").unwrap_or(200);
    let seed = seed("ORLOP_KILL_SEED");
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut drill = Drill {
        data: data.clone(),
        random: Random::new(seed),
        writers: (0..WRITERS).map(|number| Writer::new(number, seed)).collect(),
        watchers: Vec::new(),
        highest: 0,
        unanswered: 0,
    };
    let mut server = Server::spawn(&data);
    let address = server.address().await;
    std::fs::copy(data.with_extension("kubeconfig"), data.with_extension("first")).unwrap();
    let (begin, _) = list(&client(&data.with_extension("first"), &address).await).await;
    server.kill();
    drill.watchers = Kind::ALL.map(|kind| Watcher::new(kind, begin)).into();
    for round in 1..kills {
        match round % EARLY {
            0 => drill.kill_early().await,
            _ => drill.round().await,
        }
    }
    finish(&mut drill).await;
    let written: usize = drill.writers.iter().map(|writer| writer.acknowledged.len()).sum();
    let seen: usize = drill.watchers.iter().map(|watcher| watcher.seen.len()).sum();
    println!(
        "{kills} kills; {written} acknowledged writes, {} that happened without an answer, {seen} events",
        drill.unanswered
    );
}

/// The last start, which is not killed: all watchers get to one point, and everything is compared.
async fn finish(drill: &mut Drill) {
    let (server, client) = drill.start().await;
    drill.compare(&client).await;
    for kind in Kind::ALL {
        let (code, answer) = ask(&client, ("POST", kind.path()), Some(&kind.object(LAST, "last"))).await.unwrap();
        assert_eq!(code, 201, "{answer}");
    }
    for watcher in std::mem::take(&mut drill.watchers) {
        let caught_up = watcher.run(client.clone(), Some(LAST));
        drill.watchers.push(tokio::time::timeout(Duration::from_secs(60), caught_up).await.unwrap());
    }
    let (_, found) = list(&client).await;
    for watcher in &drill.watchers {
        let of_kind = found.iter().filter(|((kind, _), _)| *kind == watcher.kind);
        let listed: BTreeMap<_, _> =
            of_kind.map(|((_, name), object)| (name.clone(), (revision(object), token(object).to_owned()))).collect();
        assert_eq!(watcher.replayed(), listed, "the events lead to another state than the list has");
        check_acknowledged(watcher, &drill.writers);
    }
    server.stop();
}

/// Every acknowledged write is an event, at the revision that was told; and no revision was told twice.
fn check_acknowledged(watcher: &Watcher, writers: &[Writer]) {
    let events: BTreeMap<u64, (&str, Option<&str>)> =
        watcher.seen.iter().map(|seen| (seen.revision, (seen.name.as_str(), seen.token.as_deref()))).collect();
    assert_eq!(events.len(), watcher.seen.len());
    let mut told = BTreeSet::new();
    let mut removals: BTreeMap<&str, usize> = BTreeMap::new();
    for write in writers.iter().flat_map(|writer| &writer.acknowledged).filter(|write| write.kind == watcher.kind) {
        match &write.written {
            Some((revision, token)) => {
                assert_eq!(events.get(revision), Some(&(write.name.as_str(), Some(token.as_str()))), "{write:?}");
                assert!(told.insert(*revision), "{write:?} has a revision that was told before");
            }
            None => *removals.entry(&write.name).or_default() += 1,
        }
    }
    for (name, told) in removals {
        let seen = watcher.seen.iter().filter(|seen| seen.name == name && seen.token.is_none()).count();
        assert!(seen >= told, "{name}: {told} removals were acknowledged and {seen} seen");
    }
}
