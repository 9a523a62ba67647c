//! Service-account tokens: issue, check, and every way to die (API-8).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::admission::TokenTerms;

use super::super::{BoundKind, TokenError, TokenRequest, TokenSigner, UnixSeconds, request_token};
use super::{ISSUER, NOW, Objects, objects, shown, signer};

fn request(signer: &TokenSigner, body: &Value) -> Result<Value, super::Refusal> {
    let terms = TokenTerms::AsAsked;
    let request = TokenRequest { namespace: "conf", name: "sa1", body, id: "jti-1", now: NOW, terms };
    request_token(signer, &request, &objects()).map(|issued| issued.object)
}

fn token(signer: &TokenSigner, spec: Value) -> String {
    let answer = request(signer, &json!({"spec": spec})).unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn payload(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

fn check(signer: &TokenSigner, token: &str, objects: &Objects, after: i64) -> Result<super::User, TokenError> {
    signer.verify(token, &[ISSUER.to_owned()], objects, UnixSeconds(NOW.0 + after)).map(|(user, _)| user)
}

/// Rule: API-C200
#[test]
fn a_token_request_answers_with_a_signed_token() {
    let signer = signer();
    let answer = request(&signer, &json!({"spec": {"expirationSeconds": 600}})).unwrap();
    assert_eq!(answer["status"]["expirationTimestamp"], "2027-01-15T08:10:00Z");
    assert_eq!(answer["spec"], json!({"audiences": [ISSUER], "expirationSeconds": 600, "boundObjectRef": null}));
    assert_eq!(answer["metadata"]["uid"], "sa-uid");
    let token = answer["status"]["token"].as_str().unwrap();
    assert_eq!(token.split('.').count(), 3);
    assert_eq!(
        payload(token),
        json!({
            "iss": ISSUER, "sub": "system:serviceaccount:conf:sa1", "aud": [ISSUER], "jti": "jti-1",
            "iat": NOW.0, "nbf": NOW.0, "exp": NOW.0 + 600,
            "kubernetes.io": {"namespace": "conf", "serviceaccount": {"name": "sa1", "uid": "sa-uid"}},
        })
    );
    let user = check(&signer, token, &objects(), 0).unwrap();
    assert_eq!(user.name, "system:serviceaccount:conf:sa1");
    assert_eq!(user.uid, "sa-uid");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:conf", "system:authenticated"]);
    assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=jti-1"]);
}

#[test]
fn token_requests_are_refused_in_the_words_of_the_reference() {
    let signer = signer();
    let pod = |name: &str, more: Value| {
        let mut reference = json!({"kind": "Pod", "apiVersion": "v1", "name": name});
        reference.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"spec": {"boundObjectRef": reference}})
    };
    let invalid =
        "422 Invalid: TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value:";
    let table = [
        (
            json!({"spec": {"expirationSeconds": 599}}),
            format!("{invalid} 599: may not specify a duration less than 10 minutes"),
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            format!("{invalid} 4294967297: may not specify a duration larger than 2^32 seconds"),
        ),
        (
            json!({"metadata": {"name": "other"}}),
            "422 Invalid: TokenRequest.authentication.k8s.io \"sa1\" is invalid: metadata.name: Invalid value: \
             \"other\": must match the service account name if specified"
                .into(),
        ),
        (pod("none", json!({})), "404 NotFound: pods \"none\" not found".into()),
        (
            pod("p", json!({"uid": "x"})),
            "409 Conflict: Operation cannot be fulfilled on Pod \"p\": the UID in the bound object reference (x) does \
             not match the UID in record. The object might have been deleted and then recreated"
                .into(),
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Job", "apiVersion": "batch/v1", "name": "j"}}}),
            "400 BadRequest: cannot bind token to object of type batch/v1, Kind=Job".into(),
        ),
    ];
    for (body, expected) in table {
        assert_eq!(shown(request(&signer, &body)), expected);
    }
    let (body, terms) = (pod("p", json!({})), TokenTerms::AsAsked);
    let elsewhere = TokenRequest { namespace: "conf", name: "sa2", body: &body, id: "i", now: NOW, terms };
    assert_eq!(
        shown(request_token(&signer, &elsewhere, &objects())),
        "400 BadRequest: cannot bind token for serviceaccount \"sa2\" to pod running with different serviceaccount \
         name."
    );
    let nobody = TokenRequest { name: "none", ..elsewhere };
    assert_eq!(shown(request_token(&signer, &nobody, &objects())), "404 NotFound: serviceaccounts \"none\" not found");
}

#[test]
fn a_token_lives_from_its_issue_to_its_expiry_give_or_take_a_minute() {
    let signer = signer();
    let token = token(&signer, json!({"expirationSeconds": 600}));
    let at = |after| check(&signer, &token, &objects(), after).map(|_| ());
    assert_eq!(at(-61), Err(TokenError::NotYet));
    assert_eq!(at(-60), Ok(()));
    assert_eq!(at(660), Ok(()));
    assert_eq!(at(661), Err(TokenError::Expired));
}

