//! One command, one call (an overview and a list of many pages make several).
//!
//! Every request goes through [`Session::call`], which sets the deadline, keeps the request log and sorts errors.

mod metadata;
mod node;
mod plugin;
mod snapshot;
mod volume;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use ::csi::Endpoint;
use ::csi::v1::controller_client::ControllerClient;
use ::csi::v1::group_controller_client::GroupControllerClient;
use ::csi::v1::identity_client::IdentityClient;
use ::csi::v1::node_client::NodeClient;
use ::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use tokio::sync::OnceCell;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use super::args::{Command, volume::PageArgs};
use super::errors::Failure;
use super::render::{Printer, Render, Verdict};
use super::secrets::Secrets;

/// A list of very many volumes in one page is larger than what gRPC libraries accept by default (4 MiB).
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Whether requests are shown on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestLog {
    Off,
    Stderr,
}

/// A driver and what holds for every call to it. The connection is made when the first call needs it, so that a wrong
/// command line is refused before anybody is contacted.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) endpoint: Endpoint,
    pub(super) channel: OnceCell<Channel>,
    pub(super) timeout: Duration,
    pub(super) secrets: Secrets,
    pub(super) log: RequestLog,
}

type Answer = Result<Box<dyn Render>, Failure>;

/// Makes the calls a command stands for and prints what the driver answered.
pub(super) async fn run(session: &Session, command: Command, printer: &mut Printer<'_>) -> Result<Verdict, Failure> {
    let answer = match command {
        Command::Info => plugin::info(session).await?,
        Command::Probe => plugin::probe(session).await?,
        Command::Capabilities => plugin::capabilities(session).await?,
        Command::Create(args) => volume::create(session, args).await?,
        Command::Delete(args) => volume::delete(session, args).await?,
        Command::List(args) => volume::list(session, args).await?,
        Command::Get(args) => volume::get(session, args).await?,
        Command::Validate(args) => volume::validate(session, args).await?,
        Command::Capacity(args) => volume::capacity(session, args).await?,
        Command::Attach(args) => volume::attach(session, args).await?,
        Command::Detach(args) => volume::detach(session, args).await?,
        Command::Expand(args) => volume::expand(session, args).await?,
        Command::Modify(args) => volume::modify(session, args).await?,
        Command::Stage(args) => node::stage(session, args).await?,
        Command::Unstage(args) => node::unstage(session, args).await?,
        Command::Publish(args) => node::publish(session, args).await?,
        Command::Unpublish(args) => node::unpublish(session, args).await?,
        Command::Stats(args) => node::stats(session, args).await?,
        Command::NodeExpand(args) => node::expand(session, args).await?,
        Command::NodeInfo => node::info(session).await?,
        Command::Snapshot(command) => snapshot::single(session, command).await?,
        Command::Group(command) => snapshot::group(session, command).await?,
        // A stream is printed while it arrives: a large volume has more ranges than fit in memory.
        Command::Metadata(command) => return metadata::run(session, command, printer).await,
    };
    printer.print(&*answer).map_err(Failure::Output)?;
    Ok(answer.verdict())
}

impl Session {
    async fn channel(&self) -> Result<Channel, Failure> {
        let connect = async || match tokio::time::timeout(self.timeout, ::csi::connect(&self.endpoint)).await {
            Ok(connected) => connected.map_err(Failure::Connect),
            Err(_) => Err(Failure::ConnectTimeout { endpoint: self.endpoint.clone() }),
        };
        self.channel.get_or_try_init(connect).await.cloned()
    }

    async fn identity(&self) -> Result<IdentityClient<Channel>, Failure> {
        Ok(IdentityClient::new(self.channel().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    async fn controller(&self) -> Result<ControllerClient<Channel>, Failure> {
        Ok(ControllerClient::new(self.channel().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    async fn group(&self) -> Result<GroupControllerClient<Channel>, Failure> {
        Ok(GroupControllerClient::new(self.channel().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    async fn metadata(&self) -> Result<SnapshotMetadataClient<Channel>, Failure> {
        Ok(SnapshotMetadataClient::new(self.channel().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    async fn node(&self) -> Result<NodeClient<Channel>, Failure> {
        Ok(NodeClient::new(self.channel().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    /// Sends one request. `Debug` of the generated messages hides their secrets, which is what makes the log safe.
    async fn call<Q: Debug, A>(
        &self,
        rpc: &'static str,
        message: Q,
        send: impl AsyncFnOnce(Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Failure> {
        if self.log == RequestLog::Stderr {
            eprintln!("--> {rpc} {message:?}");
        }
        let started = Instant::now();
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        let result = send(request).await.map(Response::into_inner).map_err(|status| {
            // Servers know the deadline too, and tonic's ends the call with this code when it passes.
            if status.code() == Code::Cancelled && started.elapsed() >= self.timeout {
                return Failure::deadline(rpc);
            }
            Failure::of_call(rpc, status, &self.secrets)
        });
        if self.log == RequestLog::Stderr {
            let outcome = result.as_ref().map_or_else(Failure::outcome, |_| "OK");
            eprintln!("<-- {rpc} {outcome} after {} ms", started.elapsed().as_millis());
        }
        result
    }
}

/// Refuses an answer that lacks the message it exists to carry.
fn expect<A, M>(rpc: &'static str, answer: A, field: impl FnOnce(&A) -> &Option<M>) -> Result<A, Failure> {
    if field(&answer).is_none() {
        return Err(Failure::Contract { rpc, what: "it answered OK without the message the answer must hold" });
    }
    Ok(answer)
}

/// Which page to ask for next.
enum NextPage {
    Ask { max_entries: i32, token: String },
    Last,
}

impl NextPage {
    fn first(page: &PageArgs) -> Self {
        Self::Ask { max_entries: page.max.unwrap_or(0), token: page.token.clone() }
    }

    /// With `--max` one page is all; without it pages are followed to the end.
    fn after(rpc: &'static str, page: &PageArgs, asked: &str, next_token: &str) -> Result<Self, Failure> {
        if page.max.is_some() || next_token.is_empty() {
            return Ok(Self::Last);
        }
        if next_token == asked {
            return Err(Failure::Contract { rpc, what: "it answered with the token it was asked with, without end" });
        }
        Ok(Self::Ask { max_entries: 0, token: next_token.to_owned() })
    }
}
