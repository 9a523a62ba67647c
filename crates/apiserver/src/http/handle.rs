//! One request from first byte to answer: who is it, may they, what is asked, and how long may it take.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::Instant;

use super::answer::{Answer, Layout};
use super::body::Body;
use super::flow::InFlight;
use super::member::Member;
use super::{BodyError, Caller, PeerCertificate, Shared, endpoints, flow, join, resources};
use crate::audit::{AuditLog, AuditNotes, Entry, Seen};
use crate::auth::{ANONYMOUS, User};
use crate::metrics;
use crate::request::{
    Encoding, Endpoint, MAX_BODY_BYTES, MAX_BODY_VALUES, Method, Refusal, RequestInfo, Target, Verb, check_headers,
    request_timeout, wants_pretty,
};
use crate::seats::Seat;
use crate::sources;
use crate::status::ApiError;
use crate::verbs::{Failure, Outcome};

/// What is read of the body of a request that is refused without it, and for how long.
const DRAINED_BYTES: usize = 4 << 20;
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// What a request may take unless it is a watch.
const LONGEST: Duration = Duration::from_secs(60);

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) user: Arc<User>,
    pub(crate) info: Arc<RequestInfo>,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) accept_encoding: String,
    /// `If-None-Match`, for documents that have a tag.
    pub(crate) known_tag: String,
    pub(crate) layout: Layout,
    /// What the client reads errors in.
    pub(crate) errors_in: Encoding,
    pub(crate) body: Bytes,
    pub(crate) notes: AuditNotes,
}

/// Who sends requests over one connection, and who notes them.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) caller: Caller,
    /// None in process.
    pub(super) address: Option<IpAddr>,
    pub(super) audit: Option<Arc<AuditLog>>,
    pub(super) strangers: Strangers,
    /// None in process.
    pub(super) seat: Option<Arc<ConnectionSeat>>,
}

/// What a connection has done to keep its seat.
#[derive(Debug)]
pub(crate) struct ConnectionSeat {
    seat: Seat,
    has_asked: AtomicBool,
}

impl ConnectionSeat {
    pub(crate) fn new(seat: Seat) -> Self {
        Self { seat, has_asked: AtomicBool::new(false) }
    }

    /// Notes that the headers of a request have come.
    fn set_asked(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Whether any request has come.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    pub(crate) fn seat(&self) -> &Seat {
        &self.seat
    }
}

/// What becomes of requests without a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strangers {
    /// They are anonymous, and roles decide.
    Heard,
    TurnedAway,
}

pub(super) async fn handle<B>(shared: Arc<Shared>, origin: Origin, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    let (started, received) = (Instant::now(), shared.core.now());
    let audit_id = sources::uuid(&*shared.core.entropy);
    let (parts, body) = request.into_parts();
    let speech = Speech::of(&parts);
    if let Some(seat) = &origin.seat {
        seat.set_asked();
    }
    let mut seen = Seen::default();
    let mut body = Box::pin(body);
    let arrival = Arrival { origin: &origin, parts: &parts, speech: &speech };
    let mut place = None;
    let answer = match answer(Arc::clone(&shared), arrival, &mut body, (&mut seen, &mut place)).await {
        Ok(answer) => answer,
        Err(failure) => Answer::failure(&failure, speech.errors_in(), speech.layout),
    };
    if let Some(address) = origin.address {
        if answer.code() == 401 && is_guess(&origin, &parts) && seen.info.as_ref().is_some_and(|info| is_joining(info))
        {
            shared.attempts.note_refusal(address, shared.core.clock.now());
        }
        drain(&mut body).await;
    }
    if let Some(info) = &seen.info {
        let (verb, labels) = metrics::labels(&shared.core.served(), &info.method, &info.target);
        shared.metrics.answered(&labels, verb, answer.code(), started.elapsed());
    }
    if let Some(log) = &origin.audit {
        let entry = Entry {
            id: &audit_id,
            uri: parts.uri.to_string(),
            method: parts.method.as_str(),
            user_agent: header(&parts, USER_AGENT.as_str()),
            source: origin.address,
            code: answer.code(),
            received,
            answered: shared.core.now(),
        };
        log.write(&entry.event(&seen));
    }
    let response = answer.into_response(&audit_id);
    match origin.address {
        Some(_) => response.map(|body| shared.flow.underway.send(body, place, origin.seat)),
        None => response,
    }
}

