//! Flags of `orlop driver`, joined with the configuration file into one set of settings.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use driver_local::config::{Attachment, Clock, MissingPool, Role};
use driver_local::record::Provisioning;
use driver_local::{Config, PoolConfig, keys};
use driver_sdk::Mode;
use driver_sdk::csi::{Endpoint, SocketMode};
use linux::fs::FsType;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;

use super::file::ConfigFile;
use crate::process::{LogArgs, LogFormat};

/// Run the local CSI driver: image, raw block and directory volumes in pools.
///
/// A pool is a directory that the driver owns.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_value_name = "COMMAND")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,

    /// Socket to serve on, such as unix:///run/orlop/csi.sock; may be given more than once.
    #[arg(long, env = "CSI_ENDPOINT", value_name = "ENDPOINT")]
    endpoint: Vec<String>,

    /// Name of this node, as the cluster knows it.
    #[arg(long, value_name = "NAME")]
    node_id: Option<String>,

    /// Directory that holds volumes; may be given more than once. Made if missing or empty, unless a pool was there before.
    #[arg(long, value_name = "[NAME=]DIR")]
    pool: Vec<String>,

    /// TOML file with the same settings; a flag overrides it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Which half to serve; two processes may share the pools, one for each half. [default: all]
    #[arg(long, value_enum)]
    mode: Option<ModeName>,

    /// Name of the driver; also part of its topology key. [default: local.csi.orlop.dev]
    #[arg(long, value_name = "NAME")]
    driver_name: Option<String>,

    /// Do not offer attaching: volumes need no ControllerPublishVolume before they are staged.
    #[arg(long, conflicts_with = "attach_limit")]
    no_attach: bool,

    /// Largest number of volumes attached to this node at once. [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    attach_limit: Option<u64>,

    /// Directory in which known pools are remembered. It must not be on the disk of a pool. [default: /var/lib/orlop-driver,
    /// where that can be made]
    #[arg(long, value_name = "DIR", env = "ORLOP_STATE_DIR", hide_env_values = true)]
    state_dir: Option<PathBuf>,

    /// Forget the pool of this directory, which is gone for good, and do nothing else. Its volumes then count as deleted.
    #[arg(long, value_name = "DIR")]
    forget_pool: Option<PathBuf>,

    /// Refuse to make pools: a missing or empty directory may be a disk that is not mounted yet.
    #[arg(long)]
    no_init: bool,

    /// Bytes promised per byte of pool; 1.0 promises no space twice. [default: 1.0]
    #[arg(long, value_name = "RATIO")]
    overcommit: Option<f64>,

    /// Whether images of classes that name no `provisioning` get all their blocks at once. [default: thin in a pool that is a
    /// filesystem of its own, or with --overcommit; thick in a directory of a filesystem that others use, except on btrfs]
    #[arg(long, value_enum, value_name = "HOW")]
    provisioning: Option<ProvisioningName>,

    /// Space of each pool that is never promised, such as 10Gi. [default: 64Mi]
    #[arg(long, value_name = "SIZE")]
    reserve: Option<String>,

    /// Filesystem of volumes that name none: ext4, xfs or btrfs. [default: ext4]
    #[arg(long, value_name = "FS")]
    default_fs: Option<String>,

    /// Largest size a volume may have. [default: 16Ti]
    #[arg(long, value_name = "SIZE")]
    max_volume_size: Option<String>,

    /// Longest time a filesystem may stay frozen for a snapshot, in seconds. [default: 10]
    #[arg(long, value_name = "SECONDS")]
    freeze_budget: Option<u64>,

    /// Permissions of the socket, in octal. [default: 0600]
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<String>,

    /// Loopback address for /metrics and /healthz, such as 127.0.0.1:9810. [default: not served]
    #[arg(long, value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,

    /// How long to finish running calls after a signal to stop, in seconds. [default: 30]
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,

    /// Least important messages to log. [default: info]
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Log")]
    log_level: Option<LogLevel>,

    /// Form of the log: text, or one JSON object per line. [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Log")]
    log_format: Option<LogFormat>,
}

/// What is done to the pools of a driver, which may run.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    AcceptLoss(super::accept::AcceptArgs),
}

/// What "for ever" is for a guard that thaws only if the driver dies.
const FOREVER_SECONDS: u64 = 100 * 365 * 86_400;

const STATE_DIR: &str = "/var/lib/orlop-driver";

