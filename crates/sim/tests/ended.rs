//! What has ended holds nothing: neither controllers and agents that were stopped or died, nor a whole world.
//!
//! A process makes its parts anew, for instance with new certificates, and the simulator lives through thousands of worlds
//! in one process. Caches and those who listen to them hold each other easily; then none of it ever goes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::keys::annotation;
use api::{Attachment, Claim, Class, CsiDriver, CsiNode, Key, Kind, Node, Pod, Volume};
use control::provision::csi::{self, GuardOptions, Sidecar, SidecarOptions, Sweep};
use control::{Context, attach, attacher, bind, ephemeral, protect, provision, schedule};
use futures_util::future::{BoxFuture, join_all};
use node::Agent;
use node::drivers::{Drivers, Registered};
use node::layout::Layout;
use node::registry::Welcome;
use peak_alloc::PeakAlloc;
use runtime::csi::Driver;
use runtime::queue::Backoff;
use runtime::{Client, Object, Stop, Stopper};
use serde_json::{Value, json};
use sim::driver::{Attach, Habits, Model, Staging, State};
use sim::faults::Fair;
use sim::machine::{Machine, ModelHost};
use sim::{Process, Seed, Setup, World, keys, nodes, simulate, storage};
use tokio::time::{sleep, timeout};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// One test at a time: memory is the whole program's.
static ALONE: Mutex<()> = Mutex::new(());

const NODE: &str = "node-a";
const NAMESPACE: &str = "default";
/// Worlds of either kind, with crashes in them.
const SEEDS: [u64; 3] = [0, 1, 2];
/// What a world may leave behind: buffers that grew, and words that many objects repeat. A world as it lives is a megabyte.
const CRUMBS: usize = 20_000;

/// An object that a process heard of, to see whether anybody still holds it.
struct Trace {
    what: String,
    lives: Box<dyn Fn() -> bool>,
}

fn traces<T: Object>(context: &Context) -> Vec<Trace> {
    let trace = |object: Arc<T>| {
        let (what, weak) = (format!("{} {}", T::KIND, object.key()), Arc::downgrade(&object));
        Trace { what, lives: Box::new(move || weak.strong_count() > 0) }
    };
    let found: Vec<Trace> = context.cache::<T>().walk().map(trace).collect();
    assert!(!found.is_empty(), "no {} was heard of", T::KIND);
    found
}

fn everything(context: &Context) -> Vec<Trace> {
    let kinds = [
        traces::<Claim>,
        traces::<Volume>,
        traces::<Pod>,
        traces::<Node>,
        traces::<Class>,
        traces::<Attachment>,
        traces::<CsiNode>,
        traces::<CsiDriver>,
    ];
    kinds.iter().flat_map(|traces| traces(context)).collect()
}

/// How a process comes to its end.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Stopped,
    Died,
}

#[test]
fn controllers_and_agents_that_were_stopped_or_died_hold_nothing_of_the_cluster() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for ending in [Ending::Stopped, Ending::Died] {
        let scenario = async |world: World| {
            set_up(&world).await;
            let traces = live(&world, ending).await;
            // Tasks that served the process see that it is gone.
            sleep(Duration::from_secs(1)).await;
            let held = traces.iter().filter(|trace| (trace.lives)()).map(|trace| trace.what.clone());
            held.collect::<Vec<_>>()
        };
        let held = simulate(Seed(1), Setup::default(), scenario).expect("a world can be made");
        assert_eq!(held, [""; 0], "{ending:?}");
    }
}

