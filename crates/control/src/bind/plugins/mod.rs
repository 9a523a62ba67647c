//! Plugins of the binder itself: volumes that need no driver (CTRL-1, BIND-P3, BIND-4.10).
//!
//! | Plugin | provisions | deletes | recycles |
//! |---|---|---|---|
//! | hostPath | if it was switched on | below its root | yes |
//! | NFS | no | no | yes |
//!
//! Local volumes have no plugin, and `no-provisioner` is the name of none: what is made by hand is taken away by hand.
//!
//! # Invariants
//! 1. A call can be repeated: what exists is not made twice, and what is gone was deleted.
//! 2. No plugin leaves its place: no link is followed, no mount is entered, nothing outside of the root is touched.
//! 3. Nothing blocks for long and nothing spawns. File work is done in small steps on the caller's thread, which gets its
//!    turn between two of them: the simulator has one thread, and a thread per directory would gain nothing.

mod host_path;
mod nfs;
mod scrub;
mod template;
mod tree;

use std::fmt;
use std::time::Duration;

use api::{Source, Volume};
use futures_util::future::BoxFuture;
use lifecycle::release;
use serde_json::Value;

use crate::Context;
use crate::provision::Wish;

pub use host_path::{HostPath, Provisioning};
pub use nfs::Nfs;
pub use scrub::ScrubError;
pub use template::{BadTemplate, Template};
pub use tree::TreeError;

use scrub::Scrubber;

/// What a plugin can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    pub provisions: bool,
    pub deletes: bool,
    pub recycles: bool,
}

/// Volumes of one kind that this process makes, deletes or empties itself.
pub trait Plugin: fmt::Debug + Send + Sync {
    /// The name in classes and in `provisioned-by`.
    fn name(&self) -> &'static str;

    fn capabilities(&self) -> Capabilities;

    /// Whether a volume of this source is the plugin's.
    fn owns(&self, source: &Source) -> bool;

    /// Makes a volume and gives the PersistentVolume to store: complete, with its name, claimRef and annotations.
    fn provision<'a>(&'a self, _wish: &'a Wish) -> BoxFuture<'a, Result<Value, PluginError>> {
        Box::pin(async { Err(PluginError::Unsupported { plugin: self.name(), what: "provision" }) })
    }

    /// Deletes what a volume is made of.
    fn delete<'a>(&'a self, _volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        Box::pin(async { Err(PluginError::Unsupported { plugin: self.name(), what: "delete" }) })
    }

    /// Empties a volume, so that somebody else can have it.
    fn recycle<'a>(&'a self, _volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        Box::pin(async { Err(PluginError::Unsupported { plugin: self.name(), what: "recycle" }) })
    }
}

/// Why a plugin did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error("{plugin} does not {what} volumes")]
    Unsupported { plugin: &'static str, what: &'static str },
    /// It will not work before somebody changes the claim, its class or the volume.
    #[error("{message}")]
    Refused { message: String },
    #[error("{doing} the directory {path:?}")]
    Directory { doing: &'static str, path: String, source: TreeError },
    #[error(transparent)]
    Scrub(#[from] ScrubError),
}

/// How long emptying a volume may take: so much for each GiB, and never less than the minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    pub minimum: Duration,
    pub per_gib: Duration,
}

impl Patience {
    fn of(&self, volume: &Volume) -> Duration {
        const GIB: i64 = 1 << 30;
        let gib = u32::try_from(volume.capacity_bytes().max(0) / GIB).unwrap_or(u32::MAX);
        self.minimum.max(self.per_gib.saturating_mul(gib))
    }
}

/// How volumes are emptied by a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Recycling {
    pub patience: Patience,
    pub template: Template,
}

impl Recycling {
    /// Upstream's numbers, with the template that needs no file.
    fn within(minimum: u64, per_gib: u64) -> Self {
        let patience = Patience { minimum: Duration::from_secs(minimum), per_gib: Duration::from_secs(per_gib) };
        Self { patience, template: Template::default() }
    }
}

/// What the plugins are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `--enable-hostpath-provisioner`.
    pub host_path: Provisioning,
    /// `--pv-recycler-*-hostpath`.
    pub host_path_recycling: Recycling,
    /// `--pv-recycler-*-nfs`.
    pub nfs_recycling: Recycling,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host_path: Provisioning::Off,
            host_path_recycling: Recycling::within(60, 30),
            nfs_recycling: Recycling::within(300, 30),
        }
    }
}

/// The plugins of a process.
#[derive(Debug)]
pub struct Plugins(Vec<Box<dyn Plugin>>);

impl Plugins {
    pub fn new(context: &Context, options: Options) -> Self {
        let scrubber = Scrubber::new(context);
        let host_path = HostPath::new(context, &scrubber, options.host_path, options.host_path_recycling);
        Self(vec![Box::new(host_path), Box::new(Nfs::new(scrubber, options.nfs_recycling))])
    }

    /// The plugin that a class or `provisioned-by` names.
    pub fn named(&self, name: &str) -> Option<&dyn Plugin> {
        self.0.iter().find(|plugin| plugin.name() == name).map(AsRef::as_ref)
    }

    /// The plugin of a volume: the one that made it, or else the one whose source it has.
    pub fn of(&self, volume: &Volume) -> Option<&dyn Plugin> {
        match volume.provisioned_by() {
            Some(name) => self.named(name),
            None => self.0.iter().find(|plugin| plugin.owns(&volume.source)).map(AsRef::as_ref),
        }
    }

    /// What decisions about reclaiming have to know.
    pub fn known(&self) -> Vec<release::volume::Plugin<'static>> {
        let known = |plugin: &dyn Plugin| {
            let Capabilities { deletes, recycles, .. } = plugin.capabilities();
            release::volume::Plugin { name: plugin.name(), deletes, recycles }
        };
        self.0.iter().map(|plugin| known(&**plugin)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_cause_of_a_failure_with_a_directory_is_said() {
        let source = TreeError::Io { doing: "removing", name: "data".into(), source: io::Error::from_raw_os_error(1) };
        let error = PluginError::Directory { doing: "deleting", path: "/srv/data".to_owned(), source };
        let said = runtime::causes(&error);
        assert!(said.starts_with("deleting the directory") && said.contains("not permitted"), "{said}");
    }
}
