//! One of three machines is lost for good: it is NotReady, and the two commands of docs/operations.md release what it had.

use api::keys::{label, taint};
use serde_json::{Value, json};

use super::cut::{attachments_of, loops_below, own_name};
use super::site::{CLAIMS, PODS, SERVER, Site, delete, get, gone, make, on_site, ready, until};
use crate::api_rig::ask;

const SECOND: &str = "second";
const THIRD: &str = "third";
const VOLUMES: &str = "/api/v1/persistentvolumes";

#[test]
fn one_of_three_machines_is_lost_for_good_and_two_commands_release_what_it_had() {
    on_site("a lost machine", async |site| lost(&site).await);
}

async fn lost(site: &Site) {
    let third = site.third(THIRD);
    // Twice as long as an agent takes between two renewals.
    let (up, api) = site.up_with(&["--node-monitor-grace-period", "20s"]).await;
    let first = own_name(&api).await;
    let server = format!("https://{SERVER}");
    let join = |name: &str| {
        let token = site.token(&["create", "--node", name]);
        let words = ["--server", &server, "--token", &token, "--node-name", name];
        match name {
            SECOND => site.node("other", &words),
            _ => {
                let mut command = third.orlop(&[&["node"], &words[..]].concat());
                command.arg("--data").arg(&third.data);
                command
            }
        }
    };
    let (second, _) = site.start("node", join(SECOND), "joined").await;
    let (agent, _) = site.start("third-node", join(THIRD), "joined").await;
    for (claim, node) in [("one", &*first), ("two", SECOND), ("three", THIRD)] {
        make(&api, claim, node).await;
    }
    ready(&api, "one").await;
    ready(&api, "two").await;
    let (_, volume) = ready(&api, "three").await;

    // The machine is never heard of again, and nothing on it is put in order.
    drop(agent);
    third_is_lost(&api, &first).await;

    // It is silent: that alone takes nothing away.
    delete(&api, &format!("{PODS}/three")).await;
    delete(&api, &format!("{CLAIMS}/three")).await;
    let pod = get(&api, &format!("{PODS}/three")).await.expect("its machine does not confirm its end");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(attachments_of(&api, &volume).await, 1, "nothing is detached without evidence");

    take_third_out_of_service(&api).await;
    gone(&api, &format!("{PODS}/three")).await;
    gone(&api, &format!("{CLAIMS}/three")).await;
    assert_eq!(attachments_of(&api, &volume).await, 1, "its attacher may yet come back and detach it");
    let held = get(&api, &format!("{VOLUMES}/{volume}")).await.expect("its machine may yet come back and delete it");
    assert_ne!(held["status"]["phase"], "Available", "{held}");

    // kubectl delete node third
    delete(&api, &format!("/api/v1/nodes/{THIRD}")).await;
    gone(&api, &format!("{VOLUMES}/{volume}")).await;
    until("its volume is detached", async || (attachments_of(&api, &volume).await == 0).then_some(())).await;

    // The rest of the cluster works as before, and ends clean.
    make(&api, "four", SECOND).await;
    ready(&api, "four").await;
    for name in ["one", "two", "four"] {
        delete(&api, &format!("{PODS}/{name}")).await;
        delete(&api, &format!("{CLAIMS}/{name}")).await;
    }
    until("no volume is left", async || {
        let volumes = get(&api, VOLUMES).await?;
        volumes["items"].as_array()?.is_empty().then_some(())
    })
    .await;
    second.stop();
    up.stop();
    site.server.assert_empty();
    site.other.assert_empty();
    let disk = third.data.clone();
    drop(third);
    until("the kernel lets go of its disk", async || loops_below(&disk).is_empty().then_some(())).await;
}

/// Waits until the third machine, and no other, is shown as lost.
async fn third_is_lost(api: &kube::Client, first: &str) {
    until("the machine is lost", async || {
        let node = get(api, &format!("/api/v1/nodes/{THIRD}")).await?;
        let said = condition(&node);
        let lost = said["status"] == "Unknown" && said["reason"] == "NodeStatusUnknown";
        let unreachable = taint::UNREACHABLE.text();
        (lost && taints(&node) == [(unreachable, "NoExecute"), (unreachable, "NoSchedule")]).then_some(())
    })
    .await;
    assert_eq!(shown(api, THIRD).await, "NotReady");
    let events = get(api, "/api/v1/events").await.unwrap();
    let told = |event: &Value| event["reason"] == "NodeNotReady" && event["involvedObject"]["name"] == THIRD;
    assert!(events["items"].as_array().unwrap().iter().any(told), "{events}");
    until("the others are well", async || {
        (shown(api, first).await == "Ready" && shown(api, SECOND).await == "Ready").then_some(())
    })
    .await;
}

/// `kubectl taint node third node.kubernetes.io/out-of-service=gone:NoExecute`
async fn take_third_out_of_service(api: &kube::Client) {
    until("the taint is on it", async || {
        let path = format!("/api/v1/nodes/{THIRD}");
        let mut node = get(api, &path).await?;
        let out = json!({"key": taint::OUT_OF_SERVICE.text(), "value": "gone", "effect": "NoExecute"});
        node["spec"]["taints"].as_array_mut()?.push(out);
        // A conflict is tried again, as kubectl does.
        let (code, answer) = ask(api, ("PUT", &path), Some(&node)).await.unwrap();
        assert!(code == 200 || code == 409, "{code} {answer}");
        (code == 200).then_some(())
    })
    .await;
}

fn condition(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == "Ready").unwrap_or_default()
}

/// What `kubectl get nodes` shows as the status of a node.
async fn shown(api: &kube::Client, name: &str) -> &'static str {
    let node = get(api, &format!("/api/v1/nodes/{name}")).await.unwrap();
    assert_eq!(node["metadata"]["labels"][label::HOSTNAME.text()], name);
    match condition(&node)["status"] == "True" {
        true => "Ready",
        false => "NotReady",
    }
}

/// The taints of a node, in order.
fn taints(node: &Value) -> Vec<(&str, &str)> {
    let all = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let taints = all.iter().filter_map(|taint| Some((taint["key"].as_str()?, taint["effect"].as_str()?)));
    let mut taints: Vec<(&str, &str)> = taints.collect();
    taints.sort_unstable();
    taints
}
