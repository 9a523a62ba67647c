//! `orlop token`: join tokens are made, listed and deleted, and machines that joined are revoked, through the API of a
//! running `orlop up`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::api::{Key, Kind, Node, Uid};
use anyhow::{Context as _, bail};
use apiserver::auth::{
    JOIN_TOKEN, JoinToken, Joining, KeyHash, MACHINE_KEY, TOKEN_NAMESPACE, Terms, UnixSeconds, revocation, token_facts,
    token_key, token_record,
};
use apiserver::sources::Clock as _;
use k8s_openapi::api::core::v1::Secret;
use runtime::args::parse_duration;
use runtime::client::{self, Error, Selection};
use runtime::{Client, Entropy, Metrics};
use serde_json::Value;

use super::server::ADDRESS;
use crate::api::SystemClock;
use crate::cluster::output;
use crate::process::{self, connect};

/// How long an expired token is remembered, so that who uses it hears that it has expired.
const REMEMBERED: i64 = 24 * 60 * 60;

/// Make, list and delete join tokens for other machines, and revoke machines.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  orlop up --data ./orlop --serve-machines 10.0.0.1:6444 &
  orlop token create --data ./orlop --node worker-1
  orlop token list --data ./orlop
  orlop token revoke-machine worker-1 --data ./orlop

On the other machine, as root:
  orlop node --server https://10.0.0.1:6444 --token TOKEN --data /var/lib/orlop

