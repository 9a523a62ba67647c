//! What whoever has taken over a machine that joined can and cannot do: a test for each sentence of the threat model in
//! docs/more-machines.md. The machine has its key, both certificates, and whatever roles the administrator gave to machines.

use std::sync::Arc;
use std::time::Duration;

use apiserver::audit::AuditLog;
use apiserver::auth::{KeyHash, SigningRequest, UnixSeconds, revocation};
use apiserver::http::{PeerCertificate, Service};
use serde_json::{Value, json};

use crate::joining::{Host, Machine, certificate, send};
use crate::operations::Lines;
use crate::support::{Answer, MERGE, NOW_SECONDS};

const SPACE: &str = "/api/v1/namespaces/default";
const DRIVER: &str = "local.csi.orlop.dev";
const MASTERS: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server with a machine `b` that joined and was stolen, and a pod on it with an account.
struct Theft {
    host: Host,
    machine: Machine,
    /// As its agent, and as what stands beside its driver.
    agent: Service,
    beside: Service,
}

impl Theft {
    async fn begin() -> Self {
        let host = Host::start().await;
        let machine = Machine::new("b");
        let [agent, beside] = host.joined(&machine).await;
        let theft = Self { host, machine, agent, beside };
        // More than machines really get: what is refused, is refused by the server itself.
        let role = json!({"metadata": {"name": "machines"}, "rules": [{"apiGroups": ["*"],
            "resources": ["persistentvolumes", "persistentvolumeclaims", "events"], "verbs": ["*"]}]});
        let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "orlop:machines"});
        let binding = json!({"metadata": {"name": "machines"}, "subjects": [group],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "machines"}});
        theft.make(&format!("{MASTERS}/clusterroles"), role).await;
        theft.make(&format!("{MASTERS}/clusterrolebindings"), binding).await;
        theft.make(&format!("{SPACE}/serviceaccounts"), json!({"metadata": {"name": "app"}})).await;
        for name in ["of-pod", "foreign"] {
            theft.make(&format!("{SPACE}/secrets"), json!({"metadata": {"name": name}})).await;
        }
        let volumes = json!([{"name": "s", "secret": {"secretName": "of-pod"}}]);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "b", "serviceAccountName": "app",
            "volumes": volumes, "containers": [{"name": "c", "image": "i"}]}});
        theft.make(&format!("{SPACE}/pods"), pod).await;
        theft
    }

    async fn make(&self, path: &str, object: Value) -> Value {
        let answer = self.host.server.call("POST", path, Some(&object)).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.body);
        answer.body
    }

    async fn ask(&self, service: &Service, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let kind = if method == "PATCH" { MERGE } else { "application/json" };
        self.host.server.send_kind_as(service, method, path, (body, kind)).await
    }

    async fn token(&self, seconds: i64) -> Answer {
        let pod = self.host.server.call("GET", &format!("{SPACE}/pods/p"), None).await;
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.body["metadata"]["uid"]});
        let body = json!({"spec": {"expirationSeconds": seconds, "boundObjectRef": bound}});
        self.ask(&self.agent, "POST", &format!("{SPACE}/serviceaccounts/app/token"), Some(&body)).await
    }

    /// Whether a token of a service account is worth something.
    async fn is_good(&self, token: &Value) -> bool {
        let review = json!({"spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer = self.host.server.call("POST", path, Some(&review)).await;
        answer.body["status"]["authenticated"] == true
    }

    /// A volume as its provisioner would make it.
    fn volume(handle: &str) -> Value {
        let demand = json!({"key": format!("topology.{DRIVER}/node"), "operator": "In", "values": ["b"]});
        json!({"metadata": {"name": format!("pv-{handle}")}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": "default", "name": "gone", "uid": "invented"},
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [demand]}]}}}})
    }

    fn key(&self) -> String {
        let request = self.machine.request();
        let key: KeyHash = SigningRequest::read(request["request"].as_str().expect("a text")).expect("a request").key();
        key.to_string()
    }
}

