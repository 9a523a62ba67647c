//! What a reader sees: stages with what happens in them, a line that moves while something is under way, a table of times.
//!
//! On a terminal the last line is redrawn and each stage stays a moment before the next one begins; elsewhere there are
//! plain lines and no moments. Times are of the work alone.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lifecycle::table::{Paint, Tone};
use tokio::task::JoinHandle;

use crate::cluster::output;

/// How often the moving line moves.
const TICK: Duration = Duration::from_millis(80);
/// How long a reader gets for each line of a stage, and at most for all of them.
const PER_LINE: Duration = Duration::from_millis(110);
const LONGEST: Duration = Duration::from_millis(1200);
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// How fast it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// As a reader on a terminal wants it.
    Reader,
    /// As fast as things happen.
    Machine,
}

/// The whole show; clones tell into the same one.
#[derive(Debug, Clone)]
pub(super) struct Show {
    stage: Arc<Mutex<Stage>>,
    pace: Pace,
    paint: Paint,
}

/// Where the output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Screen {
    Terminal,
    Lines,
}

#[derive(Debug)]
struct Stage {
    screen: Screen,
    done: Vec<(String, Duration)>,
    current: Option<(String, Instant)>,
    frame: usize,
    /// Lines told since it began.
    lines: u32,
}

impl Show {
    pub(super) fn new(pace: Pace) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let screen = if std::io::stdout().is_terminal() && !dumb { Screen::Terminal } else { Screen::Lines };
        let pace = if screen == Screen::Terminal { pace } else { Pace::Machine };
        let stage = Stage { screen, done: Vec::new(), current: None, frame: 0, lines: 0 };
        Self { stage: Arc::new(Mutex::new(stage)), pace, paint: output::paint() }
    }

    /// Keeps the last line moving, until it is dropped.
    pub(super) fn animate(&self) -> Moving {
        let show = self.clone();
        Moving(tokio::spawn(async move {
            let mut ticks = tokio::time::interval(TICK);
            loop {
                ticks.tick().await;
                let mut stage = show.lock();
                if stage.current.is_some() {
                    stage.frame += 1;
                    stage.draw("");
                }
            }
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something between stages.
    pub(super) fn say(&self, text: &str) {
        self.lock().draw(&format!("{text}\n"));
    }

    /// A stage begins: `name` for the table, `heading` for the reader.
    pub(super) fn begin(&self, name: &str, heading: &str) {
        let mut stage = self.lock();
        let number = stage.done.len() + 1;
        let heading = self.paint.text(&format!("{number}. {heading}"), Tone::Heading);
        stage.draw(&format!("\n{heading}\n"));
        stage.current = Some((name.to_owned(), Instant::now()));
        stage.lines = 1;
    }

    /// Something happened in the stage.
    pub(super) fn tell(&self, what: &str) {
        let mut stage = self.lock();
        let since = stage.current.as_ref().map_or(Duration::ZERO, |(_, began)| began.elapsed());
        let time = self.paint.text(&format!("{:>10}", spelled(since)), Tone::Quiet);
        stage.draw(&format!("{time}  {what}\n"));
        stage.lines += 1;
    }

    /// What somebody else says.
    pub(super) fn quote(&self, text: &str) {
        let mut quoted = String::new();
        let mut stage = self.lock();
        for line in text.lines() {
            let line = if line.is_empty() { "    |".to_owned() } else { format!("    | {line}") };
            let _ = writeln!(quoted, "{}", self.paint.text(&line, Tone::Moving));
            stage.lines += 1;
        }
        stage.draw(&quoted);
    }

    /// The stage is done; a reader gets a moment.
    pub(super) async fn done(&self) {
        let lines = {
            let mut stage = self.lock();
            if let Some((name, began)) = stage.current.take() {
                stage.done.push((name, began.elapsed()));
            }
            stage.draw("");
            stage.lines
        };
        if self.pace == Pace::Reader {
            tokio::time::sleep(PER_LINE.saturating_mul(lines).min(LONGEST)).await;
        }
    }

    /// All stages with their times.
    pub(super) fn table(&self) {
        let mut stage = self.lock();
        let widest = stage.done.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::from("\n");
        let mut total = Duration::ZERO;
        for (name, took) in &stage.done {
            total += *took;
            let _ = writeln!(text, "  {name:widest$}  {:>9}", spelled(*took));
        }
        let last = format!("  {:widest$}  {:>9}", "together", spelled(total));
        let _ = writeln!(text, "{}", self.paint.text(&last, Tone::Good));
        stage.draw(&text);
    }
}

impl Stage {
    /// Writes text above the moving line. A reader that went away, such as `head`, is no failure.
    fn draw(&mut self, text: &str) {
        let mut out = std::io::stdout().lock();
        let drawn = match self.screen {
            Screen::Lines => text.to_owned(),
            Screen::Terminal => {
                let moving = self.current.as_ref().map_or_else(String::new, |(name, began)| {
                    format!("  {} {name}, {:.1} s", FRAMES[self.frame % FRAMES.len()], began.elapsed().as_secs_f64())
                });
                format!("\r\u{1b}[2K{text}{moving}")
            }
        };
        let _ = out.write_all(drawn.as_bytes()).and_then(|()| out.flush());
    }
}

/// Ends the moving with it.
#[derive(Debug)]
pub(super) struct Moving(JoinHandle<()>);

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A time with as many digits as a reader wants.
fn spelled(time: Duration) -> String {
    match time {
        short if short < Duration::from_millis(10) => format!("{:.1} ms", short.as_secs_f64() * 1000.0),
        middle if middle < Duration::from_secs(1) => format!("{} ms", middle.as_millis()),
        long => format!("{:.2} s", long.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_digits_that_say_something() {
        let rows = [(1_234, "1.2 ms"), (98_765, "98 ms"), (12_345_678, "12.35 s")];
        for (micros, want) in rows {
            assert_eq!(spelled(Duration::from_micros(micros)), want);
        }
    }
}
