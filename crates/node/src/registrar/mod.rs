//! A driver's registrar: it serves the socket by which the node's agent finds the driver (NODE-27, NODE-31.32).
//!
//! # Invariants
//! 1. The socket is there while the driver is known and this runs, and is removed on every way out. If somebody else removes
//!    it, as a restarting kubelet may, it is made again.
//! 2. Whoever tells us something has his answer before anything else follows from it.
//! 3. When the driver was restarted and says something else of the node than before, the socket is made anew, which is how
//!    an agent learns of it.

mod serve;
pub mod startup;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::csi::registration::InfoRequest;
use ::csi::registration::registration_client::RegistrationClient;
use ::csi::registration::registration_server::RegistrationServer;
use ::csi::{BindError, Endpoint, Listener, SocketMode, connect_once, v1};
use runtime::Stop;
use runtime::csi::{Driver, Facts, Link};
use runtime::watch;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic::transport::Server;

use crate::registry::{Plugins as _, Sighting, Sockets, sentence};
use serve::Service;

/// How long an answer may take to leave once the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Of the directory of registration sockets, if nobody has made it (NODE-2).
const DIRECTORY_MODE: u32 = 0o750;
/// How often the socket is looked at without a reason.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Between attempts to make the socket.
const BIND_AGAIN: Duration = Duration::from_secs(2);

/// What to do when the agent refuses the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRefusal {
    /// End with an error, so that whoever runs this sees it: as node-driver-registrar does.
    End,
    /// Stay and say so: the agent asks again by itself.
    Stay,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Where the registration socket is made.
    pub directory: PathBuf,
    /// The driver's socket as the agent sees it.
    pub endpoint: String,
    /// For questions to the driver and to ourselves.
    pub timeout: Duration,
    pub on_refusal: OnRefusal,
}

/// How far the registration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The driver has not said who it is.
    WaitingForDriver,
    /// The socket cannot be made.
    NoSocket {
        why: String,
    },
    /// The socket is there, and nobody has answered.
    Offered,
    Registered,
    Refused {
        why: String,
    },
}

/// Why a registrar ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrarError {
    #[error("the node's agent refused to register the driver: {why}")]
    Refused { why: String },
    #[error("{} stands in the way of the registration socket: {why}", path.display())]
    InTheWay { path: PathBuf, why: String },
}

/// What a probe is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Well,
    /// There is no socket.
    Missing(String),
    Unwell(String),
}

/// Offers one driver to the agent of its node.
#[derive(Debug)]
pub struct Registrar {
    driver: Driver,
    options: Options,
    standing: watch::Sender<Standing>,
    /// The driver's name once it is known.
    name: watch::Sender<Option<String>>,
}

/// What the driver says of the node.
#[derive(Debug, PartialEq)]
enum NodeInfo {
    Said(Box<v1::NodeGetInfoResponse>),
    /// It has nothing to say of nodes.
    Silent,
    /// It was gone before it could answer.
    Unknown,
}

impl NodeInfo {
    fn may_differ_from(&self, known: &Self) -> bool {
        matches!(self, Self::Said(_)) && self != known
    }
}

/// Why one socket's time is over.
enum Over {
    Stopped,
    /// It has to be made again.
    Again,
    Refused(String),
}

impl Registrar {
    /// Somebody else runs the driver's connection.
    pub fn new(driver: &Driver, options: Options) -> Self {
        let standing = watch::Sender::new(Standing::WaitingForDriver);
        Self { driver: driver.clone(), options, standing, name: watch::Sender::new(None) }
    }

    /// Follows how far the registration is.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Offers the driver until `stop`.
    pub async fn run(&self, stop: &Stop) -> Result<(), RegistrarError> {
        let facts = tokio::select! {
            biased;
            () = stop.stopped() => return Ok(()),
            facts = self.driver.ready() => facts,
        };
        let path = self.path(&facts.name);
        self.name.send_replace(Some(facts.name.clone()));
        let changed = Notify::new();
        let life = async {
            loop {
                match self.offer(&path, &facts, &changed, stop).await? {
                    Over::Stopped => return Ok(()),
                    Over::Again => tracing::info!(socket = %path.display(), "the registration socket is made again"),
                    Over::Refused(why) => return Err(RegistrarError::Refused { why }),
                }
            }
        };
        tokio::select! {
            biased;
            ended = life => ended,
            () = self.follow(&facts, &changed) => Ok(()),
        }
    }

    fn path(&self, driver: &str) -> PathBuf {
        self.options.directory.join(format!("{driver}-reg.sock"))
    }

