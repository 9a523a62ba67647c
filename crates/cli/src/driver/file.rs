//! The configuration file of `orlop driver`: the flags' names with underscores, in TOML.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde::Deserialize;

use super::args::{LogLevel, ModeName, ProvisioningName};
use crate::process::LogFormat;

/// Every key may be missing; an unknown one is an error that names it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    pub(super) endpoints: Option<Vec<String>>,
    pub(super) node_id: Option<String>,
    pub(super) pools: Option<Vec<String>>,
    pub(super) mode: Option<ModeName>,
    pub(super) driver_name: Option<String>,
    pub(super) attach: Option<bool>,
    pub(super) attach_limit: Option<u64>,
    pub(super) init: Option<bool>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) overcommit: Option<f64>,
    pub(super) provisioning: Option<ProvisioningName>,
    pub(super) reserve: Option<String>,
    pub(super) default_fs: Option<String>,
    pub(super) max_volume_size: Option<String>,
    pub(super) freeze_budget: Option<u64>,
    pub(super) socket_mode: Option<String>,
    pub(super) metrics_address: Option<SocketAddr>,
    pub(super) grace: Option<u64>,
    pub(super) log_level: Option<LogLevel>,
    pub(super) log_format: Option<LogFormat>,
}

impl ConfigFile {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the configuration file {}", path.display()))?;
        toml::from_str(&text).map_err(|error| {
            // What the parser calls by the names of our types.
            let said = error.to_string().replace("expected u64", "expected a whole number");
            let said = said.replace("expected f64", "expected a number");
            anyhow!("the configuration file {}: {}", path.display(), said.trim_end())
        })
    }
}
