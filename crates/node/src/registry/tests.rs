//! The watcher on a real directory (NODE-3.2, NODE-31.14).

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::plugins::{Plugins as _, Sighting, Sockets};

/// A watched directory, and what is told of it.
struct Watched {
    root: tempfile::TempDir,
    told: mpsc::UnboundedReceiver<Sighting>,
    task: JoinHandle<()>,
}

impl Watched {
    fn over(root: tempfile::TempDir) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let sockets = Sockets::in_directory(root.path());
        let task = tokio::spawn(async move {
            let tell = |sighting| drop(tell.send(sighting));
            sockets.watch(&tell).await;
        });
        Self { root, told, task }
    }

    fn new() -> Self {
        Self::over(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The next thing that is told: `+name` or `-name`.
    async fn next(&mut self) -> String {
        let (sign, socket) = match self.told.recv().await.expect("it watches") {
            Sighting::Found { socket } => ('+', socket),
            Sighting::Gone { socket } => ('-', socket),
        };
        let name = Path::new(&socket).strip_prefix(self.root.path()).unwrap();
        format!("{sign}{}", name.display())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn socket(path: &Path) -> UnixListener {
    UnixListener::bind(path).unwrap()
}

/// Rule: NODE-3.2
#[tokio::test]
async fn what_is_there_is_found_in_the_order_in_which_it_was_made() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("a/b")).unwrap();
    std::fs::create_dir_all(root.path().join(".c")).unwrap();
    std::fs::write(root.path().join("file"), "").unwrap();
    let names = ["z.sock", ".hidden.sock", "a/b/y.sock", ".c/x.sock", "w.sock"];
    let mut kept = Vec::new();
    for (second, name) in (1..).zip(names) {
        let path = root.path().join(name);
        kept.push(socket(&path));
        let time = rustix::fs::Timespec { tv_sec: second, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }
    let mut watched = Watched::over(root);
    assert_eq!(
        [watched.next().await, watched.next().await, watched.next().await],
        ["+z.sock", "+a/b/y.sock", "+w.sock"]
    );
}

/// Rules: NODE-3.2, NODE-30.17, NODE-31.14
#[tokio::test]
async fn what_comes_goes_is_renamed_or_made_again_is_told() {
    let mut watched = Watched::new();
    let first = socket(&watched.path("a.sock"));
    assert_eq!(watched.next().await, "+a.sock");
    std::fs::rename(watched.path("a.sock"), watched.path("b.sock")).unwrap();
    assert_eq!([watched.next().await, watched.next().await], ["-a.sock", "+b.sock"]);
    std::fs::rename(watched.path("b.sock"), watched.path(".b.sock")).unwrap();
    assert_eq!(watched.next().await, "-b.sock");
    std::fs::rename(watched.path(".b.sock"), watched.path("c.sock")).unwrap();
    assert_eq!(watched.next().await, "+c.sock");
    std::fs::remove_file(watched.path("c.sock")).unwrap();
    drop(first);
    let second = socket(&watched.path("c.sock"));
    assert_eq!([watched.next().await, watched.next().await], ["-c.sock", "+c.sock"]);
    // Over an existing one: nothing was deleted, and still it is another.
    let third = socket(&watched.path(".new"));
    std::fs::rename(watched.path(".new"), watched.path("c.sock")).unwrap();
    assert_eq!(watched.next().await, "+c.sock");
    drop((second, third));
}

/// Rule: NODE-3.2
#[tokio::test]
async fn folders_are_followed_wherever_they_go() {
    let mut watched = Watched::new();
    let _first = socket(&watched.path("first.sock"));
    assert_eq!(watched.next().await, "+first.sock");
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(outside.path().join("deep")).unwrap();
    let _deep = socket(&outside.path().join("deep/d.sock"));
    std::fs::rename(outside.path().join("deep"), watched.path("in")).unwrap();
    assert_eq!(watched.next().await, "+in/d.sock");
    let _more = socket(&watched.path("in/e.sock"));
    assert_eq!(watched.next().await, "+in/e.sock");
    std::fs::rename(watched.path("in"), watched.path("on")).unwrap();
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(watched.next().await);
    }
    assert_eq!(told, ["-in/d.sock", "-in/e.sock", "+on/d.sock", "+on/e.sock"]);
    std::fs::remove_dir_all(watched.path("on")).unwrap();
    let mut told = [watched.next().await, watched.next().await];
    told.sort();
    assert_eq!(told, ["-on/d.sock", "-on/e.sock"]);
}

/// Rule: NODE-31.14
#[tokio::test]
async fn a_directory_that_is_removed_is_made_again_and_followed() {
    let mut watched = Watched::new();
    let _first = socket(&watched.path("a.sock"));
    assert_eq!(watched.next().await, "+a.sock");
    std::fs::remove_dir_all(watched.root.path()).unwrap();
    assert_eq!(watched.next().await, "-a.sock");
    // It is made again by the walk that follows; until then nobody can make a socket in it.
    let second = loop {
        match UnixListener::bind(watched.path("b.sock")) {
            Ok(socket) => break socket,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(watched.next().await, "+b.sock");
    drop(second);
}

/// Rule: NODE-31.14
#[tokio::test]
async fn a_storm_that_inotify_cannot_count_loses_nothing() {
    let limit: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(16384);
    if limit > 100_000 {
        println!("skipped: the queue of inotify holds {limit} events, which is too many to fill");
        return;
    }
    let mut watched = Watched::new();
    let _first = socket(&watched.path("first.sock"));
    assert_eq!(watched.next().await, "+first.sock");
    // Nobody reads events meanwhile: this thread is the runtime's only one.
    for _ in 0..=limit {
        std::fs::write(watched.path("noise"), "").unwrap();
        std::fs::remove_file(watched.path("noise")).unwrap();
    }
    let _last = socket(&watched.path("last.sock"));
    assert_eq!(watched.next().await, "+last.sock");
}
