//! From the flags and files that kubectl's users have to a client and a namespace.

use std::path::Path;

use anyhow::Context as _;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// A client, and the namespace to look in unless another is given.
pub(crate) async fn connect(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<(kube::Client, String)> {
    let mut config = configuration(file, context).await?;
    // Repeating is for the client on top, which knows what was asked.
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let url = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).with_context(|| format!("making a client for {url}"))?;
    Ok((client, namespace))
}

/// A client, and the certificate of the authority that it trusts, in DER.
pub(crate) async fn with_authority(file: Option<&Path>) -> anyhow::Result<(kube::Client, Option<Vec<u8>>)> {
    let mut config = configuration(file, None).await?;
    config.default_retry = false;
    let authority = config.root_cert.as_ref().and_then(|chain| chain.first().cloned());
    let url = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).with_context(|| format!("making a client for {url}"))?;
    Ok((client, authority))
}

async fn configuration(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let kubeconfig = match file {
        Some(path) => {
            Kubeconfig::read_from(path).with_context(|| format!("reading the kubeconfig {}", path.display()))?
        }
        None => match Kubeconfig::read() {
            Ok(kubeconfig) => kubeconfig,
            // Without a file and without a wish for one of its contexts, this may be a pod.
            Err(error) if context.is_none() && is_absent(&error) => {
                let advice = "no cluster: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account";
                return Config::incluster().context(advice);
            }
            Err(error) => return Err(error).context("reading the kubeconfig"),
        },
    };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.context("using the kubeconfig")
}

fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}