const EXAMPLES: &str = "\
Examples:
  One node, one pool:
    orlop driver --endpoint unix:///run/orlop/csi.sock --node-id $(hostname) \\
        --pool /var/lib/orlop/pool

  A fast and a large pool, chosen by the class parameter \"pool\":
    orlop driver --endpoint unix:///run/orlop/csi.sock --node-id n1 \\
        --pool fast=/mnt/nvme --pool large=/mnt/hdd

  Ask it something:
    orlop csi --endpoint unix:///run/orlop/csi.sock info

  Use a volume in spite of the writes that it lost:
    orlop driver accept-loss vol-abcdefghijklmnopqrstuvwxyz --pool /var/lib/orlop/pool

Image volumes need root and loop devices; without them volumes are directories.
Snapshots and clones are instant on XFS and btrfs pools and full copies elsewhere.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ModeName {
    All,
    Controller,
    Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProvisioningName {
    Thin,
    Thick,
}

impl From<ProvisioningName> for Provisioning {
    fn from(name: ProvisioningName) -> Self {
        match name {
            ProvisioningName::Thin => Self::Thin,
            ProvisioningName::Thick => Self::Thick,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The few flags that have no default, for a process that runs the driver among other things.
#[derive(Debug, Clone)]
pub(crate) struct Flags {
    pub(crate) endpoint: String,
    pub(crate) node_id: String,
    pub(crate) pool: PathBuf,
    pub(crate) state_dir: PathBuf,
    /// Others, as they are typed.
    pub(crate) more: &'static [&'static str],
}

impl Flags {
    /// With every other flag at its default.
    pub(crate) fn settle(self) -> anyhow::Result<Settings> {
        let pool = self.pool.display().to_string();
        let state = self.state_dir.display().to_string();
        let node = &self.node_id;
        let flags = ["--endpoint", &self.endpoint, "--node-id", node, "--pool", &pool, "--state-dir", &state];
        let args: Args = crate::process::flags(&[&flags, self.more].concat())?;
        args.settle()
    }
}

/// Everything that was asked for, checked.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) socket_mode: SocketMode,
    pub(crate) mode: Mode,
    pub(crate) metrics_address: Option<SocketAddr>,
    pub(crate) grace: Duration,
    pub(crate) log: LogArgs,
}

impl Args {
    /// The pool to be forgotten, with the directory that remembers it.
    pub(super) fn forgetting(&self) -> Option<(PathBuf, PathBuf)> {
        let state = self.state_dir.clone().unwrap_or_else(|| PathBuf::from(STATE_DIR));
        self.forget_pool.clone().map(|pool| (state, pool))
    }

    /// Joins flags and file; a flag wins.
    pub(crate) fn settle(self) -> anyhow::Result<Settings> {
        let file = self.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let endpoints = parse_endpoints(&either(self.endpoint, file.endpoints))?;
        let Some(node_id) = self.node_id.or(file.node_id) else {
            bail!("no node id given: name this node with --node-id, such as --node-id $(hostname)")
        };
        let mode = self.mode.or(file.mode).unwrap_or(ModeName::All);
        let budget = Duration::from_secs(self.freeze_budget.or(file.freeze_budget).unwrap_or(10));
        let attachment = match (self.no_attach, self.attach_limit.or(file.attach_limit), file.attach) {
            (true, _, _) | (false, None, Some(false)) => Attachment::Off,
            (false, limit, _) => Attachment::On { limit },
        };
        let missing_pool =
            if self.no_init || file.init == Some(false) { MissingPool::Refuse } else { MissingPool::Create };
        let config = Config {
            driver_name: self.driver_name.or(file.driver_name).unwrap_or_else(|| keys::DRIVER_NAME.to_owned()),
            node_id,
            role: mode.role(),
            pools: parse_pools(&either(self.pool, file.pools))?,
            missing_pool,
            state_dir: self.state_dir.or(file.state_dir).or_else(default_state_dir),
            attachment,
            overcommit: self.overcommit.or(file.overcommit).unwrap_or(1.0),
            reserve: parse_size("--reserve", self.reserve.or(file.reserve), 64 << 20)?,
            default_fs: parse_fs(self.default_fs.or(file.default_fs))?,
            largest_volume: parse_size("--max-volume-size", self.max_volume_size.or(file.max_volume_size), 16 << 40)?,
            freeze_budget: budget,
            freeze_guard: freeze_guard(budget),
            hold_guard: freeze_guard(Duration::from_secs(FOREVER_SECONDS)),
            provisioning: self.provisioning.or(file.provisioning).map(ProvisioningName::into),
            clock: system_clock(),
        };
        config.check().map_err(driver_local::core::StartError::Config)?;
        let metrics_address = self.metrics_address.or(file.metrics_address);
        if let Some(address) = metrics_address.filter(|address| !address.ip().is_loopback()) {
            bail!("--metrics-address {address} is not a loopback address; metrics carry no authentication");
        }
        Ok(Settings {
            config,
            endpoints,
            socket_mode: parse_socket_mode(self.socket_mode.or(file.socket_mode))?,
            mode: mode.serves(),
            metrics_address,
            grace: Duration::from_secs(self.grace.or(file.grace).unwrap_or(30)),
            log: LogArgs {
                log_level: self.log_level.or(file.log_level).unwrap_or(LogLevel::Info).filter(),
                log_format: self.log_format.or(file.log_format).unwrap_or(LogFormat::Text),
            },
        })
    }
}

/// The usual state directory, if this process may write there.
fn default_state_dir() -> Option<PathBuf> {
    let dir = PathBuf::from(STATE_DIR);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).ok()?;
    rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok().then_some(dir)
}

fn either(flags: Vec<String>, file: Option<Vec<String>>) -> Vec<String> {
    if flags.is_empty() { file.unwrap_or_default() } else { flags }
}

fn parse_endpoints(texts: &[String]) -> anyhow::Result<Vec<Endpoint>> {
    if texts.is_empty() {
        bail!("no endpoint given: name a socket with --endpoint, such as --endpoint unix:///run/orlop/csi.sock");
    }
    texts.iter().map(|text| text.parse().with_context(|| format!("--endpoint {text:?}"))).collect()
}

/// `NAME=DIR` or `DIR`, which is called by its last step where that can be a name.
pub(super) fn parse_pools(texts: &[String]) -> anyhow::Result<Vec<PoolConfig>> {
    let mut pools = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) if !name.contains('/') => (Some(name.to_owned()), PathBuf::from(path)),
            _ => (None, PathBuf::from(text)),
        };
        if path.as_os_str().is_empty() {
            bail!("--pool {text:?} names no directory");
        }
        let named = |path: &PathBuf| {
            path.file_name()?.to_str().filter(|name| name.starts_with(char::is_alphanumeric)).map(str::to_owned)
        };
        let name = name.or_else(|| named(&path)).unwrap_or_else(|| format!("pool{number}"));
        pools.push(PoolConfig { name, path });
    }
    Ok(pools)
}

