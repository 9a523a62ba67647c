//! Machines that share a node's name: clones, copies of running machines, restarts, and machines that were suspended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Key, Kind};
use futures_util::future::join;
use lifecycle::registration::lease::{
    ANOTHER_MACHINE, ANOTHER_MACHINE_EVENT, AgentHistory, AgentIdentity, OwnRenewals, Predecessor, Proof,
};
use node::registry::Readiness;
use node::registry::machine::{LeaseMemory, Machine, Options};
use runtime::time::SuspendableClock;
use runtime::watch;
use runtime::{Context, Stop};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::machine::{identity, lease};
use crate::stage::{NODE, Stage, Start, play};

const SECOND: Duration = Duration::from_secs(1);

/// What agents did, and when.
#[derive(Clone)]
struct Acts(Arc<Mutex<Vec<(&'static str, Instant)>>>, Arc<Mutex<Vec<String>>>);

impl Acts {
    fn new() -> Self {
        Self(Arc::default(), Arc::default())
    }

    fn note(&self, who: &'static str) {
        self.0.lock().expect("no test thread panicked").push((who, Instant::now()));
    }

    /// How often an agent acted after a moment.
    fn since(&self, who: &str, moment: Instant) -> usize {
        let all = self.0.lock().expect("no test thread panicked");
        all.iter().filter(|(actor, at)| *actor == who && *at >= moment).count()
    }

    fn first(&self, who: &str) -> Option<Instant> {
        let all = self.0.lock().expect("no test thread panicked");
        all.iter().find(|(actor, _)| *actor == who).map(|(_, at)| *at)
    }

    fn refusals(&self) -> Vec<String> {
        self.1.lock().expect("no test thread panicked").clone()
    }
}

/// An agent: it keeps the node, and acts ten times a second while it may.
async fn agent(context: Context, who: &'static str, options: Options, acts: Acts) {
    let (_ready, readiness) = watch::channel(Readiness::Initialised);
    let machine = Machine::new(&context, options, readiness);
    let stop = Stop::never();
    let keeping = async {
        if let Err(refused) = machine.run(&stop).await {
            acts.1.lock().expect("no test thread panicked").push(refused.to_string());
        }
    };
    let acting = machine.while_held(&stop, async {
        loop {
            acts.note(who);
            sleep(SECOND / 10).await;
        }
    });
    join(keeping, acting).await;
}

fn options(identity: AgentIdentity) -> Options {
    Options::new(NODE, identity)
}

/// A disk that outlives the processes of an agent. The lock on it is free whenever the next one starts.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Option<OwnRenewals>>>);

impl LeaseMemory for Disk {
    fn predecessor(&self) -> Option<Predecessor> {
        let renewals = self.0.lock().expect("no test thread panicked").clone()?;
        Some(Predecessor { renewals, proof: Proof::LockOfThisBoot })
    }

    fn history(&self) -> AgentHistory {
        match self.0.lock().expect("no test thread panicked").is_some() {
            true => AgentHistory::WorkedBefore,
            false => AgentHistory::FirstStart,
        }
    }

    fn store(&self, renewals: &OwnRenewals) {
        *self.0.lock().expect("no test thread panicked") = Some(renewals.clone());
    }
}

/// One machine, and after `later` a clone of it.
fn clones(acts: &Acts, later: Duration) -> Start {
    let acts = acts.clone();
    Arc::new(move |context, _| {
        let (acts, twin) = (acts.clone(), context.clone());
        Box::pin(async move {
            let one = agent(context, "one", options(identity("boot-1")), acts.clone());
            let two = async {
                sleep(later).await;
                agent(twin, "two", options(identity("boot-2")), acts.clone()).await;
            };
            join(Box::pin(one), Box::pin(two)).await;
        })
    })
}

async fn node_events(stage: &Stage) -> Vec<String> {
    let events = stage.user.list(Kind::EVENT).await;
    let told = events.iter().filter(|event| event["reason"] == ANOTHER_MACHINE_EVENT);
    told.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_clone_of_a_machine_that_runs_does_nothing_and_says_why() {
    let acts = Acts::new();
    play(&clones(&acts, 65 * SECOND), async |stage: &Stage| {
        let began = Instant::now();
        sleep(200 * SECOND).await;
        assert!(acts.since("one", began + 190 * SECOND) > 0, "the machine that was there goes on");
        assert_eq!(acts.first("two"), None);
        let [told] = &acts.refusals()[..] else { panic!("{:?}", acts.refusals()) };
        assert!(told.starts_with(ANOTHER_MACHINE) && told.contains("orlop/host-a_machine-1_boot-1_"), "{told}");
        let events = node_events(stage).await;
        assert!(events.len() == 1 && events[0].starts_with(ANOTHER_MACHINE), "{events:?}");
    });
}

/// The disk of a clone: an agent has worked on it, and its renewals are no help to another boot.
#[derive(Debug)]
struct CopiedDisk;

impl LeaseMemory for CopiedDisk {
    fn predecessor(&self) -> Option<Predecessor> {
        None
    }

    fn history(&self) -> AgentHistory {
        AgentHistory::WorkedBefore
    }

    fn store(&self, _renewals: &OwnRenewals) {}
}

/// The lease goes with the Node object, while the machine that holds it goes on.
#[test]
fn a_clone_that_starts_while_the_node_object_is_deleted_does_not_take_the_lease() {
    let acts = Acts::new();
    let start: Start = {
        let acts = acts.clone();
        Arc::new(move |context, _| {
            let (acts, twin) = (acts.clone(), context.clone());
            Box::pin(async move {
                let one = agent(context, "one", options(identity("boot-1")), acts.clone());
                let two = async {
                    sleep(61 * SECOND).await;
                    let copied = Options { memory: Arc::new(CopiedDisk), ..options(identity("boot-2")) };
                    agent(twin, "two", copied, acts.clone()).await;
                };
                join(Box::pin(one), Box::pin(two)).await;
            })
        })
    };
    play(&start, async |stage: &Stage| {
        let began = Instant::now();
        sleep(60 * SECOND).await;
        stage.user.delete::<api::Node>(&Key::cluster(NODE)).await;
        sleep(5 * SECOND).await;
        stage.user.create(Kind::NODE, json!({"metadata": {"name": NODE}})).await;
        sleep(200 * SECOND).await;
        assert_eq!(acts.first("two"), None);
        assert!(acts.since("one", began + 250 * SECOND) > 0, "the machine that was there goes on");
        assert_eq!(acts.refusals().len(), 1, "{:?}", acts.refusals());
    });
}

#[test]
fn of_two_clones_that_start_together_one_acts() {
    let acts = Acts::new();
    play(&clones(&acts, Duration::ZERO), async |_: &Stage| {
        let began = Instant::now();
        sleep(200 * SECOND).await;
        let acted = [acts.since("one", began), acts.since("two", began)];
        assert!(acted.iter().filter(|count| **count > 0).count() == 1, "{acted:?}");
        assert!(acts.refusals().len() == 1 && acts.refusals()[0].starts_with(ANOTHER_MACHINE), "{:?}", acts.refusals());
    });
}

fn alone(acts: &Acts) -> Start {
    let acts = acts.clone();
    Arc::new(move |context, _| Box::pin(agent(context, "one", options(identity("boot-1")), acts.clone())))
}

#[test]
fn a_copy_of_the_running_machine_that_renews_in_its_name_stops_it() {
    let acts = Acts::new();
    play(&alone(&acts), async |stage: &Stage| {
        stage.user.until("it acts", async || acts.first("one").is_some()).await;
        sleep(15 * SECOND).await;
        // The copy has the same identity, and knows the lease's revision.
        let renewed = json!({"metadata": {"annotations": {"orlop.dev/renewal": "the-copys"}},
            "spec": {"renewTime": "2027-01-01T00:00:00.000000Z"}});
        stage.user.patch(Kind::LEASE, &lease(), renewed).await;
        sleep(11 * SECOND).await;
        let moment = Instant::now();
        sleep(120 * SECOND).await;
        assert_eq!(acts.since("one", moment), 0);
        let [told] = &acts.refusals()[..] else { panic!("{:?}", acts.refusals()) };
        assert!(told.starts_with(ANOTHER_MACHINE) && told.contains("runs twice"), "{told}");
        assert_eq!(node_events(stage).await.len(), 1);
    });
}

#[test]
fn a_label_on_the_lease_is_no_other_machine() {
    let acts = Acts::new();
    play(&alone(&acts), async |stage: &Stage| {
        stage.user.until("it acts", async || acts.first("one").is_some()).await;
        stage.user.patch(Kind::LEASE, &lease(), json!({"metadata": {"labels": {"team": "storage"}}})).await;
        sleep(60 * SECOND).await;
        let moment = Instant::now();
        sleep(60 * SECOND).await;
        assert!(acts.since("one", moment) > 0 && acts.refusals().is_empty(), "{:?}", acts.refusals());
    });
}

/// Two processes one after the other on one disk; the first one is killed after a minute.
fn restarted(acts: &Acts, second: AgentIdentity) -> Start {
    let acts = acts.clone();
    Arc::new(move |context, _| {
        let (acts, disk, second) = (acts.clone(), Arc::new(Disk::default()), second.clone());
        Box::pin(async move {
            let with_disk = |identity| Options { memory: disk.clone(), ..options(identity) };
            let first = agent(context.clone(), "one", with_disk(identity("boot-1")), acts.clone());
            let killed = tokio::time::timeout(61 * SECOND, first).await;
            assert!(killed.is_err(), "it runs until it is killed");
            agent(context, "two", with_disk(second), acts).await;
        })
    })
}

#[test]
fn the_next_process_of_an_agent_goes_on_at_once() {
    let acts = Acts::new();
    play(&restarted(&acts, identity("boot-1")), async |_: &Stage| {
        let began = Instant::now();
        sleep(100 * SECOND).await;
        let first = acts.first("two").expect("it acts");
        assert!(first <= began + 64 * SECOND, "{:?}", first - began);
        assert_eq!(acts.refusals(), Vec::<String>::new());
    });
}

#[test]
fn after_a_reboot_the_agent_waits_until_the_lease_has_ended() {
    let acts = Acts::new();
    play(&restarted(&acts, identity("boot-2")), async |_: &Stage| {
        let began = Instant::now();
        sleep(200 * SECOND).await;
        let first = acts.first("two").expect("it acts");
        assert!(first >= began + 101 * SECOND, "{:?}", first - began);
        assert!(first <= began + 120 * SECOND, "{:?}", first - began);
        assert_eq!(acts.refusals(), Vec::<String>::new());
    });
}

#[test]
fn an_agent_that_was_suspended_does_nothing_before_it_has_renewed_its_lease() {
    let acts = Acts::new();
    let clock: Arc<Mutex<Option<Arc<SuspendableClock>>>> = Arc::default();
    let (made, noted) = (clock.clone(), acts.clone());
    let start: Start = Arc::new(move |mut context, _| {
        let clock = Arc::new(SuspendableClock::starting_at(context.clock.now()));
        *made.lock().expect("no test thread panicked") = Some(clock.clone());
        context.clock = clock;
        Box::pin(agent(context, "one", options(identity("boot-1")), noted.clone()))
    });
    play(&start, async |stage: &Stage| {
        stage.user.until("it acts", async || acts.first("one").is_some()).await;
        sleep(33 * SECOND).await;
        let clock = clock.lock().expect("no test thread panicked").clone().expect("it runs");
        let renewed = async || stage.user.get(Kind::LEASE, &lease()).await.unwrap_or_default();
        let mark = |lease: &Value| lease["metadata"]["annotations"]["orlop.dev/renewal"].clone();
        let before = mark(&renewed().await);
        clock.suspend(3600 * SECOND);
        let woken = Instant::now();
        while mark(&renewed().await) == before {
            assert_eq!(acts.since("one", woken), 0, "it acts under a lease that has ended");
            sleep(SECOND / 4).await;
        }
        sleep(5 * SECOND).await;
        assert!(acts.since("one", woken) > 0, "the lease is its own again");
        // While it is suspended once more, another machine takes the node over.
        let taken = json!({"metadata": {"annotations": {"orlop.dev/renewal": "theirs"}},
            "spec": {"holderIdentity": "orlop/host-b_machine-2_boot-2_x"}});
        stage.user.patch(Kind::LEASE, &lease(), taken).await;
        clock.suspend(3600 * SECOND);
        let woken = Instant::now();
        sleep(60 * SECOND).await;
        assert_eq!(acts.since("one", woken), 0);
        assert!(acts.refusals()[0].starts_with(ANOTHER_MACHINE), "{:?}", acts.refusals());
        assert!(stage.user.get(Kind::NODE, &Key::cluster(NODE)).await.is_some());
    });
}
