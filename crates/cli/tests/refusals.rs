//! Bad input, bad pools, full disks and damaged records: one clear error each, and nothing is lost.

mod rig;

mod refusals {
    mod arguments;
    mod disks;
    mod pools;
    mod records;
    mod tools;
}
