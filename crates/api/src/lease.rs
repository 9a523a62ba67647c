//! A Lease: who leads, as far as others can see.

use serde::Deserialize;

use crate::keys::annotation;
use crate::object::{Kind, Meta, Object, UnixSeconds};

/// Who holds it and when it was last renewed, by the holder's clock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Lease {
    pub meta: Meta,
    /// Empty when nobody holds it.
    pub holder: Box<str>,
    pub renewed: Option<UnixSeconds>,
    pub seconds: i64,
}

impl Lease {
    /// The mark of the last renewal; empty if its holder gives none.
    pub fn renewal(&self) -> &str {
        self.meta.annotation(annotation::LEASE_RENEWAL).unwrap_or_default()
    }
}

impl Object for Lease {
    const KIND: Kind = Kind::LEASE;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: WireSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    holder_identity: Option<Box<str>>,
    renew_time: Option<UnixSeconds>,
    lease_duration_seconds: Option<i64>,
}

impl From<Wire> for Lease {
    fn from(wire: Wire) -> Self {
        let WireSpec { holder_identity, renew_time, lease_duration_seconds } = wire.spec;
        Self {
            meta: wire.metadata,
            holder: holder_identity.unwrap_or_default(),
            renewed: renew_time,
            seconds: lease_duration_seconds.unwrap_or(0),
        }
    }
}
