//! Two hundred calls in flight at any time, for a minute, on ten volumes: whatever order they come in,
//! whoever hangs up, the store ends consistent, and nothing was ever answered that means "a bug".
//!
//! `ORLOP_SOAK_SEED` repeats a run's choices (not its interleaving); `ORLOP_SOAK_SECONDS` makes it longer or shorter.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, with its support in other functions")]

mod rig;

#[path = "soak/calls.rs"]
mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calls::{GROUPS, MIX, Method, Random, Stand, VOLUMES, group_members};
use csi::v1::*;
use driver_local::core::Core;
use driver_local::record::{self, Kind, SnapshotRecord, VolumeRecord};
use driver_sdk::testing::Clients;
use linux::fs::FsType;
use rig::call::*;
use rig::{Driver, GIB, NODE, Scratch, ask, run};
use tonic::{Code, Status};

const CALLERS: u64 = 200;
/// Several connections, as sidecars and kubelet have.
const CONNECTIONS: usize = 4;
const LARGEST_MEMORY_KIB: u64 = 48 << 10;

/// How calls ended.
#[derive(Debug, Default)]
struct Tally {
    endings: BTreeMap<(Method, Ending), u64>,
    /// Answers that no driver should give.
    bugs: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Ok,
    Refused(i32),
    CutOff,
}

impl Tally {
    fn note(&mut self, method: Method, answer: Result<(), Status>) {
        let ending = match answer {
            Ok(()) => Ending::Ok,
            // A server that was busy for a while takes many given-up calls for an attack and cuts the connection. That
            // is no answer of the driver; only a broken connection has a cause on this side.
            Err(status) if status.code() == Code::Unknown && std::error::Error::source(&status).is_some() => {
                Ending::CutOff
            }
            Err(status) => {
                if matches!(status.code(), Code::Internal | Code::Unknown | Code::DataLoss | Code::Unimplemented) {
                    self.bugs.insert(format!("{method:?}: {status:?}"));
                }
                Ending::Refused(status.code().into())
            }
        };
        *self.endings.entry((method, ending)).or_default() += 1;
    }

    fn report(&self) {
        for ((method, ending), count) in &self.endings {
            let ending = match ending {
                Ending::Ok => "OK".to_owned(),
                Ending::CutOff => "the connection broke".to_owned(),
                Ending::Refused(code) => format!("{:?}", Code::from(*code)),
            };
            println!("{count:7} {method:?}: {ending}");
        }
        println!("{} calls", self.endings.values().sum::<u64>());
        assert!(self.bugs.is_empty(), "{:#?}", self.bugs);
        // A soak in which every call of a kind is refused has tested little.
        for (method, _) in MIX {
            assert!(self.endings.contains_key(&(method, Ending::Ok)), "{method:?} never succeeded");
        }
    }
}

