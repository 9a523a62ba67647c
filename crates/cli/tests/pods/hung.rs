//! A mount that does not answer stops nothing but itself, and is named.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cluster::{Cluster, Role};
use super::silent::Silent;
use super::{namespace, objects};
use crate::needs;
use crate::rig::skip;

impl Cluster {
    async fn pod(&self, name: &str) -> Option<Value> {
        let (code, pod) = self.say(("GET", &format!("{}/{name}", objects::PODS)), None).await;
        (code == 200).then_some(pod)
    }

    /// A pod with a claim of the same name.
    async fn make_both(&self, name: &str) {
        let node = &self.nodes[0];
        self.create(objects::CLAIMS, &objects::claim(name, node)).await;
        self.create(objects::PODS, &objects::pod(name, node, &objects::of_claim(name))).await;
    }

    async fn delete_both(&self, name: &str) {
        self.delete(&format!("{}/{name}", objects::PODS)).await;
        self.delete(&format!("{}/{name}", objects::CLAIMS)).await;
    }

    async fn until_ready(&mut self, name: &str) {
        let waiting = async |cluster: &Cluster| match cluster.pod(name).await.is_some_and(|pod| objects::is_ready(&pod))
        {
            true => Vec::new(),
            false => vec![name.to_owned()],
        };
        self.until(&format!("{name} is ready"), waiting).await;
    }

    async fn until_gone(&mut self, name: &str) {
        let waiting = async |cluster: &Cluster| cluster.pod(name).await.map(|_| name.to_owned()).into_iter().collect();
        self.until(&format!("{name} is gone"), waiting).await;
    }

    /// Waits until `orlop explain` says of a pod that this path does not answer, and what to do about it.
    async fn until_named(&mut self, pod: &str, path: &Path) {
        let words = [&*path.display().to_string(), "does not answer", "node/hung", "FUSE daemon has to come back"];
        let unnamed = async |cluster: &Cluster| {
            let said = cluster.explain(&format!("pod/{pod}"));
            match words.iter().all(|word| said.contains(word)) {
                true => Vec::new(),
                false => vec![said],
            }
        };
        self.until(&format!("the hung path of {pod} is named"), unnamed).await;
    }

    /// Where the volume of a claim is mounted in the pod of the same name.
    async fn target(&self, name: &str) -> PathBuf {
        let pod = self.pod(name).await.expect("it is there");
        let (_, claim) = self.say(("GET", &format!("{}/{name}", objects::CLAIMS)), None).await;
        let volume = claim["spec"]["volumeName"].as_str().expect("it is bound");
        self.nodes[0].target(pod["metadata"]["uid"].as_str().expect("it has one"), volume)
    }
}

/// The agent starts with a published volume that does not answer, and is given a path that does not.
/// Rule: NODE-31.9
#[tokio::test]
async fn a_filesystem_that_stops_answering_blocks_nothing_but_itself_and_is_named() {
    needs!(Ext4);
    if let Some(why) = namespace::missing().map(str::to_owned).or_else(Silent::missing) {
        return skip("pods::hung", &why);
    }
    let mut cluster = Cluster::start(1).await;
    cluster.make_both("first").await;
    cluster.until_ready("first").await;
    let covered = cluster.target("first").await;
    let place = cluster.scratch.dir("silent");
    let servers = [&covered, &place].map(|point| Silent::mount(&cluster.nodes[0].namespace, point));

    cluster.kill(Role::Agent(0));
    let source = json!({"hostPath": {"path": place, "type": "Directory"}});
    cluster.create(objects::PODS, &objects::pod("hung", &cluster.nodes[0], &source)).await;
    cluster.make_both("second").await;
    cluster.until_ready("second").await;
    cluster.delete_both("second").await;
    cluster.until_gone("second").await;

    cluster.until_named("hung", &place).await;
    cluster.until_named("first", &covered).await;

    // A filesystem without a server answers, though only with errors.
    drop(servers);
    cluster.delete(&format!("{}/hung", objects::PODS)).await;
    cluster.delete_both("first").await;
    cluster.until("nothing is left", Cluster::left).await;
}

/// While the agent learns what it holds, nothing ends. What was to end meanwhile ends right after.
/// Rules: NODE-22, NODE-30.1
#[tokio::test]
async fn a_pod_without_a_volume_that_was_deleted_while_no_agent_ran_goes_when_one_runs() {
    needs!(Ext4);
    if let Some(why) = namespace::missing() {
        return skip("pods::hung", why);
    }
    let mut cluster = Cluster::start(1).await;
    cluster.make_both("holder").await;
    cluster.until_ready("holder").await;
    cluster.stop(Role::Agent(0));
    let pods = ["early", "late"].map(|name| objects::pod(name, &cluster.nodes[0], &objects::of_claim("none")));
    for (name, pod) in ["early", "late"].iter().zip(&pods) {
        cluster.create(objects::PODS, pod).await;
        cluster.delete(&format!("{}/{name}", objects::PODS)).await;
    }
    cluster.launch(Role::Agent(0));
    cluster.until_gone("early").await;
    cluster.until_gone("late").await;
    cluster.delete_both("holder").await;
    cluster.until("nothing is left", Cluster::left).await;
}
