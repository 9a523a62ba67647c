//! Many writers, one sync; and what happens when a sync fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

/// Counts what reaches the record, waits at each batch for a go, and fails from a given batch on.
#[derive(Debug)]
struct Gate {
    record: Box<dyn Durable>,
    batches: Arc<AtomicUsize>,
    go: Option<mpsc::Receiver<()>>,
    fail_at: usize,
}

impl Gate {
    fn open(record: impl Durable + 'static) -> Self {
        Self { record: Box::new(record), batches: Arc::default(), go: None, fail_at: usize::MAX }
    }

    /// With the handle that lets a batch pass; dropping it lets all of them pass.
    fn closed(record: impl Durable + 'static) -> (Self, mpsc::Sender<()>) {
        let (handle, go) = mpsc::channel();
        (Self { go: Some(go), ..Self::open(record) }, handle)
    }
}

impl Durable for Gate {
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError> {
        if let Some(go) = &self.go {
            // When the test has let go of its end, everything may pass.
            let _ = go.recv();
        }
        if self.batches.fetch_add(1, Ordering::SeqCst) + 1 >= self.fail_at {
            return Err(DurableError::doing("syncing")(std::io::Error::from_raw_os_error(5)));
        }
        self.record.append(events)
    }

    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError> {
        self.record.compact(plan)
    }

    fn settle(&mut self) -> Result<(), DurableError> {
        self.record.settle()
    }
}

#[tokio::test]
async fn sixty_four_writers_share_a_few_syncs() {
    let dir = TempDir::new().unwrap();
    let (image, log) = sqlite::open(dir.path(), 1_000).unwrap();
    let (gate, open_gate) = Gate::closed(log);
    let batches = Arc::clone(&gate.batches);
    let store = Store::threaded(image, Box::new(gate), Options::default()).unwrap();
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..10 {
                    store.commit(put(pod(&format!("{writer}-{round}")), "x")).await.unwrap();
                }
            })
        })
        .collect();
    // All writers have asked before the first batch may pass; it has taken one of them, or a few.
    tokio::task::yield_now().await;
    drop(open_gate);
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.revision(), Revision(640));
    let batches = batches.load(Ordering::SeqCst);
    assert!(batches <= 160, "640 writes took {batches} syncs");
}

#[tokio::test]
async fn nothing_is_visible_before_it_is_durable() {
    let (gate, open_gate) = Gate::closed(MemoryDisk::default());
    let store = Store::threaded(Image::default(), Box::new(gate), Options::default()).unwrap();
    let mut watch = store.watch(Scope::all(PODS), Start::Now).unwrap();
    let writing = tokio::spawn({
        let store = store.clone();
        async move { store.commit(put(pod("a"), "1")).await }
    });
    tokio::task::yield_now().await;
    assert_eq!((store.get(&pod("a")), store.revision()), (None, Revision(0)));
    assert_eq!(watch.try_next(), Ok(None));
    open_gate.send(()).unwrap();
    writing.await.unwrap().unwrap();
    assert!(store.get(&pod("a")).is_some(), "an acknowledged write is visible");
    assert!(watch.try_next().unwrap().is_some());
    drop(open_gate);
}

#[tokio::test]
async fn of_two_creates_in_one_batch_the_second_loses() {
    let (gate, open_gate) = Gate::closed(MemoryDisk::default());
    let batches = Arc::clone(&gate.batches);
    let store = Store::threaded(Image::default(), Box::new(gate), Options::default()).unwrap();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(Write::put(pod("a"), Expect::Absent, "x")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    drop(open_gate);
    let mut won = 0;
    for writer in writers {
        won += usize::from(writer.await.unwrap().is_ok());
    }
    assert_eq!((won, store.revision()), (1, Revision(1)));
    assert_eq!(batches.load(Ordering::SeqCst), 1, "refusals alone cause no sync");
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_written_and_everything_acknowledged_is_readable() {
    let disk = MemoryDisk::default();
    let gate = Gate { fail_at: 3, ..Gate::open(disk.clone()) };
    let store = Store::inline(Image::default(), Box::new(gate), Options::default());
    store.commit(put(pod("a"), "1")).await.unwrap();
    store.commit(put(pod("b"), "1")).await.unwrap();
    let failed = store.commit(put(pod("c"), "1")).await.unwrap_err();
    let CommitError::Poisoned { reason } = &failed else { panic!("{failed}") };
    assert!(reason.contains("syncing") && reason.contains("os error 5"), "{reason}");
    assert_eq!(store.commit(put(pod("d"), "1")).await.unwrap_err(), failed, "the reason stays");
    assert_eq!(store.tick(UnixMillis(1)).await.unwrap_err(), failed);
    assert_eq!(store.get(&pod("c")), None);
    let before = content(&store);
    drop(store);
    assert_eq!(content(&Store::on_memory(&disk, Options::default())), before);
}

#[tokio::test]
async fn batches_are_bounded_by_count_and_by_bytes() {
    for options in
        [Options { batch_writes: 4, ..Options::default() }, Options { batch_bytes: 4_000, ..Options::default() }]
    {
        let (gate, open_gate) = Gate::closed(MemoryDisk::default());
        let batches = Arc::clone(&gate.batches);
        let store = Store::threaded(Image::default(), Box::new(gate), options).unwrap();
        let writers: Vec<_> = (0..20)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move { store.commit(put(pod(&writer.to_string()), &"x".repeat(1_000))).await })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(open_gate);
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        assert!(batches.load(Ordering::SeqCst) >= 5);
    }
}

#[tokio::test]
async fn writes_that_belong_together_happen_together_or_not_at_all() {
    let store = Store::memory(Options::default());
    store.commit(put(pod("a"), "1")).await.unwrap();
    let stale = Write::put(pod("a"), Expect::At(Revision(9)), "2");
    let twice = vec![put(pod("b"), "1"), put(pod("b"), "2"), stale];
    let refused = store.commit_all(twice).await.unwrap_err();
    assert!(matches!(refused, CommitError::Changed { .. }), "{refused}");
    assert_eq!((store.get(&pod("b")), store.revision()), (None, Revision(1)));
    let current = Write::put(pod("a"), Expect::At(Revision(1)), "2");
    let committed = store.commit_all(vec![current, put(pod("b"), "1")]).await.unwrap();
    let revisions: Vec<Revision> = committed.iter().map(|committed| committed.revision).collect();
    assert_eq!(revisions, [Revision(2), Revision(3)]);
}
