//! The logging flags of Go's sidecars, so that their manifests work as they are.

use tracing::level_filters::LevelFilter;

use super::inert::{Flag, Value};
use super::{LogArgs, LogFormat};

/// Those that say something here, too. They are not in help: `--log-level` and `--log-format` are ours.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KlogArgs {
    /// 4 and more is --log-level debug, 6 and more is trace.
    #[arg(long = "v", short = 'v', value_name = "N", default_value_t = 0, hide = true)]
    verbosity: u32,
    /// `json` is --log-format json.
    #[arg(long, value_name = "FORMAT", default_value = "text", hide = true)]
    logging_format: String,
}

/// Those that change nothing.
pub(crate) const WITHOUT_EFFECT: &[Flag] = &[
    Flag { name: "automaxprocs", value: Value::Bool, why: "the number of threads follows what the machine gives" },
    Flag {
        name: "vmodule",
        value: Value::Text("LIST"),
        why: "it names files of Go programs; --log-level debug says more",
    },
    Flag { name: "log-flush-frequency", value: Value::Duration, why: LINE_BY_LINE },
    Flag { name: "log-text-split-stream", value: Value::Bool, why: ONE_STREAM },
    Flag { name: "log-json-split-stream", value: Value::Bool, why: ONE_STREAM },
    Flag { name: "log-text-info-buffer-size", value: Value::Text("SIZE"), why: LINE_BY_LINE },
    Flag { name: "log-json-info-buffer-size", value: Value::Text("SIZE"), why: LINE_BY_LINE },
];

const LINE_BY_LINE: &str = "each line is written at once";
const ONE_STREAM: &str = "all lines go to standard error";

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
