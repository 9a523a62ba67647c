//! What a real agent measures, as `orlop top` and `orlop tree` show it.

use std::process::Command;

use serde_json::Value;

use super::cluster::{Cluster, PATIENCE, Role};
use super::objects;
use super::program::Program;
use crate::rig::{cannot_run, skip};

/// `orlop` on the cluster, as JSON.
fn ask(cluster: &Cluster, words: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    let command = command.args(words).args(["-o", "json", "--kubeconfig"]).arg(cluster.scratch.path("api.kubeconfig"));
    let output = command.output().expect("the binary was just built");
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// An agent that tells its numbers, every second, in place of the cluster's own. Gives the address where.
async fn talkative_agent(cluster: &mut Cluster) -> (Program, String) {
    cluster.stop(Role::Agent(0));
    let node = &cluster.nodes[0];
    let mut command = node.namespace.command(env!("CARGO_BIN_EXE_orlop"));
    command.args(["node", "--node-name", &node.name, "--root-dir"]).arg(&node.root).arg("--kubeconfig");
    command.arg(cluster.scratch.path("api.kubeconfig"));
    command.args(["--http-endpoint", "127.0.0.1:0", "--volume-stats-agg-period", "1s"]);
    let agent = Program::launch(&cluster.scratch.path(""), "talkative", command);
    let log = cluster.scratch.path("talkative.log");
    let found = async {
        loop {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let address = said.lines().find_map(|line| line.split("metrics and health http=").nth(1));
            match address {
                Some(address) => return address.trim().to_owned(),
                None => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    let address = tokio::time::timeout(PATIENCE, found).await.expect("it says where it answers");
    (agent, address)
}

#[tokio::test]
async fn how_full_a_volume_is_reaches_top_and_tree() {
    if let Some(why) = cannot_run(&[]) {
        return skip("how_full_a_volume_is_reaches_top_and_tree", &why);
    }
    let mut cluster = Cluster::start(1).await;
    let (_agent, address) = talkative_agent(&mut cluster).await;
    cluster.create(objects::CLAIMS, &objects::claim("data", &cluster.nodes[0])).await;
    let pod = objects::pod("web", &cluster.nodes[0], &objects::of_claim("data"));
    cluster.create(objects::PODS, &pod).await;
    let measured = async |cluster: &Cluster| {
        let top = ask(cluster, &["top", "--metrics", &address]);
        let used = top["claims"][0]["usage"]["usedBytes"].as_u64();
        if used.is_some_and(|used| used > 0) { Vec::new() } else { vec![top.to_string()] }
    };
    cluster.until("the volume is measured", measured).await;

    let top = ask(&cluster, &["top", "--metrics", &address]);
    let claim = &top["claims"][0];
    assert_eq!((&claim["claim"], &claim["nodes"][0]), (&Value::from("data"), &Value::from("n0")), "{top:#}");
    assert!(claim["usage"]["capacityBytes"].as_u64().is_some_and(|bytes| bytes > 32 << 20), "{top:#}");
    let places = &top["places"][0];
    assert_eq!((&places["node"], &places["taken"]), (&Value::from("n0"), &Value::from(1)), "{top:#}");
    let queues = top["queues"].as_array().expect("it is a list");
    assert!(queues.iter().any(|queue| queue["process"] == address.as_str()), "the agent has queues: {top:#}");
    assert_eq!(top["unreachable"], serde_json::json!([]), "what nobody proxies to was told by the agent itself");
    let alone = ask(&cluster, &["top"])["unreachable"].to_string();
    assert!(alone.contains("usage of the volumes on node n0"), "the API alone does not know it: {alone}");

    let tree = ask(&cluster, &["tree", "--metrics", &address]);
    let claim = &tree["claims"][0];
    assert_eq!(claim["usage"]["capacityBytes"], top["claims"][0]["usage"]["capacityBytes"], "{tree:#}");
    let attachment = &claim["below"][0]["below"][0];
    assert_eq!((&attachment["state"], &attachment["node"]), (&Value::from("attached"), &Value::from("n0")), "{tree:#}");
    let web = &attachment["below"][0];
    assert_eq!((&web["name"], &web["state"]), (&Value::from("web"), &Value::from("mounted")), "{tree:#}");
    assert_eq!(tree["settled"], true, "{tree:#}");
}
