//! Options of reads and writes, and their complaints (API-2.1, API-3.1 to API-3.3, API-4.1, API-4.3, API-4.4).

use std::time::Duration;

use serde_json::{Value, json};

use super::super::{
    ContinueAt, ContinueToken, DeleteOptions, DryRun, FieldLabels, FieldValidation, Freshness, GetOptions,
    IncludeObject, ListOptions, ListRead, PatchOptions, PatchType, Preconditions, Propagation, TableOptions,
    WatchOptions, WatchStart, WriteOptions, field_manager, request_timeout,
};
use super::{query, shown};

fn pvc() -> FieldLabels {
    FieldLabels::of("", "persistentvolumeclaims")
}

fn list(text: &str) -> Result<ListOptions, super::Refusal> {
    ListOptions::parse(&query(text), &pvc())
}

fn watch(text: &str) -> Result<WatchOptions, super::Refusal> {
    WatchOptions::parse(&query(text), &pvc(), None)
}

/// Rule: API-3.1
#[test]
fn a_version_a_match_and_a_limit_make_one_kind_of_read() {
    let at = ListRead::At;
    let table = [
        ("", at(Freshness::Newest), None),
        ("limit=5", at(Freshness::Newest), Some(5)),
        ("limit=-5", at(Freshness::Newest), None),
        ("limit=0", at(Freshness::Newest), None),
        ("resourceVersion=0", at(Freshness::Any), None),
        ("resourceVersion=0&limit=5", at(Freshness::Any), None),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", at(Freshness::Any), None),
        ("resourceVersion=7", at(Freshness::NotOlderThan(7)), None),
        ("resourceVersion=7&limit=5", ListRead::Exactly(7), Some(5)),
        ("resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan", at(Freshness::NotOlderThan(7)), Some(5)),
        ("resourceVersion=7&resourceVersionMatch=Exact", ListRead::Exactly(7), None),
    ];
    for (text, read, limit) in table {
        let options = list(text).unwrap();
        assert_eq!((options.read, options.limit), (read, limit), "{text}");
    }
}

/// Rules: API-C089, API-C100, API-C093, API-C094
#[test]
fn lists_are_refused_in_the_words_of_the_reference() {
    let of_match = "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch:";
    let without_version = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    let unsupported = "Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"";
    let zero = "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
    let syntax = |function: &str, text: &str| format!("strconv.{function}: parsing \"{text}\": invalid syntax");
    let table = [
        ("resourceVersionMatch=Exact", format!("{of_match} {without_version}")),
        ("resourceVersion=1&resourceVersionMatch=Foo", format!("{of_match} {unsupported}")),
        // API-C089
        ("resourceVersion=0&resourceVersionMatch=Exact", format!("{of_match} {zero}")),
        // API-C100
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is \
             forbidden for list"
                .into(),
        ),
        (
            "resourceVersionMatch=Foo&continue=x",
            format!(
                "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: {without_version}, \
                 resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided, \
                 resourceVersionMatch: {unsupported}]"
            ),
        ),
        ("limit=x", format!("400 BadRequest: {}", syntax("ParseInt", "x"))),
        (
            "resourceVersion=abc",
            format!(
                "400 BadRequest: invalid resource version: resourceVersion: Invalid value: \"abc\": {}",
                syntax("ParseUint", "abc")
            ),
        ),
        // API-C093
        (
            "fieldSelector=spec.volumeName%3Dx",
            "400 BadRequest: \"spec.volumeName\" is not a known field selector: only \"metadata.name\", \
             \"metadata.namespace\""
                .into(),
        ),
        // API-C094
        (
            "labelSelector=a%20in%20(b",
            "400 BadRequest: unable to parse requirement: found '', expected: ',' or ')'".into(),
        ),
        ("fieldSelector=a", "400 BadRequest: invalid selector: 'a'; can't understand 'a'".into()),
    ];
    for (text, expected) in table {
        assert_eq!(shown(list(text)), expected, "{text}");
    }
}

/// Rules: API-3.1, API-C088
#[test]
fn a_page_continues_in_the_state_of_the_first() {
    // The token byte for byte.
    let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjIwLCJzdGFydCI6Ii9jMVx1MDAwMCJ9";
    let token = ContinueToken::after(ContinueAt::Revision(220), "c1");
    assert_eq!(token.encode(), text);
    assert_eq!(list(&format!("limit=1&continue={text}")).unwrap().read, ListRead::Continue(token.clone()));
    assert_eq!(list(&format!("limit=1&resourceVersion=0&continue={text}")).unwrap().limit, Some(1));
    let newest = ContinueToken { at: ContinueAt::Newest, ..token };
    assert_eq!(newest.encode(), "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYzFcdTAwMDAifQ");
    assert_eq!(ContinueToken::decode(&newest.encode()), Ok(newest));
    let both = shown(list(&format!("resourceVersion=5&continue={text}")));
    assert_eq!(both, "400 BadRequest: specifying resource version is not allowed when using continue");
}

