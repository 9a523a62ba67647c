//! `orlop backup`: objects and keys of a data directory in one file, also while the server runs.
//!
//! A store has one user at a time. If that is a server, it is asked for its objects, over its own API as its own
//! administrator; the keys never travel, they are read from the directory. Otherwise the store is read where it is.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use apiserver::store::{Backup, OpenError, Snapshot, examine};
use http_body_util::BodyExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{ADDRESS, KEYS, STORE, advise, read_keys, require_roots, shell};

/// Between two pieces of the server's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Save the objects and keys of a data directory to one file, also while it is used.
///
/// The file has every object as it was at one revision, the certificate authority and the key that signs tokens. It
/// holds private keys and Secrets: keep it as you keep those. It has no history: watches do not go on across a restore.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  orlop backup --data ./state --to ./state.backup")]
pub(crate) struct BackupArgs {
    /// Directory of `orlop api`, running or not.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// File to write, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Replace FILE if it exists.
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &BackupArgs) -> anyhow::Result<String> {
    let replace = if args.force { Replace::Yes } else { Replace::No };
    crate::usage::require_parent("--to", &args.to)?;
    if replace == Replace::No && args.to.symlink_metadata().is_ok() {
        return Err(exists(&args.to));
    }
    let (snapshot, source) = snapshot(&args.data)?;
    let files = read_keys(&args.data)?;
    require_roots(&files, &args.data.join(KEYS).display().to_string())?;
    let backup = Backup { snapshot, files };
    write(&backup, &args.to, replace)?;
    Ok(format!(
        "{}: {} objects at revision {}, {source}\nIt holds private keys and Secrets: keep it as you keep those.\n\
         To come back to it: orlop restore --from {} --data NEW_DIR",
        args.to.display(),
        backup.snapshot.objects.len(),
        backup.snapshot.revision,
        shell(&args.to),
    ))
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow!("--to {} exists: give another name, or --force to replace it", path.display())
}

fn snapshot(data: &Path) -> anyhow::Result<(Snapshot, String)> {
    match examine(&data.join(STORE)) {
        Ok(examined) if examined.damage.is_empty() => {
            Ok((examined.snapshot, "of a server that is not running".to_owned()))
        }
        Ok(examined) => Err(advise(OpenError::Damaged { dir: data.to_owned(), damage: examined.damage }, data)),
        Err(OpenError::Locked { pid, .. }) => {
            let server =
                pid.map_or("the running server".to_owned(), |pid| format!("the running server, process {pid}"));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.context("starting the runtime")?;
            let asked = runtime.block_on(ask_server(data)).with_context(|| format!("asking {server}"))?;
            Ok((asked, format!("from {server}")))
        }
        Err(error) => Err(advise(error, data)),
    }
}

async fn ask_server(data: &Path) -> anyhow::Result<Snapshot> {
    let path = data.join(ADDRESS);
    let address = fs::read_to_string(&path).with_context(|| format!("reading its address from {}", path.display()))?;
    let client = client(data, address.trim()).await?;
    let request = http::Request::get("/orlop/backup").body(kube::client::Body::empty())?;
    let at = format!("connecting to {} (it may still be starting)", address.trim());
    let response = client.send(request).await.context(at)?;
    let status = response.status();
    let body = response.into_body().collect().await.context("reading its answer")?.to_bytes();
    if !status.is_success() {
        bail!("it answered {status}");
    }
    Ok(Backup::read(&body[..]).context("its answer is no good backup")?.snapshot)
}

/// A client as the administrator, with the certificates in the directory.
async fn client(data: &Path, address: &str) -> anyhow::Result<kube::Client> {
    let file = |name: &str| data.join(KEYS).join(name);
    let config: Kubeconfig = serde_json::from_value(serde_json::json!({
        "clusters": [{"name": "orlop", "cluster": {
            "server": format!("https://{address}"), "certificate-authority": file("ca.crt"),
        }}],
        "users": [{"name": "orlop", "user": {
            "client-certificate": file("admin.crt"), "client-key": file("admin.key"),
        }}],
        "contexts": [{"name": "orlop", "context": {"cluster": "orlop", "user": "orlop"}}],
        "current-context": "orlop",
    }))?;
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .context("reading the administrator's certificate")?;
    // The server is on this machine, whatever the environment says about others.
    config.proxy_url = None;
    config.read_timeout = Some(PATIENCE);
    kube::Client::try_from(config).context("preparing the connection")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replace {
    Yes,
    No,
}

/// The file appears whole, synced and read back, or not at all.
fn write(backup: &Backup, to: &Path, replace: Replace) -> anyhow::Result<()> {
    let name = to.file_name().with_context(|| format!("{} is not the name of a file", to.display()))?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = parent.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = write_checked(backup, &temporary)
        .with_context(|| format!("writing {}", temporary.display()))
        .and_then(|()| place(&temporary, to, replace));
    if written.is_err() {
        // The first error is the one to report. What is left carries this process's number and is in nobody's way.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(parent).and_then(|parent| parent.sync_all()).with_context(|| format!("syncing {}", parent.display()))
}

fn write_checked(backup: &Backup, path: &Path) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut out = BufWriter::new(file);
    backup.write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()?;
    let back = Backup::read(BufReader::new(File::open(path)?)).context("reading it back")?;
    match back == *backup {
        true => Ok(()),
        false => bail!("it does not read back as it was written"),
    }
}

fn place(temporary: &Path, to: &Path, replace: Replace) -> anyhow::Result<()> {
    let plain = || fs::rename(temporary, to).with_context(|| format!("replacing {}", to.display()));
    match replace {
        Replace::Yes => plain(),
        Replace::No => match renameat_with(CWD, temporary, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::EXIST) => Err(exists(to)),
            // A filesystem without this kind of rename; whether the file exists was asked before.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => plain(),
            Err(errno) => Err(errno).with_context(|| format!("making {}", to.display())),
        },
    }
}
