//! The fault layer with the real `kube::Client` in front and the real API server behind it.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::{Action, Ask, Fair, Fate, Fates, Flow, Refusal, Verdict};
use crate::{Component, Ended, Seed, Setup, World, simulate};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).expect("the object is well formed")
}

fn maps(component: &Component) -> Api<ConfigMap> {
    Api::default_namespaced(component.client())
}

fn in_world<T: Send, F: Future<Output = T>>(scenario: impl FnOnce(World) -> F + Send) -> T {
    simulate(Seed(1), Setup::default(), scenario).expect("a world can be made")
}

/// This fate for the request with this number, and nothing else.
fn only(number: u64, fate: Fate) -> impl Fn(&Ask<'_>) -> Verdict + Send {
    move |ask| if ask.number == number { fate.clone().into() } else { Fate::Answered.into() }
}

#[test]
fn requests_are_told_apart() {
    let ask = |method: &http::Method, uri: &str| {
        let uri = uri.parse().expect("a good address");
        let ask = Ask::new(1, method, &uri);
        (ask.action, ask.goes_on(), ask.takes_any_state())
    };
    use http::Method;
    assert_eq!(ask(&Method::GET, "/api/v1/pods"), (Action::Read, false, false));
    assert_eq!(ask(&Method::GET, "/api/v1/pods?resourceVersion=0&limit=5"), (Action::Read, false, true));
    assert_eq!(ask(&Method::GET, "/api/v1/pods?continue=abc"), (Action::Read, true, false));
    assert_eq!(ask(&Method::GET, "/api/v1/pods?watch=true&resourceVersion=0"), (Action::Watch, false, false));
    assert_eq!(ask(&Method::GET, "/api/v1/pods?watch=1&resourceVersion=7"), (Action::Watch, true, false));
    assert_eq!(ask(&Method::POST, "/api/v1/pods"), (Action::Create, false, false));
    assert_eq!(ask(&Method::PATCH, "/x"), (Action::Update, false, false));
    assert_eq!(ask(&Method::PUT, "/x"), (Action::Update, false, false));
    assert_eq!(ask(&Method::DELETE, "/x"), (Action::Delete, false, false));
}

#[test]
fn a_lost_request_has_no_effect_and_a_lost_answer_has_and_the_client_cannot_tell() {
    in_world(async |world: World| {
        let user = world.component("user", |ask: &Ask<'_>| match ask.number {
            1 => Fate::RequestLost.into(),
            2 => Fate::AnswerLost.into(),
            _ => Fate::Answered.into(),
        });
        let started = Instant::now();
        let before = maps(&user).create(&PostParams::default(), &map("a")).await.expect_err("it is lost");
        assert_eq!(started.elapsed(), Duration::from_secs(30), "clients give up after their patience");
        let after = maps(&user).create(&PostParams::default(), &map("b")).await.expect_err("its answer is lost");
        assert_eq!(before.to_string(), after.to_string());
        assert!(matches!(before, kube::Error::Service(_)));
        assert!(maps(&user).get_opt("a").await.expect("the third request is answered").is_none());
        assert!(maps(&user).get_opt("b").await.expect("the fourth request is answered").is_some());
    });
}

#[test]
fn refusals_are_those_of_the_server_and_change_nothing() {
    let refusals = [
        (Refusal::Conflict, 409, "Conflict", None),
        (Refusal::Gone, 410, "Expired", None),
        (Refusal::TooManyRequests { seconds: 3 }, 429, "TooManyRequests", Some(3)),
        (Refusal::Unavailable { seconds: 2 }, 503, "ServiceUnavailable", Some(2)),
    ];
    for (refusal, code, reason, retry) in refusals {
        in_world(async |world: World| {
            let user = world.component("user", only(1, Fate::Refused(refusal)));
            match maps(&user).create(&PostParams::default(), &map("a")).await {
                Err(kube::Error::Api(status)) => {
                    assert_eq!((status.code, status.reason.as_str()), (code, reason));
                    assert_eq!(status.details.map(|details| details.retry_after_seconds), retry);
                }
                other => panic!("{refusal:?} gave {other:?}"),
            }
            assert!(maps(&user).get_opt("a").await.expect("the second request is answered").is_none());
        });
    }
}

#[test]
fn a_component_dies_before_or_after_its_write() {
    for (fate, written) in [(Fate::CrashBefore, false), (Fate::CrashAfter, true)] {
        in_world(async |world: World| {
            let first = world.component("controller", only(2, fate));
            let left_behind = first.client();
            let ended = first
                .run(async {
                    maps(&first).create(&PostParams::default(), &map("a")).await.expect("the first is answered");
                    maps(&first).create(&PostParams::default(), &map("b")).await
                })
                .await;
            assert!(matches!(ended, Ended::Crashed));
            let leftover = Api::<ConfigMap>::default_namespaced(left_behind);
            let day = Duration::from_secs(86_400);
            tokio::time::timeout(day, leftover.get("a")).await.expect_err("a dead component gets no answers");

            let second = world.component("controller", Fair);
            let found = maps(&second).get_opt("b").await.expect("the next process works");
            assert_eq!(found.is_some(), written);
        });
    }
}

