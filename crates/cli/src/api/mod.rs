//! `orlop api`: the embedded Kubernetes API server, alone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use apiserver::audit::AuditLog;
use apiserver::auth::{Kubeconfig, Pki, StaticTokens, TokenSigner, UnixSeconds, kubeconfig, write_private};
use apiserver::server::{Limits, TlsKeys, serve, tls};
use apiserver::sources::{Clock, SystemEntropy};
use apiserver::store::{Options, Store, UnixMillis};
use apiserver::{Api, Settings};
use futures_util::FutureExt as _;
use runtime::stop;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::process::LogArgs;
use crate::{data, usage};

/// Who signs service-account tokens, and for whom they are.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Serve the Kubernetes API for storage, without a cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of the objects and of the keys; made if it does not exist.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Loopback address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443", value_parser = usage::parse_address)]
    listen: SocketAddr,

    /// Write a kubeconfig of an administrator to this file, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,

    /// Append a line of JSON per request to this file, who did what and with which outcome; `-` is the standard output.
    /// The file is made readable by its owner only.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    #[command(flatten)]
    log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop api --data ./state --write-kubeconfig ./kubeconfig
  orlop api --data ./state --audit-log ./audit.log
  KUBECONFIG=./kubeconfig kubectl get storageclasses";

pub(crate) fn run(args: Args) -> ExitCode {
    crate::process::ended("api", start(args))
}

fn start(args: Args) -> anyhow::Result<()> {
    if !args.listen.ip().is_loopback() {
        bail!(
            "--listen {}: only loopback addresses are served, such as 127.0.0.1:6443; from elsewhere use ssh -L",
            args.listen
        );
    }
    usage::require_free("--listen", args.listen)?;
    for (flag, file) in [("--write-kubeconfig", &args.write_kubeconfig), ("--audit-log", &args.audit_log)] {
        file.as_deref().map_or(Ok(()), |file| usage::require_parent(flag, file))?;
    }
    args.log.start()?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers()).enable_all().build().context("starting the runtime")?;
    crate::process::to_its_end(&runtime, serve_api(args))
}

/// Threads that answer requests. A long list on one must not hold up all others, and TLS is worth a core or two; more
/// than a few would only wait for the one disk.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 4)
}

async fn serve_api(args: Args) -> anyhow::Result<()> {
    let stop = stop::first_signal()?;
    // Before anything else: a server that cannot note what it does is not started.
    let audit = args.audit_log.as_deref().map(audit_log).transpose()?;
    let server = Server::open(&args.data, args.listen, args.write_kubeconfig.as_deref()).await?;
    tracing::info!(address = %server.address, data = %args.data.display(), "serving");
    server.serve(audit, stop).await?;
    tracing::info!("stopped");
    Ok(())
}

/// The API server: it listens, and answers nobody yet.
pub(crate) struct Server {
    pub(crate) api: Api,
    pub(crate) address: SocketAddr,
    listener: TcpListener,
    /// For other machines.
    machines: Option<TcpListener>,
    keys: TlsKeys,
}

impl Server {
    /// Opens the data directory and takes the address.
    pub(crate) async fn open(data: &Path, listen: SocketAddr, kubeconfig: Option<&Path>) -> anyhow::Result<Self> {
        Self::open_for(data, listen, kubeconfig, None).await
    }

