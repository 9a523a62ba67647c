//! `/version`. Clients compare the minor version with their own and warn about skew, so it names the Kubernetes release
//! whose behaviour is served.

use serde_json::{Value, json};

const MINOR: &str = "36";

/// In the words of Go.
fn platform() -> String {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{machine}", std::env::consts::OS)
}

pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": format!("v1.36.4+orlop.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": platform(),
        "emulationMajor": "1", "emulationMinor": MINOR, "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}
