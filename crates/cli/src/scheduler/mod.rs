//! `orlop scheduler`: the volume half of kube-scheduler, for clusters that run none.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use control::schedule::{DEFAULT_NAME, Options, Scheduler};
use runtime::args::{KubeArgs, LeaderArgs, ServeArgs, parse_duration};

use crate::process::{self, Lead, LogArgs, Process};

/// The lease that replicas compete for.
pub(crate) const LOCK: &str = "orlop-scheduler";

/// Choose nodes that pods can reach their volumes from, where no kube-scheduler runs.
///
/// Of a pod's other wishes it knows node selectors, required node affinity, tolerations and unschedulable nodes. It does
/// not count processors and memory, and evicts nobody.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    kube: KubeArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// What the scheduler does.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WorkArgs {
    /// Schedule the pods that name this scheduler. Beside a kube-scheduler, take another name than its own.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME)]
    scheduler_name: String,
    /// How long the volumes of a pod may take to be bound before its node is chosen anew (upstream: bindTimeoutSeconds).
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    bind_timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  orlop scheduler --kubeconfig ./kubeconfig
  orlop scheduler --scheduler-name volumes --leader-election --http-endpoint 127.0.0.1:8080";

pub(crate) fn run(args: Args) -> ExitCode {
    let begun = process::check_leading(&args.leader).and_then(|()| args.log.start());
    process::ended("scheduler", begun.and_then(|()| process::block_on(start(args))))
}

async fn start(args: Args) -> anyhow::Result<()> {
    let options = args.work.options()?;
    let process = Process::connect(&args.kube, "orlop-scheduler").await?;
    let scheduler = Scheduler::new(&process.context, options);
    let lead = Lead::by(&args.leader, LOCK);
    let work = |stop| {
        let scheduler = scheduler.clone();
        async move { scheduler.run(&stop).await }
    };
    process.run(&args.serve, lead, work).await
}

impl WorkArgs {
    /// The same as the scheduler takes it.
    pub(crate) fn options(&self) -> anyhow::Result<Options> {
        if self.scheduler_name.is_empty() {
            bail!("--scheduler-name must not be empty: pods name their scheduler");
        }
        if self.bind_timeout.is_zero() {
            bail!("--bind-timeout must be longer than nothing, such as 10m");
        }
        Ok(Options { name: self.scheduler_name.clone(), bind_timeout: self.bind_timeout, ..Options::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, bind_timeout: Duration) -> String {
        let args = WorkArgs { scheduler_name: name.to_owned(), bind_timeout };
        args.options().expect_err("it cannot work").to_string()
    }

    #[test]
    fn flags_that_cannot_work_are_named() {
        assert!(refusal("", Duration::from_secs(1)).contains("--scheduler-name"));
        assert!(refusal("volumes", Duration::ZERO).contains("--bind-timeout"));
    }
}
