//! The logging flags of Go's sidecars, so that their manifests work as they are.

use clap::ArgAction;
use tracing::level_filters::LevelFilter;

use super::{LogArgs, LogFormat};

/// Their flags, hidden: `--log-level` and `--log-format` are ours.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KlogArgs {
    /// 4 and more is --log-level debug, 6 and more is trace.
    #[arg(long = "v", short = 'v', value_name = "N", default_value_t = 0, hide = true)]
    verbosity: u32,
    /// `json` is --log-format json.
    #[arg(long, value_name = "FORMAT", default_value = "text", hide = true)]
    logging_format: String,
    #[arg(long, value_name = "LIST", hide = true)]
    vmodule: Option<String>,
    #[arg(long, value_name = "DURATION", hide = true)]
    log_flush_frequency: Option<String>,
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, hide = true)]
    log_text_split_stream: Option<Option<bool>>,
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, hide = true)]
    log_json_split_stream: Option<Option<bool>>,
    #[arg(long, value_name = "SIZE", hide = true)]
    log_text_info_buffer_size: Option<String>,
    #[arg(long, value_name = "SIZE", hide = true)]
    log_json_info_buffer_size: Option<String>,
    /// This program needs no such setting.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, hide = true)]
    automaxprocs: Option<Option<bool>>,
}

impl KlogArgs {
    /// Our own flags with what these add to them.
    pub(crate) fn apply(&self, log: &LogArgs) -> anyhow::Result<LogArgs> {
        let asked = match self.verbosity {
            0..=3 => LevelFilter::OFF,
            4..=5 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let log_format = match self.logging_format.as_str() {
            "text" => log.log_format,
            "json" => LogFormat::Json,
            other => anyhow::bail!("--logging-format: {other:?} is not known; use text or json"),
        };
        Ok(LogArgs { log_level: log.log_level.max(asked), log_format })
    }
}