    /// The same, and takes an address for other machines, too: they may join with tokens, and the server's certificate
    /// names it.
    pub(crate) async fn open_for(
        data: &Path,
        listen: SocketAddr,
        kubeconfig: Option<&Path>,
        machines: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let store =
            Store::open(&data.join(data::STORE), Options::default()).map_err(|error| data::advise(error, data))?;
        let now = UnixSeconds(i64::try_from(SystemClock.now().0 / 1000).context("reading the clock")?);
        let names: Vec<String> = machines.iter().map(|address| address.ip().to_string()).collect();
        let pki = Pki::open(&data.join(data::KEYS), &names, now).context("opening the keys")?;
        let signer = TokenSigner::new(&pki.token_key_der(), ISSUER).context("opening the key of the tokens")?;
        let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
        let address = listener.local_addr().context("asking for the address")?;
        let machines = match machines {
            Some(at) => {
                Some(TcpListener::bind(at).await.with_context(|| format!("listening on {at} for other machines"))?)
            }
            None => None,
        };
        let api = Api::start(Settings {
            store,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy::default()),
            signer,
            tokens: StaticTokens::default(),
            address: address.to_string(),
        })
        .await
        .with_context(|| format!("--data {}: its store cannot be prepared", data.display()))?;
        if machines.is_some() {
            api.admit_machines(pki.authority().context("opening the keys")?);
        }
        let keys = TlsKeys {
            // With the authority's own: a machine that joins knows it by its key only.
            chain: vec![pki.server().certificate_der(), pki.ca_der()],
            key: pki.server().key_der(),
            client_ca: pki.ca_der(),
        };
        let noted = data.join(data::ADDRESS);
        note_address(&noted, &format!("{address}\n"))?;
        if let Some(file) = kubeconfig {
            let server = format!("https://{address}");
            let text = self::kubeconfig(&Kubeconfig {
                name: "orlop",
                server: &server,
                ca_pem: pki.ca_pem(),
                client: pki.admin(),
            });
            if !says_already(file, &text) {
                write_private(file, text.as_bytes()).context("writing the kubeconfig")?;
            }
        }
        Ok(Self { api, address, listener, machines, keys })
    }

    /// Where other machines find it.
    pub(crate) fn machines(&self) -> Option<SocketAddr> {
        self.machines.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(self, audit: Option<AuditLog>, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let config = tls(self.keys).context("preparing TLS")?;
        let (going_on, gone) = oneshot::channel::<()>();
        let background = {
            let api = self.api.clone();
            tokio::spawn(async move {
                let ended = api.run().await;
                drop(going_on);
                ended
            })
        };
        let service = match audit {
            Some(log) => self.api.service().audited(Arc::new(log)),
            None => self.api.service(),
        };
        // A server whose store takes no more writes is of no use until it is opened anew, by whoever starts it again.
        let stop = async move {
            tokio::select! {
                () = stop => {}
                _ = gone => {}
            }
        }
        .shared();
        let machines = async {
            match self.machines {
                Some(listener) => {
                    let service = service.clone().without_strangers();
                    serve(listener, config.clone(), service, stop.clone(), Limits::default()).await
                }
                None => Ok(()),
            }
        };
        let own = serve(self.listener, config.clone(), service.clone(), stop.clone(), Limits::default());
        let (own, machines) = tokio::join!(own, machines);
        own.and(machines).context("serving")?;
        let ended = background.await.context("the controllers")?;
        ended.context("it can be started again once its disk takes writes, and has everything that was acknowledged")
    }
}

/// Writes down where the server listens, for `orlop backup`. A full disk does not keep a server from starting: then only
/// that command has to wait.
fn note_address(file: &Path, text: &str) -> anyhow::Result<()> {
    if says_already(file, text) {
        return Ok(());
    }
    match write_private(file, text.as_bytes()) {
        Err(error) if error.source.kind() == std::io::ErrorKind::StorageFull => {
            tracing::warn!(file = %file.display(), "the disk is full: orlop backup cannot find this server until it is restarted");
            Ok(())
        }
        written => written.context("noting the address for orlop backup"),
    }
}

/// Whether a file has this text already, so that a full disk is no reason not to start.
fn says_already(file: &Path, text: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|known| known == text)
}

fn audit_log(path: &Path) -> anyhow::Result<AuditLog> {
    match path.to_str() {
        Some("-") => Ok(AuditLog::to(Box::new(std::io::stdout()))),
        _ => AuditLog::file(path).context("--audit-log"),
    }
}

/// The time of day of this machine.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the edge where the real clock comes in")]
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_can_reach_is_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let data = directory.path().join("data");
        let args = Args {
            data: data.clone(),
            listen: SocketAddr::from(([0, 0, 0, 0], 0)),
            write_kubeconfig: None,
            audit_log: None,
            log: crate::process::flags(&[]).expect("the flags have defaults"),
        };
        let error = start(args).expect_err("the address is refused");
        assert!(error.to_string().contains("only loopback addresses"), "{error}");
        assert!(!data.exists());
    }

    #[test]
    fn an_audit_log_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("audit.log");
        std::fs::write(&path, "").expect("a file can be made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("its mode can be set");
        let error = audit_log(&path).expect_err("the group can read it");
        assert!(format!("{error:#}").contains("can be read by others (mode 640)"), "{error:#}");
        let missing = audit_log(&directory.path().join("none/audit.log")).expect_err("there is no such directory");
        assert!(format!("{missing:#}").contains("cannot be opened for appending"), "{missing:#}");
    }
}