#[test]
fn a_token_that_was_not_given_out_is_refused() {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let tokens = [
        "abc".to_owned(),
        "%%%".to_owned(),
        encode("[]"),
        encode(r#"{"v":"meta.k8s.io/v2","rv":1,"start":"/a"}"#),
        encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"/a"}"#),
        encode(r#"{"v":"meta.k8s.io/v1","rv":1.5,"start":"/a"}"#),
        encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
        encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/"}"#),
        encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/../secrets/a"}"#),
        encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}"#),
    ];
    for token in tokens {
        let answer = shown(ContinueToken::decode(&token));
        assert!(answer.starts_with("400 BadRequest: invalid continue token: continue key is not valid"), "{answer}");
    }
}

/// Rules: API-3.2, API-3.3, API-0.3, API-C096, API-C097
#[test]
fn a_watch_starts_where_its_version_says() {
    // Without a version it starts with the state, also if nobody asked for that.
    let table = [
        ("", WatchStart::State(Freshness::Newest)),
        ("resourceVersion=0", WatchStart::State(Freshness::Any)),
        ("resourceVersion=7", WatchStart::After(7)),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", WatchStart::State(Freshness::Newest)),
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7",
            WatchStart::State(Freshness::NotOlderThan(7)),
        ),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", WatchStart::Now),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=7", WatchStart::After(7)),
    ];
    for (text, start) in table {
        assert_eq!(watch(text).unwrap().start, start, "{text}");
    }
    // The bookmark that ends the state is for those who take bookmarks.
    assert!(watch("resourceVersion=0&allowWatchBookmarks=true").unwrap().wants_initial_bookmark());
    assert!(!watch("resourceVersion=0").unwrap().wants_initial_bookmark());
    assert!(!watch("resourceVersion=7&allowWatchBookmarks=true").unwrap().wants_initial_bookmark());
    assert_eq!(watch("timeoutSeconds=5").unwrap().timeout, Some(Duration::from_secs(5)));
    assert_eq!(watch("timeoutSeconds=0").unwrap().timeout, None);
}

