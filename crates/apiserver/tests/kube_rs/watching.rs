//! Watches, watchers in both modes, reflectors, and waiting for a condition.

use std::pin::pin;
use std::time::Duration;

use apiserver::store::History;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event as StoredEvent;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::events::{Event as Told, EventType, Recorder, Reporter};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use crate::server::{Server, map, pod};

#[tokio::test(start_paused = true)]
async fn a_watch_tells_every_change_and_a_dropped_one_is_gone_from_the_server() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let list = maps.list(&ListParams::default()).await.expect("maps can be listed");
    let from = list.metadata.resource_version.expect("a list has a version");
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(maps.watch(&WatchParams::default(), &from).await.expect("watches open").boxed());
    }
    assert_eq!(server.api.open_watches(), 20);
    maps.create(&PostParams::default(), &map("m")).await.expect("a map is made");
    let patch = Patch::Merge(json!({"data": {"a": "1"}}));
    maps.patch("m", &PatchParams::default(), &patch).await.expect("patched");
    maps.delete("m", &DeleteParams::default()).await.expect("deleted");
    for watch in &mut watches {
        let mut kinds = Vec::new();
        while kinds.len() < 3 {
            kinds.push(match watch.try_next().await.expect("the watch goes on") {
                Some(WatchEvent::Added(_)) => "added",
                Some(WatchEvent::Modified(_)) => "modified",
                Some(WatchEvent::Deleted(_)) => "deleted",
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(kinds, ["added", "modified", "deleted"]);
    }
    watches.truncate(5);
    assert_eq!(server.api.open_watches(), 5);
    drop(watches);
    assert_eq!(server.api.open_watches(), 0);
}

/// The next events of a watcher in short.
async fn briefs(
    watch: &mut (impl futures_util::Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin),
    count: usize,
) -> Vec<String> {
    let mut briefs = Vec::new();
    while briefs.len() < count {
        briefs.push(match watch.try_next().await.expect("the watcher goes on") {
            Some(Event::Init) => "init".to_owned(),
            Some(Event::InitApply(map)) => format!("found {}", map.name_any()),
            Some(Event::InitDone) => "done".to_owned(),
            Some(Event::Apply(map)) => format!("applied {}", map.name_any()),
            Some(Event::Delete(map)) => format!("deleted {}", map.name_any()),
            None => panic!("a watcher does not end"),
        });
    }
    briefs
}

#[tokio::test(start_paused = true)]
async fn watchers_see_the_same_by_list_and_watch_by_pages_and_by_streaming_lists() {
    let plain = watcher::Config::default().fields("metadata.namespace=default");
    let modes = [plain.clone(), plain.clone().page_size(1), plain.clone().any_semantic(), plain.streaming_lists()];
    for mode in modes {
        let server = Server::start().await;
        let maps: Api<ConfigMap> = Api::all(server.client());
        let own: Api<ConfigMap> = Api::default_namespaced(server.client());
        for name in ["a", "b"] {
            own.create(&PostParams::default(), &map(name)).await.expect("a map is made");
        }
        let mut watch = pin!(watcher(maps, mode));
        assert_eq!(briefs(&mut watch, 4).await, ["init", "found a", "found b", "done"]);
        own.delete("a", &DeleteParams::default()).await.expect("deleted");
        own.create(&PostParams::default(), &map("c")).await.expect("a map is made");
        assert_eq!(briefs(&mut watch, 2).await, ["deleted a", "applied c"]);
        // Past several time-outs of the watch: it goes on from where it was, and nothing is told twice.
        let next = async { tokio::time::timeout(Duration::from_secs(3600), watch.next()).await };
        next.await.expect_err("nothing happens for an hour");
        own.create(&PostParams::default(), &map("d")).await.expect("a map is made");
        assert_eq!(briefs(&mut watch, 1).await, ["applied d"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_history_has_left_behind_lists_again() {
    let history = History { min_age_millis: 1_000, min_events: 0, ..History::default() };
    let server = Server::with_history(history).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut watch = pin!(watcher(maps.clone(), watcher::Config::default()).default_backoff());
    let mut next = async || watch.next().await.expect("a watcher does not end");
    assert!(matches!(next().await, Ok(Event::Init)));
    assert!(matches!(next().await, Ok(Event::InitDone)));
    // More than a watch takes out of history at once, and nobody reads until all of it is forgotten.
    for number in 0..200 {
        maps.create(&PostParams::default(), &map(&format!("m{number}"))).await.expect("a map is made");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (mut refused, mut found) = (0, 0);
    loop {
        match next().await {
            Err(watcher::Error::WatchError(status)) => {
                assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
                refused += 1;
            }
            Ok(Event::InitApply(_)) => found += 1,
            Ok(Event::InitDone) => break,
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((refused, found), (1, 200));
}

#[tokio::test(start_paused = true)]
async fn a_reflector_holds_what_the_server_holds() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    maps.create(&PostParams::default(), &map("a")).await.expect("a map is made");
    let (store, writer) = reflector::store();
    let watch = watcher(maps.clone(), watcher::Config::default().streaming_lists());
    let mirror = tokio::spawn(reflector(writer, watch).for_each(async |event| drop(event.expect("it goes on"))));
    store.wait_until_ready().await.expect("the mirror lives");
    for name in ["b", "c"] {
        maps.create(&PostParams::default(), &map(name)).await.expect("a map is made");
    }
    maps.delete("b", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut names: Vec<_> = store.state().iter().map(|map| map.name_any()).collect();
    names.sort();
    assert_eq!(names, ["a", "c"]);
    mirror.abort();
    assert!(mirror.await.expect_err("it was stopped").is_cancelled());
    assert_eq!(server.api.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_can_wait_for_a_condition_and_for_a_deletion() {
    let server = Server::start().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let created = pods.create(&PostParams::default(), &pod("p")).await.expect("a pod is made");
    let running = tokio::spawn(await_condition(pods.clone(), "p", conditions::is_pod_running()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!running.is_finished());
    let patch = Patch::Merge(json!({"status": {"phase": "Running"}}));
    pods.patch_status("p", &PatchParams::default(), &patch).await.expect("its status can be set");
    running.await.expect("no panic").expect("the pod runs");
    let uid = created.uid().expect("objects have uids");
    pods.delete("p", &DeleteParams::default()).await.expect("deleted");
    await_condition(pods, "p", conditions::is_deleted(&uid)).await.expect("the pod is gone");
}

#[tokio::test(start_paused = true)]
async fn recorded_events_are_counted_up_and_expire() {
    let server = Server::start().await;
    let client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let about = maps.create(&PostParams::default(), &map("m")).await.expect("a map is made").object_ref(&());
    let reporter = Reporter { controller: "tester".to_owned(), instance: Some("tester-0".to_owned()) };
    let recorder = Recorder::new(client.clone(), reporter);
    for _ in 0..3 {
        let told = Told {
            type_: EventType::Warning,
            reason: "ProvisioningFailed".to_owned(),
            note: Some("no space".to_owned()),
            action: "Provision".to_owned(),
            secondary: None,
        };
        recorder.publish(&told, &about).await.expect("events can be written");
    }
    let events: Api<StoredEvent> = Api::default_namespaced(client.clone());
    let list = events.list(&ListParams::default()).await.expect("events can be listed").items;
    let counts: Vec<_> = list.iter().map(|event| event.series.as_ref().map(|series| series.count)).collect();
    assert_eq!(counts, [Some(3)], "{list:?}");
    let core: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(client);
    let list = core.list(&ListParams::default().fields("involvedObject.name=m")).await.expect("the other view");
    assert_eq!(
        list.items.iter().filter_map(|event| event.reason.as_deref()).collect::<Vec<_>>(),
        ["ProvisioningFailed"]
    );
    tokio::time::sleep(Duration::from_secs(3_700)).await;
    assert!(events.list(&ListParams::default()).await.expect("events can be listed").items.is_empty());
}
