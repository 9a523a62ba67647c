//! Running cases: what a case must not do, and which cases are worth changing further.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use crate::case::Case;
use crate::generate::{self, Target};
use crate::meter::{Allowed, Used, measure};
use crate::random::Random;
use crate::{http, store};

/// Cases worth changing that are kept; beyond this one makes room for another.
const KNOWN: usize = 4_000;
/// What a case may leave behind each time it is repeated: noise of caches, not growth.
const LEFT: usize = 64 << 10;

/// What a case must not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Panic {
        message: String,
    },
    /// An answer of 500: the server failed, and not the request.
    Failed {
        answer: String,
    },
    Memory {
        peak: usize,
        allowed: usize,
    },
    Time {
        took: Duration,
        allowed: Duration,
    },
    /// Bytes that stay each time the case is repeated.
    Growth {
        left: usize,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic { message } => write!(f, "panic: {message}"),
            Self::Failed { answer } => write!(f, "the server failed: {answer}"),
            Self::Memory { peak, allowed } => write!(f, "{peak} bytes at its peak, {allowed} allowed"),
            Self::Time { took, allowed } => write!(f, "{took:?} of processor time, {allowed:?} allowed"),
            Self::Growth { left } => write!(f, "each repetition leaves {left} bytes behind"),
        }
    }
}

/// How a case went.
#[derive(Debug)]
pub struct Outcome {
    pub used: Used,
    /// Tells kinds of answers apart.
    pub signatures: Vec<u64>,
    pub finding: Option<Finding>,
    /// What was answered, for people.
    pub said: Vec<String>,
}

/// Where a panic anywhere in the process leaves its message.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn watch_for_panics() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let mut message = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
            message.get_or_insert_with(|| panic.to_string().chars().take(600).collect());
        }));
    });
}

/// The message of the first panic since this was asked last.
pub fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Runs a case and judges it.
pub fn judge(case: &Case) -> Outcome {
    watch_for_panics();
    take_panic();
    let (answered, used) = measure(|| catch_unwind(AssertUnwindSafe(|| answers(case))));
    let (said, failure) = answered.unwrap_or_default();
    let allowed = Allowed::for_input(case.size());
    let finding = take_panic()
        .map(|message| Finding::Panic { message })
        .or(failure.map(|answer| Finding::Failed { answer }))
        .or((used.peak > allowed.peak).then_some(Finding::Memory { peak: used.peak, allowed: allowed.peak }))
        .or(used.time.filter(|took| *took > allowed.time).map(|took| Finding::Time { took, allowed: allowed.time }));
    let finding = finding.or_else(|| (used.left > LEFT).then(|| growth(case)).flatten());
    Outcome { used, signatures: said.iter().map(|text| hash(text)).collect(), finding, said }
}

/// A first time may fill a cache; what grows again and again is lost.
fn growth(case: &Case) -> Option<Finding> {
    let left = (0..3).map(|_| measure(|| drop(catch_unwind(AssertUnwindSafe(|| answers(case))))).1.left).min()?;
    take_panic();
    (left > LEFT).then_some(Finding::Growth { left })
}

/// What was answered, and the answer that says that the server failed.
fn answers(case: &Case) -> (Vec<String>, Option<String>) {
    match case {
        Case::Http(steps) => {
            let answers = http::run(steps);
            let failure = answers.iter().find(|answer| answer.failed).map(|answer| answer.gist.clone());
            let said = steps
                .iter()
                .zip(answers)
                .map(|(step, answer)| format!("{} {} {}", step.method, answer.code, answer.gist));
            (said.collect(), failure)
        }
        Case::Store(edits) => match store::run(edits) {
            Ok(reception) => (vec![reception.said.join(", ")], None),
            Err(error) => (vec![format!("the files could not be prepared: {error}")], None),
        },
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A run over one target.
#[derive(Debug)]
pub struct Run {
    target: Target,
    seed: u64,
    number: u64,
    known: Vec<Case>,
    seen: BTreeSet<u64>,
}

impl Run {
    pub fn new(target: Target, seed: u64) -> Self {
        Self { target, seed, number: 0, known: Vec::new(), seen: BTreeSet::new() }
    }

    /// The next case. It follows from the seed and from what earlier cases showed.
    pub fn next_case(&mut self) -> Case {
        self.number += 1;
        let mut random = Random::of_case(self.seed, self.number);
        generate::case(self.target, &mut random, &self.known)
    }

    /// Remembers a case whose answers are new.
    pub fn learn(&mut self, case: &Case, outcome: &Outcome) {
        let new = outcome.signatures.iter().filter(|signature| self.seen.insert(**signature)).count();
        if new == 0 {
            return;
        }
        if self.known.len() < KNOWN {
            self.known.push(case.clone());
        } else {
            let at = Random::of_case(self.seed, !self.number).below(KNOWN);
            self.known[at] = case.clone();
        }
    }

    /// Cases made, and different answers seen.
    pub fn progress(&self) -> (u64, usize) {
        (self.number, self.seen.len())
    }
}

/// The case with everything left out that the finding does not need.
pub fn smaller(case: &Case, finding: &Finding) -> Case {
    let same = |candidate: &Case| {
        let found = judge(candidate).finding;
        found.is_some_and(|found| std::mem::discriminant(&found) == std::mem::discriminant(finding))
    };
    let mut case = case.clone();
    loop {
        let count = match &case {
            Case::Http(steps) => steps.len(),
            Case::Store(edits) => edits.len(),
        };
        let without = |at: usize| match case.clone() {
            Case::Http(mut steps) => {
                steps.remove(at);
                Case::Http(steps)
            }
            Case::Store(mut edits) => {
                edits.remove(at);
                Case::Store(edits)
            }
        };
        match (0..count).map(without).find(|candidate| same(candidate)) {
            Some(smaller) => case = smaller,
            None => return case,
        }
    }
}
