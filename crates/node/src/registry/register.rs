//! One socket, from its first sight to "registered" (NODE-3.3, NODE-3.4, NODE-3.5).

use std::time::Duration;

use ::csi::registration::registration_client::RegistrationClient;
use ::csi::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use lifecycle::registration::announce::Because;
use lifecycle::registration::instances::Instance;
use lifecycle::registration::version::{self, Version};
use runtime::csi::{self as csi, Driver, Link};
use runtime::{Stopper, Verdict};
use tokio::time::{Instant, sleep, timeout};
use tonic::Request;
use tonic::transport::Channel;

use super::state::Held;
use super::{Connect, Registry, info};

/// The only type of plugin that an agent for storage has a use for.
const CSI_PLUGIN: &str = "CSIPlugin";
/// As upstream's (NODE-1).
const DIAL: Duration = Duration::from_secs(10);
const GET_INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(5);
/// A registrar that has just started may be slow to answer (NODE-31.31).
const INFO_TRIES: u32 = 3;
const INFO_PAUSE: Duration = Duration::from_millis(200);
/// Until the driver is connected and has said what it calls the node.
const DRIVER: Duration = Duration::from_secs(120);
/// How long the API server is left alone after an error, while a registration waits for it.
const API_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_API_PAUSE: Duration = Duration::from_secs(15);

/// Why a socket is not registered.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Unreachable(String),
    #[error("the socket was replaced or removed meanwhile")]
    Replaced,
    #[error("{why}")]
    Refused {
        why: String,
        /// Whether nothing changes until a person changes something.
        lasting: bool,
    },
    #[error("telling the plugin that it is registered: {0}")]
    Untold(String),
}

impl Failure {
    fn lasting(why: impl ToString) -> Self {
        Self::Refused { why: why.to_string(), lasting: true }
    }

    fn passing(why: impl ToString) -> Self {
        Self::Refused { why: why.to_string(), lasting: false }
    }
}

/// A plugin that may be registered.
struct Admitted {
    name: String,
    endpoint: String,
    version: Version,
}

impl Registry {
    /// Brings one socket to where it should be.
    pub(super) async fn pass(&self, socket: String) -> Verdict {
        let (seen, held) = {
            let state = self.state();
            (state.seen(&socket), state.held(&socket))
        };
        if held.is_some() && held != seen {
            self.unregister(&socket);
        }
        let Some(generation) = seen.filter(|_| held != seen) else { return Verdict::Done };
        match self.register(&socket, generation).await {
            Ok(()) => Verdict::Done,
            Err(Failure::Replaced) => Verdict::Again(Duration::ZERO),
            Err(failure) => {
                tracing::warn!(socket, why = %failure, "the plugin is not registered");
                let lasting = matches!(failure, Failure::Refused { lasting: true, .. });
                self.state().tried(&socket, None, Some((failure.to_string(), lasting)));
                self.pages.add(());
                Verdict::Failed(failure.to_string())
            }
        }
    }

    /// The socket is gone, or another one is in its place. The plugin is not told: there is nobody to tell.
    fn unregister(&self, socket: &str) {
        let until = Instant::now() + self.options.grace;
        let driver = self.state().remove(socket, Some(until));
        if let Some(driver) = driver {
            tracing::info!(socket, driver, "a plugin's registration has ended");
            self.rechoose(&driver);
            self.pages.add(());
        }
    }

