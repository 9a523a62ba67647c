//! A model CSI driver: a backend that outlives everybody, behind real gRPC in memory, with faults from a seed.
//!
//! A [`Model`] is reached as any driver is, through [`runtime::csi::Dial`]. What a call does happens in a task of the
//! backend's own: a caller that gives up, crashes or loses its connection changes nothing about it. That is what makes
//! lost answers and slow completions real.
//!
//! # Invariants
//! 1. One call at a time works on a volume; another one meanwhile is answered ABORTED, as CSI wants it. So nothing of an
//!    earlier call comes after a good answer to a later one.
//! 2. A code that judges the request itself is only answered while there is nothing and nothing is under way: a driver that
//!    lies about that cannot be served without leaks by anybody. Codes about credentials and the like come at any time.
//! 3. Every call and every effect is a line in the journal.

pub mod attach;
mod disk;
mod fates;
mod leftovers;
mod node;
mod pool;
mod serve;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use runtime::csi::{Connection, Dial};
use runtime::watch;
use tokio::time::sleep;
use tonic::{Code, Status};

pub use attach::Published;
pub(crate) use disk::{VolumeUse, Writeback};
pub use fates::{Attach, Backend, Bent, Habits, Places, Staging};
pub use node::{NodeSide, is_on};
pub(crate) use pool::DriverFlaw;
pub use state::{BAD_PARAMETER, State, Volume};

use crate::journal::Journal;
use crate::random::Random;
use crate::world::Weather;
use crate::{World, keys};

/// Who is asked before a volume is deleted, and who remembers what was wrong about it.
pub trait Onlooker: Send + Sync + 'static {
    /// DeleteVolume was called for this volume, or is about to take effect.
    fn deleting(&self, volume: &Volume);

    /// DeleteVolume was called for this volume. Its effect may come much later.
    fn deletion_called(&self, _: &Volume) {}

    /// A volume was published or unpublished, or a call on a machine has had its effect.
    fn happened(&self) {}
}

/// The driver. Clones are the same.
#[derive(Clone)]
pub struct Model {
    shared: Arc<Shared>,
}

struct Shared {
    habits: Habits,
    journal: Journal,
    weather: Weather,
    inner: Mutex<Inner>,
    /// Whether somebody listens on the socket. Each change ends the connections there are.
    up: watch::Sender<Up>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Up {
    Listening,
    Gone,
}

struct Inner {
    state: State,
    random: Random,
    busy: BTreeSet<String>,
    calls: BTreeMap<&'static str, u64>,
    onlooker: Option<Weak<dyn Onlooker>>,
    disks: disk::Disks,
    leftovers: leftovers::Leftovers,
    pool: pool::PoolState,
    flaw: DriverFlaw,
}

impl Inner {
    fn onlooker(&self) -> Option<Arc<dyn Onlooker>> {
        self.onlooker.as_ref().and_then(Weak::upgrade)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("state", &self.lock().state).finish_non_exhaustive()
    }
}

/// What a call does to the backend.
type Effect<T> = Box<dyn Fn(&Model) -> Result<T, Status> + Send + Sync>;

impl Model {
    /// A driver with this backend. Its faults follow from the world's seed.
    pub fn new(world: &World, habits: Habits, state: State) -> Self {
        let (random, busy, calls) = (world.random("driver"), BTreeSet::new(), BTreeMap::new());
        let inner = Inner {
            state,
            random,
            busy,
            calls,
            onlooker: None,
            disks: disk::Disks::default(),
            leftovers: leftovers::Leftovers::new(world.random("driver leftovers")),
            pool: pool::PoolState::Here,
            flaw: DriverFlaw::None,
        };
        let (up, _) = watch::channel(Up::Listening);
        let (journal, weather) = (world.journal().clone(), world.weather());
        Self { shared: Arc::new(Shared { habits, journal, weather, inner: Mutex::new(inner), up }) }
    }

    /// Asks this one about deletions from now on, for as long as it lives. It may hold the driver, which does not hold it.
    pub fn watched_by(&self, onlooker: &Arc<impl Onlooker>) {
        let weak = Arc::downgrade(onlooker);
        self.lock().onlooker = Some(weak);
    }

    /// The name in classes and on volumes.
    pub fn name(&self) -> &'static str {
        keys::DRIVER
    }

    /// How bad it is, and what it does.
    pub fn habits(&self) -> &Habits {
        &self.shared.habits
    }

    /// The volumes there are.
    pub fn volumes(&self) -> Vec<Volume> {
        self.lock().state.volumes().cloned().collect()
    }

