//! Two stacks that take turns on one API server and on one kind of driver, so that both see the same machine.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::stack::{Kind, MemoryDriver, Sidecar, Stack};
use crate::conformance::golang::Go;
use crate::disk::Scratch;
use crate::kubernetes::{ControlPlane, Durability, Options, Program, Programs};

/// What a comparison on kube-apiserver needs.
pub(super) const WANTED: [Program; 3] = [Program::Etcd, Program::ApiServer, Program::ControllerManager];

/// Those programs from a folder, or built with Go.
pub(super) fn programs(folder: Option<&Path>) -> anyhow::Result<Programs> {
    match (folder, Go::find()) {
        (Some(folder), _) => Programs::found_in(folder, &WANTED),
        (None, Some(go)) => Programs::build(&go, &WANTED),
        (None, None) => bail!("there is no `go` on the path to build kube-apiserver; name a folder with --peer"),
    }
}

/// Who takes turns.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    pub(super) orlop: &'a Path,
    pub(super) programs: &'a Programs,
    /// What the peer's stack has beside kube-controller-manager, and whether somebody built it.
    pub(super) sidecar: Option<Sidecar<'a>>,
    pub(super) rounds: usize,
    /// More arguments of the driver.
    pub(super) driver: &'static [&'static str],
}

/// A stack's turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) stack: &'a Stack,
    pub(super) kubeconfig: &'a Path,
}

impl Turns<'_> {
    /// Both stacks on one kube-apiserver; the peer's only if its sidecar is there.
    pub(super) async fn on_cluster<R: fmt::Display>(
        &self,
        work: impl AsyncFn(Turn<'_>) -> anyhow::Result<R>,
    ) -> anyhow::Result<(Vec<R>, Option<Vec<R>>)> {
        let home = Scratch::make_in(&crate::target().join("bench"))?;
        let options = Options { durability: Durability::Synced, client_ca: None };
        let plane = ControlPlane::start(self.programs, home.path(), &options).await?;
        let kubeconfig: PathBuf = home.path().join("cluster.kubeconfig");
        plane.endpoint.write_kubeconfig(&kubeconfig)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for number in 1..=self.rounds {
            ours.push(self.numbered(number, Kind::Ours, &kubeconfig, &work).await?);
            if self.sidecar.is_some() {
                theirs.push(self.numbered(number, Kind::Theirs, &kubeconfig, &work).await?);
            }
        }
        plane.stop().await?;
        Ok((ours, self.sidecar.map(|_| theirs)))
    }

    async fn numbered<R: fmt::Display>(
        &self,
        number: usize,
        kind: Kind,
        kubeconfig: &Path,
        work: &impl AsyncFn(Turn<'_>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let title = match (kind, self.sidecar) {
            (Kind::Theirs, Some(sidecar)) => sidecar.title(),
            _ => "orlop sidecar --with-controllers",
        };
        let round = self.one(kind, kubeconfig, work).await.context(title)?;
        println!("round {number}, {title}: {round}");
        Ok(round)
    }

    /// One stack's turn on some API server, with fresh processes.
    pub(super) async fn one<R>(
        &self,
        kind: Kind,
        kubeconfig: &Path,
        work: &impl AsyncFn(Turn<'_>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        // Sockets need a short path.
        let scratch = Scratch::make()?;
        let mut driver = MemoryDriver::start(self.orlop, self.driver, scratch.path()).await?;
        let stack = match kind {
            Kind::Ours => Stack::ours(self.orlop, kubeconfig, &driver.socket, scratch.path())?,
            Kind::Theirs => {
                let sidecar = self.sidecar.context("the peer's sidecar was not given")?;
                Stack::theirs(self.programs, sidecar, kubeconfig, &driver.socket, scratch.path())?
            }
        };
        let done = tokio::select! {
            done = work(Turn { stack: &stack, kubeconfig }) => done,
            died = driver.died() => Err(died),
        };
        stack.stop().await?;
        done
    }
}
