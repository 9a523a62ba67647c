//! Volumes in a pool that runs full, crashes and is looked at from other mount namespaces: real loop devices and filesystems.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod lost {
    mod bench;
    mod copies;
    mod full;
    mod leftovers;
    mod locked;
    mod missing;
    mod readonly;
    mod trouble;
}
