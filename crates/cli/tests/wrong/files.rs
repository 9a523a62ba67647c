//! Wrong files, directories, sockets and ports: what is missing, broken, somebody else's, too long, full or read-only.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

use crate::api_rig::Server;
use crate::room::Room;
use crate::table::Table;

/// Kubeconfigs and what they lead to.
const KUBECONFIGS: &[&str] = &[
    "orlop tree",
    "KUBECONFIG=nothere orlop tree",
    "orlop tree --kubeconfig nothere",
    "orlop tree --kubeconfig tmp",
    "orlop tree --kubeconfig broken.kubeconfig",
    "orlop tree --kubeconfig text",
    "orlop tree --kubeconfig empty",
    "orlop tree --kubeconfig alive.kubeconfig --context production",
    "orlop tree --kubeconfig nocontext.kubeconfig",
    "orlop tree --kubeconfig dead.kubeconfig",
    "orlop explain pvc/data --kubeconfig dead.kubeconfig",
    "orlop tree --kubeconfig authority.kubeconfig",
    "orlop tree --kubeconfig stranger.kubeconfig",
    "orlop tree --kubeconfig token.kubeconfig",
    "orlop controllers --kubeconfig broken.kubeconfig",
    "orlop tree --kubeconfig alive.kubeconfig -n shop",
    "orlop tree data --kubeconfig alive.kubeconfig",
    "orlop explain pvc/data --kubeconfig alive.kubeconfig",
    "orlop explain pvc/data -A --kubeconfig alive.kubeconfig",
    "orlop explain pv/data --kubeconfig alive.kubeconfig",
    "orlop explain pod/web --kubeconfig alive.kubeconfig",
    "orlop orphans --csi-address <here>/nothere.sock --kubeconfig alive.kubeconfig",
    "orlop page --token-file nodir/token --kubeconfig alive.kubeconfig",
];

/// Directories of data, and what is made beside them.
const PLACES: &[&str] = &[
    "orlop api --data alive --listen 127.0.0.1:0",
    "orlop up --data alive --listen 127.0.0.1:0",
    "orlop check --data alive",
    "orlop salvage --data alive --to new",
    "orlop check --data tmp",
    "orlop check --data text",
    "orlop api --data newer --listen 127.0.0.1:0",
    "orlop check --data newer",
    "orlop api --data text --listen 127.0.0.1:0",
    "orlop up --data text --listen 127.0.0.1:0",
    "orlop up --data new --listen <taken>",
    "orlop api --data new --listen <taken>",
    "orlop up --data <long> --listen 127.0.0.1:0",
    "orlop api --data new --listen 127.0.0.1:0 --write-kubeconfig nodir/kubeconfig",
    "orlop api --data new --listen 127.0.0.1:0 --audit-log nodir/audit.log",
    "orlop backup --data alive --to text",
    "orlop backup --data alive --to nodir/backup",
    "orlop backup --data alive --to tmp",
    "orlop up --data new --listen 127.0.0.1:0 --config broken.yaml",
    "orlop up --data new --listen 127.0.0.1:0 --config latin.yaml",
    "orlop restore --from text --data new",
    "orlop restore --from text --data alive",
    "orlop man --dir text",
];

/// Pools, sockets and configuration files of drivers.
const DRIVERS: &[&str] = &[
    "orlop driver --endpoint unix://<here>/csi.sock --node-id n --pool text",
    "orlop driver --endpoint unix://<here>/csi.sock --node-id n --pool nodir --no-init",
    "orlop driver --endpoint unix://<long>/csi.sock --node-id n --pool nodir",
    "orlop driver --config nothere.toml",
    "orlop driver --config text",
    "orlop driver --config unknown.toml",
    "orlop driver --config number.toml",
    "orlop csi --endpoint <here>/text probe",
    "orlop csi --endpoint <here>/deaf.sock probe",
    "orlop csi --endpoint <here>/deaf.sock --secrets nothere probe",
];

/// Rows that make something before they fail, because that is how a disk is found to be full or a socket to be taken.
const AFTERWARDS: &[&str] = &[
    "orlop driver --endpoint unix://<here>/text --node-id n --pool pool",
    "orlop driver --endpoint unix://<here>/nodir/csi.sock --node-id n --pool pool",
];

/// Rows that need root: what is mounted, and who may mount.
const FILESYSTEMS: &[&str] = &[
    "orlop api --data readonly/data --listen 127.0.0.1:0",
    "orlop up --data readonly/data --listen 127.0.0.1:0",
    "orlop driver --endpoint unix://<here>/csi.sock --node-id n --pool readonly/pool",
    "orlop api --data full/data --listen 127.0.0.1:0",
    "orlop mount data tmp --kubeconfig dead.kubeconfig",
    "orlop mount data tmp --kubeconfig alive.kubeconfig",
    "orlop umount tmp --kubeconfig alive.kubeconfig",
    "orlop node --data nothere",
    "orlop node --server https://127.0.0.1:1 --token x --data joining",
    "sudo -u nobody orlop mount data tmp",
    "sudo -u nobody orlop api --data private/data --listen 127.0.0.1:0",
];

