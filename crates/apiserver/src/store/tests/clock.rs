//! A clock that jumps by hours, in both directions.
//!
//! Stated behaviour: a jump never loses an object that has no expiry, never breaks a watch that keeps up, and never uses a
//! revision twice. Objects with an expiry go by the clock. A jump ahead lets history count as old, but `min_events` of each
//! resource stay; a jump back keeps history for longer.

use super::*;

const HOUR: u64 = 60 * 60 * 1000;

#[tokio::test]
async fn jumps_of_hours_cost_only_what_expires() {
    let store = Store::memory(small_history());
    let mut watch = store.watch(Scope::all(PODS), Start::Now).unwrap();
    let at = |hours: i64| UnixMillis(NOW.0.saturating_add_signed(hours * HOUR as i64));
    store.commit(put(pod("event"), "e").expiring(at(1))).await.unwrap();
    let mut last = watch.next().await.expect("the watch goes on").revision;
    for (number, hours) in [0_i64, 6, -6, 12, 0, -12, 1].into_iter().enumerate() {
        let written = store.commit(put(pod("steady"), &number.to_string())).await.unwrap().revision;
        assert!(written > last, "{written} comes after {last}");
        last = watch.next().await.expect("a watch that keeps up goes on").revision;
        assert_eq!(last, written);
        if store.tick(at(hours)).await.unwrap().expired > 0 {
            last = watch.next().await.expect("a watch that keeps up goes on").revision;
        }
        assert_eq!(store.get(&pod("steady")).unwrap().value, number.to_string().as_bytes());
        assert_eq!(store.get(&pod("event")).is_some(), number == 0, "it goes when the clock first passes its time");
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_keeps_history_for_longer_and_never_shorter() {
    let store = Store::memory(small_history());
    store.tick(UnixMillis(NOW.0 + 6 * HOUR)).await.unwrap();
    let mut first = None;
    for number in 0..10 {
        let committed = store.commit(put(pod("a"), &number.to_string())).await.unwrap();
        first.get_or_insert(committed.revision);
    }
    for seconds in 0..2 {
        assert_eq!(store.tick(UnixMillis(NOW.0 + seconds * 500)).await.unwrap().forgotten_rows, 0);
    }
    assert!(store.watch(Scope::all(PODS), Start::After(first.unwrap())).is_ok());
    assert!(store.tick(UnixMillis(NOW.0 + 2_000)).await.unwrap().forgotten_rows > 0, "by the new time it is old");
}
