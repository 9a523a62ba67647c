//! Requests in flight: how many are worked on at the same time, and where.
//!
//! Guarantees:
//! - Every remote user has a limit, and so have all users that share places: ordinary users, nodes with machines, requests
//!   about leases, and watches each have places of their own ([`Share`]). One request more is answered with 429 at once.
//! - A request keeps its place until its client has taken the answer ([`sending`](super::sending)).
//! - Answers that wait in memory for their clients have a limit by bytes, for one user and for all.
//! - A request about a lease that finds no place among the leases takes one of its user's other places.
//! - Health and callers in this process need no place.
//! - A remote request that is much work ([`weight`](super::weight)) is worked on by a thread of its own, so that it cannot keep
//!   the threads that answer everybody else. There are [`TURNS`] turns for users and one for nodes and machines, and one
//!   account has one turn at a time.
//! - Large bodies have a limit by bytes, for one user and for all, which is looked at before they are read.
//!
//! A request of a caller in this process always runs where it is called: a simulator with paused time depends on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::answer::Answer;
use super::handle::{Call, Origin};
use super::join;
use super::sending::AnswersUnderway;
use super::weight;
use crate::auth::User;
use crate::request::{Endpoint, MAX_BODY_BYTES, RequestInfo, Target, Verb};
use crate::status::ApiError;
use crate::verbs::Outcome;

/// A body with more bytes than this is counted before it is read.
const LARGE_BODY: usize = 64 << 10;
/// Requests of users that are much work and are worked on at the same time; the others wait for their turn.
const TURNS: usize = 2;

/// The requests that are being worked on.
#[derive(Debug)]
pub(crate) struct Flow {
    counts: Arc<Mutex<Counts>>,
    pub(super) underway: AnswersUnderway,
    turns: Turns,
}

#[derive(Debug, Default)]
struct Counts {
    by_share: BTreeMap<Share, usize>,
    by_account: BTreeMap<(Share, String), usize>,
}

impl Default for Flow {
    fn default() -> Self {
        let (counts, underway) = Default::default();
        Self { counts, underway, turns: Turns::default() }
    }
}

/// The limits that requests share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    /// Never refused.
    Exempt,
    /// Requests of anybody about leases.
    Leases,
    /// Requests of nodes and machines.
    System,
    Ordinary,
    Watches,
    /// Bytes of large bodies.
    BodyBytes,
    /// Bytes of answers that wait for their clients.
    AnswerBytes,
}

/// How much of a share may be used at the same time.
struct Limit {
    in_all: usize,
    of_one: usize,
}

impl Share {
    fn limit(self) -> Limit {
        match self {
            Self::Exempt => Limit { in_all: usize::MAX, of_one: usize::MAX },
            Self::Leases => Limit { in_all: 50, of_one: 10 },
            Self::System => Limit { in_all: 100, of_one: 25 },
            Self::Ordinary => Limit { in_all: 200, of_one: 100 },
            Self::Watches => Limit { in_all: 10_000, of_one: 1_000 },
            Self::BodyBytes => Limit { in_all: 64 << 20, of_one: 16 << 20 },
            Self::AnswerBytes => Limit { in_all: 256 << 20, of_one: 64 << 20 },
        }
    }
}

/// Where a request may find its place: the second is tried when the first is full.
fn shares_of(origin: &Origin, user: &User, info: &RequestInfo) -> [Option<Share>; 2] {
    let own = if is_system(user) { Share::System } else { Share::Ordinary };
    match &info.target {
        _ if origin.address.is_none() => [Some(Share::Exempt), None],
        Target::Endpoint(Endpoint::Health { .. }) => [Some(Share::Exempt), None],
        // A watch lasts as long as its client wants and takes no work while nothing happens.
        Target::Resource(request) if request.verb == Verb::Watch => [Some(Share::Watches), None],
        Target::Resource(request) if request.resource == "leases" => [Some(Share::Leases), Some(own)],
        _ => [Some(own), None],
    }
}

/// Nodes and machines.
fn is_system(user: &User) -> bool {
    user.groups.iter().any(|group| group == "system:nodes" || group == "orlop:machines")
}

/// Whose requests are counted together: the two identities of a machine are one account.
pub(super) fn account_of(user: &User) -> &str {
    let names = [join::NODE, join::MACHINE];
    names.into_iter().find_map(|prefix| user.name.strip_prefix(prefix)).unwrap_or(&user.name)
}

/// The place of a request and what else it uses, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    counts: Arc<Mutex<Counts>>,
    account: String,
    used: Vec<(Share, usize)>,
}

