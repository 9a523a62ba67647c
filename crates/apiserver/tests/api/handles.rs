//! Two volumes with one handle that are created at the same time, over a disk that is slow.

use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;

use apiserver::auth::User;
use apiserver::http::Service;
use apiserver::store::{Compaction, Durable, DurableError, Event, MemoryDisk, Options, Store};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::Server;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const DRIVER: &str = apiserver::auth::MACHINE_DRIVER;

/// A gate in front of a disk.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().expect("no holder panics") = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let is_closed = self.is_closed.lock().expect("no holder panics");
        drop(self.changed.wait_while(is_closed, |is_closed| *is_closed).expect("no holder panics"));
    }
}

#[derive(Debug)]
struct SlowDisk {
    disk: MemoryDisk,
    gate: Arc<Gate>,
    /// Notes each write that has come to the gate.
    arrived: mpsc::UnboundedSender<()>,
}

impl Durable for SlowDisk {
    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), DurableError> {
        // The test may not listen any more.
        let _ = self.arrived.send(());
        self.gate.pass();
        self.disk.append(events)
    }

    fn compact(&mut self, plan: &Compaction) -> Result<(), DurableError> {
        self.disk.compact(plan)
    }

    fn settle(&mut self) -> Result<(), DurableError> {
        Ok(())
    }
}

struct Race {
    server: Server,
    gate: Arc<Gate>,
    arrivals: mpsc::UnboundedReceiver<()>,
}

impl Race {
    /// The gate is closed, and nothing has come to it.
    async fn begin() -> Self {
        let (gate, disk) = (Arc::<Gate>::default(), MemoryDisk::default());
        let (arrived, mut arrivals) = mpsc::unbounded_channel();
        let durable = SlowDisk { disk: disk.clone(), gate: Arc::clone(&gate), arrived };
        let store = Store::threaded(disk.image(), Box::new(durable), Options::default()).expect("a thread can start");
        let server = Server::over(store).await;
        while arrivals.try_recv().is_ok() {}
        gate.set(true);
        Self { server, gate, arrivals }
    }

    /// A machine that has every right which a role can give.
    fn machine(&self, name: &str) -> Service {
        let groups = ["system:masters", "orlop:machines"].map(str::to_owned).into();
        self.server.api.service().as_user(User { name: format!("orlop:machine:{name}"), groups, ..User::default() })
    }
}

/// The answer of a future that is asked once, if it has one by then.
async fn polled_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

fn volume(machine: &str) -> Value {
    let demand = json!({"key": format!("topology.{DRIVER}/node"), "operator": "In", "values": [machine]});
    json!({"metadata": {"name": format!("pv-{machine}")}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "default", "name": "gone", "uid": "invented"},
        "csi": {"driver": DRIVER, "volumeHandle": "same"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [demand]}]}}}})
}

#[tokio::test]
async fn of_two_machines_that_take_a_handle_at_once_one_gets_it() {
    let mut race = Race::begin().await;
    let [a, b] = ["a", "b"].map(|name| (race.machine(name), volume(name)));
    let first = race.server.send_as(&a.0, "POST", VOLUMES, Some(&a.1));
    let second = async {
        race.arrivals.recv().await.expect("the first write comes to the gate");
        let mut asked = pin!(race.server.send_as(&b.0, "POST", VOLUMES, Some(&b.1)));
        // As far as it gets while the first write is on its way to the disk.
        let early = polled_once(asked.as_mut()).await;
        race.gate.set(false);
        match early {
            Poll::Ready(answer) => answer,
            Poll::Pending => asked.await,
        }
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.code, 201, "{}", first.body);
    assert_eq!(second.code, 403, "{}", second.body);
    assert!(second.body["message"].as_str().unwrap_or_default().contains("a handle that no other volume has"));
    let again = race.server.send_as(&b.0, "POST", VOLUMES, Some(&b.1)).await;
    assert_eq!(again.code, 403, "the first one is stored: {}", again.body);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_keeps_the_handle() {
    let mut race = Race::begin().await;
    let [a, b] = ["a", "b"].map(|name| (race.machine(name), volume(name)));
    {
        let left = pin!(race.server.send_as(&a.0, "POST", VOLUMES, Some(&a.1)));
        let arrived = pin!(race.arrivals.recv());
        let winner = futures_util::future::select(left, arrived).await;
        assert!(matches!(winner, futures_util::future::Either::Right(_)), "the write waits at the gate");
    }
    let mut asked = pin!(race.server.send_as(&b.0, "POST", VOLUMES, Some(&b.1)));
    let early = polled_once(asked.as_mut()).await;
    race.gate.set(false);
    let answer = match early {
        Poll::Ready(answer) => answer,
        Poll::Pending => asked.await,
    };
    assert_eq!(answer.code, 403, "{}", answer.body);
    // A write of the server's own passes the same gate behind the first one.
    let made = race.server.call("POST", "/api/v1/namespaces", Some(&json!({"metadata": {"name": "after"}}))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(race.server.call("GET", &format!("{VOLUMES}/pv-a"), None).await.code, 200);
}

#[tokio::test]
async fn a_handle_that_was_not_taken_is_free_again() {
    let race = Race::begin().await;
    race.gate.set(false);
    let [a, b] = ["a", "b"].map(|name| (race.machine(name), volume(name)));
    let mut invalid = a.1.clone();
    invalid["spec"]["capacity"] = json!({});
    assert_eq!(race.server.send_as(&a.0, "POST", VOLUMES, Some(&invalid)).await.code, 422);
    let answer = race.server.send_as(&b.0, "POST", VOLUMES, Some(&b.1)).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}
