//! What a machine that joined keeps: its key, its certificates, the server's address and authority.
//!
//! `machine/key.pem` is made before anything is asked for, so that an answer that was lost is asked for again with the same
//! key; `machine/joined.json` is replaced as a whole. Both are for their owner only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use apiserver::auth::{
    Identity, JoinToken, Kubeconfig, UnixSeconds, kubeconfig, lifetime, new_key, signing_request, write_private,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ask::{self, Server};

const FOLDER: &str = "machine";

/// The server says something at least once a minute to who follows it. Who hears nothing for longer has lost it, and
/// connects again.
const SILENCE: Duration = Duration::from_secs(90);
const CONNECT: Duration = Duration::from_secs(10);

/// A machine that joined.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Enrolment {
    pub(super) node: String,
    server: String,
    authority: String,
    certificates: Certificates,
    #[serde(skip)]
    key: String,
    #[serde(skip)]
    file: PathBuf,
}

#[derive(Clone, Serialize, Deserialize)]
struct Certificates {
    node: String,
    machine: String,
}

impl std::fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enrolment").field("node", &self.node).field("server", &self.server).finish_non_exhaustive()
    }
}

/// As whom the server is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum As {
    /// The node: what the agent does.
    Node,
    /// What stands beside the driver.
    Machine,
}

/// Whether the server takes this machine for one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    In,
    /// In the server's words.
    Out {
        why: String,
    },
    /// It does not answer.
    Unknown,
}

/// How much of the life of certificates is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    Young,
    /// Two thirds are over.
    Due,
    Over,
}

fn age((start, end): (UnixSeconds, UnixSeconds), now: UnixSeconds) -> Age {
    let (life, lived) = (end.0.saturating_sub(start.0), now.0.saturating_sub(start.0));
    match () {
        () if now > end => Age::Over,
        () if lived.saturating_mul(3) >= life.saturating_mul(2) => Age::Due,
        () => Age::Young,
    }
}

/// Makes the folder that only its owner enters.
fn private_folder(data: &Path) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    let folder = data.join(FOLDER);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    let made = made.and_then(|()| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)));
    made.with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

