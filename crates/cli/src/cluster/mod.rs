//! What every command that reads a cluster has: the flags to reach it, one look at it, and the forms of an answer.

pub(crate) mod look;
mod measure;
pub(crate) mod output;

use std::path::PathBuf;

use anyhow::bail;
use lifecycle::explain::Listing;
use runtime::time::SystemClock;
use runtime::{Client, Entropy, Metrics, client};

use crate::{process, usage};
pub(crate) use look::Eye;
pub(crate) use measure::MeasureArgs;
pub(crate) use output::OutputArgs;

/// How to reach the cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Path of a kubeconfig. Without it: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Without it: its current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A connection, and the namespace to look in unless another is given.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The connection below it, for what is no object.
    pub(crate) raw: kube::Client,
    pub(crate) namespace: String,
}

impl ClusterArgs {
    /// Connects; the server sees us as `name`.
    pub(crate) async fn connect(&self, name: &str) -> anyhow::Result<Cluster> {
        let found = process::connect::connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
        found.reach().await?;
        let (raw, namespace) = (found.client, found.namespace);
        let options = client::Options { manager: name.to_owned(), ..client::Options::default() };
        let client = Client::new(raw.clone(), options, &Metrics::new(&SystemClock), &Entropy::from_system());
        Ok(Cluster { client, raw, namespace })
    }
}

/// Which namespaces to look at.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ScopeArgs {
    /// Namespace to look at. Without it: the one of the kubeconfig's context.
    #[arg(short, long, value_name = "NAME", value_parser = usage::parse_namespace, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl ScopeArgs {
    /// The namespace, or `None` for all of them.
    pub(crate) fn namespace(&self, cluster: &Cluster) -> Option<String> {
        match self.all_namespaces {
            true => None,
            false => Some(self.namespace.clone().unwrap_or_else(|| cluster.namespace.clone())),
        }
    }
}

/// Without this kind there is nothing to show.
pub(crate) fn readable<T>(listing: &Listing<T>, what: &str) -> anyhow::Result<()> {
    match listing {
        Listing::Seen(_) | Listing::NotAsked => Ok(()),
        Listing::NotAllowed => bail!("you may not list {what} here; give -n NAMESPACE or another --context"),
        Listing::NotServed => bail!("the server does not know {what}"),
        Listing::Failed(why) => bail!("listing {what}: {why}"),
    }
}
