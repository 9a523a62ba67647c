//! The names that everybody who attaches, publishes or mounts has to agree on (CTRL-2.3).

use std::fmt::Write as _;

use api::keys::provisioner;
use sha2::{Digest as _, Sha256};

/// The name of a volume in a node's status: `kubernetes.io/csi/DRIVER^HANDLE`.
pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("{}/{driver}^{handle}", provisioner::CSI)
}

/// Driver and handle of a unique name. `None` if the volume is not a CSI driver's.
///
/// The name is split at its first `^`: a driver's name cannot contain one, a handle may (CTRL-14.50).
pub fn parse_unique(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(provisioner::CSI)?.strip_prefix('/')?.split_once('^')
}

/// The name of the VolumeAttachment of a volume on a node. Everybody computes it, so that a volume has one per node.
pub fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    let hash = Sha256::new().chain_update(handle).chain_update(driver).chain_update(node).finalize();
    hash.iter().fold(String::from("csi-"), |mut name, byte| {
        // Writing to a text cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// Whether a name is one that [`attachment_name`] gives.
pub fn is_hashed_name(name: &str) -> bool {
    let hash = name.strip_prefix("csi-").unwrap_or_default();
    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule: CTRL-2.3
    #[test]
    fn a_unique_name_names_driver_and_handle() {
        let name = unique_name("hostpath.csi.k8s.io", "vol/1");
        assert_eq!(name, format!("{}/hostpath.csi.k8s.io^vol/1", provisioner::CSI));
        assert_eq!(parse_unique(&name), Some(("hostpath.csi.k8s.io", "vol/1")));
    }

    /// Rule: CTRL-14.50
    #[test]
    fn a_handle_may_contain_a_caret() {
        assert_eq!(parse_unique(&unique_name("d", "a^b^c")), Some(("d", "a^b^c")));
    }

    #[test]
    fn names_of_other_plugins_are_not_ours() {
        let csi = provisioner::CSI;
        for name in [String::new(), format!("{}/a^b", provisioner::NFS), csi.to_owned(), format!("{csi}/no-caret")] {
            assert_eq!(parse_unique(&name), None, "{name}");
        }
    }

    /// Rule: CTRL-2.3
    #[test]
    fn an_attachment_is_named_by_the_hash_of_handle_driver_and_node() {
        let of_hdn = "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d";
        assert_eq!(attachment_name("d", "h", "n"), of_hdn);
    }
}
