//! The model driver with somebody at its door, who notes every request and may answer in its place.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use csi::v1;
use futures_util::future::BoxFuture;
use runtime::csi::{Connection, Dial};
use sim::driver::{Model, NodeSide};
use tokio::time::{Instant, sleep};
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use v1::controller_server::ControllerServer;
use v1::identity_server::IdentityServer;
use v1::node_client::NodeClient;
use v1::node_server::{Node, NodeServer};

/// What becomes of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    /// It is refused, and nothing happens.
    Refused(Code),
    /// It happens, and is answered with an error.
    Done(Code),
    /// It is answered with OK, and nothing happens.
    Lie,
    /// It happens after this long.
    Late(Duration),
}

/// Who stands at the door. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Doorman(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    replies: BTreeMap<&'static str, VecDeque<Reply>>,
    calls: Vec<(&'static str, Instant)>,
    /// Questions about what the driver can do.
    questions: usize,
    stages: Vec<v1::NodeStageVolumeRequest>,
    publishes: Vec<v1::NodePublishVolumeRequest>,
    unpublishes: Vec<v1::NodeUnpublishVolumeRequest>,
    unstages: Vec<v1::NodeUnstageVolumeRequest>,
    expands: Vec<v1::NodeExpandVolumeRequest>,
    stats: Vec<v1::NodeGetVolumeStatsRequest>,
    /// How volumes are, if the driver says so.
    condition: Option<v1::VolumeCondition>,
    /// Where calls are told of besides.
    story: Story,
}

/// What happened, in order, told by several.
#[derive(Clone, Default)]
pub(crate) struct Story(Arc<Mutex<Vec<String>>>);

impl Story {
    pub(crate) fn tell(&self, line: impl Into<String>) {
        self.0.lock().expect("no test panics while it writes").push(line.into());
    }

    /// What was told since the last time somebody asked.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no test panics while it writes"))
    }
}

impl Doorman {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("no test panics while it writes")
    }

    /// The next call of this method meets this.
    pub(crate) fn next(&self, method: &'static str, reply: Reply) {
        self.lock().replies.entry(method).or_default().push_back(reply);
    }

    /// The same for many calls.
    pub(crate) fn always(&self, method: &'static str, reply: Reply) {
        self.lock().replies.insert(method, std::iter::repeat_n(reply, 10_000).collect());
    }

    /// From now on calls pass.
    pub(crate) fn open(&self) {
        self.lock().replies.clear();
    }

    /// The calls so far, in order, without questions.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.lock().calls.iter().map(|(call, _)| *call).collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.times(method).len()
    }

    /// When a method was called.
    pub(crate) fn times(&self, method: &str) -> Vec<Instant> {
        self.lock().calls.iter().filter(|(call, _)| *call == method).map(|(_, at)| *at).collect()
    }

    /// How often somebody asked what the driver can do.
    pub(crate) fn questions(&self) -> usize {
        self.lock().questions
    }

    /// From now on volumes are like this.
    pub(crate) fn ails(&self, message: Option<&str>) {
        let condition = message.map(|message| v1::VolumeCondition { abnormal: true, message: message.to_owned() });
        self.lock().condition = condition.or_else(|| Some(v1::VolumeCondition::default()));
    }

    pub(crate) fn stats(&self) -> Vec<v1::NodeGetVolumeStatsRequest> {
        self.lock().stats.clone()
    }

    /// Tells of every call here, too.
    pub(crate) fn tell(&self, story: &Story) {
        self.lock().story = story.clone();
    }

    pub(crate) fn stage(&self) -> v1::NodeStageVolumeRequest {
        self.lock().stages.last().cloned().expect("something was staged")
    }

    pub(crate) fn publish(&self) -> v1::NodePublishVolumeRequest {
        self.lock().publishes.last().cloned().expect("something was published")
    }

    pub(crate) fn unpublish(&self) -> v1::NodeUnpublishVolumeRequest {
        self.lock().unpublishes.last().cloned().expect("something was unpublished")
    }

    pub(crate) fn unstage(&self) -> v1::NodeUnstageVolumeRequest {
        self.lock().unstages.last().cloned().expect("something was unstaged")
    }

    pub(crate) fn expand(&self) -> v1::NodeExpandVolumeRequest {
        self.lock().expands.last().cloned().expect("something was grown")
    }
}

/// The way to the driver, past the doorman.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) model: Model,
    pub(crate) side: NodeSide,
    pub(crate) doorman: Doorman,
}

impl Dial for Door {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async {
            let Connection { channel, lost } = self.side.dial().await?;
            let guarded = Guarded { doorman: self.doorman.clone(), channel };
            let routes = Routes::new(IdentityServer::new(self.model.clone())).add_service(NodeServer::new(guarded));
            let routes = routes.add_service(ControllerServer::new(self.model.clone()));
            Ok(Connection { channel: csi::in_memory(routes), lost })
        })
    }
}

struct Guarded {
    doorman: Doorman,
    channel: Channel,
}

impl Guarded {
    async fn pass<T: Default>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Response<T>, Status> {
        let reply = {
            let mut book = self.doorman.lock();
            book.calls.push((method, Instant::now()));
            book.story.tell(method);
            book.replies.get_mut(method).and_then(VecDeque::pop_front)
        };
        match reply {
            None => call.await,
            Some(Reply::Refused(code)) => Err(Status::new(code, "so says the doorman")),
            Some(Reply::Done(code)) => {
                call.await?;
                Err(Status::new(code, "it happened, says the doorman"))
            }
            Some(Reply::Lie) => Ok(Response::new(T::default())),
            Some(Reply::Late(wait)) => {
                sleep(wait).await;
                call.await
            }
        }
    }
}

#[tonic::async_trait]
impl Node for Guarded {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.doorman.lock().stages.push(request.clone());
        self.pass("stage", async { NodeClient::new(self.channel.clone()).node_stage_volume(request).await }).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.doorman.lock().unstages.push(request.clone());
        self.pass("unstage", async { NodeClient::new(self.channel.clone()).node_unstage_volume(request).await }).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.doorman.lock().publishes.push(request.clone());
        self.pass("publish", async { NodeClient::new(self.channel.clone()).node_publish_volume(request).await }).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.doorman.lock().unpublishes.push(request.clone());
        let call = async { NodeClient::new(self.channel.clone()).node_unpublish_volume(request).await };
        self.pass("unpublish", call).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let condition = {
            let mut book = self.doorman.lock();
            book.stats.push(request.clone());
            book.condition.clone()
        };
        let mut answer = NodeClient::new(self.channel.clone()).node_get_volume_stats(request).await?;
        answer.get_mut().volume_condition = condition;
        Ok(answer)
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.doorman.lock().expands.push(request.clone());
        self.pass("expand", async { NodeClient::new(self.channel.clone()).node_expand_volume(request).await }).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        self.doorman.lock().questions += 1;
        NodeClient::new(self.channel.clone()).node_get_capabilities(v1::NodeGetCapabilitiesRequest {}).await
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        NodeClient::new(self.channel.clone()).node_get_info(v1::NodeGetInfoRequest {}).await
    }
}