A token is ID.SECRET.HASH. It lets one machine in, until it expires. The server keeps a hash of the
secret; the HASH is that of the key of the server's authority, by which the machine knows the server.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a token and print it; how to use it is said beside it.
    Create {
        #[command(flatten)]
        place: PlaceArgs,
        /// How long it can be used, such as 10m or 24h.
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
        ttl: Duration,
        /// The only name of a machine that it lets in.
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
    /// List the tokens, without their secrets.
    List {
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Revoke the certificates of a machine that joined, at once and for good, and delete its Node. Its key is let in no
    /// more, under no name and with no token.
    RevokeMachine {
        /// The name of its Node.
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Delete a token, so that nobody can join with it any more. Machines that have joined stay.
    Delete {
        /// The part of the token before the first dot; the whole token does, too.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

/// Which server.
#[derive(Debug, clap::Args)]
struct PlaceArgs {
    /// Data directory of the running `orlop up`. Without it: $KUBECONFIG.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub(crate) fn token(args: Args) -> ExitCode {
    process::ended("token", process::block_on(run(args.command)))
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { place, ttl, node } => {
            node.as_deref().map_or(Ok(()), |node| crate::usage::check_name("--node", node))?;
            place.connect().await?.create(ttl, node).await
        }
        Command::List { place } => place.connect().await?.list().await,
        Command::RevokeMachine { name, place } => {
            crate::usage::check_name("NAME", &name)?;
            place.connect().await?.revoke(&name).await
        }
        Command::Delete { id, place } => place.connect().await?.delete(&id).await,
    }
}

/// A server that can be asked.
struct Desk {
    client: Client,
    secrets: kube::Api<Secret>,
    authority: KeyHash,
    /// Where machines find it, if that is known.
    address: Option<String>,
}

impl PlaceArgs {
    async fn connect(&self) -> anyhow::Result<Desk> {
        let file = self.data.as_deref().map(|data| data.join("kubeconfig"));
        if let (Some(file), Some(data)) = (&file, &self.data)
            && !file.exists()
        {
            bail!("{} holds no kubeconfig: name the data directory of a running `orlop up`", data.display());
        }
        if file.is_none() && std::env::var_os("KUBECONFIG").is_none_or(|named| named.is_empty()) {
            bail!("which server: name the data directory of a running `orlop up` with --data, or set KUBECONFIG");
        }
        let (inner, authority) = connect::with_authority(file.as_deref()).await?;
        let Some(authority) = authority.as_deref().and_then(KeyHash::of_certificate) else {
            bail!("the kubeconfig names no certificate authority: use that of `orlop up`");
        };
        let metrics = Metrics::new(&runtime::time::SystemClock);
        let options = client::Options { timeout: Duration::from_secs(10), ..client::Options::default() };
        let secrets = kube::Api::namespaced(inner.clone(), TOKEN_NAMESPACE);
        let client = Client::new(inner, options, &metrics, &Entropy::from_system());
        Ok(Desk { client, secrets, authority, address: self.data.as_deref().and_then(noted_address) })
    }
}

fn noted_address(data: &Path) -> Option<String> {
    Some(std::fs::read_to_string(data.join(ADDRESS)).ok()?.trim().to_owned())
}

fn now() -> i64 {
    i64::try_from(SystemClock.now().0 / 1000).unwrap_or(i64::MAX)
}

fn unreached(error: Error) -> anyhow::Error {
    anyhow::Error::new(error).context("asking the server: is `orlop up` running?")
}

impl Desk {
    async fn create(&self, ttl: Duration, node: Option<String>) -> anyhow::Result<()> {
        if ttl.is_zero() {
            bail!("--ttl must be more than nothing, such as 10m");
        }
        let expires = UnixSeconds(now().saturating_add(i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX)));
        let token = JoinToken::new(self.authority).context("making a token")?;
        let record = token.record(&Terms { expires, node: node.clone() });
        let made = self.client.create::<Value>(Kind::SECRET, Some(TOKEN_NAMESPACE), &record).await;
        made.map_err(unreached)?;
        self.forget_old().await;
        output::write(&format!("{}\n", token.reveal()))?;
        match &self.address {
            Some(address) => {
                let name = node.map(|node| format!(" --node-name {node}")).unwrap_or_default();
                eprintln!("On the other machine, as root: orlop node --server https://{address} --token TOKEN{name}");
            }
            None => eprintln!(
                "No machine can join yet: start `orlop up` with --serve-machines and an address of this machine, such as \
                 10.0.0.1:6444"
            ),
        }
        Ok(())
    }

    async fn records(&self) -> Result<Vec<Value>, Error> {
        let labels = Some(format!("{JOIN_TOKEN}=true"));
        let selection = Selection { namespace: Some(TOKEN_NAMESPACE.to_owned()), labels, ..Selection::default() };
        Ok(self.client.list::<Value>(Kind::SECRET, &selection, 0, None).await?.items)
    }

    async fn all(&self) -> Result<Vec<Joining>, Error> {
        Ok(self.records().await?.iter().filter_map(token_facts).collect())
    }

    /// Takes away what expired long ago; what cannot be taken away now is taken away next time.
    async fn forget_old(&self) {
        for old in self.all().await.unwrap_or_default() {
            if old.terms.expires.0.saturating_add(REMEMBERED) < now() {
                let _ = self.remove(&old.id).await;
            }
        }
    }

    async fn list(&self) -> anyhow::Result<()> {
        let tokens = self.all().await.map_err(unreached)?;
        let mut table = format!("{:<10} {:<10} {:<20} USED BY\n", "ID", "EXPIRES", "FOR");
        for Joining { id, terms, used_by } in tokens {
            let left = terms.expires.0.saturating_sub(now());
            let expires = match u64::try_from(left) {
                Ok(left) if left > 0 => format!("in {}", short(left)),
                _ => "expired".to_owned(),
            };
            let (node, used_by) = (terms.node.as_deref().unwrap_or("any"), used_by.as_deref().unwrap_or("-"));
            let _ = writeln!(table, "{id:<10} {expires:<10} {node:<20} {used_by}");
        }
        output::write(&table)
    }

    async fn delete(&self, id: &str) -> anyhow::Result<()> {
        let id = id.split('.').next().unwrap_or_default();
        let known = self.all().await.map_err(unreached)?;
        if !known.iter().any(|token| token.id == id) {
            bail!("there is no token {id:?}: `orlop token list` shows all");
        }
        self.remove(id).await.context("deleting the token")?;
        output::write(&format!("token {id} deleted\n"))
    }

    /// Notes the keys that a machine had, and deletes its Node. The keys come first: if this ends in between, the
    /// certificates count no more, and the same command deletes the Node.
    async fn revoke(&self, name: &str) -> anyhow::Result<()> {
        let key = Key::cluster(name);
        let node = match self.client.get::<Value>(Kind::NODE, &key).await {
            Ok(node) => Some(node),
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(unreached(error)),
        };
        let used = self.records().await.map_err(unreached)?;
        let by_name = |record: &&Value| token_facts(record).and_then(|facts| facts.used_by).as_deref() == Some(name);
        let mut keys: BTreeSet<String> = used.iter().filter(by_name).filter_map(token_key).collect();
        let joined = node.as_ref().and_then(|node| node["metadata"]["annotations"][MACHINE_KEY].as_str());
        keys.extend(joined.map(str::to_owned));
        if keys.is_empty() {
            bail!("{name:?} is no machine that joined: `kubectl get nodes` shows all machines");
        }
        for hash in keys {
            let note = revocation(&hash, name, UnixSeconds(now()));
            match self.client.create::<Value>(Kind::CONFIG_MAP, Some(TOKEN_NAMESPACE), &note).await {
                Ok(_) | Err(Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(unreached(error)),
            }
        }
        // A Node without a key is not of a machine that joined.
        if let Some(node) = node.filter(|node| node["metadata"]["annotations"][MACHINE_KEY].is_string()) {
            let uid = node["metadata"]["uid"].as_str().map(Uid::from);
            let only = client::Preconditions { uid, ..client::Preconditions::default() };
            match self.client.delete::<Node>(&key, &only).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(unreached(error).context("deleting the Node")),
            }
        }
        output::write(&format!("machine {name} revoked: its key is let in no more, and its Node is deleted\n"))
    }

    async fn remove(&self, id: &str) -> Result<(), kube::Error> {
        self.secrets.delete(&token_record(id), &kube::api::DeleteParams::default()).await.map(drop)
    }
}

/// Seconds as the largest unit that is whole in them, as kubectl's ages.
fn short(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
