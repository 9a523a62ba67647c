//! What replaces what, and how gaps in the watch are closed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::object::Revision;
use serde_json::json;

use super::store::Store;
use super::*;
use crate::client::Client;
use crate::fake::{Fake, Fault, Thing, eventually, key, thing};
use crate::stop::Stopper;

const BY_COLOUR: Index<Thing> = Index { name: "colour", values: |thing, value| value(&thing.colour) };

fn shown(changes: &[Change<Thing>]) -> Vec<String> {
    let one = |change: &Change<Thing>| match change {
        Change::Added(new) => format!("+{} {}", new.metadata.key.name(), new.colour),
        Change::Changed { old, new } => format!("~{} {}>{}", new.metadata.key.name(), old.colour, new.colour),
        Change::Removed(old) => format!("-{} {}", old.metadata.key.name(), old.colour),
    };
    changes.iter().map(one).collect()
}

/// Runs steps on an empty store and shows the changes they made.
fn steps(run: impl FnOnce(&mut Store<Thing>, &mut Vec<Change<Thing>>)) -> Vec<String> {
    let (mut store, mut changes) = (Store::new(Extent::All), Vec::new());
    run(&mut store, &mut changes);
    shown(&changes)
}

fn some(name: &str, revision: u64, colour: &str) -> Arc<Thing> {
    Arc::new(thing(name, "u", revision, colour))
}

#[test]
fn the_past_does_not_come_back_over_our_own_write() {
    let seen = steps(|store, changes| {
        store.put(some("a", 5, "red"), changes);
        store.wrote(some("a", 9, "blue"), changes);
        store.put(some("a", 7, "green"), changes);
        store.put(some("a", 9, "blue"), changes);
        store.replace_all(vec![some("a", 7, "green")], Revision::new(8), changes);
        store.replace_all(vec![], Revision::new(8), changes);
    });
    assert_eq!(seen, ["+a red", "~a red>blue"]);
}

#[test]
fn an_answer_that_comes_after_the_end_does_not_revive() {
    let seen = steps(|store, changes| {
        store.put(some("a", 5, "red"), changes);
        store.remove(some("a", 8, "red").meta(), changes);
        store.wrote(some("a", 7, "blue"), changes);
    });
    assert_eq!(seen, ["+a red", "-a red"]);
}

#[test]
fn what_we_deleted_stays_deleted_and_a_successor_is_new() {
    let seen = steps(|store, changes| {
        store.put(some("a", 5, "red"), changes);
        store.deleted(&key("a"), &"u".into(), changes);
        store.put(some("a", 6, "late"), changes);
        store.replace_all(vec![some("a", 6, "late")], Revision::new(6), changes);
        store.put(Arc::new(thing("a", "u2", 9, "second")), changes);
        // The news of the first one's end arrives after its successor.
        store.remove(some("a", 8, "late").meta(), changes);
    });
    assert_eq!(seen, ["+a red", "-a red", "+a second"]);
}

#[test]
fn a_grave_is_closed_by_the_watch_or_by_a_list_that_is_new_enough() {
    let seen = steps(|store, changes| {
        store.wrote(some("a", 5, "red"), changes);
        store.deleted(&key("a"), &"u".into(), changes);
        // Older than the object itself: its absence proves nothing.
        store.replace_all(vec![], Revision::new(4), changes);
        store.put(some("a", 5, "red"), changes);
        store.remove(some("a", 6, "red").meta(), changes);
    });
    assert_eq!(seen, ["+a red", "-a red"]);
}

#[test]
fn a_list_tells_what_changed_what_is_gone_and_who_was_replaced() {
    let seen = steps(|store, changes| {
        for name in ["a", "b", "c", "d"] {
            store.put(some(name, 5, "red"), changes);
        }
        changes.clear();
        let again = Arc::new(thing("c", "u2", 8, "new"));
        store.replace_all(vec![some("d", 5, "red"), some("b", 7, "blue"), again], Revision::new(9), changes);
    });
    assert_eq!(seen, ["-a red", "~b red>blue", "-c red", "+c new"]);
}

