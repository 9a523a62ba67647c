//! MIGRATE-10 by its sections.

mod class;
mod round_trip;
mod volume;

use super::*;

/// Rules: SIDECAR-1.10, MIGRATE-10.1
#[test]
fn every_plugin_and_driver_name_each_other() {
    let drivers = TRANSLATORS.map(Translator::driver);
    assert_eq!(
        drivers,
        [
            "pd.csi.storage.gke.io",
            "ebs.csi.aws.com",
            "cinder.csi.openstack.org",
            "disk.csi.azure.com",
            "file.csi.azure.com",
            "csi.vsphere.vmware.com",
            "pxd.portworx.com",
        ]
    );
    for translator in TRANSLATORS {
        let plugin = plugin_of(translator.driver()).unwrap();
        assert_eq!(driver_of(&plugin), Some(translator.driver()));
        assert!(plugin.ends_with(translator.short()));
        let members = serde_json::json!({translator.field(): {}});
        assert_eq!(plugin_of_source(&members), Some(plugin));
    }
    assert_eq!(plugin_of("local.orlop.dev"), None);
    assert_eq!(driver_of("gce-pd"), None, "a plugin's name has its prefix");
    assert_eq!(plugin_of_source(&serde_json::json!({"nfs": {}, "cinder": null})), None);
}
