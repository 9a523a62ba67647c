//! The program that boots virtual machines, and one boot with it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use super::flaky::DiskFault;
use super::ledger;
use super::mutation::Mutation;

/// The name of the disk.
pub(super) const DISK: &str = "pool";
pub(super) const DISK_BYTES: u64 = 2 << 30;
/// What the runner needs, with the Debian packages.
const TOOLS: [(&str, &str); 4] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("cpio", "cpio"), ("modprobe", "kmod")];
/// What the machine itself needs; it sees the programs of this one.
const GUEST_TOOLS: [(&str, &str); 7] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("filefrag", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("addpart", "util-linux"),
    ("dmsetup", "dmsetup"),
    ("strace", "strace"),
];
/// Software emulation on a busy machine is slow.
const LIMIT_SECONDS: &str = "600";
/// Exit codes of the runner that say nothing about the disk.
const NO_ANSWER: [i32; 2] = [124, 125];
const CUT: i32 = 137;
const ATTEMPTS: u32 = 3;

/// Where the power is cut: as soon as the machine has printed this text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CutAt(pub(super) String);

/// One boot of the machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Boot {
    pub(super) state: PathBuf,
    pub(super) pool_fs: String,
    pub(super) orlop: PathBuf,
    pub(super) begun: PathBuf,
    pub(super) acknowledged: PathBuf,
    pub(super) round: u64,
    pub(super) seed: u64,
    pub(super) cut: Option<CutAt>,
    pub(super) stop_after: Option<u64>,
    /// Record all writes, and write the lines to the disk as well.
    pub(super) record: bool,
    /// Let the disk fail, after so many lines of work.
    pub(super) fault: Option<(DiskFault, u64)>,
    /// The disk failed in an earlier boot.
    pub(super) after_fault: bool,
    /// Images have all their blocks.
    pub(super) thick: bool,
    pub(super) mutation: Option<Mutation>,
}

/// How a boot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BootEnd {
    Cut,
    Exit(i32),
}

/// What a machine printed.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) end: BootEnd,
}

impl Said {
    /// The whole lines of the ledger.
    pub(super) fn lines(&self) -> String {
        let whole = self.text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.filter(|line| ledger::is_line(line.trim_end())).collect()
    }

    /// Did it look at everything, and was everything there?
    pub(super) fn is_verified(&self) -> bool {
        self.text.lines().any(|line| line == "VERIFIED")
    }

    pub(super) fn outcome(&self) -> String {
        let looked =
            if self.is_verified() { "all that was acknowledged before is there" } else { "the look was not finished" };
        match self.end {
            BootEnd::Cut | BootEnd::Exit(0) => looked.to_owned(),
            BootEnd::Exit(code) => format!("FAILED with exit code {code}"),
        }
    }

    /// Did the look find something wrong? Else a boot that failed says nothing of the disk.
    pub(super) fn found_wrong(&self) -> bool {
        self.end != BootEnd::Exit(0) && self.text.lines().any(|line| line.contains("WRONG: "))
    }

    pub(super) fn last(&self, count: usize) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}

/// `vm-run`, and all that it needs.
#[derive(Debug)]
pub(super) struct VmRunner {
    program: PathBuf,
}

impl VmRunner {
    /// Finds the runner, or says all that is missing.
    pub(super) fn find(wanted: Option<&Path>) -> anyhow::Result<Self> {
        let beside = || crate::root().parent().map(|folder| folder.join("shared/tools/vm-run"));
        let program =
            wanted.map(Path::to_owned).or_else(beside).context("the repository is at the root of the machine")?;
        let mut missing = Vec::new();
        if !program.is_file() {
            missing.push(format!(
                "the program that runs virtual machines ({} is not there; name it with --vm-run PROGRAM)",
                program.display()
            ));
        }
        let tools = TOOLS.iter().chain(&GUEST_TOOLS).filter(|(tool, _)| crate::tools::find(tool).is_none());
        missing.extend(tools.map(|(tool, package)| format!("`{tool}` (Debian: {package})")));
        if !missing.is_empty() {
            bail!("the power test needs what is missing here:\n  {}", missing.join("\n  "));
        }
        Ok(Self { program })
    }

