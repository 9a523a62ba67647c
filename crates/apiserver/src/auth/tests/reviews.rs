//! Questions about rights and tokens (API-8).

use serde_json::json;

use super::super::{
    RbacKind, TokenRequest, local_subject_access_review, request_token, self_subject_access_review,
    self_subject_review, self_subject_rules_review, subject_access_review, token_review,
};
use super::{ISSUER, NOW, authenticator, binding, first_start, objects, role, shown, user};

/// Rules: API-C194, API-K32, API-K33
#[test]
fn the_administrator_may_and_bob_may_not() {
    let rbac = first_start();
    let body = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "conf"}}});
    let admin = self_subject_access_review(&rbac, &user("admin", &["system:masters"]), &body).unwrap();
    assert_eq!(admin["status"], json!({"allowed": true}), "masters need no reason");
    assert_eq!(admin["spec"], body["spec"]);
    let bob = self_subject_access_review(&rbac, &user("bob", &[]), &body).unwrap();
    assert_eq!(bob["status"], json!({"allowed": false}));
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}});
    let bob = self_subject_access_review(&rbac, &user("bob", &[]), &path).unwrap();
    assert_eq!(bob["status"]["allowed"], true);
    assert_eq!(
        bob["status"]["reason"],
        "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \
         \"system:authenticated\""
    );
}

#[test]
fn a_question_is_about_one_thing() {
    let rbac = first_start();
    let bob = user("bob", &[]);
    let ask = |spec| shown(self_subject_access_review(&rbac, &bob, &json!({"spec": spec})));
    let invalid = "422 Invalid: .authorization.k8s.io \"\" is invalid:";
    assert_eq!(
        ask(json!({})),
        format!(
            "{invalid} spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or \
             resourceAttributes must be specified"
        )
    );
    assert_eq!(
        ask(json!({"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x", "verb": "get"}})),
        format!(
            "{invalid} spec.nonResourceAttributes: Invalid value: {{\"Path\":\"/x\",\"Verb\":\"get\"}}: cannot be \
             specified in combination with resourceAttributes"
        )
    );
    let named = json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": {}}});
    assert!(shown(self_subject_access_review(&rbac, &bob, &named)).ends_with("{\"name\":\"x\"}: must be empty"));
}

#[test]
fn questions_about_others_name_them() {
    let mut rbac = first_start();
    rbac.apply(
        RbacKind::Role,
        &role("conf", "r", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])),
    );
    rbac.apply(RbacKind::RoleBinding, &binding("conf", "b", ("Role", "r"), json!([{"kind": "Group", "name": "ops"}])));
    let spec =
        json!({"groups": ["ops"], "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "conf"}});
    let body = json!({"spec": spec});
    assert_eq!(subject_access_review(&rbac, &body).unwrap()["status"]["allowed"], true);
    assert_eq!(local_subject_access_review(&rbac, "conf", &body).unwrap()["status"]["allowed"], true);
    let elsewhere = shown(local_subject_access_review(&rbac, "other", &body));
    assert!(
        elsewhere.contains("spec.resourceAttributes.namespace: Invalid value: \"conf\": must match metadata.namespace")
    );
    let nobody = shown(subject_access_review(&rbac, &json!({"spec": {"resourceAttributes": {}}})));
    assert!(nobody.ends_with("spec.user: Invalid value: \"\": at least one of user or group must be specified"));
    let path = json!({"spec": {"user": "bob", "nonResourceAttributes": {"path": "/x", "verb": "get"}}});
    assert!(shown(local_subject_access_review(&rbac, "conf", &path)).ends_with("disallowed on this kind of request"));
}

#[test]
fn a_user_sees_the_rules_that_hold_for_them() {
    let mut rbac = first_start();
    rbac.apply(
        RbacKind::RoleBinding,
        &binding("conf", "b", ("Role", "none"), json!([{"kind": "User", "name": "bob"}])),
    );
    let review = self_subject_rules_review(&rbac, &user("bob", &[]), &json!({"spec": {"namespace": "conf"}})).unwrap();
    let status = &review["status"];
    assert_eq!(status["resourceRules"][1]["resources"], json!(["selfsubjectreviews"]));
    assert_eq!(status["nonResourceRules"][0]["verbs"], json!(["get"]));
    assert_eq!(status["incomplete"], false);
    assert_eq!(status["evaluationError"], "role.rbac.authorization.k8s.io \"none\" not found");
    let nowhere = shown(self_subject_rules_review(&rbac, &user("bob", &[]), &json!({})));
    assert_eq!(nowhere, "400 BadRequest: no namespace on request");
}

/// Rule: API-C195
#[test]
fn a_user_is_told_who_they_are() {
    let review = self_subject_review(&user("bob", &["ops"]), NOW);
    assert_eq!(review["status"]["userInfo"], json!({"username": "bob", "groups": ["ops", "system:authenticated"]}));
    assert_eq!(review["metadata"]["creationTimestamp"], "2027-01-15T08:00:00Z");
}

/// Rule: API-C202
#[test]
fn a_token_review_says_whose_a_token_is() {
    let authenticator = authenticator();
    let terms = crate::admission::TokenTerms::AsAsked;
    let request = TokenRequest { namespace: "conf", name: "sa1", body: &json!({}), id: "i", now: NOW, terms };
    let answer = request_token(authenticator.signer(), &request, &objects()).unwrap().object;
    let token = answer["status"]["token"].as_str().unwrap();
    let review = |spec| token_review(&authenticator, &json!({"spec": spec}), &objects(), NOW);
    let good = review(json!({"token": token})).unwrap();
    assert_eq!(good["status"]["authenticated"], true);
    assert_eq!(good["status"]["audiences"], json!([ISSUER]));
    assert_eq!(good["status"]["user"]["username"], "system:serviceaccount:conf:sa1");
    let bad = review(json!({"token": "x"})).unwrap();
    assert_eq!(bad["status"], json!({"user": {}, "error": "invalid bearer token"}));
    let other = review(json!({"token": token, "audiences": ["vault"]})).unwrap();
    let error = format!("token audiences [\"{ISSUER}\"] is invalid for the target audiences [\"vault\"]");
    assert_eq!(other["status"], json!({"user": {}, "error": error}));
    let fixed = review(json!({"token": "boot-secret"})).unwrap();
    assert_eq!(fixed["status"]["user"]["groups"], json!(["system:masters", "ops", "system:authenticated"]));
    let empty = shown(review(json!({})));
    assert_eq!(empty, "400 BadRequest: token is required for TokenReview in authentication");
}
