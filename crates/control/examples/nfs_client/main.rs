//! A provisioner that is not a CSI driver: each claim gets a directory on an NFS share that is mounted here.
//!
//! ```sh
//! cargo run -p orlop-control --example nfs_client -- --kubeconfig ~/.kube/config \
//!     --name example.org/nfs --mounted-at /mnt/share --server nfs.example.org --export /srv/share
//! ```
//!
//! Classes of provisioner `example.org/nfs` may have the parameters `pathPattern`, `onDelete` and `archiveOnDelete`.
//! Everything else (when to make a volume, what survives a crash, when it goes) is the engine's business.

mod share;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use control::Context;
use control::handoff::Handoff;
use control::provision::{Engine, Options};
use futures_util::future::join4;
use runtime::args::KubeArgs;
use runtime::time::SystemClock;
use runtime::{Caches, Client, Clock, Entropy, Metrics, Stopper, events, stop};
use share::Share;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    kube: KubeArgs,
    /// What classes name as their provisioner.
    #[arg(long)]
    name: String,
    /// Where the share is mounted on this machine.
    #[arg(long, value_name = "DIRECTORY")]
    mounted_at: PathBuf,
    /// The NFS server, as nodes reach it.
    #[arg(long)]
    server: String,
    /// What the server exports.
    #[arg(long, value_name = "PATH")]
    export: String,
    /// Where the journal of what was begun is kept.
    #[arg(long, default_value = "default")]
    namespace: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = Args::parse();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (metrics, entropy) = (Metrics::new(&*clock), Entropy::from_system());
    let client = Client::new(args.kube.connect().await?, args.kube.client_options("nfs-client"), &metrics, &entropy);
    let caches = Caches::new(&client, &entropy);
    let (recorder, writer) = events::channel(&args.name, "nfs-client", clock.clone(), &metrics, &entropy);
    let context = Context {
        client: client.clone(),
        caches: caches.clone(),
        recorder,
        metrics,
        entropy,
        clock,
        handoff: Handoff::default(),
    };
    let share = Share::new(&args.name, &args.mounted_at, &args.server, &args.export);
    let engine = Engine::new(&context, Arc::new(share), Options::new(&args.name, &args.namespace));
    let (stopper, stop) = Stopper::new();
    let (signals, ..) =
        join4(stop::on_signals(stopper), caches.run(&stop), writer.run(&client, &stop), engine.run(&stop)).await;
    Ok(signals?)
}
