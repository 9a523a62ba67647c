//! The authority on disk: made once, used again, renewed in time, never replaced in silence.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;

use super::super::{
    CertificateError, Kubeconfig, Pki, PkiError, TokenSigner, UnixSeconds, kubeconfig, user_of_certificate,
    write_private,
};
use super::NOW;

const DAY: i64 = 24 * 60 * 60;

fn after(days: i64) -> UnixSeconds {
    UnixSeconds(NOW.0 + days * DAY)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_makes_everything_and_the_next_uses_it() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("pki");
    let first = Pki::open(&directory, &[], NOW).unwrap();
    assert_eq!(mode(&directory), 0o700);
    let mut names: Vec<String> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["admin.crt", "admin.key", "ca.crt", "ca.key", "sa.key", "server.crt", "server.key"]);
    assert!(names.iter().all(|name| mode(&directory.join(name)) == 0o600));
    fs::write(directory.join(".ca.key.1.tmp"), "half a key").unwrap();
    let second = Pki::open(&directory, &[], after(1)).unwrap();
    assert!(!directory.join(".ca.key.1.tmp").exists(), "what a crash left behind is removed");
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(first.server().certificate_pem(), second.server().certificate_pem());
    assert_eq!(first.admin().key_pem(), second.admin().key_pem());
    assert_eq!(first.token_key_der(), second.token_key_der());
    assert!(TokenSigner::new(&first.token_key_der(), "https://x").is_ok());
    assert!(!format!("{first:?}").contains("PRIVATE KEY"));
}

#[test]
fn the_administrator_is_a_master_while_the_certificate_lasts() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::open(temp.path(), &[], NOW).unwrap();
    let der = pki.admin().certificate_der();
    let admin = user_of_certificate(&der, NOW).unwrap();
    assert_eq!(admin.name, "kubernetes-admin");
    assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
    let id = &admin.extra["authentication.kubernetes.io/credential-id"][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");
    assert_eq!(user_of_certificate(&der, after(366)), Err(CertificateError::OutOfTime));
    assert_eq!(user_of_certificate(&der, after(-1)), Err(CertificateError::OutOfTime));
    assert_eq!(user_of_certificate(&der[1..], NOW), Err(CertificateError::Unreadable));
    let node = pki.issue_client("system:node:n", "system:nodes", NOW).unwrap();
    assert_eq!(user_of_certificate(&node.certificate_der(), NOW).unwrap().groups[0], "system:nodes");
}

#[test]
fn certificates_are_renewed_before_they_expire() {
    let temp = tempfile::tempdir().unwrap();
    let first = Pki::open(temp.path(), &[], NOW).unwrap();
    let later = Pki::open(temp.path(), &[], after(310)).unwrap();
    assert_ne!(first.server().certificate_pem(), later.server().certificate_pem());
    assert_ne!(first.admin().certificate_pem(), later.admin().certificate_pem());
    assert_eq!(first.ca_pem(), later.ca_pem());
    // The authority keeps its key when its own time is near, so the old kubeconfigs still trust it.
    let key = fs::read_to_string(temp.path().join("ca.key")).unwrap();
    let last = Pki::open(temp.path(), &[], after(3640)).unwrap();
    assert_ne!(first.ca_pem(), last.ca_pem());
    assert_eq!(fs::read_to_string(temp.path().join("ca.key")).unwrap(), key);
    assert!(user_of_certificate(&last.admin().certificate_der(), after(3700)).is_ok());
}

#[test]
fn a_new_name_makes_a_new_server_certificate_only() {
    let temp = tempfile::tempdir().unwrap();
    let first = Pki::open(temp.path(), &[], NOW).unwrap();
    let names = ["storage.example".to_owned(), "10.0.0.1".to_owned(), "0:0::2".to_owned()];
    let second = Pki::open(temp.path(), &names, NOW).unwrap();
    assert_ne!(first.server().certificate_pem(), second.server().certificate_pem());
    assert_eq!(first.admin().certificate_pem(), second.admin().certificate_pem());
    let third = Pki::open(temp.path(), &names, NOW).unwrap();
    assert_eq!(second.server().certificate_pem(), third.server().certificate_pem());
    assert!(matches!(Pki::open(temp.path(), &["not a name\u{e9}".to_owned()], NOW), Err(PkiError::Issue(_))));
}

#[test]
fn a_damaged_authority_is_an_error_and_a_damaged_leaf_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let first = Pki::open(temp.path(), &[], NOW).unwrap();
    fs::write(at("server.crt"), "half a certif").unwrap();
    fs::remove_file(at("admin.key")).unwrap();
    let second = Pki::open(temp.path(), &[], NOW).unwrap();
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(user_of_certificate(&second.admin().certificate_der(), NOW).unwrap().name, "kubernetes-admin");

    let ca_key = fs::read(at("ca.key")).unwrap();
    fs::write(at("ca.key"), "junk").unwrap();
    assert!(matches!(Pki::open(temp.path(), &[], NOW), Err(PkiError::Damaged(path)) if path == at("ca.key")));
    fs::remove_file(at("ca.key")).unwrap();
    assert!(matches!(Pki::open(temp.path(), &[], NOW), Err(PkiError::KeyMissing(_))));
    fs::write(at("ca.key"), &ca_key).unwrap();
    let other = tempfile::tempdir().unwrap();
    let stranger = Pki::open(other.path(), &[], NOW).unwrap();
    fs::write(at("ca.crt"), stranger.ca_pem()).unwrap();
    assert!(matches!(Pki::open(temp.path(), &[], NOW), Err(PkiError::Damaged(path)) if path == at("ca.crt")));
}

#[test]
fn an_authority_brought_along_is_used() {
    let (ours, temp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let theirs = Pki::open(ours.path(), &[], NOW).unwrap();
    for name in ["ca.crt", "ca.key"] {
        fs::copy(ours.path().join(name), temp.path().join(name)).unwrap();
    }
    let pki = Pki::open(temp.path(), &[], NOW).unwrap();
    assert_eq!(pki.ca_pem(), theirs.ca_pem());
    assert_ne!(pki.admin().certificate_pem(), theirs.admin().certificate_pem());
}

#[test]
fn a_kubeconfig_holds_all_that_kubectl_needs() {
    let temp = tempfile::tempdir().unwrap();
    let pki = Pki::open(&temp.path().join("pki"), &[], NOW).unwrap();
    let config =
        Kubeconfig { name: "orlop", server: "https://127.0.0.1:6443", ca_pem: pki.ca_pem(), client: pki.admin() };
    let text = kubeconfig(&config);
    let path = temp.path().join("config");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    write_private(&path, text.as_bytes()).unwrap();
    assert_eq!(mode(&path), 0o600, "an old file's mode is not inherited");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2, "no temporary file stays");
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains("    server: \"https://127.0.0.1:6443\"\n"));
    assert!(written.ends_with("current-context: \"orlop\"\n"));
    let inline = |field: &str| {
        let line = written.lines().find(|line| line.trim_start().starts_with(field)).unwrap();
        let data = line.split(": ").nth(1).unwrap();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap()
    };
    assert_eq!(inline("certificate-authority-data"), pki.ca_pem());
    assert_eq!(inline("client-certificate-data"), pki.admin().certificate_pem());
    assert_eq!(inline("client-key-data"), pki.admin().key_pem());
    assert!(write_private(&temp.path().join("none/config"), b"").unwrap_err().to_string().starts_with("cannot create"));
}
