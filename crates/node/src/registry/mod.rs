//! Registration: plugins are found by their sockets, asked who they are, and announced in Node and CSINode (NODE-3,
//! NODE-4).
//!
//! [`Registry`] fills [`Drivers`] with connected drivers. Sockets come from [`Plugins`]: a directory of this machine, or a
//! simulator's. Of several sockets of one driver the newest is used, and the others are what to fall back to.
//!
//! # Invariants
//! 1. A plugin hears "registered" only after the driver was asked about the node and Node and CSINode say so; it hears
//!    "not registered" with the reason whenever any of that cannot be (NODE-3.4).
//! 2. A driver whose socket is gone stays usable and announced for [`Options::grace`], since registrars restart.
//! 3. Node and CSINode are written one write at a time, at the revision that was seen, towards the whole of what is known.
//! 4. Absence of the API server stops nobody: a registration waits for it, and drivers that are registered stay.
//!
//! A process that serves one node calls [`narrow`] first, so that it does not watch all others.

mod book;
mod info;
pub mod machine;
mod plugins;
mod register;
mod state;
pub(crate) mod taints;
mod watch;
mod welcome;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{CsiDriver, CsiNode, Key, Node, Object};
use futures_util::future::join;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use runtime::client::Selection;
use runtime::csi::{Driver, DriverError, Link};
use runtime::metrics::Plugin as PluginLabels;
use runtime::queue::Backoff;
use runtime::watch as channel;
use runtime::{Caches, Change, Context, Queue, Stop, Subscription, Verdict, queue};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::drivers::Drivers;
use book::Book;
pub use book::{AnnounceError, Readiness};
pub use info::RefreshError;
pub(crate) use plugins::sentence;
pub use plugins::{Plugins, Sighting, Sockets, Tell};
use state::State;
pub use state::{Plugin, Standing};
pub use welcome::Welcome;

/// Where registration sockets are, below the root.
pub const DIRECTORY: &str = "plugins_registry";
/// So many sockets are registered at once.
const WORKERS: usize = 32;
/// As upstream's (NODE-1).
const BACKOFF: Backoff = Backoff { start: Duration::from_millis(500), max: Duration::from_secs(122) };

#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this machine's Node.
    pub node: String,
    /// The directory that everything of the agent is in.
    pub root: PathBuf,
    /// How long a driver without a socket stays announced and usable; also how long an agent that starts waits for
    /// drivers that were announced before.
    pub grace: Duration,
    /// How often Node and CSINode are looked at without a reason.
    pub resync: Duration,
}

impl Options {
    pub fn new(node: &str, root: &Path) -> Self {
        Self {
            node: node.to_owned(),
            root: root.to_owned(),
            grace: Duration::from_secs(60),
            resync: Duration::from_secs(900),
        }
    }
}

/// Lets a process see only its own node of Node and CSINode. Call it before anything else asks for these kinds, and not in
/// a process that has controllers in it.
pub fn narrow(caches: &Caches, node: &str) {
    let own = Selection { fields: Some(format!("metadata.name={node}")), ..Selection::default() };
    caches.narrow::<Node>(own.clone());
    caches.narrow::<CsiNode>(own);
}

/// A connection that has to be kept.
#[derive(Debug)]
struct Connect {
    socket: String,
    name: String,
    driver: Driver,
    stop: Stop,
}

/// The drivers of a machine, from their sockets to the cluster's objects.
#[derive(Debug)]
pub struct Registry {
    context: Context,
    options: Options,
    drivers: Drivers,
    plugins: Arc<dyn Plugins>,
    state: Arc<Mutex<State>>,
    book: Book,
    /// Sockets to look at.
    sockets: Queue<String>,
    /// Node and CSINode to look at.
    pages: Queue<()>,
    /// Drivers to ask again.
    infos: Queue<info::Ask>,
    tickers: info::Tickers,
    connects: mpsc::UnboundedSender<Connect>,
    /// Taken by `run`.
    connecting: tokio::sync::Mutex<mpsc::UnboundedReceiver<Connect>>,
    /// Something changed that a registration under way may wait for.
    moved: channel::Sender<u64>,
    ready: channel::Sender<Readiness>,
    _subscriptions: [Subscription; 3],
}

impl Registry {
    /// On sockets in `plugins_registry` below the root.
    pub fn new(context: &Context, drivers: Drivers, options: Options) -> Self {
        let sockets = Sockets::in_directory(&options.root.join(DIRECTORY));
        Self::with(context, drivers, Arc::new(sockets), options)
    }

    /// On any plugins.
    pub fn with(context: &Context, drivers: Drivers, plugins: Arc<dyn Plugins>, options: Options) -> Self {
        let Context { metrics, entropy, .. } = context;
        let sockets = Queue::new("plugin_registration", BACKOFF, metrics, entropy);
        let pages = Queue::new("csinode", BACKOFF, metrics, entropy);
        let infos = Queue::new("node_info", BACKOFF, metrics, entropy);
        let key = Key::cluster(&options.node);
        let moved = channel::Sender::new(0);
        let asks = infos.clone();
        let subscriptions = [
            wake::<Node>(context, &key, &pages, &moved),
            wake::<CsiNode>(context, &key, &pages, &moved),
            context.cache::<CsiDriver>().subscribe(move |change| asks.add(info::Ask::limit(change.key().name()))),
        ];
        let state: Arc<Mutex<State>> = Arc::default();
        show(context, &state);
        let (connects, connecting) = mpsc::unbounded_channel();
        Self {
            book: Book::new(context, &options.node),
            context: context.clone(),
            options,
            drivers,
            plugins,
            state,
            sockets,
            pages,
            infos,
            tickers: info::Tickers::default(),
            connects,
            connecting: tokio::sync::Mutex::new(connecting),
            moved,
            ready: channel::Sender::new(Readiness::Starting),
            _subscriptions: subscriptions,
        }
    }