    /// Makes the socket and serves it until its time is over.
    async fn offer(&self, path: &Path, facts: &Facts, changed: &Notify, stop: &Stop) -> Result<Over, RegistrarError> {
        let listener = tokio::select! {
            biased;
            () = stop.stopped() => return Ok(Over::Stopped),
            bound = self.bind(path) => bound?,
        };
        let ours = identity(path);
        self.standing.send_replace(Standing::Offered);
        tracing::info!(socket = %path.display(), driver = facts.name, "the driver is offered for registration");
        let service = Service::new(&facts.name, &self.options.endpoint, self.standing.clone());
        let (end, ending) = oneshot::channel::<()>();
        let serving = Server::builder().add_service(RegistrationServer::new(service)).serve_with_incoming_shutdown(
            listener.incoming(),
            async {
                let _ = ending.await;
            },
        );
        tokio::pin!(serving);
        let over = tokio::select! {
            biased;
            () = stop.stopped() => Over::Stopped,
            why = self.refused() => Over::Refused(why),
            () = self.lost(path, ours) => Over::Again,
            () = changed.notified() => Over::Again,
            ended = &mut serving => {
                let why = ended.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string());
                tracing::warn!(why, "serving the registration socket");
                return Ok(Over::Again);
            }
        };
        // The socket goes at once; calls under way have their answers first.
        let _ = end.send(());
        let _ = timeout(LAST_WORDS, serving).await;
        Ok(over)
    }

    /// Takes the path as soon as it is free. What is no socket is not removed.
    async fn bind(&self, path: &Path) -> Result<Listener, RegistrarError> {
        let endpoint = Endpoint::Unix(path.to_owned());
        loop {
            // A kubelet makes it, too; who comes first does not matter. Why it cannot be made, binding says.
            let _ = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.options.directory);
            let why = match Listener::bind(&endpoint, SocketMode::default()) {
                Ok(listener) => return Ok(listener),
                Err(
                    error @ (BindError::NotASocket { .. } | BindError::Endpoint(_) | BindError::NotADirectory { .. }),
                ) => {
                    return Err(RegistrarError::InTheWay { path: path.to_owned(), why: sentence(&error) });
                }
                Err(error) => sentence(&error),
            };
            let same = *self.standing.borrow() == Standing::NoSocket { why: why.clone() };
            if !same {
                tracing::warn!(why, "the registration socket cannot be made yet");
                self.standing.send_replace(Standing::NoSocket { why });
            }
            sleep(BIND_AGAIN).await;
        }
    }

    /// Resolves when the agent refuses the driver and that is the end.
    async fn refused(&self) -> String {
        let mut standing = self.standing.subscribe();
        loop {
            if let Standing::Refused { why } = &*standing.borrow_and_update() {
                match self.options.on_refusal {
                    OnRefusal::End => return why.clone(),
                    OnRefusal::Stay => tracing::warn!(why, "the driver is not registered; the agent asks again"),
                }
            }
            // The sender lives in `self`.
            let _ = standing.changed().await;
        }
    }

    /// Resolves when the path does not lead to our socket any more.
    async fn lost(&self, path: &Path, ours: Option<(u64, u64)>) {
        let looked = Notify::new();
        let tell = |sighting: Sighting| {
            let (Sighting::Found { socket } | Sighting::Gone { socket }) = sighting;
            if Path::new(&socket) == path {
                looked.notify_one();
            }
        };
        let sockets = Sockets::in_directory(&self.options.directory);
        let gone = async {
            while ours.is_some() && identity(path) == ours {
                // What happened before the watch began is not told.
                let _ = timeout(LOOK_AGAIN, looked.notified()).await;
            }
        };
        tokio::select! {
            biased;
            () = gone => {}
            () = sockets.watch(&tell) => {}
        }
    }

    /// Asks the driver about the node each time it comes back, and says when the answer is another one.
    async fn follow(&self, facts: &Arc<Facts>, changed: &Notify) {
        let mut known = self.node_info().await;
        let mut connection = facts.connection;
        let mut link = self.driver.link();
        loop {
            let now = match &*link.borrow_and_update() {
                Link::Up(facts) => facts.connection,
                Link::Down { .. } => connection,
            };
            if now > connection {
                connection = now;
                let said = self.node_info().await;
                if said.may_differ_from(&known) {
                    tracing::info!("the driver may say something else of this node than before it was restarted");
                    changed.notify_one();
                }
                if said != NodeInfo::Unknown {
                    known = said;
                }
            }
            // The sender lives as long as the driver.
            let _ = link.changed().await;
        }
    }

    async fn node_info(&self) -> NodeInfo {
        match self.driver.node_get_info(v1::NodeGetInfoRequest {}, self.options.timeout).await {
            Ok(said) => NodeInfo::Said(Box::new(said)),
            Err(error) if error.code() == Some(Code::Unimplemented) => NodeInfo::Silent,
            Err(_) => NodeInfo::Unknown,
        }
    }

    /// Whether the socket is there and answers with the driver's name (NODE-27.3).
    pub async fn health(&self) -> Health {
        let Some(name) = self.name.borrow().clone() else {
            return Health::Unwell("the driver has not said who it is yet".to_owned());
        };
        let path = self.path(&name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Health::Missing(format!("there is no socket {}", path.display()));
            }
            Err(error) => return Health::Unwell(format!("looking at {}: {error}", path.display())),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Health::Unwell(format!("{} is not a socket", path.display()));
            }
            Ok(_) => {}
        }
        if let (Standing::Refused { why }, OnRefusal::Stay) = (&*self.standing.borrow(), self.options.on_refusal) {
            return Health::Unwell(format!("the node's agent refused to register the driver: {why}"));
        }
        match timeout(self.options.timeout, ask(&path)).await {
            Ok(Ok(found)) if found == name => Health::Well,
            Ok(Ok(found)) => Health::Unwell(format!("the socket answers as {found:?}, not as {name:?}")),
            Ok(Err(why)) => Health::Unwell(why),
            Err(_) => Health::Unwell(format!("the socket does not answer within {:?}", self.options.timeout)),
        }
    }
}

