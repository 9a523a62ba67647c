//! `orlop up` under systemd: the unit, and the words that a supervisor waits for.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::mount::word;
use crate::stack;

/// How far the process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Stopping,
}

impl State {
    fn message(self) -> &'static str {
        match self {
            Self::Ready => "READY=1",
            Self::Stopping => "STOPPING=1",
        }
    }
}

/// Tells systemd, if it wants to know: $NOTIFY_SOCKET is a datagram socket, a path or, after an @, an abstract name.
pub(super) fn notify(state: State) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state.message()) {
        tracing::warn!(%error, socket = %Path::new(&socket).display(), "telling the service manager");
    }
}

fn send(socket: &std::ffi::OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_encoded_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// A unit that runs this program, by its present path, with these flags.
pub(super) fn unit(data: PathBuf, flags: &[OsString]) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut line = vec![word(&program.to_string_lossy())?, "up".to_owned()];
    let flags = flags.iter().map(|flag| flag.to_string_lossy()).filter(|flag| flag != "--print-systemd");
    for flag in flags {
        line.push(word(&flag)?);
    }
    let (target, manager, rights) = match stack::may_mount() {
        true => ("multi-user.target", "systemctl", RIGHTS),
        // Whoever asks without root's rights gets a unit for the manager of his own, which has none to take away.
        false => ("default.target", "systemctl --user", ""),
    };
    Ok(TEMPLATE
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{documentation}", env!("CARGO_PKG_REPOSITORY"))
        .replace("{data}", &word(&data.to_string_lossy())?)
        .replace("{command}", &line.join(" "))
        .replace("{target}", target)
        .replace("{manager}", manager)
        .replace("{rights}", rights))
}

/// Root's rights that nothing here has a use for.
const RIGHTS: &str = "\
CapabilityBoundingSet=~CAP_SYS_BOOT CAP_SYS_TIME CAP_SYS_MODULE CAP_NET_ADMIN CAP_NET_RAW CAP_SYSLOG CAP_SYS_PACCT \
CAP_WAKE_ALARM CAP_BPF CAP_AUDIT_CONTROL CAP_AUDIT_WRITE CAP_AUDIT_READ CAP_MAC_ADMIN CAP_MAC_OVERRIDE \
CAP_SYS_TTY_CONFIG CAP_LEASE
";

const TEMPLATE: &str = "\
# Made by `orlop up --print-systemd`, orlop {version}. Enable it with: {manager} enable --now orlop.service
[Unit]
Description=Orlop, Kubernetes storage
Documentation={documentation}
Wants=network-online.target
After=network-online.target local-fs.target
RequiresMountsFor={data}
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
Restart=always
RestartSec=2
TimeoutStopSec=90
# Only the program itself is told to stop: a mkfs that it started finishes, and a frozen filesystem is thawed.
KillMode=process
LimitNOFILE=65536
OOMScoreAdjust=-500
# Nothing that gives the service mounts of its own (PrivateTmp=, PrivateMounts=, ProtectSystem=, ProtectHome=,
# ProtectKernel...=, ReadOnlyPaths= and the like) may be added: the volumes of pods would be mounted where no pod sees them,
# and would go with the service.
NoNewPrivileges=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
{rights}
[Install]
WantedBy={target}
";

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_unit_runs_the_program_with_the_flags_that_were_given() {
        let words = flags(&["--data=/srv/orlop", "--print-systemd", "--driver=unix:///run/a.sock"]);
        let text = unit(PathBuf::from("/srv/orlop"), &words).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("there is one");
        assert!(line.starts_with('/') && line.ends_with(" up --data=/srv/orlop --driver=unix:///run/a.sock"), "{line}");
        assert!(text.contains("RequiresMountsFor=/srv/orlop\n") && !text.contains('{'), "{text}");
        assert!(
            !text.lines().any(|line| line.starts_with("Private") || line.starts_with("Protect")),
            "mounts are shared"
        );
    }

    #[test]
    fn what_a_unit_would_read_otherwise_is_refused() {
        let wrong = unit(PathBuf::from("/srv/a b"), &flags(&["--data=/srv/a b"])).unwrap_err();
        assert!(wrong.to_string().contains("cannot stand in a systemd unit"), "{wrong}");
    }

    #[test]
    fn a_supervisor_is_told_by_a_path_and_by_an_abstract_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let mut heard = [0; 32];
        send(path.as_os_str(), State::Ready.message()).unwrap();
        let count = listener.recv(&mut heard).unwrap();
        assert_eq!(&heard[..count], b"READY=1");
        let abstract_name = format!("orlop-{}", place.path().display());
        let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap();
        send(format!("@{abstract_name}").as_ref(), State::Stopping.message()).unwrap();
        let count = listener.recv(&mut heard).unwrap();
        assert_eq!(&heard[..count], b"STOPPING=1");
        assert!(send(place.path().join("nobody").as_os_str(), "").is_err());
    }
}
