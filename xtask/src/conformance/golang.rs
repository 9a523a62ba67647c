//! Go, as far as the outside suites need it: finding it, fetching a module's source, installing a program of a module.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// A Go toolchain that answered.
#[derive(Debug)]
pub(crate) struct Go {
    version: String,
}

impl Go {
    /// `None` when there is no `go` on the path.
    pub(crate) fn find() -> Option<Self> {
        let output = Command::new("go").args(["env", "GOVERSION"]).output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(Self { version })
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The folder that holds the source of a module, fetched by the machine's own Go settings.
    pub(crate) fn module(&self, name: &str, version: &str) -> anyhow::Result<PathBuf> {
        // An empty folder keeps `go` from reading a go.mod or a go.work that happens to be above us.
        let folder = tempfile::tempdir()?;
        let output = Command::new("go")
            .args(["mod", "download", "-json", &format!("{name}@{version}")])
            .current_dir(folder.path())
            .env("GOFLAGS", "-mod=mod")
            .env("GOWORK", "off")
            .output()?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("go mod download said {:?}", String::from_utf8_lossy(&output.stderr)))?;
        match (answer["Error"].as_str(), answer["Dir"].as_str()) {
            (None, Some(dir)) => Ok(PathBuf::from(dir)),
            (error, _) => {
                bail!("Go cannot fetch {name}@{version}: {}", without_host(error.unwrap_or("no folder given")))
            }
        }
    }

    /// Installs `package` of a module into `bin`, unless the very version is there already.
    pub(crate) fn install(&self, package: &str, version: &str, bin: &Path) -> anyhow::Result<PathBuf> {
        std::fs::create_dir_all(bin)?;
        let name = package.rsplit('/').next().unwrap_or(package);
        let program = bin.join(name);
        if self.built_from(&program, version) {
            return Ok(program);
        }
        println!("installing {name} {version}");
        let folder = tempfile::tempdir()?;
        let output = Command::new("go")
            .args(["install", &format!("{package}@{version}")])
            .current_dir(folder.path())
            .env("GOBIN", bin)
            .env("GOFLAGS", "-mod=mod")
            .env("GOWORK", "off")
            .output()?;
        if !output.status.success() {
            bail!("go install {package}@{version}: {}", without_host(&String::from_utf8_lossy(&output.stderr)));
        }
        Ok(program)
    }

    /// Builds a program in its own module's folder, where the module's `replace` lines count, unlike in `go install`.
    pub(crate) fn build(&self, module: &Path, package: &str, program: &Path) -> anyhow::Result<()> {
        self.build_with(module, &[], package, program)
    }

    /// The same with further flags of `go build`.
    pub(crate) fn build_with(
        &self,
        module: &Path,
        flags: &[String],
        package: &str,
        program: &Path,
    ) -> anyhow::Result<()> {
        let output = Command::new("go")
            .args(["build", "-mod=readonly"])
            .args(flags)
            .arg("-o")
            .arg(program)
            .arg(package)
            .current_dir(module)
            .env("GOWORK", "off")
            .output()?;
        if !output.status.success() {
            bail!("go build {package}: {}", without_host(&String::from_utf8_lossy(&output.stderr)));
        }
        Ok(())
    }

    fn built_from(&self, program: &Path, version: &str) -> bool {
        let output = Command::new("go").args(["version", "-m"]).arg(program).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("mod") && words.nth(1) == Some(version)
        })
    }
}

/// Go's errors quote the address it asked. Where a machine fetches modules is its own business and no use to a reader.
fn without_host(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !word.contains("://"));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::without_host;

    #[test]
    fn an_error_keeps_its_words_and_loses_its_address() {
        let said = "reading https://example.invalid/@v/list: 403\n\tserver response: not available";
        assert_eq!(without_host(said), "reading 403 server response: not available");
    }
}