    /// Steps 1 to 8 of 3.4, in that order.
    async fn register(&self, socket: &str, generation: u64) -> Result<(), Failure> {
        let dialled = timeout(DIAL, self.plugins.plugin(socket)).await;
        let channel = dialled.map_err(|_| Failure::Unreachable(format!("no connection within {DIAL:?}")))?;
        let channel = channel.map_err(Failure::Unreachable)?;
        let info = get_info(&channel).await.map_err(Failure::Unreachable)?;
        let admitted = match admit(socket, info) {
            Ok(admitted) => admitted,
            Err(why) => return Err(refuse(&channel, Failure::lasting(why)).await),
        };
        let name = admitted.name.clone();
        self.state().tried(socket, Some(&name), None);
        if let Err(why) = self.admit(socket, generation, admitted) {
            return Err(refuse(&channel, Failure::lasting(why)).await);
        }
        if let Err(failure) = self.install(socket, generation, &name).await {
            self.withdraw(socket, &name);
            return Err(match failure {
                Failure::Replaced => failure,
                failure => refuse(&channel, failure).await,
            });
        }
        if let Err(why) = notify(&channel, true, "").await {
            self.withdraw(socket, &name);
            return Err(Failure::Untold(why));
        }
        {
            let mut state = self.state();
            if let Some(instance) = state.instance(socket, generation) {
                instance.held.told = true;
                state.back(&name);
            }
        }
        tracing::info!(socket, driver = name, "the plugin is registered");
        self.rechoose(&name);
        self.infos.add(info::Ask::limit(&name));
        Ok(())
    }

    /// Step 6: from here on the end of the socket is the end of this registration.
    fn admit(&self, socket: &str, generation: u64, admitted: Admitted) -> Result<(), String> {
        let Admitted { name, endpoint, version } = admitted;
        let dial = self.plugins.driver(&endpoint)?;
        let options = csi::Options::on_node();
        let driver = Driver::new(dial, options, &self.context.metrics);
        let (end, stop) = Stopper::new();
        let held = Held {
            generation,
            socket: socket.to_owned(),
            endpoint,
            driver: driver.clone(),
            end,
            said: None,
            told: false,
        };
        let instance = Instance { driver: name.clone(), version, order: generation, held };
        self.state().insert(socket, instance);
        // The receiver lives in `self`.
        let _ = self.connects.send(Connect { socket: socket.to_owned(), name, driver, stop });
        Ok(())
    }

    /// Step 7: the driver is asked about the node, used from then on, and announced.
    async fn install(&self, socket: &str, generation: u64, name: &str) -> Result<(), Failure> {
        let driver = match self.state().instance(socket, generation) {
            Some(instance) => instance.held.driver.clone(),
            None => return Err(Failure::Replaced),
        };
        tokio::select! {
            biased;
            () = self.replaced(socket, generation) => return Err(Failure::Replaced),
            met = timeout(DRIVER, self.meet(socket, generation, name, &driver)) => match met {
                Ok(met) => met?,
                Err(_) => return Err(Failure::passing(unready(&driver))),
            },
        }
        self.rechoose(name);
        tokio::select! {
            biased;
            () = self.replaced(socket, generation) => Err(Failure::Replaced),
            announced = self.announced(name) => announced,
        }
    }

    async fn meet(&self, socket: &str, generation: u64, name: &str, driver: &Driver) -> Result<(), Failure> {
        let facts = driver.ready().await;
        if facts.name != name {
            let why = format!("the plugin registers {name:?}, and {:?} answers on its endpoint", facts.name);
            return Err(Failure::lasting(why));
        }
        let said = info::ask(driver, name).await.map_err(Failure::passing)?;
        match self.state().instance(socket, generation) {
            Some(instance) => instance.held.said = Some(std::sync::Arc::new(said)),
            None => return Err(Failure::Replaced),
        }
        Ok(())
    }

    /// Resolves when another file is at the socket's path, or none.
    async fn replaced(&self, socket: &str, generation: u64) {
        let mut moved = self.moved.subscribe();
        while self.state().seen(socket) == Some(generation) {
            // The sender lives in `self`.
            let _ = moved.changed().await;
        }
    }

