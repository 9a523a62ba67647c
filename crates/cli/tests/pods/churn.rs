//! Programs are killed at random moments while a user makes and deletes pods and claims. In the end every pod has its volume
//! with what was written to it, and what was deleted is gone without a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::cluster::{Cluster, Role};
use super::{namespace, objects};
use crate::api_rig::{Random, seed};
use crate::needs;
use crate::rig::skip;

const NODES: usize = 3;
/// Claims at a time.
const CLAIMS: usize = 9;
/// Milliseconds between two things that the user does, and between two kills, at most.
const USER_PAUSE: u64 = 200;
const KILLER_PAUSE: u64 = 900;
const CHURN: Duration = Duration::from_secs(20);

/// A claim as its user knows it.
#[derive(Debug)]
struct Claim {
    node: usize,
    /// What was written to its volume last.
    written: Option<String>,
    pod: Option<Pod>,
}

#[derive(Debug)]
struct Pod {
    name: String,
    /// Where its volume was seen mounted. It never goes away before the pod is deleted.
    mounted: Option<PathBuf>,
}

struct Churn {
    cluster: Cluster,
    random: Random,
    claims: BTreeMap<String, Claim>,
    made: usize,
    checked: usize,
    kills: BTreeMap<Role, usize>,
}

impl Churn {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.below(limit as u64)).unwrap()
    }

    fn new_name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{:03}", self.made)
    }

    /// A claim for which this holds, by chance.
    fn any(&mut self, wanted: impl Fn(&Claim) -> bool) -> Option<String> {
        let fitting: Vec<String> =
            self.claims.iter().filter(|(_, claim)| wanted(claim)).map(|(name, _)| name.clone()).collect();
        if fitting.is_empty() { None } else { Some(fitting[self.below(fitting.len())].clone()) }
    }

    async fn make_claim(&mut self) {
        let (name, node) = (self.new_name("claim"), self.below(NODES));
        self.cluster.create(objects::CLAIMS, &objects::claim(&name, &self.cluster.nodes[node])).await;
        self.claims.insert(name.clone(), Claim { node, written: None, pod: None });
        self.make_pod(&name).await;
    }

    async fn make_pod(&mut self, claim: &str) {
        let name = self.new_name("pod");
        let node = &self.cluster.nodes[self.claims[claim].node];
        self.cluster.create(objects::PODS, &objects::pod(&name, node, &objects::of_claim(claim))).await;
        self.claims.get_mut(claim).unwrap().pod = Some(Pod { name, mounted: None });
    }

    async fn delete_pod(&mut self, claim: &str) {
        if let Some(pod) = self.claims.get_mut(claim).unwrap().pod.take() {
            self.cluster.delete(&format!("{}/{}", objects::PODS, pod.name)).await;
        }
    }

    /// The claim may be deleted before its pod, and has to wait for it then.
    async fn delete_claim(&mut self, claim: &str) {
        let path = format!("{}/{claim}", objects::CLAIMS);
        if self.below(2) == 0 {
            self.cluster.delete(&path).await;
            self.delete_pod(claim).await;
        } else {
            self.delete_pod(claim).await;
            self.cluster.delete(&path).await;
        }
        self.claims.remove(claim);
    }

    /// Reads and writes through every mount that a pod has.
    async fn use_pods(&mut self) {
        let pods = self.cluster.list(objects::PODS).await;
        let claims = self.cluster.list(objects::CLAIMS).await;
        for name in self.claims.keys().cloned().collect::<Vec<_>>() {
            let volume = named(&claims, &name).and_then(|claim| claim["spec"]["volumeName"].as_str());
            self.use_pod(&name, volume, &pods).await;
        }
    }

    async fn use_pod(&mut self, name: &str, volume: Option<&str>, pods: &[Value]) {
        let content = format!("{name} {}", self.random.below(u64::MAX));
        let claim = self.claims.get_mut(name).unwrap();
        let node = &self.cluster.nodes[claim.node];
        let Some(pod) = &mut claim.pod else { return };
        let table = node.namespace.mounts();
        let is_mounted = |target: &PathBuf| table.at(target).next().is_some();
        if let Some(target) = &pod.mounted
            && !is_mounted(target)
        {
            panic!("{} of {} disappeared\n{}", target.display(), pod.name, self.cluster.account().await);
        }
        let Some(object) = named(pods, &pod.name).filter(|pod| objects::is_ready(pod)) else { return };
        let uid = object["metadata"]["uid"].as_str().expect("it has one");
        let target = node.target(uid, volume.expect("a pod that is ready has a volume"));
        assert!(is_mounted(&target), "{} says that it is ready, and {} is no mount", pod.name, target.display());
        let file = node.namespace.see(&target).join("data");
        let found = std::fs::read_to_string(&file).ok();
        assert_eq!(found, claim.written, "{name} through {}", pod.name);
        let mut out = File::create(&file).unwrap();
        out.write_all(content.as_bytes()).unwrap();
        out.sync_all().unwrap();
        claim.written = Some(content);
        pod.mounted = Some(target);
        self.checked += 1;
    }

    /// One thing that a user does.
    async fn step(&mut self) {
        match self.below(10) {
            0..4 if self.claims.len() < CLAIMS => self.make_claim().await,
            4 | 5 => {
                if let Some(claim) = self.any(|claim| claim.pod.is_some()) {
                    self.delete_pod(&claim).await;
                }
            }
            6 => {
                if let Some(claim) = self.any(|claim| claim.pod.is_none()) {
                    self.make_pod(&claim).await;
                }
            }
            7 => {
                if let Some(claim) = self.any(|_| true) {
                    self.delete_claim(&claim).await;
                }
            }
            _ => self.use_pods().await,
        }
    }

    fn kill(&mut self) {
        for ended in self.cluster.revive() {
            println!("ended by itself: {ended}");
        }
        let roles = Role::all(NODES);
        let role = roles[self.below(roles.len())];
        self.cluster.kill(role);
        *self.kills.entry(role).or_default() += 1;
    }

    async fn run(&mut self, time: Duration) {
        let started = Instant::now();
        let mut next_kill = started;
        while started.elapsed() < time {
            if Instant::now() >= next_kill {
                self.kill();
                next_kill = Instant::now() + Duration::from_millis(self.random.below(KILLER_PAUSE));
            }
            self.step().await;
            tokio::time::sleep(Duration::from_millis(self.random.below(USER_PAUSE))).await;
        }
        println!("{} objects were made, {} mounts were used, killed: {:?}", self.made, self.checked, self.kills);
    }

    /// Every claim gets a pod, and every pod its volume, with what was written to it.
    async fn settle(&mut self) {
        if self.claims.is_empty() {
            self.make_claim().await;
        }
        while let Some(claim) = self.any(|claim| claim.pod.is_none()) {
            self.make_pod(&claim).await;
        }
        let wanted: Vec<String> =
            self.claims.values().filter_map(|claim| claim.pod.as_ref()).map(|pod| pod.name.clone()).collect();
        let waiting = async |cluster: &Cluster| {
            let pods = cluster.list(objects::PODS).await;
            let ready = |name: &String| named(&pods, name).is_some_and(objects::is_ready);
            wanted.iter().filter(|name| !ready(name)).cloned().collect()
        };
        self.cluster.until("every pod is ready", waiting).await;
        let before = self.checked;
        self.use_pods().await;
        assert_eq!(self.checked - before, self.claims.len(), "every volume was read");
    }

    async fn end(mut self) {
        // Who finds nothing in the end must find something now.
        let found = self.cluster.left().await;
        for what in ["mount on", "file on", "/dev/loop", objects::ATTACHMENTS, objects::VOLUMES] {
            assert!(found.iter().any(|line| line.starts_with(what)), "no {what} in {found:?}");
        }
        for claim in self.claims.keys().cloned().collect::<Vec<_>>() {
            self.delete_claim(&claim).await;
        }
        self.cluster.until("nothing is left", Cluster::left).await;
    }
}

fn named<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["metadata"]["name"] == name)
}

fn churn_time() -> Duration {
    match std::env::var("ORLOP_PODS_CHURN") {
        Ok(text) => runtime::args::parse_duration(&text).expect("ORLOP_PODS_CHURN is a duration such as 60s"),
        Err(_) => CHURN,
    }
}

/// Whatever dies and whenever, a running pod keeps its mount, every pod gets one in the end, and pods and claims that
/// go leave no object, mount, loop device, directory or image.
/// Rules: NODE-30, NODE-31
#[tokio::test]
async fn programs_killed_at_random_moments_serve_every_pod_keep_its_data_and_leave_nothing() {
    needs!(Ext4);
    if let Some(why) = namespace::missing() {
        return skip("pods::churn", why);
    }
    let random = Random::new(seed("ORLOP_PODS_SEED"));
    let cluster = Cluster::start(NODES).await;
    let mut churn = Churn { cluster, random, claims: BTreeMap::new(), made: 0, checked: 0, kills: BTreeMap::new() };
    churn.run(churn_time()).await;
    churn.settle().await;
    churn.end().await;
}
