use clap::Parser as _;
use control::capacity::OwnerLevel;
use control::provision::csi::Sweep;

use super::*;

#[derive(Debug, clap::Parser)]
struct Program {
    #[command(flatten)]
    args: Args,
}

fn args(given: &[&str]) -> Args {
    Program::try_parse_from([&["sidecar"], given].concat()).expect("the flags are known").args
}

fn around() -> Surroundings {
    let some = |text: &str| Some(text.to_owned());
    Surroundings { node: some("node-1"), namespace: some("drivers"), pod: some("driver-0") }
}

/// Rule: PROVISION-2.1
#[test]
fn defaults_are_upstreams() {
    let args = args(&[]);
    args.check(&Surroundings::default()).expect("nothing is needed from the environment");
    let options = args.options("c", AttributesGate::On, &Surroundings::default()).expect("defaults are right");
    assert_eq!((options.engine.workers, options.guards.workers), (100, 1));
    assert_eq!(options.engine.backoff, runtime::queue::Backoff::default());
    assert_eq!(options.guards.sweep, Sweep::Every(std::time::Duration::from_secs(300)));
    assert_eq!(options.provisioner.timeout, std::time::Duration::from_secs(10));
    assert!(options.capacity.is_none() && options.provisioner.node.is_none());
}

/// Rule: PROVISION-2.1
#[test]
fn what_the_environment_has_to_say_is_asked_for() {
    let nobody = Surroundings::default();
    let rows: [(&[&str], &str); 3] = [
        (&["--node-deployment"], "$NODE_NAME"),
        (&["--enable-capacity"], "$NAMESPACE"),
        (&["--enable-capacity", "--capacity-ownerref-level=-2"], "-1 or more"),
    ];
    for (given, words) in rows {
        let error = args(given).check(&nobody).expect_err("something is missing");
        assert!(format!("{error:#}").contains(words), "{given:?}: {error:#}");
        if *words == *"$NODE_NAME" || *words == *"$NAMESPACE" {
            args(given).check(&around()).expect("it is all there");
        }
    }
    let podless = Surroundings { pod: None, ..around() };
    assert!(args(&["--enable-capacity"]).check(&podless).is_err());
    let ownerless = args(&["--enable-capacity", "--capacity-ownerref-level", "-1"]);
    ownerless.check(&podless).expect("nobody owns the objects");
    let options = ownerless.options("c", AttributesGate::On, &podless).expect("the flags are right");
    assert_eq!(options.capacity.expect("it is on").owner.level, OwnerLevel::None);
}

/// Rules: ATTACHER-3.1, SIDECAR-14.4
#[test]
fn the_attachers_defaults_are_its_own() {
    let args = args(&[]);
    assert_eq!(args.roles(), [Role::Provisioner, Role::Attacher].into());
    let options = args.attaching();
    assert_eq!((options.workers, options.timeout.as_secs(), options.reconcile.as_secs()), (10, 15, 60));
    assert_eq!((options.max_entries, options.default_fstype.as_str()), (0, ""));
    assert_eq!(options.backoff, runtime::queue::Backoff::default());
}

/// Rule: ATTACHER-3.1
#[test]
fn a_flag_of_both_counts_for_both() {
    let args = args(&["--worker-threads=3", "--timeout=7s", "--default-fstype=xfs", "--max-entries=50"]);
    let (attaching, around) = (args.attaching(), Surroundings::default());
    let provisioning = args.options("c", AttributesGate::On, &around).expect("the flags are right");
    assert_eq!((attaching.workers, provisioning.engine.workers), (3, 3));
    assert_eq!((attaching.timeout, provisioning.provisioner.timeout.as_secs()), (provisioning.provisioner.timeout, 7));
    assert_eq!((attaching.default_fstype.as_str(), attaching.max_entries), ("xfs", 50));
}

/// Rule: SIDECAR-14.4
#[test]
fn each_role_can_be_left_to_others() {
    assert_eq!(args(&["--roles", "attacher"]).roles(), [Role::Attacher].into());
    assert_eq!(args(&["--node-deployment"]).roles(), [Role::Provisioner].into(), "an attacher runs once");
    let per_node = args(&["--node-deployment", "--roles=provisioner,attacher"]);
    let error = per_node.check(&around()).expect_err("an attacher per node cannot work");
    assert!(format!("{error:#}").contains("--roles"), "{error:#}");
}

/// Rule: SIDECAR-1.4
#[test]
fn the_leases_have_upstreams_names() {
    assert_eq!(control::attacher::lock("disk.example.com"), "external-attacher-leader-disk.example.com");
    let facts = Facts {
        name: "disk.example.com".to_owned(),
        version: String::new(),
        capabilities: Default::default(),
        shrunk: Vec::new(),
        connection: 1,
    };
    let nothing = Parts { provisioner: None, attacher: None, controllers: None };
    assert_eq!(nothing.lock(&facts), "external-attacher-leader-disk.example.com", "the attacher alone");
}

/// Rule: SIDECAR-13.42
#[test]
fn flags_that_cannot_work_are_refused_at_the_start() {
    let rows: [(&[&str], &str); 8] = [
        (&["--reconcile-sync", "0s"], "--reconcile-sync"),
        (&["--node-deployment", "--leader-election"], "--leader-election"),
        (&["--feature-gates", "Topologie=true"], "Topologie"),
        (&["--worker-threads", "0"], "--worker-threads"),
        (&["--volume-name-prefix", ""], "prefix"),
        (&["--volume-name-uuid-length", "0"], "uuid-length"),
        (&["--retry-interval-start", "10m"], "--retry-interval-max"),
        (&["--timeout", "0s"], "--timeout"),
    ];
    for (given, words) in rows {
        let error = args(given).check(&around()).expect_err("it cannot work");
        assert!(format!("{error:#}").contains(words), "{given:?}: {error:#}");
    }
}

/// Rule: PROVISION-2.13
#[test]
fn an_instance_per_node_keeps_a_journal_of_its_own() {
    let options =
        args(&["--node-deployment"]).options("c", AttributesGate::On, &around()).expect("the flags are right");
    assert_eq!(options.engine.instance.as_deref(), Some("node-1"));
    let node = options.provisioner.node.expect("it is on");
    assert_eq!((node.name.as_str(), node.base_delay.as_secs(), node.max_delay.as_secs()), ("node-1", 20, 60));
}