/// The name with which a registration socket answers.
async fn ask(path: &Path) -> Result<String, String> {
    let connected = connect_once(&Endpoint::Unix(path.to_owned())).await;
    let (channel, _lost) = connected.map_err(|error| sentence(&error))?;
    let info = RegistrationClient::new(channel).get_info(InfoRequest {}).await;
    info.map(|info| info.into_inner().name).map_err(|status| format!("GetInfo: {}", status.message()))
}

/// Which file a path leads to.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Metrics;
    use runtime::time::SystemClock;

    fn registrar(directory: &Path) -> Registrar {
        let endpoint: Endpoint = "unix:///nowhere/csi.sock".parse().unwrap();
        let driver = Driver::new(endpoint, runtime::csi::Options::default(), &Metrics::new(&SystemClock));
        Registrar::new(
            &driver,
            Options {
                directory: directory.to_owned(),
                endpoint: "/host/csi.sock".to_owned(),
                timeout: Duration::from_millis(200),
                on_refusal: OnRefusal::Stay,
            },
        )
    }

    /// Rules: NODE-27.3, NODE-32.24
    #[tokio::test]
    async fn health_is_that_of_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let registrar = registrar(directory.path());
        assert!(matches!(registrar.health().await, Health::Unwell(why) if why.contains("has not said who it is")));
        registrar.name.send_replace(Some("d".to_owned()));
        assert!(matches!(registrar.health().await, Health::Missing(_)), "NODE-32.24: 404");
        let path = registrar.path("d");
        fs::write(&path, "").unwrap();
        assert!(matches!(registrar.health().await, Health::Unwell(why) if why.contains("not a socket")));
        fs::remove_file(&path).unwrap();
        let deaf = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(registrar.health().await, Health::Unwell(why) if why.contains("does not answer")));
        drop(deaf);
        assert!(matches!(registrar.health().await, Health::Unwell(why) if why.contains("nobody listens")));
        registrar.standing.send_replace(Standing::Refused { why: "no".to_owned() });
        assert!(matches!(registrar.health().await, Health::Unwell(why) if why.contains("refused")));
    }

    /// Rule: NODE-27.3
    #[tokio::test]
    async fn a_socket_that_answers_as_another_driver_is_not_well() {
        let directory = tempfile::tempdir().unwrap();
        let registrar = registrar(directory.path());
        registrar.name.send_replace(Some("d".to_owned()));
        let listener = Listener::bind(&Endpoint::Unix(registrar.path("d")), SocketMode::default()).unwrap();
        let service = Service::new("other", "/host/csi.sock", registrar.standing.clone());
        let serving =
            Server::builder().add_service(RegistrationServer::new(service)).serve_with_incoming(listener.incoming());
        tokio::select! {
            _ = serving => unreachable!("it serves"),
            health = registrar.health() => {
                assert!(matches!(health, Health::Unwell(why) if why.contains("\"other\"")));
            }
        }
    }
}
