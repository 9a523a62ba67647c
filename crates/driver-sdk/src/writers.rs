//! May this node publish the volume once more? The table of WIRE-B.7 as one function.
//!
//! T is the target path and P is everything else a request says, without secrets and tokens. Kubernetes shares a
//! ReadWriteOnce volume between pods of one node and, towards a driver that does not track writers, calls it
//! SINGLE_NODE_WRITER. So that mode is treated leniently; the exclusive mode is SINGLE_NODE_SINGLE_WRITER.

use std::path::Path;

use csi::TOKEN_KEYS;
use csi::v1::NodePublishVolumeRequest;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::id::hex;
use crate::types::{AccessMode, Publication};

/// What a request wants, as far as the table looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub target: &'a Path,
    pub mode: AccessMode,
    pub fingerprint: &'a str,
}

/// What the table says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing stands against it: a first publication, one more, or an exact repeat.
    Publish,
    /// Something is published at the target and the driver lost what was asked for it; only the driver can compare.
    AskDriver,
    /// The target is taken by a publication that differs.
    TargetTaken,
    /// The volume is published elsewhere and one of the two wants to be alone.
    OneOnly { other: std::path::PathBuf, exclusive: AccessMode },
}

/// Decides on one more publication of a volume.
pub fn decide(existing: &[Publication], wanted: &Wanted<'_>) -> Verdict {
    if let Some(same) = existing.iter().find(|publication| publication.target == wanted.target) {
        return match &same.fingerprint {
            None => Verdict::AskDriver,
            Some(fingerprint) if fingerprint == wanted.fingerprint => Verdict::Publish,
            Some(_) => Verdict::TargetTaken,
        };
    }
    for other in existing {
        // The promise binds both ways: who came first as the only writer stays it.
        let exclusive = [wanted.mode, other.mode].into_iter().find(|mode| is_exclusive(*mode));
        if let Some(exclusive) = exclusive {
            return Verdict::OneOnly { other: other.target.clone(), exclusive };
        }
    }
    Verdict::Publish
}

fn is_exclusive(mode: AccessMode) -> bool {
    match mode {
        AccessMode::SingleNodeSingleWriter | AccessMode::SingleNodeReaderOnly => true,
        AccessMode::SingleNodeWriter
        | AccessMode::SingleNodeMultiWriter
        | AccessMode::MultiNodeReaderOnly
        | AccessMode::MultiNodeSingleWriter
        | AccessMode::MultiNodeMultiWriter => false,
    }
}

impl Verdict {
    pub(crate) fn into_result(self) -> Result<(), Error> {
        match self {
            Self::Publish | Self::AskDriver => Ok(()),
            Self::TargetTaken => Err(Error::exists("the target path holds a publication with other arguments")),
            Self::OneOnly { other, exclusive } => Err(Error::precondition(format!(
                "the volume is published at {} and {} allows one publication; unpublish it first",
                other.display(),
                exclusive.name()
            ))),
        }
    }
}

/// Equal for two requests that differ at most in target, secrets and tokens.
pub(crate) fn fingerprint(request: &NodePublishVolumeRequest) -> String {
    let mut rest = request.clone();
    rest.target_path.clear();
    rest.secrets.clear();
    for key in TOKEN_KEYS {
        rest.volume_context.remove(key);
        rest.publish_context.remove(key);
    }
    hex(&Sha256::digest(rest.encode_to_vec()))
}

#[cfg(test)]
mod tests {
    use AccessMode::*;

    use super::*;

    const SAME: (&str, &str) = ("/t", "p");
    const OTHER_ARGS: (&str, &str) = ("/t", "q");
    const OTHER_TARGET: (&str, &str) = ("/u", "p");
    const OTHER_BOTH: (&str, &str) = ("/u", "q");

