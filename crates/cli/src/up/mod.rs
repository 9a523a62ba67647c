//! `orlop up`: the whole of storage as one long-running process, on the embedded API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use runtime::client::Error;
use runtime::{Stopper, stop};
use serde_json::json;

use crate::page;
use crate::process::{self, LogArgs};
use crate::stack::{self, Parts, Place, Stack};

/// Runs the API, the local driver, the controllers and the provisioner in one process.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of everything: objects, keys, volumes, kubeconfig; made if it does not exist.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Loopback address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Name of the default class, which is made if it does not exist; empty makes none.
    #[arg(long, value_name = "NAME", default_value = "local")]
    class: String,
    /// Loopback address of the live page, or off. Its address with the token is in DIR/page-url.
    #[arg(long, value_name = "ADDRESS|off", default_value = "127.0.0.1:0")]
    page: page::Where,
    #[command(flatten)]
    log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop up --data ./orlop
  KUBECONFIG=./orlop/kubeconfig kubectl get storageclass,pvc,pv";

pub(crate) fn run(args: Args) -> ExitCode {
    process::ended("up", args.log.start().and_then(|()| process::block_on(start(args))))
}

async fn start(args: Args) -> anyhow::Result<()> {
    if !args.listen.ip().is_loopback() {
        bail!("--listen {}: only loopback addresses are served, such as 127.0.0.1:6443", args.listen);
    }
    std::fs::create_dir_all(&args.data).with_context(|| format!("making {}", args.data.display()))?;
    // Sockets and state are told by their full names, also in messages.
    let data = args.data.canonicalize().with_context(|| format!("--data {}", args.data.display()))?;
    let place = Place { data, listen: args.listen };
    let (stack, mut parts) = Stack::start(&place).await?;
    make_class(&stack, &args.class).await?;
    if let page::Where::At(listen) = args.page {
        start_page(&place, &stack, &mut parts, listen).await?;
    }
    let (stopper, stopped) = Stopper::new();
    // Whoever reads that it is ready may end it at once.
    let signals = stop::on_signals(stopper);
    tracing::info!(address = %stack.address, kubeconfig = %place.kubeconfig().display(), driver = stack.driver, "ready");
    tokio::select! {
        biased;
        () = stopped.stopped() => {}
        error = parts.failed() => return Err(error),
        signals = signals => signals.context("listening for signals")?,
    }
    parts.end().await?;
    if stack::may_mount() {
        stack::release(&place)?;
    }
    tracing::info!("stopped");
    Ok(())
}

/// The live page, which reads what the controllers' caches hold.
async fn start_page(place: &Place, stack: &Stack, parts: &mut Parts, listen: page::Loopback) -> anyhow::Result<()> {
    let settings = page::Settings {
        listen,
        cluster: format!("orlop up on {}", stack::node_name()),
        token: page::Kept::In(place.data.join("page-token")),
        driver: Some(place.socket()),
    };
    let page = page::Page::open(settings).await?;
    page.write_url(&place.data.join("page-url"))?;
    page.announce()?;
    let context = stack.context.clone();
    parts.add_first("the page", |stop| async move { page.run(context, stop).await });
    Ok(())
}

/// The class that claims get when they name none.
async fn make_class(stack: &Stack, name: &str) -> anyhow::Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    let kind = api::Kind::STORAGE_CLASS;
    let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "provisioner": stack.driver,
        "allowVolumeExpansion": true,
        "metadata": {"name": name, "annotations": {api::keys::annotation::DEFAULT_CLASS.0: "true"}}});
    match stack.context.client.create::<api::Class>(kind, None, &body).await {
        Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("making the class {name:?}")),
    }
}
