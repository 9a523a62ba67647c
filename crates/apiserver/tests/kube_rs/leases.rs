//! Electing a leader by a lease, with nothing but get, create and replace.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::server::{Server, object};

/// What one candidate knows.
struct Candidate {
    name: &'static str,
    leases: Api<Lease>,
    held: Option<Lease>,
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Leads,
    Follows,
}

impl Candidate {
    fn new(server: &Server, name: &'static str) -> Self {
        Self { name, leases: Api::default_namespaced(server.client()), held: None }
    }

    async fn acquire(&mut self) -> Standing {
        let lease = object(json!({
            "metadata": {"name": "leader"},
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": 15, "leaseTransitions": 0},
        }));
        self.settle(self.leases.create(&PostParams::default(), &lease).await)
    }

    /// Writes the lease as it was last seen, in this candidate's name.
    async fn write(&mut self, mut lease: Lease) -> Standing {
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(self.name) {
            spec.holder_identity = Some(self.name.to_owned());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
        }
        spec.renew_time = Some(object(json!("2027-01-15T08:00:00.000000Z")));
        self.settle(self.leases.replace("leader", &PostParams::default(), &lease).await)
    }

    fn settle(&mut self, outcome: kube::Result<Lease>) -> Standing {
        self.held = match outcome {
            Ok(lease) => Some(lease),
            Err(kube::Error::Api(status)) if status.code == 409 => None,
            Err(error) => panic!("{error}"),
        };
        if self.held.is_some() { Standing::Leads } else { Standing::Follows }
    }
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_renews_and_loses_to_the_one_that_was_faster() {
    let server = Server::start().await;
    let (mut one, mut two) = (Candidate::new(&server, "one"), Candidate::new(&server, "two"));
    assert_eq!(one.acquire().await, Standing::Leads);
    assert_eq!(two.acquire().await, Standing::Follows, "AlreadyExists");

    let held = one.held.clone().expect("one leads");
    assert_eq!(one.write(held.clone()).await, Standing::Leads, "a renewal from the newest state");
    assert_eq!(two.write(held).await, Standing::Follows, "two saw the lease before it was renewed");

    // One stops renewing; two sees no change for longer than the lease lasts, and takes it.
    let seen = two.leases.get("leader").await.expect("the lease is there");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(two.leases.get("leader").await.expect("the lease is there").resource_version(), seen.resource_version());
    let stale = one.held.clone().expect("one believes that it leads");
    assert_eq!(two.write(seen).await, Standing::Leads);
    assert_eq!(one.write(stale).await, Standing::Follows, "one learns it at its next write");

    let leases = two.leases.list(&ListParams::default()).await.expect("leases can be listed").items;
    let spec = leases[0].spec.clone().expect("a lease says who holds it");
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("two"), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_at_once_one_leads() {
    let server = Server::start().await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut first = Candidate::new(&server, "first");
    first.acquire().await;
    let seen = first.held.clone().expect("first leads");
    let mut tasks = tokio::task::JoinSet::new();
    for name in names {
        let (mut candidate, seen) = (Candidate::new(&server, name), seen.clone());
        tasks.spawn(async move { candidate.write(seen).await });
    }
    let standings = tasks.join_all().await;
    assert_eq!(standings.iter().filter(|standing| **standing == Standing::Leads).count(), 1);
}