impl Flow {
    /// A place for a request, or none when its user or everybody together has too many.
    pub(super) fn enter(&self, origin: &Origin, user: &User, info: &RequestInfo) -> Option<InFlight> {
        let account = account_of(user).to_owned();
        let mut place = InFlight { counts: Arc::clone(&self.counts), account, used: Vec::with_capacity(2) };
        let mut shares = shares_of(origin, user, info).into_iter().flatten();
        shares.any(|share| place.take(share, 1)).then_some(place)
    }
}

impl InFlight {
    /// Whether a body may be read that has at most so many bytes.
    pub(super) fn has_room_for_body(&mut self, most: Option<u64>) -> bool {
        let bytes = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_BODY_BYTES).min(MAX_BODY_BYTES);
        bytes <= LARGE_BODY || self.take(Share::BodyBytes, bytes)
    }

    /// Whether an answer of so many bytes may wait for its client.
    pub(super) fn has_room_for_answer(&mut self, bytes: usize) -> bool {
        bytes == 0 || self.take(Share::AnswerBytes, bytes)
    }

    fn take(&mut self, share: Share, amount: usize) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = counts.take(share, &self.account, amount);
        if taken {
            self.used.push((share, amount));
        }
        taken
    }
}

impl Counts {
    /// Whoever uses nothing of a share may take as much as one request needs.
    fn take(&mut self, share: Share, account: &str, amount: usize) -> bool {
        let (limit, key) = (share.limit(), (share, account.to_owned()));
        let in_all = self.by_share.entry(share).or_default();
        let of_one = self.by_account.get(&key).copied().unwrap_or_default();
        let fits = |used: usize, most: usize| used == 0 || used.saturating_add(amount) <= most;
        if !fits(*in_all, limit.in_all) || !fits(of_one, limit.of_one) {
            return false;
        }
        *in_all += amount;
        self.by_account.insert(key, of_one + amount);
        true
    }

