//! Addresses to listen on, as people type them, and who has a port that is taken.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

use anyhow::{Context as _, bail};

/// A text that is no address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an address is an IP address and a port: {advice}")]
pub(crate) struct NotAnAddress {
    advice: String,
}

/// Reads `IP:PORT`; `localhost` is 127.0.0.1.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, NotAnAddress> {
    let numbers = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numbers.parse().map_err(|_| NotAnAddress { advice: advice(&numbers) })
}

fn advice(text: &str) -> String {
    let bare = text.strip_prefix(':').unwrap_or(text);
    if bare.parse::<u16>().is_ok() {
        return format!("write 127.0.0.1:{bare}");
    }
    // `::1:6443` is an address of its own, which nobody means.
    if let Some((ip, port)) = text.rsplit_once(':')
        && let (Ok(ip @ IpAddr::V6(_)), Ok(port)) = (ip.parse(), port.parse::<u16>())
        && !text.starts_with('[')
    {
        return format!("write {}", SocketAddr::new(ip, port));
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return format!("the port is missing, write {} (0 takes a free one)", SocketAddr::new(ip, 0));
    }
    match text.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.chars().all(|digit| digit.is_ascii_digit()) => {
            match port.parse::<u16>() {
                Ok(port) => format!("names of hosts are not looked up, write 127.0.0.1:{port}"),
                Err(_) => format!("port {port} is above 65535"),
            }
        }
        _ => "write one such as 127.0.0.1:6443, or 127.0.0.1:0 for a free port".to_owned(),
    }
}

/// Finds out before anything is made that an address cannot be had, and says who has it.
pub(crate) fn require_free(flag: &str, address: SocketAddr) -> anyhow::Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let by = holder(address.port()).map_or_else(String::new, |process| format!(" by {process}"));
            let free = SocketAddr::new(address.ip(), 0);
            bail!(
                "{flag} {address}: the port is taken{by}; stop that, or choose another ({flag} {free} takes a free one)"
            )
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!("{flag} {address}: ports below 1024 need root; choose a higher one, such as 6443")
        }
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            bail!(
                "{flag} {address}: this machine has no address {}; `ip -brief address` lists those it has",
                address.ip()
            )
        }
        Err(error) => Err(error).with_context(|| format!("{flag} {address}: this machine cannot listen there")),
    }
}

/// The process that listens on a port, as far as this user may see it.
fn holder(port: u16) -> Option<String> {
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|table| fs::read_to_string(table).ok());
    let inode = sockets.flat_map(|table| listening(&table, port)).next()?;
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let holds = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
        open.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link.as_os_str() == wanted.as_str())
    };
    // Beside the numbers there is `self`, which is nobody's name.
    let number = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit());
    let process = processes.filter(number).map(|entry| entry.path()).find(|process| holds(process))?;
    let pid = process.file_name()?.to_str()?;
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim()))
}

/// The inodes of sockets that listen on the port, from the kernel's table: `sl local remote st ... inode`.
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let here = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let wanted = rows.filter(|row| row.len() > 9 && row[1].ends_with(&here) && row[3] == LISTEN);
    wanted.map(|row| row[9].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type_for_an_address_is_answered_with_the_one_they_mean() {
        assert_eq!(parse("localhost:6443"), parse("127.0.0.1:6443"));
        let rows = [
            ("6443", "write 127.0.0.1:6443"),
            (":6443", "write 127.0.0.1:6443"),
            ("127.0.0.1", "write 127.0.0.1:0"),
            ("::1", "write [::1]:0"),
            ("[::1]", "write [::1]:0"),
            ("::1:6443", "write [::1]:6443"),
            ("example.com:80", "write 127.0.0.1:80"),
            ("127.0.0.1:99999", "port 99999 is above 65535"),
            ("", "such as 127.0.0.1:6443"),
        ];
        for (text, want) in rows {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_told_with_who_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let error = require_free("--listen", address).expect_err("it is taken").to_string();
        assert!(error.contains(&format!("by process {} (", std::process::id())), "{error}");
        assert!(error.contains("--listen 127.0.0.1:0 takes a free one"), "{error}");
    }
}
