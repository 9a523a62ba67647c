//! How plugins are found and reached: real sockets in a directory, or a simulator's.

use std::fmt;
use std::path::{Path, PathBuf};

use ::csi::Endpoint;
use futures_util::future::BoxFuture;
use runtime::csi::Dial;
use tonic::transport::Channel;

use super::watch;

/// What the watcher saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// A socket is there that was not, or another one is there in its place.
    Found {
        socket: String,
    },
    Gone {
        socket: String,
    },
}

/// Whoever is told.
pub type Tell<'a> = dyn Fn(Sighting) + Send + Sync + 'a;

/// Where plugins are.
pub trait Plugins: fmt::Debug + Send + Sync + 'static {
    /// Tells of every registration socket that is there, comes or goes. Never ends by itself.
    fn watch<'a>(&'a self, tell: &'a Tell<'a>) -> BoxFuture<'a, ()>;

    /// Connects to a registration socket; the text says why not.
    fn plugin<'a>(&'a self, socket: &'a str) -> BoxFuture<'a, Result<Channel, String>>;

    /// How to reach a driver at the endpoint that its plugin gave; the text says why it cannot be one.
    fn driver(&self, endpoint: &str) -> Result<Box<dyn Dial>, String>;
}

/// Sockets in a directory of this machine.
#[derive(Debug, Clone)]
pub struct Sockets {
    directory: PathBuf,
}

impl Sockets {
    pub fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }
}

impl Plugins for Sockets {
    fn watch<'a>(&'a self, tell: &'a Tell<'a>) -> BoxFuture<'a, ()> {
        Box::pin(watch::run(&self.directory, tell))
    }

    fn plugin<'a>(&'a self, socket: &'a str) -> BoxFuture<'a, Result<Channel, String>> {
        Box::pin(async move {
            // One connection for one registration: what answers later may be another plugin.
            let endpoint = Endpoint::Unix(PathBuf::from(socket));
            let (channel, _) = ::csi::connect_once(&endpoint).await.map_err(|error| sentence(&error))?;
            Ok(channel)
        })
    }

    fn driver(&self, endpoint: &str) -> Result<Box<dyn Dial>, String> {
        match endpoint.parse::<Endpoint>() {
            Ok(endpoint @ Endpoint::Unix(_)) => Ok(Box::new(endpoint)),
            Ok(Endpoint::Tcp(_)) => Err(format!("the endpoint {endpoint:?} is no unix socket")),
            Err(error) => Err(sentence(&error)),
        }
    }
}

/// An error with its causes.
pub(crate) fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}
