//! Requests in flight: how many are worked on at the same time, and where.
//!
//! Guarantees:
//! - A remote user has at most [`PER_USER`] requests in flight, and all ordinary users together at most [`TOTAL`]. One more
//!   is answered with 429 at once.
//! - Health, callers in this process, machines, nodes and leases are not counted with them: they have [`SYSTEM`] places of
//!   their own, and health and callers in this process need none.
//! - A remote request with more than [`LARGE_BODY`] bytes is decoded, checked and answered on a thread of its own, at most
//!   [`LARGE_AT_ONCE`] at the same time. So it cannot keep the threads that answer everybody else.
//!
//! A request of a caller in this process always runs where it is called: a simulator with paused time depends on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::answer::Answer;
use super::handle::{Call, Origin};
use crate::auth::User;
use crate::request::{Endpoint, RequestInfo, Target, Verb};
use crate::status::ApiError;
use crate::verbs::Outcome;

/// Requests of all ordinary users at the same time.
const TOTAL: usize = 200;
/// Requests of one ordinary user at the same time.
const PER_USER: usize = 100;
/// Requests of nodes and machines, and about leases, at the same time.
const SYSTEM: usize = 100;
/// A body with more bytes than this is worked on apart.
const LARGE_BODY: usize = 64 << 10;
/// Requests with large bodies that are worked on at the same time; the others wait for their turn.
const LARGE_AT_ONCE: usize = 2;

/// The requests that are being worked on.
#[derive(Debug)]
pub(crate) struct Flow {
    counts: Mutex<Counts>,
    large: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Counts {
    ordinary: usize,
    system: usize,
    by_user: BTreeMap<String, usize>,
}

impl Default for Flow {
    fn default() -> Self {
        Self { counts: Mutex::default(), large: Arc::new(Semaphore::new(LARGE_AT_ONCE)) }
    }
}

/// With whom a request shares its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Never refused.
    Exempt,
    System,
    Ordinary,
}

fn share_of(origin: &Origin, user: &User, info: &RequestInfo) -> Share {
    let is_member = |group: &str| user.groups.iter().any(|known| known == group);
    match &info.target {
        _ if origin.address.is_none() => Share::Exempt,
        Target::Endpoint(Endpoint::Health { .. }) => Share::Exempt,
        // A watch lasts as long as its client wants and takes no work while nothing happens.
        Target::Resource(request) if request.verb == Verb::Watch => Share::Exempt,
        Target::Resource(request) if request.resource == "leases" => Share::System,
        _ if is_member("system:nodes") || is_member("orlop:machines") => Share::System,
        _ => Share::Ordinary,
    }
}

/// A request's place, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight<'f> {
    flow: &'f Flow,
    share: Share,
    user: String,
}

impl Flow {
    /// A place for a request, or none when its user or everybody together has too many.
    pub(super) fn enter(&self, origin: &Origin, user: &User, info: &RequestInfo) -> Option<InFlight<'_>> {
        let share = share_of(origin, user, info);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match share {
            Share::Exempt => {}
            Share::System if counts.system >= SYSTEM => return None,
            Share::System => counts.system += 1,
            Share::Ordinary => {
                let own = counts.by_user.get(&user.name).copied().unwrap_or_default();
                if own >= PER_USER || counts.ordinary >= TOTAL {
                    return None;
                }
                counts.ordinary += 1;
                *counts.by_user.entry(user.name.clone()).or_default() += 1;
            }
        }
        Some(InFlight { flow: self, share, user: user.name.clone() })
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut counts = self.flow.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match self.share {
            Share::Exempt => {}
            Share::System => counts.system -= 1,
            Share::Ordinary => {
                counts.ordinary -= 1;
                if let Some(own) = counts.by_user.get_mut(&self.user) {
                    *own -= 1;
                    if *own == 0 {
                        counts.by_user.remove(&self.user);
                    }
                }
            }
        }
    }
}

/// What a request is answered that finds no place: the words of kube-apiserver.
pub(super) fn too_many() -> Answer {
    Answer::text(429, "Too many requests, please try again later.\n")
        .header("retry-after", "1")
        .header("x-content-type-options", "nosniff")
}

/// Whether a request is worked on apart from the others.
pub(super) fn is_large(origin: &Origin, call: &Call) -> bool {
    origin.address.is_some() && call.body.len() > LARGE_BODY
}

