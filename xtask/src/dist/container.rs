//! The image that the `Dockerfile` describes, made and run without an engine.
//!
//! Of the language only what our file uses is understood, and everything else is refused: a default for what it stands on, which
//! must be nothing at all, one file that is copied, and what is run. The root of the file system is then a folder with that one
//! file, and /proc, which every engine gives.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use tokio::process::Command;

use crate::disk::Scratch;
use crate::kubernetes::Up;

/// Nobody: an image without users is run as a number.
const USER: u32 = 65534;
/// The folder for data, as the program sees it.
const DATA: &str = "data";

/// What a file of this sort comes to.
#[derive(Debug, PartialEq, Eq)]
struct Image {
    /// From the folder that is sent to the engine, and to where.
    copied: (PathBuf, PathBuf),
    entrypoint: PathBuf,
}

impl Image {
    fn read(text: &str) -> anyhow::Result<Self> {
        let (mut base, mut copied, mut entrypoint) = (None, None, None);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (word, rest) = line.split_once(' ').with_context(|| format!("{line:?} has one word only"))?;
            let once = match word {
                "ARG" => base.replace(rest.split_once('=').context("an ARG without a default")?).is_none(),
                "FROM" => {
                    let (name, value) = base.context("FROM before its ARG")?;
                    ensure!(rest == format!("${{{name}}}") && value == "scratch", "{line:?} does not stand on scratch");
                    true
                }
                "COPY" => {
                    let (from, to) = rest.split_once(' ').context("COPY takes two paths")?;
                    copied.replace((PathBuf::from(from), PathBuf::from(to))).is_none()
                }
                "ENTRYPOINT" => {
                    let words: Vec<PathBuf> = serde_json::from_str(rest).context("ENTRYPOINT is no list")?;
                    let [word] = &words[..] else { bail!("ENTRYPOINT has more than one word") };
                    entrypoint.replace(word.clone()).is_none()
                }
                _ => bail!("{word} is not understood here"),
            };
            ensure!(once, "{word} is there twice");
        }
        let image = Self { copied: copied.context("no COPY")?, entrypoint: entrypoint.context("no ENTRYPOINT")? };
        ensure!(image.copied.1 == image.entrypoint, "what is copied is not what is run");
        Ok(image)
    }

    /// A folder that is the root of a container.
    fn make(&self, program: &Path) -> anyhow::Result<Scratch> {
        ensure!(self.copied.0 == Path::new("target/dist/orlop"), "{} is not what is built", self.copied.0.display());
        let root = Scratch::make()?;
        let place = root.path().join(self.copied.1.strip_prefix("/").context("COPY to a relative path")?);
        fs::create_dir_all(place.parent().context("it is in a folder")?)?;
        fs::copy(program, &place).with_context(|| format!("copying {}", program.display()))?;
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
        for folder in ["proc", DATA] {
            fs::create_dir(root.path().join(folder))?;
        }
        chown(root.path().join(DATA), Some(USER), Some(USER)).context("giving the data to nobody")?;
        Ok(root)
    }
}

/// Runs the program where nothing else is: what it is, and a claim from its creation to its end.
pub(super) async fn try_in(program: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(crate::root().join("Dockerfile")).context("reading the Dockerfile")?;
    let image = Image::read(&text).context("the Dockerfile")?;
    if !crate::tools::is_root() {
        return Ok("not tried in an empty container, which needs root".to_owned());
    }
    let root = image.make(program)?;
    let version = Command::new("chroot").arg(root.path()).arg(&image.entrypoint).arg("--version").output().await?;
    ensure!(version.status.success(), "--version: {}", String::from_utf8_lossy(&version.stderr).trim());
    let data = root.path().join(DATA);
    let mut up = Command::new("unshare");
    // The mount is seen by nobody else and goes with the process, which the shell becomes.
    let script = "mount -t proc proc \"$0/proc\" && exec chroot --userspec=\"$1\" \"$0\" \"$2\" up \
                  --listen 127.0.0.1:0 --data \"/$3\"";
    up.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(root.path());
    up.arg(format!("{USER}:{USER}")).arg(&image.entrypoint).arg(DATA);
    let (up, took) = Up::start(up, &data).await?;
    up.make_claims(1).await.context("making a claim")?;
    up.delete_claims().await.context("deleting it")?;
    up.stop().await?;
    Ok(format!("alone in an empty container, as nobody: ready in {} ms, a claim bound and gone", took.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dockerfile_copies_what_is_built_and_does_nothing_else() {
        let text = fs::read_to_string(crate::root().join("Dockerfile")).unwrap();
        let image = Image::read(&text).unwrap();
        assert_eq!(image.copied.0, Path::new("target/dist/orlop"));
        assert_eq!(image.entrypoint, Path::new("/usr/bin/orlop"));
    }

    #[test]
    fn whatever_else_a_dockerfile_says_is_refused() {
        let good = ["ARG BASE=scratch", "FROM ${BASE}", "COPY a /a", "ENTRYPOINT [\"/a\"]"];
        assert!(Image::read(&good.join("\n")).is_ok());
        let refused = |place: usize, line: &str| {
            let mut lines = good;
            lines[place] = line;
            Image::read(&lines.join("\n")).unwrap_err().to_string()
        };
        assert!(refused(1, "FROM debian").contains("does not stand on scratch"));
        assert!(refused(2, "RUN a /a").contains("not understood"));
        assert!(refused(3, "ENTRYPOINT [\"/b\"]").contains("not what is run"));
        assert!(refused(0, "COPY a /a").contains("FROM before its ARG"));
        assert!(refused(3, "COPY b /b").contains("twice"));
    }
}
