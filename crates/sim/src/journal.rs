//! What happened, line by line, so that two runs can be laid beside each other.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// Everything that was decided or seen in a world, with the virtual time. Clones write the same journal.
#[derive(Debug, Clone)]
pub struct Journal {
    since: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Journal {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), lines: Arc::default() }
    }

    /// One line: `00:01:02.003 provisioner #17 PUT ...`.
    pub fn note(&self, who: &str, what: impl fmt::Display) {
        let passed = self.since.elapsed();
        let (seconds, millis) = (passed.as_secs(), passed.subsec_millis());
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let line = format!("{hours:02}:{minutes:02}:{seconds:02}.{millis:03} {who} {what}");
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where two runs part: the number of the first line that differs, and both sides of it. None if they are equal.
    pub fn first_difference(left: &[String], right: &[String]) -> Option<(usize, String, String)> {
        let line = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_else(|| "(ended)".to_owned());
        let length = left.len().max(right.len());
        let at = (0..length).find(|at| left.get(*at) != right.get(*at))?;
        Some((at + 1, line(left, at), line(right, at)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_carry_the_virtual_time() {
        let journal = Journal::start();
        tokio::time::sleep(Duration::from_millis(3_723_004)).await;
        journal.note("me", format_args!("did {}", 1));
        assert_eq!(journal.lines(), ["01:02:03.004 me did 1"]);
    }

    #[test]
    fn the_first_difference_is_found_also_at_an_end() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(Journal::first_difference(&lines("a b"), &lines("a b")), None);
        assert_eq!(Journal::first_difference(&lines("a b"), &lines("a c")), Some((2, "b".into(), "c".into())));
        assert_eq!(Journal::first_difference(&lines("a"), &lines("a c")), Some((2, "(ended)".into(), "c".into())));
    }
}
