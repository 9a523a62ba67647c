//! From randomness to cases: by grammar, by changing a case that was interesting, or by a bomb of a known shape.

mod bodies;
mod bombs;
mod credentials;
mod files;
mod mutate;
mod requests;
mod texts;
mod values;

use crate::case::Case;
use crate::random::Random;

/// What is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Target {
    /// The HTTP surface: paths, queries, headers, bodies, patches.
    Http,
    /// Tokens, certificates, impersonation.
    Credentials,
    /// The files of the store, and what its rows hold.
    Store,
}

impl Target {
    pub const ALL: [Self; 3] = [Self::Http, Self::Credentials, Self::Store];
}

/// A case of this target. `known` are cases that were interesting so far.
pub fn case(target: Target, random: &mut Random, known: &[Case]) -> Case {
    if !known.is_empty() && random.percent(45) {
        let mut case = random.pick(known).clone();
        mutate::case(random, &mut case, known);
        return case;
    }
    match target {
        Target::Http if random.percent(3) => Case::Http(bombs::steps(random)),
        Target::Http => Case::Http(requests::steps(random)),
        Target::Credentials => Case::Http(credentials::steps(random)),
        Target::Store => Case::Store(files::edits(random)),
    }
}
