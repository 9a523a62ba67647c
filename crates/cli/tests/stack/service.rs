//! `orlop up` under a service manager.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use crate::program::{Program, binary, orlop, with};
use crate::rig::{self, Scratch};

#[test]
fn the_unit_is_one_that_systemd_takes_and_printing_it_starts_nothing() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let socket = "--driver=unix:///run/other/csi.sock";
    let printed = orlop(&["up", &with("--data", &data), socket, "--log-format=json", "--print-systemd"]);
    assert!(printed.status.success(), "{printed:?}");
    assert!(!data.exists(), "nothing was started");
    let unit = String::from_utf8(printed.stdout).expect("a unit is text");
    let wanted = format!("ExecStart={} up {} {socket} --log-format=json\n", binary().display(), with("--data", &data));
    assert!(unit.contains(&wanted), "{wanted}\n{unit}");
    assert!(unit.contains("\nType=notify\n") && unit.contains("\nRestart=always\n"), "{unit}");

    let file = scratch.path("orlop.service");
    std::fs::write(&file, unit).expect("it can be written");
    match Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&file).output() {
        Err(error) => rig::skip("systemd-analyze verify", &format!("systemd-analyze: {error}")),
        Ok(verified) => {
            let said = String::from_utf8_lossy(&verified.stderr);
            let about: Vec<&str> = said.lines().filter(|line| line.contains("orlop.service")).collect();
            assert!(about.is_empty(), "{said}");
            if !verified.status.success() {
                rig::skip("systemd-analyze verify", &format!("it cannot judge here: {said}"));
            }
        }
    }
}

#[test]
fn a_service_manager_is_told_when_the_stack_is_ready_and_when_it_ends() {
    let scratch = Scratch::new();
    let socket = scratch.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket can be made");
    manager.set_read_timeout(Some(crate::program::PATIENCE)).expect("it is a socket");
    let mut heard = [0; 64];
    let mut next = || {
        let count = manager.recv(&mut heard).expect("a word comes");
        String::from_utf8_lossy(&heard[..count]).into_owned()
    };
    let data = with("--data", &scratch.path("data"));
    let mut command = Command::new(binary());
    let up =
        Program::spawn(command.args(["up", "--listen=127.0.0.1:0", "--page=off", &data]).env("NOTIFY_SOCKET", &socket));
    assert_eq!(next(), "READY=1");
    up.says("ready address=");
    let said = up.stop();
    assert_eq!(next(), "STOPPING=1");
    assert!(said.trim_end().ends_with("stopped"), "{said}");
}
