//! The commands for snapshots and groups of them.

use ::csi::v1::{GroupControllerGetCapabilitiesRequest, ListSnapshotsRequest, ListSnapshotsResponse};

use super::{Answer, NextPage, Session, expect};
use crate::csi::args::snapshot::{Group, Snapshot, SnapshotList};
use crate::csi::render::Done;

pub(super) async fn single(session: &Session, command: Snapshot) -> Answer {
    match command {
        Snapshot::Create(args) => {
            let request = args.request(&session.secrets)?;
            let mut client = session.controller().await?;
            let answer = session.call("CreateSnapshot", request, async |it| client.create_snapshot(it).await).await?;
            Ok(Box::new(expect("CreateSnapshot", answer, |it| &it.snapshot)?))
        }
        Snapshot::Delete(args) => {
            let done = Done(format!("snapshot {} is deleted", args.id));
            let request = args.request(&session.secrets);
            let mut client = session.controller().await?;
            session.call("DeleteSnapshot", request, async |it| client.delete_snapshot(it).await).await?;
            Ok(Box::new(done))
        }
        Snapshot::List(args) => list(session, args).await,
        Snapshot::Get(args) => {
            let request = args.request(&session.secrets);
            let mut client = session.controller().await?;
            let answer = session.call("GetSnapshot", request, async |it| client.get_snapshot(it).await).await?;
            Ok(Box::new(expect("GetSnapshot", answer, |it| &it.snapshot)?))
        }
    }
}

async fn list(session: &Session, SnapshotList { volume, id, page }: SnapshotList) -> Answer {
    let mut client = session.controller().await?;
    let mut all = ListSnapshotsResponse::default();
    let mut next = NextPage::first(&page);
    while let NextPage::Ask { max_entries, token } = next {
        let request = ListSnapshotsRequest {
            max_entries,
            starting_token: token.clone(),
            source_volume_id: volume.clone(),
            snapshot_id: id.clone(),
            secrets: session.secrets.for_request(),
        };
        let answer = session.call("ListSnapshots", request, async |it| client.list_snapshots(it).await).await?;
        next = NextPage::after("ListSnapshots", &page, &token, &answer.next_token)?;
        all.entries.extend(answer.entries);
        all.next_token = answer.next_token;
    }
    Ok(Box::new(all))
}

pub(super) async fn group(session: &Session, command: Group) -> Answer {
    match command {
        Group::Create(args) => {
            let request = args.request(&session.secrets)?;
            let mut client = session.group().await?;
            let send = async |it| client.create_volume_group_snapshot(it).await;
            let answer = session.call("CreateVolumeGroupSnapshot", request, send).await?;
            Ok(Box::new(expect("CreateVolumeGroupSnapshot", answer, |it| &it.group_snapshot)?))
        }
        Group::Delete(args) => {
            let done = Done(format!("group {} and its snapshots are deleted", args.id));
            let request = args.request(&session.secrets);
            let mut client = session.group().await?;
            let send = async |it| client.delete_volume_group_snapshot(it).await;
            session.call("DeleteVolumeGroupSnapshot", request, send).await?;
            Ok(Box::new(done))
        }
        Group::Get(args) => {
            let request = args.request(&session.secrets);
            let mut client = session.group().await?;
            let send = async |it| client.get_volume_group_snapshot(it).await;
            let answer = session.call("GetVolumeGroupSnapshot", request, send).await?;
            Ok(Box::new(expect("GetVolumeGroupSnapshot", answer, |it| &it.group_snapshot)?))
        }
        Group::Capabilities => {
            let mut client = session.group().await?;
            let send = async |it| client.group_controller_get_capabilities(it).await;
            let request = GroupControllerGetCapabilitiesRequest {};
            Ok(Box::new(session.call("GroupControllerGetCapabilities", request, send).await?))
        }
    }
}
