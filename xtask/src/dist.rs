//! The program as it is shipped: one file, stripped, that needs no other.
//!
//! It is linked with the C library inside it, so that it runs on any Linux of its architecture and in an empty container.
//! Only the last step differs from any other build of the profile `dist`: what it stands on is built once.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// What makes the linker put the C library into the program.
const STATIC: [&str; 2] = ["-C", "target-feature=+crt-static"];

/// What makes it smaller by more than a megabyte: functions with the same machine code become one, and the list of addresses
/// to move at the start is packed. Both are the work of the linker that Rust brings along on this architecture; the packed
/// list needs a C library of 2022 (glibc 2.36) on the building machine, none on the one it runs on.
#[cfg(target_arch = "x86_64")]
const SMALL: &[&str] = &["-C", "link-arg=-Wl,--icf=all", "-C", "link-arg=-Wl,-z,pack-relative-relocs"];
#[cfg(not(target_arch = "x86_64"))]
const SMALL: &[&str] = &[];

/// How large the program may be.
const LARGEST: u64 = 25_000_000;

/// What cargo is told to do.
pub(crate) fn arguments() -> Vec<&'static str> {
    let build = ["rustc", "--package", "orlop", "--bin", "orlop", "--profile", "dist", "--"];
    build.into_iter().chain(STATIC).chain(SMALL.iter().copied()).collect()
}

/// Where cargo puts it.
pub(crate) fn program() -> PathBuf {
    crate::target().join("dist/orlop")
}

/// Builds it, looks at it, and says what it is.
pub(crate) fn run() -> anyhow::Result<()> {
    let built =
        Command::new("cargo").args(arguments()).current_dir(crate::root()).status().context("starting cargo")?;
    if !built.success() {
        bail!("cargo rustc --profile dist: {built}");
    }
    let program = program();
    let size = std::fs::metadata(&program).with_context(|| format!("looking at {}", program.display()))?.len();
    let linked = linked(&program)?;
    let version = said(Command::new(&program).arg("--version"))?;
    let megabytes = |bytes: u64| format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000);
    println!("{}\n  {version}\n  {}\n  {linked}", program.display(), megabytes(size));
    if size > LARGEST {
        bail!("the program is larger than {}", megabytes(LARGEST));
    }
    match linked.contains("static") || linked.contains("not a dynamic executable") {
        true => Ok(()),
        false => bail!("the program needs shared libraries"),
    }
}

/// What the loader would have to find for it, in `ldd`'s words.
fn linked(program: &Path) -> anyhow::Result<String> {
    said(Command::new("ldd").arg(program))
}

/// `ldd` fails for a program that needs no loader, and says so on the other output.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; "))
}