    /// How often what was called.
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.lock().calls.clone()
    }

    /// More room in every zone.
    pub fn grow(&self, bytes: i64) {
        self.lock().state.grow(bytes);
    }

    /// Makes or deletes something behind everybody's back: for mutations.
    pub fn tamper<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        how(&mut self.lock().state)
    }

    /// Comes and goes, until the world is calm; then it stays, for ever.
    pub async fn live_then_rest(&self) {
        self.live().await;
        self.sweep();
        self.keep_sweeping().await;
    }

    /// Comes and goes, until the world is calm.
    pub async fn live(&self) {
        let Habits { up, down, .. } = &self.shared.habits;
        while !self.shared.weather.is_calm() {
            let (stay, leave) = {
                let random = &mut self.lock().random;
                (random.between(up), random.between(down))
            };
            sleep(stay).await;
            if self.shared.weather.is_calm() {
                break;
            }
            self.note("gone");
            self.shared.up.send_replace(Up::Gone);
            sleep(leave).await;
            self.sweep();
            self.note("back");
            self.shared.up.send_replace(Up::Listening);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the onlooker see what has changed.
    fn happened(&self) {
        let onlooker = self.lock().onlooker();
        if let Some(onlooker) = onlooker {
            onlooker.happened();
        }
    }

    fn note(&self, what: impl fmt::Display) {
        self.shared.journal.note("driver", what);
    }

    /// Takes a call to the backend in and answers it, as its fate wants.
    async fn answer<T: Send + 'static>(&self, call: Call, effect: Effect<T>) -> Result<T, Status> {
        let mut up = self.shared.up.subscribe();
        let open = *up.borrow_and_update() == Up::Listening;
        let closed = Box::pin(async move {
            // The sender lives as long as the driver; if it is gone, so is the connection.
            let _ = up.changed().await;
        });
        self.answer_at(Door { open, closed }, call, effect).await
    }

    /// The same, at any of its doors.
    async fn answer_at<T: Send + 'static>(&self, door: Door, call: Call, effect: Effect<T>) -> Result<T, Status> {
        if !door.open {
            return Err(no_connection());
        }
        let (bent, delay) = self.take_in(&call)?;
        let (answered, answer) = tokio::sync::oneshot::channel();
        let backend = self.clone();
        // The backend goes on whatever becomes of the caller.
        tokio::spawn(async move {
            sleep(delay).await;
            let outcome = backend.perform(&call, bent, delay, effect).await;
            // If nobody waits any more, that is the caller's loss.
            let _ = answered.send(outcome);
        });
        tokio::select! {
            biased;
            () = door.closed => Err(Status::unavailable("the connection was closed")),
            answer = answer => answer.unwrap_or_else(|_| Err(Status::internal("the call panicked"))),
        }
    }

    /// Decides what becomes of a call, and takes the lock of what it works on.
    fn take_in(&self, call: &Call) -> Result<(Bent, Duration), Status> {
        let mut inner = self.lock();
        *inner.calls.entry(call.method).or_default() += 1;
        let delay = inner.random.between(&self.shared.habits.latency);
        let bent = match self.shared.weather.is_calm() {
            true => Bent::Not,
            false => inner.draw(&self.shared.habits, call),
        };
        let refused = matches!(bent, Bent::Refused(_));
        if !refused && !inner.busy.insert(call.object.clone()) {
            drop(inner);
            return Err(self.say(call, "busy", Status::aborted("another call is under way")));
        }
        drop(inner);
        self.note(format_args!("{call}{bent}"));
        Ok((bent, delay))
    }

    async fn perform<T>(&self, call: &Call, bent: Bent, delay: Duration, effect: Effect<T>) -> Result<T, Status> {
        if let Bent::Refused(code) = bent {
            return Err(self.say(call, "refused", Status::new(code, "the driver has a bad day")));
        }
        if let Bent::Slow(time) = bent {
            sleep(time).await;
        }
        let effect = || self.pool_is_there(call).and_then(|()| effect(self));
        let mut done = effect();
        if bent == Bent::Twice {
            sleep(delay).await;
            done = effect();
        }
        self.lock().busy.remove(&call.object);
        let code = done.as_ref().err().map_or(Code::Ok, Status::code);
        match (bent, done) {
            (Bent::Broken(code), Ok(_)) => Err(self.say(call, "done", Status::new(code, "it broke afterwards"))),
            (Bent::Lost, done) => {
                self.note(format_args!("{call}: {code:?}, the answer is lost"));
                drop(done);
                std::future::pending().await
            }
            (_, done) => {
                self.note(format_args!("{call}: {code:?}"));
                done
            }
        }
    }

    fn say(&self, call: &Call, how: &str, status: Status) -> Status {
        self.note(format_args!("{call}: {how}, {:?}", status.code()));
        status
    }
}

/// Which call it is, and on what.
#[derive(Debug, Clone)]
struct Call {
    method: &'static str,
    /// The volume's name, or an id that nothing has: one call at a time works on it.
    object: String,
    found: Found,
}

/// What there is of that for which a call asks, which says what a driver may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Something,
    /// The call takes away, and may be refused with any code.
    Whatever,
}

/// One of the sockets at which the driver listens.
struct Door {
    open: bool,
    /// Resolves when nobody listens there any more.
    closed: BoxFuture<'static, ()>,
}

fn no_connection() -> Status {
    Status::unavailable("the connection is closed")
}

type Answer<T> = Result<tonic::Response<T>, Status>;

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.object)
    }
}

impl Dial for Model {
    fn dial(&self) -> BoxFuture<'_, Result<Connection, String>> {
        Box::pin(async {
            let mut up = self.shared.up.subscribe();
            if *up.borrow_and_update() == Up::Gone {
                return Err("nobody listens on the socket".to_owned());
            }
            let channel = csi::in_memory(serve::routes(self.clone()));
            let lost = Box::pin(async move {
                // The sender lives as long as the driver; if it is gone, so is the connection.
                let _ = up.changed().await;
            });
            Ok(Connection { channel, lost })
        })
    }
}

#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod tests;