    fn give_back(&mut self, share: Share, account: &str, amount: usize) {
        let key = (share, account.to_owned());
        if let Some(in_all) = self.by_share.get_mut(&share) {
            *in_all -= amount;
        }
        match self.by_account.get_mut(&key) {
            Some(of_one) if *of_one > amount => *of_one -= amount,
            _ => drop(self.by_account.remove(&key)),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (share, amount) in &self.used {
            counts.give_back(*share, &self.account, *amount);
        }
    }
}

/// What a request is answered that finds no place: the words of kube-apiserver.
pub(super) fn too_many() -> Answer {
    Answer::text(429, "Too many requests, please try again later.\n")
        .header("retry-after", "1")
        .header("x-content-type-options", "nosniff")
}

/// The turns of requests that are much work.
#[derive(Debug)]
struct Turns {
    of_users: Arc<Semaphore>,
    of_system: Arc<Semaphore>,
    /// One for each account that has a turn or waits for it.
    by_account: Arc<AccountTurns>,
}

type AccountTurns = Mutex<BTreeMap<String, Arc<Semaphore>>>;

impl Default for Turns {
    fn default() -> Self {
        let (of_users, of_system) = (Arc::new(Semaphore::new(TURNS)), Arc::new(Semaphore::new(1)));
        Self { of_users, of_system, by_account: Arc::default() }
    }
}

/// Leave to work on a request that is much work, or the wait for it.
struct Turn {
    own: Option<OwnedSemaphorePermit>,
    common: Option<OwnedSemaphorePermit>,
    account: String,
    by_account: Arc<AccountTurns>,
}

impl Turns {
    /// Waits behind the other requests of its account first, so that each account is in the common queue once.
    async fn take(&self, user: &User) -> Result<Turn, AcquireError> {
        let (account, by_account) = (account_of(user).to_owned(), Arc::clone(&self.by_account));
        let mut turn = Turn { own: None, common: None, account, by_account };
        turn.own = Some(turn.queue().acquire_owned().await?);
        let common = if is_system(user) { &self.of_system } else { &self.of_users };
        turn.common = Some(Arc::clone(common).acquire_owned().await?);
        Ok(turn)
    }
}

impl Turn {
    fn queue(&self) -> Arc<Semaphore> {
        let mut by_account = self.by_account.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(by_account.entry(self.account.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop((self.common.take(), self.own.take()));
        let mut by_account = self.by_account.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's own is the last one when no request of the account waits.
        if by_account.get(&self.account).is_some_and(|own| Arc::strong_count(own) == 1) {
            by_account.remove(&self.account);
        }
    }
}

/// Whether a request is worked on apart from the others.
pub(super) fn is_large(origin: &Origin, call: &Call) -> bool {
    origin.address.is_some() && weight::is_large(call)
}

/// Works on a request that is much work on a thread of its own. A client that leaves does not end the work, so the turn
/// lasts until it is done.
pub(super) async fn apart(call: Call) -> Outcome<Answer> {
    let turn = call.shared.flow.turns.take(&call.user).await;
    let turn = turn.map_err(|error| ApiError::internal(error.to_string()))?;
    let runtime = Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        let (_turn, is_streamed) = (turn, weight::is_streamed(&call));
        let answer = runtime.block_on(super::handle::route(call))?;
        Ok(if is_streamed { answer } else { answer.whole() })
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
    use http_body_util::{BodyExt as _, Full};
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

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/x/leases/l";

    #[test]
    fn one_user_cannot_take_the_places_of_another_nor_those_of_the_system() {
        let (flow, remote) = (Flow::default(), origin(Some(REMOTE)));
        let (pods, per_user) = (asked("GET", "/api/v1/pods"), Share::Ordinary.limit().of_one);
        let enter = |name: &str| flow.enter(&remote, &user(name, "people"), &pods);
        let first: Vec<_> = (0..per_user).filter_map(|_| enter("a")).collect();
        assert_eq!(first.len(), per_user);
        assert!(enter("a").is_none(), "one user has a limit");
        let second: Vec<_> = (0..per_user).filter_map(|_| enter("b")).collect();
        assert_eq!(second.len(), per_user, "another one is not concerned");
        assert!(enter("c").is_none(), "all together have a limit, too");
        let node = user("system:node:n", "system:nodes");
        assert!(flow.enter(&remote, &node, &pods).is_some());
        assert!(flow.enter(&remote, &user("a", "people"), &asked("GET", LEASE)).is_some());
        assert!(flow.enter(&remote, &user("a", "people"), &asked("GET", "/livez")).is_some());
        assert!(flow.enter(&origin(None), &user("a", "people"), &pods).is_some(), "in process nobody is refused");
        drop(first);
        assert!(enter("c").is_some(), "places become free");
        drop(second);
        assert!(flow.counts.lock().expect("no test panicked").by_account.is_empty());
    }

    #[test]
    fn one_machine_cannot_take_the_places_of_another_nor_one_user_those_of_leases() {
        let (flow, remote) = (Flow::default(), origin(Some(REMOTE)));
        let (lease, pods) = (asked("PATCH", LEASE), asked("GET", "/api/v1/pods"));
        let [a, b] = ["system:node:a", "system:node:b"].map(|name| user(name, "system:nodes"));
        let stolen: Vec<_> = (0..100).filter_map(|_| flow.enter(&remote, &a, &lease)).collect();
        assert_eq!(stolen.len(), 10 + 25, "places of leases, and those of the machine");
        assert!(flow.enter(&remote, &user("orlop:machine:a", "orlop:machines"), &pods).is_none(), "the same machine");
        assert!(flow.enter(&remote, &b, &pods).is_some());
        assert!(flow.enter(&remote, &b, &lease).is_some());
        let crowd: Vec<_> = (0..10).map(|number| user(&format!("user-{number}"), "people")).collect();
        let theirs: Vec<_> = crowd.iter().flat_map(|one| (0..100).map(move |_| one)).collect();
        let taken: Vec<_> = theirs.into_iter().filter_map(|one| flow.enter(&remote, one, &lease)).collect();
        assert_eq!(taken.len(), 40 + 200, "the rest of the places of leases, and those of ordinary users");
        assert!(flow.enter(&remote, &b, &lease).is_some(), "a node has places that no user takes");
        drop((stolen, taken));
        assert!(flow.counts.lock().expect("no test panicked").by_account.is_empty());
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
        let turns = Arc::clone(&local.shared.flow.turns.of_users);
        let turns = turns.acquire_many(TURNS.try_into().expect("it is small")).await.expect("it is open");
        let mut waiting = std::pin::pin!(create(remote.clone(), "large", 100_000));
        assert!(timeout(Duration::from_secs(5), &mut waiting).await.is_err(), "all turns are taken");
        assert_eq!(create(remote, "small", 100).await.status(), 201);
        assert_eq!(create(local, "own", 100_000).await.status(), 201, "in process it runs where it is called");
        drop(turns);
        assert_eq!(waiting.await.status(), 201);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_request_that_is_much_work_waits_for_its_turn() {
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        let local = service().await;
        let remote = local.clone().from_address(REMOTE);
        assert_eq!(create(local.clone(), "large", 100_000).await.status(), 201);
        let turns = Arc::clone(&local.shared.flow.turns.of_users);
        let request = |method: &str, path: &str, accept: &str, body: &str| {
            let request = Request::builder().method(method).uri(path).header("accept", accept);
            let request = request.header("content-type", "application/merge-patch+json");
            request.body(Full::new(Bytes::from(body.to_owned()))).expect("the request is good")
        };
        let has_to_wait = async |request: Request<Full<Bytes>>| {
            let turns = turns.acquire_many(TURNS.try_into().expect("it is small")).await.expect("it is open");
            let asked = remote.clone().oneshot(request);
            let answered = timeout(Duration::from_secs(5), asked).await;
            drop(turns);
            answered.is_err()
        };
        let object = format!("{MAPS}/large");
        let labels = r#"{"metadata":{"labels":{"a":"b"}}}"#;
        assert!(has_to_wait(request("PATCH", &object, "", labels)).await, "the object is large");
        assert!(has_to_wait(request("GET", &object, "application/yaml", "")).await);
        assert!(!has_to_wait(request("GET", &object, "", "")).await, "a copy of the stored text");
        let list = |query: &str, accept: &str| request("GET", &format!("{MAPS}{query}"), accept, "");
        for number in 0..500 {
            let made = create(local.clone(), &format!("small-{number}"), 1).await;
            assert_eq!(made.status(), 201);
        }
        assert!(!has_to_wait(list("", "")).await, "copies of the stored texts");
        assert!(!has_to_wait(list("?fieldSelector=metadata.name%3Dlarge", "")).await);
        assert!(has_to_wait(list("?labelSelector=!a", "")).await);
        assert!(has_to_wait(list("", "application/yaml")).await);
        assert!(has_to_wait(list("", "application/vnd.kubernetes.protobuf")).await);
        assert!(has_to_wait(list("?pretty=1", "")).await);
        assert!(has_to_wait(list("", "application/json;as=Table;v=v1;g=meta.k8s.io")).await);
        assert!(has_to_wait(request("DELETE", &format!("{MAPS}?labelSelector=a"), "", "")).await);
        let few = "/api/v1/namespaces?labelSelector=!a";
        assert!(!has_to_wait(request("GET", few, "application/yaml", "")).await, "there are few");
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_has_one_turn_and_one_part_of_the_room_for_bodies() {
        let flow = Flow::default();
        let take = |name: &str, group: &str| {
            let user = user(name, group);
            let turns = &flow.turns;
            async move { timeout(Duration::from_secs(1), turns.take(&user)).await.ok() }
        };
        let first = take("a", "people").await.expect("there are turns");
        assert!(take("a", "people").await.is_none(), "the other turn is for another user");
        let second = take("b", "people").await.expect("there is one more");
        assert!(take("c", "people").await.is_none(), "all turns are taken");
        assert!(take("system:node:n", "system:nodes").await.is_some(), "nodes do not wait for users");
        drop((first, second));
        assert!(take("a", "people").await.is_some());
        assert!(flow.turns.by_account.lock().expect("no test panicked").is_empty());

        let (remote, maps) = (origin(Some(REMOTE)), asked("POST", "/api/v1/namespaces/default/configmaps"));
        let enter = |name: &str| flow.enter(&remote, &user(name, "people"), &maps).expect("there are places");
        let mut bodies: Vec<_> = (0..20).map(|_| enter("a")).collect();
        let read = bodies.iter_mut().filter_map(|place| place.has_room_for_body(Some(3 << 20)).then_some(())).count();
        assert_eq!(read, 5, "one user has 16 MiB");
        assert!(enter("a").has_room_for_body(Some(1000)), "a small body takes none of it");
        assert!(!enter("a").has_room_for_body(None), "a body of unknown length may be as long as any");
        assert!(enter("b").has_room_for_body(Some(3 << 20)));
        drop(bodies);
        assert!(enter("a").has_room_for_body(Some(3 << 20)));
    }

    #[tokio::test]
    async fn a_large_body_is_refused_unread_when_there_is_no_room_for_it() {
        let local = service().await;
        let (maps, from) = (asked("POST", "/api/v1/namespaces/default/configmaps"), origin(Some(REMOTE)));
        let mut held = local.shared.flow.enter(&from, &User::loopback(), &maps).expect("there are places");
        assert!(held.take(Share::BodyBytes, 16 << 20));
        let remote = local.clone().from_address(REMOTE);
        assert_eq!(create(remote.clone(), "large", 900_000).await.status(), 429);
        assert_eq!(create(remote.clone(), "small", 100).await.status(), 201);
        drop(held);
        assert_eq!(create(remote, "large", 900_000).await.status(), 201);
    }

    #[tokio::test]
    async fn a_request_over_the_limit_is_told_when_to_come_again() {
        let local = service().await;
        let remote = local.clone().from_address(REMOTE);
        let (pods, from) = (asked("GET", "/api/v1/pods"), origin(Some(REMOTE)));
        let places: Vec<_> = (0..Share::Ordinary.limit().of_one)
            .filter_map(|_| local.shared.flow.enter(&from, &User::loopback(), &pods))
            .collect();
        let refused = create(remote.clone(), "a", 1).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers().get("retry-after").and_then(|value| value.to_str().ok()), Some("1"));
        drop(places);
        assert_eq!(create(remote, "a", 1).await.status(), 201);
    }

    async fn get(service: &Service, path: &str) -> Response<Body> {
        let request = Request::get(path).body(Full::new(Bytes::new())).expect("the request is good");
        service.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_keeps_its_place_until_its_client_has_taken_it() {
        let remote = service().await.from_address(REMOTE);
        let most = Share::Ordinary.limit().of_one;
        let list = "/api/v1/namespaces?pretty=1";
        let mut held = Vec::new();
        for _ in 0..most {
            held.push(get(&remote, list).await);
        }
        assert!(held.iter().all(|answer| answer.status() == 200));
        assert_eq!(get(&remote, list).await.status(), 429);
        drop(held.pop());
        let read = get(&remote, list).await;
        assert_eq!(read.status(), 200, "a client that leaves gives its place back");
        read.into_body().collect().await.expect("it comes whole");
        let last = get(&remote, list).await;
        assert_eq!(last.status(), 200, "and so does one that has read everything");
        held.push(last);
        tokio::time::advance(Duration::from_secs(25)).await;
        tokio::task::yield_now().await;
        assert_eq!(get(&remote, list).await.status(), 429);
        let waited = timeout(Duration::from_secs(15), held[0].body_mut().frame()).await;
        assert!(waited.is_ok_and(|frame| frame.is_some()), "its client takes something of it");
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert_eq!(get(&remote, list).await.status(), 200, "what is not taken for 30 seconds is cut");
        let cut = timeout(Duration::from_secs(60), held[1].body_mut().frame()).await;
        assert!(cut.is_err(), "no end, which would look as if the answer were whole");
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_so_many_watches_and_another_one_is_not_concerned() {
        let local = service().await;
        let (nodes, from) =
            (RequestInfo::parse("GET", "/api/v1/nodes", "watch=1").expect("the path is good"), origin(Some(REMOTE)));
        let enter = |name: &str| local.shared.flow.enter(&from, &user(name, "people"), &nodes);
        let open: Vec<_> = (0..Share::Watches.limit().of_one).filter_map(|_| enter("a")).collect();
        assert_eq!(open.len(), 1_000);
        assert!(enter("a").is_none());
        assert!(enter("b").is_some());
        drop(open);
        let remote = local.from_address(REMOTE);
        let counted = || {
            let counts = remote.shared.flow.counts.lock().expect("no test panicked");
            counts.by_share.get(&Share::Watches).copied().unwrap_or_default()
        };
        let watch = get(&remote, "/api/v1/nodes?watch=1").await;
        assert_eq!((watch.status().as_u16(), counted()), (200, 1), "an open watch is counted");
        drop(watch);
        assert_eq!(counted(), 0);
    }

    #[test]
    fn answers_that_wait_for_their_clients_have_a_limit_by_bytes() {
        let (flow, remote, pods) = (Flow::default(), origin(Some(REMOTE)), asked("GET", "/api/v1/pods"));
        let enter = |name: &str| flow.enter(&remote, &user(name, "people"), &pods).expect("there are places");
        let (mut first, mut second, mut other) = (enter("a"), enter("a"), enter("b"));
        assert!(first.has_room_for_answer(100 << 20), "one answer may be as long as it is");
        assert!(!second.has_room_for_answer(1 << 20));
        assert!(other.has_room_for_answer(60 << 20));
        drop(first);
        assert!(second.has_room_for_answer(1 << 20));
    }
}
