//! `orlop explain`: why a claim, a volume or a pod's volumes are where they are, on any cluster.
//!
//! What the cluster shows is gathered in `cluster/look.rs` and explained in `lifecycle::explain`, by the functions that the
//! controllers decide with. Nothing is written, and what may not be read is left out and said.

mod render;
mod target;

use std::process::ExitCode;

use anyhow::anyhow;
use api::{Claim, Key, Kind, Pod, Volume};
use lifecycle::explain::{self, Explanation};
use runtime::Client;
use runtime::client::Error;
use runtime::time::SystemClock;

use crate::cluster::{Cluster, ClusterArgs, Eye, OutputArgs};
use crate::process;
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
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop explain pvc/data
  orlop explain pvc data -n shop --context production
  orlop explain pv/pvc-5f7c -o json
  orlop explain pod/web -n shop

Exit codes: 0 all is as it should be, 1 it waits or is stuck, 2 it could not be explained.";

pub(crate) fn run(args: &Args) -> ExitCode {
    process::reported("explain", async {
        let explanation = explain(args).await?;
        args.output.print(&explanation)?;
        Ok(explanation.healthy())
    })
}

/// The name of a claim: NAME, or as `explain` takes it.
pub(crate) fn claim_name(text: &str) -> anyhow::Result<Box<str>> {
    let word = if text.contains('/') { text.to_owned() } else { format!("pvc/{text}") };
    match Target::parse(&[word]).map_err(|error| anyhow!(error))? {
        Target::Claim(name) => Ok(name.into()),
        Target::Volume(_) | Target::Pod(_) => Err(anyhow!("{text:?} is no claim: write NAME or pvc/NAME")),
    }
}

async fn explain(args: &Args) -> anyhow::Result<Explanation> {
    let target = Target::parse(&args.what).map_err(|error| anyhow!(error))?;
    let Cluster { client, namespace, .. } = args.cluster.connect("orlop-explain").await?;
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
