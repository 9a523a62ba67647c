//! Writes the API server has answered, from its metrics: what others wrote for each claim.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::sleep;

/// The counter that kube-apiserver and `orlop api` both have.
const COUNTER: &str = "apiserver_request_total{";
/// Verbs of the counter that write.
const WRITING: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
/// How often the counter is read until it stands still, and how long between.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// Successful and refused writes by what was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Writes {
    /// Such as `PATCH persistentvolumes/status`. Leases and events are left out.
    pub(super) done: BTreeMap<String, u64>,
    /// Writes that were answered with an error, conflicts above all.
    pub(super) refused: u64,
    pub(super) events: u64,
}

/// What the bench itself wrote, such as `POST pods`, and how often.
pub(super) type Own<'a> = &'a [(&'a str, usize)];

impl Writes {
    fn parse(text: &str) -> Self {
        let mut writes = Self::default();
        for line in text.lines() {
            let Some((labels, value)) = line.strip_prefix(COUNTER).and_then(|rest| rest.rsplit_once("} ")) else {
                continue;
            };
            let (label, count) = (|name: &str| label(labels, name), count(value));
            let (verb, resource) = (label("verb"), label("resource"));
            if !WRITING.contains(&verb) || resource == "leases" || resource.is_empty() {
                continue;
            }
            if !label("code").starts_with('2') {
                writes.refused += count;
            } else if resource == "events" {
                writes.events += count;
            } else {
                let part = Some(label("subresource")).filter(|part| !part.is_empty());
                let what = part.map_or(format!("{verb} {resource}"), |part| format!("{verb} {resource}/{part}"));
                *writes.done.entry(what).or_default() += count;
            }
        }
        writes
    }

    /// What came on top of `before`.
    fn since(mut self, before: &Self) -> Self {
        for (what, count) in &mut self.done {
            *count = count.saturating_sub(before.done.get(what).copied().unwrap_or(0));
        }
        self.done.retain(|_, count| *count > 0);
        self.refused = self.refused.saturating_sub(before.refused);
        self.events = self.events.saturating_sub(before.events);
        self
    }

    /// Less what the bench wrote.
    fn without(mut self, own: Own<'_>) -> Self {
        for (what, made) in own {
            if let Some(count) = self.done.get_mut(*what) {
                *count = count.saturating_sub(u64::try_from(*made).unwrap_or(u64::MAX));
            }
        }
        self.done.retain(|_, count| *count > 0);
        self
    }

    fn total(&self) -> u64 {
        self.done.values().sum()
    }
}

/// The value of one label; none of those that matter holds a quote.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let found =
        labels.split("\",").find_map(|pair| pair.trim_end_matches('"').split_once("=\"").filter(|p| p.0 == name));
    found.map_or("", |(_, value)| value)
}

/// A count as it is printed, which for large ones may be `1.2e+06`.
fn count(value: &str) -> u64 {
    let value: f64 = value.trim().parse().unwrap_or(0.0);
    // Counts below 2^53 are exact.
    if value >= 0.0 { value as u64 } else { 0 }
}

/// Says how many writes came for each of `per`, a word and how many there were.
pub(super) fn print(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    (each, count): (&str, usize),
    writes: Option<&Writes>,
) -> fmt::Result {
    let Some(writes) = writes else {
        return writeln!(f, "\nwrites {what}: not known, the server does not show its metrics");
    };
    let share = |number: u64| float(number) / float(u64::try_from(count).unwrap_or(u64::MAX)).max(1.0);
    let (total, events, refused) = (share(writes.total()), share(writes.events), share(writes.refused));
    writeln!(f, "\nwrites {what}, per {each}: {total:.2}, and {events:.2} events; {refused:.2} were refused")?;
    for (what, count) in &writes.done {
        writeln!(f, "  {:>6.2}  {what}", share(*count))?;
    }
    Ok(())
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Reads the server's counter.
pub(super) struct Census {
    client: kube::Client,
}

impl fmt::Debug for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Census").finish_non_exhaustive()
    }
}

impl Census {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// `None` if the server has no such counter or does not show it to us.
    pub(super) async fn take(&self) -> Option<Writes> {
        let request = http::Request::get("/metrics").body(Vec::new()).ok()?;
        let text = self.client.request_text(request).await.ok()?;
        text.contains(COUNTER).then(|| Writes::parse(&text))
    }

    /// What others wrote since `before`, once nobody writes any more.
    pub(super) async fn since(&self, before: Option<Writes>, own: Own<'_>) -> Option<Writes> {
        let after = self.settled().await?;
        Some(after.since(&before?).without(own))
    }

    /// The counter once nobody writes any more, or does not stop writing.
    async fn settled(&self) -> Option<Writes> {
        let mut seen = self.take().await?;
        for _ in 0..LOOKS {
            sleep(PAUSE).await;
            let now = self.take().await?;
            if now == seen {
                break;
            }
            seen = now;
        }
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="persistentvolumes",scope="resource",subresource="",verb="POST",version="v1"} 12
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="persistentvolumes",scope="resource",subresource="status",verb="PATCH",version="v1"} 1.2e+01
apiserver_request_total{verb="PATCH",group="",version="v1",resource="persistentvolumes",subresource="status",scope="resource",component="",code="409"} 3
apiserver_request_total{code="200",resource="persistentvolumes",subresource="",verb="GET"} 99
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 7
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 5
"#;

    #[test]
    fn writes_are_counted_by_what_was_asked_and_reads_are_not() {
        let writes = Writes::parse(TEXT);
        let done = [("PATCH persistentvolumes/status", 12), ("POST persistentvolumes", 12)];
        assert_eq!(writes.done, done.map(|(what, count)| (what.to_owned(), count)).into());
        assert_eq!((writes.refused, writes.events, writes.total()), (3, 5, 24));
    }

    #[test]
    fn what_was_there_before_and_what_the_bench_wrote_do_not_count() {
        let before = Writes { events: 5, ..Writes::default() };
        let own = [("POST persistentvolumeclaims", 12), ("POST persistentvolumes", 12)];
        let writes = Writes::parse(TEXT).since(&before).without(&own);
        assert_eq!(writes.done, [("PATCH persistentvolumes/status".to_owned(), 12)].into());
        assert_eq!(writes.events, 0);
    }
}
