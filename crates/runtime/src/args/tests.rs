//! Flags as the sidecars take them (SIDECAR-1.1).

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    driver: DriverArgs,
    #[command(flatten)]
    gates: GateArgs,
}

fn parse(flags: &[&str]) -> Result<Program, clap::Error> {
    Program::try_parse_from(std::iter::once("program").chain(flags.iter().copied()))
}

/// Rule: SIDECAR-1.1
#[test]
fn defaults_are_upstreams_but_for_the_rate() {
    let program = parse(&[]).unwrap();
    assert_eq!(program.driver.csi_address.to_string(), "unix:///run/csi/socket");
    assert_eq!(program.leader.leader_election_lease_duration, Duration::from_secs(15));
    assert_eq!(program.leader.leader_election_renew_deadline, Duration::from_secs(10));
    assert_eq!(program.leader.leader_election_retry_period, Duration::from_secs(5));
    assert_eq!(program.leader.options("lock", "me").map(|_| ()), None);
    assert_eq!(program.serve.address(), None);
    assert_eq!(program.kube.client_options("x").rate, None);
}

#[test]
fn booleans_are_set_as_go_sets_them() {
    for (flags, want) in
        [(&["--leader-election"][..], true), (&["--leader-election=true"], true), (&["--leader-election=false"], false)]
    {
        assert_eq!(parse(flags).unwrap().leader.leader_election, want, "{flags:?}");
    }
}

/// Rules: SIDECAR-1.1, SIDECAR-1.4
#[test]
fn the_lock_is_sanitised_and_labelled() {
    let flags = ["--leader-election", "--leader-election-namespace=ns", "--leader-election-labels=a:b,c:d"];
    let options = parse(&flags).unwrap().leader.options("driver.example/x.", "host.name").unwrap();
    assert_eq!((&*options.name, &*options.identity, &*options.namespace), ("driver-example-x-X", "host-name", "ns"));
    assert_eq!(options.labels.len(), 2);
}

/// Rule: SIDECAR-1.1
#[test]
fn both_addresses_are_one_too_many() {
    let error = parse(&["--http-endpoint=:1", "--metrics-address=:2"]).unwrap_err();
    assert!(error.to_string().contains("cannot be used with"), "{error}");
    let program = parse(&["--metrics-address=:2"]).unwrap();
    assert_eq!(program.serve.address(), Some((":2", LeaderCheck::Omitted)));
}

/// Rule: SIDECAR-1.1
#[test]
fn a_rate_is_kept_if_one_is_given() {
    let program = parse(&["--kube-api-qps=5", "--kube-api-burst=10"]).unwrap();
    assert_eq!(program.kube.client_options("x").rate, Some(Rate { qps: 5.0, burst: 10 }));
}
