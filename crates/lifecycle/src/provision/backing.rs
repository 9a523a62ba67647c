//! The backing of a volume as one text: two objects with the same text stand for the same data.

use api::{Source, Volume};

use crate::attach::Target;

/// Names what a volume is made of: driver and handle, also of an in-tree plugin's volume that a driver took over, or a path
/// on a server. `None` for what only its node can tell apart, such as a directory.
pub fn backing_of(volume: &Volume) -> Option<String> {
    match &volume.source {
        Source::Nfs { server, path } => Some(format!("nfs {server}:{path}")),
        Source::Csi { .. } | Source::Other { .. } => Some(Target::of_volume(volume).ok()??.unique()),
        Source::HostPath { .. } | Source::Local { .. } | Source::Missing => None,
    }
}

/// Whether two objects stand for the same data.
pub fn is_same_backing(one: &Volume, other: &Volume) -> bool {
    let named = backing_of(one);
    (named.is_some() && named == backing_of(other)) || (one.source == other.source && one.source != Source::Missing)
}
