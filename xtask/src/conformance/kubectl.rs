//! kubectl's transcripts once more: with the kubectl of the pinned release, against `orlop api` and against kube-apiserver.
//!
//! `cargo xtask test` compares the transcripts with whatever kubectl the machine has. Here the same golden files are held
//! against a kubectl that we built, and then against the reference server itself, so that they cannot drift from it.

use std::path::Path;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::golang::Go;
use super::{Profile, build};
use crate::disk::Scratch;
use crate::kubernetes::{ControlPlane, Durability, Embedded, Options, Program, Programs};

pub(super) async fn run(go: &Go) -> anyhow::Result<()> {
    let programs = Programs::build(go, &[Program::Etcd, Program::ApiServer, Program::Kubectl])?;
    let kubectl = programs.path(Program::Kubectl)?;
    println!("against orlop api");
    transcripts(kubectl, None).await?;
    println!("against kube-apiserver");
    let scratch = Scratch::make()?;
    // The administrator of `orlop api` is the one of the reference, too: `kubectl auth whoami` is in the transcripts.
    let ours = Embedded::start(&build(Profile::Checked).await?, scratch.path()).await?;
    let options = Options { durability: Durability::InMemoryOnly, client_ca: Some(ours.pki.join("ca.crt")) };
    let mut reference = ControlPlane::start(&programs, scratch.path(), &options).await?;
    reference.endpoint.credential = ours.endpoint.credential.clone();
    let config = scratch.path().join("reference.kubeconfig");
    reference.endpoint.write_kubeconfig(&config)?;
    transcripts(kubectl, Some(&config)).await
}

/// Builds every pinned program, for suites to come and for experiments by hand.
pub(super) fn peers(go: &Go) -> anyhow::Result<()> {
    use Program::{ApiServer, ControllerManager, Etcd, Kubectl, Scheduler};
    let all = [Etcd, ApiServer, ControllerManager, Scheduler, Kubectl];
    let programs = Programs::build(go, &all)?;
    for program in all {
        println!("{}", programs.path(program)?.display());
    }
    Ok(())
}

async fn transcripts(kubectl: &Path, config: Option<&Path>) -> anyhow::Result<()> {
    let mut cargo = Command::from(crate::tools::cargo());
    // One after the other: a server that is shared sees the objects of every transcript.
    cargo.args(["test", "--workspace", "--test", "kubectl", "--", "--test-threads=1", "--nocapture"]);
    cargo.current_dir(crate::root()).env("ORLOP_KUBECTL", kubectl).kill_on_drop(true);
    match config {
        Some(config) => cargo.env("ORLOP_KUBECTL_CONFIG", config),
        None => cargo.env_remove("ORLOP_KUBECTL_CONFIG"),
    };
    let status = cargo.status().await.context("running cargo test")?;
    if status.success() { Ok(()) } else { bail!("the transcripts ended with {status}; see the lines above") }
}