    /// Boots the machine until it ends or its power is cut. An emulator that fails by itself is tried again.
    pub(super) async fn boot(&self, boot: &Boot) -> anyhow::Result<Said> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let (code, text) = self.boot_once(boot).await?;
            match code {
                CUT => return Ok(Said { text, end: BootEnd::Cut }),
                code if !NO_ANSWER.contains(&code) => return Ok(Said { text, end: BootEnd::Exit(code) }),
                code => {
                    last = Said { text, end: BootEnd::Exit(code) }.last(20);
                    println!("the machine did not work (exit code {code}); it is started again");
                    if boot.cut.is_some() || boot.record || boot.fault.is_some() {
                        // What it did is not known to the ledger, so that nothing can be said about this disk any more.
                        break;
                    }
                }
            }
        }
        bail!("the virtual machine does not work here:\n{last}")
    }

    async fn boot_once(&self, boot: &Boot) -> anyhow::Result<(i32, String)> {
        let mut command = Command::new(&self.program);
        command.args(["--mem", "1280", "--cpus", "2", "--timeout", LIMIT_SECONDS, "--state"]).arg(&boot.state);
        command.arg("--disk").arg(format!("{DISK}:{DISK_BYTES}"));
        if let Some(CutAt(text)) = &boot.cut {
            command.args(["--kill-on", text]);
        }
        if boot.record {
            command.arg("--log-writes");
        }
        command.arg("--").arg(std::env::current_exe()?).arg("power-guest");
        command.args(["--disk", &format!("/dev/vm/{DISK}"), "--pool-fs", &boot.pool_fs]);
        command.args(["--round", &boot.round.to_string(), "--seed", &boot.seed.to_string()]);
        command.arg("--orlop").arg(&boot.orlop).arg("--begun").arg(&boot.begun);
        command.arg("--acknowledged").arg(&boot.acknowledged);
        if boot.record {
            command.arg("--lines-on-disk");
        }
        if let Some(enough) = boot.stop_after {
            command.args(["--stop-after", &enough.to_string()]);
        }
        if let Some((fault, after)) = boot.fault {
            command.args(["--fault", fault.name(), "--fault-after", &after.to_string()]);
        }
        if let Some(mutation) = boot.mutation {
            command.args(["--mutation", mutation.name()]);
        }
        let switches = [("--after-fault", boot.after_fault), ("--thick", boot.thick)];
        command.args(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut machine =
            RunningMachine(command.spawn().with_context(|| format!("starting {}", self.program.display()))?);
        let mut output = machine.0.stdout.take().context("it was asked for")?;
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).await?;
        let status = machine.0.wait().await?;
        Ok((status.code().unwrap_or(-1), String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// Asks the runner to end, which then ends its emulator. Killed, it could not.
#[derive(Debug)]
struct RunningMachine(Child);

impl Drop for RunningMachine {
    fn drop(&mut self) {
        let pid = self.0.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .unwrap_or_else(|error| eprintln!("ending the virtual machine {pid:?}: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_the_cut_tore_does_not_count() {
        let text = "step mounted\n@1 start obj/a 1\n@2 done obj/a 1\nVERIFIED\n@3 done obj/a 1".to_owned();
        let said = Said { text, end: BootEnd::Cut };
        assert_eq!(said.lines(), "@1 start obj/a 1\n@2 done obj/a 1\n");
        assert!(said.is_verified());
        assert!(!Said { text: "not VERIFIED\n".to_owned(), end: BootEnd::Cut }.is_verified());
        let wrong = |text: &str, code| Said { text: text.to_owned(), end: BootEnd::Exit(code) }.found_wrong();
        assert!(wrong("WRONG: a record\n", 1) && wrong("xtask: WRONG: orlop check: exit status: 1\n", 1));
        assert!(!wrong("xtask: mkfs.ext4 is missing\n", 1) && !wrong("WRONG: a record\n", 0));
    }

    #[test]
    fn a_missing_runner_is_named_with_what_to_do() {
        let error = VmRunner::find(Some("/no/such/runner".as_ref())).expect_err("it is not there").to_string();
        assert!(error.contains("/no/such/runner is not there; name it with --vm-run PROGRAM"), "{error}");
    }
}
