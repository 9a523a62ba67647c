//! The driver is asked what is published where: ATTACHER-3.9.

use std::time::Duration;

use api::Kind;
use control::attacher::Options;
use serde_json::json;
use tonic::Code;

use crate::driver::{Fate, NAME};
use crate::stage::{ATTACHMENT, HANDLE, LISTS, NODE_ID, PUBLISHES, Stage, attachment, node, play, volume};

/// Rules: ATTACHER-3.9, SIDECAR-14.5.12
#[test]
fn a_volume_that_the_driver_lost_is_published_again() {
    play(LISTS, &Options::default(), None, async |stage: Stage| {
        stage.set().await;
        stage.moment().await;
        assert_eq!(stage.driver.counts(), (1, 0));
        stage.driver.with().published.clear();
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(stage.driver.has(HANDLE, NODE_ID) && stage.is_attached().await);
        assert_eq!(stage.driver.counts(), (2, 0), "what agrees is left alone");
    });
}

/// Rules: ATTACHER-3.9, SIDECAR-14.5.12
#[test]
fn a_publication_that_the_status_denies_is_confirmed() {
    play(LISTS, &Options::default(), None, async |stage: Stage| {
        stage.set().await;
        stage.moment().await;
        stage.change(Kind::ATTACHMENT, ATTACHMENT, json!({"status": {"attached": false}})).await;
        stage.wait().await;
        assert!(stage.is_attached().await);
    });
}

/// Rules: ATTACHER-3.7, ATTACHER-3.9
#[test]
fn a_publication_whose_attachment_says_it_is_done_with_is_taken_back() {
    play(LISTS, &Options::default(), None, async |stage: Stage| {
        stage.make(&volume(json!({}))).await;
        stage.make(&node(&[(NAME, NODE_ID)])).await;
        stage.make(&attachment(json!({"metadata": {"finalizers": ["example.com/theirs"]}}))).await;
        stage.moment().await;
        stage.detach().await;
        stage.moment().await;
        assert!(!stage.driver.has(HANDLE, NODE_ID));
        stage.driver.with().published.insert((HANDLE.to_owned(), NODE_ID.to_owned()));
        stage.wait().await;
        assert!(!stage.driver.has(HANDLE, NODE_ID), "{:?}", stage.journal());
    });
}

#[test]
fn a_repetition_that_fails_is_repeated_until_the_driver_agrees() {
    play(LISTS, &Options::default(), None, async |stage: Stage| {
        stage.set().await;
        stage.moment().await;
        stage.driver.with().published.clear();
        stage.driver.with().always = Some(Fate::Fails(Code::Internal));
        tokio::time::sleep(Duration::from_secs(120)).await;
        let status = stage.attachment().await["status"].clone();
        assert_eq!((&status["attached"], &status["attachError"]["errorCode"]), (&json!(true), &json!(13)));
        stage.driver.with().always = None;
        stage.wait().await;
        assert!(stage.driver.has(HANDLE, NODE_ID));
        assert!(stage.attachment().await["status"].get("attachError").is_none());
    });
}

/// Rules: ATTACHER-3.9, SIDECAR-A4
#[test]
fn pages_are_followed_and_a_list_that_fails_changes_nothing() {
    let options = Options { max_entries: 1, ..Options::default() };
    play(LISTS, &options, None, async |stage: Stage| {
        for other in ["a", "b", "z"] {
            stage.driver.with().published.insert((other.to_owned(), "elsewhere".to_owned()));
        }
        stage.set().await;
        stage.moment().await;
        stage.driver.with().lists.clear();
        tokio::time::sleep(Duration::from_secs(61)).await;
        let tokens: Vec<String> = stage.driver.with().lists.iter().map(|list| list.starting_token.clone()).collect();
        assert_eq!(tokens, ["", "1", "2", "3"]);
        assert!(stage.driver.with().lists.iter().all(|list| list.max_entries == 1));
        assert_eq!(stage.driver.counts(), (1, 0), "orphans of nobody's attachment are left alone (SIDECAR-A4)");
        stage.driver.with().list_fails = Some(Code::Internal);
        stage.driver.with().published.clear();
        stage.wait().await;
        assert_eq!(stage.driver.counts(), (1, 0), "a list that failed says nothing");
    });
}

/// Rule: ATTACHER-3.2
#[test]
fn a_driver_that_does_not_say_what_is_published_is_not_asked() {
    play(PUBLISHES, &Options::default(), None, async |stage: Stage| {
        stage.set().await;
        stage.wait().await;
        assert!(stage.driver.with().lists.is_empty() && stage.is_attached().await);
    });
}
