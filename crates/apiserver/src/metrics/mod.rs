//! What the server counts about itself, in the text form of Prometheus. Where the reference counts the same thing, the
//! name and the labels are the reference's.
//!
//! Counting is adding to atomics. A lock is taken only to find the series of a request, for as long as it takes to look
//! it up. Labels come from what is served, never from what a client made up, so that nobody can make series without end.

mod histogram;

pub(crate) use histogram::Histogram;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::catalog::Snapshot;
use crate::request::{Method, ResourceRequest, Target, Verb};
use crate::store::{List, Scope, Store};

/// The reference's bounds for requests.
const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
const COMPONENT: &str = "component=\"apiserver\",";

/// Everything that is counted about requests.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Series<Codes>,
    watches: Series<Watches>,
    reading: AtomicI64,
    writing: AtomicI64,
}

/// Counters by the labels they are printed with.
#[derive(Debug)]
struct Series<T>(RwLock<BTreeMap<String, Arc<T>>>);

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Default> Series<T> {
    fn get(&self, labels: &str) -> Arc<T> {
        if let Some(found) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(labels) {
            return Arc::clone(found);
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(labels.to_owned()).or_default())
    }

    fn each(&self, mut show: impl FnMut(&str, &T)) {
        for (labels, counters) in &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            show(labels, counters);
        }
    }
}

/// Requests of one kind.
#[derive(Debug)]
struct Codes {
    seconds: Histogram,
    by_code: RwLock<BTreeMap<u16, AtomicU64>>,
}

impl Default for Codes {
    fn default() -> Self {
        Self { seconds: Histogram::new(REQUEST_SECONDS), by_code: RwLock::default() }
    }
}

impl Codes {
    fn count(&self, code: u16) {
        if let Some(count) = self.by_code.read().unwrap_or_else(PoisonError::into_inner).get(&code) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut all = self.by_code.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(code).or_default().fetch_add(1, Ordering::Relaxed);
    }
}

/// Watches of one resource.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    running: AtomicI64,
    events: AtomicU64,
}

/// A running watch; dropping it says that it has ended.
#[derive(Debug)]
pub(crate) struct RunningWatch(Arc<Watches>);

impl RunningWatch {
    pub(crate) fn event(&self) {
        self.0.events.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that is being worked on; dropping it says that it no longer is.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Metrics>, Method);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight(&self.1).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    fn in_flight(&self, method: &Method) -> &AtomicI64 {
        match method {
            Method::Get | Method::Head | Method::Options => &self.reading,
            Method::Post | Method::Put | Method::Patch | Method::Delete | Method::Other(_) => &self.writing,
        }
    }

