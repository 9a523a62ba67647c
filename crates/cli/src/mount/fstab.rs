//! What mount(8) and umount(8) call: `/sbin/mount.orlop` and `/sbin/umount.orlop`, links to this program.
//!
//! mount(8) runs `mount.orlop SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, umount(8) runs
//! `umount.orlop DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`. Both are turned into the command line of `orlop`.

use std::ffi::OsString;
use std::path::Path;

/// Words of fstab that are for others than us.
const FOR_OTHERS: [&str; 12] =
    ["defaults", "rw", "auto", "noauto", "_netdev", "nofail", "user", "nouser", "users", "owner", "group", "exec"];
/// Options that are flags of `orlop mount` with a value.
const FLAGS: [&str; 5] = ["kubeconfig", "context", "node-name", "timeout", "fs-group"];

/// The command line this program was meant to get, if it was called by one of the helpers' names.
pub(crate) fn arguments(given: &[OsString]) -> Option<Result<Vec<OsString>, String>> {
    let name = Path::new(given.first()?).file_name()?.to_str()?;
    let given = given.get(1..).unwrap_or_default();
    match name {
        "mount.orlop" => Some(mount(given)),
        "umount.orlop" => Some(umount(given)),
        _ => None,
    }
}

fn mount(given: &[OsString]) -> Result<Vec<OsString>, String> {
    let Words { plain, options } = words(given)?;
    let [claim, path] = &plain[..] else {
        return Err("usage: mount.orlop [NAMESPACE/]CLAIM PATH [-o OPTIONS]".to_owned());
    };
    let mut line: Vec<OsString> = ["orlop", "mount"].map(OsString::from).to_vec();
    line.extend([claim.clone(), path.clone()]);
    for option in options.iter().flat_map(|options| options.split(',')).filter(|option| !option.is_empty()) {
        line.extend(flag(option)?.map(OsString::from));
    }
    Ok(line)
}

/// One option of `-o` as a flag.
fn flag(option: &str) -> Result<Option<String>, String> {
    let name = option.split('=').next().unwrap_or_default();
    match option {
        "ro" => Ok(Some("--read-only".to_owned())),
        _ if FOR_OTHERS.contains(&name) || name.starts_with("x-") => Ok(None),
        _ if FLAGS.contains(&name) && option.contains('=') => Ok(Some(format!("--{option}"))),
        _ => Err(format!("option {option:?} is not known; known are ro and {} with a value", FLAGS.join("=, ") + "=")),
    }
}

fn umount(given: &[OsString]) -> Result<Vec<OsString>, String> {
    let Words { plain, .. } = words(given)?;
    let [path] = &plain[..] else { return Err("usage: umount.orlop PATH".to_owned()) };
    Ok(vec!["orlop".into(), "umount".into(), path.clone()])
}

struct Words {
    plain: Vec<OsString>,
    options: Vec<String>,
}

fn words(given: &[OsString]) -> Result<Words, String> {
    let mut found = Words { plain: Vec::new(), options: Vec::new() };
    let mut rest = given.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => {
                let options = rest.next().and_then(|options| options.to_str());
                found.options.push(options.ok_or("-o needs options")?.to_owned());
            }
            Some("-t" | "-N") => drop(rest.next()),
            Some(switch) if switch.starts_with('-') => {}
            _ => found.plain.push(word.clone()),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Option<Result<String, String>> {
        let given: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let joined = |line: Vec<OsString>| line.join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned();
        arguments(&given).map(|line| line.map(joined))
    }

    #[test]
    fn other_names_are_left_alone() {
        assert_eq!(line("/usr/bin/orlop mount a /b"), None);
    }

    #[test]
    fn what_mount_says_becomes_our_command() {
        let said = "/sbin/mount.orlop shop/data /mnt/data -n -t orlop -o ro,_netdev,x-systemd.automount,kubeconfig=/k";
        let meant = "orlop mount shop/data /mnt/data --read-only --kubeconfig=/k";
        assert_eq!(line(said), Some(Ok(meant.to_owned())));
    }

    #[test]
    fn what_umount_says_becomes_our_command() {
        assert_eq!(line("/sbin/umount.orlop /mnt/data -f -t orlop"), Some(Ok("orlop umount /mnt/data".to_owned())));
    }

    #[test]
    fn an_option_nobody_knows_is_refused_and_named() {
        let refused = line("mount.orlop data /mnt -o fast").unwrap().unwrap_err();
        assert!(refused.contains("\"fast\"") && refused.contains("kubeconfig="), "{refused}");
        assert!(line("mount.orlop data").unwrap().is_err());
    }
}