/// Works on a request with a large body on a thread of its own. A client that leaves does not end the work, so the turn
/// lasts until it is done.
pub(super) async fn apart(call: Call) -> Outcome<Answer> {
    let turn = Arc::clone(&call.shared.flow.large).acquire_owned().await;
    let turn = turn.map_err(|error| ApiError::internal(error.to_string()))?;
    let runtime = Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        runtime.block_on(super::handle::route(call))
    });
    match work.await {
        Ok(outcome) => outcome,
        Err(error) => Err(ApiError::internal(format!("the request ended early: {error}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::json;
    use tokio::time::timeout;
    use tower::ServiceExt as _;

    use super::super::body::Body;
    use super::super::{Caller, Service, Strangers};
    use super::*;
    use crate::sources::{ManualClock, SeededEntropy};
    use crate::store::UnixMillis;
    use crate::{Api, Settings};

    const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn origin(address: Option<IpAddr>) -> Origin {
        Origin { caller: Caller::Remote(None), address, audit: None, strangers: Strangers::Heard, seat: None }
    }

    fn user(name: &str, group: &str) -> User {
        User { name: name.to_owned(), groups: vec![group.to_owned()], ..User::default() }
    }

    fn asked(method: &str, path: &str) -> RequestInfo {
        RequestInfo::parse(method, path, "").expect("the path is good")
    }

    #[test]
    fn one_user_cannot_take_the_places_of_another_nor_those_of_the_system() {
        let (flow, remote) = (Flow::default(), origin(Some(REMOTE)));
        let pods = asked("GET", "/api/v1/pods");
        let enter = |name: &str| flow.enter(&remote, &user(name, "people"), &pods);
        let first: Vec<_> = (0..PER_USER).filter_map(|_| enter("a")).collect();
        assert_eq!(first.len(), PER_USER);
        assert!(enter("a").is_none(), "one user has a limit");
        let second: Vec<_> = (0..PER_USER).filter_map(|_| enter("b")).collect();
        assert_eq!(second.len(), PER_USER, "another one is not concerned");
        assert!(enter("c").is_none(), "all together have a limit, too");
        let node = user("system:node:n", "system:nodes");
        assert!(flow.enter(&remote, &node, &pods).is_some());
        let lease = asked("GET", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l");
        assert!(flow.enter(&remote, &user("a", "people"), &lease).is_some());
        assert!(flow.enter(&remote, &user("a", "people"), &asked("GET", "/livez")).is_some());
        assert!(flow.enter(&origin(None), &user("a", "people"), &pods).is_some(), "in process nobody is refused");
        drop(first);
        assert!(enter("c").is_some(), "places become free");
        drop(second);
        assert!(flow.counts.lock().expect("no test panicked").by_user.is_empty());
    }

    async fn service() -> Service {
        let clock = Arc::new(ManualClock::at(UnixMillis(1_800_000_000_000)));
        let settings = Settings::in_memory(clock, Arc::new(SeededEntropy::new(1))).expect("keys can be made");
        Api::start(settings).await.expect("an empty store can be prepared").service().as_user(User::loopback())
    }

    async fn create(service: Service, name: &str, bytes: usize) -> Response<Body> {
        let map = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(bytes)}});
        let request = Request::builder()
            .method("POST")
            .uri("/api/v1/namespaces/default/configmaps")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(map.to_string())))
            .expect("the request is good");
        service.oneshot(request).await.unwrap_or_else(|never| match never {})
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_waits_for_its_turn_and_nobody_else_waits_for_it() {
        let local = service().await;
        let remote = local.clone().from_address(REMOTE);
        let large = Arc::clone(&local.shared.flow.large);
        let turns = large.acquire_many(LARGE_AT_ONCE.try_into().expect("it is small")).await.expect("it is open");
        let mut waiting = std::pin::pin!(create(remote.clone(), "large", 100_000));
        assert!(timeout(Duration::from_secs(5), &mut waiting).await.is_err(), "all turns are taken");
        assert_eq!(create(remote, "small", 100).await.status(), 201);
        assert_eq!(create(local, "own", 100_000).await.status(), 201, "in process it runs where it is called");
        drop(turns);
        assert_eq!(waiting.await.status(), 201);
    }

    #[tokio::test]
    async fn a_request_over_the_limit_is_told_when_to_come_again() {
        let local = service().await;
        let remote = local.clone().from_address(REMOTE);
        let (pods, from) = (asked("GET", "/api/v1/pods"), origin(Some(REMOTE)));
        let places: Vec<_> =
            (0..PER_USER).filter_map(|_| local.shared.flow.enter(&from, &User::loopback(), &pods)).collect();
        let refused = create(remote.clone(), "a", 1).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers().get("retry-after").and_then(|value| value.to_str().ok()), Some("1"));
        drop(places);
        assert_eq!(create(remote, "a", 1).await.status(), 201);
    }
}