    pub(crate) fn begin(self: &Arc<Self>, method: &Method) -> InFlight {
        self.in_flight(method).fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self), method.clone())
    }

    /// Counts an answered request. How long a watch lasts is its client's wish and says nothing.
    pub(crate) fn answered(&self, labels: &str, verb: &str, code: u16, took: Duration) {
        let series = self.requests.get(labels);
        series.count(code);
        if verb != "WATCH" {
            series.seconds.observe(took);
        }
    }

    pub(crate) fn watch(&self, request: &ResourceRequest) -> RunningWatch {
        let (group, version, resource) = (&request.group, &request.version, &request.resource);
        let watches = self.watches.get(&format!("group=\"{group}\",version=\"{version}\",resource=\"{resource}\","));
        watches.running.fetch_add(1, Ordering::Relaxed);
        RunningWatch(watches)
    }

    /// All of it, with what the store counts.
    pub(crate) fn print(&self, served: &Snapshot, store: &Store) -> String {
        let mut out = String::with_capacity(16 * 1024);
        self.print_requests(&mut out);
        self.print_watches(&mut out);
        head(&mut out, "apiserver_storage_objects", "gauge", "Stored objects by resource.");
        for resource in served.stored() {
            let count = store.count(&List::latest(&Scope::all(&resource.stored_as))).unwrap_or(0);
            let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{}\"}} {count}", resource.named());
        }
        store.print_metrics(&mut out);
        out
    }

    fn print_requests(&self, out: &mut String) {
        head(out, "apiserver_request_total", "counter", "Answered requests by what they asked and the code.");
        self.requests.each(|labels, codes| {
            for (code, count) in &*codes.by_code.read().unwrap_or_else(PoisonError::into_inner) {
                let count = count.load(Ordering::Relaxed);
                let _ = writeln!(out, "apiserver_request_total{{{labels}{COMPONENT}code=\"{code}\"}} {count}");
            }
        });
        let name = "apiserver_request_duration_seconds";
        head(out, name, "histogram", "How long requests took, watches aside.");
        self.requests.each(|labels, codes| codes.seconds.print(name, &format!("{labels}{COMPONENT}"), out));
        head(out, "apiserver_current_inflight_requests", "gauge", "Requests that are being worked on.");
        for (kind, count) in [("readOnly", &self.reading), ("mutating", &self.writing)] {
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(out, "apiserver_current_inflight_requests{{request_kind=\"{kind}\"}} {count}");
        }
    }

    fn print_watches(&self, out: &mut String) {
        head(out, "apiserver_longrunning_requests", "gauge", "Running watches.");
        self.watches.each(|labels, watches| {
            let count = watches.running.load(Ordering::Relaxed);
            let _ = writeln!(out, "apiserver_longrunning_requests{{{labels}{COMPONENT}verb=\"WATCH\"}} {count}");
        });
        head(out, "apiserver_watch_events_total", "counter", "Events that were sent to watches.");
        self.watches.each(|labels, watches| {
            let count = watches.events.load(Ordering::Relaxed);
            let _ = writeln!(out, "apiserver_watch_events_total{{{}}} {count}", labels.trim_end_matches(','));
        });
    }
}

/// What stands above the numbers of one name.
pub(crate) fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// The verb and the labels of a request; resources that are not served are not told apart.
pub(crate) fn labels(served: &Snapshot, method: &Method, target: &Target) -> (&'static str, String) {
    let Target::Resource(request) = target else {
        let verb = verb(method, None);
        return (verb, format!("verb=\"{verb}\",group=\"\",version=\"\",resource=\"\",subresource=\"\",scope=\"\","));
    };
    let verb = verb(method, Some(request.verb));
    let known = served.resource(&request.group, &request.version, &request.resource);
    let Some(resource) = known else {
        return (verb, format!("verb=\"{verb}\",group=\"\",version=\"\",resource=\"\",subresource=\"\",scope=\"\","));
    };
    let subresource = request.subresource.as_deref().and_then(|name| resource.subresource(name));
    let scope = match (&request.name, &request.namespace) {
        (Some(_), _) => "resource",
        (None, Some(_)) => "namespace",
        (None, None) => "cluster",
    };
    let labels = format!(
        "verb=\"{verb}\",group=\"{}\",version=\"{}\",resource=\"{}\",subresource=\"{}\",scope=\"{scope}\",",
        resource.group,
        resource.version,
        resource.plural,
        subresource.map_or("", |subresource| subresource.name()),
    );
    (verb, labels)
}

fn verb(method: &Method, verb: Option<Verb>) -> &'static str {
    match (method, verb) {
        (_, Some(Verb::List)) => "LIST",
        (_, Some(Verb::Watch)) => "WATCH",
        (_, Some(Verb::DeleteCollection)) => "DELETECOLLECTION",
        (Method::Get, _) => "GET",
        (Method::Head, _) => "HEAD",
        (Method::Post, _) => "POST",
        (Method::Put, _) => "PUT",
        (Method::Patch, _) => "PATCH",
        (Method::Delete, _) => "DELETE",
        (Method::Options, _) => "OPTIONS",
        (Method::Other(_), _) => "other",
    }
}