pub(crate) async fn play(table: &mut Table) {
    let mut room = Room::new();
    let mut alive = Server::spawn(&room.path().join("alive"));
    let address = alive.address().await;
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    room.name("taken", &taken.local_addr().expect("it has one").to_string());
    room.name("server", &address);
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    room.name("node", &format!("node {name}"));
    room.name("long", &format!("{}/{}", room.path().display(), "deep/".repeat(20)));
    let here = room.path().display().to_string();
    room.name("here", &here);
    furnish(&room, &address).await;
    for line in KUBECONFIGS.iter().chain(PLACES).chain(DRIVERS) {
        table.row(line, &room.run(line));
    }
    for line in AFTERWARDS {
        table.row(line, &room.run_freely(line));
    }
    filesystems(table, &room);
    alive.stop();
}

/// Puts the wrong things into the room.
async fn furnish(room: &Room, address: &str) {
    room.write("text", "this is a text\n");
    room.write("empty", "");
    room.write("broken.yaml", "class: local\n  page: off\n");
    std::fs::write(room.path().join("latin.yaml"), b"class: caf\xe9\n").expect("a file can be written");
    room.write("broken.kubeconfig", "apiVersion: v1\nkind: Config\nusers: [{user: {token: s3cret}}\n");
    room.write("unknown.toml", "endpoint = \"unix:///run/csi.sock\"\n");
    room.write("number.toml", "endpoints = [\"unix:///run/csi.sock\"]\nattach_limit = \"many\"\n");
    drop(std::os::unix::net::UnixListener::bind(room.path().join("deaf.sock")).expect("a socket can be made"));
    // Where `orlop up --data orlop` would have left it.
    std::fs::create_dir_all(room.path().join("orlop/store")).expect("a directory can be made");
    room.write("orlop/kubeconfig", "");
    let other = another_cluster(room).await;
    let good = std::fs::read_to_string(room.path().join("alive.kubeconfig")).expect("the server wrote it");
    let part = |text: &str, key: &str| {
        let found = Regex::new(&format!("{key}: (\\S+)")).expect("the pattern is good");
        found.captures(text).map(|found| found[1].to_owned()).expect("a kubeconfig has it")
    };
    let with = |key: &str| good.replace(&part(&good, key), &part(&other, key));
    room.write("dead.kubeconfig", &good.replace(address, "127.0.0.1:1"));
    room.write(
        "nocontext.kubeconfig",
        &Regex::new("current-context: .*").unwrap().replace(&good, "current-context: gone"),
    );
    room.write("authority.kubeconfig", &with("certificate-authority-data"));
    let stranger = with("client-certificate-data");
    room.write(
        "stranger.kubeconfig",
        &stranger.replace(&part(&good, "client-key-data"), &part(&other, "client-key-data")),
    );
    let token = Regex::new("client-certificate-data: .*").unwrap().replace(&good, "token: expired").into_owned();
    room.write("token.kubeconfig", &Regex::new(" *client-key-data: .*\n").unwrap().replace(&token, ""));
}

/// The kubeconfig of a cluster that is not running, and its directory as a later program would have left it.
async fn another_cluster(room: &Room) -> String {
    let data = room.path().join("newer");
    let mut server = Server::spawn(&data);
    server.address().await;
    server.stop();
    // The format is `user_version` of the database's header, 4 bytes at 60.
    let file = data.join("store/store.db");
    let mut database = std::fs::read(&file).expect("the server made it");
    database[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&file, database).expect("it can be written");
    std::fs::read_to_string(data.with_extension("kubeconfig")).expect("the server wrote it")
}

/// A filesystem of the test's own, in memory. Dropping it unmounts it.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(path: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(path).expect("a directory can be made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(path).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = linux::mounts::unmount_all(&self.0);
    }
}

fn filesystems(table: &mut Table, room: &Room) {
    let mounted = rustix::process::geteuid().is_root().then(|| {
        let read_only = Tmpfs::mount(&room.path().join("readonly"), "ro,size=1m");
        let full = Tmpfs::mount(&room.path().join("full"), "size=64k");
        let private = room.path().join("private");
        std::fs::create_dir(&private).expect("a directory can be made");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&private, mode).expect("its mode can be set");
        read_only.zip(full)
    });
    let Some(Some(_mounted)) = mounted else {
        FILESYSTEMS.iter().for_each(|line| table.skip(line, "mounting needs root"));
        return;
    };
    for line in FILESYSTEMS {
        match line.starts_with("sudo ") && !room.open_to_others() {
            true => table.skip(line, "the program lies where only its owner can start it"),
            false => table.row(line, &room.run_freely(line)),
        }
    }
}
