//! Which volume an attachment is of, when the PersistentVolume that it names may be gone or be another one by now.
//!
//! # Invariants
//! 1. What was published counts, not what the name stands for now: the handle that the attacher wrote down, the volume that
//!    the attachment carries, or the hash in its name.
//! 2. An attachment that tells nothing of its volume may be of any volume of its driver ([`AttachmentIdentity::Unknown`]).

use api::Attachment;
use api::keys::annotation;

use super::names::{attachment_name, is_hashed_name, unique_name};
use super::target::Target;

/// Whether an attachment is of a volume, as far as the attachment itself tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentIdentity {
    Of,
    NotOf,
    /// Only the PersistentVolume that it names could tell.
    Unknown,
}

/// Whether an attachment is of the volume of this driver and handle.
pub fn identify(attachment: &Attachment, (driver, handle): (&str, &str)) -> AttachmentIdentity {
    if attachment_name(driver, handle, &attachment.node) == attachment.name() {
        return AttachmentIdentity::Of;
    }
    match published(attachment) {
        Some(unique) if unique == unique_name(driver, handle) => AttachmentIdentity::Of,
        Some(_) => AttachmentIdentity::NotOf,
        None if *attachment.attacher != *driver || is_hashed_name(attachment.name()) => AttachmentIdentity::NotOf,
        None => AttachmentIdentity::Unknown,
    }
}

/// The unique name of the volume that an attachment carries, or that its attacher wrote down before publishing it.
pub fn published(attachment: &Attachment) -> Option<String> {
    if let Some(target) = attachment.inline.as_ref().and_then(|spec| Target::inline("", spec)) {
        return Some(target.unique());
    }
    let handle = attachment.meta.annotation(annotation::PUBLISHED_HANDLE)?;
    Some(unique_name(&attachment.attacher, handle))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn attachment(name: &str, metadata: Value, source: Value) -> Attachment {
        let mut body =
            json!({"metadata": {"name": name}, "spec": {"attacher": "d", "nodeName": "n", "source": source}});
        for (key, value) in metadata.as_object().into_iter().flatten() {
            body["metadata"][key] = value.clone();
        }
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn what_was_published_counts_and_what_tells_nothing_is_unknown() {
        let named = json!({"persistentVolumeName": "gone"});
        let note = json!({"annotations": {annotation::PUBLISHED_HANDLE.text(): "h"}});
        let inside = json!({"inlineVolumeSpec": {"csi": {"driver": "d", "volumeHandle": "h"}}});
        let hashed = attachment_name("d", "h", "n");
        let cases = [
            (attachment(&hashed, json!({}), named.clone()), [AttachmentIdentity::Of, AttachmentIdentity::NotOf]),
            (attachment("mine", note, named.clone()), [AttachmentIdentity::Of, AttachmentIdentity::NotOf]),
            (attachment("mine", json!({}), inside), [AttachmentIdentity::Of, AttachmentIdentity::NotOf]),
            (attachment("mine", json!({}), named), [AttachmentIdentity::Unknown, AttachmentIdentity::Unknown]),
        ];
        for (held, expected) in cases {
            assert_eq!(["h", "other"].map(|handle| identify(&held, ("d", handle))), expected, "{held:?}");
            assert_ne!(identify(&held, ("another", "other")), AttachmentIdentity::Unknown, "another driver's");
        }
    }
}
