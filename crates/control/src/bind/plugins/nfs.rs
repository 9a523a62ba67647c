//! NFS: exports that are emptied by a pod which mounts them.

use api::keys::provisioner;
use api::{Source, Volume};
use futures_util::future::BoxFuture;
use serde_json::json;

use super::scrub::Scrubber;
use super::{Capabilities, Plugin, PluginError, Recycling};

#[derive(Debug)]
pub struct Nfs {
    scrubber: Scrubber,
    recycling: Recycling,
}

impl Nfs {
    pub(super) fn new(scrubber: Scrubber, recycling: Recycling) -> Self {
        Self { scrubber, recycling }
    }
}

impl Plugin for Nfs {
    fn name(&self) -> &'static str {
        provisioner::NFS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { recycles: true, ..Capabilities::default() }
    }

    fn owns(&self, source: &Source) -> bool {
        matches!(source, Source::Nfs { .. })
    }

    fn recycle<'a>(&'a self, volume: &'a Volume) -> BoxFuture<'a, Result<(), PluginError>> {
        Box::pin(async move {
            let Source::Nfs { server, path } = &volume.source else {
                return Err(PluginError::Refused { message: format!("volume {:?} is no NFS export", volume.name()) });
            };
            let source = json!({"nfs": {"server": server, "path": path}});
            Ok(self.scrubber.scrub(volume, &source, &self.recycling).await?)
        })
    }
}
