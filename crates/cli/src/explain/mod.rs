//! `orlop explain`: why a claim, a volume or a pod's volumes are where they are, on any cluster.
//!
//! What the cluster shows is gathered in `cluster/look.rs` and explained in `lifecycle::explain`, by the functions that the
//! controllers decide with. Nothing is written, and what may not be read is left out and said.

mod render;
mod target;

use std::process::ExitCode;

use anyhow::anyhow;
use api::{Claim, Key, Kind, Namespace, Object, Pod, Volume};
use lifecycle::explain::{self, Explanation};
use runtime::Client;
use runtime::client::{Error, Selection};
use runtime::time::SystemClock;

use crate::cluster::{ClusterArgs, Eye, OutputArgs, ScopeArgs};
use crate::process;
use target::Target;

/// Say why a claim, a volume or a pod waits, with the evidence and what to do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to explain: pvc/NAME, pv/NAME or pod/NAME, or the two words apart. persistentvolumeclaim, claim,
    /// persistentvolume and volume are understood, too.
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    what: Vec<String>,
    #[command(flatten)]
    scope: ScopeArgs,
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
  orlop explain pvc/data -A

Exit codes: 0 all is as it should be, 1 it waits or is stuck, 2 it could not be explained.";

/// More of one name than this are not told apart.
const MOST_NAMESAKES: u32 = 100;

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
        Target::Volume(_) | Target::Pod(_) => {
            Err(anyhow!("{text:?} is no claim: write NAME or pvc/NAME; `orlop explain {text}` tells about it"))
        }
    }
}

async fn explain(args: &Args) -> anyhow::Result<Explanation> {
    let target = Target::parse(&args.what).map_err(|error| anyhow!(error))?;
    let cluster = args.cluster.connect("orlop-explain").await?;
    let (namespace, client) = (args.scope.namespace(&cluster), &cluster.client);
    let eye = Eye::new(client, &SystemClock);
    match target {
        Target::Claim(name) => claim(client, &eye, &key::<Claim>(client, namespace, &name).await?).await,
        Target::Volume(name) => volume(client, &eye, &Key::cluster(&name)).await,
        Target::Pod(name) => pod(client, &eye, &key::<Pod>(client, namespace, &name).await?).await,
    }
}

/// The object of this name: in the namespace, or the only one in all of them.
async fn key<T: Object>(client: &Client, namespace: Option<String>, name: &str) -> anyhow::Result<Key> {
    if let Some(namespace) = namespace {
        return Ok(Key::namespaced(&namespace, name));
    }
    let named = Selection { fields: Some(format!("metadata.name={name}")), ..Selection::default() };
    let found = client.list::<T>(T::KIND, &named, MOST_NAMESAKES, None).await;
    let found = found.map_err(|error| anyhow!(error).context(format!("looking for {} {name}", T::KIND)))?.items;
    match &found[..] {
        [] => Err(anyhow!("there is no {} {name} in any namespace", T::KIND)),
        [one] => Ok(one.meta().key.clone()),
        several => {
            let places: Vec<&str> = several.iter().filter_map(|one| one.meta().key.namespace()).collect();
            Err(anyhow!(
                "there are several {} {name}, in the namespaces {}; say which with -n",
                T::KIND,
                places.join(", ")
            ))
        }
    }
}

/// What there is to say about a claim now.
pub(crate) async fn of_claim(client: &Client, key: &Key) -> anyhow::Result<Explanation> {
    claim(client, &Eye::new(client, &SystemClock), key).await
}

/// What there is to say about a pod's volumes now.
pub(crate) async fn of_pod(client: &Client, key: &Key) -> anyhow::Result<Explanation> {
    pod(client, &Eye::new(client, &SystemClock), key).await
}

async fn claim(client: &Client, eye: &Eye<'_>, key: &Key) -> anyhow::Result<Explanation> {
    match client.get::<Claim>(Kind::CLAIM, key).await {
        Ok(claim) => Ok(explain::claim(&eye.around_claim(&claim).await, &claim)),
        Err(Error::NotFound { .. }) => {
            let seen = explain::missing(&eye.around_missing(key).await, key);
            let lines: String = seen.iter().map(|line| format!("\n  - {line}")).collect();
            let place = key.namespace().unwrap_or_default();
            if lines.is_empty()
                && let Err(Error::NotFound { .. }) =
                    client.get::<Namespace>(Kind::NAMESPACE, &Key::cluster(place)).await
            {
                return Err(anyhow!("there is no namespace {place:?}; `kubectl get namespaces` lists those there are"));
            }
            Err(anyhow!(
                "there is no PersistentVolumeClaim {key}{lines}\n  `orlop tree -n {place}` shows those there are"
            ))
        }
        Err(error) => Err(anyhow!(error).context(format!("reading PersistentVolumeClaim {key}"))),
    }
}

async fn volume(client: &Client, eye: &Eye<'_>, key: &Key) -> anyhow::Result<Explanation> {
    match client.get::<Volume>(Kind::VOLUME, key).await {
        Ok(volume) => Ok(explain::volume(&eye.around_volume(&volume).await, &volume)),
        Err(Error::NotFound { .. }) => {
            Err(anyhow!("there is no PersistentVolume {key}; `kubectl get pv` lists those there are"))
        }
        Err(error) => Err(anyhow!(error).context(format!("reading PersistentVolume {key}"))),
    }
}

async fn pod(client: &Client, eye: &Eye<'_>, key: &Key) -> anyhow::Result<Explanation> {
    match client.get::<Pod>(Kind::POD, key).await {
        Ok(pod) => Ok(explain::pod(&eye.around_pod(&pod).await, &pod)),
        Err(Error::NotFound { .. }) => {
            let place = key.namespace().unwrap_or_default();
            Err(anyhow!("there is no Pod {key}; `kubectl get pods -n {place}` lists those there are"))
        }
        Err(error) => Err(anyhow!(error).context(format!("reading Pod {key}"))),
    }
}