/// Rules: API-C098, API-C099
#[test]
fn watches_are_refused_in_the_words_of_the_reference() {
    let invalid = "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden:";
    assert_eq!(
        shown(watch("sendInitialEvents=true")),
        format!("{invalid} sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    );
    assert_eq!(
        shown(watch("resourceVersion=1&resourceVersionMatch=NotOlderThan")),
        format!("{invalid} resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    );
    assert_eq!(watch("resourceVersion=x").unwrap_err().code(), 500);
    assert_eq!(watch("sendInitialEvents=true&resourceVersionMatch=Exact").unwrap_err().code(), 422);
}

#[test]
fn the_deprecated_watch_of_one_object_selects_its_name() {
    let one = |text: &str| WatchOptions::parse(&query(text), &pvc(), Some("c1"));
    assert_eq!(one("").unwrap().fields.requires_exact("metadata.name"), Some("c1"));
    assert!(one("fieldSelector=metadata.name%3Dc1").is_ok());
    assert_eq!(
        shown(one("fieldSelector=metadata.name%3Dc2")),
        "400 BadRequest: fieldSelector metadata.name doesn't match requested name"
    );
}

#[test]
fn one_object_is_read_at_a_version_too() {
    assert_eq!(GetOptions::parse(&query("")).unwrap().read, Freshness::Newest);
    assert_eq!(GetOptions::parse(&query("resourceVersion=9")).unwrap().read, Freshness::NotOlderThan(9));
    assert_eq!(
        shown(GetOptions::parse(&query("resourceVersion=-1"))),
        "500 : resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax"
    );
}

#[test]
fn tables_include_what_is_asked() {
    assert_eq!(TableOptions::parse(&query("")).unwrap().include, IncludeObject::Metadata);
    assert_eq!(TableOptions::parse(&query("includeObject=None")).unwrap().include, IncludeObject::None);
    assert_eq!(
        shown(TableOptions::parse(&query("includeObject=All"))),
        "400 BadRequest: Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be \
         'Metadata', 'Object', 'None', or empty"
    );
}

/// Rules: API-C040, API-C069
#[test]
fn writers_say_who_they_are_and_how_strict_to_be() {
    let options = WriteOptions::parse_create(&query("dryRun=All&fieldManager=m&fieldValidation=Strict")).unwrap();
    assert_eq!(options.dry_run, DryRun::All);
    assert_eq!(options.field_manager.as_deref(), Some("m"));
    assert_eq!(options.field_validation, FieldValidation::Strict);
    let table = [
        (
            // API-C040
            shown(WriteOptions::parse_create(&query("fieldValidation=Foo"))),
            "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Foo\": \
             supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        ),
        (
            shown(WriteOptions::parse_update(&query("dryRun=Foo"))),
            "422 Invalid: UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Foo\"]: supported \
             values: \"All\"",
        ),
        (
            // API-C069
            shown(PatchOptions::parse(&query(""), PatchType::Apply)),
            "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for \
             apply patch",
        ),
        (
            shown(PatchOptions::parse(&query("force=false"), PatchType::Merge)),
            "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for \
             non-apply patch",
        ),
        (
            shown(WriteOptions::parse_create(&query("fieldManager=a%07b"))),
            "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\ab\": invalid \
             character U+0007 (at position 1)",
        ),
    ];
    for (actual, expected) in table {
        assert_eq!(actual, expected);
    }
    let long = format!("fieldManager={}", "m".repeat(129));
    assert!(shown(WriteOptions::parse_create(&query(&long))).ends_with("Too long: may not be more than 128 bytes"));
    assert!(PatchOptions::parse(&query("fieldManager=m&force"), PatchType::Apply).unwrap().force);
}

/// Rule: API-4.6
#[test]
fn a_writer_without_a_name_is_known_by_its_program() {
    assert_eq!(field_manager(Some("m"), "kubectl/v1"), "m");
    assert_eq!(field_manager(None, "kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(field_manager(None, ""), "unknown");
    assert_eq!(field_manager(None, &"a".repeat(200)).len(), 128);
}

/// Rules: API-C177, API-C178, API-C208
#[test]
fn delete_options_come_from_the_query_or_the_body() {
    let from_query = DeleteOptions::from_query(&query("propagationPolicy=Foreground&gracePeriodSeconds=0")).unwrap();
    assert_eq!(from_query.propagation, Some(Propagation::Foreground));
    assert_eq!(from_query.grace_period_seconds, Some(0));
    let body = json!({"apiVersion": "storage.k8s.io/v1", "kind": "DeleteOptions", "dryRun": ["All"],
        "propagationPolicy": "Background", "preconditions": {"uid": "abc"}});
    let from_body = DeleteOptions::from_body(&body, "storage.k8s.io/v1").unwrap();
    assert_eq!((from_body.propagation, from_body.dry_run), (Some(Propagation::Background), DryRun::All));
    assert_eq!(from_body.preconditions, Preconditions { uid: Some("abc".into()), resource_version: None });
    let body = |body: Value| shown(DeleteOptions::from_body(&body, "v1"));
    assert!(body(json!({"apiVersion": "apps/v1", "kind": "DeleteOptions"})).starts_with("400 BadRequest: no kind"));
    assert!(body(json!({"kind": "Pod"})).starts_with("400 BadRequest: no kind \"Pod\""));
    assert!(body(json!({"gracePeriodSeconds": "1"})).starts_with("400 BadRequest: gracePeriodSeconds"));
    assert_eq!(
        body(json!({"orphanDependents": true, "propagationPolicy": "Foo"})),
        "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: [propagationPolicy: Invalid value: \"Foo\": \
         orphanDependents and deletionPropagation cannot be both set, propagationPolicy: Unsupported value: \"Foo\": \
         supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"]"
    );
}

#[test]
fn a_client_may_only_shorten_the_time_of_a_request() {
    let most = Duration::from_secs(60);
    let table = [("", 60), ("timeout=32s", 32), ("timeout=2m", 60), ("timeout=0s", 60), ("timeout=-5s", 60)];
    for (text, seconds) in table {
        assert_eq!(request_timeout(&query(text), most), Ok(Duration::from_secs(seconds)), "{text}");
    }
    assert_eq!(request_timeout(&query("timeout=1m30.5s"), most * 9), Ok(Duration::from_millis(90_500)));
    assert_eq!(
        shown(request_timeout(&query("timeout=5"), most)),
        "400 BadRequest: invalid timeout specified in the request URL - time: invalid duration \"5\""
    );
}
