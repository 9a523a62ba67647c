//! Content types (API-1.7).

use super::super::{
    BodyType, DiscoveryForm, Encoding, MetaVersion, Offer, PatchType, ResourceFlavor, Transform, body_type, negotiate,
    negotiate_discovery, patch_type, wants_pretty,
};
use super::{query, shown};

const ONE: Offer = Offer::One(ResourceFlavor::BuiltIn);
const LIST: Offer = Offer::List(ResourceFlavor::BuiltIn);
const WATCH: Offer = Offer::Watch(ResourceFlavor::BuiltIn);
const CUSTOM: Offer = Offer::One(ResourceFlavor::Custom);
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                       application/json";

/// Rules: API-C043, API-C044
#[test]
fn the_answer_has_a_form_that_the_client_reads() {
    let (json, yaml, protobuf) = (Encoding::Json, Encoding::Yaml, Encoding::Protobuf);
    let table = Some(Transform::Table(MetaVersion::V1));
    let cases = [
        ("", ONE, json, None),
        ("*/*", ONE, json, None),
        ("application/json", LIST, json, None),
        ("application/yaml", ONE, yaml, None),
        ("application/json;q=0.5, application/yaml", ONE, yaml, None),
        // API-C043: protobuf is answered when nothing else will do. API-C044: JSON is preferred where both are read.
        ("application/vnd.kubernetes.protobuf", ONE, protobuf, None),
        ("application/vnd.kubernetes.protobuf, */*", ONE, json, None),
        ("application/vnd.kubernetes.protobuf,application/json", LIST, json, None),
        (KUBECTL, LIST, json, table),
        (KUBECTL, ONE, json, table),
        (
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            WATCH,
            json,
            Some(Transform::Table(MetaVersion::V1Beta1)),
        ),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            LIST,
            json,
            Some(Transform::PartialObjectMetadataList(MetaVersion::V1)),
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            CUSTOM,
            protobuf,
            Some(Transform::PartialObjectMetadata(MetaVersion::V1)),
        ),
        ("application/vnd.kubernetes.protobuf;stream=watch", WATCH, protobuf, None),
        ("application/xml, application/json", ONE, json, None),
        // An unknown shape is skipped if something else is offered.
        ("application/json;as=Foo;v=v1;g=meta.k8s.io, application/json", ONE, json, None),
    ];
    for (accept, offer, encoding, transform) in cases {
        let accepted = negotiate(accept, offer).unwrap();
        assert_eq!((accepted.encoding, accepted.transform), (encoding, transform), "{accept}");
    }
}

/// Rules: API-C042, API-C223, API-C104
#[test]
fn what_cannot_be_answered_is_not_acceptable() {
    let all = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let only = format!("406 NotAcceptable: only the following media types are accepted: {all}");
    let cases = [
        // API-C042
        ("application/xml", ONE, format!("406 NotAcceptable: 406: Not Acceptable\n\nAvailable representations: {all}")),
        (
            "text/html",
            LIST,
            format!("406 NotAcceptable: 406: Not Acceptable\n\nAvailable representations: {all}, {streams}"),
        ),
        ("application/xml", CUSTOM, only.clone()),
        // API-C223
        ("application/vnd.kubernetes.protobuf", CUSTOM, only.clone()),
        ("application/json;as=Foo;v=v1;g=meta.k8s.io", ONE, only.clone()),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", ONE, only),
        (
            "application/yaml",
            WATCH,
            format!("406 NotAcceptable: only the following media types are accepted: {streams}"),
        ),
        // API-C104
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            LIST,
            "406 NotAcceptable: you requested PartialObjectMetadata, but the requested object is a list".into(),
        ),
    ];
    for (accept, offer, expected) in cases {
        assert_eq!(shown(negotiate(accept, offer)), expected, "{accept}");
    }
}

#[test]
fn discovery_is_aggregated_only_in_version_two() {
    let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    let cases = [
        ("", Some(DiscoveryForm::Legacy)),
        ("*/*", Some(DiscoveryForm::Legacy)),
        (v2, Some(DiscoveryForm::Aggregated)),
        (&format!("{v2},{beta},application/json"), Some(DiscoveryForm::Aggregated)),
        (&format!("application/json,{v2}"), Some(DiscoveryForm::Aggregated)),
        (&format!("{beta},application/json"), Some(DiscoveryForm::Legacy)),
        (beta, None),
        ("application/xml", None),
    ];
    for (accept, expected) in cases {
        assert_eq!(negotiate_discovery(accept).ok(), expected, "{accept}");
    }
}

/// Rules: API-C041, API-C064, API-C219
#[test]
fn bodies_and_patches_come_in_known_types() {
    let (built_in, custom) = (ResourceFlavor::BuiltIn, ResourceFlavor::Custom);
    assert_eq!(body_type("", built_in), Ok(BodyType::Json));
    assert_eq!(body_type("Application/JSON; charset=utf-8", custom), Ok(BodyType::Json));
    assert_eq!(body_type("application/vnd.kubernetes.protobuf", built_in), Ok(BodyType::Protobuf));
    assert_eq!(patch_type("application/apply-patch+yaml", custom), Ok(PatchType::Apply));
    assert_eq!(patch_type("application/strategic-merge-patch+json; charset=utf-8", built_in), Ok(PatchType::Strategic));
    let unknown = "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types \
                   include:";
    let all = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!(shown(body_type("application/x-www-form-urlencoded", built_in)), format!("{unknown} {all}"));
    assert_eq!(
        shown(patch_type("application/json", built_in)),
        "415 UnsupportedMediaType: 415: Unsupported Media Type"
    );
    assert_eq!(
        shown(patch_type("application/strategic-merge-patch+json", custom)),
        format!("{unknown} application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")
    );
    assert_eq!(body_type("application/vnd.kubernetes.protobuf", custom).unwrap_err().code(), 415);
    assert_eq!(patch_type("", built_in).unwrap_err().code(), 415);
    assert_eq!(patch_type("application/apply-patch+cbor", built_in).unwrap_err().code(), 415);
}

/// Rules: API-1.1, API-0.14
#[test]
fn people_get_indented_answers() {
    let cases = [
        ("", "kubectl/v1.36", false),
        ("", "curl/8.0", true),
        ("", "Wget/1.2", true),
        ("", "Mozilla/5.0 (X11)", true),
        ("pretty=true", "kubectl/v1.36", true),
        ("pretty=0", "curl/8.0", false),
        ("pretty=", "curl/8.0", true),
    ];
    for (text, agent, expected) in cases {
        assert_eq!(wants_pretty(&query(text), agent), expected, "{text} {agent}");
    }
}
