//! The user of a request: by certificate, by token, anonymous, impersonated (API-8).

use super::super::{
    ClientCertificate, Credentials, Impersonation, Rbac, RbacKind, StaticTokens, TokenFileError, TokenRequest,
    UnixSeconds, User, impersonate, request_token,
};
use super::{NOW, authenticator, binding, first_start, objects, role, shown, user};
use serde_json::json;

/// Rule: API-C198
#[test]
fn a_wrong_credential_is_refused_everywhere_and_none_is_anonymous() {
    let authenticator = authenticator();
    let ask = |authorization: Option<&str>, certificate: Option<&[u8]>| {
        let certificate = certificate.map(ClientCertificate::Trusted);
        let credentials = Credentials { certificate, authorization };
        authenticator.authenticate(credentials, &objects(), NOW).map(|user| user.name)
    };
    assert_eq!(ask(None, None), Ok("system:anonymous".into()));
    let refused = "401 Unauthorized: Unauthorized";
    for header in ["Bearer x", "bearer x", "Bearer boot-secre", "Bearer a.b.c"] {
        assert_eq!(shown(ask(Some(header), None)), refused, "{header}");
    }
    assert_eq!(shown(ask(None, Some(b"not a certificate"))), refused);
    assert_eq!(shown(ask(Some("Basic Ym9iOmJvYg=="), Some(b"not a certificate"))), refused);
    // Another scheme is not a credential of ours, as in the reference.
    for header in ["Basic Ym9iOmJvYg==", "Bearer", "Bearer ", ""] {
        assert_eq!(ask(Some(header), None), Ok("system:anonymous".into()), "{header}");
    }
    assert_eq!(ask(Some("Bearer boot-secret"), None), Ok("bootstrap".into()));
    assert_eq!(ask(Some("Bearer boot-secret"), Some(b"not a certificate")), Ok("bootstrap".into()));
}

#[test]
fn an_expired_token_is_refused() {
    let authenticator = authenticator();
    let body = json!({"spec": {"expirationSeconds": 600}});
    let terms = crate::admission::TokenTerms::AsAsked;
    let request = TokenRequest { namespace: "conf", name: "sa1", body: &body, id: "i", now: NOW, terms };
    let answer = request_token(authenticator.signer(), &request, &objects()).unwrap().object;
    let header = format!("Bearer {}", answer["status"]["token"].as_str().unwrap());
    let credentials = Credentials { authorization: Some(&header), certificate: None };
    let at = |after: i64| authenticator.authenticate(credentials, &objects(), UnixSeconds(NOW.0 + after));
    assert_eq!(at(0).unwrap().name, "system:serviceaccount:conf:sa1");
    assert_eq!(shown(at(3600)), "401 Unauthorized: Unauthorized");
}

#[test]
fn a_token_file_names_users_and_groups() {
    let tokens = StaticTokens::parse("t,bob,u1,\"a, b\"\n").unwrap();
    assert_eq!(format!("{tokens:?}"), "StaticTokens { count: 1 }");
    assert_eq!(StaticTokens::parse("\nt,bob\n").unwrap_err(), TokenFileError::TooFewColumns(2));
    assert_eq!(StaticTokens::parse(",bob,u").unwrap_err(), TokenFileError::TooFewColumns(1));
    assert_eq!(StaticTokens::parse("t,bob,u,\"a").unwrap_err(), TokenFileError::OpenQuote(1));
}

fn wanted(headers: &[(&str, &str)]) -> Impersonation {
    Impersonation::from_headers(headers.iter().copied()).unwrap().unwrap()
}

#[test]
fn the_administrator_may_be_anybody() {
    let admin = user("admin", &["system:masters"]);
    let be = |headers: &[(&str, &str)]| impersonate(&Rbac::default(), &admin, &wanted(headers)).unwrap();
    assert_eq!(be(&[("Impersonate-User", "bob")]).groups, ["system:authenticated"]);
    assert_eq!(be(&[("Impersonate-User", "bob"), ("Impersonate-Group", "g")]).groups, ["g", "system:authenticated"]);
    assert_eq!(
        be(&[("impersonate-user", "system:serviceaccount:conf:sa1")]),
        User { uid: String::new(), ..User::service_account("conf", "sa1", "") }
    );
    assert_eq!(be(&[("Impersonate-User", "system:anonymous")]), User::anonymous());
    let extra = be(&[("Impersonate-User", "bob"), ("Impersonate-Uid", "u"), ("Impersonate-Extra-Acme.com%2fA", "1")]);
    assert_eq!((extra.uid.as_str(), extra.extra["acme.com/a"].as_slice()), ("u", &["1".to_owned()][..]));
}

#[test]
fn others_may_be_whom_a_role_lets_them_be() {
    let mut rbac = first_start();
    let rules = json!([
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
        {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scope"]},
    ]);
    rbac.apply(RbacKind::ClusterRole, &role("", "r", rules));
    rbac.apply(
        RbacKind::ClusterRoleBinding,
        &binding("", "b", ("ClusterRole", "r"), json!([{"kind": "User", "name": "eve"}])),
    );
    let eve = user("eve", &[]);
    let be = |headers: &[(&str, &str)]| shown(impersonate(&rbac, &eve, &wanted(headers)).map(|user| user.name));
    assert_eq!(be(&[("Impersonate-User", "bob")]), "accepted: \"bob\"");
    assert_eq!(be(&[("Impersonate-User", "bob"), ("Impersonate-Extra-Scope", "x")]), "accepted: \"bob\"");
    let cannot = |what: &str, resource: &str, group: &str, place: &str| {
        format!(
            "403 Forbidden: {what} is forbidden: User \"eve\" cannot impersonate resource \"{resource}\" in API group \
             \"{group}\" {place}"
        )
    };
    let (bob, cluster) = (("Impersonate-User", "bob"), "at the cluster scope");
    let group = "authentication.k8s.io";
    let table = [
        (vec![("Impersonate-User", "root")], cannot("users \"root\"", "users", "", cluster)),
        (
            vec![bob, ("Impersonate-Group", "system:masters")],
            cannot("groups \"system:masters\"", "groups", "", cluster),
        ),
        (
            vec![("Impersonate-User", "system:serviceaccount:conf:sa1")],
            cannot("serviceaccounts \"sa1\"", "serviceaccounts", "", "in the namespace \"conf\""),
        ),
        (vec![bob, ("Impersonate-Uid", "u")], cannot("uids.authentication.k8s.io \"u\"", "uids", group, cluster)),
        (
            vec![bob, ("Impersonate-Extra-Other", "x")],
            cannot("userextras.authentication.k8s.io \"x\"", "userextras/other", group, cluster),
        ),
    ];
    for (headers, expected) in table {
        assert_eq!(be(&headers), expected);
    }
}

#[test]
fn a_group_without_a_user_is_no_impersonation() {
    assert_eq!(Impersonation::from_headers([("Accept", "*/*")]), Ok(None));
    let answer = shown(Impersonation::from_headers([("Impersonate-Group", "g")]));
    assert_eq!(answer, "400 BadRequest: requested a uid, groups or extra without impersonating a user name");
}
