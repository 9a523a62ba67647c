//! Errors as kube tells them apart.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::api::{ListParams, PostParams, WatchParams};
use kube::{Api, ResourceExt as _};

use apiserver::store::History;

use crate::server::{Server, claim, map};

/// Code and reason of a refusal.
fn refusal<T>(outcome: kube::Result<T>) -> (u16, String) {
    match outcome {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        Err(other) => panic!("no answer of the server: {other}"),
        Ok(_) => panic!("nothing was refused"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_absent_there_already_changed_invalid_or_forbidden_is_told_apart() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let post = PostParams::default();
    assert_eq!(refusal(maps.get("m").await), (404, "NotFound".to_owned()));
    let elsewhere: Api<ConfigMap> = Api::namespaced(server.client(), "nowhere");
    assert_eq!(refusal(elsewhere.create(&post, &map("m")).await), (404, "NotFound".to_owned()));

    let made = maps.create(&post, &map("m")).await.expect("a map is made");
    assert_eq!(refusal(maps.create(&post, &map("m")).await), (409, "AlreadyExists".to_owned()));
    let mut changed = made.clone();
    changed.labels_mut().insert("a".to_owned(), "1".to_owned());
    maps.replace("m", &post, &changed).await.expect("the first replacement wins");
    assert_eq!(refusal(maps.replace("m", &post, &changed).await), (409, "Conflict".to_owned()));

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.client());
    let mut bad = claim("c");
    bad.spec.get_or_insert_default().access_modes = Some(vec!["Sometimes".to_owned()]);
    assert_eq!(refusal(claims.create(&post, &bad).await), (422, "Invalid".to_owned()));

    let theirs: Api<ConfigMap> = Api::default_namespaced(server.nobody());
    assert_eq!(refusal(theirs.list(&ListParams::default()).await), (403, "Forbidden".to_owned()));
    let strangers = kube::Client::new(server.api.service(), "default");
    let theirs: Api<ConfigMap> = Api::default_namespaced(strangers);
    assert_eq!(refusal(theirs.get("m").await), (403, "Forbidden".to_owned()), "no credentials are nobody's");
}

#[tokio::test(start_paused = true)]
async fn pages_and_watches_of_a_forgotten_past_are_gone() {
    let history = History { min_age_millis: 0, min_events: 0, ..History::default() };
    let server = Server::with_history(history).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &map(name)).await.expect("a map is made");
    }
    let page = maps.list(&ListParams::default().limit(1)).await.expect("a page can be read");
    let token = page.metadata.continue_.expect("there is more");
    for name in ["d", "e"] {
        maps.create(&PostParams::default(), &map(name)).await.expect("a map is made");
    }
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let next = maps.list(&ListParams::default().limit(1).continue_token(&token)).await;
    assert_eq!(refusal(next), (410, "Expired".to_owned()));

    use futures_util::StreamExt as _;
    let version = page.metadata.resource_version.expect("a list has a version");
    let events: Vec<_> = maps.watch(&WatchParams::default(), &version).await.expect("it opens").collect().await;
    assert!(matches!(&events[..], [Ok(kube::api::WatchEvent::Error(status))] if status.code == 410), "{events:?}");
}
