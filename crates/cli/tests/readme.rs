//! README's own text: what it tells a stranger to type is what is typed here.
//!
//! Building a release takes minutes, so that the program is the one that the tests were built with; `cargo xtask readme`
//! runs the commands exactly as they are printed. Directories are made unique by replacing their names in the text.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use linux::mountinfo::MountTable;
use linux::mounts::Rights;

const PROGRAM: &str = env!("CARGO_BIN_EXE_orlop");
const DEMO: &str = "cargo run --release -- demo";
const TEST: &str = "cargo xtask test";
const UP: &str = "target/release/orlop up --data /tmp/orlop";
/// More than this nobody reads.
const LINES: usize = 120;

fn readme() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    std::fs::read_to_string(file).expect("there is a README")
}

/// The commands of each block that is to be typed, in order.
fn blocks(readme: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in readme.lines() {
        match (&mut open, line) {
            (None, "```sh") => open = Some(String::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => *block += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    blocks
}

fn skip(why: &str) {
    use std::io::Write as _;
    println!("skipped: {why}");
    if let Some(file) = std::env::var_os("ORLOP_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("the log can be opened");
        writeln!(log, "{why}").expect("the log can be written");
    }
}

#[test]
fn the_first_command_shows_everything_and_the_other_one_tests_it() {
    let readme = readme();
    assert!(readme.lines().count() < LINES, "README has {} lines", readme.lines().count());
    let blocks = blocks(&readme);
    assert_eq!(blocks.first().map(|block| block.trim_end()), Some(DEMO), "it is the first thing to type");
    assert!(blocks.iter().any(|block| block.trim_end() == TEST), "{blocks:?}");

    let place = tempfile::tempdir().expect("a directory can be made");
    let (_, words) = DEMO.split_once(" -- ").expect("cargo's words end there");
    let output = Command::new(PROGRAM).args(words.split(' ')).env("TMPDIR", place.path()).output();
    let output = output.expect("the binary was just built");
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0) => {}
        Some(3) => skip("this machine forbids mounts, and the demonstration says so"),
        _ => panic!("{said}\n{}", String::from_utf8_lossy(&output.stderr)),
    }
    // README shows the beginning of each stage, with times of its own machine.
    let shown = shown_headings(&readme);
    assert!(shown.len() > 4, "README shows what one will see: {shown:?}");
    for heading in shown.iter().filter(|_| output.status.success()) {
        assert!(said.contains(heading), "README promises {heading:?}, and this is said:\n{said}");
    }
}

/// The headings of stages in README's sample.
fn shown_headings(readme: &str) -> Vec<&str> {
    let is_heading = |line: &&str| line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
    let sample = readme.split("```text").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    sample.lines().filter(is_heading).collect()
}

/// `orlop up` as README starts it. Dropping it ends it, and takes its mounts away.
struct Up {
    child: Child,
    place: PathBuf,
}

impl Up {
    fn start(line: &str, place: &Path) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec {line}")])
            .env("PATH", path_with_program())
            .stderr(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut heard = Vec::new();
        let ready = lines.by_ref().any(|line| {
            heard.push(line);
            heard.last().is_some_and(|line| line.contains("ready address="))
        });
        // Whatever it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let up = Self { child, place: place.canonicalize().expect("it is there") };
        assert!(ready, "it never became ready: {heard:?}");
        up
    }

    /// Ctrl-C.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is our child");
        assert!(self.child.wait().expect("it is our child").success());
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let Ok(table) = MountTable::read() else { return };
        let mut points: Vec<_> = table.below(&self.place).map(|mount| mount.mount_point.clone()).collect();
        points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
        for point in points {
            let _ = Command::new("umount").arg("--lazy").arg(point).status();
        }
    }
}

/// As after README's `export PATH`, with the program that was built for the tests.
fn path_with_program() -> std::ffi::OsString {
    let folder = Path::new(PROGRAM).parent().expect("a program is in a folder").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path))).expect("paths can be joined")
}

fn sh(script: &str) -> (bool, String) {
    let output = Command::new("sh").args(["-c", script]).env("PATH", path_with_program()).output();
    let output = output.expect("there is a shell");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), said)
}

#[test]
fn the_commands_for_a_stack_that_stays_work_as_printed() {
    if !Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|output| output.status.success()) {
        return skip("there is no kubectl");
    }
    if Rights::ask() < Rights::Devices {
        return skip("mounting a claim needs root");
    }
    let place = tempfile::tempdir().expect("a directory can be made");
    let here = place.path().display();
    let unique = |text: &str| {
        let folder = Path::new(PROGRAM).parent().expect("a program is in a folder").display().to_string();
        // The folder may be in /tmp itself, so that it comes last.
        let text = text.replace("/tmp/", &format!("{here}/"));
        text.replace("$PWD/target/release", &folder).replace("target/release/", &format!("{folder}/"))
    };
    let blocks = blocks(&readme());
    let at = blocks.iter().position(|block| block.lines().any(|line| line == UP)).expect("README starts a stack");
    // The usual port may be taken on a machine that runs tests.
    let up = Up::start(&format!("{} --listen 127.0.0.1:0", unique(UP)), place.path());

    let script = unique(&blocks[at + 1]);
    assert!(script.contains("orlop mount"), "the block after it uses the stack: {script}");
    let (done, said) = sh(&script);
    assert!(done, "{script}\n{said}");
    for part in ["persistentvolumeclaim/data created", "PersistentVolumeClaim default/data is", "is mounted at"] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
    let path = place.path().canonicalize().expect("it is there").join("data");
    let table = MountTable::read().expect("there is a mount table");
    assert_eq!(table.at(&path).count(), 1, "{said}");
    std::fs::write(path.join("file"), "kept").expect("it can be written");

    // The volume goes only when its node has let go of it; then nothing is left to clean up after.
    let kubeconfig = place.path().join("orlop/kubeconfig");
    let back = format!(
        "export KUBECONFIG={}; orlop umount {here}/data && kubectl delete pvc data && \
         kubectl wait --for=delete pv --all --timeout=120s",
        kubeconfig.display()
    );
    let (done, said) = sh(&back);
    assert!(done, "{said}");
    up.stop();
    let left = MountTable::read().expect("there is a mount table").below(&place.path().canonicalize().unwrap()).count();
    assert_eq!(left, 0, "{said}");
}
