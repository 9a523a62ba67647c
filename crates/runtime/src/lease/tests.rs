//! Election against a server that loses answers (SIDECAR-1.4, SIDECAR-X3 and SIDECAR-X4, SIDECAR-13.38, SIDECAR-13.39).

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};

use super::*;
use crate::fake::{Fake, Fault, eventually};
use crate::time::{SuspendableClock, VirtualClock};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/lock";
const SECOND: Duration = Duration::from_secs(1);

/// What electors did, with the second in which they did it.
#[derive(Clone, Default)]
struct Notes(Rc<RefCell<Vec<(u64, String)>>>);

impl Notes {
    fn note(&self, start: Instant, text: String) {
        self.0.borrow_mut().push((start.elapsed().as_secs(), text));
    }

    fn texts(&self) -> Vec<String> {
        self.0.borrow().iter().map(|(_, text)| text.clone()).collect()
    }

    fn when(&self, text: &str) -> u64 {
        self.0.borrow().iter().find(|(_, noted)| noted == text).unwrap_or_else(|| panic!("{text}: {:?}", self.0)).0
    }
}

fn elector(fake: &Fake, identity: &str) -> Elector {
    let clock = Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00.5Z".parse().unwrap()));
    elector_on(fake, identity, clock, identity.len() as u64)
}

fn elector_on(fake: &Fake, identity: &str, clock: Arc<dyn Clock>, seed: u64) -> Elector {
    let metrics = Metrics::new(&*clock);
    let options = Options::new("n", "lock", identity);
    let client = fake.client();
    Elector::new(&client, clock, &Entropy::seeded(seed), &metrics, options).unwrap()
}

/// Work that notes when it starts and ends, and takes `drain` to end.
fn work(notes: &Notes, name: &'static str, start: Instant, drain: Duration) -> impl FnMut(Epoch) -> Working {
    let notes = notes.clone();
    move |epoch| {
        let notes = notes.clone();
        Box::pin(async move {
            notes.note(start, format!("{name} leads {}", epoch.number));
            epoch.stop.stopped().await;
            notes.note(start, format!("{name} is told to stop"));
            sleep(drain).await;
            notes.note(start, format!("{name} has ended"));
        })
    }
}

type Working = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn holder(fake: &Fake) -> Value {
    fake.at(PATH).map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
}

/// Rule: SIDECAR-1.4
#[tokio::test(start_paused = true)]
async fn the_record_is_client_gos() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        sleep(7 * SECOND).await;
        let spec = fake.at(PATH).unwrap()["spec"].clone();
        assert_eq!(spec["holderIdentity"], "me");
        assert_eq!(spec["leaseDurationSeconds"], 15);
        assert_eq!(spec["leaseTransitions"], 0);
        assert_eq!(spec["acquireTime"], "2026-01-01T00:00:00.500000Z");
        assert_eq!(spec["renewTime"], "2026-01-01T00:00:05.500000Z");
        stopper.stop();
    };
    tokio::join!(elector(&fake, "me").run(&stop, work(&notes, "me", start, SECOND)), playing);
    let spec = fake.at(PATH).unwrap()["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!(notes.texts(), ["me leads 0", "me is told to stop", "me has ended"]);
    // Reading, making and two renewals; a renewal is one request.
    assert_eq!(fake.log().iter().filter(|asked| asked.starts_with("GET")).count(), 1);
}

/// Rules: SIDECAR-1.4, SIDECAR-13.39
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_the_next_look_and_a_dead_leaders_after_its_time() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let first = elector(&fake, "one");
    let second = elector(&fake, "second");
    let never = Stop::never();
    let dying = tokio::time::timeout(12 * SECOND, first.run(&never, work(&notes, "one", start, SECOND)));
    let following = async {
        sleep(SECOND).await;
        second.run(&stop, work(&notes, "second", start, SECOND)).await;
    };
    let playing = async {
        let _ = dying.await;
        eventually("the second leads", || holder(&fake) == "second").await;
        stopper.stop();
    };
    tokio::join!(following, playing);
    // The last renewal was at 10 s; the lease lasts 15 s from when it was seen, and looks are up to 11 s apart.
    let taken = notes.when("second leads 1");
    assert!((25..=25 + 22).contains(&taken), "{taken}");
}