fn parse_size(flag: &str, text: Option<String>, default: u64) -> anyhow::Result<u64> {
    let Some(text) = text else { return Ok(default) };
    match driver_local::params::parse_size(&text) {
        Ok(bytes) => Ok(bytes),
        Err(_) => {
            let meant = crate::usage::meant(&text);
            bail!(
                "{flag} {text:?} is not a size; write a number of bytes, or one with Ki, Mi, Gi, Ti, k, M, G or T{meant}"
            )
        }
    }
}

fn parse_fs(text: Option<String>) -> anyhow::Result<FsType> {
    let Some(text) = text else { return Ok(FsType::Ext4) };
    text.parse().ok().with_context(|| format!("--default-fs {text:?} is not one of ext4, xfs, btrfs"))
}

fn parse_socket_mode(text: Option<String>) -> anyhow::Result<SocketMode> {
    let Some(text) = text else { return Ok(SocketMode::default()) };
    text.parse().with_context(|| format!("--socket-mode {text:?}"))
}

/// The guard is this very program, found even after an upgrade replaced the file it was started from.
fn freeze_guard(budget: Duration) -> Vec<OsString> {
    let budget = budget.as_millis().to_string();
    ["/proc/self/exe", "freeze-guard", "--budget-ms", &budget, "--"].map(OsString::from).to_vec()
}

#[allow(clippy::disallowed_methods, reason = "this is the edge where the real clock comes in")]
fn system_clock() -> Clock {
    Clock::new(SystemTime::now)
}

impl ModeName {
    fn role(self) -> Role {
        match self {
            Self::All => Role::All,
            Self::Controller => Role::Controller,
            Self::Node => Role::Node,
        }
    }

    fn serves(self) -> Mode {
        match self {
            Self::All => Mode::All,
            Self::Controller => Mode::Controller,
            Self::Node => Mode::Node,
        }
    }
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}
