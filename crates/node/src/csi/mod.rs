//! The calls to a CSI driver for one volume: what they carry, and what their answers are checked against (NODE-10 to
//! NODE-13).
//!
//! # Invariants
//! 1. What must be known to take a volume away is on disk before the driver is asked for it.
//! 2. An OK is not believed: after NodePublish there is a mount, after NodeUnpublish and NodeUnstage there is none
//!    (NODE-31.5).
//! 3. Everything that fails before the driver is asked is transient (NODE-31.4).
//! 4. Capabilities come from the connection, not from a call per decision (NODE-31.16).

mod alone;
mod details;
mod expand;
mod publish;
mod remove;
mod secrets;
mod stage;

use std::path::Path;
use std::sync::Arc;

use api::{Attachment, Key, Kind, Node};
use csi::v1;
use csi::v1::node_service_capability::rpc::Type as NodeRpc;
use lifecycle::attach::attachment_name;
use lifecycle::node::because::Stage;
use lifecycle::node::terms::WireMode;
use lifecycle::node::{Class, Held, state};
use lifecycle::outcome::{Call, Code};
use runtime::csi::{CallError, Driver, Facts};
use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

pub(crate) use details::Details;
pub(crate) use expand::everywhere;
pub(crate) use publish::pod_info;
pub(crate) use stage::device_request;

use crate::Agent;
use crate::actual::What;
use crate::desired::Wish;
use crate::host::{Found, HostError};
use crate::pods::attributes;
use crate::reconcile::Failure;

/// What a driver is given besides: contexts and secrets.
pub(crate) type Values = std::collections::BTreeMap<String, String>;

/// A driver that can be asked now.
pub(crate) struct Asked {
    pub(crate) driver: Driver,
    pub(crate) facts: Arc<Facts>,
}

impl Asked {
    pub(crate) fn can(&self, rpc: NodeRpc) -> bool {
        self.facts.capabilities.on_node(rpc)
    }
}

/// How a path is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Mounted,
    NotMounted,
    Corrupted(String),
}

impl Agent {
    /// The driver of a volume, if it is registered and connected.
    pub(crate) fn ask(&self, what: &What, stage: Stage) -> Result<Asked, Failure> {
        let missing = || match self.driver_state(what) {
            Some(because) => Failure::transient(stage, because),
            None => Failure::transient(stage, "the driver is connecting"),
        };
        let name = what.driver().ok_or_else(missing)?;
        let registered = self.drivers.get(name.as_str()).ok_or_else(missing)?;
        let facts = registered.driver.facts().ok_or_else(missing)?;
        Ok(Asked { driver: registered.driver.clone(), facts })
    }

    /// The driver of a volume that a pod wants; what is asked for a volume of an in-tree plugin is counted as such.
    pub(crate) fn ask_for(&self, wish: &Wish, stage: Stage) -> Result<Asked, Failure> {
        let asked = self.ask(&wish.what, stage)?;
        Ok(match wish.migrated {
            true => Asked { driver: asked.driver.for_migrated(), ..asked },
            false => asked,
        })
    }

    /// What the controller's half of the driver left for the node's, if it has to be attached at all. The server itself is
    /// asked, past every cache: the attachment may have gone since (NODE-9, NODE-30.5).
    pub(crate) async fn attached(&self, wish: &Wish, known: Held) -> Result<Values, Failure> {
        let failed = |message: String| Failure::transient(Stage::WaitForAttach, message);
        let What::Csi { driver, handle, .. } = &wish.what else { return Ok(Values::new()) };
        if wish.what.is_inline() || !self.attaches(driver.as_str()) {
            return Ok(Values::new());
        }
        if !known.shows_attached() {
            let key = Key::cluster(&self.options.node);
            let node: Node =
                self.context.client.get(Kind::NODE, &key).await.map_err(|error| failed(error.to_string()))?;
            if !node.reports_attached(wish.id.as_str()) || !node.uses(wish.id.as_str()) {
                self.nodes.wrote(node);
                return Err(failed("the node's status does not list the volume as attached and in use".to_owned()));
            }
        }
        let name = attachment_name(driver.as_str(), handle, &self.options.node);
        let attachment: Attachment = self
            .context
            .client
            .get(Kind::ATTACHMENT, &Key::cluster(&name))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let verdict = match (&attachment.attach_error, attachment.meta.is_deleting(), attachment.attached) {
            (_, true, _) => Err("the volume is being detached".to_owned()),
            (_, false, true) => Ok(attributes(&attachment.metadata)),
            (Some(error), false, false) => Err(error.message.to_string()),
            (None, false, false) => Err("the volume is not attached yet".to_owned()),
        };
        self.context.cache::<Attachment>().wrote(attachment);
        verdict.map_err(failed)
    }

    /// What the machine shows at a path.
    pub(crate) async fn look(&self, path: &Path) -> Result<Seen, HostError> {
        let mounts = self.host.mounts().await?;
        if mounts.at(path).is_none() {
            return Ok(Seen::NotMounted);
        }
        Ok(match self.host.find(path).await? {
            Found::Corrupted { message, .. } => Seen::Corrupted(message),
            _ => Seen::Mounted,
        })
    }
}

/// What a call's failure says.
pub(crate) fn failed(call: Call, stage: Stage, before: Held, error: &CallError) -> Failure {
    let class = match error.code() {
        None => Class::Transient,
        Some(code) => state::class(call, Code::from_number(code as i32), before),
    };
    Failure::of(class, stage, error)
}

/// How a filesystem is to be mounted, or that it is a device.
pub(crate) fn capability(mode: WireMode, mount: Option<MountVolume>) -> Option<v1::VolumeCapability> {
    let access_type = match mount {
        Some(mount) => AccessType::Mount(mount),
        None => AccessType::Block(BlockVolume {}),
    };
    let access_mode = Some(AccessMode { mode: mode as i32 });
    Some(v1::VolumeCapability { access_mode, access_type: Some(access_type) })
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
