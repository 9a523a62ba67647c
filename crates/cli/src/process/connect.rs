//! From the flags and files that kubectl's users have to a client and a namespace, or to a sentence that says what is wrong
//! with them.
//!
//! What a kubeconfig holds is secret: of a file that cannot be read only the place of the mistake is told, never its text.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use runtime::args::ConfigError;

/// A client, where it leads, and the namespace to look in unless another is given.
pub(crate) struct Connection {
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
    url: String,
    /// Who said so: `--kubeconfig FILE`, `KUBECONFIG=FILE`, ...
    origin: String,
}

/// A client, and the certificate of the authority that it trusts, in DER.
pub(crate) async fn with_authority(file: Option<&Path>) -> anyhow::Result<(kube::Client, Option<Vec<u8>>)> {
    let (mut config, origin) = configuration(file, None).await?;
    config.default_retry = false;
    let authority = config.root_cert.as_ref().and_then(|chain| chain.first().cloned());
    let url = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).with_context(|| format!("{origin}: making a client for {url}"))?;
    Ok((client, authority))
}

/// Reads where and as whom; connects nothing yet.
pub(crate) async fn connect(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Connection> {
    let (mut config, origin) = configuration(file, context).await?;
    // Repeating is for the client on top, which knows what was asked.
    config.default_retry = false;
    let (namespace, url) = (config.default_namespace.clone(), config.cluster_url.to_string());
    let client = kube::Client::try_from(config).with_context(|| format!("{origin}: making a client for {url}"))?;
    Ok(Connection { client, namespace, url, origin })
}

impl Connection {
    /// The API server, as people name it: host and port.
    pub(crate) fn server(&self) -> &str {
        self.url.split_once("://").map_or(&*self.url, |(_, rest)| rest).trim_end_matches('/')
    }

    /// Finds out whether anybody answers, before a command asks its own questions and each fails in the same way.
    pub(crate) async fn reach(&self) -> anyhow::Result<()> {
        let Self { url, origin, .. } = self;
        let error = match self.client.apiserver_version().await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 401 => anyhow!(
                "the API server at {url} does not accept the credentials of {origin}: they expired, or are of a cluster \
                 that was made anew; get a new kubeconfig"
            ),
            // Whoever answers so is there, and the command's own questions say the rest.
            Err(kube::Error::Api(_)) => return Ok(()),
            Err(kube::Error::SerdeError(_)) => {
                anyhow!("what answers at {url} is no Kubernetes API server; see {origin}")
            }
            Err(error) => unreachable(&error, url, origin),
        };
        Err(error)
    }
}

fn unreachable(error: &kube::Error, url: &str, origin: &str) -> anyhow::Error {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let last = causes.last().map_or_else(|| error.to_string(), |cause| cause.to_string());
    let why = super::without_codes(&last);
    if why.contains("ertificate") && why.to_lowercase().contains("expired") {
        return anyhow!(
            "the certificate of the server at {url}, where {origin} leads, has expired; it needs a new one"
        );
    }
    if why.contains("ertificate") {
        return anyhow!(
            "the server at {url} is not the one that {origin} means: its certificate was not signed by the authority in \
             there; get a new kubeconfig, or correct the server's address"
        );
    }
    anyhow!(
        "nobody answers at {url}, where {origin} leads: {why}; see that the API server runs, and that this is still its \
             address"
    )
}

async fn configuration(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<(Config, String)> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let named = file.map(Path::to_owned);
    let variable = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
    let (read, origin) = match (&named, &variable) {
        (Some(path), _) => (Kubeconfig::read_from(path), format!("--kubeconfig {}", path.display())),
        (None, Some(paths)) => (Kubeconfig::read(), format!("KUBECONFIG={}", paths.display())),
        (None, None) => (Kubeconfig::read(), "~/.kube/config".to_owned()),
    };
    let kubeconfig = match read {
        Ok(kubeconfig) => kubeconfig,
        // Without a flag and without a wish for a context, this may be a pod.
        Err(error) if named.is_none() && context.is_none() && is_absent(&error) => {
            return match (Config::incluster(), variable) {
                (Ok(config), _) => Ok((config, "the pod's service account".to_owned())),
                (Err(_), Some(_)) => Err(unusable(&error, &origin, None)),
                (Err(_), None) => Err(nowhere()),
            };
        }
        Err(error) => return Err(unusable(&error, &origin, None)),
    };
    match Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await {
        Ok(config) => Ok((config, origin)),
        Err(error) => Err(unusable(&error, &origin, Some(&kubeconfig))),
    }
}

fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// The same sentences for the commands that take the sidecars' flags.
pub(crate) fn explained(error: ConfigError, flag: Option<&Path>) -> anyhow::Error {
    match error {
        ConfigError::Nowhere(_) => nowhere(),
        ConfigError::File { path, source } => {
            let by = if flag == Some(&*path) { "--kubeconfig " } else { "KUBECONFIG=" };
            let content = Kubeconfig::read_from(&path).ok();
            unusable(&source, &format!("{by}{}", path.display()), content.as_ref())
        }
        other @ ConfigError::Client { .. } => anyhow!(other),
    }
}

fn nowhere() -> anyhow::Error {
    let first = "no cluster is named: give --kubeconfig FILE or set KUBECONFIG (in a pod, a service account is enough)";
    match left_by_up() {
        Some(file) => anyhow!("{first}\n  orlop up has written one: export KUBECONFIG={}", file.display()),
        None => anyhow!("{first}\n  'orlop up --data DIR' makes a cluster, and writes DIR/kubeconfig"),
    }
}

/// The kubeconfig of an `orlop up` or `orlop api` whose data directory is here or where README puts it.
fn left_by_up() -> Option<PathBuf> {
    let here = std::fs::read_dir(".").into_iter().flatten().filter_map(Result::ok);
    let mut places: Vec<PathBuf> = here.map(|entry| PathBuf::from(entry.file_name())).collect();
    places.sort();
    places.insert(0, PathBuf::new());
    places.push(std::env::temp_dir().join("orlop"));
    let written = |place: &PathBuf| place.join("kubeconfig").is_file() && place.join(crate::data::STORE).is_dir();
    places.into_iter().find(written).map(|place| place.join("kubeconfig"))
}

fn unusable(error: &KubeconfigError, origin: &str, content: Option<&Kubeconfig>) -> anyhow::Error {
    let contexts = || {
        let names: Vec<&str> = content.iter().flat_map(|it| &it.contexts).map(|context| &*context.name).collect();
        if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) }
    };
    let what = match error {
        KubeconfigError::ReadConfig(error, _) if error.kind() == io::ErrorKind::NotFound => match left_by_up() {
            Some(file) => format!("there is no such file; orlop up has written {}", file.display()),
            None => "there is no such file".to_owned(),
        },
        KubeconfigError::ReadConfig(error, _) => {
            format!("it cannot be read: {}", super::without_codes(&error.to_string()))
        }
        KubeconfigError::Parse(error) => {
            let said = error.to_string();
            let place = said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("this is no kubeconfig: {place}")
        }
        KubeconfigError::CurrentContextNotSet if content.is_none_or(|it| it.contexts.is_empty()) => {
            "this is no kubeconfig: it has no contexts".to_owned()
        }
        KubeconfigError::CurrentContextNotSet => {
            format!("no current context; choose one with --context: {}", contexts())
        }
        KubeconfigError::LoadContext(name) => format!("there is no context {name:?}; {}", contexts()),
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("a context names the cluster {name:?}, which is not in there")
        }
        other => super::without_codes(&other.to_string()),
    };
    anyhow!("{origin}: {what}")
}
