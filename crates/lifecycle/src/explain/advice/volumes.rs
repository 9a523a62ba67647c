//! Advice for a volume in trouble, and for a lost or cloned machine.

use api::keys::taint;

use super::{Advice, say};
use crate::health::TroubleKind;

/// Where the local driver's words end that say what is wrong, and those begin that say what to do.
const ADVICE: [(TroubleKind, &str); 2] =
    [(TroubleKind::WritesLost, ". What was written before"), (TroubleKind::PoolMissing, "; mount its disk")];

/// A driver's words without its advice.
pub(in crate::explain) fn without_advice(kind: TroubleKind, words: &str) -> &str {
    let begins = ADVICE.iter().find(|(of, _)| *of == kind).and_then(|(_, begin)| words.find(begin));
    begins.and_then(|at| words.get(..at)).unwrap_or(words)
}

/// About a volume that its driver calls abnormal.
pub(super) fn abnormal(message: &str, node: Option<&str>) -> Advice {
    trouble(message, node)
        .unwrap_or_else(|| say(["The message is the driver's: its log and its documentation say what to do about it."]))
}

/// The same for any message that has the local driver's words in it.
pub(super) fn trouble(message: &str, node: Option<&str>) -> Option<Advice> {
    let (kind, words) = TroubleKind::within(message)?;
    let there = node.map_or_else(|| "On the volume's machine".to_owned(), |node| format!("On node {node:?}"));
    Some(match kind {
        TroubleKind::WritesLost => vec![
            "What was written last may be missing or damaged: check the data, or restore it from a snapshot or a backup."
                .to_owned(),
            match accept_loss(words) {
                Some(command) => format!("Then clear the mark. {there}: {command}"),
                None => "Then clear the mark with the command that the volume's condition names.".to_owned(),
            },
        ],
        TroubleKind::PoolMissing => {
            let mount = match between(words, " is not at ", ": ") {
                Some(path) => format!("{there}, mount the pool's disk, and see it with: findmnt --target {path}"),
                None => format!("{there}, mount the pool's disk."),
            };
            let mut advice = vec![format!("{mount} (what waits goes on by itself)")];
            let forget = words.find("orlop driver ").and_then(|at| words.get(at..));
            advice.extend(forget.map(|command| {
                format!("If the disk is gone for good, and all volumes on it with it. {there}: {command}")
            }));
            advice
        }
        TroubleKind::PoolFull | TroubleKind::PoolNearlyFull => {
            let look = match between(words, " at ", " has ") {
                Some(path) => format!("{there}, see what takes the space: df -h {path}; du -xsh {path}/*"),
                None => format!("{there}, see what takes the space of the pool's filesystem."),
            };
            vec![
                look,
                "`orlop top -A` shows how full each volume is: delete claims, snapshots or other files that nobody needs, or \
                 make the filesystem larger. Frozen volumes go on by themselves then."
                    .to_owned(),
            ]
        }
        TroubleKind::Other => return None,
    })
}

/// The command in the driver's words, whole.
fn accept_loss(words: &str) -> Option<&str> {
    words.split('`').find(|part| part.starts_with("orlop driver accept-loss "))
}

fn between<'a>(words: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = words.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found).filter(|found| found.starts_with('/'))
}

/// About a machine of which nothing is heard.
pub(super) fn lost(node: &str) -> Advice {
    vec![
        format!("Bring machine {node:?} back, or its network: then everything goes on by itself."),
        format!(
            "If it is off for certain, let its pods and volumes go elsewhere: kubectl taint nodes {node} \
             {}=nodeshutdown:NoExecute",
            taint::OUT_OF_SERVICE
        ),
        format!("If it is gone for good: kubectl delete node {node}"),
    ]
}

/// About two machines with one name.
pub(super) fn name_in_use(node: &str) -> Advice {
    vec![
        format!(
            "Only one of the two acts as {node:?}. See which one holds the name: kubectl get lease {node} -n kube-node-lease \
             -o jsonpath={{.spec.holderIdentity}}"
        ),
        "On the other one stop the agent (systemctl stop orlop). If it is a clone, give it another name (hostnamectl \
         set-hostname NAME), remove its data directory, and let it join with a token of its own (orlop token create)."
            .to_owned(),
    ]
}
