//! The form of an answer: the object itself, a table or metadata only, in the encoding the client reads.

use serde_json::{Value, json};

use super::answer::{Answer, Layout};
use super::list_text::ListText;
use crate::catalog::Resource;
use crate::kinds::{Timestamp, read};
use crate::request::{Accepted, Encoding, IncludeObject, Transform};
use crate::schema::proto;
use crate::schema::tables::core::CONFIG_MAP;
use crate::schema::tables::meta::STATUS;
use crate::store::Stored;
use crate::verbs::{
    Headings, Listed, TableForm, TypeFields, decode, list_view, partial, partial_list, print_shown, shown,
};

/// Everything that decides the form of an answer about a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) accepted: Accepted,
    pub(crate) include: IncludeObject,
    pub(crate) layout: Layout,
    pub(crate) now: Timestamp,
}

impl Form<'_> {
    fn table(&self) -> TableForm<'_> {
        TableForm { resource: self.resource, include: self.include, now: self.now }
    }

    /// An answer with one object of the resource's kind.
    pub(crate) fn one(&self, code: u16, object: Value) -> Answer {
        let (value, version) = match self.accepted.transform {
            None => return self.encode(code, object),
            Some(Transform::Table(version)) => (self.table().one(object, Headings::Shown), version),
            Some(Transform::PartialObjectMetadata(version) | Transform::PartialObjectMetadataList(version)) => {
                (partial(&object), version)
            }
        };
        self.transformed(code, value, version.api_version())
    }

    /// An answer with an object of the kind, or with a Status.
    fn encode(&self, code: u16, value: Value) -> Answer {
        match self.accepted.encoding {
            Encoding::Json => Answer::json(code, &value, self.layout),
            Encoding::Yaml => Answer::yaml(code, &value),
            Encoding::Protobuf => Answer::protobuf(
                code,
                match self.resource.table().filter(|_| value["kind"] == self.resource.kind.as_str()) {
                    Some(table) => proto::seal(&self.resource.api_version, &self.resource.kind, table, &value),
                    None => proto::seal("v1", "Status", &STATUS, &value),
                },
            ),
        }
    }

    fn transformed(&self, code: u16, mut value: Value, api_version: &str) -> Answer {
        value["apiVersion"] = api_version.into();
        match self.accepted.encoding {
            Encoding::Json => Answer::json(code, &value, self.layout),
            Encoding::Yaml => Answer::yaml(code, &value),
            Encoding::Protobuf => {
                let kind = read::text(&value, "/kind").to_owned();
                // Metadata has the same number in every kind, so any table encodes it.
                Answer::protobuf(code, proto::seal(api_version, &kind, &CONFIG_MAP, &value))
            }
        }
    }

    /// The answer of a DELETE that removed something: the object, or a Status about it.
    pub(crate) fn status(&self, code: u16, status: Value) -> Answer {
        self.encode(code, status)
    }

    /// As [`Form::one`], for an object as it is stored.
    pub(crate) fn stored(&self, code: u16, stored: &Stored) -> Answer {
        if !self.is_line() || self.accepted.transform.is_some() {
            return self.one(code, shown(self.resource, decode(stored)));
        }
        let mut text = Vec::new();
        print_shown(&mut text, self.resource, stored, stored.revision, TypeFields::Shown);
        text.push(b'\n');
        Answer::bytes(code, "application/json", text)
    }

    /// Whether the answer is JSON on one line, which can be put together from texts.
    fn is_line(&self) -> bool {
        self.accepted.encoding == Encoding::Json && self.layout == Layout::Line
    }

    pub(crate) fn list(&self, listed: &Listed) -> Answer {
        if self.is_line() {
            let text = ListText::new(listed, self.accepted.transform, (self.include, self.now));
            return Answer::pieces(200, Box::new(text));
        }
        let metadata = listed.metadata();
        let objects = listed.objects().collect::<Vec<_>>();
        let (value, version) = match self.accepted.transform {
            None => {
                let list = list_view(self.resource, objects, metadata);
                return match self.accepted.encoding {
                    Encoding::Json => Answer::json(200, &list, self.layout),
                    Encoding::Yaml => Answer::yaml(200, &list),
                    Encoding::Protobuf => {
                        let (version, kind) = (&self.resource.api_version, &self.resource.list_kind);
                        let table = self.resource.table().unwrap_or(&CONFIG_MAP);
                        Answer::protobuf(200, proto::seal_list(version, kind, table, &list))
                    }
                };
            }
            Some(Transform::Table(version)) => (self.table().table(&objects, metadata, Headings::Shown), version),
            Some(Transform::PartialObjectMetadataList(version) | Transform::PartialObjectMetadata(version)) => {
                (partial_list(&objects, metadata), version)
            }
        };
        self.transformed_list(value, version.api_version())
    }

    fn transformed_list(&self, mut value: Value, api_version: &str) -> Answer {
        value["apiVersion"] = api_version.into();
        match self.accepted.encoding {
            Encoding::Json => Answer::json(200, &value, self.layout),
            Encoding::Yaml => Answer::yaml(200, &value),
            Encoding::Protobuf => {
                let kind = read::text(&value, "/kind").to_owned();
                Answer::protobuf(200, proto::seal_list(api_version, &kind, &CONFIG_MAP, &value))
            }
        }
    }
}

/// The answer of a deletion of many: a list of what was deleted.
pub(crate) fn deleted_list(form: &Form<'_>, objects: Vec<Value>, revision: &str) -> Answer {
    let list = list_view(form.resource, objects, json!({"resourceVersion": revision}));
    Answer::json(200, &list, form.layout)
}
