//! The lines that a machine prints about what it did, and what they allow after a power cut.
//!
//! A line is `@N start KEY STATE` before something is asked for, or `@N done KEY STATE` after it was acknowledged. A key is a kind
//! and a name, such as `vol/r3-1` or `obj/r3-2`; its states follow one another. After a cut a key may be in the last state that
//! was acknowledged, or in any state that was begun after it, and in no other. Keys of the kinds in [`COUNTERS`] only count:
//! after a cut they may be ahead of what was acknowledged and never behind.

use std::collections::BTreeMap;

/// Something that does not exist. Every key begins so.
pub(super) const GONE: &str = "gone";
/// Kinds whose states are numbers that only grow: synced records of a volume; its state file; records that were written without
/// an error, in a volume that was then let go of; 1 for a volume that must be marked.
pub(super) const COUNTERS: [&str; 4] = ["rec", "state", "unsynced", "marked"];

/// The states of one key, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyHistory {
    states: Vec<String>,
    acknowledged: usize,
}

impl Default for KeyHistory {
    fn default() -> Self {
        Self { states: vec![GONE.to_owned()], acknowledged: 0 }
    }
}

impl KeyHistory {
    /// The states in which the key may be found after a cut: the acknowledged one first.
    pub(super) fn allowed(&self) -> &[String] {
        self.states.get(self.acknowledged..).unwrap_or_default()
    }

    pub(super) fn allows(&self, state: &str) -> bool {
        self.allowed().iter().any(|allowed| allowed == state)
    }

    /// Must the key be in this state?
    pub(super) fn is_surely(&self, state: &str) -> bool {
        self.allowed().iter().all(|allowed| allowed == state)
    }

    fn start(&mut self, state: &str) {
        if self.states.last().is_none_or(|last| last != state) {
            self.states.push(state.to_owned());
        }
    }

    fn done(&mut self, state: &str) {
        match self.states.iter().rposition(|known| known == state) {
            // A line that was read twice does not take anything back.
            Some(at) => self.acknowledged = self.acknowledged.max(at),
            None => {
                self.states.push(state.to_owned());
                self.acknowledged = self.states.len() - 1;
            }
        }
    }
}

/// All keys of a disk.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    keys: BTreeMap<String, KeyHistory>,
    counters: BTreeMap<String, u64>,
}

/// One line of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Start(&'a str, &'a str),
    Done(&'a str, &'a str),
}

fn parse(line: &str) -> Option<Line<'_>> {
    let mut words = line.strip_prefix('@')?.split(' ');
    words.next()?.parse::<u64>().ok()?;
    let (verb, key, state) = (words.next()?, words.next()?, words.next()?);
    match (verb, words.next()) {
        ("start", None) => Some(Line::Start(key, state)),
        ("done", None) => Some(Line::Done(key, state)),
        _ => None,
    }
}

/// Is this a line of a ledger, and a whole one?
pub(super) fn is_line(line: &str) -> bool {
    parse(line).is_some()
}

fn kind(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

impl Ledger {
    /// `begun` has all lines that were ever printed; of `acknowledged` only those count that say `done`. After a cut both are
    /// the same text. For a disk that is put together from a recording, only what that disk itself has counts as acknowledged.
    pub(super) fn read(begun: &str, acknowledged: &str) -> Self {
        let mut ledger = Self::default();
        let both = begun == acknowledged;
        for line in begun.lines().filter_map(parse) {
            match line {
                Line::Start(key, state) => ledger.keys.entry(key.to_owned()).or_default().start(state),
                Line::Done(key, state) if both => ledger.done(key, state),
                Line::Done(..) => {}
            }
        }
        if !both {
            for line in acknowledged.lines().filter_map(parse) {
                if let Line::Done(key, state) = line {
                    ledger.done(key, state);
                }
            }
        }
        ledger
    }

    fn done(&mut self, key: &str, state: &str) {
        if COUNTERS.contains(&kind(key)) {
            let counter = self.counters.entry(key.to_owned()).or_default();
            *counter = state.parse().unwrap_or(0).max(*counter);
        } else {
            self.keys.entry(key.to_owned()).or_default().done(state);
        }
    }

    pub(super) fn key(&self, key: &str) -> KeyHistory {
        self.keys.get(key).cloned().unwrap_or_default()
    }

    /// The names of this kind, with their histories.
    pub(super) fn of_kind<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = (&'a str, &'a KeyHistory)> {
        let ours = self.keys.iter().filter_map(|(key, history)| Some((key.split_once('/')?, history)));
        ours.filter(move |((kind, _), _)| *kind == wanted).map(|((_, name), history)| (name, history))
    }

    /// The last acknowledged number of a counter.
    pub(super) fn counter(&self, key: &str) -> u64 {
        self.counters.get(key).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> Ledger {
        Ledger::read(text, text)
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_begun_may_be() {
        let ledger = after("@1 start obj/a 1\n@2 done obj/a 1\n@3 start obj/a 2\nnoise\n@4 start obj/b 7\n");
        assert_eq!(ledger.key("obj/a").allowed(), ["1", "2"]);
        assert_eq!(ledger.key("obj/b").allowed(), ["gone", "7"]);
        assert!(ledger.key("obj/c").is_surely(GONE));
        assert!(!ledger.key("obj/a").allows(GONE) && !ledger.key("obj/a").is_surely("1"));
        assert_eq!(ledger.of_kind("obj").map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_deletion_that_was_acknowledged_holds_also_if_the_thing_was_found_again_before() {
        let ledger = after(
            "@1 start v/a x\n@2 start v/a gone\n@3 start v/a x\n@4 done v/a x\n@5 start v/a gone\n@6 done v/a gone\n",
        );
        assert!(ledger.key("v/a").is_surely(GONE));
    }

    #[test]
    fn counters_take_the_highest_acknowledged_number() {
        let ledger = after("@1 done rec/ext4 4\n@2 done rec/ext4 9\n@3 done rec/xfs 2\n@4 done rec/ext4 torn");
        assert_eq!((ledger.counter("rec/ext4"), ledger.counter("rec/xfs"), ledger.counter("rec/none")), (9, 2, 0));
    }

    #[test]
    fn of_a_recorded_disk_only_its_own_lines_count_as_acknowledged() {
        let begun = "@1 start obj/a 1\n@2 done obj/a 1\n@3 start obj/a 2\n@4 done obj/a 2\n";
        let ledger = Ledger::read(begun, "@1 start obj/a 1\n@2 done obj/a 1\n");
        assert_eq!(ledger.key("obj/a").allowed(), ["1", "2"]);
        let ledger = Ledger::read(begun, "");
        assert_eq!(ledger.key("obj/a").allowed(), ["gone", "1", "2"]);
    }

    #[test]
    fn torn_and_foreign_lines_are_no_lines() {
        for line in ["@1 start obj/a", "@x done a b", "1 done a b", "@1 done a b c", "@1 begin a b", ""] {
            assert!(!is_line(line), "{line}");
        }
        assert!(is_line("@12 done rec/ext4 5"));
    }
}
