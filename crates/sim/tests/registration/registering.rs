//! One socket after another: NODE-3.3 to NODE-3.5, NODE-30.17 to NODE-30.21, NODE-31.11, NODE-31.14, NODE-31.31,
//! NODE-32.1 to NODE-32.4.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::keys::annotation;
use api::{Key, Kind, Node};
use csi::registration::PluginInfo;
use node::registry::Standing;
use serde_json::json;
use sim::faults::{Action, Ask, Fate, Fates, Refusal, Verdict};
use tokio::time::sleep;
use tonic::Code;

use crate::plugins::{Log, info};
use crate::stage::{GRACE, NODE, Stage, at_every_request, play, play_with, registry};

const SOCKET: &str = "/reg/d-reg.sock";
const ENDPOINT: &str = "/csi/d.sock";

fn zone(stage: &Stage, driver: &str, endpoint: &str) -> crate::plugins::Driver {
    let made = stage.shelf.driver(driver, endpoint);
    made.with().topology.insert("example.com/zone".to_owned(), "a".to_owned());
    made
}

/// Rules: NODE-32.1, NODE-3.4
#[test]
fn info_then_node_then_csinode_then_registered() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let driver = zone(stage, "d", ENDPOINT);
        driver.with().limit = 7;
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered", async || socket.is_registered()).await;
        let log = stage.log();
        let at = |words: &str| {
            log.iter().rposition(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {log:?}"))
        };
        assert!(at("NodeGetInfo") < at("PATCH /api/v1/nodes/node-1"), "{log:?}");
        assert!(at("PATCH /api/v1/nodes/node-1") < at("PATCH /apis/storage.k8s.io/v1/csinodes/node-1"), "{log:?}");
        assert!(at("PATCH /apis/storage.k8s.io/v1/csinodes/node-1") < at("Notify(true)"), "{log:?}");
        let node = stage.user.our(Kind::NODE).await;
        assert_eq!(node["metadata"]["labels"]["example.com/zone"], "a");
        assert_eq!(node["metadata"]["annotations"][annotation::NODE_IDS.text()], r#"{"d":"machine-7"}"#);
        let csi_node = stage.user.our(Kind::CSI_NODE).await;
        let entry = json!([{"name": "d", "nodeID": "machine-7", "topologyKeys": ["example.com/zone"],
            "allocatable": {"count": 7}}]);
        assert_eq!(csi_node["spec"]["drivers"], entry);
        assert_eq!(csi_node["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
        let registered = stage.drivers().get("d").expect("operations can use it");
        assert_eq!(registered.node_id, "machine-7");
        assert!(registered.driver.facts().is_some(), "it is connected");
        let metrics = stage.registry().plugins();
        assert_eq!(metrics[0].standing, Standing::Used);
    });
}

/// Rules: NODE-3.4, NODE-4.3
#[test]
fn a_driver_comes_and_goes_at_every_fault() {
    at_every_request(&registry(), async |stage: &Stage| {
        stage.user.node(json!({"own": "x"})).await;
        zone(stage, "d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("it is listed", async || stage.user.listed().await == ["d"]).await;
        stage.user.until("registered", async || socket.is_registered()).await;
        assert_eq!(stage.user.our(Kind::NODE).await["metadata"]["labels"]["example.com/zone"], "a");
        stage.shelf.take(SOCKET);
        stage.user.until("it is not listed", async || stage.user.listed().await.is_empty()).await;
        let clean = async || {
            let node = stage.user.our(Kind::NODE).await;
            let ours = [annotation::NODE_IDS.text(), annotation::TOPOLOGY_LABELS.text()];
            ours.iter().all(|key| node["metadata"]["annotations"][key].is_null())
                && node["metadata"]["labels"] == json!({"own": "x"})
        };
        stage.user.until("nothing is left on the node", clean).await;
        assert!(stage.drivers().get("d").is_none());
    });
}

/// Rule: NODE-31.14
#[test]
fn a_registrar_that_restarts_is_not_missed_by_anybody() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        zone(stage, "d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered", async || socket.is_registered()).await;
        let writes = stage.writes("csinodes/node-1");
        stage.shelf.take(SOCKET);
        sleep(GRACE / 2).await;
        assert!(stage.drivers().get("d").is_some(), "operations go on");
        assert_eq!(stage.registry().plugins()[0].standing, Standing::Leaving);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("registered again", async || socket.is_registered()).await;
        sleep(GRACE * 2).await;
        assert_eq!(stage.writes("csinodes/node-1"), writes, "CSINode never changed: {:?}", stage.log());
        assert!(stage.drivers().get("d").is_some());
    });
}

