//! A systemd unit that mounts a claim at boot.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::MountArgs;

/// The unit's text. It runs this program by its present path.
pub(super) fn text(args: &MountArgs, path: &Path) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut flags = Vec::new();
    if let Some(file) = &args.to.cluster.kubeconfig {
        let file = std::path::absolute(file).with_context(|| format!("--kubeconfig {}", file.display()))?;
        flags.push(format!("--kubeconfig={}", word(&file.to_string_lossy())?));
    }
    if let Some(context) = &args.to.cluster.context {
        flags.push(format!("--context={}", word(context)?));
    }
    if let Some(node) = &args.to.node_name {
        flags.push(format!("--node-name={}", word(node)?));
    }
    let common = flags.join(" ");
    if args.read_only {
        flags.push("--read-only".to_owned());
    }
    if let Some(group) = args.fs_group {
        flags.push(format!("--fs-group={group}"));
    }
    let (program, claim) = (word(&program.to_string_lossy())?, word(&args.claim)?);
    let path = word(&path.to_string_lossy())?;
    let mount = [&program, "mount", &claim, &path, &flags.join(" ")].join(" ");
    let umount = [&program, "umount", &path, &common].join(" ");
    Ok(format!(
        "[Unit]\nDescription=Claim {claim} at {path}\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={}\nExecStop={}\nRestart=on-failure\nRestartSec=5\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        mount.trim_end(),
        umount.trim_end(),
    ))
}

/// A word of a command line in a unit. What would need systemd's own escapes is refused, so that a unit never means
/// something else than it says.
pub(crate) fn word(text: &str) -> anyhow::Result<String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control() || "\"'\\$%;".contains(c)) {
        bail!("{text:?} cannot stand in a systemd unit as it is; choose a name without spaces, quotes, $ and %");
    }
    Ok(text.to_owned())
}
