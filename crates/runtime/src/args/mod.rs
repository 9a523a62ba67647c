//! The flags that the CSI sidecars share (SIDECAR-1.1), as groups to flatten into a command.
//!
//! Names and defaults are upstream's. One default differs: `--kube-api-qps` is 0, no limit. Upstream's 5 requests per
//! second are what makes a sidecar slow; the API server protects itself, and its 429 is obeyed.

mod duration;
mod gates;
mod kubeconfig;
mod listen;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args};

pub use duration::{NotADuration, meant as meant_duration, parse as parse_duration};
pub use gates::{FeatureGates, NotAGate};
pub use kubeconfig::ConfigError;
pub use listen::{NotAnAddress, parse as parse_listen};

use crate::client::{self, Rate};
use crate::keys::NAMESPACE_FILE;
use crate::lease;

/// How to reach the API server.
#[derive(Debug, Clone, Args)]
pub struct KubeArgs {
    /// Path of a kubeconfig. Without it: $KUBECONFIG, then the pod's service account.
    #[arg(long, value_name = "FILE", help_heading = "Kubernetes API")]
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second to the API server; 0 is no limit (the sidecars' default is 5).
    #[arg(long, default_value_t = 0.0, value_name = "N", help_heading = "Kubernetes API")]
    pub kube_api_qps: f64,
    /// Requests that may go at once under --kube-api-qps.
    #[arg(long, default_value_t = 10, value_name = "N", help_heading = "Kubernetes API")]
    pub kube_api_burst: u32,
}

/// Who leads.
#[derive(Debug, Clone, Args)]
pub struct LeaderArgs {
    /// Work only while holding a lease.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_name = "BOOL", help_heading = "Leader election")]
    pub leader_election: bool,
    /// Namespace of the lease. Without it: $POD_NAMESPACE, then the service account's, then `default`.
    #[arg(long, default_value = "", value_name = "NAME", help_heading = "Leader election")]
    pub leader_election_namespace: String,
    /// How long others wait after the leader's last renewal.
    #[arg(long, default_value = "15s", value_parser = parse_duration, value_name = "DURATION",
          help_heading = "Leader election")]
    pub leader_election_lease_duration: Duration,
    /// How long the leader trusts its last renewal.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "DURATION",
          help_heading = "Leader election")]
    pub leader_election_renew_deadline: Duration,
    /// How often the leader renews and the others look.
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "DURATION",
          help_heading = "Leader election")]
    pub leader_election_retry_period: Duration,
    /// Labels for the lease, put there by whoever leads.
    #[arg(long, default_value = "", value_name = "KEY:VALUE,...", help_heading = "Leader election")]
    pub leader_election_labels: Labels,
}

/// What is served for operators.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Address for metrics and health, such as 127.0.0.1:8080; empty for none.
    #[arg(
        long,
        default_value = "",
        value_name = "ADDRESS",
        value_parser = parse_listen,
        conflicts_with = "metrics_address",
        help_heading = "Metrics and health"
    )]
    pub http_endpoint: String,
    /// Deprecated: like --http-endpoint, without the leader-election check.
    #[arg(long, default_value = "", value_name = "ADDRESS", value_parser = parse_listen,
          help_heading = "Metrics and health")]
    pub metrics_address: String,
    /// Path of the metrics.
    #[arg(long, default_value = "/metrics", value_name = "PATH", help_heading = "Metrics and health")]
    pub metrics_path: String,
}

/// How to reach the driver.
#[derive(Debug, Clone, Args)]
pub struct DriverArgs {
    /// The driver's socket: a path, unix:///PATH or tcp://HOST:PORT.
    #[arg(long, default_value = "/run/csi/socket", value_name = "ADDRESS", value_parser = parse_endpoint)]
    pub csi_address: ::csi::Endpoint,
}

/// Flags that change behaviour by name.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Features to switch on or off: Name=true,Other=false.
    #[arg(long, default_value = "", value_name = "NAME=BOOL,...")]
    pub feature_gates: FeatureGates,
}

/// `key:value` pairs with commas between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

/// A text that is not a list of labels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is not a label; write key:value, separated by commas")]
pub struct NotALabel {
    part: String,
}

impl FromStr for Labels {
    type Err = NotALabel;
    fn from_str(text: &str) -> Result<Labels, NotALabel> {
        let mut labels = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once(':') {
                Some((key, value)) if !key.is_empty() => labels.insert(key.to_owned(), value.to_owned()),
                _ => return Err(NotALabel { part: part.to_owned() }),
            };
        }
        Ok(Labels(labels))
    }
}

fn parse_endpoint(text: &str) -> Result<::csi::Endpoint, ::csi::EndpointError> {
    if text.starts_with('/') { format!("unix://{text}").parse() } else { text.parse() }
}

impl KubeArgs {
    /// How the client behaves.
    pub fn client_options(&self, manager: &str) -> client::Options {
        let rate = (self.kube_api_qps > 0.0).then_some(Rate { qps: self.kube_api_qps, burst: self.kube_api_burst });
        client::Options { rate, manager: manager.to_owned(), ..client::Options::default() }
    }

    /// Connects nothing yet; reads where and as whom.
    pub async fn connect(&self) -> Result<kube::Client, ConfigError> {
        kubeconfig::connect(self.kubeconfig.as_deref()).await
    }
}

impl LeaderArgs {
    /// The lease to apply for; `None` if election is off.
    pub fn options(&self, lock: &str, identity: &str) -> Option<lease::Options> {
        self.leader_election.then(|| lease::Options {
            lease_duration: self.leader_election_lease_duration,
            renew_deadline: self.leader_election_renew_deadline,
            retry_period: self.leader_election_retry_period,
            labels: self.leader_election_labels.0.clone(),
            ..lease::Options::new(&self.namespace(), &lease::sanitise(lock), &lease::sanitise(identity))
        })
    }

    /// Whether the times go together, which shows before anything is connected.
    pub fn check(&self) -> Result<(), lease::BadTiming> {
        self.options("lock", "identity").map_or(Ok(()), |options| options.check())
    }

    /// Where the lease is.
    pub fn namespace(&self) -> String {
        let given = Some(self.leader_election_namespace.clone());
        let pod = std::env::var("POD_NAMESPACE").ok();
        let file = || std::fs::read_to_string(NAMESPACE_FILE).ok().map(|text| text.trim().to_owned());
        let filled = |text: &String| !text.is_empty();
        given.filter(filled).or(pod.filter(filled)).or_else(|| file().filter(filled)).unwrap_or("default".to_owned())
    }
}

impl ServeArgs {
    /// Where to listen, and whether the leader-election check belongs there; `None` if nowhere.
    pub fn address(&self) -> Option<(&str, LeaderCheck)> {
        if !self.http_endpoint.is_empty() {
            Some((&self.http_endpoint, LeaderCheck::Served))
        } else if !self.metrics_address.is_empty() {
            Some((&self.metrics_address, LeaderCheck::Omitted))
        } else {
            None
        }
    }
}

/// Whether `/healthz/leader-election` is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderCheck {
    /// It is.
    Served,
    /// The deprecated flag does not offer it.
    Omitted,
}