fn says(answer: &Answer, words: &str) {
    assert_eq!(answer.code, 403, "{}", answer.body);
    assert!(answer.body["message"].as_str().is_some_and(|said| said.contains(words)), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_stolen_machine_reads_no_secrets_but_those_of_its_pods() {
    let theft = Theft::begin().await;
    let read = async |service: &Service, path: &str| theft.ask(service, "GET", path, None).await.code;
    assert_eq!(read(&theft.agent, &format!("{SPACE}/secrets/of-pod")).await, 200);
    for path in [format!("{SPACE}/secrets/foreign"), format!("{SPACE}/secrets"), "/api/v1/secrets".to_owned()] {
        assert_eq!(read(&theft.agent, &path).await, 403, "{path}");
        assert_eq!(read(&theft.beside, &path).await, 403, "{path}");
    }
    assert_eq!(read(&theft.beside, &format!("{SPACE}/secrets/of-pod")).await, 403);
}

#[tokio::test(start_paused = true)]
async fn a_stolen_machine_opens_no_secret_with_a_mirror_pod() {
    let theft = Theft::begin().await;
    let node = theft.host.server.call("GET", "/api/v1/nodes/b", None).await;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "b", "controller": true,
        "uid": node.body["metadata"]["uid"]});
    let mirror = |spec: Value| {
        let mut pod = json!({"spec": spec, "metadata": {"name": "mirror", "ownerReferences": [owner],
            "annotations": {"kubernetes.io/config.mirror": "x"}}});
        pod["spec"]["nodeName"] = "b".into();
        pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
        pod
    };
    let pods = format!("{SPACE}/pods");
    for (spec, words) in [
        (json!({"volumes": [{"name": "s", "secret": {"secretName": "foreign"}}]}), "may not reference secrets"),
        (json!({"serviceAccountName": "app"}), "may not reference service accounts"),
        (
            json!({"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "any"}}]}),
            "can not create pods that reference persistentvolumeclaims",
        ),
    ] {
        says(&theft.ask(&theft.agent, "POST", &pods, Some(&mirror(spec))).await, words);
    }
    let made = theft.ask(&theft.agent, "POST", &pods, Some(&mirror(json!({})))).await;
    assert_eq!(made.code, 201, "one that names nothing is its own affair: {}", made.body);
}

#[tokio::test(start_paused = true)]
async fn a_stolen_machine_opens_no_secret_with_a_volume() {
    let theft = Theft::begin().await;
    let mut volume = Theft::volume("h");
    volume["spec"]["csi"]["nodeStageSecretRef"] = json!({"namespace": "default", "name": "foreign"});
    let refused = theft.ask(&theft.beside, "POST", "/api/v1/persistentvolumes", Some(&volume)).await;
    says(&refused, "can only make volumes that name no secrets");
    // One that an older server let it make opens nothing either: the claim does not name the volume.
    let claim = json!({"metadata": {"name": "gone"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    theft.make(&format!("{SPACE}/persistentvolumeclaims"), claim).await;
    let volumes = json!([{"name": "c", "persistentVolumeClaim": {"claimName": "gone"}}]);
    let pod = json!({"metadata": {"name": "q"}, "spec": {"nodeName": "b", "serviceAccountName": "app",
        "volumes": volumes, "containers": [{"name": "c", "image": "i"}]}});
    theft.make(&format!("{SPACE}/pods"), pod).await;
    volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "gone"});
    theft.make("/api/v1/persistentvolumes", volume).await;
    assert_eq!(theft.ask(&theft.agent, "GET", &format!("{SPACE}/secrets/foreign"), None).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn a_stolen_machine_makes_volumes_of_its_own_driver_and_place_only() {
    let theft = Theft::begin().await;
    let volumes = "/api/v1/persistentvolumes";
    let mut table = vec![("its own", Theft::volume("h"), 201)];
    let mut changed = |case, pointer: &str, value: Value| {
        let mut volume = Theft::volume("x");
        *volume.pointer_mut(pointer).expect("it is there") = value;
        table.push((case, volume, 403));
    };
    changed("another driver", "/spec/csi/driver", json!("nfs.csi.k8s.io"));
    let place = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0";
    changed("another machine", &format!("{place}/values/0"), json!("a"));
    changed("another kind of place", &format!("{place}/key"), json!("rack"));
    changed("anywhere", "/spec/nodeAffinity", Value::Null);
    for (case, volume, code) in table {
        let answer = theft.ask(&theft.beside, "POST", volumes, Some(&volume)).await;
        assert_eq!(answer.code, code, "{case}: {}", answer.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stolen_machine_destroys_no_volume_of_another_by_its_handle() {
    let theft = Theft::begin().await;
    let mut tenant = Theft::volume("precious");
    tenant["metadata"]["name"] = "tenant".into();
    tenant["spec"]["claimRef"] = json!({"namespace": "default", "name": "theirs", "uid": "u"});
    theft.make("/api/v1/persistentvolumes", tenant).await;
    let volume = Theft::volume("precious");
    let refused = theft.ask(&theft.beside, "POST", "/api/v1/persistentvolumes", Some(&volume)).await;
    says(&refused, "a handle that no other volume has");
}

/// The driver makes the handle of a volume from the claim's uid, which every machine can see.
#[tokio::test(start_paused = true)]
async fn a_stolen_machine_can_take_a_handle_before_its_owner_does() {
    let theft = Theft::begin().await;
    let [_, owner] = theft.host.joined(&Machine::new("a")).await;
    let volume = Theft::volume("future");
    assert_eq!(theft.ask(&theft.beside, "POST", "/api/v1/persistentvolumes", Some(&volume)).await.code, 201);
    let mut wanted = Theft::volume("future");
    wanted["metadata"]["name"] = "wanted".into();
    let place = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0";
    *wanted.pointer_mut(place).expect("it is there") = "a".into();
    let refused = theft.ask(&owner, "POST", "/api/v1/persistentvolumes", Some(&wanted)).await;
    says(&refused, "a handle that no other volume has");
    assert_eq!(theft.host.server.call("DELETE", "/api/v1/persistentvolumes/pv-future", None).await.code, 200);
    // The finalizer that protects volumes is taken off by a controller, which does not run here.
    let freed = json!({"metadata": {"finalizers": []}});
    theft.host.server.send("PATCH", "/api/v1/persistentvolumes/pv-future", Some(&freed), MERGE).await;
    assert_eq!(theft.ask(&owner, "POST", "/api/v1/persistentvolumes", Some(&wanted)).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_a_stolen_machine_got_are_short_and_end_with_its_node() {
    let theft = Theft::begin().await;
    let answer = theft.token(4_294_967_296).await;
    assert_eq!(
        (answer.code, &answer.body["spec"]["expirationSeconds"]),
        (201, &json!(48 * 60 * 60)),
        "{}",
        answer.body
    );
    let token = answer.body["status"]["token"].clone();
    assert!(theft.is_good(&token).await);
    let unbound = json!({"spec": {"expirationSeconds": 600}});
    let path = format!("{SPACE}/serviceaccounts/app/token");
    says(&theft.ask(&theft.agent, "POST", &path, Some(&unbound)).await, "token not bound to a pod");
    assert_eq!(theft.host.server.call("DELETE", "/api/v1/nodes/b", None).await.code, 200);
    assert!(!theft.is_good(&token).await, "the pod is there, the machine is not");
    theft.host.joined(&theft.machine).await;
    assert!(!theft.is_good(&token).await, "nor does it come back with the machine");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_waits_for_a_finalizer_is_gone() {
    let theft = Theft::begin().await;
    let finalizers = json!({"metadata": {"finalizers": ["a.io/stay"]}});
    says(
        &theft.ask(&theft.agent, "PATCH", "/api/v1/nodes/b", Some(&finalizers)).await,
        "not allowed to modify finalizers",
    );
    let token = theft.token(600).await.body["status"]["token"].clone();
    assert!(theft.is_good(&token).await);
    let admin = theft.host.server.send("PATCH", "/api/v1/nodes/b", Some(&finalizers), MERGE).await;
    assert_eq!(admin.code, 200, "{}", admin.body);
    theft.host.server.call("DELETE", "/api/v1/nodes/b", None).await;
    assert_eq!(theft.host.server.call("GET", "/api/v1/nodes/b", None).await.code, 200, "it waits");
    for service in [&theft.agent, &theft.beside] {
        assert_eq!(theft.ask(service, "GET", "/api/v1/nodes/b", None).await.code, 401);
        let (code, answer) = send(service, None, "/orlop/join", &theft.machine.request()).await;
        assert_eq!(code, 401, "{answer}");
    }
    assert!(!theft.is_good(&token).await);
    let fresh = theft.host.token(60, None).await;
    let (code, answer) = theft.host.join(&fresh.credential(), &theft.machine).await;
    assert_eq!(code, 409, "{answer}");
    assert!(answer["message"].as_str().is_some_and(|said| said.contains("is being taken out")), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_is_let_in_under_no_name_and_with_no_token() {
    let theft = Theft::begin().await;
    let watch = theft.ask(&theft.agent, "GET", "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Db", None);
    let started = tokio::time::Instant::now();
    let now = UnixSeconds(i64::try_from(NOW_SECONDS).expect("it fits"));
    let revoke = async {
        let note = revocation(&theft.key(), "b", now);
        theft.make("/api/v1/namespaces/kube-system/configmaps", note).await;
    };
    // The watch ends, although its Node is still there.
    let (watched, ()) = tokio::join!(watch, revoke);
    assert_eq!(watched.code, 200, "{}", watched.body);
    assert!(started.elapsed() < Duration::from_secs(60), "it ended before its time: {:?}", started.elapsed());
    for service in [&theft.agent, &theft.beside] {
        let answer = theft.ask(service, "GET", "/api/v1/nodes/b", None).await;
        assert_eq!(answer.code, 401, "{}", answer.body);
        assert!(answer.body["message"].as_str().is_some_and(|said| said.contains("was revoked")), "{}", answer.body);
    }
    assert_eq!(theft.host.server.call("DELETE", "/api/v1/nodes/b", None).await.code, 200);
    let fresh = theft.host.token(60, None).await;
    let (code, answer) = theft.host.join(&fresh.credential(), &theft.machine).await;
    assert_eq!(code, 403, "{answer}");
    assert!(answer["message"].as_str().is_some_and(|said| said.contains("remove the folder `machine`")), "{answer}");
    let [agent, _] = theft.host.joined(&Machine::new("b")).await;
    assert_eq!(theft.ask(&agent, "GET", "/api/v1/nodes/b", None).await.code, 200, "a new key under the same name");
    assert_eq!(theft.ask(&theft.agent, "GET", "/api/v1/nodes/b", None).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn a_stolen_machine_writes_no_other_node_and_no_other_identity() {
    let theft = Theft::begin().await;
    theft.make("/api/v1/nodes", json!({"metadata": {"name": "a"}})).await;
    let labels = json!({"metadata": {"labels": {"rack": "r"}}});
    says(
        &theft.ask(&theft.agent, "PATCH", "/api/v1/nodes/a", Some(&labels)).await,
        "is not allowed to modify node \"a\"",
    );
    let reserved = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/pci": "true"}}});
    says(
        &theft.ask(&theft.agent, "PATCH", "/api/v1/nodes/b", Some(&reserved)).await,
        "is not allowed to modify labels",
    );
    let key = json!({"metadata": {"annotations": {"orlop.dev/machine-key": "another"}}});
    says(
        &theft.ask(&theft.agent, "PATCH", "/api/v1/nodes/b", Some(&key)).await,
        "the annotation orlop.dev/machine-key",
    );
    let (code, answer) = send(&theft.agent, None, "/orlop/join", &Machine::new("a").request()).await;
    assert_eq!(code, 403, "{answer}");
    let pods = "/api/v1/pods";
    assert_eq!(theft.ask(&theft.agent, "GET", pods, None).await.code, 403, "nor does it see the pods of others");
    let own = format!("{pods}?fieldSelector=spec.nodeName%3Db");
    assert_eq!(theft.ask(&theft.agent, "GET", &own, None).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn attempts_to_join_are_limited_and_audited() {
    let host = Host::start().await;
    let lines = Lines::default();
    let log = Arc::new(AuditLog::to(Box::new(lines.clone())));
    let address = |last: u8| {
        let service = host.server.api.service().without_strangers().audited(Arc::clone(&log));
        service.from_address([192, 0, 2, last].into())
    };
    let (guess, machine) = ("aaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Machine::new("b"));
    let neighbour = Machine::new("c");
    let (code, joined) = host.join(&host.token(60, None).await.credential(), &neighbour).await;
    assert_eq!(code, 201, "{joined}");
    for _ in 0..10 {
        let (code, answer) = send(&address(1), Some(guess), "/orlop/join", &machine.request()).await;
        assert_eq!(code, 401, "{answer}");
    }
    let good = host.token(60, None).await;
    let (code, answer) = send(&address(1), Some(&good.credential()), "/orlop/join", &machine.request()).await;
    assert_eq!((code, answer["details"]["retryAfterSeconds"].as_u64()), (429, Some(60)), "{answer}");
    let (code, answer) = send(&address(2), Some(&good.credential()), "/orlop/join", &machine.request()).await;
    assert_eq!(code, 201, "others are not held up: {answer}");
    let certificate = certificate(&joined["certificates"]["node"]);
    let with_certificate = address(1).for_peer(Some(PeerCertificate::Ours(certificate.as_ref().into())));
    let (code, answer) = send(&with_certificate, Some(guess), "/orlop/join", &neighbour.request()).await;
    assert_eq!(code, 429, "a certificate is no licence to guess: {answer}");
    let (code, answer) = send(&with_certificate, None, "/orlop/join", &neighbour.request()).await;
    assert_eq!(code, 201, "a machine behind the same address renews its certificate: {answer}");
    let lines = lines.read();
    let of = |code: u64| lines.iter().find(|line| line["responseStatus"]["code"] == code).expect("it is noted");
    assert_eq!(of(401)["annotations"]["orlop.dev/join-token"], "aaaaaaaa");
    assert_eq!(of(401)["sourceIPs"], json!(["192.0.2.1"]));
    assert_eq!(of(201)["annotations"]["orlop.dev/join-machine"], "b");
    assert_eq!(of(201)["annotations"]["orlop.dev/join-token"], good.id());
    assert_eq!(lines.len(), 14);
    let secret = good.credential();
    let secret = secret.split('.').nth(1).expect("two parts");
    assert!(lines.iter().all(|line| !line.to_string().contains(secret)), "no secret is noted");
}

#[tokio::test(start_paused = true)]
async fn join_tokens_are_made_thirty_a_minute_at_most() {
    let host = Host::start().await;
    for _ in 0..30 {
        host.token(60, None).await;
    }
    let token = apiserver::auth::JoinToken::new(KeyHash::parse(&"0f".repeat(32)).expect("64 digits"));
    let terms = apiserver::auth::Terms { expires: UnixSeconds(i64::MAX / 2), node: None };
    let record = token.expect("there is randomness").record(&terms);
    let refused = host.server.call("POST", "/api/v1/namespaces/kube-system/secrets", Some(&record)).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (429, Some("TooManyRequests")), "{}", refused.body);
    let other = json!({"metadata": {"name": "other"}});
    let made = host.server.call("POST", "/api/v1/namespaces/kube-system/secrets", Some(&other)).await;
    assert_eq!(made.code, 201, "other secrets are not counted: {}", made.body);
}