    /// Follows whether CSINode was initialised: until then the node should not be Ready (NODE-4.1).
    pub fn readiness(&self) -> channel::Receiver<Readiness> {
        self.ready.subscribe()
    }

    /// What is known of each plugin, by socket.
    pub fn plugins(&self) -> Vec<Plugin> {
        self.state().plugins()
    }

    /// Finds, registers and announces until `stop`. Call it once.
    pub async fn run(&self, stop: &Stop) {
        let synced = async {
            self.context.cache::<Node>().synced().await;
            self.context.cache::<CsiNode>().synced().await;
            self.context.cache::<CsiDriver>().synced().await;
        };
        let begun = Instant::now();
        // Drivers are connected at once, so that volumes can be taken down also while the API server is away.
        let finding = async {
            let tell = |sighting| self.saw(sighting);
            tokio::select! {
                biased;
                () = stop.stopped() => {}
                () = self.plugins.watch(&tell) => {}
            }
        };
        // A registration may wait for the API server or a driver; whoever ends the agent does not.
        let registering = queue::run(&self.sockets, WORKERS, stop, |socket| unless(stop, self.pass(socket)));
        let announcing = async {
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = synced => {}
            }
            self.pages.add(());
            let pages = queue::run(&self.pages, 1, stop, |()| self.turn(begun));
            let infos = queue::run(&self.infos, WORKERS, stop, |ask| unless(stop, self.ask_again(ask)));
            let full = async {
                tokio::select! {
                    biased;
                    () = stop.stopped() => {}
                    () = self.follow_full() => {}
                }
            };
            join(full, join(pages, infos)).await;
        };
        join(self.connections(stop), join(finding, join(registering, announcing))).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, sighting: Sighting) {
        let socket = match sighting {
            Sighting::Found { socket } => {
                tracing::info!(socket, "a plugin's socket is there");
                self.state().found(&socket);
                // What failed before was another plugin (NODE-31.11).
                self.sockets.forget(&socket);
                socket
            }
            Sighting::Gone { socket } => {
                tracing::info!(socket, "a plugin's socket is gone");
                self.state().gone(&socket);
                socket
            }
        };
        self.sockets.add(socket);
        self.moved.send_modify(|count| *count += 1);
    }

    /// Keeps all connections until `stop`.
    async fn connections(&self, stop: &Stop) {
        let mut new = self.connecting.lock().await;
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                Some(connect) = new.recv() => open.push(self.connection(connect)),
                Some(()) = open.next(), if !open.is_empty() => {}
            }
        }
    }

    async fn connection(&self, connect: Connect) {
        let Connect { socket, name, driver, stop } = connect;
        let following = async {
            let mut link = driver.link();
            let mut last = 1;
            while link.changed().await.is_ok() {
                let now = match &*link.borrow_and_update() {
                    Link::Up(facts) => facts.connection,
                    Link::Down { .. } => continue,
                };
                // It was restarted, and may say something else of the node now (NODE-31.32).
                if now > last {
                    last = now;
                    self.infos.add(info::Ask::all(&name));
                }
            }
        };
        let ended = tokio::select! {
            biased;
            ended = driver.run(&stop) => ended,
            () = following => Ok(()),
        };
        if let Err(DriverError::NameChanged { was, is }) = ended {
            tracing::warn!(socket, was, is, "another driver answers; the plugin is asked anew");
            self.saw(Sighting::Found { socket });
        }
    }
}

/// Does the work, unless the end comes first: what is begun is found again by the next life.
async fn unless(stop: &Stop, work: impl Future<Output = Verdict>) -> Verdict {
    tokio::select! {
        biased;
        () = stop.stopped() => Verdict::Done,
        verdict = work => verdict,
    }
}

/// Looks at Node and CSINode whenever ours changes.
fn wake<T: Object>(context: &Context, key: &Key, pages: &Queue<()>, moved: &channel::Sender<u64>) -> Subscription {
    let (key, pages, moved) = (key.clone(), pages.clone(), moved.clone());
    context.cache::<T>().subscribe(move |change: &Change<T>| {
        if *change.key() == key {
            pages.add(());
            moved.send_modify(|count| *count += 1);
        }
    })
}

/// `plugin_manager_total_plugins`, computed when somebody looks.
fn show(context: &Context, state: &Arc<Mutex<State>>) {
    let (family, state) = (context.metrics.plugins.clone(), Arc::downgrade(state));
    context.metrics.before_encoding(move || {
        let Some(state) = state.upgrade() else { return };
        family.clear();
        let plugins = state.lock().unwrap_or_else(PoisonError::into_inner).plugins();
        for plugin in plugins {
            let states: &[&'static str] = match plugin.standing {
                Standing::Found | Standing::Registering | Standing::Failed { .. } => &["desired_state_of_world"],
                Standing::Used | Standing::Standby => &["desired_state_of_world", "actual_state_of_world"],
                Standing::Leaving => &["actual_state_of_world"],
            };
            for state in states {
                let labels = PluginLabels { socket_path: plugin.socket.clone(), state };
                family.get_or_create(&labels).set(1);
            }
        }
    });
}
