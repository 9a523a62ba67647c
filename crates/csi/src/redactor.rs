//! Keeping the secrets of a request out of every sentence about it.
//!
//! Requests themselves are safe to print: the generated `Debug` hides secret fields. What a driver, or a tool below it, writes
//! into an error message is not, so any secret value found in such a text is replaced. Both ends do this: a driver made with
//! our SDK before its answer leaves, and our client when any driver's answer arrives.
//!
//! # Which texts are replaced
//! Every value of a field marked `csi_secret`, the pod tokens in a volume context, and the values of mount options whose name
//! speaks of a credential, if they have at least four bytes. They are found as they are, without white space at their
//! ends (files of secrets often end with a line break), as JSON writes them, percent-encoded as in URLs, and in base64 (both
//! alphabets, also inside of a longer text that was encoded as a whole, as `user:password` is).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::redact::{REDACTED, TOKEN_KEYS};
use crate::v1::volume_capability::AccessType;
use crate::v1::{self, VolumeCapability};

/// Shorter values occur in ordinary words by accident, and replacing them would spoil messages and hide nothing.
const SHORTEST: usize = 4;

/// Mount options with such a part in their name carry credentials in their value.
const TELLING: [&str; 6] = ["pass", "secret", "token", "key", "cred", "auth"];

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The secrets of one request, to be taken out of texts. It cannot be printed.
#[derive(Clone, Default)]
pub struct Redactor {
    values: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("values", &self.values.len()).finish()
    }
}

impl Redactor {
    /// For the secrets of one request.
    pub fn of(request: &impl SensitiveRequest) -> Self {
        let mut values = Vec::new();
        request.sensitive(&mut |value| {
            if value.len() >= SHORTEST {
                values.push(value.to_owned());
            }
        });
        Self { values }
    }

    /// For these values.
    pub fn for_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let long = values.into_iter().filter(|value| value.len() >= SHORTEST);
        Self { values: long.map(str::to_owned).collect() }
    }

    /// The text without the secrets.
    pub fn clean(&self, text: String) -> String {
        if self.values.is_empty() || text.is_empty() {
            return text;
        }
        let forms: BTreeSet<String> = self.values.iter().flat_map(|value| forms(value)).collect();
        let mut forms: Vec<String> = forms.into_iter().collect();
        // Longest first, so that a secret inside a longer one does not leave the rest of it standing.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.iter().fold(text, |text, form| match text.contains(form.as_str()) {
            true => text.replace(form.as_str(), REDACTED),
            false => text,
        })
    }
}

/// All ways in which a value may stand in a text.
fn forms(value: &str) -> Vec<String> {
    let trimmed = value.trim();
    let mut forms = vec![value.to_owned(), trimmed.to_owned()];
    for value in [value, trimmed] {
        forms.push(escaped(value));
        let percent = percent_encoded(value);
        forms.push(percent.replace("%20", "+"));
        forms.push(lower_escapes(&percent));
        forms.push(percent);
        for alphabet in [STANDARD, URL_SAFE] {
            forms.push(base64(value.as_bytes(), alphabet));
            forms.extend((0..3).map(|shift| base64_inside(value.as_bytes(), shift, alphabet)));
        }
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

/// As JSON and Rust write it between quotes.
fn escaped(value: &str) -> String {
    let quoted = format!("{value:?}");
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

fn percent_encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => text.push(char::from(byte)),
            // Writing into a string cannot fail.
            false => drop(write!(text, "%{byte:02X}")),
        }
        text
    })
}

/// The same with the digits of its escapes in lower case.
fn lower_escapes(percent: &str) -> String {
    let mut parts = percent.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        text.push('%');
        text.push_str(&digits.to_ascii_lowercase());
        text.push_str(rest);
    }
    text
}

/// Without the `=` at the end, which says nothing.
fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for at in 0..=chunk.len() {
            let index = usize::try_from((bits >> (18 - 6 * at)) & 63).unwrap_or(0);
            text.push(alphabet.get(index).copied().map_or('=', char::from));
        }
    }
    text
}

/// The characters that stand for nothing but these bytes where so many bytes stand before them, and others may follow.
fn base64_inside(bytes: &[u8], before: usize, alphabet: &[u8; 64]) -> String {
    let shifted: Cow<'_, [u8]> = match before {
        0 => bytes.into(),
        before => [&[0, 0][..before.min(2)], bytes].concat().into(),
    };
    let text = base64(&shifted, alphabet);
    let (start, end) = ((before * 8).div_ceil(6), shifted.len() * 8 / 6);
    text.get(start..end).unwrap_or_default().to_owned()
}

/// A request that knows which of its values are sensitive.
pub trait SensitiveRequest {
    /// Shows each sensitive value to `see`.
    fn sensitive(&self, see: &mut dyn FnMut(&str));
}

fn secrets(map: &BTreeMap<String, String>, see: &mut dyn FnMut(&str)) {
    map.values().for_each(|value| see(value));
}

/// The value is JSON that holds a token per audience: a driver takes them out, so that each of them is looked for as well.
fn tokens(context: &BTreeMap<String, String>, see: &mut dyn FnMut(&str)) {
    for value in TOKEN_KEYS.iter().filter_map(|key| context.get(*key)) {
        see(value);
        for rest in value.split("\"token\"").skip(1) {
            // A colon, perhaps spaces, then the token in quotes.
            if let Some(token) = rest.split('"').nth(1) {
                see(token);
            }
        }
    }
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
        $(impl SensitiveRequest for v1::$request {
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
        assert_eq!(format!("{redactor:?}"), "Redactor { values: 2 }");
    }

    #[test]
    fn a_secret_is_found_in_the_forms_in_which_tools_write_it() {
        let redactor = redactor(&["p@ss word/1\n"]);
        for text in [
            "login p@ss word/1 failed",
            "\"p@ss word/1\\n\" is wrong",
            "https://u:p%40ss%20word%2F1@host",
            "https://u:p%40ss%20word%2f1@host",
            "pw=p%40ss+word%2F1&x=1",
            // base64 of "p@ss word/1\n", of "p@ss word/1", of "user:p@ss word/1" and of "u:p@ss word/1".
            "key cEBzcyB3b3JkLzEK",
            "key cEBzcyB3b3JkLzE=",
            "Basic dXNlcjpwQHNzIHdvcmQvMQ==",
            "Basic dTpwQHNzIHdvcmQvMQ==",
        ] {
            let clean = redactor.clean(text.to_owned());
            assert!(clean.contains(REDACTED), "{text}: {clean}");
            for part in ["word", "cEBz", "HNzI", "zcyB3", "dvcmQ"] {
                assert!(!clean.contains(part), "{text}: {clean}");
            }
        }
        assert_eq!(redactor.clean("nothing of it".into()), "nothing of it");
    }

    #[test]
    fn each_pod_token_in_a_volume_context_is_a_secret() {
        let tokens = r#"{"":{"token":"eyJhbGci.one"},"vault":{"token": "eyJhbGci.two"}}"#.to_owned();
        let volume_context = BTreeMap::from([(TOKEN_KEYS[0].to_owned(), tokens)]);
        let request = v1::NodePublishVolumeRequest { volume_context, ..Default::default() };
        let clean = Redactor::of(&request).clean("denied: eyJhbGci.two, eyJhbGci.one".into());
        assert_eq!(clean, "denied: ***, ***");
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