#[test]
fn a_token_dies_with_what_it_is_bound_to() {
    let signer = signer();
    let bound = |kind: &str, name: &str| {
        token(&signer, json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}}))
    };
    let (pod, secret, node) = (bound("Pod", "p"), bound("Secret", "s"), bound("Node", "n"));
    let user = check(&signer, &pod, &objects(), 0).unwrap();
    let told = |key: &str| user.extra[&format!("authentication.kubernetes.io/{key}")].join(",");
    assert_eq!(
        (told("pod-name"), told("pod-uid"), told("node-name"), told("node-uid")),
        ("p".into(), "pod-uid".into(), "n".into(), "node-uid".into())
    );
    let account =
        || Objects::default().with(BoundKind::ServiceAccount, "conf", "sa1", json!({"metadata": {"uid": "sa-uid"}}));
    for token in [&pod, &secret, &node] {
        assert_eq!(check(&signer, token, &account(), 0), Err(TokenError::Invalidated));
    }
    let reborn = account().with(BoundKind::Pod, "conf", "p", json!({"metadata": {"uid": "new"}}));
    assert_eq!(
        check(&signer, &pod, &reborn, 0).unwrap_err().to_string(),
        "pod UID (new) does not match service account pod ref claim (pod-uid)"
    );
    // A deleted pod may use its token for one more minute.
    let leaving = json!({"metadata": {"uid": "pod-uid", "deletionTimestamp": "2027-01-15T08:00:00Z"}});
    let leaving = account().with(BoundKind::Pod, "conf", "p", leaving);
    assert!(check(&signer, &pod, &leaving, 60).is_ok());
    assert_eq!(check(&signer, &pod, &leaving, 61), Err(TokenError::Invalidated));
    let other =
        Objects::default().with(BoundKind::ServiceAccount, "conf", "sa1", json!({"metadata": {"uid": "other"}}));
    assert_eq!(
        check(&signer, &pod, &other, 0).unwrap_err().to_string(),
        "service account UID (other) does not match claim (sa-uid)"
    );
    assert_eq!(check(&signer, &pod, &Objects::default(), 0), Err(TokenError::NoAccount("sa1".into())));
}

/// Rule: API-8
#[test]
fn the_token_of_a_pod_itself_outlives_what_it_asked_for() {
    // 3607 seconds are really a year, and the holder is warned.
    let signer = signer();
    let spec = json!({"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    let token = token(&signer, spec);
    assert_eq!(payload(&token)["exp"], NOW.0 + 365 * 24 * 60 * 60);
    assert_eq!(payload(&token)["kubernetes.io"]["warnafter"], NOW.0 + 3607);
    assert!(check(&signer, &token, &objects(), 4000).is_ok());
}

#[test]
fn a_token_for_somebody_else_is_not_for_us() {
    let signer = signer();
    let token = token(&signer, json!({"audiences": ["vault"]}));
    assert_eq!(
        check(&signer, &token, &objects(), 0).unwrap_err().to_string(),
        "token audiences [\"vault\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]"
    );
}

#[test]
fn a_forged_token_is_worth_nothing() {
    let (ours, theirs) = (signer(), signer());
    let good = token(&ours, json!({}));
    let parts: Vec<&str> = good.split('.').collect();
    let encode = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let mut claims = payload(&good);
    claims["sub"] = "system:serviceaccount:kube-system:admin".into();
    let other_issuer = json!({"iss": "https://elsewhere"});
    let table = [
        (format!("{}.{}.{}", parts[0], encode(claims.clone()), parts[2]), TokenError::Signature),
        (format!("{}.{}.", encode(json!({"alg": "none"})), encode(claims.clone())), TokenError::NotOurs),
        (format!("{}.{}.{}", encode(json!({"alg": "ES256"})), encode(claims), parts[2]), TokenError::Signature),
        (format!("{}.{}.{}", parts[0], encode(other_issuer), parts[2]), TokenError::NotOurs),
        (token(&theirs, json!({})), TokenError::UnknownKey),
        (format!("{}.{}", parts[0], parts[1]), TokenError::NotOurs),
        (format!("{good}x"), TokenError::NotOurs),
        ("x".into(), TokenError::NotOurs),
        ("..".into(), TokenError::NotOurs),
        (String::new(), TokenError::NotOurs),
        ("a".repeat(1 << 20), TokenError::NotOurs),
    ];
    for (token, expected) in table {
        assert_eq!(check(&ours, &token, &objects(), 0), Err(expected));
    }
}

#[test]
fn neither_keys_nor_tokens_print() {
    let signer = signer();
    let shown = format!("{signer:?}");
    assert!(shown.contains("issuer") && !shown.contains("EcdsaKeyPair {"), "{shown}");
    let authenticator = super::authenticator();
    assert!(!format!("{authenticator:?}").contains("boot-secret"));
    let credentials = super::super::Credentials { authorization: Some("Bearer boot-secret"), certificate: None };
    assert!(!format!("{credentials:?}").contains("boot-secret"));
    for key in [&b"not a key"[..], &[][..]] {
        assert!(TokenSigner::new(key, ISSUER).is_err());
    }
}