/// Rules: NODE-3.2, NODE-3.3, NODE-30.17, NODE-31.11
#[test]
fn a_socket_made_again_is_registered_again_and_its_backoff_starts_anew() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let driver = zone(stage, "d", ENDPOINT);
        driver.with().failing.extend([Code::Internal; 12]);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("it failed often", async || socket.refusals().len() >= 9).await;
        assert!(socket.refusals()[0].contains("not in the mood"), "{:?}", socket.refusals());
        assert!(matches!(stage.registry().plugins()[0].standing, Standing::Failed { .. }));
        driver.with().failing.clear();
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        sleep(Duration::from_secs(2)).await;
        assert!(socket.is_registered(), "not after two minutes, but at once");
    });
}

/// Rules: NODE-3.5, NODE-31.14, NODE-32.2
#[test]
fn of_two_sockets_the_newest_is_used_and_the_other_when_it_goes() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let one = zone(stage, "d", "/csi/one.sock");
        let two = zone(stage, "d", "/csi/two.sock");
        (one.with().node_id, two.with().node_id) = ("one".to_owned(), "two".to_owned());
        let first = stage.shelf.offer("/reg/one-reg.sock", info("d", "/csi/one.sock"));
        stage.user.until("the first is registered", async || first.is_registered()).await;
        let second = stage.shelf.offer("/reg/two-reg.sock", info("d", "/csi/two.sock"));
        stage.user.until("the second is registered", async || second.is_registered()).await;
        let used = || stage.drivers().get("d").map(|registered| registered.node_id.clone());
        assert_eq!(used().as_deref(), Some("two"));
        assert!(first.refusals().is_empty() && second.refusals().is_empty());
        let standings: Vec<Standing> = stage.registry().plugins().into_iter().map(|plugin| plugin.standing).collect();
        assert_eq!(standings, [Standing::Standby, Standing::Used]);
        let said = async |id: &str| stage.user.our(Kind::CSI_NODE).await["spec"]["drivers"][0]["nodeID"] == *id;
        stage.user.until("CSINode says two", async || said("two").await).await;
        stage.shelf.take("/reg/two-reg.sock");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(used().as_deref(), Some("one"), "at once, not after the grace");
        stage.user.until("CSINode says one", async || said("one").await).await;
        stage.shelf.take("/reg/one-reg.sock");
        stage.user.until("nobody is left", async || stage.user.listed().await.is_empty()).await;
    });
}

/// Rules: NODE-3.4, NODE-3.5
#[test]
fn what_cannot_be_registered_is_told_why() {
    let csi = || info("d", ENDPOINT);
    let rows: [(PluginInfo, &str); 5] = [
        (PluginInfo { r#type: "DevicePlugin".to_owned(), ..csi() }, "DevicePlugin"),
        (PluginInfo { supported_versions: vec![], ..csi() }, "no supported version"),
        (PluginInfo { supported_versions: vec!["0.3.0".to_owned(), "2.0.0".to_owned()], ..csi() }, "0.3.0"),
        (PluginInfo { name: String::new(), ..csi() }, "name of a driver"),
        (PluginInfo { name: "another".to_owned(), ..csi() }, "\"d\" answers"),
    ];
    for (bad, words) in rows {
        play(&registry(), async |stage: &Stage| {
            stage.user.node(json!({})).await;
            stage.shelf.driver("d", ENDPOINT);
            let socket = stage.shelf.offer(SOCKET, bad);
            stage.user.until("it is refused", async || !socket.refusals().is_empty()).await;
            assert!(socket.refusals()[0].contains(words), "{words}: {:?}", socket.refusals());
            assert!(stage.drivers().names().is_empty());
            assert_eq!(stage.user.our(Kind::NODE).await["metadata"]["annotations"], json!(null));
        });
    }
}

/// Rule: NODE-3.4
#[test]
fn without_an_endpoint_the_registration_socket_is_the_drivers() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        stage.shelf.driver("d", SOCKET);
        let socket = stage.shelf.offer(SOCKET, info("d", ""));
        stage.user.until("registered", async || socket.is_registered()).await;
    });
}

