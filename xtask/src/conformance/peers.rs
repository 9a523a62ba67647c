//! Go programs of the CSI project: built from their modules where those can be had, or given by whoever runs a suite.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::golang::Go;

/// A program of a Go module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    module: &'static str,
    version: &'static str,
    name: &'static str,
    /// The flag that names one which somebody built.
    flag: Option<&'static str>,
}

/// The last release that has the mock driver as a program.
pub(super) const MOCK: Peer =
    Peer { module: "github.com/kubernetes-csi/csi-test/v4", version: "v4.0.2", name: "mock-driver", flag: None };
pub(super) const HOST_PATH: Peer = Peer {
    module: "github.com/kubernetes-csi/csi-driver-host-path",
    version: "v1.18.0",
    name: "hostpathplugin",
    flag: Some("--hostpath"),
};
pub(super) const ATTACHER: Peer = Peer {
    module: "github.com/kubernetes-csi/external-attacher/v4",
    version: "v4.12.0",
    name: "csi-attacher",
    flag: Some("--attacher"),
};
pub(super) const REGISTRAR: Peer = Peer {
    module: "github.com/kubernetes-csi/node-driver-registrar",
    version: "v2.17.0",
    name: "csi-node-driver-registrar",
    flag: Some("--registrar"),
};

impl Peer {
    /// The program that was given, or one that is built now. An error says why there is none, and what to do.
    pub(super) fn find(self, go: &Go, given: Option<&Path>) -> anyhow::Result<PathBuf> {
        match given {
            Some(program) => program.canonicalize().with_context(|| format!("{} is not there", program.display())),
            None => self.build(go).map_err(|why| match self.flag {
                Some(flag) => anyhow::anyhow!("{why:#}; name a built one with {flag}"),
                None => why,
            }),
        }
    }

    fn build(self, go: &Go) -> anyhow::Result<PathBuf> {
        let source = go.module(self.module, self.version)?;
        let folder = crate::target().join("conformance/bin");
        std::fs::create_dir_all(&folder)?;
        let program = folder.join(self.name);
        // The host-path driver does not answer who it is unless it was built with a version.
        let flags = ["-ldflags".to_owned(), format!("-X main.version={}", self.version)];
        go.build_with(&source, &flags, &format!("./cmd/{}", self.name), &program)?;
        Ok(program)
    }
}