/// Rules: SIDECAR-X4, SIDECAR-14.5.26
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_others_may_start_and_applies_again() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        sleep(6 * SECOND).await;
        // The last good renewal was sent at 5 s.
        for _ in 0..9 {
            fake.fault("PUT", Fault::LostBefore);
        }
        sleep(60 * SECOND).await;
        stopper.stop();
    };
    let slow = work(&notes, "me", start, 60 * SECOND);
    tokio::join!(elector(&fake, "me").run(&stop, slow), playing);
    assert_eq!(notes.when("me is told to stop"), 15);
    // The first work would have ended at 75 s; it was dropped at 20 s, when the lease was over.
    let again = notes.0.borrow().iter().filter(|(_, text)| text.starts_with("me leads")).nth(1).map(|(at, _)| *at);
    assert!(again.is_some_and(|at| at > 20), "{:?}", notes.0);
    assert!(!notes.texts().contains(&"me has ended".to_owned()), "{:?}", notes.0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_is_a_renewal() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        sleep(4 * SECOND).await;
        fake.fault("PUT", Fault::LostAfter);
        sleep(30 * SECOND).await;
        assert_eq!(notes.texts(), ["me leads 0"]);
        stopper.stop();
    };
    tokio::join!(elector(&fake, "me").run(&stop, work(&notes, "me", start, SECOND)), playing);
}

/// Rule: SIDECAR-X4
#[tokio::test(start_paused = true)]
async fn another_holder_ends_our_work_at_once() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        sleep(2 * SECOND).await;
        let key = Key::namespaced("n", "lock");
        let mut lease: Value = fake.client().get(Kind::LEASE, &key).await.unwrap();
        lease["spec"]["holderIdentity"] = "thief".into();
        fake.client().replace::<Value>(Kind::LEASE, &key, &lease).await.unwrap();
        sleep(5 * SECOND).await;
        stopper.stop();
    };
    tokio::join!(elector(&fake, "me").run(&stop, work(&notes, "me", start, 60 * SECOND)), playing);
    assert_eq!((notes.texts(), holder(&fake)), (vec!["me leads 0".to_owned()], json!("thief")));
}

/// Rules: SIDECAR-X3, SIDECAR-13.39
#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_while_work_drains_and_given_back_afterwards() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        sleep(2 * SECOND).await;
        stopper.stop();
        sleep(17 * SECOND).await;
        assert_eq!(holder(&fake), "me");
    };
    tokio::join!(elector(&fake, "me").run(&stop, work(&notes, "me", start, 18 * SECOND)), playing);
    assert_eq!((notes.when("me has ended"), holder(&fake)), (20, json!("")));
}

/// Rule: SIDECAR-1.4
#[test]
fn names_are_sanitised_as_the_sidecars_do() {
    for (name, want) in [("ebs.csi.aws.com", "ebs-csi-aws-com"), ("a/b_c", "a-b-c"), ("x.", "x-X"), ("", "")] {
        assert_eq!(sanitise(name), want);
    }
}

/// Rule: SIDECAR-1.1
#[test]
fn durations_that_cannot_work_are_refused() {
    let options = || Options::new("n", "l", "i");
    assert!(options().check().is_ok());
    assert!(Options { lease_duration: 10 * SECOND, ..options() }.check().is_err());
    assert!(Options { retry_period: 9 * SECOND, ..options() }.check().is_err());
    assert!(Options { retry_period: Duration::ZERO, ..options() }.check().is_err());
    assert!(Options { lease_duration: Duration::from_millis(15500), ..options() }.check().is_err());
}

