//! `orlop explain`: why a claim, a volume or a pod's volumes are where they are, on any cluster.
//!
//! What the cluster shows is gathered here (`look.rs`) and explained in `lifecycle::explain`, by the functions that the
//! controllers decide with. Nothing is written, and what may not be read is left out and said.

pub(crate) mod look;
mod render;
mod target;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use api::{Claim, Key, Kind, Pod, Volume};
use lifecycle::explain::{self, Explanation};
use runtime::client::Error;
use runtime::time::SystemClock;
use runtime::{Client, Entropy, Metrics, client};

use crate::process;
use look::Eye;
use target::Target;

/// Says why a claim, a volume or a pod's volumes are where they are, with the evidence and what to do about it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to explain: pvc/NAME, pv/NAME or pod/NAME, or the two words apart. persistentvolumeclaim, claim,
    /// persistentvolume and volume are understood, too.
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    what: Vec<String>,
    /// Namespace of the claim or pod. Without it: the one of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Path of a kubeconfig. Without it: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Without it: its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Form of the answer.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Yaml,
}

const EXAMPLES: &str = "\
Examples:
  orlop explain pvc/data
  orlop explain pvc data -n shop --context production
  orlop explain pv/pvc-5f7c -o json
  orlop explain pod/web -n shop

Exit codes: 0 all is as it should be, 1 it waits or is stuck, 2 it could not be explained.";

/// It waits, or is stuck.
const WAITING: u8 = 1;
/// No explanation: no such object, no access, no server.
const FAILED: u8 = 2;

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let explained = process::block_on(async {
        let explanation = explain(args).await?;
        let text = render::render(&explanation, args.output);
        std::io::stdout().write_all(text.as_bytes()).context("writing the answer")?;
        if !explanation.healthy() {
            code = ExitCode::from(WAITING);
        }
        Ok(())
    });
    match explained {
        Ok(()) => code,
        Err(error) => {
            eprintln!("orlop explain: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

async fn explain(args: &Args) -> anyhow::Result<Explanation> {
    let target = Target::parse(&args.what).map_err(|error| anyhow!(error))?;
    let (inner, namespace) = process::connect::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let metrics = Metrics::new(&SystemClock);
    let options = client::Options { manager: "orlop-explain".to_owned(), ..client::Options::default() };
    let client = Client::new(inner, options, &metrics, &Entropy::from_system());
    let eye = Eye::new(&client, &SystemClock);
    match target {
        Target::Claim(name) => {
            let namespace = args.namespace.clone().unwrap_or(namespace);
            claim(&client, &eye, &Key::namespaced(&namespace, &name)).await
        }
        Target::Volume(name) => volume(&client, &eye, &Key::cluster(&name)).await,
        Target::Pod(name) => {
            let namespace = args.namespace.clone().unwrap_or(namespace);
            pod(&client, &eye, &Key::namespaced(&namespace, &name)).await
        }
    }
}

async fn claim(client: &Client, eye: &Eye<'_>, key: &Key) -> anyhow::Result<Explanation> {
    match client.get::<Claim>(Kind::CLAIM, key).await {
        Ok(claim) => Ok(explain::claim(&eye.around_claim(&claim).await, &claim)),
        Err(Error::NotFound { .. }) => {
            let seen = explain::missing(&eye.around_missing(key).await, key);
            let lines: String = seen.iter().map(|line| format!("\n  - {line}")).collect();
            Err(anyhow!("there is no PersistentVolumeClaim {key}{lines}"))
        }
        Err(error) => Err(anyhow!(error).context(format!("reading PersistentVolumeClaim {key}"))),
    }
}

async fn volume(client: &Client, eye: &Eye<'_>, key: &Key) -> anyhow::Result<Explanation> {
    match client.get::<Volume>(Kind::VOLUME, key).await {
        Ok(volume) => Ok(explain::volume(&eye.around_volume(&volume).await, &volume)),
        Err(Error::NotFound { .. }) => Err(anyhow!("there is no PersistentVolume {key}")),
        Err(error) => Err(anyhow!(error).context(format!("reading PersistentVolume {key}"))),
    }
}

async fn pod(client: &Client, eye: &Eye<'_>, key: &Key) -> anyhow::Result<Explanation> {
    match client.get::<Pod>(Kind::POD, key).await {
        Ok(pod) => Ok(explain::pod(&eye.around_pod(&pod).await, &pod)),
        Err(Error::NotFound { .. }) => Err(anyhow!("there is no Pod {key}")),
        Err(error) => Err(anyhow!(error).context(format!("reading Pod {key}"))),
    }
}
