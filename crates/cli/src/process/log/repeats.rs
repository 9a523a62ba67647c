//! The same line again and again says nothing new: it is written once, counted for a while, and then told with the count.
//!
//! A complaint is written once a minute. What has happened is news also when it happens again, such as a driver that comes and
//! goes: that is written a few times first.
//!
//! A line is the same if it says the same about the same things; another text, another volume or another error is another
//! line and is never held back. The table is bounded: when it is full, the oldest entry is told and forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tracing::Level;

use super::line::Line;

/// How long the same line is held back after it was written.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// How often the same information is written within that time. Warnings and errors are written once.
const NEWS: u64 = 4;
/// How many different lines are remembered.
const MOST: usize = 512;

/// What to do with a line.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// Write it.
    Write(Line),
    /// It was written a moment ago, and is counted.
    Counted,
}

/// What was written within the last minute.
#[derive(Debug)]
pub(super) struct Repeats {
    most: usize,
    seen: BTreeMap<String, Seen>,
    /// The same keys, in the order in which their windows end.
    order: VecDeque<(Instant, String)>,
}

#[derive(Debug)]
struct Seen {
    since: Instant,
    /// How often it was written since then.
    written: u64,
    /// The last one that was held back, to tell with the count.
    held: Option<Line>,
    times: u64,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { most: MOST, seen: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl Repeats {
    /// Takes a line at the moment `now`.
    pub(super) fn take(&mut self, mut line: Line, now: Instant) -> Answer {
        let key = line.sameness();
        if let Some(seen) = self.seen.get_mut(&key) {
            if now.saturating_duration_since(seen.since) < WINDOW {
                if seen.written < most_written(line.level) {
                    seen.written += 1;
                    return Answer::Write(line);
                }
                seen.times += 1;
                seen.held = Some(line);
                return Answer::Counted;
            }
            line.repeated = seen.times;
            self.order.retain(|(_, held)| *held != key);
        }
        self.seen.insert(key.clone(), Seen { since: now, written: 1, held: None, times: 0 });
        self.order.push_back((now, key));
        Answer::Write(line)
    }

    /// What there is to tell of lines whose time is over, or for which there is no room.
    pub(super) fn over(&mut self, now: Instant) -> Vec<Line> {
        let mut told = Vec::new();
        while let Some((since, _)) = self.order.front()
            && (now.saturating_duration_since(*since) >= WINDOW || self.order.len() > self.most)
            && let Some((_, key)) = self.order.pop_front()
        {
            let Some(seen) = self.seen.remove(&key) else { continue };
            told.extend(seen.held.map(|line| Line { repeated: seen.times, ..line }));
        }
        told
    }
}

fn most_written(level: Level) -> u64 {
    match level {
        Level::ERROR | Level::WARN => 1,
        _ => NEWS,
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{Fields, Value};
    use super::*;

    fn line(message: &str, volume: &str, operation: &str) -> Line {
        let mut fields = Fields::default();
        fields.set("volume", Value::Shown(volume.to_owned()));
        fields.set("operation", Value::Shown(operation.to_owned()));
        Line { level: Level::WARN, target: "t", message: message.to_owned(), fields, repeated: 0 }
    }

    fn written(answer: &Answer) -> Option<u64> {
        match answer {
            Answer::Write(line) => Some(line.repeated),
            Answer::Counted => None,
        }
    }

    #[test]
    fn the_same_line_is_written_once_a_minute_with_its_count() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        assert_eq!(written(&repeats.take(line("failed", "v", "stage-1"), start)), Some(0));
        for second in 1..=41 {
            let now = start + Duration::from_secs(second);
            assert_eq!(repeats.take(line("failed", "v", &format!("stage-{second}")), now), Answer::Counted);
        }
        let later = start + WINDOW;
        assert_eq!(written(&repeats.take(line("failed", "v", "stage-99"), later)), Some(41));
        assert_eq!(repeats.over(later), [], "it was told with the line");
        assert_eq!(repeats.take(line("failed", "v", "stage-100"), later), Answer::Counted, "a new minute begins");
    }

    #[test]
    fn news_is_told_a_few_times_before_it_is_counted() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let news = || Line { level: Level::INFO, ..line("the driver is ready", "v", "") };
        let written: Vec<Option<u64>> = (0..6).map(|_| written(&repeats.take(news(), now))).collect();
        assert_eq!(written, [Some(0), Some(0), Some(0), Some(0), None, None]);
        assert_eq!(repeats.over(now + WINDOW), [Line { repeated: 2, ..news() }]);
    }

    #[test]
    fn other_text_and_other_things_are_never_held_back() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for (message, volume) in [("no space", "v"), ("I/O error", "v"), ("no space", "w")] {
            assert_eq!(written(&repeats.take(line(message, volume, "stage-1"), now)), Some(0), "{message} {volume}");
        }
    }

    #[test]
    fn what_does_not_come_again_is_told_when_its_minute_is_over() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        repeats.take(line("failed", "v", "stage-1"), start);
        repeats.take(line("failed", "v", "stage-2"), start);
        repeats.take(line("once", "v", "stage-3"), start);
        assert_eq!(repeats.over(start), []);
        let told = repeats.over(start + WINDOW);
        assert_eq!(told, [Line { repeated: 1, ..line("failed", "v", "stage-2") }], "and nothing of what came once");
    }

    #[test]
    fn the_table_is_bounded_and_what_leaves_it_is_told() {
        let (mut repeats, now) = (Repeats { most: 2, ..Repeats::default() }, Instant::now());
        repeats.take(line("a", "v", ""), now);
        repeats.take(line("a", "v", ""), now);
        for message in ["b", "c", "d"] {
            repeats.take(line(message, "v", ""), now);
        }
        assert_eq!(repeats.over(now), [Line { repeated: 1, ..line("a", "v", "") }]);
        assert_eq!((repeats.seen.len(), repeats.order.len()), (2, 2));
    }
}
