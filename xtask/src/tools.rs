//! The programs that tests and suites call, and how a machine gets the missing ones.

use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;

/// A program, the Debian package that holds it, and what is skipped without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tool {
    program: &'static str,
    package: &'static str,
    without: &'static str,
}

const TOOLS: [Tool; 16] = [
    Tool { program: "mkfs.ext4", package: "e2fsprogs", without: "ext4 volumes" },
    Tool { program: "e2fsck", package: "e2fsprogs", without: "ext4 volumes" },
    Tool { program: "resize2fs", package: "e2fsprogs", without: "expansion of ext4 volumes" },
    Tool { program: "mkfs.xfs", package: "xfsprogs", without: "XFS volumes and reflink pools" },
    Tool { program: "xfs_growfs", package: "xfsprogs", without: "expansion of XFS volumes" },
    Tool { program: "xfs_repair", package: "xfsprogs", without: "XFS volumes" },
    Tool { program: "mkfs.btrfs", package: "btrfs-progs", without: "btrfs volumes and pools" },
    Tool { program: "btrfs", package: "btrfs-progs", without: "btrfs volumes and pools" },
    Tool { program: "mount", package: "mount", without: "everything that mounts" },
    Tool { program: "losetup", package: "mount", without: "everything on loop devices" },
    Tool { program: "blkid", package: "util-linux", without: "volumes with a filesystem" },
    Tool { program: "fsfreeze", package: "util-linux", without: "snapshots of mounted volumes" },
    Tool { program: "ip", package: "iproute2", without: "machines that join over a network" },
    Tool { program: "strace", package: "strace", without: "power cuts of the API server's store" },
    Tool { program: "chromium", package: "chromium", without: "the live page in a browser" },
    Tool { program: "chromedriver", package: "chromium-driver", without: "the live page in a browser" },
];

/// Packages that only one test needs.
const BROWSER: [&str; 2] = ["chromium", "chromium-driver"];

/// Installs what is missing where that is possible, and says what will be skipped where it is not.
pub(crate) fn provide() -> anyhow::Result<()> {
    let missing = missing();
    if missing.is_empty() {
        println!("all {} tools are here", TOOLS.len());
        return Ok(());
    }
    let packages = packages(&missing);
    if !is_root() {
        explain(&missing, &format!("not root, so nothing is installed; ask for: {}", packages.join(" ")));
    } else if find("apt-get").is_none() {
        explain(&missing, &format!("no apt-get; install what holds them: {}", packages.join(" ")));
    } else {
        let (wished, needed): (Vec<&str>, Vec<&str>) = packages.iter().partition(|package| BROWSER.contains(package));
        install(&needed)?;
        // A mirror may lack a browser. The tests that need one say that they were skipped.
        if let Err(error) = install(&wished) {
            println!("{error}");
        }
        let still = self::missing();
        explain(&still, "the packages do not hold them");
    }
    Ok(())
}

/// Cargo, without what the one that runs this task says of its own package. Build scripts that ask for such variables (ring's)
/// would run again, and with them would be built again all that stands on them, at every change between the two.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        cargo.env_remove(name);
    }
    cargo
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where a program is. System folders are looked at too: they are often missing from a user's path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(system);
    folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()))
}

fn missing() -> Vec<Tool> {
    TOOLS.into_iter().filter(|tool| find(tool.program).is_none()).collect()
}

fn packages(tools: &[Tool]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = tools.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn explain(tools: &[Tool], why: &str) {
    for Tool { program, without, .. } in tools {
        println!("skipped: {without}: `{program}` is missing ({why})");
    }
}

/// A fresh machine has no package lists, so a first failure is answered with one update.
fn install(packages: &[&str]) -> anyhow::Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    println!("installing {}", packages.join(" "));
    if apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())? {
        return Ok(());
    }
    if apt(&["update"])? && apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())? {
        return Ok(());
    }
    bail!("apt-get cannot install {}", packages.join(" "))
}

fn apt(args: &[&str]) -> anyhow::Result<bool> {
    let output = Command::new("apt-get").arg("-q").args(args).env("DEBIAN_FRONTEND", "noninteractive").output()?;
    if !output.status.success() {
        println!("apt-get {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_named_once() {
        let all = [
            "btrfs-progs",
            "chromium",
            "chromium-driver",
            "e2fsprogs",
            "iproute2",
            "mount",
            "strace",
            "util-linux",
            "xfsprogs",
        ];
        assert_eq!(packages(&TOOLS), all);
    }

    #[test]
    fn a_program_is_found_or_not() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
