//! Who is turned away at the door, over a real socket, with which code and in which words (API-8).
//! Time passes when the test says so.

use apiserver::auth::{Account, Claims, ObjectRef, Pki, UnixSeconds};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::door::{DAY, Door, ISSUER, NOW, signer};

const UNAUTHORIZED: &str = "401 Unauthorized: Unauthorized";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn without_credentials_only_health_and_version_answer() {
    let door = Door::open().await;
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(door.knock(None, &format!("GET {path}"), &[], "").await.code, 200, "{path}");
    }
    let nobody = "User \"system:anonymous\" cannot";
    let table = [
        (
            "GET /api/v1/namespaces",
            format!(
                "namespaces is forbidden: {nobody} list resource \"namespaces\" in API group \"\" at the cluster scope"
            ),
        ),
        ("GET /api", format!("forbidden: {nobody} get path \"/api\"")),
        ("GET /openapi/v3", format!("forbidden: {nobody} get path \"/openapi/v3\"")),
        ("GET /metrics", format!("forbidden: {nobody} get path \"/metrics\"")),
        ("GET /livez/ping", format!("forbidden: {nobody} get path \"/livez/ping\"")),
        ("GET /nothing", format!("forbidden: {nobody} get path \"/nothing\"")),
    ];
    for (line, message) in table {
        assert_eq!(door.knock(None, line, &[], "").await.brief(), format!("403 Forbidden: {message}"), "{line}");
    }
    // Other schemes are no credential of this server's, as in the reference.
    let basic = door.knock(None, "GET /api", &["authorization: Basic YWRtaW46YWRtaW4="], "").await;
    assert_eq!(basic.brief(), format!("403 Forbidden: forbidden: {nobody} get path \"/api\""));
    door.close().await;
}

#[tokio::test]
async fn a_certificate_counts_only_from_our_authority_for_clients_and_in_its_time() {
    let door = Door::open().await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let foreign = Pki::open(folder.path(), &[], UnixSeconds(NOW)).expect("keys can be made");
    let issue = |at: i64| door.pki.issue_client("ann", "ops", UnixSeconds(at)).expect("it can be issued");
    let ann = issue(NOW);
    assert_eq!(door.knock(Some(door.pki.admin()), &format!("GET {MAPS}"), &[], "").await.code, 200);
    let known = door.knock(Some(&ann), &format!("GET {MAPS}"), &[], "").await;
    assert!(known.brief().starts_with("403 Forbidden: configmaps is forbidden: User \"ann\" cannot list"), "{known:?}");
    let wrong = [
        ("another authority", foreign.admin().clone()),
        ("expired", issue(NOW - 400 * DAY)),
        ("not yet valid", issue(NOW + 30 * DAY)),
        ("for servers", door.pki.server().clone()),
    ];
    for (what, identity) in &wrong {
        // Also where nobody needs to be anybody: a wrong credential is not the same as none.
        for path in [MAPS, "/readyz"] {
            let reply = door.knock(Some(identity), &format!("GET {path}"), &[], "").await;
            assert_eq!(reply.brief(), UNAUTHORIZED, "{what}, {path}");
        }
    }
    let token = ["authorization: Bearer file-token"];
    let rescued = door.knock(Some(foreign.admin()), &format!("GET {MAPS}"), &token, "").await;
    assert!(rescued.brief().contains("User \"carol\""), "a right token makes up for a wrong certificate: {rescued:?}");
    door.close().await;
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_does_not_talk_to_us() {
    let door = Door::open().await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let foreign = Pki::open(folder.path(), &[], UnixSeconds(NOW)).expect("keys can be made");
    assert!(door.dial(&foreign, None, &[b"http/1.1"]).await.is_err());
    assert!(door.dial(&door.pki, None, &[b"http/1.1"]).await.is_ok());
    let address = door.address;
    door.close().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "a server that has ended has closed its port");
}

