//! From a flag, the environment or the pod to a client.

use std::path::{Path, PathBuf};

use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file that was named cannot be used.
    #[error("cannot use the kubeconfig {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// Nothing was named and this is not a pod.
    #[error("no API server: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account")]
    Nowhere(#[source] InClusterError),
    /// The configuration was read and no client can be made of it.
    #[error("cannot make a client for {url}")]
    Client {
        /// The server.
        url: String,
        /// Why not.
        source: kube::Error,
    },
}

pub(super) async fn connect(flag: Option<&Path>) -> Result<kube::Client, ConfigError> {
    let named = flag.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned);
    let named = named.or_else(|| std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()).map(PathBuf::from));
    let mut config = match named {
        Some(path) => from_file(path).await?,
        None => Config::incluster().map_err(ConfigError::Nowhere)?,
    };
    // kube repeats writes whose answer was a gateway's timeout; whether that is right is for our callers to decide.
    config.default_retry = false;
    let url = config.cluster_url.to_string();
    kube::Client::try_from(config).map_err(|source| ConfigError::Client { url, source })
}

async fn from_file(path: PathBuf) -> Result<Config, ConfigError> {
    let read = async {
        let kubeconfig = Kubeconfig::read_from(&path)?;
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
    };
    read.await.map_err(|source| ConfigError::File { path: path.clone(), source })
}