/// Writes a renewal in the holder's name, as a copy of its machine does.
async fn renew_as_a_copy(fake: &Fake, second: u64) {
    let key = Key::namespaced("n", "lock");
    let mut lease: Value = fake.client().get(Kind::LEASE, &key).await.unwrap();
    lease["spec"]["renewTime"] = format!("2026-01-01T00:01:{second:02}.000000Z").into();
    lease["metadata"]["annotations"]["orlop.dev/renewal"] = format!("copy-{second}").into();
    fake.client().replace::<Value>(Kind::LEASE, &key, &lease).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_this_machine_that_renews_our_lease_ends_our_work() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        for second in 0..20 {
            sleep(3 * SECOND).await;
            renew_as_a_copy(&fake, second).await;
        }
        assert_eq!(notes.texts(), ["me leads 0"], "its work was dropped and it leads no more");
        // The copy ends, and the lease with it.
        sleep(40 * SECOND).await;
        stopper.stop();
    };
    tokio::join!(elector(&fake, "me").run(&stop, work(&notes, "me", start, SECOND)), playing);
    assert!(notes.when("me leads 1") >= 60 + 15, "{:?}", notes.0);
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_identity_do_not_lead_together() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let clock = || Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00.5Z".parse().unwrap()));
    let one = elector_on(&fake, "same", clock(), 1);
    let two = elector_on(&fake, "same", clock(), 2);
    let later = async {
        sleep(SECOND).await;
        two.run(&stop, work(&notes, "two", start, SECOND)).await;
    };
    let playing = async {
        sleep(120 * SECOND).await;
        assert_eq!(notes.texts(), ["one leads 0"]);
        stopper.stop();
    };
    tokio::join!(one.run(&stop, work(&notes, "one", start, SECOND)), later, playing);
}

#[tokio::test(start_paused = true)]
async fn a_label_that_an_operator_puts_on_the_lease_ends_nothing() {
    let (fake, notes, start) = (Fake::new(), Notes::default(), Instant::now());
    let (stopper, stop) = Stopper::new();
    let playing = async {
        sleep(2 * SECOND).await;
        let key = Key::namespaced("n", "lock");
        let mut lease: Value = fake.client().get(Kind::LEASE, &key).await.unwrap();
        lease["metadata"]["labels"] = json!({"team": "storage"});
        fake.client().replace::<Value>(Kind::LEASE, &key, &lease).await.unwrap();
        sleep(60 * SECOND).await;
        assert_eq!(notes.texts(), ["me leads 0"]);
        stopper.stop();
    };
    tokio::join!(elector(&fake, "me").run(&stop, work(&notes, "me", start, SECOND)), playing);
}

/// Rule: SIDECAR-X4
#[tokio::test(start_paused = true)]
async fn work_is_not_polled_after_a_suspend_that_outlasted_the_lease() {
    let fake = Fake::new();
    let (stopper, stop) = Stopper::new();
    let clock = Arc::new(SuspendableClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
    // Which time of leading acted, and whether that was after the machine woke up.
    let (acted, woken) = (RefCell::new(Vec::new()), RefCell::new(false));
    let (acting, waking, inner, mut times) = (&acted, &woken, clock.clone(), 0);
    let work = move |epoch: Epoch| {
        times += 1;
        let (time, acting, waking, clock) = (times, acting, waking, inner.clone());
        async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                acting.borrow_mut().push((time, *waking.borrow()));
                if time == 1 && acting.borrow().len() == 20 {
                    // The machine sleeps for an hour right here; this task is the first that runs afterwards.
                    clock.suspend(3600 * SECOND);
                    waking.replace(true);
                    assert!(epoch.stop.is_stopped(), "whoever asks before acting is told");
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    let playing = async {
        sleep(60 * SECOND).await;
        stopper.stop();
    };
    tokio::join!(elector_on(&fake, "me", clock, 1).run(&stop, work), playing);
    let acted = acted.into_inner();
    assert_eq!(acted.iter().filter(|(time, woken)| *time == 1 && *woken).count(), 0);
    assert!(acted.contains(&(2, true)), "it leads again later");
}
