//! Label and field selectors (API-3.6).

use serde_json::{Value, json};

use super::super::{FieldLabels, FieldSelector, LabelSelector, go_quote};

fn labelled(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

#[test]
fn label_selectors_match_as_their_grammar_says() {
    let object = labelled(json!({"a": "b", "n": "5", "in": "notin", "e": "", "example.com/x": "y"}));
    let yes = [
        "",
        " ",
        "a",
        "!z",
        "a=b",
        "a==b",
        "a!=c",
        "z!=b",
        "a in (b,c)",
        "a notin (c)",
        "z notin (b)",
        "n>4",
        "n<6",
        "a=b,n=5",
        "a = b , n",
        "in in (notin)",
        "in=notin",
        "e=",
        "e in ()",
        "e in (,)",
        "a in (b,,c)",
        "example.com/x=y",
        "!z,a",
    ];
    let no = ["z", "!a", "a=c", "a!=b", "a in (c)", "a notin (b)", "n>5", "n<5", "a>1", "z>1", "a=b,n=6", "a=", "e!="];
    for (text, expected) in yes.iter().map(|text| (text, true)).chain(no.iter().map(|text| (text, false))) {
        assert_eq!(LabelSelector::parse(text).unwrap().matches_object(&object), expected, "{text:?}");
    }
    assert!(LabelSelector::parse("!a").unwrap().matches_object(&json!({})));
}

#[test]
fn label_selectors_are_refused_in_the_words_of_the_reference() {
    let value_rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                      and \
                      must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                      regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let table = [
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be \
             an integer",
        ),
        ("a=b!", "found '!', expected: ',' or 'end of string'"),
        ("a=-", &format!("unable to parse requirement: values[0][a]: Invalid value: \"-\": {value_rule}")),
        ("/a", "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty"),
    ];
    for (text, expected) in table {
        assert_eq!(LabelSelector::parse(text).unwrap_err(), expected, "{text}");
    }
    let long = "k".repeat(64);
    let error = LabelSelector::parse(&long).unwrap_err();
    assert!(error.ends_with("name part must be no more than 63 bytes"), "{error}");
}

#[test]
fn field_selectors_match_as_their_grammar_says() {
    let labels = FieldLabels::of("", "pods");
    let object = json!({
        "metadata": {"name": "p", "namespace": "conf"},
        "spec": {"nodeName": "n=1,x", "hostNetwork": true},
        "status": {"phase": "Running"},
    });
    let yes = [
        "",
        ",",
        "metadata.name=p",
        "metadata.name==p",
        "metadata.name!=q",
        "spec.nodeName=n\\=1\\,x",
        "spec.host=n\\=1\\,x",
        "spec.hostNetwork=true",
        "status.podIP=",
        "status.podIPs=",
        "metadata.name=p,status.phase!=Failed",
    ];
    let no = ["metadata.name=q", "metadata.name!=p", "metadata.name=p,status.phase=Failed", "spec.hostNetwork=false"];
    for (text, expected) in yes.iter().map(|text| (text, true)).chain(no.iter().map(|text| (text, false))) {
        let selector = labels.check(FieldSelector::parse(text).unwrap()).unwrap();
        assert_eq!(selector.matches_object(&labels, &object), expected, "{text:?}");
    }
    let node = FieldLabels::of("", "nodes");
    let schedulable = node.check(FieldSelector::parse("spec.unschedulable=false").unwrap()).unwrap();
    assert!(schedulable.matches_object(&node, &json!({"spec": {}})), "an absent flag is false");
}

/// Rules: API-C191, API-K41
#[test]
fn events_are_found_by_what_they_are_about() {
    // API-C191, and API-K41: an event without an apiVersion does not match one.
    let core = FieldLabels::of("", "events");
    let event = json!({"involvedObject": {"kind": "PersistentVolumeClaim", "name": "c1"}, "reportingComponent": "r"});
    let matches = |labels: &FieldLabels, text: &str, object: &Value| {
        labels.check(FieldSelector::parse(text).unwrap()).unwrap().matches_object(labels, object)
    };
    assert!(matches(&core, "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=c1", &event));
    assert!(!matches(&core, "involvedObject.name=c1,involvedObject.apiVersion=v1", &event));
    assert!(matches(&core, "source=r", &event));
    let own = FieldLabels::of("events.k8s.io", "events");
    assert!(matches(&own, "regarding.name=c1", &json!({"regarding": {"name": "c1"}})));
}

#[test]
fn unknown_fields_are_refused_in_one_of_two_ways() {
    let check = |labels: FieldLabels, text: &str| labels.check(FieldSelector::parse(text).unwrap()).unwrap_err();
    let two = "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!(check(FieldLabels::of("storage.k8s.io", "csinodes"), "spec.x=1"), two);
    assert_eq!(check(FieldLabels::of("", "pods"), "spec.x=1"), "field label not supported: spec.x");
    assert_eq!(
        check(FieldLabels::of("", "nodes"), "metadata.namespace=a"),
        "field label not supported: metadata.namespace"
    );
    assert_eq!(check(FieldLabels::custom::<&str>(&[]), "spec.x=1"), "field label not supported: spec.x");
    let custom = FieldLabels::custom(&[".spec.x"]);
    let selector = custom.check(FieldSelector::parse("spec.x=1").unwrap()).unwrap();
    assert!(selector.matches_object(&custom, &json!({"spec": {"x": 1}})));
}

#[test]
fn field_selectors_that_cannot_be_read_say_why() {
    let table = [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
        ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("a=\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ];
    for (text, expected) in table {
        assert_eq!(FieldSelector::parse(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn what_a_selector_says_twice_counts_once_and_there_is_a_limit() {
    let text = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(",");
    let again = LabelSelector::parse(&text(10_000, &|number| ["!a", "b=c", "a!=d"][number % 3].to_owned())).unwrap();
    assert_eq!(again.requirements().len(), 3);
    assert_eq!(
        LabelSelector::parse(&text(1_000, &|number| format!("!a{number}"))).unwrap().requirements().len(),
        1_000
    );
    let says = "the selector has 1001 different requirements: at most 1000 are allowed";
    assert_eq!(LabelSelector::parse(&text(1_001, &|number| format!("!a{number}"))).unwrap_err(), says);
    let again = FieldSelector::parse(&text(10_000, &|_| "metadata.name!=a".to_owned())).unwrap();
    assert_eq!(again.terms().len(), 1);
    assert_eq!(FieldSelector::parse(&text(1_001, &|number| format!("metadata.name!=a{number}"))).unwrap_err(), says);
}

#[test]
fn quotes_are_those_of_the_reference() {
    let table =
        [("a\"b\\", r#""a\"b\\""#), ("\u{0}\u{7f}", r#""\x00\x7f""#), ("\u{a0}", r#""\u00a0""#), ("é 日", "\"é 日\"")];
    for (text, expected) in table {
        assert_eq!(go_quote(text), expected);
    }
}