impl Enrolment {
    /// What an earlier run kept, if this machine has joined.
    pub(super) fn kept(data: &Path) -> anyhow::Result<Option<Self>> {
        let file = data.join(FOLDER).join("joined.json");
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
        };
        let damaged = || format!("{} is damaged: restore it, or remove it and join again with a token", file.display());
        let mut kept: Self = serde_json::from_slice(&text).with_context(damaged)?;
        let key = data.join(FOLDER).join("key.pem");
        kept.key = std::fs::read_to_string(&key).with_context(|| format!("reading {}", key.display()))?;
        kept.file = file.clone();
        if kept.age(UnixSeconds(0)).is_none() || Identity::from_pem(&kept.certificates.machine, &kept.key).is_none() {
            bail!(damaged());
        }
        Ok(Some(kept))
    }

    /// Joins a server with a token.
    pub(super) async fn join(data: &Path, server: &Server, token: &JoinToken, node: &str) -> anyhow::Result<Self> {
        let folder = private_folder(data)?;
        let file = folder.join("key.pem");
        let key = match std::fs::read_to_string(&file) {
            Ok(key) => key,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = new_key().context("making the machine's key")?;
                write_private(&file, key.as_bytes()).context("keeping the machine's key")?;
                key
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
        };
        let advice = || format!("using the key in {}: remove it to have a new one made", file.display());
        let request = signing_request(&key).with_context(advice)?;
        let answer = ask::join(server, token, &json!({"node": node, "request": request})).await;
        let answer = answer.with_context(|| format!("joining as {node:?}"))?;
        let joined = Self {
            node: node.to_owned(),
            server: server.url(),
            authority: String::new(),
            certificates: Certificates { node: String::new(), machine: String::new() },
            key,
            file: folder.join("joined.json"),
        };
        joined.with(&answer)
    }

    /// This enrolment with the certificates of an answer, kept.
    fn with(mut self, answer: &Value) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Answer {
            authority: String,
            certificates: Certificates,
        }
        let Answer { authority, certificates } =
            Answer::deserialize(answer).context("the server answered with something else than certificates")?;
        (self.authority, self.certificates) = (authority, certificates);
        if self.age(UnixSeconds(0)).is_none() {
            bail!("the server answered with something else than certificates");
        }
        self.keep()?;
        Ok(self)
    }

    fn keep(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(self).context("writing down what was joined")?;
        write_private(&self.file, &text).context("keeping what was joined")
    }

    /// The server has another address now.
    pub(super) fn move_to(&mut self, server: &Server) -> anyhow::Result<()> {
        if self.server == server.url() {
            return Ok(());
        }
        self.server = server.url();
        self.keep()
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// How old the certificates are; `None` if one cannot be read.
    pub(super) fn age(&self, now: UnixSeconds) -> Option<Age> {
        let both = [&self.certificates.node, &self.certificates.machine].map(|pem| Some(age(lifetime(pem)?, now)));
        match both {
            [Some(one), Some(other)] => Some(match (one, other) {
                (Age::Over, _) | (_, Age::Over) => Age::Over,
                (Age::Due, _) | (_, Age::Due) => Age::Due,
                (Age::Young, Age::Young) => Age::Young,
            }),
            _ => None,
        }
    }

    /// A client that asks as one of the two.
    pub(super) async fn client(&self, who: As) -> anyhow::Result<kube::Client> {
        let certificate = match who {
            As::Node => &self.certificates.node,
            As::Machine => &self.certificates.machine,
        };
        let unusable = || format!("using the certificates in {}", self.file.display());
        let client = Identity::from_pem(certificate, &self.key).with_context(unusable)?;
        let config = Kubeconfig { name: "orlop", server: &self.server, ca_pem: &self.authority, client: &client };
        let config = kube::config::Kubeconfig::from_yaml(&kubeconfig(&config)).with_context(unusable)?;
        let options = kube::config::KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(config, &options).await.with_context(unusable)?;
        // Repeating is for the client on top, and a proxy of the environment is not on the way between our machines.
        config.default_retry = false;
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        kube::Client::try_from(config).with_context(unusable)
    }

    /// Asks the server for this machine's own Node.
    pub(super) async fn standing(&self) -> Standing {
        let Ok(client) = self.client(As::Node).await else { return Standing::Unknown };
        let Ok(request) = http::Request::get(format!("/api/v1/nodes/{}", self.node)).body(Vec::new()) else {
            return Standing::Unknown;
        };
        match tokio::time::timeout(CONNECT, client.request::<Value>(request)).await {
            Ok(Ok(_)) => Standing::In,
            Ok(Err(kube::Error::Api(status))) if status.code == 401 => Standing::Out { why: status.message.clone() },
            Ok(Err(_)) | Err(_) => Standing::Unknown,
        }
    }

    /// The same machine with new certificates, which are kept.
    pub(super) async fn renewed(&self) -> anyhow::Result<Self> {
        let request = signing_request(&self.key).context("using the machine's key")?;
        let body = json!({"node": self.node, "request": request}).to_string().into_bytes();
        let request = http::Request::post("/orlop/join").header("content-type", "application/json").body(body);
        let client = self.client(As::Node).await?;
        let answer: Value = client.request(request.context("the request")?).await.context("asking for certificates")?;
        self.clone().with(&answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_renewed_in_the_last_third_of_their_life() {
        let life = (UnixSeconds(1_000), UnixSeconds(1_900));
        for (now, wanted) in
            [(900, Age::Young), (1_599, Age::Young), (1_600, Age::Due), (1_900, Age::Due), (1_901, Age::Over)]
        {
            assert_eq!(age(life, UnixSeconds(now)), wanted, "at {now}");
        }
    }

    #[test]
    fn a_damaged_enrolment_is_named_and_says_what_to_do() {
        let data = tempfile::tempdir().expect("a directory can be made");
        assert!(Enrolment::kept(data.path()).expect("nothing is there").is_none());
        let folder = private_folder(data.path()).expect("it can be made");
        std::fs::write(folder.join("joined.json"), "{").expect("it can be written");
        let error = Enrolment::kept(data.path()).expect_err("it is damaged").to_string();
        assert!(error.contains("joined.json is damaged") && error.contains("join again"), "{error}");
    }
}
