//! Who may not join hears why, and what to do; who has joined needs no token.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};

use super::cut::own_name;
use super::site::{SERVER, Site, on_site, until};
use crate::api_rig::ask;

#[test]
fn who_may_not_join_hears_why_and_who_has_joined_needs_no_token() {
    on_site("tokens", async |site| tokens(&site).await);
}

async fn tokens(site: &Site) {
    let (up, api) = site.up().await;
    let first = own_name(&api).await;
    let server = format!("https://{SERVER}");
    let say = |data: &str, token: &str, name: &str| {
        site.refused(data, &["--server", &server, "--token", token, "--node-name", name])
    };
    let hears = |said: String, words: &[&str]| {
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {said:?}");
        }
    };

    strangers_get_nothing(site).await;
    hears(say("b", "not-a-token", "b"), &["--token", "ID.SECRET.HASH"]);
    let token = site.token(&["create", "--node", "b"]);
    let (id, rest) = token.split_once('.').unwrap();
    let (secret, hash) = rest.split_once('.').unwrap();
    hears(
        say("b", &format!("{id}.{}.{hash}", "a".repeat(secret.len())), "b"),
        &["not known here", "orlop token create"],
    );
    let other = hash.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect::<String>();
    hears(say("b", &format!("{id}.{secret}.{other}"), "b"), &["is not the server that the token is from", hash]);
    hears(say("c", &token, "c"), &["for a machine named \"b\"", "--node-name b"]);
    hears(say("b", &token, "B!"), &["cannot be the name of a machine"]);
    let open = site.token(&["create"]);
    hears(say("c", &open, &first), &["there is a machine named", "--node-name", "kubectl delete node"]);
    let gone = "https://10.99.0.1:1";
    hears(site.refused("c", &["--server", gone, "--token", &open]), &["no connection to", "--serve-machines"]);
    hears(site.refused("c", &["--server", &server]), &["has not joined", "--token"]);
    expires(site, &server, &first).await;

    let words = ["--server", &server, "--token", &token, "--node-name", "b"];
    let (node, _) = site.start("node", site.node("b", &words), "joined").await;
    node.stop();
    for (name, mode) in [("machine", 0o700), ("machine/key.pem", 0o600), ("machine/joined.json", 0o600)] {
        assert_eq!(mode_of(&site.scratch.path("b").join(name)), mode, "{name}");
    }
    // The same machine goes on without a token; another one gets in neither with that token nor under that name.
    let (node, _) = site.start("node", site.node("b", &[]), "joined").await;
    hears(say("c", &token, "b"), &["was used by the machine \"b\"", "orlop token create"]);
    hears(say("c", &open, "b"), &["there is a machine named \"b\" already"]);
    node.stop();
    hears(site.refused("b", &["--node-name", "c"]), &["has joined as \"b\""]);

    let list = site.token(&["list"]);
    let line = list.lines().find(|line| line.starts_with(id)).expect("the token is listed");
    assert_eq!(line.split_whitespace().rev().take(2).collect::<Vec<_>>(), ["b", "b"], "for b, used by b: {line}");
    assert!(!list.contains(secret), "a list shows no secret");
    revoked(site);
    site.token(&["delete", id]);
    assert!(!site.token(&["list"]).contains(id));
    up.stop();
    let stored = std::fs::read_dir(site.server.data.join("store")).unwrap().flatten();
    for file in stored.filter(|entry| entry.path().is_file()) {
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "a secret is in {:?}", file.path());
    }
}

/// The key of the machine `b` is let in no more, whatever token it has; with a new key it is.
fn revoked(site: &Site) {
    assert!(site.token(&["revoke-machine", "b"]).contains("machine b revoked"));
    let fresh = site.token(&["create", "--node", "b"]);
    for words in [&[][..], &["--token", &fresh]] {
        let said = site.refused("b", words);
        assert!(said.contains("was revoked") && said.contains("remove the folder `machine`"), "{said}");
    }
    let mut nobody = site.server.orlop(&["token", "revoke-machine", "nobody", "--data"]);
    let output = nobody.arg(&site.server.data).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("is no machine that joined"), "{said}");
}

/// A token for one second: its holder is refused for his name first, and then for the token.
async fn expires(site: &Site, server: &str, taken: &str) {
    let token = site.token(&["create", "--ttl", "1s"]);
    until("the token expires", async || {
        let said = site.refused("c", &["--server", server, "--token", &token, "--node-name", taken]);
        let expired = said.contains("the token expired at") && said.contains("orlop token create");
        assert!(expired || said.contains("there is a machine named"), "{said}");
        expired.then_some(())
    })
    .await;
}

/// Without a credential nothing is answered on the machines' address, not even the version.
async fn strangers_get_nothing(site: &Site) {
    let mut config = Kubeconfig::read_from(site.server.data.join("kubeconfig")).unwrap();
    config.clusters[0].cluster.as_mut().unwrap().server = Some(format!("https://{SERVER}"));
    config.auth_infos[0].auth_info = Some(kube::config::AuthInfo::default());
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    let stranger = kube::Client::try_from(config).unwrap();
    for path in ["/version", "/healthz", "/api", "/api/v1/nodes", "/orlop/backup", "/metrics"] {
        let (code, answer) = ask(&stranger, ("GET", path), None).await.unwrap();
        assert_eq!(code, 401, "{path}: {answer}");
    }
    let (code, answer) = ask(&stranger, ("POST", "/orlop/join"), Some(&serde_json::json!({}))).await.unwrap();
    assert_eq!(code, 401, "{answer}");
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
