//! What the server says about nodes and attachments after the objects of a backup were restored.

use api::keys::label;
use api::{Attachment, Key, Kind, Node};
use lifecycle::attach::restored::{RestoredCluster, awaits_report};
use runtime::client::{Error, Selection};

use crate::Context;

/// Objects per page.
const PAGE: u32 = 500;

/// The restored nodes, then all attachments: a node that reports in between has attachments for everything by then. `own` is
/// the node of an attacher that works for one node only.
pub(super) async fn read(context: &Context, own: Option<&str>) -> Result<RestoredCluster, Error> {
    let nodes = restored_nodes(context, own).await?;
    Ok(RestoredCluster { nodes, attachments: all_attachments(context).await? })
}

/// All attachments as the server has them, past every cache.
pub(crate) async fn all_attachments(context: &Context) -> Result<Vec<Attachment>, Error> {
    let (mut attachments, mut next) = (Vec::new(), None::<String>);
    loop {
        let selection = Selection::default();
        let page = context.client.list::<Attachment>(Kind::ATTACHMENT, &selection, PAGE, next.as_deref()).await?;
        attachments.extend(page.items);
        next = page.next;
        if next.is_none() {
            return Ok(attachments);
        }
    }
}

/// The nodes that may have volumes without an attachment. Only the embedded API's restore marks nodes. A part that may not list
/// nodes works for one node, which it may read, or on another API.
pub(crate) async fn restored_nodes(context: &Context, own: Option<&str>) -> Result<Vec<Node>, Error> {
    let selection = Selection { labels: Some(label::RESTORED.text().to_owned()), ..Selection::default() };
    let mut nodes = match context.client.list::<Node>(Kind::NODE, &selection, 0, None).await {
        Ok(page) => page.items,
        Err(Error::Forbidden { .. }) => match own {
            Some(own) => match context.client.get::<Node>(Kind::NODE, &Key::cluster(own)).await {
                Ok(node) => vec![node],
                Err(error) if error.is_not_found() => Vec::new(),
                Err(error) => return Err(error),
            },
            None => Vec::new(),
        },
        Err(error) => return Err(error),
    };
    nodes.retain(awaits_report);
    Ok(nodes)
}
