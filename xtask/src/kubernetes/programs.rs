//! The programs themselves, built by Go from `tests/kubernetes` and kept in `target/kubernetes`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::conformance::golang::Go;

/// Our Go module that pins the peers.
const MODULE: &str = "tests/kubernetes";
/// The release the module pins; the programs must say so themselves, because kubectl and clients ask.
pub(crate) const VERSION: &str = "v1.36.4";
const VERSION_PACKAGE: &str = "k8s.io/component-base/version";

/// A program of the Go module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubectl,
}

impl Program {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
        }
    }

    const fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::ControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Scheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
        }
    }
}

/// Built programs and where they are.
#[derive(Debug)]
pub(crate) struct Programs {
    paths: BTreeMap<Program, PathBuf>,
}

impl Programs {
    /// Builds what is missing or was built from other sources. The first build takes minutes.
    pub(crate) fn build(go: &Go, wanted: &[Program]) -> anyhow::Result<Self> {
        let module = crate::root().join(MODULE);
        let folder = crate::target().join("kubernetes");
        fs::create_dir_all(&folder)?;
        let sources = sources(go, &module)?;
        let mut paths = BTreeMap::new();
        for program in wanted {
            let place = folder.join(program.name());
            let stamp = folder.join(format!("{}.stamp", program.name()));
            let current = place.is_file() && fs::read_to_string(&stamp).is_ok_and(|text| text == sources);
            if !current {
                println!("building {} {VERSION} (the first time takes minutes)", program.name());
                go.build_with(&module, &flags(), program.package(), &place)?;
                fs::write(&stamp, &sources)?;
            }
            paths.insert(*program, place);
        }
        Ok(Self { paths })
    }

    /// Programs that somebody built, in one folder under their own names.
    pub(crate) fn found_in(folder: &Path, wanted: &[Program]) -> anyhow::Result<Self> {
        let place = |program: &Program| {
            let place = folder.join(program.name());
            anyhow::ensure!(place.is_file(), "there is no {} in {}", program.name(), folder.display());
            Ok((*program, place))
        };
        Ok(Self { paths: wanted.iter().map(place).collect::<anyhow::Result<_>>()? })
    }

    /// Where a program is; an error if it was not among the wanted.
    pub(crate) fn path(&self, program: Program) -> anyhow::Result<&Path> {
        self.paths.get(&program).map(PathBuf::as_path).with_context(|| format!("{} was not built", program.name()))
    }
}

/// Everything a built program depends on, as text: a program whose stamp says the same is up to date.
fn sources(go: &Go, module: &Path) -> anyhow::Result<String> {
    let read = |name: &str| fs::read_to_string(module.join(name)).with_context(|| format!("reading {MODULE}/{name}"));
    Ok(format!("{}\n{}\n{}\n{}", go.version(), flags().join(" "), read("go.mod")?, read("go.sum")?))
}

fn flags() -> Vec<String> {
    let set = |name: &str, value: &str| format!("-X {VERSION_PACKAGE}.{name}={value}");
    let linker =
        ["-s".into(), "-w".into(), set("gitVersion", VERSION), set("gitMajor", "1"), set("gitMinor", "36")].join(" ");
    vec!["-trimpath".into(), "-ldflags".into(), linker]
}
