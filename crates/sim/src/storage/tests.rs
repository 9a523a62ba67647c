//! Runs of the whole world. `cargo xtask sim` does many more of them.

use super::*;
use crate::Journal;

/// The last ones are for calls that meet a busy driver and for attachments by hand, which are rare.
const SEEDS: [u64; 20] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 29, 34, 56, 81];

/// What the journals of these worlds must show, or the worlds are too kind.
const FAULTS: [&str; 28] = [
    "409 (injected)",
    "410 (injected)",
    "429, retry",
    "503, retry",
    "request lost (injected)",
    "answer lost (injected)",
    "held for",
    "ended (injected)",
    "broken (injected)",
    "crashed before it was sent (injected)",
    "crashed after",
    "driver gone",
    "driver back",
    "(to be refused with",
    "(to be done and answered",
    "the answer is lost",
    "s more)",
    "(delivered twice)",
    ": busy, Aborted",
    ": ResourceExhausted",
    "provisioner down",
    "provisioner down before it forgets the intent",
    "takes the finalizers off PersistentVolume",
    "from now on, for claim",
    "by hand",
    "detaches by-hand",
    "wall clock is off by",
    "an empty directory is in the place of the pool",
];

#[test]
fn no_invariant_is_violated_every_fault_happens_and_a_seed_replays() {
    let mut lines = Vec::new();
    for seed in SEEDS.map(Seed) {
        let [one, other] = [(); 2].map(|()| run(seed, Mutation::None).expect("a world can be made"));
        println!("seed {seed}: {:?}", one.tally);
        assert_eq!(one.violations, [""; 0], "orlop-sim --seed {seed}");
        if let Some((at, one, other)) = Journal::first_difference(&one.journal, &other.journal) {
            panic!("seed {seed} differs at line {at}\n  one:   {one}\n  other: {other}");
        }
        assert_eq!(one.tally, other.tally, "seed {seed}");
        lines.extend(one.journal);
    }
    let missing = FAULTS.iter().filter(|fault| !lines.iter().any(|line| line.contains(**fault)));
    assert_eq!(missing.collect::<Vec<_>>(), [&""; 0], "these never happened");
}

/// Worlds in which something was wrong once: a finalizer fell because a stale cache showed another policy (460), and a
/// scheduler without patience fought with a provisioner without room (640); a volume that was free again did not wake the
/// claim that names it (9692).
#[test]
fn worlds_that_were_wrong_once_are_right() {
    for seed in [460, 640, 9692].map(Seed) {
        let report = run(seed, Mutation::None).expect("a world can be made");
        assert_eq!(report.violations, [""; 0], "orlop-sim --seed {seed}");
    }
}

/// Each invariant is proven able to fail.
/// Rule: CTRL-I3
#[test]
fn every_mutation_is_noticed_by_its_invariant() {
    for mutation in Mutation::ALL {
        let first = mutation.first_seed();
        let noticed = (first..first + 100).find(|seed| {
            let report = run(Seed(*seed), mutation).expect("a world can be made");
            report.violations.iter().any(|violation| violation.starts_with(mutation.noticed_as()))
        });
        println!("{mutation:?} is noticed in the world of seed {noticed:?}");
        assert!(noticed.is_some(), "{mutation:?} was never noticed as {:?}", mutation.noticed_as());
    }
}
