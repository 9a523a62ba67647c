//! etcd and kube-apiserver on loopback, in a folder of their own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::Command;
use tokio::time::sleep;

use super::endpoint::write_private;
use super::process::Process;
use super::{Client, Credential, Endpoint, Program, Programs, Question};

/// How often a starting server is asked whether it is ready.
const POLL: Duration = Duration::from_millis(50);
/// The administrator's bearer token. Only this machine's loopback can reach the server, and only for the run.
const TOKEN: &str = "admin-of-this-run";

/// The name of whoever signs service-account tokens, as clusters and `orlop api` have it.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Whether etcd waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Every write is on disk before it is answered: for measurements.
    Synced,
    /// Nothing survives a crash: for suites that only compare answers.
    InMemoryOnly,
}

/// How to start the servers.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) durability: Durability,
    /// A CA whose client certificates are accepted too, so that the administrator of another server is one here.
    pub(crate) client_ca: Option<PathBuf>,
}

/// A running etcd and kube-apiserver. Dropping it kills both.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    // Dropped in this order: the API server first, then what it stands on.
    server: Process,
    etcd: Process,
    pub(crate) endpoint: Endpoint,
}

impl ControlPlane {
    /// Starts both with their data in `folder` and waits until the server says that it is ready.
    pub(crate) async fn start(programs: &Programs, folder: &Path, options: &Options) -> anyhow::Result<Self> {
        let [etcd_port, peer_port, port] = free_ports()?;
        let mut etcd = etcd_command(programs, folder, [etcd_port, peer_port])?;
        if options.durability == Durability::InMemoryOnly {
            etcd.arg("--unsafe-no-fsync");
        }
        let etcd = Process::start("etcd", &mut etcd, folder)?;
        let mut command = server_command(programs, folder, [etcd_port, port])?;
        if let Some(ca) = &options.client_ca {
            command.arg("--client-ca-file").arg(ca);
        }
        let mut server = Process::start("kube-apiserver", &mut command, folder)?;
        let endpoint = server.until(ready(folder, port)).await?;
        Ok(Self { server, etcd, endpoint })
    }

    /// The processes of kube-apiserver and of etcd.
    pub(crate) fn pids(&self) -> [Option<u32>; 2] {
        [self.server.pid(), self.etcd.pid()]
    }

    /// Ends only if one of the two does, which is a failure as long as a suite talks to them.
    pub(crate) async fn died(&mut self) -> anyhow::Error {
        tokio::select! {
            error = self.server.died() => error,
            error = self.etcd.died() => error,
        }
    }

    /// SIGTERM to both, the server first.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.server.stop().await?;
        self.etcd.stop().await?;
        Ok(())
    }
}

fn etcd_command(programs: &Programs, folder: &Path, [clients, peers]: [u16; 2]) -> anyhow::Result<Command> {
    let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    let mut command = Command::new(programs.path(Program::Etcd)?);
    command.arg("--data-dir").arg(folder.join("etcd")).args(["--log-level", "warn"]);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}")]);
    Ok(command)
}

fn server_command(programs: &Programs, folder: &Path, [etcd, port]: [u16; 2]) -> anyhow::Result<Command> {
    let tokens = folder.join("tokens.csv");
    write_private(&tokens, &format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
    let (key, public) = (folder.join("service-accounts.key"), folder.join("service-accounts.pub"));
    let pair = rcgen::KeyPair::generate().context("making a key for service accounts")?;
    write_private(&key, &pair.serialize_pem())?;
    write_private(&public, &pair.public_key_pem())?;
    let mut command = Command::new(programs.path(Program::ApiServer)?);
    command.args(["--etcd-servers", &format!("http://127.0.0.1:{etcd}")]);
    command.arg("--cert-dir").arg(folder.join("certificates")).arg("--token-auth-file").arg(&tokens);
    command.args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()]);
    command.args(["--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"]);
    command.args(["--service-account-issuer", ISSUER]);
    command.arg("--service-account-key-file").arg(&public).arg("--service-account-signing-key-file").arg(&key);
    // The server insists on a range for Services although nobody here makes one.
    command.args(["--service-cluster-ip-range", "10.96.0.0/24", "--endpoint-reconciler-type", "none"]);
    command.args(["--profiling=false", "--allow-privileged=true"]);
    Ok(command)
}

/// Waits until the server answers that it is ready, and says how to reach it.
async fn ready(folder: &Path, port: u16) -> Endpoint {
    loop {
        if let Some(endpoint) = certified(folder, port)
            && let Ok(client) = Client::new(&endpoint)
            && let Ok(answer) = client.ask(&Question::get("/readyz")).await
            && answer.status == 200
        {
            return endpoint;
        }
        sleep(POLL).await;
    }
}

/// The server writes its certificate and then that of the authority it made for itself into one file.
fn certified(folder: &Path, port: u16) -> Option<Endpoint> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let chain = fs::read_to_string(folder.join("certificates/apiserver.crt")).ok()?;
    let authority = chain.rfind(BEGIN).filter(|at| *at > 0)?;
    let ca = chain[authority..].to_owned();
    Some(Endpoint { address: format!("https://127.0.0.1:{port}"), ca, credential: Credential::Token(TOKEN.to_owned()) })
}

/// Ports that were free a moment ago; neither program can be asked for port 0 and then say which one it got. They are
/// held together until all are known, so that they differ.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("asking for a free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
