//! What tells this process from all others: the host, the machine, its boot, and chance.
//!
//! The name of a host is not enough: two processes of one host have it, and so does every clone of a machine. Machine id and
//! boot id are shown as digests, since the machine id is not meant to leave the machine.

use std::path::Path;
use std::sync::OnceLock;

use lifecycle::registration::lease::AgentIdentity;
use runtime::Entropy;
use sha2::{Digest as _, Sha256};

use super::identity as host;

/// Where the machine id is; older systems have the second one.
const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Who this process is among those that compete for a lease: another one for each process, as upstream's `hostname_uuid`.
pub(crate) fn unique() -> &'static str {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(|| format!("{}_{}_{}_{}", host(), machine(), boot(), Entropy::from_system().token()))
}

/// Who looks after this machine's node from a directory.
pub(crate) fn of_agent(directory: &Path) -> AgentIdentity {
    let place = format!("{}_{}", host(), digest("directory", directory.as_os_str().as_encoded_bytes()));
    AgentIdentity { place, machine: machine(), boot: boot() }
}

/// Empty files and missing ones are the same: such a machine is told from others by its boot.
fn machine() -> String {
    let read = |path: &&str| std::fs::read_to_string(path).ok().filter(|id| !id.trim().is_empty());
    let id = MACHINE_ID.iter().find_map(read).unwrap_or_default();
    digest("machine", id.trim().as_bytes())
}

fn boot() -> String {
    let id = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
    digest("boot", id.trim().as_bytes())
}

fn digest(what: &str, bytes: &[u8]) -> String {
    let digest = Sha256::new().chain_update("orlop ").chain_update(what).chain_update([0]).chain_update(bytes);
    digest.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_names_the_host_and_holds_more_than_its_name() {
        let identity = unique();
        assert_eq!(identity, unique(), "a process has one");
        let parts: Vec<&str> = identity.strip_prefix(&host()).expect("the host comes first").split('_').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [0, 8, 8, 32], "{identity}");
    }

    #[test]
    fn an_agent_is_told_by_directory_machine_and_boot_and_not_by_their_ids_themselves() {
        let (one, two) = (of_agent(Path::new("/a")), of_agent(Path::new("/b")));
        assert_ne!(one.place, two.place);
        assert_eq!((&one.machine, &one.boot), (&two.machine, &two.boot));
        let boot = std::fs::read_to_string(BOOT_ID).expect("this is Linux");
        let holder = one.holder("process");
        assert!(!holder.contains(boot.trim()) && holder.starts_with(&format!("orlop/{}_", host())), "{holder}");
    }
}
