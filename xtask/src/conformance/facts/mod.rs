//! What a .proto file says, as a flat list of facts, and the differences between two such lists.
//!
//! A fact sheet belongs to one element (a message, a field, an enum value, a method ...) and names everything about it
//! that reaches the wire or generated code. Two files that give the same sheets are interchangeable.
//!
//! # Not here
//! Comments, the order of declarations and `go_package`: none of them changes what is sent.

use std::collections::BTreeMap;
use std::fmt;

use prost_reflect::{
    Cardinality, DynamicMessage, EnumDescriptor, ExtensionDescriptor, FieldDescriptor, FileDescriptor, Kind,
    MessageDescriptor, ServiceDescriptor,
};

/// One element's facts: name of the fact to its value.
type Sheet = BTreeMap<&'static str, String>;

/// Element (`field csi.v1.Volume.volume_id`) to its sheet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts(BTreeMap<String, Sheet>);

/// The fact that stands for all others where one side lacks the element.
const WHOLE: &str = "existence";

/// A fact that is not the same in both files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    element: String,
    fact: &'static str,
    ours: Option<String>,
    theirs: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { element, fact, ours, theirs } = self;
        match (ours, theirs) {
            (Some(_), None) if *fact == WHOLE => write!(f, "{element}: is ours alone"),
            (None, Some(_)) if *fact == WHOLE => write!(f, "{element}: is missing"),
            (Some(ours), Some(theirs)) => write!(f, "{element}: {fact} is {ours:?}, officially {theirs:?}"),
            (Some(ours), None) => write!(f, "{element}: {fact} {ours:?} is ours alone"),
            (None, Some(theirs)) => write!(f, "{element}: {fact} {theirs:?} is missing"),
            (None, None) => write!(f, "{element}: {fact}"),
        }
    }
}

impl Facts {
    pub(crate) fn of(file: &FileDescriptor) -> Self {
        let mut facts = Self::default();
        let mut sheet = Sheet::from([
            ("package", file.package_name().to_owned()),
            ("syntax", format!("{:?}", file.syntax())),
            ("options", options(&file.options())),
        ]);
        let imports: Vec<String> = file.dependencies().map(|import| import.name().to_owned()).collect();
        sheet.insert("imports", sorted(imports));
        facts.add("file", file.package_name(), sheet);
        file.messages().for_each(|message| facts.message(&message));
        file.enums().for_each(|each| facts.enumeration(&each));
        file.extensions().for_each(|extension| facts.extension(&extension));
        file.services().for_each(|service| facts.service(&service));
        facts
    }

    /// How many elements of each kind there are, for the report.
    pub(crate) fn counts(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for element in self.0.keys() {
            *counts.entry(element.split(' ').next().unwrap_or_default()).or_default() += 1;
        }
        let facts: usize = self.0.values().map(Sheet::len).sum();
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        format!("{}; {facts} facts", counts.join(", "))
    }

    /// Everything in which `self` is not `official`. An element that only one side has is one difference.
    pub(crate) fn differences(&self, official: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut elements: Vec<&String> = self.0.keys().chain(official.0.keys()).collect();
        elements.sort();
        elements.dedup();
        for element in elements {
            let (ours, theirs) = (self.0.get(element), official.0.get(element));
            let differ = |fact, ours: Option<&String>, theirs: Option<&String>| Difference {
                element: element.clone(),
                fact,
                ours: ours.cloned(),
                theirs: theirs.cloned(),
            };
            match (ours, theirs) {
                (Some(ours), Some(theirs)) => {
                    let mut names: Vec<&'static str> = ours.keys().chain(theirs.keys()).copied().collect();
                    names.sort_unstable();
                    names.dedup();
                    let unequal = names.into_iter().filter(|name| ours.get(name) != theirs.get(name));
                    found.extend(unequal.map(|name| differ(name, ours.get(name), theirs.get(name))));
                }
                (Some(_), None) => found.push(differ(WHOLE, Some(element), None)),
                (None, _) => found.push(differ(WHOLE, None, Some(element))),
            }
        }
        found
    }

    fn add(&mut self, kind: &str, name: &str, sheet: Sheet) {
        self.0.insert(format!("{kind} {name}"), sheet);
    }

