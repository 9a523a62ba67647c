//! The text of a list, made a piece at a time while it is sent: however long the list is, the memory it takes beyond the
//! stored objects is that of a piece.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::catalog::Resource;
use crate::kinds::Timestamp;
use crate::request::{IncludeObject, Transform};
use crate::store::Stored;
use crate::verbs::{
    Listed, PARTIAL_HEAD, TableForm, TypeFields, copy_metadata, decode, decode_unowned, partial, print_escaped,
    print_shown, shown,
};

/// Pieces are about this large: a few TLS records, and still warm in the cache when they are encrypted.
const PIECE: usize = 64 * 1024;

/// The rest of a list that is being sent.
#[derive(Debug)]
pub(super) struct ListText {
    resource: Arc<Resource>,
    items: std::vec::IntoIter<Arc<Stored>>,
    form: ItemForm,
    place: Place,
}

/// What stands in the list for each object.
#[derive(Debug, Clone, Copy)]
enum ItemForm {
    Plain(TypeFields),
    Partial,
    Row { include: IncludeObject, now: Timestamp },
}

#[derive(Debug)]
enum Place {
    /// What stands before the first item is still to be sent.
    Start(Vec<u8>),
    Inside,
    End,
}

impl ListText {
    /// `row` says how rows are made, if the list is a table.
    pub(super) fn new(listed: &Listed, transform: Option<Transform>, row: (IncludeObject, Timestamp)) -> Self {
        let resource = Arc::clone(listed.resource());
        let types = if resource.custom().is_some() { TypeFields::Shown } else { TypeFields::Left };
        let (kind, version, form) = match transform {
            None => (resource.list_kind.as_str(), resource.api_version.as_str(), ItemForm::Plain(types)),
            Some(Transform::Table(version)) => {
                ("Table", version.api_version(), ItemForm::Row { include: row.0, now: row.1 })
            }
            Some(Transform::PartialObjectMetadataList(version) | Transform::PartialObjectMetadata(version)) => {
                ("PartialObjectMetadataList", version.api_version(), ItemForm::Partial)
            }
        };
        let mut start = Vec::new();
        let mut put = |name: &str, value: &Value| {
            start.push(if start.is_empty() { b'{' } else { b',' });
            print_escaped(&mut start, &name.into());
            start.push(b':');
            print_escaped(&mut start, value);
        };
        put("kind", &kind.into());
        put("apiVersion", &version.into());
        put("metadata", &listed.metadata());
        if let ItemForm::Row { .. } = form {
            put("columnDefinitions", &resource.columns().into());
        }
        start.extend_from_slice(if let ItemForm::Row { .. } = form { b",\"rows\":[" } else { b",\"items\":[" });
        Self { items: listed.items.clone().into_iter(), form, place: Place::Start(start), resource }
    }

    fn print(&self, out: &mut Vec<u8>, stored: &Stored) {
        let object = || shown(&self.resource, decode(stored));
        let built_in = self.resource.custom().is_none();
        match self.form {
            ItemForm::Plain(types) => print_shown(out, &self.resource, stored, stored.revision, types),
            ItemForm::Partial => print_escaped(out, &partial(&object())),
            ItemForm::Row { include: IncludeObject::Metadata, now } if built_in => {
                let form = TableForm { resource: &self.resource, include: IncludeObject::None, now };
                let row = form.row(&shown(&self.resource, decode_unowned(stored)));
                if !print_row(out, row, stored) {
                    let form = TableForm { include: IncludeObject::Metadata, ..form };
                    print_escaped(out, &form.row(&object()));
                }
            }
            ItemForm::Row { include, now } => {
                let form = TableForm { resource: &self.resource, include, now };
                print_escaped(out, &form.row(&object()));
            }
        }
    }
}

/// Adds a row whose object is the metadata of a stored version, copied as it is. False when it cannot be copied, and
/// then nothing is added.
fn print_row(out: &mut Vec<u8>, mut row: Value, stored: &Stored) -> bool {
    let mut metadata = Vec::with_capacity(stored.value.len());
    if !copy_metadata(&mut metadata, stored) {
        return false;
    }
    if let Some(fields) = row.as_object_mut() {
        fields.remove("object");
    }
    print_escaped(out, &row);
    // The row has its cells at least, so what follows is not the first of its fields.
    out.pop();
    out.extend_from_slice(b",\"object\":");
    out.extend_from_slice(PARTIAL_HEAD.as_bytes());
    out.extend_from_slice(&metadata);
    out.extend_from_slice(b"}}");
    true
}

impl Iterator for ListText {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        // The last object of a piece may reach beyond it.
        let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
        let mut first = match std::mem::replace(&mut self.place, Place::Inside) {
            Place::Start(start) => {
                piece.extend_from_slice(&start);
                true
            }
            Place::Inside => false,
            Place::End => {
                self.place = Place::End;
                return None;
            }
        };
        while piece.len() < PIECE {
            let Some(stored) = self.items.next() else {
                piece.extend_from_slice(b"]}\n");
                self.place = Place::End;
                break;
            };
            if !std::mem::take(&mut first) {
                piece.push(b',');
            }
            self.print(&mut piece, &stored);
        }
        Some(piece.into())
    }
}
