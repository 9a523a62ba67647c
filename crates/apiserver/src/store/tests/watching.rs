//! Watches, waiting, expiry and the end of history.

use super::*;

fn drain(watch: &mut Watch) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        let what = match &event.change {
            Change::Created { .. } => "created",
            Change::Updated { .. } => "updated",
            Change::Deleted { .. } => "deleted",
        };
        seen.push((event.revision.0, format!("{what} {}", event.key.path())));
    }
    seen
}

#[tokio::test]
async fn a_watch_sees_each_write_of_its_scope_once_with_both_versions() {
    let store = Store::memory(Options::default());
    store.commit(put(pod("early"), "0")).await.unwrap();
    let mut all = store.watch(Scope::all(PODS), Start::Now).unwrap();
    let mut default = store.watch(Scope::namespace(PODS, "default"), Start::After(Revision(0))).unwrap();
    store.commit(put(pod("a"), "1")).await.unwrap();
    store.commit(put(key(PODS, "other", "a"), "1")).await.unwrap();
    store.commit(put(key(NODES, "default", "a"), "1")).await.unwrap();
    store.commit(put(pod("a"), "2")).await.unwrap();
    store.commit(Write::delete(pod("a"), Expect::Anything)).await.unwrap();

    let last = |seen: &[(u64, String)]| seen.last().cloned().unwrap();
    let seen = drain(&mut all);
    assert_eq!(seen.iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), [2, 3, 5, 6]);
    assert_eq!(last(&seen), (6, "deleted default/a".to_owned()));
    let seen = drain(&mut default);
    assert_eq!(seen.iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), [1, 2, 5, 6]);

    let mut again = store.watch(Scope::all(PODS), Start::After(Revision(4))).unwrap();
    let event = again.next().await.unwrap();
    assert_eq!(event.old_version().unwrap().value, "1");
    assert_eq!(event.new_version().unwrap().value, "2");
}

#[tokio::test]
async fn a_bookmark_follows_the_whole_store_but_never_overtakes_an_event() {
    let store = Store::memory(Options::default());
    let mut watch = store.watch(Scope::all(PODS), Start::Now).unwrap();
    store.commit(put(key(NODES, "x", "n"), "1")).await.unwrap();
    assert_eq!(watch.progress().unwrap(), Revision(1));
    store.commit(put(pod("a"), "1")).await.unwrap();
    store.commit(put(key(NODES, "x", "n"), "2")).await.unwrap();
    assert_eq!(watch.progress().unwrap(), Revision(1), "revision 2 has not been handed out");
    watch.next().await.unwrap();
    assert_eq!(watch.progress().unwrap(), Revision(3));
}

#[tokio::test]
async fn a_watch_from_the_future_is_silent_until_it_is_passed() {
    let store = Store::memory(Options::default());
    let mut watch = store.watch(Scope::all(PODS), Start::After(Revision(2))).unwrap();
    for value in ["1", "2", "3"] {
        store.commit(put(pod("a"), value)).await.unwrap();
    }
    assert_eq!(drain(&mut watch), [(3, "updated default/a".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn waiting_watchers_are_woken_and_dropped_waits_lose_nothing() {
    let store = Store::memory(Options::default());
    let mut watch = store.watch(Scope::all(PODS), Start::Now).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(1), watch.next()).await.is_err());
    let waiting = tokio::spawn(async move { watch.next().await.unwrap().revision });
    tokio::task::yield_now().await;
    store.commit(put(pod("a"), "1")).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Revision(1));
}

#[tokio::test]
async fn a_watch_delivers_what_is_left_before_it_says_that_the_store_closed() {
    let store = Store::memory(Options::default());
    let mut watch = store.watch(Scope::all(PODS), Start::Now).unwrap();
    store.commit(put(pod("a"), "1")).await.unwrap();
    drop(store);
    assert!(watch.next().await.is_ok());
    assert_eq!(watch.next().await.unwrap_err(), WatchEnd::Closed);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_revision_ends_when_it_comes_or_when_time_is_up() {
    let store = Store::memory(Options::default());
    let late = store.wait_for(Revision(1), Duration::from_secs(3)).await;
    assert_eq!(late, Err(NotReached { requested: Revision(1), current: Revision(0) }));
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_for(Revision(2), Duration::from_secs(3)).await }
    });
    tokio::task::yield_now().await;
    store.commit(put(pod("a"), "1")).await.unwrap();
    store.commit(put(pod("a"), "2")).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(Revision(2)));
}

