//! The volume commands of the controller.

use ::csi::v1::{ListVolumesRequest, ListVolumesResponse};

use super::{Answer, NextPage, Session, expect};
use crate::csi::args::volume::{Attach, Capacity, Create, Delete, Detach, Expand, Get, List, Modify, Validate};
use crate::csi::render::Done;

pub(super) async fn create(session: &Session, args: Create) -> Answer {
    let request = args.request(&session.secrets)?;
    let mut client = session.controller().await?;
    let answer = session.call("CreateVolume", request, async |it| client.create_volume(it).await).await?;
    Ok(Box::new(expect("CreateVolume", answer, |it| &it.volume)?))
}

pub(super) async fn delete(session: &Session, args: Delete) -> Answer {
    let done = Done(format!("volume {} is deleted", args.id));
    let request = args.request(&session.secrets);
    let mut client = session.controller().await?;
    session.call("DeleteVolume", request, async |it| client.delete_volume(it).await).await?;
    Ok(Box::new(done))
}

pub(super) async fn list(session: &Session, List { page }: List) -> Answer {
    let mut client = session.controller().await?;
    let mut all = ListVolumesResponse::default();
    let mut next = NextPage::first(&page);
    while let NextPage::Ask { max_entries, token } = next {
        let request = ListVolumesRequest { max_entries, starting_token: token.clone() };
        let answer = session.call("ListVolumes", request, async |it| client.list_volumes(it).await).await?;
        next = NextPage::after("ListVolumes", &page, &token, &answer.next_token)?;
        all.entries.extend(answer.entries);
        all.next_token = answer.next_token;
    }
    Ok(Box::new(all))
}

pub(super) async fn get(session: &Session, args: Get) -> Answer {
    let mut client = session.controller().await?;
    let send = async |it| client.controller_get_volume(it).await;
    let answer = session.call("ControllerGetVolume", args.request(), send).await?;
    Ok(Box::new(expect("ControllerGetVolume", answer, |it| &it.volume)?))
}

pub(super) async fn validate(session: &Session, args: Validate) -> Answer {
    let request = args.request(&session.secrets)?;
    let mut client = session.controller().await?;
    let send = async |it| client.validate_volume_capabilities(it).await;
    Ok(Box::new(session.call("ValidateVolumeCapabilities", request, send).await?))
}

pub(super) async fn capacity(session: &Session, args: Capacity) -> Answer {
    let request = args.request()?;
    let mut client = session.controller().await?;
    Ok(Box::new(session.call("GetCapacity", request, async |it| client.get_capacity(it).await).await?))
}

pub(super) async fn attach(session: &Session, args: Attach) -> Answer {
    let request = args.request(&session.secrets)?;
    let mut client = session.controller().await?;
    let send = async |it| client.controller_publish_volume(it).await;
    Ok(Box::new(session.call("ControllerPublishVolume", request, send).await?))
}

pub(super) async fn detach(session: &Session, args: Detach) -> Answer {
    let from = args.node.as_ref().map_or("every node".to_owned(), |node| format!("node {node}"));
    let done = Done(format!("volume {} is detached from {from}", args.id));
    let request = args.request(&session.secrets);
    let mut client = session.controller().await?;
    let send = async |it| client.controller_unpublish_volume(it).await;
    session.call("ControllerUnpublishVolume", request, send).await?;
    Ok(Box::new(done))
}

pub(super) async fn expand(session: &Session, args: Expand) -> Answer {
    let request = args.request(&session.secrets);
    let mut client = session.controller().await?;
    let send = async |it| client.controller_expand_volume(it).await;
    Ok(Box::new(session.call("ControllerExpandVolume", request, send).await?))
}

pub(super) async fn modify(session: &Session, args: Modify) -> Answer {
    let done = Done(format!("volume {} is modified", args.id));
    let request = args.request(&session.secrets)?;
    let mut client = session.controller().await?;
    let send = async |it| client.controller_modify_volume(it).await;
    session.call("ControllerModifyVolume", request, send).await?;
    Ok(Box::new(done))
}
