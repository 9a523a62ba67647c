//! `orlop demo`: everything at once, in a directory that goes away again.
//!
//! It starts `orlop up` as a process of its own, makes a class, a claim and a pod, shows each stage when it happens, asks
//! why the claim waits, writes and reads through the pod's mount, kills the process while the volume is in use and starts it
//! again, deletes everything and shows that nothing is left: no volume, no file, no mount, no loop device, no attachment.
//! The exit code says whether all of that was true.
//!
//! With root's rights volumes are image files on loop devices. Without, everything happens in a user and mount namespace of
//! its own (`namespace.rs`), with directories; where that is forbidden, too, it ends with the volume and says what forbids it.

mod earlier;
mod life;
mod namespace;
mod show;
mod site;
mod stages;
mod view;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use runtime::stop;
use tracing::level_filters::LevelFilter;

use crate::process::{self, LogArgs};
use crate::shell::INTERNAL;
use life::Log;
use namespace::{Ground, Inside};
use show::{Pace, Show};
use site::Site;
use stages::Play;

/// How it ends where nothing can be mounted.
const IN_PART: u8 = 3;
const INTERRUPTED: &str = "interrupted; everything is taken away";
const INTERRUPTED_KEPT: &str = "interrupted; everything is taken away but the files";

/// Show a claim become a mounted volume and go again, in a temporary directory.
///
/// Everything is started, used, killed, started again and cleaned up; the exit code says whether all of it worked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Size of the claim. [default: 1Gi, or less where there is not so much room]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Do not stop for readers: on a terminal, each stage stays a moment otherwise.
    #[arg(long)]
    fast: bool,
    /// Keep the directory, so that it can be looked at.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    log: LogArgs,
    /// Go on in the namespace that was made.
    #[arg(long, hide = true, help_heading = INTERNAL)]
    in_namespace: bool,
    /// Only find out whether a namespace can be made.
    #[arg(long, hide = true, help_heading = INTERNAL)]
    try_namespace: bool,
    /// Become this command, which ends with its parent.
    #[arg(long, hide = true, help_heading = INTERNAL)]
    with_parent: bool,
    #[arg(hide = true, help_heading = INTERNAL, last = true, requires = "with_parent")]
    words: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  orlop demo
  orlop demo --size 10Gi --keep --log-level debug

As root, volumes are image files on loop devices. Without root, it runs in a user and mount namespace of its own, and
volumes are directories.

Exit codes: 0 all of it was shown and true, 1 something was not, 3 this machine forbids mounts, all else was shown.";

pub(crate) fn run(args: Args) -> ExitCode {
    if args.with_parent {
        return life::become_child(&args.words);
    }
    if args.try_namespace {
        return namespace::try_and_tell();
    }
    let inside = if args.in_namespace { Inside::Namespace } else { Inside::Outside };
    // Before the runtime: a process with threads cannot move.
    let ground = match Ground::settle(inside) {
        Ok(ground) => ground,
        Err(error) => return process::ended("demo", Err(error)),
    };
    let shown = start_log(&args.log).and_then(|()| process::block_on_here(demonstrate(&args, &ground)));
    match (shown, &ground) {
        (Ok(()), Ground::Unmountable(_)) => ExitCode::from(IN_PART),
        (shown, _) => process::ended("demo", shown),
    }
}

/// The demonstration tells what happens; the log is for when it does not.
fn start_log(log: &LogArgs) -> anyhow::Result<()> {
    let mut log = log.clone();
    if log.log_level == LevelFilter::INFO {
        log.log_level = LevelFilter::WARN;
    }
    log.start()
}

async fn demonstrate(args: &Args, ground: &Ground) -> anyhow::Result<()> {
    let (stopper, stopped) = runtime::Stopper::new();
    // Before there is anything that a signal could leave behind.
    let signals = stop::on_signals(stopper);
    let cleared = earlier::clear(&std::env::temp_dir());
    let site = Site::make()?;
    let size = site.size(args.size.as_deref())?;
    let show = Show::new(if args.fast { Pace::Machine } else { Pace::Reader });
    for data in cleared {
        show.say(&format!("An earlier demonstration was killed; what it left in {} is taken away.\n", data.display()));
    }
    show.say(&introduction(&site, ground));
    let (log, level) = match args.log.log_level > LevelFilter::INFO {
        true => (Log::Shown, args.log.log_level.to_string()),
        false => (Log::Kept, LevelFilter::INFO.to_string()),
    };
    let play = Play { site: &site, show: &show, ground, size: &size, log, level: &level };
    let moving = show.animate();
    let played = tokio::select! {
        biased;
        // Whatever was started ends with the play; what it left in the kernel and on disk goes with the site.
        () = stopped.stopped() => Err(anyhow::anyhow!(if args.keep { INTERRUPTED_KEPT } else { INTERRUPTED })),
        signals = signals => signals.context("listening for signals"),
        played = play.run() => played,
    };
    drop(moving);
    end(args, site, &show, played).await?;
    show.table();
    show.say(&farewell(ground));
    Ok(())
}

/// Takes the directory away, also after a failure.
async fn end(args: &Args, site: Site, show: &Show, played: anyhow::Result<()>) -> anyhow::Result<()> {
    let data = site.data().to_owned();
    if args.keep {
        let kept = site.keep();
        show.done().await;
        show.say(&format!("\nEverything is kept in {}", kept.display()));
        return played;
    }
    let removed = site.remove();
    if played.is_ok() && removed.is_ok() {
        if data.exists() {
            bail!("{} is still there", data.display());
        }
        show.tell(&format!("{} is gone", data.display()));
    }
    show.done().await;
    played.and(removed)
}

fn introduction(site: &Site, ground: &Ground) -> String {
    let volumes = match ground {
        Ground::Images => "Volumes are image files with a filesystem of their own, on loop devices.".to_owned(),
        Ground::Directories(why) => format!("Volumes are directories: {why}."),
        Ground::Unmountable(forbidden) => {
            format!("Nothing will be mounted: {}.\nTo allow it: {}", forbidden.what, forbidden.allow)
        }
    };
    format!("From a claim to a mounted volume and back, in {}.\n{volumes}", site.data().display())
}

fn farewell(ground: &Ground) -> String {
    let program = program();
    let part = match ground {
        Ground::Images | Ground::Directories(_) => String::new(),
        Ground::Unmountable(forbidden) => format!(
            "\nNot shown: the pod's mount, since {}.\nTo see it: {}\nor: sudo {program} demo\n",
            forbidden.what, forbidden.allow
        ),
    };
    let next = [
        (format!("{program} up --data ./orlop-data"), "the same, to stay; it prints the address of a live page"),
        ("export KUBECONFIG=./orlop-data/kubeconfig".to_owned(), "in another terminal, for kubectl and for Orlop"),
        (format!("{program} tree -A"), "what there is, and why it waits"),
    ];
    let widest = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let next: String = next.iter().map(|(command, what)| format!("  {command:widest$}   {what}\n")).collect();
    format!("{part}\nWhere next:\n{next}")
}

/// This program, as a user can type it here.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "orlop".to_owned() };
    let on_path = std::env::var_os("PATH").is_some_and(|paths| {
        std::env::split_paths(&paths).any(|folder| path.parent() == Some(&*folder) && folder != Path::new(""))
    });
    match std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned)) {
        _ if on_path => "orlop".to_owned(),
        // A name without a slash would be looked for elsewhere.
        Some(below) => Path::new(".").join(below).display().to_string(),
        None => path.display().to_string(),
    }
}
