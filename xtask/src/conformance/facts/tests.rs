//! Each kind of fact is seeded with one mutation, and that mutation alone must be reported.

use std::fs;
use std::path::PathBuf;

use super::Facts;

const OFFICIAL: &str = r#"
syntax = "proto3";
package sample.v1;
import "google/protobuf/descriptor.proto";
import "google/protobuf/timestamp.proto";
option go_package = "example/sample";
extend google.protobuf.FieldOptions { bool hidden = 1059; }
extend google.protobuf.EnumValueOptions { bool alpha_value = 1060; }
extend google.protobuf.MethodOptions { bool alpha_method = 1061; }
extend google.protobuf.ServiceOptions { bool alpha_service = 1062; }
extend google.protobuf.MessageOptions { bool alpha_message = 1063; }
service Keeper {
  option (alpha_service) = true;
  rpc Keep(Box) returns (Box) { option (alpha_method) = true; }
  rpc Watch(Box) returns (stream Box);
}
message Box {
  option (alpha_message) = true;
  reserved 9;
  string id = 1;
  int64 bytes = 2;
  repeated string flags = 3;
  map<string, string> words = 4 [(hidden) = true];
  oneof content { string text = 5; Inner inner = 6; }
  optional string note = 7;
  google.protobuf.Timestamp made = 8;
  message Inner { bool deep = 1; }
  enum Colour { UNKNOWN = 0; RED = 1 [(alpha_value) = true]; }
}
"#;

fn facts(source: &str) -> Facts {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sample.proto"), source).unwrap();
    let pool = crate::codegen::pool(&[PathBuf::from("sample.proto")], folder.path()).unwrap();
    Facts::of(&pool.get_file_by_name("sample.proto").unwrap())
}

fn mutated(from: &str, to: &str) -> Vec<String> {
    assert_eq!(OFFICIAL.matches(from).count(), 1, "the fixture must hold {from:?} once");
    let differences = facts(&OFFICIAL.replace(from, to)).differences(&facts(OFFICIAL));
    differences.iter().map(ToString::to_string).collect()
}

#[test]
fn the_same_file_has_no_differences() {
    assert_eq!(facts(OFFICIAL).differences(&facts(OFFICIAL)), []);
}

#[test]
fn comments_order_and_go_package_are_no_difference() {
    assert_eq!(mutated("string id = 1;\n  int64 bytes = 2;", "int64 bytes = 2; // two\n  string id = 1;"), [""; 0]);
    assert_eq!(mutated("example/sample", "elsewhere/sample"), [""; 0]);
}

/// A mutation of the fixture, and where the report must see it.
struct Row {
    from: &'static str,
    to: &'static str,
    want: &'static str,
}

const ROWS: [Row; 24] = [
    Row { from: "string id = 1;", to: "string id = 11;", want: "field sample.v1.Box.id: number" },
    Row { from: "int64 bytes", to: "uint64 bytes", want: "field sample.v1.Box.bytes: type" },
    Row { from: "repeated string flags", to: "string flags", want: "field sample.v1.Box.flags: label" },
    Row {
        from: "string id = 1;",
        to: "string id = 1 [json_name = \"ID\"];",
        want: "field sample.v1.Box.id: JSON name",
    },
    Row { from: "string text = 5; Inner", to: "Inner", want: "field sample.v1.Box.text: is" },
    Row {
        from: "oneof content { string text = 5; Inner",
        to: "string text = 5; oneof content { Inner",
        want: "field sample.v1.Box.text: oneof",
    },
    Row { from: "oneof content", to: "oneof contents", want: "oneof sample.v1.Box.content: is" },
    Row { from: "optional string note", to: "string note", want: "field sample.v1.Box.note: explicit optional" },
    Row { from: "4 [(hidden) = true]", to: "4", want: "field sample.v1.Box.words: options" },
    Row { from: "map<string, string>", to: "map<string, bytes>", want: "field sample.v1.Box.WordsEntry.value: type" },
    Row { from: "bool deep = 1;", to: "bool deep = 2;", want: "field sample.v1.Box.Inner.deep: number" },
    Row { from: "reserved 9;", to: "", want: "message sample.v1.Box: reserved" },
    Row { from: "option (alpha_message) = true;", to: "", want: "message sample.v1.Box: options" },
    Row { from: "RED = 1", to: "RED = 2", want: "value sample.v1.Box.Colour.RED: number" },
    Row { from: "RED = 1 [(alpha_value) = true]", to: "RED = 1", want: "value sample.v1.Box.Colour.RED: options" },
    Row { from: "UNKNOWN = 0;", to: "UNKNOWN = 0; BLUE = 3;", want: "value sample.v1.Box.Colour.BLUE: is" },
    Row { from: "returns (stream Box)", to: "returns (Box)", want: "method sample.v1.Keeper.Watch: server streams" },
    Row { from: "Watch(Box)", to: "Watch(stream Box)", want: "method sample.v1.Keeper.Watch: client streams" },
    Row { from: "Keep(Box)", to: "Keep(Box.Inner)", want: "method sample.v1.Keeper.Keep: request" },
    Row { from: "option (alpha_method) = true;", to: "", want: "method sample.v1.Keeper.Keep: options" },
    Row { from: "option (alpha_service) = true;", to: "", want: "service sample.v1.Keeper: options" },
    Row {
        from: "bool alpha_value = 1060",
        to: "bool alpha_value = 1070",
        want: "extension sample.v1.alpha_value: number",
    },
    Row { from: "package sample.v1;", to: "package sample.v2;", want: "file sample.v1: is" },
    Row {
        from: "extend google.protobuf.FieldOptions { bool hidden = 1059; }",
        to: "extend google.protobuf.FieldOptions { bool hidden = 1059; bool seen = 1064; }",
        want: "extension sample.v1.seen: is",
    },
];

#[test]
fn a_mutation_of_each_kind_is_reported() {
    for Row { from, to, want } in ROWS {
        let reported = mutated(from, to);
        assert!(reported.iter().any(|line| line.starts_with(want)), "{from:?} to {to:?} gave {reported:#?}");
    }
}

#[test]
fn another_syntax_is_reported() {
    let other = OFFICIAL.replace("proto3", "proto2").replace("string id = 1", "optional string id = 1");
    let other = other.replace("  int64", " optional int64").replace("  google", " optional google");
    let other = other.replace("{ bool", "{ optional bool");
    let reported = facts(&other).differences(&facts(OFFICIAL));
    assert!(reported.iter().any(|line| line.to_string().starts_with("file sample.v1: syntax")), "{reported:#?}");
}
