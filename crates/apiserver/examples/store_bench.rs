//! Measures the store on a directory given as the first argument, or on a temporary one: durable creates by 16
//! writers, and opening 20,000 objects of 2 KiB. An example target, not part of the library.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use apiserver::store::{Expect, Key, List, Options, Scope, Start, Store, Write};

const WRITERS: usize = 16;
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

fn main() {
    let dir = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join(format!("store-bench-{}", std::process::id())), PathBuf::from);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    runtime.block_on(creates(&dir));
    for _ in 0..3 {
        open(&dir);
    }
    runtime.block_on(latency(&dir));
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
}

/// Like a claim or a volume: text that does not repeat much.
fn value(seed: usize) -> Vec<u8> {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b'a' + (state >> 59) as u8 % 26
    };
    (0..2048).map(|_| letter()).collect()
}

async fn creates(dir: &Path) {
    let store = Store::open(dir, Options::default()).expect("a new store opens");
    for (resource, namespace) in [(CLAIMS, Some("default")), (VOLUMES, None)] {
        let begin = Instant::now();
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (writer..10_000).step_by(WRITERS) {
                    let key = Key::new(resource, namespace, &format!("object-{number:05}")).expect("a good name");
                    store.commit(Write::put(key, Expect::Absent, value(number))).await.expect("nothing fails");
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("writers end");
        }
        let rate = 10_000.0 / begin.elapsed().as_secs_f64();
        println!("{resource}: {rate:.0} durable creates/s with {WRITERS} writers");
    }
}

fn open(dir: &Path) {
    let begin = Instant::now();
    let store = Store::open(dir, Options::default()).expect("the store opens again");
    let opened = begin.elapsed();
    let begin = Instant::now();
    let listed = store.list(&List::latest(&Scope::all(CLAIMS))).expect("the newest state can be listed").items.len();
    println!("opened in {opened:?}; listed {listed} claims in {:?}; {}", begin.elapsed(), memory());
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("VmRSS unknown").to_owned()
}

/// One writer, 100 watchers: from handing over a write until the last watcher has it.
async fn latency(dir: &Path) {
    let store = Store::open(dir, Options::default()).expect("the store opens again");
    let mut watches: Vec<_> =
        (0..100).map(|_| store.watch(Scope::all(CLAIMS), Start::Now).expect("now is not too old")).collect();
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..500 {
        let key = Key::new(CLAIMS, Some("default"), &format!("object-{number:05}")).expect("a good name");
        let begin = Instant::now();
        store.commit(Write::put(key, Expect::Present, value(number))).await.expect("nothing fails");
        for watch in &mut watches {
            watch.next().await.expect("nobody lags");
        }
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    println!("update seen by 100 watchers: p50 {:?}, p99 {:?}", times[250], times[495]);
}
