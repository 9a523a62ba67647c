//! Runs of the whole world.

use super::*;
use crate::Journal;

fn seeds() -> impl Iterator<Item = Seed> {
    (0..10).map(Seed)
}

#[test]
fn no_invariant_is_violated() {
    for seed in seeds() {
        let report = run(seed, Mutation::None).expect("a world can be made");
        println!("{seed} {:?}", report.tally);
        assert_eq!(report.violations, [""; 0], "seed {seed}: {:#?}", &report.journal);
    }
}

#[test]
fn two_runs_of_a_seed_are_the_same() {
    for seed in seeds() {
        let [one, other] = [(); 2].map(|()| run(seed, Mutation::None).expect("a world can be made"));
        if let Some((at, one, other)) = Journal::first_difference(&one.journal, &other.journal) {
            panic!("seed {seed} differs at line {at}\n  one:   {one}\n  other: {other}");
        }
        assert_eq!((one.violations, one.tally), (other.violations, other.tally));
    }
}

#[test]
fn every_invariant_can_fail() {
    for mutation in Mutation::ALL {
        let noticed = (0..40).map(Seed).find(|seed| {
            let report = run(*seed, mutation).expect("a world can be made");
            report.violations.iter().any(|violation| violation.starts_with(mutation.noticed_as()))
        });
        println!("{mutation:?} was noticed in seed {noticed:?}");
        assert!(noticed.is_some(), "{mutation:?} was never noticed as {:?}", mutation.noticed_as());
    }
}
