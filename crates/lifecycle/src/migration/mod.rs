//! In-tree plugins whose volumes a CSI driver took over (spec controllers 10).

use api::keys::provisioner;

/// Plugin and driver. Migration is on for all of them, without a switch.
const DRIVERS: [(&str, &str); 7] = [
    ("gce-pd", "pd.csi.storage.gke.io"),
    ("aws-ebs", "ebs.csi.aws.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("azure-disk", "disk.csi.azure.com"),
    ("azure-file", "file.csi.azure.com"),
    ("vsphere-volume", "csi.vsphere.vmware.com"),
    ("portworx-volume", "pxd.portworx.com"),
];

/// The driver that took over from a plugin, given the plugin's full name.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    let short = plugin.strip_prefix(provisioner::IN_TREE_PREFIX)?;
    DRIVERS.iter().find(|(name, _)| *name == short).map(|(_, driver)| *driver)
}

/// The plugin a driver took over from, by its full name.
pub fn plugin_of(driver: &str) -> Option<String> {
    let (short, _) = DRIVERS.iter().find(|(_, name)| *name == driver)?;
    Some(format!("{}{short}", provisioner::IN_TREE_PREFIX))
}

/// What the `migrated-to` annotation of an object should become (4.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Right,
    Set(&'static str),
    Remove,
}

/// Compares the mark an object has with the one that its provisioner calls for.
pub fn mark(provisioner: Option<&str>, migrated_to: Option<&str>) -> Mark {
    match (provisioner, migrated_to) {
        (None, _) => Mark::Right,
        (Some(plugin), held) => match driver_of(plugin) {
            Some(driver) if held == Some(driver) => Mark::Right,
            Some(driver) => Mark::Set(driver),
            None if held.is_some() => Mark::Remove,
            None => Mark::Right,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_follows_the_provisioner() {
        let ebs = plugin_of("ebs.csi.aws.com").unwrap();
        assert_eq!(mark(Some(&ebs), None), Mark::Set("ebs.csi.aws.com"));
        assert_eq!(mark(Some(&ebs), Some("ebs.csi.aws.com")), Mark::Right);
        assert_eq!(mark(Some("local.orlop.dev"), Some("ebs.csi.aws.com")), Mark::Remove);
        assert_eq!(mark(None, Some("ebs.csi.aws.com")), Mark::Right);
    }

    #[test]
    fn every_plugin_and_driver_name_each_other() {
        for (short, driver) in DRIVERS {
            let plugin = format!("{}{short}", provisioner::IN_TREE_PREFIX);
            assert_eq!(driver_of(&plugin), Some(driver));
            assert_eq!(plugin_of(driver), Some(plugin));
        }
    }
}
