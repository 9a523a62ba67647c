//! What a machine's certificates are worth: they are renewed, reach no further than the machine, and end with its Node.

use apiserver::auth::{Pki, SigningRequest, Subject, UnixSeconds, lifetime, signing_request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::cut::own_name;
use super::site::{PODS, SERVER, Site, delete, get, gone, make, on_site, ready, until};
use crate::api_rig::ask;

const SECOND: &str = "second";
const DAY: i64 = 24 * 60 * 60;
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const ROOM: &str = "/apis/storage.k8s.io/v1/csistoragecapacities";

#[test]
fn certificates_are_renewed_reach_no_further_than_their_machine_and_end_with_its_node() {
    on_site("members", async |site| member(&site).await);
}

async fn member(site: &Site) {
    let (up, api) = site.up().await;
    let first = own_name(&api).await;
    let server = format!("https://{SERVER}");
    let token = site.token(&["create", "--node", SECOND]);
    let words = ["--server", &server, "--token", &token, "--node-name", SECOND];
    let (node, _) = site.start("node", site.node("other", &words), "joined").await;
    make(&api, "one", &first).await;
    make(&api, "two", SECOND).await;
    let (_, volume_one) = ready(&api, "one").await;
    let (pod_two, volume_two) = ready(&api, "two").await;
    let file = site.other.mount_of(&pod_two, &volume_two).join("file");
    std::fs::write(&file, "of two").unwrap();
    until("both machines say how much room they have", async || {
        let told = places(&api).await;
        (told.contains(&first) && told.contains(&SECOND.to_owned())).then_some(())
    })
    .await;
    node.stop();

    // As they are when two thirds of their time are over.
    let old = age(site, 70);
    let (mut node, _) = site.start("node", site.node("other", &[]), "new certificates").await;
    let new = until("the new certificates are kept", async || Some(kept(site)).filter(|kept| *kept != old)).await;
    let [start, end] = times(&new["certificates"]["node"]);
    assert!(start > now() - DAY && end > now() + 80 * DAY, "they are new: {start} to {end}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of two", "no mount is touched");
    make(&api, "three", SECOND).await;
    ready(&api, "three").await;

    let stolen = stolen(site);
    reach(&stolen, (&volume_one, &volume_two)).await;

    let (agent, beside) = (client(&stolen, "node").await, client(&stolen, "machine").await);
    delete(&api, &format!("/api/v1/nodes/{SECOND}")).await;
    for one in [&agent, &beside] {
        let (code, answer) = ask(one, ("GET", &format!("/api/v1/nodes/{SECOND}")), None).await.unwrap();
        assert_eq!(code, 401, "{answer}");
    }
    until("nothing is told about it", async || (!places(&api).await.contains(&SECOND.to_owned())).then_some(())).await;
    let ended = until("it ends", async || node.ended()).await;
    assert!(!ended.success(), "{ended}");
    assert!(get(&api, &format!("/api/v1/nodes/{SECOND}")).await.is_none(), "it does not come back by itself");
    let said = site.refused("other", &[]);
    assert!(said.contains("was taken out") && said.contains("orlop token create --node second"), "{said}");
    let said = site.refused("other", &["--token", &token]);
    assert!(said.contains("taken out after it had used the token"), "{said}");

    let token = site.token(&["create", "--node", SECOND]);
    let (node, _) = site.start("node", site.node("other", &["--token", &token]), "joined").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of two", "its volumes are as they were");
    for pod in ["one", "two", "three"] {
        delete(&api, &format!("{PODS}/{pod}")).await;
        gone(&api, &format!("{PODS}/{pod}")).await;
    }
    node.stop();
    up.stop();
    site.server.assert_empty();
    site.other.assert_empty();
}

/// What whoever took over the second machine can do to a volume of the first: nothing but see it.
async fn reach(stolen: &Value, (theirs, own): (&str, &str)) {
    let beside = client(stolen, "machine").await;
    let change = json!({"metadata": {"finalizers": []}});
    let patch = |path: String| ask_merge(&beside, path, &change);
    assert_eq!(patch(format!("{VOLUMES}/{theirs}")).await, 403);
    assert_eq!(ask(&beside, ("DELETE", &format!("{VOLUMES}/{theirs}")), None).await.unwrap().0, 403);
    let note = json!({"metadata": {"annotations": {"seen": "true"}}});
    assert_eq!(ask_merge(&beside, format!("{VOLUMES}/{own}"), &note).await, 200);
    let all = get(&beside, ATTACHMENTS).await.unwrap();
    let of = |volume: &str| {
        let is = |one: &&Value| one["spec"]["source"]["persistentVolumeName"] == volume;
        all["items"].as_array().unwrap().iter().find(is).unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(patch(format!("{ATTACHMENTS}/{}/status", of(theirs))).await, 403);
    assert_eq!(patch(format!("/api/v1/namespaces/default/persistentvolumeclaims/{}", "one")).await, 403);
    assert_eq!(ask(&beside, ("GET", "/api/v1/secrets"), None).await.unwrap().0, 403);
}

async fn ask_merge(client: &kube::Client, path: String, body: &Value) -> u16 {
    let request = http::Request::patch(&path).header("content-type", "application/merge-patch+json");
    match client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{path}: {error}"),
    }
}

/// The machines that say how much room they have.
async fn places(api: &kube::Client) -> Vec<String> {
    let all = get(api, ROOM).await.unwrap();
    let place =
        |one: &Value| one["nodeTopology"]["matchLabels"].as_object().and_then(|map| map.values().next().cloned());
    let places = all["items"].as_array().unwrap().iter().filter_map(place);
    places.filter_map(|place| place.as_str().map(str::to_owned)).collect()
}

fn now() -> i64 {
    let date = std::process::Command::new("date").arg("+%s").output().unwrap();
    String::from_utf8(date.stdout).unwrap().trim().parse().unwrap()
}

/// What the second machine has kept.
fn kept(site: &Site) -> Value {
    serde_json::from_slice(&std::fs::read(site.other.data.join("machine/joined.json")).unwrap()).unwrap()
}

/// The same with the key, as a thief would have it.
fn stolen(site: &Site) -> Value {
    let mut stolen = kept(site);
    stolen["key"] = std::fs::read_to_string(site.other.data.join("machine/key.pem")).unwrap().into();
    stolen
}

fn times(certificate: &Value) -> [i64; 2] {
    let (start, end) = lifetime(certificate.as_str().unwrap()).unwrap();
    [start.0, end.0]
}

/// Gives the second machine certificates as the server would have signed them so many days ago.
fn age(site: &Site, days: i64) -> Value {
    let pki = Pki::open(&site.server.data.join("pki"), &[], UnixSeconds(now())).unwrap();
    let key = std::fs::read_to_string(site.other.data.join("machine/key.pem")).unwrap();
    let request = SigningRequest::read(&signing_request(&key).unwrap()).unwrap();
    let authority = pki.authority().unwrap();
    let sign = |prefix: &str, group| {
        let name = format!("{prefix}{SECOND}");
        let then = UnixSeconds(now() - days * DAY);
        authority.sign(&request, &Subject { name: &name, group }, then).unwrap()
    };
    let mut kept = kept(site);
    kept["certificates"]["node"] = sign("system:node:", "system:nodes").into();
    kept["certificates"]["machine"] = sign("orlop:machine:", "orlop:machines").into();
    std::fs::write(site.other.data.join("machine/joined.json"), kept.to_string()).unwrap();
    kept
}

/// A client with one of the certificates.
async fn client(stolen: &Value, which: &str) -> kube::Client {
    use base64::Engine as _;
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let [certificate, key] =
        [&stolen["certificates"][which], &stolen["key"]].map(|text| base64(text.as_str().unwrap()));
    let config: Kubeconfig = serde_json::from_value(json!({
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": stolen["server"],
            "certificate-authority-data": base64(stolen["authority"].as_str().unwrap())}}],
        "users": [{"name": "x", "user": {"client-certificate-data": certificate, "client-key-data": key}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }))
    .unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    kube::Client::try_from(config).unwrap()
}
