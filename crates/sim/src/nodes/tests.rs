//! Runs of the whole world. `cargo xtask sim` does many more of them.

use super::*;
use crate::Journal;

/// The last one is for a filesystem that breaks, which is rare.
const SEEDS: [u64; 17] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 27];

/// What the journals of these worlds must show, or the worlds are too kind.
const FAULTS: [&str; 16] = [
    "killed (injected)",
    "power off",
    "boot 2",
    "cable cut",
    "cable back",
    "deletes node",
    "registers node",
    "is broken",
    "by force",
    "finishes pod",
    "deletes claim",
    "hung, not done (injected)",
    "hung, and done (injected)",
    "crashed before it (injected)",
    "crashed after it (injected)",
    "the answer is lost",
];

#[test]
fn no_invariant_is_violated_every_fault_happens_and_a_seed_replays() {
    let mut lines = Vec::new();
    for seed in SEEDS.map(Seed) {
        let [one, other] = [(); 2].map(|()| run(seed, Mutation::None).expect("a world can be made"));
        println!("seed {seed}: {:?}", one.tally);
        assert_eq!(one.violations, [""; 0], "orlop-sim nodes --seed {seed}");
        if let Some((at, one, other)) = Journal::first_difference(&one.journal, &other.journal) {
            panic!("seed {seed} differs at line {at}\n  one:   {one}\n  other: {other}");
        }
        assert_eq!(one.tally, other.tally, "seed {seed}");
        lines.extend(one.journal);
    }
    let missing = FAULTS.into_iter().filter(|fault| !lines.iter().any(|line| line.contains(*fault)));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0], "these never happened");
}

#[test]
fn every_usual_kind_of_misfortune_happens_in_one_of_its_first_worlds() {
    for also in USUAL {
        let happened = (0..4).map(Seed).any(|seed| {
            let report = run_with(seed, Mutation::None, &[*also]).expect("a world can be made");
            report.journal.iter().any(|line| line.contains(also.shown_as()))
        });
        assert!(happened, "{also:?} never happened");
    }
}

/// Each invariant is proven able to fail.
/// Rule: CTRL-I15
#[test]
fn every_mutation_is_noticed_by_its_invariant() {
    for mutation in Mutation::ALL {
        let first = mutation.first_seed();
        let noticed = (first..first + 100).find(|seed| {
            let report = run_with(Seed(*seed), mutation, mutation.needs()).expect("a world can be made");
            report.violations.iter().any(|violation| violation.starts_with(mutation.noticed_as()))
        });
        println!("{mutation:?} is noticed in the world of seed {noticed:?}");
        assert!(noticed.is_some(), "{mutation:?} was never noticed as {:?}", mutation.noticed_as());
    }
}