    /// Writes Node and CSINode, as long as it takes; only what cannot be is an error.
    async fn announced(&self, name: &str) -> Result<(), Failure> {
        let mut pause = API_PAUSE;
        loop {
            let mut moved = self.moved.subscribe();
            match self.announce(None).await {
                Ok(verdict) => {
                    if let Some(refusal) = verdict.refused.get(name) {
                        return Err(Failure::lasting(refusal));
                    }
                    match verdict.decision.because {
                        Because::Announced => return Ok(()),
                        because => tracing::info!(driver = name, %because, "a registration waits"),
                    }
                }
                Err(error) if error.is_final() => return Err(Failure::lasting(error)),
                Err(error) => tracing::warn!(driver = name, %error, "a registration waits for the API server"),
            }
            tokio::select! {
                biased;
                _ = moved.changed() => {}
                () = sleep(self.context.entropy.shorter(pause, 0.2)) => pause = (pause * 2).min(LONGEST_API_PAUSE),
            }
        }
    }

    /// A registration that did not come to its end leaves nothing behind.
    fn withdraw(&self, socket: &str, name: &str) {
        self.state().remove(socket, None);
        self.rechoose(name);
        self.pages.add(());
    }

    /// Lets operations use the right connection of a driver.
    pub(super) fn rechoose(&self, name: &str) {
        let registered = self.state().registered(name);
        match registered {
            Some(registered) => self.drivers.insert(registered),
            None => self.drivers.remove(name),
        }
    }
}

fn unready(driver: &Driver) -> String {
    let why = match &*driver.link().borrow() {
        Link::Down { why, .. } => why.clone(),
        Link::Up(_) => "it did not say what it calls the node".to_owned(),
    };
    format!("the driver was not ready within {DRIVER:?}: {why}")
}

/// Step 2, a few times.
async fn get_info(channel: &Channel) -> Result<PluginInfo, String> {
    let mut why = String::new();
    for attempt in 0..INFO_TRIES {
        if attempt > 0 {
            sleep(INFO_PAUSE).await;
        }
        let mut client = RegistrationClient::new(channel.clone());
        let mut request = Request::new(InfoRequest {});
        request.set_timeout(GET_INFO);
        match timeout(GET_INFO, client.get_info(request)).await {
            Ok(Ok(info)) => return Ok(info.into_inner()),
            Ok(Err(status)) => why = format!("GetInfo: {:?}: {}", status.code(), status.message()),
            Err(_) => why = format!("GetInfo: no answer within {GET_INFO:?}"),
        }
    }
    Err(why)
}

/// Steps 3 to 5.
fn admit(socket: &str, info: PluginInfo) -> Result<Admitted, String> {
    if info.r#type != CSI_PLUGIN {
        return Err(format!("plugins of type {:?} are not served here; only {CSI_PLUGIN} is", info.r#type));
    }
    if info.name.is_empty() || info.name.len() > 63 || info.name.contains('/') {
        return Err(format!("{:?} cannot be the name of a driver", info.name));
    }
    let version = version::highest(&info.supported_versions).map_err(|error| error.to_string())?;
    let endpoint = if info.endpoint.is_empty() { socket.to_owned() } else { info.endpoint };
    Ok(Admitted { name: info.name, endpoint, version })
}

/// Tells the plugin why it is not registered. Whether that arrives does not matter: it failed.
async fn refuse(channel: &Channel, failure: Failure) -> Failure {
    if let Err(why) = notify(channel, false, &failure.to_string()).await {
        tracing::debug!(why, "a plugin did not hear that it is not registered");
    }
    failure
}

async fn notify(channel: &Channel, plugin_registered: bool, error: &str) -> Result<(), String> {
    let mut client = RegistrationClient::new(channel.clone());
    let mut request = Request::new(RegistrationStatus { plugin_registered, error: error.to_owned() });
    request.set_timeout(NOTIFY);
    match timeout(NOTIFY, client.notify_registration_status(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(format!("{:?}: {}", status.code(), status.message())),
        Err(_) => Err(format!("no answer within {NOTIFY:?}")),
    }
}
