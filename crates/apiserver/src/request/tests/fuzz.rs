//! No input panics, and what the parsers print they read back.

use proptest::prelude::*;
use serde_json::Value;

use super::super::{
    ContinueAt, ContinueToken, DeleteOptions, FieldLabels, FieldSelector, LabelSelector, ListOptions, Offer,
    PatchOptions, PatchType, Query, RequestInfo, ResourceFlavor, TableOptions, Target, WatchOptions, WriteOptions,
    body_type, go_quote, negotiate, negotiate_discovery, patch_type, request_timeout,
};

/// Any text, and texts that come close to meaning something.
fn text() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "a",
        "in",
        "notin",
        "=",
        "==",
        "!=",
        "!",
        "(",
        ")",
        ",",
        ">",
        "<",
        " ",
        "\\",
        "\0",
        "metadata.name",
        "/",
        "%2F",
        "%",
        "&",
        ";",
        "watch=1",
        "resourceVersion=",
        "limit=",
        "continue=",
        "labelSelector=",
        "fieldSelector=",
        "9",
        "api",
        "apis",
        "v1",
        "namespaces",
        "status",
        "application/json",
        "as=Table",
        "q=",
        "*/*",
        "é",
        "s",
        "ms",
        ".",
    ]);
    prop_oneof![any::<String>(), prop::collection::vec(words, 0..24).prop_map(|words| words.concat())]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_request_line_panics(method in text(), path in text(), query in text()) {
        if let Ok(info) = RequestInfo::parse(&method, &path, &query)
            && let Target::Resource(request) = &info.target
        {
            prop_assert!(!request.resource.is_empty() && !request.version.is_empty());
            prop_assert!(request.name.as_deref() != Some(""));
        }
    }

    #[test]
    fn no_option_panics(text in text()) {
        let query = Query::parse(&text).unwrap_or_default();
        let labels = FieldLabels::of("", "pods");
        let _ = ListOptions::parse(&query, &labels);
        let _ = WatchOptions::parse(&query, &labels, None);
        let _ = WriteOptions::parse_create(&query);
        let _ = PatchOptions::parse(&query, PatchType::Apply);
        let _ = DeleteOptions::from_query(&query);
        let _ = TableOptions::parse(&query);
        let _ = request_timeout(&query, std::time::Duration::from_secs(60));
        let query = Query::parse(&format!("timeout={text}")).unwrap_or_default();
        let _ = request_timeout(&query, std::time::Duration::MAX);
    }

    #[test]
    fn no_selector_panics(text in text()) {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let _ = selector.matches_object(&Value::Null);
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            let _ = selector.matches_object(&FieldLabels::of("", "events"), &Value::Null);
        }
    }

    #[test]
    fn no_header_panics(text in text()) {
        for offer in [Offer::One, Offer::List, Offer::Watch] {
            let _ = negotiate(&text, offer(ResourceFlavor::BuiltIn));
            let _ = negotiate(&text, offer(ResourceFlavor::Custom));
        }
        let _ = negotiate_discovery(&text);
        let _ = body_type(&text, ResourceFlavor::BuiltIn);
        let _ = patch_type(&text, ResourceFlavor::Custom);
        let _ = go_quote(&text);
    }

    #[test]
    fn a_continue_token_comes_back_as_it_went(
        revision in prop::option::of(1u64..),
        names in prop::collection::vec("[a-z0-9][a-z0-9.]{0,20}[a-z0-9]", 1..3),
    ) {
        let at = revision.map_or(ContinueAt::Newest, ContinueAt::Revision);
        let token = ContinueToken::after(at, &names.join("/"));
        prop_assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn no_continue_token_panics(text in text(), bytes in any::<Vec<u8>>()) {
        use base64::Engine as _;
        let _ = ContinueToken::decode(&text);
        let _ = ContinueToken::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes));
    }
}