#[tokio::test]
async fn a_slow_watcher_is_cut_and_never_holds_more_than_a_few_events() {
    let store = Store::memory(small_history());
    let mut slow = store.watch(Scope::all(PODS), Start::Now).unwrap();
    let mut quiet = store.watch(Scope::all(NODES), Start::Now).unwrap();
    for round in 0..200 {
        store.commit(put(pod("a"), &round.to_string())).await.unwrap();
    }
    store.tick(UnixMillis(0)).await.unwrap();
    assert_eq!(slow.next().await.unwrap_err(), WatchEnd::Lagged { oldest: Revision(180) });
    assert_eq!(quiet.try_next(), Ok(None), "a watcher of another resource is not touched");
    let old = store.watch(Scope::all(PODS), Start::After(Revision(179))).unwrap_err();
    assert_eq!(old, TooOld { requested: Revision(179), oldest: Revision(180) });
    let mut exact = store.watch(Scope::all(PODS), Start::After(Revision(180))).unwrap();
    assert_eq!(exact.next().await.unwrap().revision, Revision(181));
}

#[tokio::test]
async fn history_is_kept_for_its_time_and_then_down_to_its_number() {
    let store = Store::memory(small_history());
    for round in 0..10 {
        store.commit(put(pod("a"), &round.to_string())).await.unwrap();
    }
    assert_eq!(store.tick(UnixMillis(5_000)).await.unwrap().forgotten_rows, 0);
    assert_eq!(store.tick(UnixMillis(5_999)).await.unwrap().forgotten_rows, 0);
    assert_eq!(store.tick(UnixMillis(6_000)).await.unwrap().forgotten_rows, 6);
    let scope = Scope::all(PODS);
    assert!(store.list(&List::at(&scope, At::Exact(Revision(7)))).is_ok());
    let gone = store.list(&List::at(&scope, At::Exact(Revision(6)))).unwrap_err();
    assert_eq!(gone, TooOld { requested: Revision(6), oldest: Revision(7) }.into());
    let future = store.list(&List::at(&scope, At::Exact(Revision(11)))).unwrap_err();
    assert_eq!(future, ReadError::Future { requested: Revision(11), current: Revision(10) });
}

#[tokio::test]
async fn a_clock_that_is_set_back_keeps_history_longer() {
    let store = Store::memory(small_history());
    for round in 0..10 {
        store.commit(put(pod("a"), &round.to_string())).await.unwrap();
    }
    for (now, forgotten) in [(900_000, 0), (5_000, 0), (5_999, 0), (6_000, 6)] {
        assert_eq!(store.tick(UnixMillis(now)).await.unwrap().forgotten_rows, forgotten, "at {now}");
    }
}

#[tokio::test]
async fn an_expired_object_is_deleted_by_a_tick_as_a_revision_of_its_own() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    store.commit(put(pod("event"), "1").expiring(UnixMillis(3_600_000))).await.unwrap();
    store.commit(put(pod("renewed"), "1").expiring(UnixMillis(3_600_000))).await.unwrap();
    store.commit(put(pod("renewed"), "2")).await.unwrap();
    drop(store);

    let store = open(dir.path());
    let mut watch = store.watch(Scope::all(PODS), Start::Now).unwrap();
    assert_eq!(store.tick(UnixMillis(3_599_999)).await.unwrap().expired, 0);
    assert_eq!(store.tick(UnixMillis(3_600_000)).await.unwrap().expired, 1);
    assert_eq!(drain(&mut watch), [(4, "deleted default/event".to_owned())]);
    assert_eq!(store.get(&pod("event")), None);
    assert!(store.get(&pod("renewed")).is_some());
    assert_eq!(store.tick(UnixMillis(u64::MAX)).await.unwrap().expired, 0);
}
