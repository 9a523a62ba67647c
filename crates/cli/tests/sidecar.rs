//! The command line of `orlop sidecar` as people meet it: help, and what is refused before anything is connected.
//!
//! Help is compared with `tests/golden/sidecar_help.txt`; run the test with `UPDATE_GOLDEN=1` to write it anew.

use std::path::Path;
use std::process::{Command, Output};

/// Help wraps to the width of the terminal, and the environment decides what is missing, so both are fixed.
fn sidecar(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.arg("sidecar").args(args).env("COLUMNS", "100");
    for name in ["KUBECONFIG", "NODE_NAME", "NAMESPACE", "POD_NAME", "POD_NAMESPACE"] {
        command.env_remove(name);
    }
    command.output().expect("the binary was just built")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_help_of_sidecar_reads_as_agreed() {
    let output = sidecar(&["--help"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/sidecar_help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &got).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(got == want, "help differs from {}; to accept it, set UPDATE_GOLDEN=1. Now:\n{got}", file.display());
}

/// Rule: PROVISION-2.1
#[test]
fn every_flag_of_the_original_is_accepted() {
    let flags = [
        "--csi-address=/run/none.sock",
        "--leader-election=false",
        "--leader-election-namespace=x",
        "--leader-election-lease-duration=15s",
        "--leader-election-renew-deadline=10s",
        "--leader-election-retry-period=5s",
        "--leader-election-labels=a:b",
        "--kube-api-qps=5",
        "--kube-api-burst=10",
        "--http-endpoint=",
        "--metrics-path=/metrics",
        "--automaxprocs",
        "--feature-gates=Topology=true,CrossNamespaceVolumeDataSource=false,VolumeAttributesClass=true",
        "--timeout=10s",
        "--volume-name-prefix=pvc",
        "--volume-name-uuid-length=-1",
        "--retry-interval-start=1s",
        "--retry-interval-max=5m",
        "--worker-threads=100",
        "--cloning-protection-threads=1",
        "--snapshot-orphan-sweep-interval=5m",
        "--strict-topology",
        "--immediate-topology=false",
        "--extra-create-metadata",
        "--default-fstype=ext4",
        "--controller-publish-readonly",
        "--prevent-volume-mode-conversion=true",
        "--enable-pprof",
        "--enable-capacity=false",
        "--capacity-threads=1",
        "--capacity-poll-interval=1m",
        "--capacity-for-immediate-binding",
        "--capacity-ownerref-level=1",
        "--kube-api-capacity-qps=1",
        "--kube-api-capacity-burst=5",
        "--node-deployment=false",
        "--node-deployment-immediate-binding=true",
        "--node-deployment-base-delay=20s",
        "--node-deployment-max-delay=60s",
        "--v=4",
        "--vmodule=a=1",
        "--logging-format=text",
        "--kubeconfig=/nonexistent/kubeconfig",
    ];
    let output = sidecar(&flags);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    // What changes nothing is said once, with the reason; what has an effect is not.
    let told = |flag: &str| stderr(&output).lines().filter(|line| line.contains(&format!("flag={flag} why="))).count();
    for flag in
        ["--automaxprocs", "--enable-pprof", "--kube-api-capacity-qps", "--kube-api-capacity-burst", "--vmodule"]
    {
        assert_eq!(told(flag), 1, "{flag}: {}", stderr(&output));
    }
    assert_eq!(stderr(&output).matches("has no effect").count(), 5, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("--kubeconfig /nonexistent/kubeconfig: there is no such file"),
        "{}",
        stderr(&output)
    );
}

/// Rule: ATTACHER-3.1
#[test]
fn every_flag_of_the_attacher_is_accepted() {
    let flags = [
        "--csi-address=/run/none.sock",
        "--timeout=15s",
        "--worker-threads=10",
        "--resync=10m",
        "--reconcile-sync=1m",
        "--max-entries=0",
        "--retry-interval-start=1s",
        "--retry-interval-max=5m",
        "--default-fstype=ext4",
        "--max-grpc-log-length=-1",
        "--feature-gates=MutableCSINodeAllocatableCount=true,ReleaseLeaderElectionOnExit=true",
        "--roles=attacher",
        "--kubeconfig=/nonexistent/kubeconfig",
    ];
    let output = sidecar(&flags);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("--kubeconfig /nonexistent/kubeconfig: there is no such file"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_cannot_work_is_said_in_one_line() {
    let rows: [(&[&str], &str); 4] = [
        (&["--node-deployment"], "$NODE_NAME"),
        (&["--enable-capacity"], "$NAMESPACE"),
        (&["--feature-gates", "Nonsense=true"], "Nonsense"),
        (&["--volume-name-prefix", ""], "prefix"),
    ];
    for (args, words) in rows {
        let output = sidecar(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.starts_with("orlop sidecar: ") && said.contains(words), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
