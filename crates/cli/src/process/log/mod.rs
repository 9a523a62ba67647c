//! The log of every long-running command: text, or one JSON object per line, on standard error.
//!
//! | Module | What it does |
//! |---|---|
//! | [`line`] | one line: its fields flat, those of the work it belongs to included |
//! | [`repeats`] | the same line within a minute is counted, and told once |
//! | [`lines`] | takes events and spans, and writes |

mod line;
mod lines;
mod repeats;

use std::time::Instant;

use anyhow::Context as _;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use lines::Lines;

/// Parts below us that log every frame of every connection; they are heard only when something is wrong.
const NOISY: [&str; 6] = ["h2", "hyper", "hyper_util", "tonic", "tower", "kube_client"];

/// What these say, whoever asked says as well, with what was asked.
const SILENT: [&str; 1] = ["kube_client::client::builder"];

/// How a command logs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LogArgs {
    /// Least important messages to log: off, error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level, help_heading = "Log")]
    pub(crate) log_level: LevelFilter,
    /// Form of the log: text, or one JSON object per line.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", help_heading = "Log")]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Reads a level. An empty one would be `error`, which nobody means who writes `--log-level=$LEVEL`.
fn level(text: &str) -> Result<LevelFilter, String> {
    let read = (!text.is_empty()).then(|| text.parse().ok()).flatten();
    read.ok_or_else(|| "it must be off, error, warn, info, debug or trace".to_owned())
}

impl LogArgs {
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let quiet = self.log_level.min(LevelFilter::WARN);
        let loud = Targets::new().with_default(self.log_level).with_targets(NOISY.map(|target| (target, quiet)));
        let loud = loud.with_targets(SILENT.map(|target| (target, LevelFilter::OFF)));
        let lines = Lines::new(self.log_format, std::io::stderr(), Instant::now);
        tracing_subscriber::registry().with(lines.with_filter(loud)).try_init().context("starting the log")
    }
}
