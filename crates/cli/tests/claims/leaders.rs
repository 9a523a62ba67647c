//! Two replicas and one lease: when the leader is killed, the other one goes on.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use super::objects::{claim, name};
use super::program::Program;
use super::stage::{Controllers, Stage, controllers};
use crate::needs;
use crate::rig::skip;

pub(super) const REPLICAS: [&str; 2] = ["replica-a", "replica-b"];

/// Short times, so that a test need not wait long for a lease to run out.
pub(super) fn electing(mut flags: Vec<String>) -> Vec<String> {
    flags.extend(["--leader-election", "--leader-election-lease-duration", "3s"].map(str::to_owned));
    flags.extend(["--leader-election-renew-deadline", "2s"].map(str::to_owned));
    flags.extend(["--leader-election-retry-period", "500ms"].map(str::to_owned));
    flags
}

/// Waits until one of the replicas holds the lease. Gives its place among them.
pub(super) async fn leader(stage: &Stage, lease: &str) -> usize {
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), "default");
    let holder = |lease: Option<&Lease>| {
        let holder = lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.clone())?;
        REPLICAS.iter().position(|replica| holder.starts_with(&format!("{replica}-")))
    };
    let held = stage.until(leases, lease, "held", move |lease: Option<&Lease>| holder(lease).is_some()).await;
    holder(held.as_ref()).unwrap()
}

/// Both replicas of a command; the leader is killed between two claims.
async fn survives(stage: Stage, flags: Vec<String>, lease: &str) {
    let mut replicas = REPLICAS.map(|host| Program::start_on(&stage.scratch.path(""), host, &electing(flags.clone())));
    stage.create_claim(&claim(&stage, "before")).await;
    let before = stage.bound("before").await;
    let first = leader(&stage, lease).await;
    replicas[first].kill();
    stage.create_claim(&claim(&stage, "after")).await;
    let after = stage.bound("after").await;
    assert_ne!(leader(&stage, lease).await, first, "the dead replica still holds the lease");
    for (claim, volume) in [("before", &before), ("after", &after)] {
        stage.delete_claim(claim).await;
        stage.volume_gone(name(volume)).await;
    }
    let [a, b] = replicas;
    if first == 0 {
        b.stop()
    } else {
        a.stop()
    }
    stage.end().await;
}

#[tokio::test]
async fn a_second_sidecar_goes_on_where_the_killed_leader_was() {
    needs!(Ext4);
    let mut stage = Stage::bare().await;
    stage.start_controllers();
    let (flags, lease) = (stage.sidecar_flags(), runtime::lease::sanitise(&stage.driver_name()));
    survives(stage, flags, &lease).await;
}

#[tokio::test]
async fn second_controllers_go_on_where_the_killed_leader_was() {
    needs!(Ext4);
    if controllers() == Controllers::Theirs {
        return skip("claims::leaders", "the controllers of this server are not ours to kill");
    }
    let mut stage = Stage::bare().await;
    stage.start_sidecar();
    let flags = stage.flags("controllers");
    survives(stage, flags, "orlop-controllers").await;
}

#[tokio::test]
async fn two_controllers_of_one_host_do_not_lead_together() {
    if controllers() == Controllers::Theirs {
        return skip("claims::leaders", "the controllers of this server are not ours to start twice");
    }
    let stage = Stage::bare().await;
    let flags = electing(stage.flags("controllers"));
    let programs = ["first", "second"].map(|name| Program::start(&stage.scratch.path(""), name, &flags));
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), "default");
    let renewed = |lease: Option<&Lease>| lease.and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
    let mut last = None;
    // Both look at least once between so many renewals.
    for _ in 0..6 {
        let before = last.clone();
        let changed = move |lease: Option<&Lease>| renewed(lease).is_some() && renewed(lease) != before;
        let held = stage.until(leases.clone(), "orlop-controllers", "renewed", changed).await;
        last = renewed(held.as_ref());
    }
    let led = programs.each_ref().map(|program| program.said("leading lease="));
    assert_eq!(led.iter().sum::<usize>(), 1, "{led:?}");
    programs.into_iter().for_each(Program::stop);
    stage.end().await;
}
