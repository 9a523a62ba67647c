//! `cargo xtask bench abuse`: `orlop up` while clients do their worst, all at once: thousands of connections that send nothing,
//! writers of the costliest requests that are accepted, and watches that are told 410 and come again at once. Printed is
//! whether health is answered in time, whether leases are renewed, and whether memory stays where it was.
//!
//! The idle connections are tried all at once and from several addresses. The server has fewer seats than that and closes the
//! others, which is the point: it has to stay available meanwhile.
//!
//! Everything happens on loopback, against a server that this bench starts and ends.

mod idle;
mod worst;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use self::idle::IdleCounts;
use self::worst::{prepare, worst_requests};
use super::comparison::{Comparison, Row};
use super::machine;
use super::memory::{rss, settled_rss};
use super::numbers::{Goal, Series, Unit, milliseconds};
use crate::conformance::{Profile, build};
use crate::disk::Scratch;
use crate::kubernetes::{Client, Credential, Embedded, Endpoint, Question, Up};

/// What `cargo xtask bench abuse` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this program instead of building it.
    #[arg(long, value_name = "PROGRAM")]
    orlop: Option<PathBuf>,
    /// Connections that send nothing.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// Clients that send the costliest requests.
    #[arg(long, value_name = "N", default_value_t = 64)]
    writers: usize,
    /// Clients whose watches are told 410.
    #[arg(long, value_name = "N", default_value_t = 32)]
    watchers: usize,
    /// How long all of them go on.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Fail when a goal is missed.
    #[arg(long)]
    enforce: bool,
}

/// File descriptors that this process needs besides the idle connections.
const OTHER_FILES: u64 = 1_000;
const BETWEEN_HEALTH: Duration = Duration::from_millis(50);
const BETWEEN_MEMORY: Duration = Duration::from_secs(1);
/// From here on memory may not grow: whatever is abused has been reached.
const WARM: Duration = Duration::from_secs(10);
/// What the server may take at its peak, and grow after [`WARM`], in megabytes.
const MEMORY_PEAK: f64 = 512.0;
const MEMORY_GROWTH: f64 = 64.0;
/// A lease that is not renewed for this long is lost.
const LEASE_SECONDS: f64 = 40_000.0;

/// What was measured. `None`: not measured.
#[derive(Debug, Default)]
struct Numbers {
    health: Series,
    greeting: Series,
    unanswered: usize,
    memory_before: Option<f64>,
    memory_after: Option<f64>,
    memory: MemoryTimes,
    /// The longest time between two renewals that were seen, of any lease.
    lease_gap: Option<f64>,
    leases: usize,
    written: usize,
    gone: usize,
    tried: usize,
    opened: usize,
    most_open: usize,
}

/// Memory in megabytes, and when it was looked at.
#[derive(Debug, Default)]
struct MemoryTimes(Vec<(Duration, f64)>);

impl MemoryTimes {
    fn peak(&self) -> Option<f64> {
        self.0.iter().map(|(_, megabytes)| *megabytes).reduce(f64::max)
    }

    /// How much larger it was at any time after [`WARM`] than then.
    fn growth(&self) -> Option<f64> {
        let mut warm = self.0.iter().skip_while(|(at, _)| *at < WARM).map(|(_, megabytes)| *megabytes);
        let first = warm.next()?;
        Some(warm.fold(first, f64::max) - first)
    }
}

const fn row(what: &'static str, unit: Unit, goal: Goal, value: fn(&Numbers) -> Option<f64>) -> Row<Numbers> {
    Row { what, unit, goal, value }
}

