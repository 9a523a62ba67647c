//! `orlop page`, and the page that `orlop up` serves: a cluster's storage as a picture that moves.
//!
//! The watch caches say what changed (`world.rs`), the painter turns that into ways (`paint.rs`), the board keeps the newest
//! form of each (`board.rs`), and every viewer is a position on the board (`viewer.rs`). Nothing is written to the cluster,
//! and nothing is painted while nobody looks.
//!
//! # Invariants
//! 1. Only loopback addresses are listened on, and only requests that name this address are answered: a web page that points
//!    its own name here gets nothing (`admit.rs`).
//! 2. Whatever tells anything of the cluster wants the token. It is in no log and on no page (`token.rs`).
//! 3. A viewer who reads slowly holds up nobody: it gets the newest state of what changed meanwhile, once.

mod admit;
mod assets;
mod board;
mod diary;
mod marks;
mod paint;
mod rooms;
mod serve;
mod token;
mod viewer;
mod world;

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use control::Context;
use futures_util::future::join_all;
use runtime::csi::Driver;
use runtime::{Stop, client};
use tokio::net::TcpListener;

use crate::process::{self, Lead, LogArgs, Process};
use crate::usage;
use admit::Door;
use board::Board;
use token::Token;

/// Serve a live page about the storage of a cluster, on loopback, behind a token.
///
/// It only reads.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Path of a kubeconfig. Without it: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Without it: its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Loopback address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: Loopback,
    /// File that keeps the token, so that it stays the same; made, readable by its owner only, if it does not exist. Without
    /// it the token is a new one each time.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  orlop page
  orlop page --context production --listen 127.0.0.1:8080 --token-file ~/.orlop-page-token

The address with the token is printed once; open it in a browser. From another machine: ssh -L 8080:127.0.0.1:8080 HOST.";

/// An address that only this machine reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loopback(pub(crate) SocketAddr);

/// An address that is none, or that others reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotLoopback {
    #[error(transparent)]
    NoAddress(usage::NotAnAddress),
    #[error("only loopback addresses are served, such as 127.0.0.1:8080; for others, put a proxy or ssh -L in front")]
    Reachable,
}

impl FromStr for Loopback {
    type Err = NotLoopback;
    fn from_str(text: &str) -> Result<Self, NotLoopback> {
        let address: SocketAddr = usage::parse_address(text).map_err(NotLoopback::NoAddress)?;
        if address.ip().is_loopback() { Ok(Self(address)) } else { Err(NotLoopback::Reachable) }
    }
}

/// Where the page of `orlop up` is, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    Off,
    At(Loopback),
}

impl FromStr for Where {
    type Err = NotLoopback;
    fn from_str(text: &str) -> Result<Self, NotLoopback> {
        if text == "off" { Ok(Self::Off) } else { text.parse().map(Self::At) }
    }
}

/// What a page is opened with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) listen: Loopback,
    /// What the page calls the cluster.
    pub(crate) cluster: String,
    pub(crate) token: Kept,
    /// Drivers that publish no capacity, and are asked. Somebody else keeps them connected.
    pub(crate) drivers: Vec<Driver>,
}

/// Where the token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kept {
    /// In memory: the address that is printed is the only way to know it.
    Nowhere,
    In(PathBuf),
}

/// A page that listens, and answers nobody yet.
#[derive(Debug)]
pub(crate) struct Page {
    listener: TcpListener,
    address: SocketAddr,
    token: Token,
    kept: Kept,
    settings: Settings,
}

impl Page {
    pub(crate) async fn open(settings: Settings) -> anyhow::Result<Self> {
        let kept = settings.token.clone();
        let token = match &kept {
            Kept::Nowhere => Token::new(),
            Kept::In(file) => Token::kept_in(file).with_context(|| format!("the page's token {}", file.display()))?,
        };
        let Loopback(listen) = settings.listen;
        let listener = TcpListener::bind(listen).await.with_context(|| format!("the page: listening on {listen}"))?;
        let address = listener.local_addr().context("asking for the page's address")?;
        Ok(Self { listener, address, token, kept, settings })
    }

    /// The address with the token in it: for a person's eyes and private files only.
    fn secret_url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token.reveal())
    }

    /// Writes the address with the token to a private file.
    pub(crate) fn write_url(&self, file: &Path) -> anyhow::Result<()> {
        apiserver::auth::write_private(file, format!("{}\n", self.secret_url()).as_bytes())
            .with_context(|| format!("writing the page's address to {}", file.display()))
    }

    /// Tells whoever started us where the page is. What goes to a file or a journal gets no token that is kept elsewhere.
    pub(crate) fn announce(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        let line = match &self.kept {
            Kept::In(file) if !out.is_terminal() => {
                format!("page: http://{}/ (the token is in {})", self.address, file.display())
            }
            Kept::In(_) | Kept::Nowhere => format!("page: {}", self.secret_url()),
        };
        writeln!(out, "{line}").and_then(|()| out.flush()).context("printing the page's address")
    }

    /// Serves until `stop`.
    pub(crate) async fn run(self, context: Context, stop: Stop) -> anyhow::Result<()> {
        let Self { listener, address, token, kept, settings } = self;
        tracing::info!(page = %address, "the page is served");
        let board = Arc::new(Board::default());
        let door = Door::new(token, address, &kept);
        let asked = rooms::Asked::default();
        let painter = paint::Painter::new(&context, &board, &asked, settings.cluster);
        let server = serve::Server { listener, door: Arc::new(door), board: Arc::clone(&board) };
        tokio::join!(
            server.run(&stop),
            paint::run(painter, &board, &stop),
            diary::keep(&context, &board, &stop),
            join_all(settings.drivers.iter().map(|driver| rooms::ask(driver, (&asked, &board), &stop))),
        );
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    process::ended("page", args.log.start().and_then(|()| process::block_on(start(args))))
}

async fn start(args: &Args) -> anyhow::Result<()> {
    args.token_file.as_deref().map_or(Ok(()), |file| usage::require_parent("--token-file", file))?;
    let found = process::connect::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let cluster = args.context.clone().unwrap_or_else(|| found.server().to_owned());
    let options = client::Options { manager: "orlop-page".to_owned(), ..client::Options::default() };
    let process = Process::new(found.client, options, "orlop-page");
    let settings = Settings {
        listen: args.listen,
        cluster,
        token: args.token_file.clone().map_or(Kept::Nowhere, Kept::In),
        drivers: Vec::new(),
    };
    let page = Page::open(settings).await?;
    page.announce()?;
    let (context, mut page) = (process.context.clone(), Some(page));
    let serve = process::no_endpoint();
    let work = |stop: Stop| {
        let (context, page) = (context.clone(), page.take());
        async move {
            // Without a lease the work is made once.
            if let Some(page) = page
                && let Err(error) = page.run(context, stop).await
            {
                tracing::error!(%error, "the page ended");
            }
        }
    };
    process.run(&serve, Lead::Always, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_taken_and_the_others_are_told_why() {
        assert!("127.0.0.1:0".parse::<Loopback>().is_ok() && "[::1]:8080".parse::<Loopback>().is_ok());
        assert_eq!("0.0.0.0:80".parse::<Loopback>(), Err(NotLoopback::Reachable));
        let error = "8080".parse::<Loopback>().expect_err("the address is missing").to_string();
        assert!(error.ends_with("write 127.0.0.1:8080"), "{error}");
        assert_eq!("off".parse::<Where>(), Ok(Where::Off));
    }
}