    fn message(&mut self, message: &MessageDescriptor) {
        let mut ranges: Vec<String> = message.reserved_ranges().map(|range| format!("{range:?}")).collect();
        ranges.extend(message.reserved_names().map(str::to_owned));
        let sheet = Sheet::from([
            ("options", options(&message.options())),
            ("map entry", message.is_map_entry().to_string()),
            ("reserved", sorted(ranges)),
        ]);
        self.add("message", message.full_name(), sheet);
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            let fields = oneof.fields().map(|field| field.name().to_owned()).collect();
            let sheet = Sheet::from([("options", options(&oneof.options())), ("fields", sorted(fields))]);
            self.add("oneof", oneof.full_name(), sheet);
        }
        message.fields().for_each(|field| self.field(&field));
        message.child_messages().for_each(|child| self.message(&child));
        message.child_enums().for_each(|child| self.enumeration(&child));
        message.child_extensions().for_each(|extension| self.extension(&extension));
    }

    fn field(&mut self, field: &FieldDescriptor) {
        let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        let proto = field.field_descriptor_proto();
        let sheet = Sheet::from([
            ("number", field.number().to_string()),
            ("type", kind(&field.kind())),
            ("label", label(field.cardinality()).to_owned()),
            ("JSON name", field.json_name().to_owned()),
            ("packed", field.is_packed().to_string()),
            ("oneof", oneof.map_or_else(String::new, |oneof| oneof.name().to_owned())),
            ("explicit optional", proto.proto3_optional().to_string()),
            ("options", options(&field.options())),
        ]);
        self.add("field", field.full_name(), sheet);
    }

    fn enumeration(&mut self, each: &EnumDescriptor) {
        let mut reserved: Vec<String> = each.reserved_ranges().map(|range| format!("{range:?}")).collect();
        reserved.extend(each.reserved_names().map(str::to_owned));
        let sheet = Sheet::from([("options", options(&each.options())), ("reserved", sorted(reserved))]);
        self.add("enum", each.full_name(), sheet);
        for value in each.values() {
            let sheet = Sheet::from([("number", value.number().to_string()), ("options", options(&value.options()))]);
            // protobuf scopes a value beside its enum; naming the enum as well keeps the report readable.
            self.add("value", &format!("{}.{}", each.full_name(), value.name()), sheet);
        }
    }

    fn extension(&mut self, extension: &ExtensionDescriptor) {
        let sheet = Sheet::from([
            ("number", extension.number().to_string()),
            ("type", kind(&extension.kind())),
            ("label", label(extension.cardinality()).to_owned()),
            ("extends", extension.containing_message().full_name().to_owned()),
            ("options", options(&extension.options())),
        ]);
        self.add("extension", extension.full_name(), sheet);
    }

    fn service(&mut self, service: &ServiceDescriptor) {
        self.add("service", service.full_name(), Sheet::from([("options", options(&service.options()))]));
        for method in service.methods() {
            let sheet = Sheet::from([
                ("request", method.input().full_name().to_owned()),
                ("response", method.output().full_name().to_owned()),
                ("client streams", method.is_client_streaming().to_string()),
                ("server streams", method.is_server_streaming().to_string()),
                ("options", options(&method.options())),
            ]);
            self.add("method", method.full_name(), sheet);
        }
    }
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(each) => each.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_ascii_lowercase(),
    }
}

fn label(cardinality: Cardinality) -> &'static str {
    match cardinality {
        Cardinality::Optional => "singular",
        Cardinality::Required => "required",
        Cardinality::Repeated => "repeated",
    }
}

/// Set options and extensions by full name. `go_package` names a place in somebody's Go tree, not a fact of the wire.
fn options(message: &DynamicMessage) -> String {
    let fields = message.fields().map(|(field, value)| format!("{}={value:?}", field.name()));
    let extensions = message.extensions().map(|(extension, value)| format!("({})={value:?}", extension.full_name()));
    sorted(fields.chain(extensions).filter(|option| !option.starts_with("go_package=")).collect())
}

fn sorted(mut list: Vec<String>) -> String {
    list.sort();
    list.join(", ")
}

#[cfg(test)]
mod tests;