fn number(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

const ROWS: [Row<Numbers>; 17] = [
    row("health under abuse (median)", Unit::Milliseconds, Goal::Open, |all| all.health.median().map(milliseconds)),
    row("the same, p99", Unit::Milliseconds, Goal::AtMost(100.0), |all| all.health.percentile(99).map(milliseconds)),
    row("the same, longest", Unit::Milliseconds, Goal::Open, |all| all.health.percentile(100).map(milliseconds)),
    row("health over a new connection (median)", Unit::Milliseconds, Goal::Open, |all| {
        all.greeting.median().map(milliseconds)
    }),
    row("the same, p99", Unit::Milliseconds, Goal::Open, |all| all.greeting.percentile(99).map(milliseconds)),
    row("health not answered", Unit::Each, Goal::AtMost(0.0), |all| number(all.unanswered)),
    row("leases seen", Unit::Each, Goal::AtLeast(1.0), |all| number(all.leases)),
    row("longest time without a renewal", Unit::Milliseconds, Goal::AtMost(LEASE_SECONDS), |all| all.lease_gap),
    row("memory (RSS) before", Unit::Megabytes, Goal::Open, |all| all.memory_before),
    row("the same, peak", Unit::Megabytes, Goal::AtMost(MEMORY_PEAK), |all| all.memory.peak()),
    row("the same, growth after second 10", Unit::Megabytes, Goal::AtMost(MEMORY_GROWTH), |all| all.memory.growth()),
    row("the same, after", Unit::Megabytes, Goal::Open, |all| all.memory_after),
    row("costly requests answered", Unit::Each, Goal::AtLeast(1.0), |all| number(all.written)),
    row("watches told 410", Unit::Each, Goal::AtLeast(1.0), |all| number(all.gone)),
    row("idle connections tried", Unit::Each, Goal::AtLeast(1.0), |all| number(all.tried)),
    row("idle connections opened", Unit::Each, Goal::AtLeast(1.0), |all| number(all.opened)),
    row("the same, most at one time", Unit::Each, Goal::AtLeast(1.0), |all| number(all.most_open)),
];

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let orlop = match &args.orlop {
        Some(program) => program.clone(),
        None => build(Profile::Dist).await?,
    };
    let connections = allow_files(args.connections)?;
    let folder = Scratch::make_in(&crate::target().join("bench"))?;
    let data = with_cut_history(&orlop, folder.path()).await?;
    let (stack, _) = Up::start(Up::command(&orlop, &data), &data).await?;
    prepare(&Client::new(stack.endpoint())?).await?;
    let mut numbers = Numbers { memory_before: Some(settled_rss(stack.pid()?).await?), ..Numbers::default() };
    let bench = Bench {
        endpoint: stack.endpoint().clone(),
        pid: stack.pid()?,
        until: Instant::now() + Duration::from_secs(args.seconds),
        idle: IdleCounts::default(),
        written: AtomicUsize::new(0),
        gone: AtomicUsize::new(0),
    };
    println!(
        "{connections} idle connections, {} writers, {} watchers, {} s",
        args.writers, args.watchers, args.seconds
    );
    let codes = bench.abuse(connections, &args, &mut numbers).await?;
    println!("answers to the writers by code: {codes:?}");
    numbers.memory_after = Some(settled_rss(stack.pid()?).await?);
    stack.stop().await?;
    let comparison = Comparison { rows: &ROWS, ours: &numbers, theirs: None, peer: "no peer is measured" };
    comparison.close(&machine::describe(&orlop, &[]), args.enforce)
}

/// As many idle connections as this process may hold, at most those wanted.
fn allow_files(wanted: usize) -> anyhow::Result<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raising the limit of open files")?;
    let room = usize::try_from(most.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    if room < wanted {
        println!("only {most} files may be open: {room} connections instead of {wanted}");
    }
    Ok(wanted.min(room))
}