/// Rules: NODE-4.3, NODE-32.4
#[test]
fn a_topology_collision_is_told_and_ends_when_the_label_is_put_right() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({"example.com/zone": "b"})).await;
        zone(stage, "d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("it is refused", async || !socket.refusals().is_empty()).await;
        let refusal = &socket.refusals()[0];
        assert!(refusal.contains("example.com/zone") && refusal.contains("\"b\""), "{refusal}");
        assert!(stage.drivers().get("d").is_none() && stage.user.listed().await.is_empty());
        let node = stage.user.our(Kind::NODE).await;
        assert!(node["metadata"]["annotations"][annotation::NODE_IDS.text()].is_null());
        let right = json!({"metadata": {"labels": {"example.com/zone": "a"}}});
        stage.user.patch(Kind::NODE, &Key::cluster(NODE), right).await;
        stage.user.until("registered", async || socket.is_registered()).await;
    });
}

/// Rule: NODE-31.31
#[test]
fn a_registrar_that_is_slow_to_start_costs_no_backoff() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        stage.shelf.driver("d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        *socket.deaf.lock().expect("nobody panicked") = 2;
        sleep(Duration::from_secs(4)).await;
        assert!(socket.is_registered() && socket.refusals().is_empty());
    });
}

/// Rules: NODE-3.4, NODE-30.19
#[test]
fn a_plugin_that_does_not_hear_that_it_is_registered_is_not() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        stage.shelf.driver("d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        *socket.forgetful.lock().expect("nobody panicked") = 1;
        stage.user.until("it was told in vain", async || stage.log().contains(&"Notify(true)".to_owned())).await;
        assert!(stage.drivers().get("d").is_none());
        stage.user.until("registered", async || socket.is_registered()).await;
        assert!(stage.drivers().get("d").is_some());
    });
}

/// Rule: NODE-30.18
#[test]
fn a_socket_that_goes_while_its_driver_is_asked_is_not_registered() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let driver = zone(stage, "d", ENDPOINT);
        driver.with().slow = Duration::from_secs(60);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        stage.user.until("the driver is asked", async || stage.writes("NodeGetInfo") == 1).await;
        stage.shelf.take(SOCKET);
        sleep(Duration::from_secs(300)).await;
        assert!(stage.drivers().names().is_empty() && stage.user.listed().await.is_empty(), "{:?}", stage.log());
        assert!(!socket.is_registered() && stage.writes("Notify(true)") == 0);
    });
}

/// Rule: NODE-30.18
#[test]
fn a_socket_that_goes_while_it_is_told_is_deregistered_after_the_grace() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        zone(stage, "d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        *socket.slow.lock().expect("nobody panicked") = Duration::from_secs(3);
        stage.user.until("it is being told", async || stage.writes("Notify(true)") == 1).await;
        stage.shelf.take(SOCKET);
        stage.user.until("nobody is left", async || stage.user.listed().await.is_empty()).await;
        assert!(stage.drivers().names().is_empty());
    });
}

/// Rules: NODE-1, NODE-3.4, NODE-30.19
#[test]
fn a_plugin_that_needs_more_than_five_seconds_to_hear_it_is_not_registered() {
    play(&registry(), async |stage: &Stage| {
        stage.user.node(json!({})).await;
        zone(stage, "d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        *socket.slow.lock().expect("nobody panicked") = Duration::from_secs(6);
        stage.user.until("it is being told", async || stage.writes("Notify(true)") == 1).await;
        sleep(Duration::from_secs(4)).await;
        assert!(stage.drivers().get("d").is_some(), "it is usable while it is told");
        sleep(Duration::from_millis(1_200)).await;
        assert!(stage.drivers().get("d").is_none(), "NODE-30.19");
        *socket.slow.lock().expect("nobody panicked") = Duration::ZERO;
        let done = async || socket.is_registered() && stage.drivers().get("d").is_some();
        stage.user.until("registered", done).await;
    });
}

/// Somebody else is faster, this many times.
struct Contested(u32);

impl Fates for Contested {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        match ask.action == Action::Update && self.0 > 0 {
            true => {
                self.0 -= 1;
                Fate::Refused(Refusal::Conflict).into()
            }
            false => Fate::Answered.into(),
        }
    }
}

