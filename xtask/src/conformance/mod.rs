//! `cargo xtask conformance`: the outside world's opinion of what we built.
//!
//! The suites: `descriptors` (the official .proto files), `sanity` (csi-sanity over the whole run matrix), `authority` (a
//! grpc-go client that sends a socket path as `:authority`), `api` (the API server's checklist and kubectl), `differential`
//! (kube-apiserver on the same requests), `claims` (from claim to volume beside Kubernetes' own programs), `pods` (from volume
//! to pod beside them), `existing` (`orlop up` on such a cluster) and `registration` (the Go registrar with our agent). None
//! needs anything installed before but Go, which fetches its modules itself.

mod api;
mod authority;
mod claims;
mod descriptors;
mod differential;
mod driver;
mod existing;
mod facts;
pub(crate) mod golang;
mod kubectl;
mod peers;
mod pods;
mod registration;
mod sanity;

use anyhow::bail;

pub(crate) use driver::{Driver, Launch, Mode, tail};
pub(crate) use sanity::{Profile, build};

use crate::kubernetes::Beside;
use crate::report::{Ending, Report};
use golang::Go;

/// What `cargo xtask conformance` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    suite: Option<Suite>,
    /// Succeed without running anything where Go is missing.
    #[arg(long, global = true)]
    allow_missing_go: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Suite {
    /// Compare our .proto files with the official ones.
    Descriptors(descriptors::Args),
    /// Run csi-sanity against `orlop driver`.
    Sanity(sanity::Args),
    /// Run a grpc-go client against `orlop driver`.
    Authority,
    /// Run the API server's checklist and the real kubectl against `orlop api`.
    Api,
    /// Hold kubectl's transcripts against `orlop api` and kube-apiserver, with the kubectl of the pinned release.
    Kubectl,
    /// Build all pinned Kubernetes programs and say where they are.
    Peers,
    /// Send the same requests to `orlop api` and to kube-apiserver and compare the answers.
    Differential(differential::Args),
    /// Take claims to volumes on a real kube-apiserver, beside kube-controller-manager, kube-scheduler and a Go driver.
    Claims(claims::Args),
    /// Bring volumes to pods on a real kube-apiserver, beside kube-scheduler, with others' programs in the places of ours.
    Pods(pods::Args),
    /// Run `orlop up` on a cluster that has kube-apiserver, kube-controller-manager and kube-scheduler.
    Existing(existing::Args),
    /// Let the Go node-driver-registrar register a driver with our agent.
    Registration(registration::Args),
}

pub(crate) async fn run(Args { suite, allow_missing_go }: Args) -> anyhow::Result<()> {
    let Some(go) = Go::find() else {
        if allow_missing_go {
            println!("skipped: all conformance suites: there is no `go` on the path");
            return Ok(());
        }
        bail!(
            "the conformance suites need Go, and there is no `go` on the path; install it, or pass --allow-missing-go to do without"
        );
    };
    println!("{}", go.version());
    let mut report = Report::default();
    match suite {
        Some(Suite::Descriptors(args)) => report.section("descriptors", || descriptors::run(&go, &args)),
        Some(Suite::Sanity(args)) => sanity::run(&go, &args, &mut report).await?,
        Some(Suite::Authority) => authority(&mut report).await,
        Some(Suite::Api) => api(&mut report).await,
        Some(Suite::Differential(args)) => differential(&go, &args, &mut report).await,
        Some(Suite::Claims(args)) => claims::run(&go, &args, &mut report).await?,
        Some(Suite::Pods(args)) => pods::run(&go, &args, &mut report).await?,
        Some(Suite::Existing(args)) => existing::run(&go, &args, &mut report).await?,
        Some(Suite::Registration(args)) => registration(&go, &args, &mut report).await,
        Some(Suite::Kubectl) => kubectl(&go, &mut report).await,
        Some(Suite::Peers) => report.section("peers", || kubectl::peers(&go)),
        None => {
            report.section("descriptors", || descriptors::run(&go, &descriptors::Args::default()));
            authority(&mut report).await;
            sanity::run(&go, &sanity::Args::default(), &mut report).await?;
            api(&mut report).await;
            kubectl(&go, &mut report).await;
            differential(&go, &differential::Args::default(), &mut report).await;
            claims::run(&go, &claims::Args::default(), &mut report).await?;
            pods::run(&go, &pods::Args::default(), &mut report).await?;
            existing::run(&go, &existing::Args::default(), &mut report).await?;
            registration(&go, &registration::Args::default(), &mut report).await;
        }
    }
    report.close("conformance")
}

async fn authority(report: &mut Report) {
    let section = Report::begin("authority");
    let ending = authority::run().await;
    report.end(section, ending);
}

async fn api(report: &mut Report) {
    let section = Report::begin("api");
    let ending = api::run().await;
    report.end(section, ending);
}

async fn differential(go: &Go, args: &differential::Args, report: &mut Report) {
    let section = Report::begin("differential");
    let ending = Ending::from(differential::run(go, args).await);
    report.end(section, ending);
}

async fn registration(go: &Go, args: &registration::Args, report: &mut Report) {
    let section = Report::begin("registration");
    let ending = registration::run(go, args).await;
    report.end(section, ending);
}

async fn kubectl(go: &Go, report: &mut Report) {
    let section = Report::begin("kubectl");
    let ending = Ending::from(kubectl::run(go).await);
    report.end(section, ending);
}

/// Ends only if one of the programs does.
async fn any_died(programs: &mut [Beside]) -> anyhow::Error {
    let deaths = programs.iter_mut().map(|program| Box::pin(program.died()));
    futures_util::future::select_all(deaths).await.0
}
