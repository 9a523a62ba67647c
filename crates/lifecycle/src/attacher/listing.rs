//! What the driver says is published, beside what attachments say (ATTACHER-3.9).

use std::collections::{BTreeMap, BTreeSet};

use api::keys::annotation;
use api::{Attachment, CsiNode, Source, Volume};

use super::attachment::recorded;
use super::publication::Described;
use super::{Attacher, Target};
use crate::migration;

/// Volumes by handle, with the ids of the nodes that they are published to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing(BTreeMap<String, BTreeSet<String>>);

impl Listing {
    pub fn add(&mut self, handle: String, nodes: impl IntoIterator<Item = String>) {
        self.0.entry(handle).or_default().extend(nodes);
    }

    fn has(&self, target: &Target) -> bool {
        self.0.get(&target.handle).is_some_and(|nodes| nodes.contains(&target.node_id))
    }
}

/// Whether the driver and an attachment's status agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    Agreed,
    /// One of them says that the volume is attached, and the other one does not.
    Contradicted,
    /// Nobody knows which publication the attachment stands for: it is left alone.
    Unknown,
}

/// Compares. The volume and the node are what caches hold of them: a wrong guess costs one call that changes nothing.
pub fn compare(
    attachment: &Attachment,
    attacher: &Attacher,
    (volume, node): (Option<&Volume>, Option<&CsiNode>),
    listing: &Listing,
) -> Agreement {
    match place(attachment, attacher, volume, node) {
        None => Agreement::Unknown,
        Some(target) if listing.has(&target) == attachment.attached => Agreement::Agreed,
        Some(_) => Agreement::Contradicted,
    }
}

/// Which publication an attachment stands for.
fn place(
    attachment: &Attachment,
    attacher: &Attacher,
    volume: Option<&Volume>,
    node: Option<&CsiNode>,
) -> Option<Target> {
    let mut target = match recorded(attachment, &attacher.finalizer) {
        Some(target) => target,
        None => {
            let noted = attachment.meta.annotation(annotation::NODE_ID).filter(|id| !id.is_empty());
            let registered = || node?.driver(&attacher.name).map(|driver| &*driver.node_id);
            let node_id = noted.or_else(registered)?.to_owned();
            Target { handle: handle(attachment, attacher, volume)?, node_id, secret: None }
        }
    };
    // A handle that was translated before its node was known may lack what the driver lists it with.
    if migration::plugin_of(&attacher.name).is_some() {
        target.handle = migration::repair_handle(&attacher.name, &target.handle, &target.node_id).ok()?;
    }
    Some(target)
}

fn handle(attachment: &Attachment, attacher: &Attacher, volume: Option<&Volume>) -> Option<String> {
    if let Some(spec) = attachment.inline.as_deref() {
        return Described::inline(spec, attacher).ok().map(|described| described.source.volume_handle);
    }
    match &volume?.source {
        Source::Csi { driver, handle } => (**driver == *attacher.name).then(|| handle.to_string()),
        _ => {
            let source = migration::csi_source(volume?).ok().flatten()?;
            (source.driver == attacher.name).then_some(source.volume_handle)
        }
    }
}
