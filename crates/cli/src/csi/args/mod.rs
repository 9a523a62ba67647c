//! The command line of `orlop csi`: one struct per command, each of which makes the request it stands for.
//!
//! A request is taken apart field by field where it is made, so a flag that is read but never sent does not compile.
//! Ids and paths are passed on as typed, even when empty or relative: sending a driver a wrong request on purpose is
//! one of the uses of this tool.

pub(super) mod capability;
pub(super) mod node;
pub(super) mod snapshot;
pub(super) mod volume;

use std::path::PathBuf;

use ::csi::Endpoint;

use super::parse::Timeout;
use super::secrets::KeyFile;

const EXAMPLES: &str = "\
Examples:
  Look at a driver
    export CSI_ENDPOINT=unix:///run/csi/csi.sock
    orlop csi info

  The life of a volume
    orlop csi create data --size 1Gi --fs ext4
    orlop csi stage ID --staging /mnt/staging --fs ext4
    orlop csi publish ID --staging /mnt/staging --target /mnt/data --fs ext4
    orlop csi stats ID --path /mnt/data
    orlop csi unpublish ID --target /mnt/data
    orlop csi unstage ID --staging /mnt/staging
    orlop csi delete ID

  In a script
    id=$(orlop csi -o json create data --size 1Gi | jq -r .volume.volumeId)

Exit codes:
  0  the driver did it
  1  the driver answered with an error
  2  the command line is wrong
  3  the driver cannot be reached";

/// Call any CSI driver on a socket, one command per call.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_value_name = "COMMAND")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) session: SessionArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What holds for every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options for every command")]
pub(super) struct SessionArgs {
    /// Where the driver listens: unix:///PATH, a bare path, or tcp:// on loopback
    #[arg(long, global = true, value_name = "ENDPOINT", env = "CSI_ENDPOINT", hide_env_values = true)]
    pub(super) endpoint: Option<Endpoint>,
    /// How long one call may take; the driver is told
    #[arg(long, global = true, value_name = "TIME", default_value = "2m")]
    pub(super) timeout: Timeout,
    /// How to print the answer: aligned text for people, or one JSON document
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(super) output: Format,
    /// Send the secrets of this file: a JSON object or KEY=VALUE lines
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) secrets: Option<PathBuf>,
    /// Send the content of this file as one secret; may be repeated, all before or all after the
    /// command
    #[arg(long, global = true, value_name = "KEY=FILE")]
    pub(super) secret: Vec<KeyFile>,
    /// Print each request and how it ended to standard error, secrets hidden
    #[arg(long, global = true)]
    pub(super) request_log: bool,
}

/// How an answer is printed. The variants have no text of their own so that help stays one line per flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Show what driver this is, whether it is ready and all it can do.
    Info,
    /// Ask the driver whether it is ready (Probe).
    Probe,
    /// Show all the capabilities of the driver: plugin, controller, group and node.
    Capabilities,
    Create(volume::Create),
    Delete(volume::Delete),
    List(volume::List),
    Get(volume::Get),
    Validate(volume::Validate),
    Capacity(volume::Capacity),
    Attach(volume::Attach),
    Detach(volume::Detach),
    Expand(volume::Expand),
    Modify(volume::Modify),
    Stage(node::Stage),
    Unstage(node::Unstage),
    Publish(node::Publish),
    Unpublish(node::Unpublish),
    Stats(node::Stats),
    NodeExpand(node::NodeExpand),
    /// Show the id, limits and place of the node the driver runs on (NodeGetInfo).
    NodeInfo,
    /// Work with snapshots of single volumes.
    #[command(subcommand)]
    Snapshot(snapshot::Snapshot),
    /// Work with snapshots of several volumes taken at one moment.
    #[command(subcommand)]
    Group(snapshot::Group),
    /// Show which bytes of a snapshot hold data or differ from another.
    #[command(subcommand)]
    Metadata(snapshot::Metadata),
}
