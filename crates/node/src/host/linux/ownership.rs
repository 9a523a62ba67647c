//! Giving a volume to the group of its pod (NODE-14), for as long as it takes and no longer than it is wanted, or than
//! its filesystem answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linux::tree::{self, GroupBits, TreeError, Walk};
use runtime::watch;
use rustix::io::Errno;

use super::isolate::{Call, Isolation, Lane};
use super::{failed, files, refused};
use crate::host::{Access, HostError, Owned, Ownership, Progress, When};

/// Ends the walk when nobody waits for it any more.
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) async fn own(
    isolation: &Isolation,
    ownership: &Ownership,
    progress: Progress<'_>,
) -> Result<Owned, HostError> {
    let call = Call { doing: "give to a group", path: ownership.root.clone(), lane: Lane::Walk, deadline: None };
    let cancel = Cancel(Arc::default());
    let (done, mut seen) = watch::channel(0);
    let (wanted, stop) = (ownership.clone(), Arc::clone(&cancel.0));
    let walk = isolation.run(call, move |call| {
        let mut report = |files| {
            done.send_replace(files);
            if stop.load(Ordering::Relaxed) { Walk::Stop } else { Walk::GoOn }
        };
        walk(call, &wanted, &mut report)
    });
    let mut walk = std::pin::pin!(walk);
    loop {
        tokio::select! {
            biased;
            answer = &mut walk => return answer,
            Ok(()) = seen.changed() => progress(*seen.borrow_and_update()),
            () = tokio::time::sleep(isolation.patience()) => still_answers(isolation, &ownership.root).await?,
        }
    }
}

/// A walk may take long, but not for ever: if it does not get on, the root is asked whether it answers at all.
async fn still_answers(isolation: &Isolation, root: &Path) -> Result<(), HostError> {
    let deadline = Some(isolation.patience());
    let call = Call { doing: "give to a group", path: root.to_path_buf(), lane: Lane::Ask, deadline };
    match isolation.run(call, files::find).await {
        Err(hung @ HostError::Hung { .. }) => Err(hung),
        // What it is that answers is found by the walk.
        Ok(_) | Err(HostError::Refused { .. } | HostError::WrongFilesystem { .. }) => Ok(()),
    }
}

fn walk(call: &Call, wanted: &Ownership, report: &mut dyn FnMut(u64) -> Walk) -> Result<Owned, HostError> {
    let bits = match wanted.access {
        Access::ReadWrite => GroupBits::ReadWrite,
        Access::ReadOnly => GroupBits::ReadOnly,
    };
    if wanted.when == When::OnRootMismatch
        && tree::is_owned(&call.path, wanted.group, bits).map_err(|error| failed(call, &error))?
    {
        return Ok(Owned::Already);
    }
    match tree::own_tree(&call.path, wanted.group, bits, report) {
        Ok(tree::Owned::Done(counts)) => Ok(Owned::Changed { files: counts.files, refused: counts.refused }),
        Ok(tree::Owned::Stopped(_)) => Err(call.refused(Errno::CANCELED.raw_os_error(), "nobody wants it any more")),
        Err(TreeError::Sys(error)) => Err(failed(call, &error)),
        Err(error) => Err(refused(call, error.errno(), &error)),
    }
}
