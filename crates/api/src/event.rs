//! An Event: what a program said about an object.

use serde::Deserialize;

use crate::object::{Kind, Meta, Object, Uid, UnixSeconds, Word};

/// What was said, about what, by whom, and when last.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
pub struct Event {
    pub meta: Meta,
    pub about: About,
    pub warning: bool,
    /// CamelCase, such as `ProvisioningFailed`.
    pub reason: Word,
    pub message: Box<str>,
    /// The program that said it.
    pub by: Word,
    pub count: i64,
    pub last: UnixSeconds,
}

/// The object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct About {
    pub kind: Box<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
}

impl About {
    /// Whether it is this very object; an event without a uid is about whatever has the name.
    pub fn is(&self, kind: Kind, meta: &Meta) -> bool {
        *self.kind == *kind.kind
            && *self.name == *meta.key.name()
            && *self.namespace == *meta.key.namespace().unwrap_or_default()
            && (self.uid.is_empty() || meta.uid.is_empty() || self.uid == meta.uid)
    }
}

impl Object for Event {
    const KIND: Kind = Kind::EVENT;

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    metadata: Meta,
    #[serde(default)]
    involved_object: About,
    #[serde(rename = "type", default)]
    severity: Option<Box<str>>,
    #[serde(default)]
    reason: Option<Word>,
    #[serde(default)]
    message: Option<Box<str>>,
    #[serde(default)]
    source: Option<WireSource>,
    #[serde(default)]
    reporting_component: Option<Word>,
    count: Option<i64>,
    event_time: Option<UnixSeconds>,
    first_timestamp: Option<UnixSeconds>,
    last_timestamp: Option<UnixSeconds>,
    series: Option<WireSeries>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireSource {
    component: Option<Word>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSeries {
    count: i64,
    last_observed_time: Option<UnixSeconds>,
}

impl From<Wire> for Event {
    fn from(wire: Wire) -> Self {
        let series = wire.series.unwrap_or_default();
        let said = [series.last_observed_time, wire.last_timestamp, wire.event_time, wire.first_timestamp];
        let source = wire.source.and_then(|source| source.component);
        let named = |word: &Word| !word.is_empty();
        Self {
            last: said.into_iter().flatten().max().unwrap_or(wire.metadata.created),
            warning: wire.severity.as_deref() == Some("Warning"),
            reason: wire.reason.unwrap_or_else(Word::empty),
            message: wire.message.unwrap_or_default(),
            by: wire.reporting_component.filter(named).or(source).unwrap_or_else(Word::empty),
            count: wire.count.unwrap_or(1).max(series.count).max(1),
            about: wire.involved_object,
            meta: wire.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_either_form_says_when_it_was_last_seen_and_how_often() {
        let read = |more: serde_json::Value| -> Event {
            let mut event = serde_json::json!({
                "metadata": {"name": "e", "namespace": "n", "creationTimestamp": "2026-01-02T03:04:05Z"},
                "involvedObject": {"kind": "PersistentVolumeClaim", "namespace": "n", "name": "c", "uid": "u"},
                "type": "Warning", "reason": "R", "message": "m",
            });
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(event).unwrap()
        };
        let bare = read(serde_json::json!({"count": null, "source": {}}));
        assert_eq!((bare.last, bare.count, bare.warning), (bare.meta.created, 1, true));
        let old = read(serde_json::json!({
            "count": 7, "source": {"component": "binder"}, "reportingComponent": "",
            "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:05:05Z", "eventTime": null,
        }));
        assert_eq!((old.last.0 - bare.last.0, old.count, &*old.by), (60, 7, "binder"));
        let new = read(serde_json::json!({
            "eventTime": "2026-01-02T03:04:05.000000Z", "reportingComponent": "scheduler",
            "series": {"count": 3, "lastObservedTime": "2026-01-02T03:04:15.000001Z"},
        }));
        assert_eq!((new.last.0 - bare.last.0, new.count, &*new.by), (10, 3, "scheduler"));
        let claim = |uid: &str| Meta { uid: uid.into(), ..Meta::new(crate::Key::namespaced("n", "c")) };
        assert!(new.about.is(Kind::CLAIM, &claim("u")) && !new.about.is(Kind::CLAIM, &claim("another")));
        assert!(!new.about.is(Kind::POD, &claim("u")));
    }
}