#[test]
fn indexes_follow_what_changes() {
    let cache = Cache::<Thing>::new(Selection::default());
    cache.wrote(thing("b", "1", 1, "red"));
    let by_colour = cache.index(BY_COLOUR);
    cache.wrote(thing("a", "2", 2, "red"));
    cache.wrote(thing("c", "3", 3, "blue"));
    let names = |found: Vec<Arc<Thing>>| found.iter().map(|t| t.metadata.key.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(by_colour.all("red")), ["a", "b"]);
    cache.wrote(thing("a", "2", 4, "blue"));
    assert_eq!(
        (names(by_colour.all("red")), names(by_colour.all("blue"))),
        (vec!["b".into()], vec!["a".into(), "c".into()])
    );
    cache.deleted(&key("b"), &"1".into());
    assert!(!by_colour.any("red"));
    cache.wrote(thing("z", "4", 5, "green"));
    assert_eq!(names(cache.walk().collect()), ["a", "c", "z"]);
}

#[test]
fn a_walk_over_many_is_complete_and_in_order() {
    let cache = Cache::<Thing>::new(Selection::default());
    for number in 0..1000 {
        cache.wrote(thing(&format!("{number:04}"), "u", 1 + number, "red"));
    }
    let names: Vec<_> = cache.walk().map(|thing| thing.metadata.key.name().to_owned()).collect();
    assert!(names.len() == 1000 && names.is_sorted());
}

#[test]
fn a_subscriber_is_called_for_as_long_as_its_subscription_lives_and_is_freed_with_it() {
    let cache = Cache::<Thing>::new(Selection::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let subscribe = |who: &'static str| {
        // It holds the very cache that it listens to, as most do.
        let (notes, held) = (told.clone(), cache.clone());
        cache.subscribe(move |_| notes.lock().unwrap().push((who, held.len())))
    };
    let (first, second) = (subscribe("first"), subscribe("second"));
    cache.wrote(thing("a", "u", 1, "red"));
    drop(first);
    cache.wrote(thing("b", "u", 2, "red"));
    assert_eq!(*told.lock().unwrap(), [("first", 1), ("second", 1), ("second", 2)]);
    assert_eq!(Arc::strong_count(&told), 2, "the first one is gone with what it held");
    let weak = Arc::downgrade(&cache.inner);
    drop((cache, second));
    assert!(weak.upgrade().is_none(), "nothing keeps the cache");
    assert_eq!(Arc::strong_count(&told), 1);
}

/// A cache that follows a fake server, and what its subscriber was told.
struct Scene {
    fake: Fake,
    cache: Cache<Thing>,
    client: Client,
    told: Arc<Mutex<Vec<String>>>,
    _subscription: Subscription,
}

impl Scene {
    fn new() -> Scene {
        Scene::of(Extent::All)
    }

