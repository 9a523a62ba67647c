//! Bad input, bad pools, full disks and damaged records: one clear error each, and nothing is lost.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why by panicking")]

mod rig;

mod refusals {
    mod arguments;
    mod disks;
    mod holders;
    mod pools;
    mod records;
    mod tools;
}
