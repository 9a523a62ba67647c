//! One request from first byte to answer: who is it, may they, what is asked, and how long may it take.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};

use super::answer::{Answer, Layout};
use super::body::Body;
use super::{BodyError, Caller, Shared, endpoints, resources};
use crate::auth::User;
use crate::request::{
    Encoding, MAX_BODY_BYTES, Method, Refusal, RequestInfo, Target, Verb, check_headers, request_timeout, wants_pretty,
};
use crate::sources;
use crate::status::ApiError;
use crate::verbs::{Failure, Outcome};

/// What a request may take unless it is a watch.
const LONGEST: Duration = Duration::from_secs(60);

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) user: User,
    pub(crate) info: RequestInfo,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    /// `If-None-Match`, for documents that have a tag.
    pub(crate) known_tag: String,
    pub(crate) layout: Layout,
    /// What the client reads errors in.
    pub(crate) errors_in: Encoding,
    pub(crate) body: Bytes,
}

pub(super) async fn handle<B>(shared: Arc<Shared>, caller: Caller, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    let audit_id = sources::uuid(&*shared.core.entropy);
    let (parts, body) = request.into_parts();
    let speech = Speech::of(&parts);
    let answer = match answer(shared, caller, &parts, body, &speech).await {
        Ok(answer) => answer,
        Err(failure) => Answer::failure(&failure, speech.errors_in(), speech.layout),
    };
    answer.into_response(&audit_id)
}

/// What the headers of a request say about how to talk to its sender.
struct Speech {
    accept: String,
    layout: Layout,
}

impl Speech {
    fn of(parts: &Parts) -> Self {
        let query = crate::request::Query::parse(parts.uri.query().unwrap_or_default()).unwrap_or_default();
        let layout = match wants_pretty(&query, &header(parts, USER_AGENT.as_str())) {
            true => Layout::Indented,
            false => Layout::Line,
        };
        Self { accept: header(parts, ACCEPT.as_str()), layout }
    }

    /// Errors are JSON unless that is the one thing the client does not read.
    fn errors_in(&self) -> Encoding {
        let only_protobuf = !self.accept.is_empty()
            && self.accept.split(',').all(|clause| clause.trim().starts_with(Encoding::Protobuf.media_type()));
        if only_protobuf { Encoding::Protobuf } else { Encoding::Json }
    }
}

/// The value of a header; empty when it is absent or no text. Several are joined, as they may be.
fn header(parts: &Parts, name: &str) -> String {
    let values: Vec<&str> = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

async fn answer<B>(shared: Arc<Shared>, caller: Caller, parts: &Parts, body: B, speech: &Speech) -> Outcome<Answer>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    check_headers(parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))?;
    let info = RequestInfo::parse(parts.method.as_str(), parts.uri.path(), parts.uri.query().unwrap_or_default())?;
    let user = match &caller {
        Caller::Known(user) => shared.gate.impersonated(&shared.core, (**user).clone(), &parts.headers)?,
        Caller::Remote(certificate) => {
            let user = shared.gate.authenticate(&shared.core, certificate.as_ref(), &parts.headers)?;
            shared.gate.impersonated(&shared.core, user, &parts.headers)?
        }
    };
    shared.gate.authorize(&shared.core, &user, &info)?;
    let limit = request_timeout(&info.query, LONGEST)?;
    let lasting = matches!(&info.target, Target::Resource(request) if request.verb == Verb::Watch);
    let work = async {
        let body = match info.method {
            Method::Get | Method::Head => Bytes::new(),
            _ => read(body).await?,
        };
        let call = Call {
            shared,
            user,
            info,
            accept: speech.accept.clone(),
            content_type: header(parts, CONTENT_TYPE.as_str()),
            user_agent: header(parts, USER_AGENT.as_str()),
            known_tag: header(parts, http::header::IF_NONE_MATCH.as_str()),
            layout: speech.layout,
            errors_in: speech.errors_in(),
            body,
        };
        route(call).await
    };
    if lasting {
        return work.await;
    }
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ApiError::timeout("request did not complete within the allotted timeout").into()),
    }
}

/// All of a body, unless it is too large.
async fn read<B>(body: B) -> Outcome<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BodyError>,
{
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::BodyTooLarge.into()),
        Err(error) => Err(ApiError::bad_request(format!("the body could not be read: {error}")).into()),
    }
}

async fn route(call: Call) -> Result<Answer, Failure> {
    match &call.info.target {
        Target::Endpoint(endpoint) => endpoints::serve(&call, endpoint),
        Target::Resource(request) => {
            let request = request.clone();
            resources::serve(call, request).await
        }
    }
}
