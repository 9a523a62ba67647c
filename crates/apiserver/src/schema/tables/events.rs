//! events.k8s.io: the newer view of events.

use super::{API_VERSION, KIND, field};
use super::{core, meta};
use crate::schema::types::Presence::{Always, OmitZero, Pointer};
use crate::schema::types::Type::{Int32, MicroTime, String, Time};
use crate::schema::types::{Struct, Type};

pub static EVENT: Struct = Struct {
    name: "io.k8s.api.events.v1.Event",
    doc: "A report that something happened to an object.",
    atomic: false,
    fields: &[
        API_VERSION,
        KIND,
        field("metadata", Type::Struct(&meta::OBJECT_META), 1, Always, "Name, identity and labels."),
        field("eventTime", MicroTime, 2, Always, "When it happened."),
        field("series", Type::Struct(&EVENT_SERIES), 3, Pointer, "How often it was repeated."),
        field("reportingController", String, 4, OmitZero, "Who reported it."),
        field("reportingInstance", String, 5, OmitZero, "Which copy of the reporter."),
        field("action", String, 6, OmitZero, "What was done."),
        field("reason", String, 7, OmitZero, "Why, as one word."),
        field("regarding", Type::Struct(&core::OBJECT_REFERENCE), 8, Always, "What it happened to."),
        field("related", Type::Struct(&core::OBJECT_REFERENCE), 9, Pointer, "Another object that matters."),
        field("note", String, 10, OmitZero, "What happened, for people."),
        field("type", String, 11, OmitZero, "Which sort it is."),
        field("deprecatedSource", Type::Struct(&core::EVENT_SOURCE), 12, Always, "The deprecated source."),
        field("deprecatedFirstTimestamp", Time, 13, Always, "When it first happened, in the older form."),
        field("deprecatedLastTimestamp", Time, 14, Always, "When it last happened, in the older form."),
        field("deprecatedCount", Int32, 15, OmitZero, "How often it happened, in the older form."),
    ],
};

pub static EVENT_SERIES: Struct = Struct {
    name: "io.k8s.api.events.v1.EventSeries",
    doc: "How often an event was repeated.",
    atomic: false,
    fields: &[
        field("count", Int32, 1, Always, "How many."),
        field("lastObservedTime", MicroTime, 2, Always, "When it was last seen."),
    ],
};
