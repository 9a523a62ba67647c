//! One of the servers that are compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::time::sleep;

use crate::bench::memory::settled_rss;
use crate::kubernetes::{Client, ControlPlane, Durability, Embedded, Endpoint, Options, Programs, Question};

/// A running server with its data, and a client that keeps its connections.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) client: Client,
    folder: PathBuf,
    server: Option<Server>,
    program: Kind,
}

#[derive(Debug)]
enum Kind {
    Orlop(PathBuf),
    Kubernetes(Programs),
}

#[derive(Debug)]
enum Server {
    Orlop(Embedded),
    Kubernetes(ControlPlane),
}

impl Server {
    fn endpoint(&self) -> &Endpoint {
        match self {
            Self::Orlop(server) => &server.endpoint,
            Self::Kubernetes(server) => &server.endpoint,
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Orlop(server) => server.stop().await,
            Self::Kubernetes(server) => server.stop().await,
        }
    }
}

impl Kind {
    async fn start(&self, folder: &Path) -> anyhow::Result<Server> {
        Ok(match self {
            Self::Orlop(program) => Server::Orlop(Embedded::start(program, folder).await?),
            Self::Kubernetes(programs) => {
                let options = Options { durability: Durability::Synced, client_ca: None };
                Server::Kubernetes(ControlPlane::start(programs, folder, &options).await?)
            }
        })
    }
}

impl Side {
    pub(super) async fn orlop(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        Self::make("orlop", Kind::Orlop(program.to_owned()), folder).await
    }

    pub(super) async fn kubernetes(programs: Programs, folder: &Path) -> anyhow::Result<Self> {
        Self::make("kube-apiserver", Kind::Kubernetes(programs), folder).await
    }

    async fn make(name: &'static str, program: Kind, folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let server = program.start(folder).await?;
        let client = Client::new(server.endpoint())?;
        Ok(Self { name, client, folder: folder.to_owned(), server: Some(server), program })
    }

    /// Whether this is what we compare ourselves with.
    pub(super) fn is_peer(&self) -> bool {
        matches!(self.program, Kind::Kubernetes(_))
    }

    /// A client with connections of its own.
    pub(super) fn new_client(&self) -> anyhow::Result<Client> {
        Client::new(self.server.as_ref().context("the server did not start again")?.endpoint())
    }

    /// Resident memory of everything that belongs to the server, in megabytes.
    pub(super) async fn rss(&self) -> anyhow::Result<f64> {
        let pids = match self.server.as_ref().context("the server did not start again")? {
            Server::Orlop(server) => vec![server.pid()],
            Server::Kubernetes(server) => server.pids().to_vec(),
        };
        let mut sum = 0.0;
        for pid in pids {
            sum += settled_rss(pid.context("the server ended")?).await?;
        }
        Ok(sum)
    }

    /// Stops the server and starts it on its data. The time is from the start of the process to the first request that
    /// is told it is ready.
    pub(super) async fn restart(&mut self) -> anyhow::Result<Duration> {
        if let Some(server) = self.server.take() {
            server.stop().await?;
        }
        let started = Instant::now();
        let server = self.program.start(&self.folder).await?;
        self.client = Client::new(server.endpoint())?;
        self.server = Some(server);
        while self.client.ask(&Question::get("/readyz")).await?.status != 200 {
            sleep(Duration::from_millis(2)).await;
        }
        Ok(started.elapsed())
    }
}
