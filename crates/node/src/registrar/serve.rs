//! What the agent asks a registrar.

use ::csi::registration::registration_server::Registration;
use ::csi::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use runtime::watch;
use tonic::{Request, Response, Status};

use super::Standing;

/// The version of the registration, not the driver's: all registrars send it, and agents look for it.
const VERSION: &str = "1.0.0";

pub(super) struct Service {
    info: PluginInfo,
    standing: watch::Sender<Standing>,
}

impl Service {
    pub(super) fn new(driver: &str, endpoint: &str, standing: watch::Sender<Standing>) -> Self {
        let info = PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: driver.to_owned(),
            endpoint: endpoint.to_owned(),
            supported_versions: vec![VERSION.to_owned()],
        };
        Self { info, standing }
    }
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        let standing = match plugin_registered {
            true => {
                tracing::info!(driver = self.info.name, "the driver is registered");
                Standing::Registered
            }
            false => {
                tracing::error!(driver = self.info.name, error, "the driver is not registered");
                Standing::Refused { why: error }
            }
        };
        self.standing.send_replace(standing);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