#[test]
fn a_stale_list_shows_an_older_state_and_never_fails_for_it() {
    in_world(async |world: World| {
        let user = world.component("user", Fair);
        maps(&user).create(&PostParams::default(), &map("a")).await.expect("a map is made");
        maps(&user).create(&PostParams::default(), &map("b")).await.expect("a map is made");
        let reader = world.component("reader", |_: &Ask<'_>| Fate::Stale { revisions: 1 }.into());
        let names = async |parameters: ListParams| {
            let list = maps(&reader).list(&parameters).await.expect("lists do not fail");
            list.items.into_iter().filter_map(|map| map.metadata.name).collect::<Vec<_>>()
        };
        assert_eq!(names(ListParams::default().match_any()).await, ["a"], "any state will do");
        assert_eq!(names(ListParams::default()).await, ["a", "b"], "the newest state was asked for");
    });
}

/// Watches of this component meet these flows, one event after the other.
struct Flows(Vec<Flow>);

impl Fates for Flows {
    fn request(&mut self, _: &Ask<'_>) -> Verdict {
        Fate::Answered.into()
    }

    fn event(&mut self, _watch: u64) -> Flow {
        self.0.pop().unwrap_or(Flow::Passes)
    }
}

#[test]
fn held_events_come_late_and_in_order_while_other_watches_go_on() {
    in_world(async |world: World| {
        let user = world.component("user", Fair);
        let slow = world.component("slow", Flows(vec![Flow::Held(Duration::from_secs(40))]));
        let prompt = world.component("prompt", Fair);
        let open = async |component: &Component| {
            let maps = maps(component);
            maps.watch(&WatchParams::default().disable_bookmarks(), "0").await.expect("watches open").boxed()
        };
        let (mut late, mut now) = (open(&slow).await, open(&prompt).await);
        for name in ["a", "b"] {
            maps(&user).create(&PostParams::default(), &map(name)).await.expect("a map is made");
        }
        let started = Instant::now();
        let name = |event| match event {
            Ok(Some(WatchEvent::Added(map))) => <ConfigMap as kube::ResourceExt>::name_any(&map),
            other => panic!("{other:?} is no new map"),
        };
        for expected in ["a", "b"] {
            assert_eq!(name(now.try_next().await), expected);
        }
        assert_eq!(started.elapsed(), Duration::ZERO);
        for expected in ["a", "b"] {
            assert_eq!(name(late.try_next().await), expected);
        }
        assert_eq!(started.elapsed(), Duration::from_secs(40));
        assert_eq!(world.api().open_watches(), 2);
        drop((late, now));
        assert_eq!(world.api().open_watches(), 0, "a dropped stream leaves nothing behind");
    });
}

#[test]
fn streams_end_or_break_as_they_are_told() {
    in_world(async |world: World| {
        let user = world.component("user", Fair);
        maps(&user).create(&PostParams::default(), &map("a")).await.expect("a map is made");
        for (flow, clean) in [(Flow::Ended, true), (Flow::Broken, false)] {
            let reader = world.component("reader", Flows(vec![flow]));
            let watch = maps(&reader).watch(&WatchParams::default(), "0").await.expect("watches open");
            let events: Vec<_> = watch.collect().await;
            assert_eq!(events.iter().all(Result::is_ok), clean, "{events:?}");
        }
        let reader = world.component("reader", |_: &Ask<'_>| Fate::Refused(Refusal::Gone).into());
        let events: Vec<_> =
            maps(&reader).watch(&WatchParams::default(), "1").await.expect("watches open").collect().await;
        assert!(matches!(&events[..], [Ok(WatchEvent::Error(status))] if status.code == 410), "{events:?}");
    });
}

#[test]
fn fields_are_owned_by_the_component_that_wrote_them() {
    in_world(async |world: World| {
        let binder = world.component("binder", Fair);
        let mut first = map("a");
        // Objects that nobody owned a field of from the start are not tracked.
        first.data = Some([("j".to_owned(), "v".to_owned())].into());
        maps(&binder).create(&PostParams::default(), &first).await.expect("a map is made");
        let patch = Patch::Merge(json!({"data": {"k": "v"}}));
        let patched = maps(&binder).patch("a", &PatchParams::default(), &patch).await.expect("it can be patched");
        let managers: Vec<_> =
            patched.metadata.managed_fields.unwrap_or_default().into_iter().filter_map(|entry| entry.manager).collect();
        assert_eq!(managers, ["binder"], "once for create and patch");
        let lines = world.journal().lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].starts_with("00:00:00.000 binder #2 PATCH "), "{lines:?}");
        assert!(lines[1].ends_with("-> 200"), "{lines:?}");
    });
}
