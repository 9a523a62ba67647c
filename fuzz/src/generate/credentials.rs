//! Requests by somebody whose credentials are wrong in every way.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use super::{mutate, texts, values};
use crate::case::{Caller, Step};
use crate::random::Random;

pub(super) fn steps(random: &mut Random) -> Vec<Step> {
    (0..=random.below(4)).map(|_| step(random)).collect()
}

fn step(random: &mut Random) -> Step {
    const PATHS: [&str; 5] = ["/healthz", "/version", "/api/v1/pods", "/api/v1/namespaces/default/secrets/a", "/apis"];
    let mut step = Step::new("GET", *random.pick(&PATHS));
    step.caller = match random.below(4) {
        0 => Caller::Certificate(certificate(random)),
        1 => Caller::Admin,
        _ => Caller::Remote,
    };
    for _ in 0..=random.below(3) {
        let (name, value) = match random.below(5) {
            0 => ("authorization", format!("Bearer {}", texts::any(random))),
            1..=2 => {
                ("authorization", format!("{}{}", random.pick(&["Bearer ", "bearer  ", "Basic ", ""]), token(random)))
            }
            3 => ("impersonate-user", texts::any(random)),
            _ => (
                *random.pick(&["impersonate-group", "impersonate-uid", "impersonate-extra-%00a", "impersonate-extra-"]),
                texts::any(random),
            ),
        };
        step.headers.push((name.to_owned(), value));
    }
    if random.percent(30) {
        let mut review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token(random), "audiences": ["a"]}});
        (0..random.below(2)).for_each(|_| values::change(random, &mut review));
        let body = vec![crate::case::Part::text(review.to_string())];
        let mut review =
            Step::new("POST", "/apis/authentication.k8s.io/v1/tokenreviews").with_body("application/json", body);
        review.headers.append(&mut step.headers);
        step = review;
    }
    step
}

/// Three parts with dots between them, each a little wrong. The signature is never right: nobody has the key.
fn token(random: &mut Random) -> String {
    let mut head = json!({"alg": random.pick(&["ES256", "none", "HS256", "RS256", ""]), "kid": "k", "typ": "JWT"});
    let mut claims = json!({
        "iss": "https://fuzz", "aud": ["https://fuzz"], "exp": 4_000_000_000_u64, "iat": 0, "nbf": i64::MIN,
        "sub": "system:serviceaccount:default:a",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "a", "uid": "u"}},
    });
    (0..random.below(3)).for_each(|_| values::change(random, &mut head));
    (0..random.below(3)).for_each(|_| values::change(random, &mut claims));
    let signature: Vec<u8> = (0..*random.pick(&[0, 1, 63, 64, 65, 5_000])).map(|_| random.byte()).collect();
    let part = |text: String| URL_SAFE_NO_PAD.encode(text);
    let token =
        format!("{}.{}.{}", part(head.to_string()), part(claims.to_string()), URL_SAFE_NO_PAD.encode(signature));
    match random.below(4) {
        0 => String::from_utf8_lossy(&mutate::bytes(random, token.into_bytes())).into_owned(),
        _ => token,
    }
}

/// A real certificate with changed bytes, in base64.
fn certificate(random: &mut Random) -> String {
    let bytes = mutate::bytes(random, crate::http::certificate().to_vec());
    STANDARD.encode(bytes)
}
