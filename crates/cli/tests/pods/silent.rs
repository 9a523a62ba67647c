//! A FUSE filesystem that stops answering.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use super::namespace::Namespace;

/// A filesystem that says hello and nothing ever after. Dropping it is the end of its server: from then on every question is
/// answered with an error.
#[derive(Debug)]
pub(super) struct Silent {
    _server: File,
}

impl Silent {
    /// Why there is none here.
    pub(super) fn missing() -> Option<String> {
        let opened = File::options().read(true).write(true).open("/dev/fuse");
        opened.err().map(|error| format!("/dev/fuse cannot be opened: {error}"))
    }

    /// Mounts it over a directory of a namespace.
    pub(super) fn mount(namespace: &Namespace, point: &Path) -> Self {
        let mut server = File::options().read(true).write(true).open("/dev/fuse").expect("there is FUSE");
        let input = server.try_clone().unwrap();
        namespace.mount(("fuse", "fd=0,rootmode=40000,user_id=0,group_id=0"), point, input);
        answer_init(&mut server);
        Self { _server: server }
    }
}

/// The one request that is answered: which protocol we speak.
fn answer_init(server: &mut File) {
    let mut request = vec![0; 128 << 10];
    let length = server.read(&mut request).unwrap();
    assert!(length >= 40, "a request has a header");
    let mut answer = Vec::new();
    answer.extend(80_u32.to_ne_bytes());
    answer.extend(0_i32.to_ne_bytes());
    answer.extend(&request[8..16]);
    // Protocol 7.31, and defaults for everything.
    answer.extend(7_u32.to_ne_bytes());
    answer.extend(31_u32.to_ne_bytes());
    answer.resize(80, 0);
    server.write_all(&answer).unwrap();
}