    fn of(extent: Extent) -> Scene {
        let fake = Fake::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let cache = Cache::new(Selection { extent, ..Selection::default() });
        let notes = told.clone();
        let subscription = cache.subscribe(move |change: &Change<Thing>| {
            let line = match change {
                Change::Added(new) => format!("+{}", new.metadata.key.name()),
                Change::Changed { new, .. } => format!("~{} {}", new.metadata.key.name(), new.colour),
                Change::Removed(old) => format!("-{} {}", old.metadata.key.name(), old.colour),
            };
            notes.lock().unwrap().push(line);
        });
        Scene { client: fake.client(), fake, cache, told, _subscription: subscription }
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    /// Runs the cache beside `play`.
    async fn run(&self, play: impl Future<Output = ()>) {
        let (stopper, stop) = Stopper::new();
        let entropy = Entropy::seeded(9);
        let playing = async {
            play.await;
            stopper.stop();
        };
        tokio::join!(self.cache.run(&self.client, &entropy, &stop), playing);
    }

    async fn holds(&self, name: &str, colour: &str) {
        let what = format!("{name} is {colour}");
        eventually(&what, || self.cache.get(&key(name)).is_some_and(|thing| thing.colour == colour)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_needs_one_request_and_changes_follow() {
    let scene = Scene::new();
    for name in ["a", "b", "c"] {
        scene.fake.put(name, "red");
    }
    scene
        .run(async {
            scene.cache.synced().await;
            assert_eq!(scene.told(), ["+a", "+b", "+c"]);
            scene.fake.put("b", "blue");
            scene.holds("b", "blue").await;
            scene.fake.remove("a");
            eventually("a is gone", || scene.cache.get(&key("a")).is_none()).await;
            assert_eq!(scene.told(), ["~b blue", "-a red"]);
        })
        .await;
    assert_eq!(scene.fake.log().len(), 1, "{:?}", scene.fake.log());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streamed_lists_is_read_in_pages() {
    let scene = Scene::new();
    scene.fake.without_streamed_lists();
    for name in ["a", "b", "c"] {
        scene.fake.put(name, "red");
    }
    scene
        .run(async {
            scene.cache.synced().await;
            assert_eq!(scene.cache.len(), 3);
            scene.fake.put("d", "red");
            scene.holds("d", "red").await;
        })
        .await;
    let log = scene.fake.log();
    assert!(log[1].contains("limit=500") && log[2].contains("continue=2") && log[3].contains("watch=true"), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_is_resumed_without_a_list() {
    let scene = Scene::new();
    scene.fake.put("a", "red");
    scene
        .run(async {
            scene.cache.synced().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            scene.fake.end_watches();
            scene.fake.put("a", "blue");
            scene.holds("a", "blue").await;
        })
        .await;
    let log = scene.fake.log();
    assert!(log.len() == 2 && log[1].contains("resourceVersion=11"), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_history_is_closed_by_comparing_and_nobody_sees_an_empty_cache() {
    let scene = Scene::new();
    for name in ["a", "b", "c"] {
        scene.fake.put(name, "red");
    }
    scene
        .run(async {
            scene.cache.synced().await;
            scene.told();
            scene.fake.end_watches();
            scene.fake.remove("a");
            scene.fake.put("b", "blue");
            scene.fake.compact();
            let mut least = usize::MAX;
            eventually("b is blue", || {
                least = least.min(scene.cache.len());
                scene.cache.get(&key("b")).is_some_and(|thing| thing.colour == "blue")
            })
            .await;
            assert_eq!((least, scene.told()), (2, vec!["-a red".to_owned(), "~b blue".to_owned()]));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_asked_again_with_growing_pauses() {
    let scene = Scene::new();
    scene.fake.put("a", "red");
    for _ in 0..4 {
        scene.fake.fault("GET", Fault::LostBefore);
    }
    let start = tokio::time::Instant::now();
    let failed = eventually("the failure is told", || scene.cache.failure().is_some());
    scene.run(async { tokio::join!(scene.cache.synced(), failed).0 }).await;
    assert!(scene.cache.failure().is_none(), "it follows again");
    let took = start.elapsed();
    // 0.8 + 1.6 + 3.2 + 6.4 seconds, each up to doubled.
    assert!(took >= Duration::from_secs(12) && took <= Duration::from_secs(25), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_object_does_not_blind_us_for_the_others() {
    let scene = Scene::new();
    scene
        .run(async {
            scene.cache.synced().await;
            let body = serde_json::json!({"metadata": {"namespace": "n", "name": "bad"}, "colour": 7});
            let _ = scene.client.create::<serde_json::Value>(Thing::KIND, Some("n"), &body).await;
            scene.fake.put("good", "red");
            scene.holds("good", "red").await;
        })
        .await;
    assert_eq!(scene.cache.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_watch_serves_all_who_ask_for_a_kind() {
    let fake = Fake::new();
    fake.put("a", "red");
    let caches = Caches::new(&fake.client(), &Entropy::seeded(2));
    let (stopper, stop) = Stopper::new();
    let asking = async {
        let first = caches.of::<Thing>();
        caches.synced().await;
        let second = caches.of::<Thing>();
        assert_eq!((first.len(), second.len(), second.is_synced()), (1, 1, true));
        stopper.stop();
    };
    tokio::join!(caches.run(&stop), asking);
    assert_eq!(fake.log().len(), 1);
}

#[test]
fn an_answer_that_was_on_its_way_does_not_revive_what_ended_while_it_was_wanted() {
    let (mut store, mut changes) = (Store::new(Extent::Wanted), Vec::new());
    store.put(some("a", 5, "red"), &mut changes);
    store.want(&key("a"));
    store.remove(some("a", 8, "red").meta(), &mut changes);
    store.wrote(some("a", 7, "blue"), &mut changes);
    assert_eq!(shown(&changes), [""; 0]);
    store.wrote(Arc::new(thing("a", "another", 9, "green")), &mut changes);
    store.put(some("b", 10, "red"), &mut changes);
    assert_eq!((shown(&changes), store.len()), (vec!["+a green".to_owned()], 1));
    store.unwant(&key("a"));
    assert_eq!((changes.len(), store.len()), (1, 0), "nobody is told that it ended");
}

#[test]
fn an_object_stays_until_the_last_who_wants_it_is_gone() {
    let cache = Cache::<Thing>::new(Selection { extent: Extent::Wanted, ..Selection::default() });
    let by_colour = cache.index(BY_COLOUR);
    let (one, two) = (cache.want(&key("a")), cache.want(&key("a")));
    assert!(cache.wrote(thing("a", "u", 3, "red")).is_some());
    drop(one);
    assert!(cache.get(&key("a")).is_some() && by_colour.any("red"));
    drop(two);
    assert!(cache.is_empty() && !by_colour.any("red"));
    assert!(cache.wrote(thing("a", "u", 4, "red")).is_none(), "nobody wants it");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_wants_costs_nothing_and_what_is_wanted_is_followed() {
    let scene = Scene::of(Extent::Wanted);
    for name in ["a", "b", "c"] {
        scene.fake.put(name, "red");
    }
    scene
        .run(async {
            scene.cache.synced().await;
            assert_eq!(scene.fake.log(), [""; 0], "there is nothing to ask for");
            let a = scene.cache.want(&key("a"));
            scene.holds("a", "red").await;
            scene.fake.put("b", "blue");
            scene.fake.put("a", "blue");
            scene.holds("a", "blue").await;
            assert_eq!(scene.cache.len(), 1);
            let late = scene.cache.want(&key("late"));
            scene.fake.put("late", "red");
            scene.holds("late", "red").await;
            drop((a, late));
            assert_eq!((scene.cache.len(), scene.told()), (0, ["+a", "~a blue", "+late"].map(str::to_owned).to_vec()));
        })
        .await;
    let log = scene.fake.log();
    assert!(log.len() == 3 && log[0].contains("limit=1") && log[2].contains("watch=true"), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gap_in_the_watch_hides_nothing_of_what_is_wanted() {
    let scene = Scene::of(Extent::Wanted);
    for name in ["a", "b", "c"] {
        scene.fake.put(name, "red");
    }
    scene
        .run(async {
            let _wants = ["a", "b", "d"].map(|name| scene.cache.want(&key(name)));
            scene.holds("a", "red").await;
            scene.told();
            scene.fake.end_watches();
            scene.fake.remove("a");
            scene.fake.put("b", "blue");
            scene.fake.put("d", "red");
            scene.fake.compact();
            scene.fake.fault("GET /api/v1/namespaces/n/persistentvolumeclaims/b", Fault::LostBefore);
            scene.holds("b", "blue").await;
            let mut told = scene.told();
            told.sort();
            assert_eq!(told, ["+d", "-a red", "~b blue"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_the_last_wish_and_the_next_wish_begins_it_anew() {
    let scene = Scene::of(Extent::Wanted);
    scene.fake.put("a", "red");
    scene
        .run(async {
            let want = scene.cache.want(&key("a"));
            scene.holds("a", "red").await;
            drop(want);
            scene.fake.end_watches();
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(scene.fake.log().len(), 3, "{:?}", scene.fake.log());
            scene.fake.put("a", "blue");
            let _want = scene.cache.want(&key("a"));
            scene.holds("a", "blue").await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_followed_anew_before_the_server_would_have_ended_it() {
    let scene = Scene::new();
    scene.fake.put("a", "red");
    scene
        .run(async {
            scene.cache.synced().await;
            scene.fake.bookmark();
            tokio::time::sleep(Duration::from_secs(1)).await;
            scene.fake.mute();
            scene.fake.put("a", "blue");
            let began = tokio::time::Instant::now();
            scene.holds("a", "blue").await;
            assert!(began.elapsed() < Duration::from_secs(180), "{:?}", began.elapsed());
        })
        .await;
    let log = scene.fake.log();
    assert!(log.len() == 2 && log[1].contains("resourceVersion="), "nothing is listed again: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_says_how_far_it_is_may_be_silent_for_as_long_as_a_watch_lasts() {
    let scene = Scene::new();
    scene.fake.put("a", "red");
    scene
        .run(async {
            scene.cache.synced().await;
            tokio::time::sleep(Duration::from_secs(290)).await;
        })
        .await;
    assert_eq!(scene.fake.log().len(), 1);
}

/// An object that no projection can read.
fn unreadable(name: &str) -> serde_json::Value {
    serde_json::json!({"metadata": {"namespace": "n", "name": name}, "colour": 7})
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_object_in_a_page_does_not_blind_us_for_the_others() {
    let scene = Scene::new();
    scene.fake.without_streamed_lists();
    scene.fake.put("a", "red");
    scene.client.create::<serde_json::Value>(Thing::KIND, Some("n"), &unreadable("bad")).await.expect("it is stored");
    scene.fake.put("c", "red");
    scene.run(scene.cache.synced()).await;
    assert_eq!(scene.cache.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_became_unreadable_in_a_gap_of_the_watch_is_not_told_to_be_gone() {
    for streams in [true, false] {
        let scene = Scene::new();
        if !streams {
            scene.fake.without_streamed_lists();
        }
        scene.fake.put("a", "red");
        scene
            .run(async {
                scene.cache.synced().await;
                scene.told();
                scene.fake.end_watches();
                scene
                    .client
                    .replace::<serde_json::Value>(Thing::KIND, &key("a"), &unreadable("a"))
                    .await
                    .expect("stored");
                scene.fake.put("b", "red");
                scene.fake.compact();
                scene.holds("b", "red").await;
                assert_eq!(scene.told(), ["+b"], "what was known of it stays");
                assert!(scene.cache.get(&key("a")).is_some());
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_nobody_can_read_any_more_is_told_to_be_gone_when_it_goes() {
    let scene = Scene::new();
    scene.fake.put("a", "red");
    scene
        .run(async {
            scene.cache.synced().await;
            scene.client.replace::<serde_json::Value>(Thing::KIND, &key("a"), &unreadable("a")).await.expect("stored");
            scene.fake.put("b", "red");
            scene.holds("b", "red").await;
            assert!(scene.cache.get(&key("a")).is_some(), "what was known of it stays");
            scene.told();
            scene.fake.remove("a");
            eventually("it is gone", || scene.cache.get(&key("a")).is_none()).await;
            assert_eq!(scene.told(), ["-a red"]);
        })
        .await;
}

/// How many requests a cache makes in an hour in which requests with this part meet this fault.
async fn requests_in_an_hour(extent: Extent, streamed: bool, part: &str, fault: Fault) -> usize {
    let scene = Scene::of(extent);
    scene.fake.put("a", "red");
    if !streamed {
        scene.fake.without_streamed_lists();
    }
    let _want = (extent == Extent::Wanted).then(|| scene.cache.want(&key("a")));
    scene.fake.fault_for_ever(part, fault);
    scene.run(tokio::time::sleep(Duration::from_secs(3600))).await;
    scene.fake.log().len()
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_that_fail_for_an_hour_are_asked_for_rarely() {
    const PATH: &str = "GET /api/v1/persistentvolumeclaims";
    let gone = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "gone"});
    let expired = || Fault::Refused(410, gone.clone(), None);
    let in_stream = || Fault::Said(200, EXPIRED_EVENT);
    let answers = [
        ("500", 500, "{}"),
        ("502", 502, "<html>bad gateway</html>"),
        ("unreadable", 200, "<html>welcome</html>\n"),
        ("ended at once", 200, ""),
    ];
    for extent in [Extent::All, Extent::Wanted] {
        for streamed in [true, false] {
            for (name, code, body) in answers {
                let asked = requests_in_an_hour(extent, streamed, PATH, Fault::Said(code, body)).await;
                assert!((20..600).contains(&asked), "{name} {extent:?} {streamed}: {asked} requests in an hour");
            }
        }
        // Only the watch from a revision fails; each list before it succeeds.
        let watch = "&resourceVersion=";
        for (name, fault) in [("410", &expired as &dyn Fn() -> Fault), ("410 in the stream", &in_stream)] {
            let asked = requests_in_an_hour(extent, false, watch, fault()).await;
            assert!((20..600).contains(&asked), "{name} {extent:?}: {asked} requests in an hour");
        }
    }
}

const EXPIRED_EVENT: &str = "{\"type\":\"ERROR\",\"object\":{\"status\":\"Failure\",\"code\":410,\"reason\":\"Expired\",\"message\":\"gone\"}}\n";
