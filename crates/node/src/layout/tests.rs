//! Paths and names as a kubelet has them, and files that survive what happens to files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::data::Damage;
use super::*;

fn layout() -> Layout {
    Layout::new("/var/lib/kubelet").unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// `<csi>` and `<local>` stand for the names of the plugins.
fn is(path: impl AsRef<Path>, expected: &str) {
    let expected = expected.replace("<csi>", Plugin::Csi.name()).replace("<local>", Plugin::Local.name());
    assert_eq!(path.as_ref(), Path::new("/var/lib/kubelet").join(expected));
}

/// `printf vol-1 | sha256sum`
const VOL_1: &str = "d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49";

/// Rule: NODE-2
#[test]
fn filesystem_volumes_lie_where_a_kubelet_has_them() {
    let staged = layout().staged(&name("csi.example"), "vol-1");
    let directory = staged.directory().file_name().unwrap().to_owned();
    assert_eq!(directory.len(), 64);
    assert_eq!(Plugin::Csi.directory(), "kubernetes.io~csi");
    is(staged.mount(), &format!("plugins/<csi>/csi.example/{}/globalmount", directory.display()));
    is(staged.data(), &format!("plugins/<csi>/csi.example/{}/vol_data.json", directory.display()));
    assert!(staged.is_of("vol-1") && !staged.is_of("vol-2"));
    let published = layout().pod(&name("uid-1")).csi(&name("pv-1"));
    is(published.mount(), "pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount");
    is(published.data(), "pods/uid-1/volumes/kubernetes.io~csi/pv-1/vol_data.json");
    is(layout().registration_socket(&name("csi.example")), "plugins_registry/csi.example-reg.sock");
    is(layout().endpoint(&name("csi.example")), "plugins/csi.example/csi.sock");
}

/// Rule: NODE-2
#[test]
fn block_volumes_lie_where_a_kubelet_has_them() {
    let block = layout().block(&name("pv-1")).unwrap();
    is(block.staging(), "plugins/<csi>/volumeDevices/staging/pv-1");
    is(block.publish(&name("uid-1")), "plugins/<csi>/volumeDevices/publish/pv-1/uid-1");
    is(block.mapped(&name("uid-1")), "plugins/<csi>/volumeDevices/pv-1/dev/uid-1");
    is(block.data(), "plugins/<csi>/volumeDevices/pv-1/data/vol_data.json");
    let pod = layout().pod(&name("uid-1"));
    is(pod.device(Plugin::Csi, &name("pv-1")), "pods/uid-1/volumeDevices/kubernetes.io~csi/pv-1");
}

/// Rule: NODE-2
#[test]
fn what_other_volumes_need_lies_where_a_kubelet_has_it() {
    let pod = layout().pod(&name("uid-1"));
    is(pod.sub_path(&name("pv-1"), &name("web"), 2), "pods/uid-1/volume-subpaths/pv-1/web/2");
    is(pod.ready_marker(Plugin::EmptyDir, &name("tmp")), "pods/uid-1/plugins/kubernetes.io~empty-dir/tmp/ready");
    is(layout().local_mount(&name("pv-1")), "plugins/<local>/mounts/pv-1");
    is(layout().local_block(&name("pv-1")), "plugins/kubernetes.io~local-volume/volumeDevices/pv-1");
}

/// Rule: NODE-2
#[test]
fn a_volume_named_like_a_shared_directory_is_refused() {
    for reserved in ["staging", "publish"] {
        assert_eq!(layout().block(&name(reserved)), Err(BadName::Reserved(reserved.to_owned())));
    }
}

#[test]
fn a_name_never_leaves_its_directory() {
    for bad in ["", ".", "..", "../../etc", "a/b", "/etc", "a\0b", &"x".repeat(256)] {
        assert_eq!(Name::new(bad), Err(BadName::Unusable(bad.to_owned())), "{bad:?}");
    }
    for good in ["...", "pvc-4f5b", "a b", "ü"] {
        assert_eq!(Name::new(good).unwrap().as_str(), good);
    }
    assert_eq!(Name::found(OsStr::new("uid")), Some(name("uid")));
}

/// Rule: NODE-2
#[test]
fn the_root_is_a_clean_absolute_path() {
    for bad in ["var/lib", "/var/../lib", "/var/./lib", "/var//lib", "/var/lib/", ""] {
        assert_eq!(Layout::new(bad), Err(BadRoot(PathBuf::from(bad))), "{bad:?}");
    }
}

/// Rule: NODE-2
#[test]
fn plugins_are_found_again_by_their_directories() {
    for plugin in Plugin::ALL {
        assert_eq!(Plugin::from_directory(OsStr::new(&plugin.directory())), Some(plugin));
    }
    assert_eq!(Plugin::from_directory(OsStr::new("kubernetes.io~git-repo")), None);
}

/// Rule: NODE-2.2
#[test]
fn computed_names_are_those_of_a_kubelet() {
    // `printf uid-1scratch | sha256sum`
    assert_eq!(
        inline_handle("uid-1", "scratch"),
        "csi-a919eb5a57ed1bf8c61a802fc713b36e9bfa4fbf009dfb5f4206d253a3a3dc32"
    );
    assert!(layout().staged(&name("d"), "vol-1").directory().ends_with(VOL_1));
    assert_eq!(per_pod_name(Plugin::EmptyDir, "uid-1", "tmp"), format!("{}/uid-1-tmp", Plugin::EmptyDir.name()));
    let unique = format!("{}/driver^handle/with/slashes", Plugin::Csi.name());
    assert_eq!(split_unique_name(&unique), Some((Plugin::Csi.name(), "driver^handle/with/slashes")));
    assert_eq!(split_unique_name("one/two"), None);
}

fn pod_file() -> VolumeData {
    VolumeData {
        driver: "csi.example".to_owned(),
        handle: "vol \"1\"".to_owned(),
        volume: Some("pv-1".to_owned()),
        node: Some("node-1".to_owned()),
        attachment: Some("csi-00".to_owned()),
        lifecycle: Some(Lifecycle::Persistent),
        selinux: None,
        boot: Some("boot-1".to_owned()),
    }
}

/// Rule: NODE-2.1
#[test]
fn a_file_is_one_line_of_strings_that_a_kubelet_can_read() {
    let line = String::from_utf8(pod_file().encode()).unwrap();
    assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
    let keys: std::collections::BTreeMap<String, String> = serde_json::from_str(&line).unwrap();
    let read = |key: &str| keys.get(key).map(String::as_str);
    assert_eq!(read("driverName"), Some("csi.example"));
    assert_eq!(read("volumeHandle"), Some("vol \"1\""));
    assert_eq!(read("specVolID"), Some("pv-1"));
    assert_eq!(read("nodeName"), Some("node-1"));
    assert_eq!(read("attachmentID"), Some("csi-00"));
    assert_eq!(read("volumeLifecycleMode"), Some("Persistent"));
    assert_eq!(read("seLinuxMountContext"), None);
    assert_eq!(read("orlopBootID"), Some("boot-1"));
    assert_eq!(VolumeData::decode(line.as_bytes()), Ok(pod_file()));
}

/// Rule: NODE-2.1
#[test]
fn a_file_of_a_kubelet_is_believed_as_it_is() {
    let text = br#"{"attachmentID":"","driverName":"d","futureKey":"x","volumeHandle":"h"}"#;
    let expected = VolumeData { driver: "d".to_owned(), handle: "h".to_owned(), ..VolumeData::default() };
    assert_eq!(VolumeData::decode(text), Ok(expected));
}

#[test]
fn a_file_is_of_an_earlier_boot_only_if_both_boots_are_known() {
    assert!(pod_file().is_of_earlier_boot(Some("boot-2")));
    assert!(!pod_file().is_of_earlier_boot(Some("boot-1")));
    assert!(!pod_file().is_of_earlier_boot(None), "a machine that does not name its boots");
    assert!(!VolumeData::default().is_of_earlier_boot(Some("boot-2")), "a file of a kubelet");
}

/// Rules: NODE-31.1, NODE-30.7
#[test]
fn a_damaged_file_is_not_an_absent_one() {
    let whole = pod_file().encode();
    for cut in 0..whole.len() - 2 {
        assert!(matches!(VolumeData::decode(&whole[..cut]), Err(Damage::NotJson(_))), "{cut} bytes");
    }
    let flipped = String::from_utf8(whole).unwrap().replace("vol ", "vol_");
    assert_eq!(VolumeData::decode(flipped.as_bytes()), Err(Damage::Checksum));
    assert_eq!(VolumeData::decode(br#"{"volumeHandle":"h"}"#), Err(Damage::Missing("driverName")));
    assert_eq!(VolumeData::decode(br#"{"driverName":"d","volumeHandle":""}"#), Err(Damage::Missing("volumeHandle")));
}
