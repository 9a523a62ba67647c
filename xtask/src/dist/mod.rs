//! The program as it is shipped: one file, stripped, that needs no other.
//!
//! It is linked with the C library inside it, so that it runs on any Linux of its architecture and in an empty container.
//! That library is the building machine's (glibc on Debian): no other target has to be installed, and nothing of it is loaded
//! at run time, since the program looks up no users and no host names. What was built is then tried as its users would:
//! where nothing else is ([`container`]), and as a whole (`orlop demo`).

mod container;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

/// What makes the linker put the C library into the program.
const STATIC: [&str; 2] = ["-C", "target-feature=+crt-static"];

/// What makes it smaller: functions with the same machine code become one, and the list of addresses
/// to move at the start is packed. Both are the work of the linker that Rust brings along on this architecture; the packed
/// list needs a C library of 2022 (glibc 2.36) on the building machine, none on the one it runs on.
#[cfg(target_arch = "x86_64")]
const SMALL: &[&str] = &["-C", "link-arg=-Wl,--icf=all", "-C", "link-arg=-Wl,-z,pack-relative-relocs"];
#[cfg(not(target_arch = "x86_64"))]
const SMALL: &[&str] = &[];

/// How large the program may be.
const LARGEST: u64 = 25_000_000;

/// What `cargo xtask dist` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Look at this program instead of building one.
    #[arg(long, value_name = "PROGRAM")]
    built: Option<PathBuf>,
}

/// What cargo is told to do.
pub(crate) fn arguments() -> Vec<&'static str> {
    let build = ["rustc", "--package", "orlop", "--bin", "orlop", "--profile", "dist", "--"];
    build.into_iter().chain(STATIC).chain(SMALL.iter().copied()).collect()
}

/// Builds it, says what it is, and tries it. Every fault is told, not the first one only.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let program = match args.built {
        Some(program) => program,
        None => crate::conformance::build(crate::conformance::Profile::Dist).await?,
    };
    let size = std::fs::metadata(&program).with_context(|| format!("looking at {}", program.display()))?.len();
    let linked = linked(&program)?;
    println!(
        "{}\n  {}\n  {}\n  {linked}",
        program.display(),
        said(Command::new(&program).arg("--version"))?,
        megabytes(size)
    );
    let mut faults = Vec::new();
    if size > LARGEST {
        faults.push(format!("the program is larger than {}", megabytes(LARGEST)));
    }
    if !linked.contains("statically linked") && !linked.contains("not a dynamic executable") {
        faults.push("the program needs shared libraries".to_owned());
    }
    match container::try_in(&program).await {
        Ok(found) => println!("  {found}"),
        Err(error) => faults.push(format!("in an empty container: {error:#}")),
    }
    match demo(&program) {
        Ok(found) => println!("  {found}"),
        Err(error) => faults.push(format!("{error:#}")),
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

/// What the loader would have to find for it, in `ldd`'s words.
fn linked(program: &Path) -> anyhow::Result<String> {
    said(Command::new("ldd").arg(program))
}

/// The demonstration tells everything that went wrong.
fn demo(program: &Path) -> anyhow::Result<String> {
    let started = Instant::now();
    let output = Command::new(program).arg("demo").output().context("starting orlop demo")?;
    if !output.status.success() {
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        bail!("orlop demo ended with {}:\n{told}", output.status);
    }
    Ok(format!("orlop demo: {:.1} s", started.elapsed().as_secs_f64()))
}

/// `ldd` fails for a program that needs no loader, and says so on the other output.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; "))
}