/// A cluster with a pod that wants a volume.
async fn set_up(world: &World) {
    let client: Client = Process::new(world, &world.component("user", Fair), 0).context.client;
    let create = async |kind: Kind, namespace: Option<&str>, mut body: Value| {
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        client.create::<Value>(kind, namespace, &body).await.expect("nothing speaks against it");
    };
    let class = json!({"metadata": {"name": "now"}, "provisioner": keys::DRIVER});
    create(Kind::STORAGE_CLASS, None, class).await;
    let driver = json!({"metadata": {"name": keys::DRIVER}, "spec": {"attachRequired": true}});
    create(Kind::CSI_DRIVER, None, driver).await;
    let annotations = json!({annotation::MANAGED_ATTACH.text(): api::keys::YES});
    create(Kind::NODE, None, json!({"metadata": {"name": NODE, "annotations": annotations}})).await;
    let driver = json!({"name": keys::DRIVER, "nodeID": NODE, "topologyKeys": []});
    create(Kind::CSI_NODE, None, json!({"metadata": {"name": NODE}, "spec": {"drivers": [driver]}})).await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "now", "resources": {"requests": {"storage": "1Gi"}},
    });
    create(Kind::CLAIM, Some(NAMESPACE), json!({"metadata": {"name": "data"}, "spec": spec})).await;
    let mount = json!({"name": "data", "mountPath": "/data"});
    let spec = json!({
        "nodeName": NODE, "containers": [{"name": "main", "image": "none", "volumeMounts": [mount]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    });
    create(Kind::POD, Some(NAMESPACE), json!({"metadata": {"name": "web"}, "spec": spec})).await;
}

/// One life of a process that does everything, until the pod has its volume. Gives what it had heard of by then.
async fn live(world: &World, ending: Ending) -> Vec<Trace> {
    let component = world.component("orlop", Fair);
    let process = Process::new(world, &component, 1);
    let context = process.context.clone();
    let habits = Habits { attach: Attach::Required, staging: Staging::Required, ..Habits::fair() };
    let model = Model::new(world, habits, State::new(&[], 1 << 40));
    let machine = Machine::new(world, NODE);
    let host = Arc::new(ModelHost::new(&machine, &component, Fair));
    let controller = Driver::new(model.clone(), runtime::csi::Options::default(), &context.metrics);
    let side = Driver::new(model.on(&machine, None), runtime::csi::Options::on_node(), &context.metrics);
    let drivers = Drivers::default();
    drivers.insert(Registered { name: keys::DRIVER.to_owned(), driver: side.clone(), node_id: NODE.to_owned() });
    let layout = Layout::new("/var/lib/orlop").expect("the root is absolute");
    let agent = Agent::new(&context, host, drivers, node::Options::new(NODE, layout));
    let (stopper, stop) = Stopper::new();
    let work: [BoxFuture<'_, ()>; 5] = [
        Box::pin(async { drop(controller.run(&stop).await) }),
        Box::pin(async { drop(side.run(&stop).await) }),
        Box::pin(sidecar(&context, &controller, &stop)),
        Box::pin(controllers(&context, &stop)),
        Box::pin(agent.run(&stop)),
    ];
    let (mut heard, never) = (Vec::new(), Stop::never());
    let story = async {
        ready(&context).await;
        heard = everything(&context);
        match ending {
            Ending::Stopped => {
                stopper.stop();
                std::future::pending().await
            }
            Ending::Died => {}
        }
    };
    tokio::select! {
        biased;
        _ = process.run(&never, join_all(work)) => {}
        () = story => {}
    }
    heard
}

async fn ready(context: &Context) {
    let (pods, key) = (context.cache::<Pod>(), Key::namespaced(NAMESPACE, "web"));
    let has_volumes = || {
        let pod = pods.get(&key)?;
        pod.volumes_ready.as_ref().filter(|said| said.ready).map(drop)
    };
    let wait = async {
        while has_volumes().is_none() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(600), wait).await.expect("the pod gets its volume");
}

async fn sidecar(context: &Context, driver: &Driver, stop: &Stop) {
    let facts = driver.ready().await;
    let options = SidecarOptions {
        provisioner: csi::Options::default(),
        engine: provision::Options::new(&facts.name, NAMESPACE),
        guards: GuardOptions { sweep: Sweep::Off, workers: 1, backoff: Backoff::default() },
        capacity: None,
    };
    let provisioner = Sidecar::new(context, driver, &facts, options);
    let attacher = attacher::Attacher::new(context, driver, &facts, attacher::Options::default());
    tokio::join!(Box::pin(provisioner.run(stop)), Box::pin(attacher.run(stop)));
}

async fn controllers(context: &Context, stop: &Stop) {
    let binder = bind::Binder::new(context, bind::Options::default());
    let protector = protect::Protector::new(context, protect::Options::default());
    let ephemeral = ephemeral::Ephemeral::new(context, ephemeral::Options::default());
    let attachments = attach::Attachments::new(context, attach::Options::default());
    let scheduler = schedule::Scheduler::new(context, schedule::Options::default());
    let welcome = Welcome::new(context);
    let work: [BoxFuture<'_, ()>; 6] = [
        Box::pin(binder.run(stop)),
        Box::pin(protector.run(stop)),
        Box::pin(ephemeral.run(stop)),
        Box::pin(attachments.run(stop)),
        Box::pin(scheduler.run(stop)),
        Box::pin(welcome.run(stop)),
    ];
    join_all(work).await;
}

#[test]
fn a_world_that_is_over_leaves_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let worlds = || {
        for seed in SEEDS.map(Seed) {
            drop(storage::run(seed, storage::Mutation::None).expect("a world can be made"));
            drop(nodes::run(seed, nodes::Mutation::None).expect("a world can be made"));
        }
        ALLOCATOR.current_usage()
    };
    // The first time fills tables that are made once.
    let (before, after) = (worlds(), worlds());
    let left = after.saturating_sub(before) / (2 * SEEDS.len());
    println!("{before} bytes after the first time, {after} after the second");
    assert!(left < CRUMBS, "{left} bytes of a world were left: {before} before, {after} after");
}
