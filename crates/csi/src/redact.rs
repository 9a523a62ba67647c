//! `Debug` for messages that carry secrets.
//!
//! The impls themselves are generated (`generated/debug.rs`) from the same descriptors as the messages, so a new field
//! marked `csi_secret` is hidden the moment it is generated. Here are only the three ways in which a field is shown.

use std::collections::BTreeMap;
use std::fmt;

/// What stands in for a hidden value.
pub const REDACTED: &str = "***";

/// Keys of context maps whose values are credentials although the field itself is not marked as a secret.
///
/// Kubelet puts pod tokens into `volume_context` unless the driver's CSIDriver object asks for them as secrets.
pub const TOKEN_KEYS: [&str; 1] = ["csi.storage.k8s.io/serviceAccount.tokens"];

struct Hidden;

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// A secret map: keys are shown, values never.
struct Secret<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, Hidden))).finish()
    }
}

/// A context map: shown, except for the values of [`TOKEN_KEYS`].
struct Context<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (key, value) in self.0 {
            if TOKEN_KEYS.contains(&key.as_str()) {
                map.entry(key, &Hidden)
            } else {
                map.entry(key, value)
            };
        }
        map.finish()
    }
}

/// Mount flags may hold credentials (`password=...`): an option keeps its name and loses its value.
struct Flags<'a>(&'a [String]);

impl fmt::Debug for Flags<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|flag| match flag.split_once('=') {
            Some((name, _)) => format!("{name}={REDACTED}"),
            None => flag.clone(),
        });
        f.debug_list().entries(names).finish()
    }
}

include!("generated/debug.rs");
