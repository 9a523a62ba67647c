//! A record whose disk is full: which writes it gets, and what becomes of the others.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A record in memory on a disk that a test fills and empties.
#[derive(Debug)]
struct SmallDisk {
    record: MemoryDisk,
    is_low: Arc<AtomicBool>,
    /// Nothing can be written at all.
    is_full: Arc<AtomicBool>,
}

impl SmallDisk {
    fn refusal(&self) -> Result<(), DurableError> {
        match self.is_full.load(Ordering::SeqCst) {
            true => {
                let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
                Err(DurableError::doing("writing")(error).for_want_of_space())
            }
            false => Ok(()),
        }
    }
}

impl Durable for SmallDisk {
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError> {
        self.refusal()?;
        self.record.append(events)
    }

    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError> {
        self.refusal()?;
        self.record.compact(plan)
    }

    fn settle(&mut self) -> Result<(), DurableError> {
        self.refusal()
    }

    fn space(&mut self) -> StoreSpace {
        if self.is_low.load(Ordering::SeqCst) { StoreSpace::Low { free: 7 } } else { StoreSpace::Enough }
    }
}

fn store() -> (Store, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (is_low, is_full) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let disk = SmallDisk { record: MemoryDisk::default(), is_low: Arc::clone(&is_low), is_full: Arc::clone(&is_full) };
    (Store::inline(MemoryDisk::default().image(), Box::new(disk), small_history()), is_low, is_full)
}

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[tokio::test]
async fn while_space_is_short_only_what_needs_next_to_none_is_written() {
    let (store, is_low, _) = store();
    let lease = || key("leases", "default", "l");
    store.commit(put(pod("a"), &text(10_000))).await.unwrap();
    store.commit(put(lease(), &text(300))).await.unwrap();
    is_low.store(true, Ordering::SeqCst);
    let no_space = Err(CommitError::NoSpace { free: 7 });
    let revision = store.revision();
    let cases = [
        ("a new object", put(pod("b"), "x"), false),
        ("an update that grows", put(pod("a"), &text(12_000)), false),
        ("an update of equal size", put(pod("a"), &text(10_000)), true),
        ("a mark of deletion", put(pod("a"), &text(10_100)), true),
        ("a lease that is renewed", put(lease(), &text(400)), true),
        ("a lease that is abused", put(lease(), &text(100_000)), false),
        ("a new lease", put(key("leases", "default", "m"), "x"), false),
        ("a delete", Write::delete(pod("a"), Expect::Present), true),
    ];
    let mut accepted = 0;
    for (case, write, is_accepted) in cases {
        let outcome = store.commit(write).await;
        accepted += u64::from(is_accepted);
        match is_accepted {
            true => assert!(outcome.is_ok(), "{case}: {outcome:?}"),
            false => assert_eq!(outcome.map(drop), no_space, "{case}"),
        }
    }
    assert_eq!(store.revision(), Revision(revision.0 + accepted), "a refusal takes no revision");
    is_low.store(false, Ordering::SeqCst);
    store.commit(put(pod("b"), &text(10_000))).await.unwrap();
}

#[tokio::test]
async fn updates_that_grow_a_little_are_let_through_up_to_a_sum() {
    let (store, is_low, _) = store();
    store.commit(put(pod("a"), "")).await.unwrap();
    is_low.store(true, Ordering::SeqCst);
    let mut size = 0;
    while store.commit(put(pod("a"), &text(size + 1_000))).await.is_ok() {
        size += 1_000;
        assert!(size < 2 << 20, "there is a limit for all of them together");
    }
    assert!(size > 1 << 19, "{size}");
    store.commit(Write::delete(pod("a"), Expect::Present)).await.unwrap();
}

#[tokio::test]
async fn a_disk_without_a_free_block_refuses_everything_and_stops_nothing() {
    let (store, _, is_full) = store();
    store.commit(put(pod("a"), "1")).await.unwrap();
    is_full.store(true, Ordering::SeqCst);
    assert_eq!(store.commit(put(pod("a"), "2")).await, Err(CommitError::NoSpace { free: 0 }));
    store.tick(NOW).await.expect("upkeep is done later");
    assert_eq!(store.stopped(), None);
    assert_eq!(store.get(&pod("a")).unwrap().value, "1".as_bytes(), "nobody sees a write that was refused");
    is_full.store(false, Ordering::SeqCst);
    assert_eq!(store.commit(put(pod("a"), "3")).await.unwrap().revision, Revision(2), "its revision was not used");
}

/// A record that has room for a few bytes in each batch.
#[derive(Debug, Default)]
struct NarrowDisk(MemoryDisk);

impl Durable for NarrowDisk {
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError> {
        let bytes: usize = events.iter().filter_map(|event| event.new_version()).map(|new| new.value.len()).sum();
        if bytes > 1_000 {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(DurableError::doing("writing")(error).for_want_of_space());
        }
        self.0.append(events)
    }

    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError> {
        self.0.compact(plan)
    }

    fn settle(&mut self) -> Result<(), DurableError> {
        Ok(())
    }
}

#[test]
fn a_small_write_is_not_refused_because_a_large_one_came_with_it() {
    use crate::store::{index::Index, watch::View, writer::Writer};
    let view = Arc::new(View::new(Index::load(MemoryDisk::default().image())));
    let mut writer = Writer::new(view, Box::new(NarrowDisk::default()), small_history().history);
    let outcomes = writer.commit(vec![
        vec![put(pod("a"), "x")],
        vec![put(pod("b"), &text(2_000))],
        vec![put(key("leases", "default", "l"), "x")],
    ]);
    let codes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.map(drop)).collect();
    assert_eq!(codes, [Ok(()), Err(CommitError::NoSpace { free: 0 }), Ok(())]);
}
