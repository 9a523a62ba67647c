//! `runtime` on the real API server: what its own tests assume about a server is true of this one.

use std::sync::Arc;
use std::time::Duration;

use api::object::{Key, Kind, Meta, Object};
use apiserver::auth::{StaticTokens, TokenSigner, User};
use apiserver::sources::{ManualClock, SeededEntropy};
use apiserver::store::{Options as StoreOptions, Store, UnixMillis};
use apiserver::{Api, Settings};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use runtime::client::{self, Client, Deleted, Patch, Preconditions, Selection, Verb};
use runtime::events::{self, Severity};
use runtime::lease::{Elector, Options as LeaseOptions};
use runtime::time::VirtualClock;
use runtime::{Cache, Change, Clock, Entropy, Metrics, Stopper};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, serde::Deserialize)]
struct Claim {
    metadata: Meta,
}

impl Object for Claim {
    const KIND: Kind = Kind::CLAIM;
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

struct World {
    client: Client,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    /// Kept, because its service lives no longer.
    _api: Api,
}

async fn world() -> World {
    let random = ring::rand::SystemRandom::new();
    let key =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("the test sets it up right");
    let api = Api::start(Settings {
        store: Store::memory(StoreOptions::default()),
        clock: Arc::new(ManualClock::at(UnixMillis(1_800_000_000_000))),
        entropy: Arc::new(SeededEntropy::new(1)),
        signer: TokenSigner::new(key.as_ref(), "https://test").expect("the test sets it up right"),
        tokens: StaticTokens::default(),
        address: "127.0.0.1:6443".to_owned(),
    })
    .await
    .expect("the test sets it up right");
    let clock: Arc<dyn Clock> =
        Arc::new(VirtualClock::starting_at("2027-01-15T08:00:00Z".parse().expect("the test sets it up right")));
    let (metrics, entropy) = (Metrics::new(&*clock), Entropy::seeded(11));
    let inner = kube::Client::new(api.service().as_user(User::loopback()), "default");
    let client = Client::new(inner, client::Options::default(), &metrics, &entropy);
    World { client, metrics, clock, entropy, _api: api }
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

async fn create(client: &Client, name: &str) -> Claim {
    client.create(Kind::CLAIM, Some("default"), &claim(name)).await.expect("the test sets it up right")
}

async fn eventually(what: &str, done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(600 * SECOND, wait).await.is_ok(), "never happened: {what}");
}

/// Runs a cache of claims beside `play`.
async fn with_cache(world: &World, cache: &Cache<Claim>, play: impl Future<Output = ()>) {
    let (stopper, stop) = Stopper::new();
    let playing = async {
        play.await;
        stopper.stop();
    };
    tokio::join!(cache.run(&world.client, &world.entropy, &stop), playing);
}

#[tokio::test(start_paused = true)]
async fn a_cache_follows_the_server_and_our_own_writes_count_at_once() {
    let world = world().await;
    let client = &world.client;
    for name in ["a", "b", "c"] {
        create(client, name).await;
    }
    let cache = Cache::<Claim>::new(Selection::default());
    with_cache(&world, &cache, async {
        cache.synced().await;
        assert_eq!((cache.len(), client.counts().of(Verb::List, Kind::CLAIM.plural)), (3, 0));
        let patch = Patch::Merge(json!({"metadata": {"labels": {"colour": "blue"}}}));
        let patched: Claim = client.patch(Kind::CLAIM, &key("a"), &patch).await.unwrap();
        let held = cache.wrote(patched.clone()).unwrap();
        assert_eq!(held.metadata.label("colour"), Some("blue"));
        create(client, "d").await;
        eventually("d is there", || cache.get(&key("d")).is_some()).await;
        assert!(cache.revision() > patched.metadata.revision);
        assert_eq!(cache.get(&key("a")).unwrap().metadata.revision, patched.metadata.revision);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deletion_is_pending_with_finalizers_and_gone_without_and_stays_gone() {
    let world = world().await;
    let client = &world.client;
    let made = create(client, "a").await;
    let cache = Cache::<Claim>::new(Selection::default());
    let removed = Arc::new(std::sync::Mutex::new(0));
    let count = removed.clone();
    let _counting = cache.subscribe(move |change: &Change<Claim>| {
        if let Change::Removed(_) = change {
            *count.lock().unwrap() += 1;
        }
    });
    with_cache(&world, &cache, async {
        cache.synced().await;
        let only = Preconditions::same(&made.metadata);
        // Admission protects every claim with a finalizer.
        match client.delete::<Claim>(&key("a"), &only).await.unwrap() {
            Deleted::Pending(claim) => assert!(cache.wrote(claim).unwrap().metadata.is_deleting()),
            Deleted::Gone => panic!("it has a finalizer: {made:?}"),
        }
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        client.patch::<Value>(Kind::CLAIM, &key("a"), &patch).await.unwrap();
        cache.deleted(&key("a"), &made.metadata.uid);
        assert!(cache.get(&key("a")).is_none());
        let again = create(client, "a").await;
        eventually("the second one is there", || cache.get(&key("a")).is_some()).await;
        assert_eq!(cache.get(&key("a")).unwrap().metadata.uid, again.metadata.uid);
    })
    .await;
    assert_eq!(*removed.lock().unwrap(), 1);
    let error = client.delete::<Claim>(&key("a"), &Preconditions::same(&made.metadata)).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cache_survives_an_hour_of_watches_that_end() {
    let world = world().await;
    create(&world.client, "a").await;
    let cache = Cache::<Claim>::new(Selection::default());
    with_cache(&world, &cache, async {
        cache.synced().await;
        sleep(3600 * SECOND).await;
        create(&world.client, "b").await;
        eventually("b is there", || cache.get(&key("b")).is_some()).await;
    })
    .await;
    let watches = world.client.counts().of(Verb::Watch, Kind::CLAIM.plural);
    assert!((7..=14).contains(&watches), "{watches} watches in an hour");
}

#[tokio::test(start_paused = true)]
async fn the_server_takes_our_lease_and_gives_it_to_the_next() {
    let world = world().await;
    let World { client, metrics, clock, entropy, .. } = &world;
    let elector = |identity: &str| {
        let options = LeaseOptions::new("default", "lock", identity);
        Elector::new(client, clock.clone(), entropy, metrics, options).unwrap()
    };
    let leads = std::cell::RefCell::new(Vec::new());
    let work = |name: &'static str| {
        let leads = &leads;
        move |epoch: runtime::lease::Epoch| async move {
            leads.borrow_mut().push((name, epoch.number));
            epoch.stop.stopped().await;
        }
    };
    let (stop_first, first) = Stopper::new();
    let (stop_second, second) = Stopper::new();
    let playing = async {
        sleep(20 * SECOND).await;
        stop_first.stop();
        sleep(20 * SECOND).await;
        stop_second.stop();
    };
    let later = async {
        sleep(SECOND).await;
        elector("two").run(&second, work("two")).await;
    };
    tokio::join!(elector("one").run(&first, work("one")), later, playing);
    assert_eq!(*leads.borrow(), [("one", 0), ("two", 1)]);
    let lease: Value = client.get(Kind::LEASE, &key("lock")).await.unwrap();
    assert_eq!((&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]), (&json!(""), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn the_server_takes_our_events_and_their_counts() {
    let world = world().await;
    let claim = create(&world.client, "a").await;
    let World { client, metrics, clock, entropy, .. } = &world;
    let (recorder, writer) = events::channel("persistentvolume-controller", "host", clock.clone(), metrics, entropy);
    let (stopper, stop) = Stopper::new();
    let playing = async {
        for _ in 0..3 {
            recorder.record(&claim, Severity::Normal, "FailedBinding", "no persistent volumes available");
            sleep(SECOND).await;
        }
        stopper.stop();
    };
    tokio::join!(writer.run(client, &stop), playing);
    let page = client.list::<Value>(Kind::EVENT, &Selection::default(), 0, None).await.unwrap();
    let [event] = page.items.as_slice() else { panic!("{:?}", page.items) };
    assert_eq!((&event["count"], &event["reason"]), (&json!(3), &json!("FailedBinding")));
    assert_eq!(event["involvedObject"]["uid"], claim.metadata.uid.as_str());
}

#[tokio::test(start_paused = true)]
async fn pages_and_streams_give_the_same_world() {
    let world = world().await;
    for number in 0..12 {
        create(&world.client, &format!("c{number:02}")).await;
    }
    let mut names = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let page = world.client.list::<Claim>(Kind::CLAIM, &Selection::default(), 5, next.as_deref()).await.unwrap();
        names.extend(page.items.iter().map(|claim| claim.key().clone()));
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    let cache = Cache::<Claim>::new(Selection::default());
    with_cache(&world, &cache, cache.synced()).await;
    assert_eq!(cache.walk().map(|claim| claim.key().clone()).collect::<Vec<_>>(), names);
}

#[test]
fn metadata_stays_small() {
    // 100,000 volumes and claims have to fit into 150 MB with everything else. The uid is in it, not behind it.
    assert!(size_of::<Meta>() <= 176, "{}", size_of::<Meta>());
}
