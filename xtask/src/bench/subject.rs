//! The drivers that are measured: ours, and the Go host-path driver as the peer users know.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::conformance::golang::Go;
use crate::conformance::{Launch, Mode};

const PEER: &str = "github.com/kubernetes-csi/csi-driver-host-path";
const PEER_VERSION: &str = "v1.17.0";

/// A driver's program.
#[derive(Debug)]
pub(super) enum Subject {
    Orlop(PathBuf),
    HostPath(PathBuf),
}

impl Subject {
    /// How many snapshots give a fair median. The peer packs the data into an archive, which takes seconds each time.
    pub(super) fn snapshots(&self) -> usize {
        match self {
            Self::Orlop(_) => 20,
            Self::HostPath(_) => 3,
        }
    }

    pub(super) fn launch(&self, socket: PathBuf, pool: &Path, log: PathBuf) -> Launch {
        match self {
            Self::Orlop(program) => Launch::orlop(program, Mode::All, socket, pool, log),
            Self::HostPath(program) => {
                let mut command = Command::new(program);
                command.arg(format!("--endpoint=unix://{}", socket.display())).arg("--nodeid=bench");
                command.arg(format!("--statedir={}", pool.display())).arg("--drivername=hostpath.csi.k8s.io");
                command.arg("--enable-attach");
                Launch { command, socket, log }
            }
        }
    }
}

/// The peer: a program somebody built, or its Go module built here. An error says why there is none.
pub(super) fn peer(program: Option<PathBuf>) -> anyhow::Result<Subject> {
    if let Some(program) = program {
        return Ok(Subject::HostPath(program));
    }
    let go = Go::find().ok_or_else(|| anyhow::anyhow!("there is no `go` on the path"))?;
    let module = go.module(PEER, PEER_VERSION)?;
    let program = crate::target().join("bench/hostpathplugin");
    std::fs::create_dir_all(crate::target().join("bench"))?;
    go.build(&module, "./cmd/hostpathplugin", &program)?;
    Ok(Subject::HostPath(program))
}