#[test]
fn two_hundred_random_calls_at_a_time_leave_a_consistent_store() {
    needs!(Ext4, Xfs);
    let seed = number("ORLOP_SOAK_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let length = Duration::from_secs(number("ORLOP_SOAK_SECONDS").unwrap_or(60));
    println!("ORLOP_SOAK_SEED={seed}");
    let scratch = Scratch::new();
    scratch.pool_on(FsType::Xfs, 4 * GIB);
    let stand = Arc::new(Stand::new(&scratch));
    let mut driver = start(&scratch);
    let tally = run(soak(&driver, &stand, (seed, Instant::now() + length)));
    tally.report();

    let memory = own_memory_kib(driver.pid());
    println!("memory: {memory} KiB");
    assert!(memory < LARGEST_MEMORY_KIB, "the driver grew to {memory} KiB");
    assert!(!driver.log().contains("panicked"), "{}", driver.log());
    // Calls whose clients hung up go on; a driver that is told to stop ends them first.
    assert!(driver.stop(), "{}", driver.log());

    let mut driver = start(&scratch);
    assert!(!driver.log().contains("left alone"), "orphans: {}", driver.log());
    run(async {
        let clients = driver.clients().await;
        check_volumes(&clients, &scratch).await;
        check_snapshots(&clients, &scratch).await;
        remove_everything(&clients, &stand).await;
    });
    assert!(driver.stop(), "{}", driver.log());
    scratch.assert_clean();
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// A driver that logs no more than it does for a user; a minute of everything would be gigabytes.
fn start(scratch: &Scratch) -> Driver {
    let socket = scratch.path("csi.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["driver", "--node-id", NODE, "--log-level", "info"]);
    command.arg("--endpoint").arg(format!("unix://{}", socket.display()));
    command.arg("--pool").arg(format!("p={}", scratch.path("pool").display())).stdout(Stdio::null());
    // One heap, so that what it takes is what is used, on a machine with any number of cores.
    command.env("MALLOC_ARENA_MAX", "1");
    Driver::launch(command, socket).unwrap_or_else(|log| panic!("the driver ended before it served:\n{log}"))
}

async fn soak(driver: &Driver, stand: &Arc<Stand>, (seed, until): (u64, Instant)) -> Tally {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(driver.clients().await);
    }
    let tally = Arc::new(Mutex::new(Tally::default()));
    let callers: Vec<_> = (0..CALLERS)
        .zip(connections.iter().cycle())
        .map(|(number, clients)| {
            let (stand, clients, tally) = (Arc::clone(stand), clients.clone(), Arc::clone(&tally));
            tokio::spawn(caller(Random::new(seed.wrapping_add(number)), (stand, clients), tally, until))
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    Arc::try_unwrap(tally).unwrap().into_inner().unwrap()
}

/// One call after the other, some given up by the client on the way, until the time is over.
async fn caller(mut random: Random, (stand, clients): (Arc<Stand>, Clients), tally: Arc<Mutex<Tally>>, until: Instant) {
    while Instant::now() < until {
        let hangs_up = random.one_in(8).then(|| Duration::from_millis(random.below(60)));
        let call = stand.call(&clients, &mut random);
        let answer = match hangs_up {
            None => Some(call.await),
            Some(after) => tokio::time::timeout(after, call).await.ok(),
        };
        if let Some((method, ended)) = answer {
            tally.lock().unwrap().note(method, ended);
        }
    }
}

/// The memory that the program holds for itself, without the mapped pages of its own file, which is large with debug
/// information.
fn own_memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Every volume that is listed can be had, is healthy, and has the data its record says.
async fn check_volumes(clients: &Clients, scratch: &Scratch) {
    let (mut ids, mut token) = (Vec::new(), String::new());
    loop {
        let page = ask::list(clients, 3, &token).await.unwrap();
        ids.extend(page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    let folder = scratch.path("pool").join("volumes");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), ids.len(), "what is listed is what is there");
    for id in ids {
        let answer = ask::get(clients, &id).await.unwrap();
        assert!(!answer.status.unwrap().volume_condition.unwrap().abnormal, "{id}");
        let record: VolumeRecord = record::read(&folder.join(&id).join("record.json")).unwrap();
        assert_eq!(answer.volume.unwrap().capacity_bytes, i64::try_from(record.size).unwrap());
        assert_eq!((id.as_str(), Core::volume_id(&record.name).as_str()), (record.id.as_str(), record.id.as_str()));
        check_data(&folder.join(&id), record.kind, record.size);
        let capability = if record.access == record::AccessKind::Block { block() } else { mount("") };
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: id,
            volume_capabilities: vec![capability],
            ..Default::default()
        };
        let answer = clients.controller.clone().validate_volume_capabilities(request).await.unwrap().into_inner();
        assert!(answer.confirmed.is_some(), "{}", answer.message);
    }
}

async fn check_snapshots(clients: &Clients, scratch: &Scratch) {
    let pool = scratch.path("pool");
    let listed = clients.controller.clone().list_snapshots(ListSnapshotsRequest::default()).await.unwrap().into_inner();
    let listed: Vec<Snapshot> = listed.entries.into_iter().filter_map(|entry| entry.snapshot).collect();
    let alone = listed.iter().filter(|snapshot| snapshot.group_snapshot_id.is_empty()).count();
    assert_eq!(fs::read_dir(pool.join("snapshots")).unwrap().count(), alone, "what is listed is what is there");
    for snapshot in listed {
        let dir = match snapshot.snapshot_id.split_once('.') {
            None => pool.join("snapshots").join(&snapshot.snapshot_id),
            Some((group, number)) => pool.join("groups").join(group).join(number),
        };
        let record: SnapshotRecord = record::read(&dir.join("record.json")).unwrap();
        assert_eq!(snapshot.size_bytes, i64::try_from(record.size).unwrap());
        check_data(&dir, record.kind, record.size);
    }
}

fn check_data(dir: &Path, kind: Kind, size: u64) {
    match kind {
        Kind::Image => assert_eq!(fs::metadata(dir.join("image")).unwrap().len(), size, "{}", dir.display()),
        Kind::Directory | Kind::Subvolume => assert!(dir.join("data").is_dir(), "{}", dir.display()),
    }
}

/// All by calls that must succeed.
async fn remove_everything(clients: &Clients, stand: &Stand) {
    for group in GROUPS {
        ask::delete_group(clients, &group_members(group)).await.unwrap();
    }
    let listed = clients.controller.clone().list_snapshots(ListSnapshotsRequest::default()).await.unwrap().into_inner();
    for snapshot in listed.entries.into_iter().filter_map(|entry| entry.snapshot) {
        delete_snapshot(clients, &snapshot.snapshot_id).await.unwrap();
    }
    for name in VOLUMES {
        let using = stand.using(name);
        bring_down(clients, using).await.unwrap();
        delete(clients, &using.id).await.unwrap();
    }
}
