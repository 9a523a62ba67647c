//! The texts clients match.

use super::*;

const CLAIMS: Resource<'_> = Resource::new("", "persistentvolumeclaims");

#[test]
fn every_failure_class_has_its_code_reason_and_text() {
    let attachments = Resource::new("storage.k8s.io", "volumeattachments");
    let cases = [
        (ApiError::not_found(CLAIMS, "zz"), 404, "NotFound", "persistentvolumeclaims \"zz\" not found"),
        (ApiError::already_exists(CLAIMS, "c1"), 409, "AlreadyExists", "persistentvolumeclaims \"c1\" already exists"),
        (
            ApiError::being_deleted(Resource::new("", "configmaps"), "d1"),
            409,
            "AlreadyExists",
            "object is being deleted: configmaps \"d1\" already exists",
        ),
        (
            ApiError::modified(attachments, "x"),
            409,
            "Conflict",
            "Operation cannot be fulfilled on volumeattachments.storage.k8s.io \"x\": the object has been modified; \
             please apply your changes to the latest version and try again",
        ),
        (ApiError::too_large(3_145_728), 413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
        (ApiError::forbidden(CLAIMS, "", "no"), 403, "Forbidden", "persistentvolumeclaims is forbidden: no"),
        (
            ApiError::version_required(Resource::new("storage.k8s.io", "csinodes"), "x"),
            422,
            "Invalid",
            "csinodes.storage.k8s.io \"x\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified \
             for an update",
        ),
    ];
    for (error, code, reason, message) in cases {
        assert_eq!((error.code, error.reason.as_str(), error.message.as_str()), (code, reason, message));
    }
}

#[test]
fn the_race_body_is_the_documented_one() {
    let expected = json!({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on persistentvolumeclaims \"c1\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"c1","kind":"persistentvolumeclaims"},"code":409});
    assert_eq!(ApiError::modified(CLAIMS, "c1").to_json(), expected);
}

#[test]
fn a_message_says_equal_problems_once_and_the_causes_say_all() {
    let twice = FieldError::forbidden("metadata.finalizers", "no");
    let other = FieldError::required("spec.resources[storage]", "");
    let kind = Resource::new("", "PersistentVolumeClaim");
    let status = ApiError::invalid(kind, "x", &[twice.clone(), twice.clone(), other]);
    assert_eq!(
        status.message,
        "PersistentVolumeClaim \"x\" is invalid: [metadata.finalizers: Forbidden: no, spec.resources[storage]: \
         Required value]"
    );
    assert_eq!(status.details.map(|details| details.causes.len()), Some(3));
    let single = ApiError::invalid(kind, "x", &[twice.clone(), twice]);
    assert_eq!(single.message, "PersistentVolumeClaim \"x\" is invalid: metadata.finalizers: Forbidden: no");
}

#[test]
fn values_are_printed_as_go_prints_them() {
    let cases = [
        (json!("a\"b\u{1}"), "\"a\\\"b\\x01\""),
        (json!(5), "5"),
        (json!(false), "false"),
        (Value::Null, "null"),
        (json!(["Foo"]), "[\"Foo\"]"),
        (json!({"b": "<", "a": 1}), "{\"a\":1,\"b\":\"\\u003c\"}"),
    ];
    for (value, expected) in cases {
        assert_eq!(FieldError::invalid("f", value, "why").body(), format!("Invalid value: {expected}: why"));
    }
}

/// Rule: API-C026
#[test]
fn an_error_without_a_reason_has_no_reason_key() {
    let status = ApiError::version_on_create().to_json();
    assert_eq!(status["code"], 500);
    assert!(status.get("reason").is_none(), "API-C026: {status}");
}

#[test]
fn a_success_status_has_no_code() {
    let status = deleted(Resource::new("", "configmaps"), "d2", "u");
    assert_eq!(status["details"], json!({"name": "d2", "kind": "configmaps", "uid": "u"}));
    assert!(status.get("code").is_none());
}

/// Found by the fuzzer: a list with the same mistake in every item was answered with many times its size, after comparing
/// each error with each other one.
#[test]
fn errors_are_told_up_to_a_limit() {
    let errors: Vec<FieldError> = (0..200_000).map(|at| FieldError::required(format!("l[{at}]"), "")).collect();
    let told = ApiError::invalid(Resource::new("", "Kind"), "n", &errors);
    assert_eq!(told.details.map(|details| details.causes.len()), Some(1_000));
    let long = [FieldError::required("f".repeat(2 << 20), ""), FieldError::required("g", "")];
    let told = ApiError::invalid(Resource::new("", "Kind"), "n", &long);
    assert_eq!(told.details.map(|details| details.causes.len()), Some(1), "the first is always told");
}