#[tokio::test]
async fn a_connection_does_not_outlive_its_certificate() {
    let door = Door::open().await;
    let mut stream = door.connect(Some(door.pki.admin())).await.expect("the handshake succeeds");
    let request = format!("GET {MAPS} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let mut buffer = vec![0; 64 * 1024];
    let mut codes = Vec::new();
    for now in [NOW, NOW + 400 * DAY] {
        door.set_clock(now);
        stream.write_all(request.as_bytes()).await.expect("the connection is open");
        let count = stream.read(&mut buffer).await.expect("there is an answer");
        codes.push(String::from_utf8_lossy(&buffer[9..12.min(count)]).into_owned());
    }
    assert_eq!(codes, ["200", "401"]);
    drop(stream);
    door.close().await;
}

fn claims(door_account: &Value) -> Claims {
    let text = |pointer: &str| door_account.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    Claims {
        account: Account {
            namespace: "default".into(),
            object: ObjectRef { name: text("/metadata/name"), uid: text("/metadata/uid") },
        },
        bound: None,
        audiences: vec![ISSUER.into()],
        issued: UnixSeconds(NOW),
        expires: UnixSeconds(NOW + 3600),
        warn_after: None,
        id: "jti".into(),
    }
}

/// A token of the same parts with another header, and without a signature or with the old one.
fn relabelled(token: &str, header: Value, keep_signature: bool) -> String {
    let mut parts = token.split('.');
    let (_, payload, signature) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let signature = if keep_signature { signature } else { "" };
    format!("{}.{payload}.{signature}", URL_SAFE_NO_PAD.encode(header.to_string()))
}

#[tokio::test]
async fn a_token_that_this_server_did_not_sign_for_itself_is_worth_nothing() {
    let door = Door::open().await;
    door.make_account("robot").await;
    let account = door.inside("GET", "/api/v1/namespaces/default/serviceaccounts/robot", Value::Null).await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let foreign = Pki::open(folder.path(), &[], UnixSeconds(NOW)).expect("keys can be made");
    let sign = |pki: &Pki, issuer: &str, claims: Claims| {
        signer(pki, issuer).sign(&claims).expect("it can be signed").reveal().to_owned()
    };
    let good = sign(&door.pki, ISSUER, claims(&account));
    let line = format!("GET {MAPS}");
    let known = door.ask(&good, &line, Value::Null).await;
    assert!(known.brief().contains("User \"system:serviceaccount:default:robot\" cannot list"), "{known:?}");

    let mut cut = good.clone();
    cut.pop();
    let middle = good.find('.').expect("it has parts") + 5;
    let changed =
        format!("{}{}{}", &good[..middle], if &good[middle..=middle] == "A" { "B" } else { "A" }, &good[middle + 1..]);
    let header_of_none = json!({"alg": "none", "typ": "JWT"});
    let wrong = [
        ("garbage", "garbage".to_owned()),
        ("three words", "a.b.c".to_owned()),
        ("a very long word", "x".repeat(20_000)),
        ("cut short", cut),
        ("changed", changed),
        ("no signature", relabelled(&good, header_of_none.clone(), false)),
        ("said to need no signature", relabelled(&good, header_of_none, true)),
        ("a signature by a shared secret", relabelled(&good, json!({"alg": "HS256"}), true)),
        ("another key", sign(&foreign, ISSUER, claims(&account))),
        ("another issuer", sign(&door.pki, "https://elsewhere", claims(&account))),
        ("another audience", sign(&door.pki, ISSUER, Claims { audiences: vec!["vault".into()], ..claims(&account) })),
        ("expired", sign(&door.pki, ISSUER, Claims { expires: UnixSeconds(NOW - 3600), ..claims(&account) })),
        ("not yet valid", sign(&door.pki, ISSUER, Claims { issued: UnixSeconds(NOW + 3600), ..claims(&account) })),
        ("nearly one from the file", "file-toke".to_owned()),
    ];
    for (what, token) in wrong {
        assert_eq!(door.ask(&token, &line, Value::Null).await.brief(), UNAUTHORIZED, "{what}");
        assert_eq!(door.ask(&token, "GET /readyz", Value::Null).await.brief(), UNAUTHORIZED, "{what}, health");
    }
    door.close().await;
}

#[tokio::test]
async fn a_token_ends_with_its_time() {
    let door = Door::open().await;
    door.make_account("robot").await;
    let token = door.token("robot", json!({"expirationSeconds": 600})).await;
    let line = format!("GET {MAPS}");
    for (after, code) in [(0, 403), (600, 403), (3600, 401), (-3600, 401)] {
        door.set_clock(NOW + after);
        assert_eq!(door.ask(&token, &line, Value::Null).await.code, code, "after {after} seconds");
    }
    door.set_clock(NOW);
    door.close().await;
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let door = Door::open().await;
    door.make_account("robot").await;
    let in_default = |what: &str| format!("/api/v1/namespaces/default/{what}");
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    door.inside("POST", &in_default("pods"), pod).await;
    door.inside("POST", &in_default("secrets"), json!({"metadata": {"name": "s"}})).await;
    let bound = |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    let of_pod = door.token("robot", bound("Pod", "p")).await;
    let of_secret = door.token("robot", bound("Secret", "s")).await;
    let plain = door.token("robot", json!({})).await;
    let codes = async || {
        let mut codes = Vec::new();
        for token in [&of_pod, &of_secret, &plain] {
            codes.push(door.ask(token, &format!("GET {MAPS}"), Value::Null).await.code);
        }
        codes
    };
    assert_eq!(codes().await, [403, 403, 403]);
    door.inside("DELETE", &in_default("pods/p"), json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(codes().await, [401, 403, 403]);
    door.inside("DELETE", &in_default("secrets/s"), Value::Null).await;
    door.inside("POST", &in_default("secrets"), json!({"metadata": {"name": "s"}})).await;
    assert_eq!(codes().await, [401, 401, 403], "a secret of the same name is another secret");
    door.inside("DELETE", &in_default("serviceaccounts/robot"), Value::Null).await;
    assert_eq!(codes().await, [401, 401, 401]);
    door.make_account("robot").await;
    assert_eq!(codes().await, [401, 401, 401], "an account of the same name is another account");
    door.close().await;
}

#[tokio::test]
async fn what_no_rule_allows_is_refused_in_the_words_of_the_reference() {
    let door = Door::open().await;
    door.make_account("robot").await;
    let token = door.token("robot", json!({})).await;
    let robot = "User \"system:serviceaccount:default:robot\" cannot";
    let table = [
        (
            "GET /api/v1/namespaces/default/configmaps",
            "configmaps",
            "list resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "GET /api/v1/namespaces/default/configmaps?watch=true",
            "configmaps",
            "watch resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "GET /api/v1/namespaces/default/configmaps/c",
            "configmaps \"c\"",
            "get resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "POST /api/v1/namespaces/default/configmaps",
            "configmaps",
            "create resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "PUT /api/v1/nodes/n/status",
            "nodes \"n\"",
            "update resource \"nodes/status\" in API group \"\" at the cluster scope",
        ),
        (
            "PATCH /api/v1/persistentvolumes/v",
            "persistentvolumes \"v\"",
            "patch resource \"persistentvolumes\" in API group \"\" at the cluster scope",
        ),
        (
            "DELETE /apis/storage.k8s.io/v1/storageclasses/a",
            "storageclasses.storage.k8s.io \"a\"",
            "delete resource \"storageclasses\" in API group \"storage.k8s.io\" at the cluster scope",
        ),
        (
            "DELETE /apis/storage.k8s.io/v1/volumeattachments",
            "volumeattachments.storage.k8s.io",
            "deletecollection resource \"volumeattachments\" in API group \"storage.k8s.io\" at the cluster scope",
        ),
        (
            "GET /apis/made.up/v1/things/x",
            "things.made.up \"x\"",
            "get resource \"things\" in API group \"made.up\" at the cluster scope",
        ),
    ];
    for (line, what, why) in table {
        let reply = door.ask(&token, line, Value::Null).await;
        assert_eq!(reply.brief(), format!("403 Forbidden: {what} is forbidden: {robot} {why}"), "{line}");
    }
    let path = door.ask(&token, "GET /metrics", Value::Null).await;
    assert_eq!(path.brief(), format!("403 Forbidden: forbidden: {robot} get path \"/metrics\""));
    assert_eq!(door.ask(&token, "GET /api", Value::Null).await.code, 200, "whoever is known may discover");
    door.close().await;
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Gives the service account `robot` these rules everywhere.
async fn allow(door: &Door, name: &str, rules: Value) {
    door.inside("POST", &format!("{ROLES}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    door.inside("POST", &format!("{ROLES}/clusterrolebindings"), binding).await;
}

#[tokio::test]
async fn to_be_somebody_else_takes_a_right_for_every_part_of_them() {
    let door = Door::open().await;
    door.make_account("robot").await;
    let token = door.token("robot", json!({})).await;
    let bearer = format!("authorization: Bearer {token}");
    let line = format!("GET {MAPS}");
    let admin = door.pki.admin();
    let as_ann = door.knock(Some(admin), &line, &["impersonate-user: ann"], "").await;
    assert!(as_ann.brief().contains("User \"ann\" cannot list"), "{as_ann:?}");
    let master = ["impersonate-user: ann", "impersonate-group: system:masters"];
    assert_eq!(door.knock(Some(admin), &line, &master, "").await.code, 200);

    let robot = "User \"system:serviceaccount:default:robot\" cannot impersonate resource";
    let refused = |what: &str, kind: &str| {
        format!(
            "403 Forbidden: {kind} \"{what}\" is forbidden: {robot} \"{kind}\" in API group \"\" at the cluster scope"
        )
    };
    let user = door.knock(None, &line, &[&bearer, "impersonate-user: ann"], "").await;
    assert_eq!(user.brief(), refused("ann", "users"));
    let users =
        json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["ann"]}]);
    allow(&door, "be-ann", users).await;
    let user = door.knock(None, &line, &[&bearer, "impersonate-user: ann"], "").await;
    assert!(user.brief().contains("User \"ann\" cannot list"), "{user:?}");
    let group = door.knock(None, &line, &[&bearer, master[0], master[1]], "").await;
    assert_eq!(group.brief(), refused("system:masters", "groups"));
    let other = door.knock(None, &line, &[&bearer, "impersonate-user: bob"], "").await;
    assert_eq!(other.brief(), refused("bob", "users"));
    let nobody = door.knock(None, &line, &["impersonate-user: ann"], "").await;
    assert!(nobody.brief().contains("User \"system:anonymous\" cannot impersonate"), "{nobody:?}");
    door.close().await;
}

#[tokio::test]
async fn nobody_gives_away_more_than_they_have() {
    let door = Door::open().await;
    door.make_account("robot").await;
    let token = door.token("robot", json!({})).await;
    let rbac = |verbs: Value| {
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "verbs": verbs,
        "resources": ["roles", "rolebindings", "clusterroles"]})
    };
    let maps = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    allow(&door, "maker", json!([rbac(json!(["create", "update"])), maps])).await;
    let role = |name: &str, verb: &str| {
        json!({"metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]})
    };
    let roles = format!("POST {ROLES}/namespaces/default/roles");
    let bindings = format!("POST {ROLES}/namespaces/default/rolebindings");
    assert_eq!(door.ask(&token, &roles, role("same", "get")).await.code, 201);
    let wider = door.ask(&token, &roles, role("wider", "delete")).await;
    let expected = "403 Forbidden: roles.rbac.authorization.k8s.io \"wider\" is forbidden: user \
        \"system:serviceaccount:default:robot\" (groups=[\"system:serviceaccounts\" \"system:serviceaccounts:default\" \
        \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
        {APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}";
    assert_eq!(wider.brief(), expected);
    let bind = json!({"metadata": {"name": "b"}, "subjects": [],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    let bound = door.ask(&token, &bindings, bind.clone()).await;
    assert!(
        bound.brief().starts_with("403 Forbidden: rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user")
    );
    assert!(bound.brief().contains("is attempting to grant RBAC permissions not currently held"), "{bound:?}");
    allow(&door, "binder", json!([rbac(json!(["escalate", "bind"]))])).await;
    assert_eq!(door.ask(&token, &roles, role("wider", "delete")).await.code, 201, "the verb escalate lifts it");
    assert_eq!(door.ask(&token, &bindings, bind).await.code, 201, "the verb bind lifts it");
    door.close().await;
}
