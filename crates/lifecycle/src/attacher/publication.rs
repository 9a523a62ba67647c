//! What a driver is asked to publish: the volume as its PersistentVolume, or the attachment itself, describes it
//! (SIDECAR-1.6, ATTACHER-3.6.4 to ATTACHER-3.6.7).

use std::collections::BTreeMap;

use api::keys::{Annotation, annotation};
use api::{AccessModes, CsiNode, SecretName, Source, Volume, VolumeMode};
use serde::Deserialize;
use serde_json::Value;

use super::{Attacher, Handler, Unfit};
use crate::migration::{self, CsiSource, SecretReference, Untranslatable};
use crate::provision::csi::access::{self, Access};
use crate::provision::csi::plan::Shape;
use crate::provision::csi::secrets::Reference;
use crate::provision::csi::{Abilities, Ability};

/// What ControllerPublishVolume says of the volume. Where it goes is a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    pub handle: String,
    pub read_only: bool,
    pub shape: Shape,
    pub mount_options: Vec<String>,
    pub access: Access,
    /// The volume's attributes.
    pub context: BTreeMap<String, String>,
    pub secret: Option<Reference>,
    /// Whether an in-tree plugin's volume was translated; metrics tell them apart.
    pub origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Csi,
    Migrated,
}

/// One publication: which volume, where, and what taking it back needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub handle: String,
    /// What the driver calls the node.
    pub node_id: String,
    pub secret: Option<Reference>,
}

impl Target {
    /// How an attachment says it; what has no value must not stand there.
    pub fn annotations(&self) -> [(Annotation, Option<String>); 3] {
        let secret = self.secret.as_ref().map(|secret| format!("{}/{}", secret.namespace, secret.name));
        [
            (annotation::NODE_ID, Some(self.node_id.clone())),
            (annotation::PUBLISHED_HANDLE, Some(self.handle.clone())),
            (annotation::PUBLISH_SECRET, secret),
        ]
    }

    /// The publication that an attachment of this volume to this node will stand for, if nothing that caches hold speaks
    /// against it. Who makes the attachment may write it down at once; who carries it out looks for himself.
    pub fn foreseen(volume: &Volume, node: &CsiNode, attacher: &Attacher, has: &Abilities) -> Option<Self> {
        let Source::Csi { driver, handle } = &volume.source else { return None };
        let ours = **driver == *attacher.name && Handler::of(has) == Handler::Csi;
        if !ours || volume.meta.is_deleting() || access::of_set(volume.access, has).is_err() {
            return None;
        }
        let secret = match volume.publish_secret.as_deref() {
            None => None,
            Some(SecretName { namespace, name }) if namespace.is_empty() || name.is_empty() => return None,
            Some(SecretName { namespace, name }) => {
                Some(Reference { namespace: namespace.to_string(), name: name.to_string() })
            }
        };
        let registered = node.driver(&attacher.name).filter(|driver| !driver.node_id.is_empty())?;
        Some(Self { handle: handle.to_string(), node_id: registered.node_id.to_string(), secret })
    }
}

/// The volume of a driver that some `spec` describes, before anything is asked of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Described {
    pub(super) source: CsiSource,
    pub(super) origin: Origin,
    rest: Rest,
    what: String,
}

/// What publishing reads of a PersistentVolume's `spec` beside its source.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rest {
    access_modes: AccessModes,
    mount_options: Option<Vec<String>>,
    volume_mode: Option<VolumeMode>,
}

impl Described {
    /// From a PersistentVolume as the API sends it; one of an in-tree plugin is translated.
    pub(super) fn volume(pv: &Value, attacher: &Attacher) -> Result<Self, Unfit> {
        let name = pv.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let what = format!("PersistentVolume {name:?}");
        if is_present(pv.pointer("/spec/csi")) {
            return Self::spec(&pv["spec"], Origin::Csi, what, attacher);
        }
        let translated = migration::volume_to_csi(pv).map_err(|error| match error {
            Untranslatable::NotMigrated { .. } => Unfit::NotCsi { what: what.clone() },
            error => Unfit::Untranslatable(error),
        })?;
        Self::spec(&translated["spec"], Origin::Migrated, what, attacher)
    }

    /// From the `inlineVolumeSpec` of an attachment, which whoever wrote it has translated.
    pub(super) fn inline(spec: &Value, attacher: &Attacher) -> Result<Self, Unfit> {
        let what = "the inline volume".to_owned();
        match is_present(spec.get("csi")) {
            true => Self::spec(spec, Origin::Migrated, what, attacher),
            false => Err(Unfit::NotCsi { what }),
        }
    }

    fn spec(spec: &Value, origin: Origin, what: String, attacher: &Attacher) -> Result<Self, Unfit> {
        let malformed = |error: serde_json::Error| Unfit::Malformed { what: what.clone(), why: error.to_string() };
        let source = CsiSource::deserialize(&spec["csi"]).map_err(malformed)?;
        let rest = Rest::deserialize(spec).map_err(malformed)?;
        if source.driver != attacher.name {
            return Err(Unfit::OtherDriver { what, driver: source.driver });
        }
        Ok(Self { source, origin, rest, what })
    }

    /// The secret that publishing and taking back need.
    pub(super) fn secret(&self) -> Result<Option<Reference>, Unfit> {
        match &self.source.controller_publish_secret_ref {
            None => Ok(None),
            Some(SecretReference { name, namespace }) if !name.is_empty() && !namespace.is_empty() => {
                Ok(Some(Reference { namespace: namespace.clone(), name: name.clone() }))
            }
            Some(_) => Err(Unfit::SecretUnnamed { what: self.what.clone() }),
        }
    }

    /// Steps 4 to 7: everything that can be refused without asking anybody.
    pub(super) fn publication(self, attacher: &Attacher, has: &Abilities) -> Result<Publication, Unfit> {
        let secret = self.secret()?;
        let Self { source, origin, rest, .. } = self;
        let fstype = [&source.fs_type, &attacher.default_fstype].into_iter().find(|text| !text.is_empty()).cloned();
        let shape = match rest.volume_mode.unwrap_or_default() {
            VolumeMode::Block => Shape::Block,
            VolumeMode::Filesystem => Shape::Mount { fstype },
        };
        Ok(Publication {
            handle: source.volume_handle,
            // A driver that knows no such publication is not asked for one (ATTACHER-3.6.5).
            read_only: source.read_only && has.contains(&Ability::PublishReadOnly),
            shape,
            mount_options: rest.mount_options.unwrap_or_default(),
            access: access::of_set(rest.access_modes, has).map_err(Unfit::Access)?,
            context: source.volume_attributes,
            secret,
            origin,
        })
    }
}

fn is_present(source: Option<&Value>) -> bool {
    source.is_some_and(|source| !source.is_null())
}
