//! A kit for testing drivers, and whatever talks to drivers.
//!
//! - [`Clients`]: all five CSI clients over an in-memory connection, no socket and no sleeping.
//! - [`chaos`]: a proxy that delays, cuts, repeats and fails calls, in front of any driver on a socket.
//! - [`failpoint`](mod@crate::failpoint): places in a driver where a test may kill it.

pub mod chaos;

use csi::v1::controller_client::ControllerClient;
use csi::v1::group_controller_client::GroupControllerClient;
use csi::v1::identity_client::IdentityClient;
use csi::v1::node_client::NodeClient;
use csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use tonic::transport::Channel;

use crate::server::{Driver, Mode};

/// One client for each CSI service, all over one connection.
#[derive(Debug, Clone)]
pub struct Clients {
    pub identity: IdentityClient<Channel>,
    pub controller: ControllerClient<Channel>,
    pub group: GroupControllerClient<Channel>,
    pub metadata: SnapshotMetadataClient<Channel>,
    pub node: NodeClient<Channel>,
}

impl Clients {
    /// Talks to a driver in this process: real HTTP/2 and gRPC without a socket.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn in_memory(driver: &Driver, mode: Mode) -> Self {
        Self::over(csi::in_memory(driver.routes(mode)))
    }

    /// Talks over a channel that exists already, such as one to a socket.
    pub fn over(channel: Channel) -> Self {
        Self {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            group: GroupControllerClient::new(channel.clone()),
            metadata: SnapshotMetadataClient::new(channel.clone()),
            node: NodeClient::new(channel),
        }
    }
}
