//! The commands that act on the node the driver runs on.

use ::csi::v1::NodeGetInfoRequest;

use super::{Answer, Session};
use crate::csi::args::node::{NodeExpand, Publish, Stage, Stats, Unpublish, Unstage};
use crate::csi::render::Done;

pub(super) async fn stage(session: &Session, args: Stage) -> Answer {
    let done = Done(format!("volume {} is staged at {}", args.id, args.staging));
    let request = args.request(&session.secrets)?;
    let mut client = session.node().await?;
    session.call("NodeStageVolume", request, async |it| client.node_stage_volume(it).await).await?;
    Ok(Box::new(done))
}

pub(super) async fn unstage(session: &Session, args: Unstage) -> Answer {
    let done = Done(format!("volume {} is not staged at {}", args.id, args.staging));
    let mut client = session.node().await?;
    session.call("NodeUnstageVolume", args.request(), async |it| client.node_unstage_volume(it).await).await?;
    Ok(Box::new(done))
}

pub(super) async fn publish(session: &Session, args: Publish) -> Answer {
    let done = Done(format!("volume {} is published at {}", args.id, args.target));
    let request = args.request(&session.secrets)?;
    let mut client = session.node().await?;
    session.call("NodePublishVolume", request, async |it| client.node_publish_volume(it).await).await?;
    Ok(Box::new(done))
}

pub(super) async fn unpublish(session: &Session, args: Unpublish) -> Answer {
    let done = Done(format!("volume {} is not published at {}", args.id, args.target));
    let mut client = session.node().await?;
    session.call("NodeUnpublishVolume", args.request(), async |it| client.node_unpublish_volume(it).await).await?;
    Ok(Box::new(done))
}

pub(super) async fn stats(session: &Session, args: Stats) -> Answer {
    let mut client = session.node().await?;
    let send = async |it| client.node_get_volume_stats(it).await;
    Ok(Box::new(session.call("NodeGetVolumeStats", args.request(), send).await?))
}

pub(super) async fn expand(session: &Session, args: NodeExpand) -> Answer {
    let request = args.request(&session.secrets);
    let mut client = session.node().await?;
    Ok(Box::new(session.call("NodeExpandVolume", request, async |it| client.node_expand_volume(it).await).await?))
}

pub(super) async fn info(session: &Session) -> Answer {
    let mut client = session.node().await?;
    let send = async |it| client.node_get_info(it).await;
    Ok(Box::new(session.call("NodeGetInfo", NodeGetInfoRequest {}, send).await?))
}
