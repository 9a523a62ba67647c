//! The queue on paused time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::stop::Stopper;
use crate::time::SystemClock;

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> Queue<&'static str> {
    queue_and_metrics().0
}

fn queue_and_metrics() -> (Queue<&'static str>, Metrics) {
    let metrics = Metrics::new(&SystemClock);
    (Queue::new("test", Backoff::default(), &metrics, &Entropy::seeded(3)), metrics)
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_worked_on_once() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add("a");
    assert_eq!([queue.take().await, queue.take().await], ["a", "b"]);
    assert!(tokio::time::timeout(SECOND, queue.take()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_added_during_its_work_runs_again_afterwards_and_never_at_once() {
    let queue = queue();
    queue.add("a");
    assert_eq!(queue.take().await, "a");
    queue.add("a");
    assert!(tokio::time::timeout(SECOND, queue.take()).await.is_err());
    queue.finish("a", &Verdict::Done);
    assert_eq!(queue.take().await, "a");
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_an_event_skips_the_wait_but_not_the_count() {
    let queue = queue();
    queue.add("a");
    let mut waits = Vec::new();
    for _ in 0..12 {
        let start = Instant::now();
        let key = queue.take().await;
        waits.push(start.elapsed().as_secs_f64());
        queue.finish(key, &Verdict::Failed("no".into()));
    }
    assert!(waits[1] >= 0.8 && waits[1] <= 1.01, "{waits:?}");
    assert!(waits[4] >= 6.4 && waits[4] <= 8.01, "{waits:?}");
    assert!(waits[11] >= 240.0 && waits[11] <= 300.01, "{waits:?}");
    queue.add("a");
    let start = Instant::now();
    let key = queue.take().await;
    assert_eq!((start.elapsed(), queue.failures(&"a")), (Duration::ZERO, 12));
    queue.finish(key, &Verdict::Done);
    assert_eq!((queue.failures(&"a"), queue.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_sooner_of_two_plans_holds() {
    let queue = queue();
    queue.add_after("a", 10 * SECOND);
    queue.add_after("a", 2 * SECOND);
    queue.add_after("a", 5 * SECOND);
    let start = Instant::now();
    queue.take().await;
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_became_ready_first_comes_first_and_ties_go_by_key() {
    let queue = queue();
    queue.add_after("z", SECOND);
    queue.add_after("b", 2 * SECOND);
    queue.add_after("a", 2 * SECOND);
    tokio::time::advance(3 * SECOND).await;
    queue.add("0");
    assert_eq!([queue.take().await, queue.take().await, queue.take().await, queue.take().await], ["z", "a", "b", "0"]);
}

#[tokio::test(start_paused = true)]
async fn the_runner_bounds_concurrency_and_drains_when_stopped() {
    let queue = Queue::new("n", Backoff::default(), &Metrics::new(&SystemClock), &Entropy::seeded(1));
    for number in 0..10 {
        queue.add(number);
    }
    let (stopper, stop) = Stopper::new();
    let (running, most, ended) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let handler = async |_| {
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(SECOND).await;
        running.fetch_sub(1, Ordering::SeqCst);
        ended.fetch_add(1, Ordering::SeqCst);
        Verdict::Done
    };
    let stopping = async {
        tokio::time::sleep(SECOND + SECOND / 2).await;
        stopper.stop();
    };
    tokio::join!(run(&queue, 3, &stop, handler), stopping);
    assert_eq!((most.into_inner(), ended.into_inner(), queue.len()), (3, 6, 4));
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_one_key_and_dropping_the_runner_gives_keys_back() {
    let queue = queue();
    queue.add("bad");
    queue.add("good");
    let seen = RefCell::new(Vec::new());
    let handler = async |key| {
        seen.borrow_mut().push(key);
        if key == "bad" {
            panic!("on purpose");
        }
        std::future::pending().await
    };
    let never = Stop::never();
    assert!(tokio::time::timeout(SECOND / 2, run(&queue, 2, &never, handler)).await.is_err());
    assert_eq!(*seen.borrow(), ["bad", "good"]);
    assert_eq!(queue.failures(&"bad"), 1);
    assert_eq!(queue.take().await, "good");
}

#[tokio::test(start_paused = true)]
async fn metrics_have_upstreams_names() {
    let (queue, metrics) = queue_and_metrics();
    queue.add("a");
    queue.add("b");
    queue.take().await;
    tokio::time::advance(2 * SECOND).await;
    let text = metrics.encode();
    for line in [
        r#"workqueue_depth{name="test"} 1"#,
        r#"workqueue_adds_total{name="test"} 2"#,
        r#"workqueue_longest_running_processor_seconds{name="test"} 2.0"#,
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_no_clock_can_count_is_a_long_one() {
    let queue = queue();
    queue.add_after("a", Duration::MAX);
    queue.add("b");
    assert_eq!(queue.take().await, "b");
    queue.finish("b", &Verdict::Again(Duration::MAX));
    assert!(queue.planned(&"a").is_some() && queue.planned(&"b").is_some());
}

/// How often a handler runs in an hour while somebody adds its key all the time.
async fn runs_in_an_hour(verdict: Verdict) -> usize {
    let queue = queue();
    let runs = AtomicUsize::new(0);
    queue.add("a");
    let handler = async |_| {
        runs.fetch_add(1, Ordering::SeqCst);
        verdict.clone()
    };
    let adding = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            queue.add("a");
        }
    };
    let never = Stop::never();
    let work = async { tokio::join!(run(&queue, 1, &never, handler), adding) };
    assert!(tokio::time::timeout(3600 * SECOND, work).await.is_err());
    runs.into_inner()
}

#[tokio::test(start_paused = true)]
async fn events_do_not_hurry_a_failing_key_for_ever() {
    let runs = runs_in_an_hour(Verdict::Failed("no".to_owned())).await;
    // One event in 15 seconds after the first few.
    assert!((100..300).contains(&runs), "{runs} runs in an hour");
}

#[tokio::test(start_paused = true)]
async fn work_that_never_settles_waits_like_work_that_fails() {
    let queue = queue();
    let runs = AtomicUsize::new(0);
    queue.add("a");
    let handler = async |_| {
        runs.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        Verdict::Again(Duration::ZERO)
    };
    let never = Stop::never();
    assert!(tokio::time::timeout(3600 * SECOND, run(&queue, 1, &never, handler)).await.is_err());
    assert!((20..60).contains(&runs.into_inner()), "eight at once, then with growing pauses");
}
