//! Keeping the secrets of a request out of every sentence that leaves with its answer or goes to the log.
//!
//! Requests themselves are safe to print: the generated `Debug` hides secret fields. What a driver or a tool below it
//! writes into an error message is not, so any secret value found in such a text is replaced.

use csi::v1::volume_capability::AccessType;
use csi::v1::{self, VolumeCapability};
use csi::{REDACTED, TOKEN_KEYS};

use crate::types::StringMap;

/// Shorter values occur in ordinary words by accident, and replacing them would spoil messages and hide nothing.
const SHORTEST: usize = 4;

/// Mount options with such a part in their name carry credentials in their value.
const TELLING: [&str; 6] = ["pass", "secret", "token", "key", "cred", "auth"];

/// What must not be shown of one request.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    /// Longest first, so that a secret inside a longer one does not leave the rest of it standing.
    values: Vec<String>,
}

impl Redactor {
    pub(crate) fn of(request: &impl Sensitive) -> Self {
        let mut values = Vec::new();
        request.sensitive(&mut |value| {
            if value.len() >= SHORTEST {
                values.push(value.to_owned());
            }
        });
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { values }
    }

    pub(crate) fn clean(&self, text: String) -> String {
        self.values.iter().fold(text, |text, value| match text.contains(value.as_str()) {
            true => text.replace(value.as_str(), REDACTED),
            false => text,
        })
    }
}

/// A request that knows which of its values are sensitive.
pub(crate) trait Sensitive {
    fn sensitive(&self, see: &mut dyn FnMut(&str));
}

fn secrets(map: &StringMap, see: &mut dyn FnMut(&str)) {
    map.values().for_each(|value| see(value));
}

fn tokens(context: &StringMap, see: &mut dyn FnMut(&str)) {
    TOKEN_KEYS.iter().filter_map(|key| context.get(*key)).for_each(|value| see(value));
}

fn flags<'a>(capabilities: impl IntoIterator<Item = &'a VolumeCapability>, see: &mut dyn FnMut(&str)) {
    for capability in capabilities {
        let Some(AccessType::Mount(mount)) = &capability.access_type else { continue };
        for flag in &mount.mount_flags {
            let Some((name, value)) = flag.split_once('=') else { continue };
            if TELLING.iter().any(|part| name.to_ascii_lowercase().contains(part)) {
                see(value);
            }
        }
    }
}

macro_rules! sensitive {
    ($($request:ident { $($field:ident: $kind:ident),* })*) => {
        $(impl Sensitive for v1::$request {
            #[allow(unused_variables)]
            fn sensitive(&self, see: &mut dyn FnMut(&str)) {
                $($kind(&self.$field, see);)*
            }
        })*
    };
}

sensitive! {
    GetPluginInfoRequest {}
    GetPluginCapabilitiesRequest {}
    ProbeRequest {}
    CreateVolumeRequest { secrets: secrets, volume_capabilities: flags }
    DeleteVolumeRequest { secrets: secrets }
    ControllerPublishVolumeRequest { secrets: secrets, volume_context: tokens, volume_capability: flags }
    ControllerUnpublishVolumeRequest { secrets: secrets }
    ValidateVolumeCapabilitiesRequest { secrets: secrets, volume_context: tokens, volume_capabilities: flags }
    ListVolumesRequest {}
    ControllerGetVolumeRequest {}
    ControllerModifyVolumeRequest { secrets: secrets }
    GetCapacityRequest { volume_capabilities: flags }
    ControllerGetCapabilitiesRequest {}
    CreateSnapshotRequest { secrets: secrets }
    DeleteSnapshotRequest { secrets: secrets }
    ListSnapshotsRequest { secrets: secrets }
    GetSnapshotRequest { secrets: secrets }
    ControllerExpandVolumeRequest { secrets: secrets, volume_capability: flags }
    NodeStageVolumeRequest { secrets: secrets, volume_context: tokens, volume_capability: flags }
    NodeUnstageVolumeRequest {}
    NodePublishVolumeRequest { secrets: secrets, volume_context: tokens, volume_capability: flags }
    NodeUnpublishVolumeRequest {}
    NodeGetVolumeStatsRequest {}
    NodeGetCapabilitiesRequest {}
    NodeGetInfoRequest {}
    NodeExpandVolumeRequest { secrets: secrets, volume_capability: flags }
    GroupControllerGetCapabilitiesRequest {}
    CreateVolumeGroupSnapshotRequest { secrets: secrets }
    DeleteVolumeGroupSnapshotRequest { secrets: secrets }
    GetVolumeGroupSnapshotRequest { secrets: secrets }
    GetMetadataAllocatedRequest { secrets: secrets }
    GetMetadataDeltaRequest { secrets: secrets }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(values: &[&str]) -> Redactor {
        let secrets = values.iter().enumerate().map(|(i, v)| (i.to_string(), (*v).to_owned())).collect();
        Redactor::of(&v1::DeleteVolumeRequest { volume_id: "v".into(), secrets })
    }

    #[test]
    fn a_secret_in_a_message_is_replaced_and_short_ones_are_left() {
        let redactor = redactor(&["hunter2", "hunter2-and-more", "abc"]);
        assert_eq!(redactor.clean("pw hunter2-and-more, hunter2, abc".into()), "pw ***, ***, abc");
    }

    #[test]
    fn mount_options_that_look_like_credentials_are_secrets_too() {
        let mount = v1::volume_capability::MountVolume {
            mount_flags: vec!["uid=1000".into(), "Password=swordfish".into(), "ro".into()],
            ..Default::default()
        };
        let capability = VolumeCapability { access_type: Some(AccessType::Mount(mount)), access_mode: None };
        let request = v1::NodePublishVolumeRequest { volume_capability: Some(capability), ..Default::default() };
        let clean = Redactor::of(&request).clean("mount -o uid=1000,Password=swordfish".into());
        assert_eq!(clean, "mount -o uid=1000,Password=***");
    }
}