/// Rule: NODE-30.21
#[test]
fn many_drivers_at_once_are_all_announced_however_often_others_are_faster() {
    let log = Log::default();
    play_with(&registry(), Contested(9), &log, async |stage: &Stage| {
        stage.user.node(json!({})).await;
        let names: Vec<String> = (10..30).map(|number| format!("d{number}")).collect();
        let mut sockets = Vec::new();
        for name in &names {
            let endpoint = format!("/csi/{name}.sock");
            let driver = stage.shelf.driver(name, &endpoint);
            driver.with().topology.insert(format!("example.com/{name}"), "a".to_owned());
            sockets.push(stage.shelf.offer(&format!("/reg/{name}-reg.sock"), info(name, &endpoint)));
        }
        stage.user.until("all are registered", async || sockets.iter().all(|socket| socket.is_registered())).await;
        let mut listed = stage.user.listed().await;
        listed.sort();
        assert_eq!(listed, names);
        let node = stage.user.our(Kind::NODE).await;
        let ids: serde_json::Value =
            serde_json::from_str(node["metadata"]["annotations"][annotation::NODE_IDS.text()].as_str().expect("ids"))
                .expect("JSON");
        for name in &names {
            assert_eq!(ids[name], "machine-7");
            assert_eq!(node["metadata"]["labels"][format!("example.com/{name}")], "a");
        }
        assert!(sockets.iter().all(|socket| socket.refusals().is_empty()), "nobody is refused for it");
    });
}

/// While it is dark, no request of the agent is answered.
#[derive(Clone)]
struct Dark(Arc<AtomicBool>);

impl Fates for Dark {
    fn request(&mut self, ask: &Ask<'_>) -> Verdict {
        match self.0.load(Ordering::Relaxed) && ask.action != Action::Watch {
            true => Fate::Refused(Refusal::Unavailable { seconds: 1 }).into(),
            false => Fate::Answered.into(),
        }
    }
}

/// Rule: NODE-23
#[test]
fn without_the_api_server_drivers_are_used_and_a_registration_waits() {
    let (dark, log) = (Arc::new(AtomicBool::new(true)), Log::default());
    play_with(&registry(), Dark(dark.clone()), &log, async |stage: &Stage| {
        stage.user.node(json!({})).await;
        stage.shelf.driver("d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        sleep(Duration::from_secs(300)).await;
        assert!(stage.drivers().get("d").is_some(), "volumes can be taken down");
        assert!(!socket.is_registered() && socket.refusals().is_empty(), "nobody is refused for an API server's sake");
        dark.store(false, Ordering::Relaxed);
        stage.user.until("registered", async || socket.is_registered()).await;
    });
}

/// Rules: NODE-4.2, NODE-30.20
#[test]
fn without_a_node_a_registration_waits_and_a_new_node_gets_its_own_csinode() {
    play(&registry(), async |stage: &Stage| {
        stage.shelf.driver("d", ENDPOINT);
        let socket = stage.shelf.offer(SOCKET, info("d", ENDPOINT));
        sleep(Duration::from_secs(60)).await;
        assert!(!socket.is_registered() && stage.user.our(Kind::CSI_NODE).await.is_null());
        stage.user.node(json!({})).await;
        stage.user.until("registered", async || socket.is_registered()).await;
        stage.user.delete::<Node>(&Key::cluster(NODE)).await;
        let uid = stage.user.node(json!({})).await["metadata"]["uid"].clone();
        let anew = async || {
            let csi_node = stage.user.our(Kind::CSI_NODE).await;
            csi_node["metadata"]["ownerReferences"][0]["uid"] == uid && csi_node["spec"]["drivers"][0]["name"] == "d"
        };
        stage.user.until("CSINode belongs to the new node", anew).await;
    });
}
