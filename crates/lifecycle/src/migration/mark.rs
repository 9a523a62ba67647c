//! The `migrated-to` annotation (BIND-4.11).

use super::driver_of;

/// What the `migrated-to` annotation of an object should become (BIND-4.11).
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
    use crate::migration::plugin_of;

    #[test]
    fn a_mark_follows_the_provisioner() {
        let ebs = plugin_of("ebs.csi.aws.com").unwrap();
        assert_eq!(mark(Some(&ebs), None), Mark::Set("ebs.csi.aws.com"));
        assert_eq!(mark(Some(&ebs), Some("ebs.csi.aws.com")), Mark::Right);
        assert_eq!(mark(Some("local.orlop.dev"), Some("ebs.csi.aws.com")), Mark::Remove);
        assert_eq!(mark(None, Some("ebs.csi.aws.com")), Mark::Right);
    }
}
