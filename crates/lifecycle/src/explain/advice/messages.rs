//! What a message of kubelet, an agent or a provisioner asks for, where its words are known.
//!
//! Kubelet and drivers say in words, and in no other form, why a volume cannot be mounted. The words of the table are theirs.

use super::Advice;

/// About a pod that uses a volume in another way than it is.
pub(super) const MODE: &str = "A Filesystem volume goes into the pod's volumeMounts, a Block volume into its volumeDevices: \
     make the pod anew so, or the claim with the other volumeMode.";

const OPTIONS: &str = "Correct the mount options: those of the volume (spec.mountOptions of the PersistentVolume), and for \
     later volumes those of its class, which has to be made anew.";

/// Words, any of which a message has, and what they ask for.
type Hint = (&'static [&'static str], &'static str);

const MOUNTING: [Hint; 12] = [
    (&["waiting for external-attacher"], super::pods::ATTACHER),
    (&["volumeMode Block", "volumeMode Filesystem"], MODE),
    (
        &["you might need a /sbin/mount", "executable file not found", "unknown filesystem type"],
        "The pod's node lacks a program or a kernel module for this filesystem: install it there.",
    ),
    (
        // What mount(8) says of nearly everything.
        &["wrong fs type, bad option"],
        "Wrong mount options, a damaged filesystem, or one of another type: `dmesg` on the pod's node says which.",
    ),
    (&["mount option", "bad option", "Unknown parameter"], OPTIONS),
    (
        &["list of registered CSI drivers"],
        "See that the driver's node plugin and its registrar run on the pod's node, with that kubelet's root directory.",
    ),
    (
        &["Multi-Attach error"],
        "The volume is for one node at a time, and another one has it: end the pods that use it there.",
    ),
    (
        &["Setting volume ownership", "SetVolumeOwnership"],
        "Every file gets the pod's fsGroup, which takes long: set securityContext.fsGroupChangePolicy to OnRootMismatch.",
    ),
    (
        &["Transport endpoint is not connected", "Stale file handle", "stale NFS file handle"],
        "What the mount stood on is gone: see that its server or FUSE daemon runs, then make the pod anew.",
    ),
    (
        &["tructure needs cleaning", "fsck found errors"],
        "The filesystem is damaged: repair it with fsck while no pod has it, or restore it from a backup.",
    ),
    (
        &["access denied", "ermission denied", "PermissionDenied"],
        "The storage does not let this node in: correct its exports or access rules, or the driver's credentials.",
    ),
    (
        &["already exists for", "operation with the given", "Aborted"],
        "An earlier call for this volume still runs, and this one waits for it. If that lasts, the driver's log says more.",
    ),
];

const PROVISIONING: [Hint; 2] = [
    (
        &["has a selector", "elector is not supported"],
        "Make the claim anew without spec.selector: volumes that are made on demand have no labels to select by.",
    ),
    (
        &["VolumeAttributesClass", "volumeattributesclass"],
        "Create that VolumeAttributesClass, or make the claim anew without spec.volumeAttributesClassName.",
    ),
];

/// About a volume that a node could not mount.
pub(super) fn mounting(message: &str) -> Option<Advice> {
    super::volumes::trouble(message, None).or_else(|| secret(message)).or_else(|| known(&MOUNTING, message))
}

/// About a volume that a provisioner did not even ask its driver for.
pub(super) fn provisioning(message: &str) -> Option<Advice> {
    secret(message).or_else(|| known(&PROVISIONING, message))
}

fn known(hints: &[Hint], message: &str) -> Option<Advice> {
    let found = hints.iter().find(|(words, _)| words.iter().any(|word| message.contains(word)))?;
    Some(vec![found.1.to_owned()])
}

/// A secret that does not exist, as its name stands in the message.
fn secret(message: &str) -> Option<Advice> {
    let missing = message.contains("not found") || message.contains("does not exist");
    let ours = || message.split_once("the secret ").and_then(|(_, rest)| rest.split(' ').next());
    let theirs = || message.split_once("secrets \"").and_then(|(_, rest)| rest.split('"').next());
    let name = missing.then(|| ours().or_else(theirs)).flatten().filter(|name| !name.is_empty())?;
    let quoted = name.trim_end_matches([':', ',']);
    Some(vec![format!("Create secret {quoted:?}, which the class or the volume names; it is tried again by itself.")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_whose_words_are_known_says_what_to_do() {
        let table = [
            // Pains 22 to 24, 29, 45: kubelet's words, the mount program's and a provisioner's.
            ("volume data has volumeMode Block, but is specified in volumeMounts", "volumeDevices"),
            ("driver name d not found in the list of registered CSI drivers", "registrar"),
            ("mount: /x: wrong fs type, bad option, bad superblock on /dev/sdb", "dmesg"),
            ("ext4 does not take the mount option \"frobnicate\"", "spec.mountOptions"),
            ("mount failed: exit status 32: Stale file handle", "make the pod anew"),
            ("Setting volume ownership for p/v, processed 90000 files.", "OnRootMismatch"),
            ("bad option; you might need a /sbin/mount.nfs helper program", "install"),
            ("exec: \"mount.cifs\": executable file not found in $PATH", "install"),
            ("failed to get NodePublishSecretRef n/s: secrets \"s\" not found", "Create secret \"s\""),
            ("the secret shop/creds cannot be read: not found", "Create secret \"shop/creds\""),
        ];
        for (message, said) in table {
            let advice = mounting(message).unwrap_or_default();
            assert!(advice.iter().any(|line| line.contains(said)), "{message}: {advice:?}");
        }
        assert_eq!(mounting("rpc error: code = Internal desc = mkfs failed"), None, "what is not known is not guessed");
        let refused = provisioning("claim Selector is not supported").unwrap_or_default();
        assert!(refused.iter().any(|line| line.contains("spec.selector")), "{refused:?}");
    }
}