fn is_joining(info: &RequestInfo) -> bool {
    info.target == Target::Endpoint(Endpoint::Join)
}

/// Whether a request to join may be a guess: all but those of a machine that shows its certificate and no token. It renews
/// its certificate although other clients of its address guess.
fn is_guess(origin: &Origin, parts: &Parts) -> bool {
    match &origin.caller {
        Caller::Known(_) => false,
        Caller::Remote(Some(PeerCertificate::Ours(_))) => parts.headers.contains_key(http::header::AUTHORIZATION),
        Caller::Remote(_) => true,
    }
}

/// A request without its body.
struct Arrival<'a> {
    origin: &'a Origin,
    parts: &'a Parts,
    speech: &'a Speech,
}

/// What the headers of a request say about how to talk to its sender.
struct Speech {
    accept: String,
    layout: Layout,
}

impl Speech {
    fn of(parts: &Parts) -> Self {
        // Only one parameter matters here, and hardly any request has it, in any spelling.
        let raw = parts.uri.query().filter(|raw| raw.contains("pretty") || raw.contains('%')).unwrap_or_default();
        let query = crate::request::Query::parse(raw).unwrap_or_default();
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
    let mut values = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut text = values.next().unwrap_or_default().to_owned();
    for value in values {
        text.extend([",", value]);
    }
    text
}

/// Reads what is left of the body of a refused request, within bounds: a client that still sends would otherwise find the
/// connection closed before it has read the answer.
async fn drain<B>(body: &mut B)
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
{
    let reading = async {
        let mut left = DRAINED_BYTES;
        while left > 0 && !body.is_end_stream() {
            let Some(Ok(frame)) = body.frame().await else { return };
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    // A client that waits with its body for the answer is answered soon.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

/// The answer, and the place that its request has meanwhile.
async fn answer<B>(
    shared: Arc<Shared>,
    arrival: Arrival<'_>,
    body: &mut B,
    (seen, place): (&mut Seen, &mut Option<InFlight>),
) -> Outcome<Answer>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<BodyError>,
{
    let Arrival { origin, parts, speech } = arrival;
    let (info, user) = admit(&shared, &arrival, seen)?;
    let notes = seen.notes.clone();
    let Some(place) = shared.flow.enter(origin, &user, &info).map(|entered| place.insert(entered)) else {
        return Ok(flow::too_many());
    };
    let metrics = Arc::clone(&shared.metrics);
    let _in_flight = metrics.begin(&info.method);
    let limit = request_timeout(&info.query, LONGEST)?;
    if !matches!(info.method, Method::Get | Method::Head) && !place.has_room_for_body(body.size_hint().upper()) {
        return Ok(flow::too_many());
    }
    let reads = info.method == Method::Get && origin.address.is_some();
    let lasting = matches!(&info.target, Target::Resource(request) if request.verb == Verb::Watch);
    let work = async {
        let body = match info.method {
            Method::Get | Method::Head => Bytes::new(),
            _ => bounded(read(body).await?)?,
        };
        let call = Call {
            shared,
            user,
            info,
            accept: speech.accept.clone(),
            content_type: header(parts, CONTENT_TYPE.as_str()),
            user_agent: header(parts, USER_AGENT.as_str()),
            accept_encoding: header(parts, ACCEPT_ENCODING.as_str()),
            known_tag: header(parts, http::header::IF_NONE_MATCH.as_str()),
            layout: speech.layout,
            errors_in: speech.errors_in(),
            body,
            notes,
        };
        if flow::is_large(origin, &call) { flow::apart(call).await } else { route(call).await }
    };
    if lasting {
        return work.await;
    }
    let Ok(outcome) = tokio::time::timeout(limit, work).await else {
        return Err(ApiError::timeout("request did not complete within the allotted timeout").into());
    };
    let answer = outcome?;
    // What was written is told however long it is.
    match reads && !place.has_room_for_answer(answer.waiting_bytes()) {
        true => Ok(flow::too_many()),
        false => Ok(answer),
    }
}

/// Who it is and whether they may.
fn admit(shared: &Shared, arrival: &Arrival<'_>, seen: &mut Seen) -> Outcome<(Arc<RequestInfo>, Arc<User>)> {
    let Arrival { origin, parts, .. } = arrival;
    check_headers(parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))?;
    let info = RequestInfo::parse(parts.method.as_str(), parts.uri.path(), parts.uri.query().unwrap_or_default())?;
    let info = Arc::new(info);
    seen.info = Some(Arc::clone(&info));
    let joining = is_joining(&info);
    if let Some(address) = origin.address.filter(|_| joining && is_guess(origin, parts))
        && let Some(seconds) = shared.attempts.wait_seconds(address, shared.core.clock.now())
    {
        let why = format!("too many attempts to join from this address were refused: try again in {seconds} seconds");
        return Err(ApiError::too_many_requests(why).retry_after(seconds).into());
    }
    let user = match &origin.caller {
        Caller::Known(user) => Arc::clone(user),
        Caller::Remote(certificate) => {
            let newcomer = if joining { join::newcomer(&shared.core, &parts.headers, &seen.notes)? } else { None };
            Arc::new(match newcomer {
                Some(newcomer) => newcomer,
                None => shared.gate.authenticate(&shared.core, certificate.as_ref(), &parts.headers)?,
            })
        }
    };
    if origin.strangers == Strangers::TurnedAway && user.name == ANONYMOUS {
        return Err(Refusal::Unauthorized.into());
    }
    seen.user = Some(Arc::clone(&user));
    if let Some(member) = Member::of(&user) {
        member.check(&shared.core)?;
    }
    if let Some(seat) = origin.seat.as_ref().filter(|_| user.name != ANONYMOUS) {
        seat.seat().set_known_as(flow::account_of(&user));
    }
    let acting = match shared.gate.impersonated(&shared.core, &user, &parts.headers)?.map(Arc::new) {
        Some(other) => {
            seen.impersonated = Some(Arc::clone(&other)).filter(|other| *other != user);
            other
        }
        None => user,
    };
    if joining {
        // It judges by itself who may: the holder of a token, and a machine about itself.
        seen.allowed = Some(String::new());
        return Ok((info, acting));
    }
    match shared.gate.authorize(&shared.core, &acting, &info) {
        Ok(reason) => seen.allowed = Some(reason),
        Err(refusal) => {
            seen.forbidden = true;
            return Err(refusal);
        }
    }
    Ok((info, acting))
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

/// A body that can be read without using up the memory: `[{},{},...]` is a few bytes per object, and none of them small
/// once it is one. Protobuf and YAML have limits in their readers; JSON in their place is looked at here.
fn bounded(body: Bytes) -> Outcome<Bytes> {
    let json = body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|first| matches!(first, b'{' | b'['));
    match json && values(&body) > MAX_BODY_VALUES {
        true => Err(Refusal::TooManyValues.into()),
        false => Ok(body),
    }
}

/// How many values a JSON text has, or a few more: every value but the first follows a bracket or a comma.
fn values(json: &[u8]) -> usize {
    let (mut count, mut in_text, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' | b',' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

pub(super) async fn route(mut call: Call) -> Result<Answer, Failure> {
    let info = Arc::clone(&call.info);
    match &info.target {
        Target::Endpoint(Endpoint::Join) => join::serve(&call).await,
        Target::Endpoint(endpoint) => endpoints::serve(&call, endpoint),
        Target::Resource(request) => {
            let accept_encoding = std::mem::take(&mut call.accept_encoding);
            Ok(resources::serve(call, request).await?.compressed(&accept_encoding))
        }
    }
}
