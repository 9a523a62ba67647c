//! Takes events and spans, and writes lines.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use runtime::work;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;
use super::line::{Fields, Line, Said, Value};
use super::repeats::{Answer, Repeats};

/// The field that tells the attempts to do something apart.
pub(super) const OPERATION: &str = "operation";

/// Writes what happens, one line each.
pub(super) struct Lines<W> {
    format: LogFormat,
    now: fn() -> Instant,
    /// Numbers operations.
    next: AtomicU64,
    written: Mutex<Written<W>>,
}

struct Written<W> {
    repeats: Repeats,
    out: W,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(format: LogFormat, out: W, now: fn() -> Instant) -> Self {
        let written = Mutex::new(Written { repeats: Repeats::default(), out });
        Self { format, now, next: AtomicU64::new(1), written }
    }

    /// The fields of a span. One of ours gets its number.
    fn fields_of(&self, attributes: &Attributes<'_>) -> Fields {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if attributes.metadata().name() == work::SPAN
            && let Some(Value::Text(kind) | Value::Shown(kind)) = fields.take(work::KIND)
        {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            fields.set(OPERATION, Value::Shown(format!("{kind}-{number}")));
        }
        fields
    }

    fn write(&self, line: Line) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        // Who asks for the details wants all of them.
        let answer = match line.level <= Level::INFO {
            true => written.repeats.take(line, (self.now)()),
            false => Answer::Write(line),
        };
        let mut lines = written.repeats.over((self.now)());
        if let Answer::Write(line) = answer {
            lines.push(line);
        }
        for line in lines {
            // A log that cannot be written has nobody to tell it to.
            let _ = written.out.write_all(line.render(self.format, &time()).as_bytes());
        }
    }
}

/// The time of day.
fn time() -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + Send + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(self.fields_of(attributes));
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            record.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        let Said { message, mut fields } = said;
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.inherit(outer);
            }
        }
        let metadata = event.metadata();
        self.write(Line { level: *metadata.level(), target: metadata.target(), message, fields, repeated: 0 });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Key;
    use tracing_subscriber::prelude::*;

    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Paper {
        fn lines(&self) -> Vec<serde_json::Value> {
            let text = String::from_utf8(self.0.lock().expect("no test panics with it").clone()).expect("it is text");
            text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no test panics with it").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(work: impl FnOnce()) -> Vec<serde_json::Value> {
        let paper = Paper::default();
        let lines = Lines::new(LogFormat::Json, paper.clone(), Instant::now);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), work);
        paper.lines()
    }

    #[test]
    fn a_line_carries_claim_volume_and_operation_of_its_work() {
        let lines = logged(|| {
            let claim = Key::namespaced("default", "data");
            work::on_claim("bind", &claim).in_scope(|| {
                tracing::info!("looked");
                work::is_about_volume("pvc-1");
                tracing::info!(took = ?std::time::Duration::from_millis(2), "bound");
            });
            work::on_volume("stage", "pvc-1", Some(&claim)).in_scope(|| tracing::warn!(code = 5, "failed"));
            tracing::info!("nobody's");
        });
        let of = |at: usize, name: &str| lines[at][name].as_str().map(str::to_owned);
        assert_eq!((of(0, "claim"), of(0, "volume")), (Some("default/data".into()), None));
        assert_eq!((of(0, "operation"), of(1, "operation")), (Some("bind-1".into()), Some("bind-1".into())));
        assert_eq!((of(1, "volume"), of(1, "took")), (Some("pvc-1".into()), Some("2ms".into())));
        assert_eq!((of(2, "operation"), of(2, "claim")), (Some("stage-2".into()), Some("default/data".into())));
        assert_eq!(lines[2]["code"], 5);
        assert_eq!(lines[3].get("operation"), None);
        assert!(lines.iter().all(|line| line.get(work::KIND).is_none()), "{lines:?}");
    }

    #[test]
    fn the_inner_of_two_fields_counts_and_a_second_message_follows_the_first() {
        let lines = logged(|| {
            let outer = tracing::error_span!("outer", volume = "a", node = "n");
            outer.in_scope(|| {
                tracing::error_span!("inner", volume = "b").in_scope(|| {
                    let message = "no space";
                    tracing::info!(message, "failed");
                });
            });
        });
        assert_eq!((&lines[0]["volume"], &lines[0]["node"]), (&"b".into(), &"n".into()));
        assert_eq!(lines[0]["message"], "failed: no space");
    }

    #[test]
    fn repeats_are_held_back_but_not_details() {
        let lines = logged(|| {
            for _ in 0..5 {
                tracing::warn!("again");
                tracing::debug!("detail");
            }
        });
        let count = |message: &str| lines.iter().filter(|line| line["message"] == message).count();
        assert_eq!((count("again"), count("detail")), (1, 5));
    }
}
