//! Our hand-written .proto files against the official ones, out of their Go modules.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::facts::Facts;
use super::golang::Go;

/// One of our files and the official one it must be interchangeable with.
struct Pair {
    module: &'static str,
    version: &'static str,
    official: &'static str,
    ours: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair {
        module: "github.com/container-storage-interface/spec",
        version: "v1.12.0",
        official: "csi.proto",
        ours: "csi/v1/csi.proto",
    },
    Pair {
        module: "k8s.io/kubelet",
        version: "v0.36.0",
        official: "pkg/apis/pluginregistration/v1/api.proto",
        ours: "pluginregistration/v1/api.proto",
    },
];

/// What `cargo xtask conformance descriptors` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Compare with this version of the CSI specification instead, to see what an upgrade would ask for.
    #[arg(long, value_name = "VERSION")]
    csi: Option<String>,
}

pub(super) fn run(go: &Go, args: &Args) -> anyhow::Result<()> {
    let mut different = 0;
    for pair in &PAIRS {
        let asked = args.csi.as_deref().filter(|_| pair.official == "csi.proto");
        let version = asked.unwrap_or(pair.version);
        let official = read(&go.module(pair.module, version)?, pair.official)?;
        let ours = read(&crate::root().join("crates/csi/proto"), pair.ours)?;
        let differences = ours.differences(&official);
        println!("{} {version}: {}", pair.module, official.counts());
        println!("crates/csi/proto/{}: {}", pair.ours, ours.counts());
        differences.iter().for_each(|difference| println!("  {difference}"));
        println!("{} differences", differences.len());
        different += differences.len();
    }
    match different {
        0 => Ok(()),
        many => bail!(
            "{many} differences from the official .proto files; change crates/csi/proto, then `cargo xtask codegen`"
        ),
    }
}

fn read(include: &Path, name: &str) -> anyhow::Result<Facts> {
    let pool = crate::codegen::pool(&[PathBuf::from(name)], include).with_context(|| format!("compiling {name}"))?;
    let file = pool.get_file_by_name(name).with_context(|| format!("{name} is not in its own descriptors"))?;
    Ok(Facts::of(&file))
}