/// Data whose history begins late, so that a watch from revision 1 is told 410: that of a restored backup. It has no lease:
/// for one of another holder the agent waits until it is over, and that would be measured.
async fn with_cut_history(orlop: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let (first, saved, data) = (folder.join("api"), folder.join("saved"), folder.join("data"));
    Embedded::start(orlop, folder).await?.stop().await?;
    for (command, from, to) in
        [("backup", ("--data", &first), ("--to", &saved)), ("restore", ("--from", &saved), ("--data", &data))]
    {
        let status = Command::new(orlop).arg(command).arg(from.0).arg(from.1).arg(to.0).arg(to.1).status().await?;
        ensure!(status.success(), "orlop {command}: {status}");
    }
    Ok(data)
}

struct Bench {
    endpoint: Endpoint,
    pid: u32,
    until: Instant,
    idle: IdleCounts,
    written: AtomicUsize,
    gone: AtomicUsize,
}

impl Bench {
    async fn abuse(
        &self,
        connections: usize,
        args: &Args,
        numbers: &mut Numbers,
    ) -> anyhow::Result<BTreeMap<u16, usize>> {
        let address: SocketAddr = self.endpoint.address.trim_start_matches("https://").parse()?;
        let bodies = worst_requests();
        let writers = futures_util::future::join_all((0..args.writers).map(|writer| self.write(writer, &bodies)));
        let watchers = futures_util::future::join_all((0..args.watchers).map(|_| self.watch()));
        let mut leases = LeaseTimes::default();
        let (codes, _, (), memory, health, greeting, followed) = tokio::join!(
            writers,
            watchers,
            idle::hold(address, connections, self.until, &self.idle),
            self.memory(),
            self.health(),
            self.greet(),
            self.follow_leases(&mut leases),
        );
        followed?;
        numbers.memory = memory?;
        let (health, lost) = health?;
        let (greeting, refused) = greeting?;
        (numbers.health, numbers.greeting, numbers.unanswered) = (health, greeting, lost + refused);
        (numbers.leases, numbers.lease_gap) = (leases.renewals.len(), leases.longest(Instant::now()).map(milliseconds));
        numbers.written = self.written.load(Ordering::Relaxed);
        numbers.gone = self.gone.load(Ordering::Relaxed);
        (numbers.tried, numbers.opened) = (self.idle.tried(), self.idle.opened());
        numbers.most_open = self.idle.most_open();
        let mut all = BTreeMap::new();
        for (code, count) in codes.into_iter().flatten() {
            *all.entry(code).or_default() += count;
        }
        Ok(all)
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// Sends the costliest requests one after the other. Gives the codes of the answers; a connection that was closed is 0.
    async fn write(&self, writer: usize, requests: &[Question]) -> BTreeMap<u16, usize> {
        let mut codes = BTreeMap::new();
        let Ok(client) = Client::new(&self.endpoint) else { return codes };
        let mut turn = writer;
        while self.goes_on() {
            let request = &requests[turn % requests.len()];
            turn += 1;
            let code = match client.ask(request).await {
                Ok(answer) => {
                    self.written.fetch_add(1, Ordering::Relaxed);
                    answer.status
                }
                Err(_) => 0,
            };
            *codes.entry(code).or_default() += 1;
            if code == 429 || code == 0 {
                sleep(Duration::from_millis(100)).await;
            }
        }
        codes
    }

    async fn memory(&self) -> anyhow::Result<MemoryTimes> {
        let (started, mut times) = (Instant::now(), MemoryTimes::default());
        while self.goes_on() {
            times.0.push((started.elapsed(), rss(self.pid)?));
            sleep(BETWEEN_MEMORY).await;
        }
        Ok(times)
    }

    /// Watches from a revision that is too old, again and again.
    async fn watch(&self) {
        let Ok(client) = Client::new(&self.endpoint) else { return };
        let question = Question::get("/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=5");
        while self.goes_on() {
            match client.ask(&question).await {
                Ok(answer) if answer.status == 410 || String::from_utf8_lossy(&answer.body).contains("410") => {
                    self.gone.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) | Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Asks for health over a connection that stays. Gives the times, and how often there was no good answer.
    async fn health(&self) -> anyhow::Result<(Series, usize)> {
        let client = Client::new(&self.endpoint)?;
        let (mut times, mut lost) = (Series::default(), 0);
        while self.goes_on() {
            let started = Instant::now();
            match timeout(Duration::from_secs(10), client.ask(&Question::get("/livez"))).await {
                Ok(Ok(answer)) if answer.status == 200 => times.push(started.elapsed()),
                Ok(_) | Err(_) => lost += 1,
            }
            sleep(BETWEEN_HEALTH).await;
        }
        Ok((times, lost))
    }

    /// The same without credentials and over a new connection each time, as a probe does.
    async fn greet(&self) -> anyhow::Result<(Series, usize)> {
        let (mut times, mut lost) = (Series::default(), 0);
        while self.goes_on() {
            let client = Client::new(&self.endpoint.as_user(Credential::Anonymous))?;
            let started = Instant::now();
            match timeout(Duration::from_secs(10), client.ask(&Question::get("/livez"))).await {
                Ok(Ok(answer)) if answer.status == 200 => times.push(started.elapsed()),
                Ok(_) | Err(_) => lost += 1,
            }
            sleep(4 * BETWEEN_HEALTH).await;
        }
        Ok((times, lost))
    }

    async fn follow_leases(&self, leases: &mut LeaseTimes) -> anyhow::Result<()> {
        let client = Client::new(&self.endpoint)?;
        while self.goes_on() {
            let answer = client.ask(&Question::get("/apis/coordination.k8s.io/v1/leases")).await;
            if let Ok(answer) = answer
                && let Ok(list) = serde_json::from_slice::<Value>(&answer.body)
            {
                leases.saw(&list, Instant::now());
            }
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }
}

/// When each lease was seen renewed.
#[derive(Debug, Default)]
struct LeaseTimes {
    /// By name: the time that the lease says, when that was first seen, and the longest time between two.
    renewals: BTreeMap<String, (String, Instant, Duration)>,
}

impl LeaseTimes {
    fn saw(&mut self, list: &Value, now: Instant) {
        for lease in list["items"].as_array().into_iter().flatten() {
            let name = format!("{}/{}", lease["metadata"]["namespace"], lease["metadata"]["name"]);
            let renewed = lease["spec"]["renewTime"].to_string();
            let known = self.renewals.entry(name).or_insert_with(|| (renewed.clone(), now, Duration::ZERO));
            if known.0 != renewed {
                *known = (renewed, now, known.2.max(now - known.1));
            }
        }
    }

    fn longest(&self, now: Instant) -> Option<Duration> {
        self.renewals.values().map(|(_, at, longest)| (*longest).max(now - *at)).max()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_may_grow_until_it_is_warm() {
        let times = |all: &[(u64, f64)]| {
            MemoryTimes(all.iter().map(|(second, size)| (Duration::from_secs(*second), *size)).collect())
        };
        let seen = times(&[(0, 100.0), (5, 300.0), (10, 200.0), (11, 250.0), (12, 180.0)]);
        assert_eq!((seen.peak(), seen.growth()), (Some(300.0), Some(50.0)));
        assert_eq!(times(&[(10, 200.0), (11, 150.0)]).growth(), Some(0.0));
        assert_eq!(times(&[(1, 200.0)]).growth(), None, "it ended before");
    }

    #[test]
    fn the_longest_time_without_a_renewal_counts_also_at_the_end() {
        let list = |time: &str| json!({"items": [{"metadata": {"name": "l"}, "spec": {"renewTime": time}}]});
        let (start, mut leases) = (Instant::now(), LeaseTimes::default());
        let second = |count: u64| start + Duration::from_secs(count);
        leases.saw(&list("a"), start);
        leases.saw(&list("a"), second(3));
        leases.saw(&list("b"), second(10));
        assert_eq!(leases.longest(second(11)), Some(Duration::from_secs(10)));
        assert_eq!(leases.longest(second(30)), Some(Duration::from_secs(20)));
    }
}
