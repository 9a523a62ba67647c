use serde_json::json;

use super::*;
use crate::bind::tests::claim;

fn said(message: &str) -> Claim {
    let kind = api::keys::condition::VOLUME_ABNORMAL;
    claim(json!({"status": {"conditions": [{"type": kind, "status": "True", "message": message}]}}))
}

#[test]
fn the_words_of_the_local_driver_tell_the_kind_and_others_are_passed_on() {
    let rows = [
        ("writes were lost: syncing failed (EIO)", TroubleKind::WritesLost, "syncing failed (EIO)"),
        ("pool missing: \"p\" is not at /p", TroubleKind::PoolMissing, "\"p\" is not at /p"),
        ("pool full: \"p\" has 1 left", TroubleKind::PoolFull, "\"p\" has 1 left"),
        ("pool nearly full: \"p\" has 9 left", TroubleKind::PoolNearlyFull, "\"p\" has 9 left"),
        ("the array is degraded", TroubleKind::Other, "the array is degraded"),
    ];
    for (message, kind, rest) in rows {
        assert_eq!(TroubleKind::of(message), (kind, rest));
        let error = format!("/csi.v1.Node/NodeStageVolume: Unavailable: {message}");
        let want = (kind != TroubleKind::Other).then_some((kind, rest));
        assert_eq!(TroubleKind::within(&error), want, "{error}");
    }
}

#[test]
fn a_claim_is_written_when_what_its_driver_says_changes_and_not_before() {
    let (lost, full) = ("writes were lost: a (EIO)", "pool full: \"p\" has 5 MiB left");
    let abnormal = |message: &str| DriverWord::Abnormal(message.to_owned());
    let mark = |message: &str| {
        let reason = TroubleKind::of(message).0.reason();
        vec![HealthAction::Mark { reason, message: message.to_owned() }]
    };
    let well = claim(json!({}));
    let rows = [
        (&well, DriverWord::Normal, vec![], "well"),
        (&well, DriverWord::Unknown, vec![], "not_known"),
        (&well, abnormal(lost), mark(lost), "abnormal"),
        (&said(lost), abnormal(lost), vec![], "abnormal"),
        (&said(lost), abnormal("writes were lost: b (EIO)"), mark("writes were lost: b (EIO)"), "abnormal"),
        (&said(lost), DriverWord::Unknown, vec![], "not_known"),
        (&said(lost), DriverWord::Normal, vec![HealthAction::Clear], "well_again"),
        (&said(full), abnormal("pool full: \"p\" has 4 MiB left"), vec![], "abnormal"),
        (
            &said(full),
            abnormal("pool nearly full: \"p\" has 9 MiB left"),
            mark("pool nearly full: \"p\" has 9 MiB left"),
            "abnormal",
        ),
    ];
    for (claim, word, actions, code) in rows {
        let decided = decide(claim, &word);
        assert_eq!((decided.actions, decided.because.code()), (actions, code), "{word:?}");
    }
}