    /// Publishes at `/t` with arguments `p`, then asks for `second` in the same mode.
    fn second(mode: AccessMode, (target, fingerprint): (&str, &str)) -> &'static str {
        let first = Publication { target: "/t".into(), mode, fingerprint: Some("p".into()) };
        answer(&[first], &Wanted { target: Path::new(target), mode, fingerprint })
    }

    fn answer(existing: &[Publication], wanted: &Wanted<'_>) -> &'static str {
        match decide(existing, wanted).into_result().map_err(|error| error.code()) {
            Ok(()) => "OK",
            Err(tonic::Code::AlreadyExists) => "ALREADY_EXISTS",
            Err(tonic::Code::FailedPrecondition) => "FAILED_PRECONDITION",
            Err(_) => "another code",
        }
    }

    /// Rule: WIRE-B.7
    #[test]
    fn every_cell_of_the_publish_table_holds() {
        let shared = ["OK", "ALREADY_EXISTS", "OK", "OK"];
        let alone = ["OK", "ALREADY_EXISTS", "FAILED_PRECONDITION", "FAILED_PRECONDITION"];
        let rows = [
            (MultiNodeReaderOnly, shared),
            (MultiNodeSingleWriter, shared),
            (MultiNodeMultiWriter, shared),
            (SingleNodeMultiWriter, shared),
            (SingleNodeSingleWriter, alone),
            (SingleNodeReaderOnly, alone),
            // The lenient row: WIRE-B.7, last paragraph.
            (SingleNodeWriter, shared),
        ];
        assert_eq!(rows.len(), AccessMode::ALL.len());
        for (mode, want) in rows {
            let got = [SAME, OTHER_ARGS, OTHER_TARGET, OTHER_BOTH].map(|cell| second(mode, cell));
            assert_eq!(got, want, "{}", mode.name());
        }
    }

    /// Rule: WIRE-B.7
    #[test]
    fn a_first_publication_is_free_in_every_mode() {
        for mode in AccessMode::ALL {
            assert_eq!(answer(&[], &Wanted { target: Path::new("/t"), mode, fingerprint: "p" }), "OK");
        }
    }

    /// Rule: WIRE-B.7
    #[test]
    fn the_only_writer_stays_the_only_one_whatever_the_second_calls_itself() {
        let first = Publication { target: "/t".into(), mode: SingleNodeSingleWriter, fingerprint: Some("p".into()) };
        let wanted = Wanted { target: Path::new("/u"), mode: MultiNodeMultiWriter, fingerprint: "p" };
        assert_eq!(answer(&[first], &wanted), "FAILED_PRECONDITION");
    }

    #[test]
    fn a_publication_whose_arguments_are_lost_is_the_drivers_to_compare() {
        let first = Publication { target: "/t".into(), mode: SingleNodeSingleWriter, fingerprint: None };
        let wanted = Wanted { target: Path::new("/t"), mode: SingleNodeSingleWriter, fingerprint: "p" };
        assert_eq!(decide(&[first], &wanted), Verdict::AskDriver);
    }

    /// Rules: WIRE-B.5, WIRE-B.7
    #[test]
    fn the_fingerprint_ignores_target_secrets_and_tokens_and_nothing_else() {
        let base = NodePublishVolumeRequest { volume_id: "v".into(), ..Default::default() };
        let mut renewed = base.clone();
        renewed.target_path = "/elsewhere".into();
        renewed.secrets.insert("k".into(), "v".into());
        renewed.volume_context.insert(TOKEN_KEYS[0].into(), "fresh".into());
        assert_eq!(fingerprint(&base), fingerprint(&renewed));
        assert_eq!(fingerprint(&base).len(), 64);
        let changes: [fn(&mut NodePublishVolumeRequest); 5] = [
            |r| r.readonly = true,
            |r| r.volume_id = "w".into(),
            |r| r.staging_target_path = "/s".into(),
            |r| drop(r.volume_context.insert("k".into(), "v".into())),
            |r| drop(r.publish_context.insert("k".into(), "v".into())),
        ];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(fingerprint(&base), fingerprint(&other));
        }
    }
}
