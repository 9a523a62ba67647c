//! What a driver is and can do.

use ::csi::v1::plugin_capability::{Type as PluginType, service, volume_expansion};
use ::csi::v1::{
    ControllerGetCapabilitiesResponse, GetPluginCapabilitiesResponse, GetPluginInfoResponse,
    GroupControllerGetCapabilitiesResponse, NodeGetCapabilitiesResponse, PluginCapability, ProbeResponse,
    controller_service_capability, group_controller_service_capability, node_service_capability,
};
use serde_json::{Value, json};

use super::text::Fields;
use super::{Render, Verdict, enum_json, enum_text, lines};
use crate::csi::errors::Refusal;

/// One part of an overview.
pub(in crate::csi) enum Part<T> {
    Answer(T),
    /// The plugin's own list does not name the service, so it was not asked.
    NotOffered,
    /// The driver has the service, but not on this socket.
    NotServed,
    Failed(Refusal),
}

impl<T: Render> Part<T> {
    fn json(&self) -> Value {
        match self {
            Part::Answer(answer) => answer.json(),
            Part::NotOffered | Part::NotServed => Value::Null,
            Part::Failed(refusal) => {
                json!({ "error": { "code": refusal.code_name(), "message": refusal.message() } })
            }
        }
    }

    fn verdict(&self) -> Verdict {
        match self {
            Part::Failed(_) => Verdict::Partial,
            Part::Answer(_) | Part::NotOffered | Part::NotServed => Verdict::Complete,
        }
    }

    fn values(&self, show: impl FnOnce(&T) -> Vec<String>) -> Vec<String> {
        match self {
            Part::Answer(answer) => show(answer),
            Part::NotOffered => vec!["(the driver does not offer this service)".to_owned()],
            Part::NotServed => vec!["(not served on this socket)".to_owned()],
            Part::Failed(refusal) => vec![refusal.to_string()],
        }
    }
}

/// All capability lists.
pub(in crate::csi) struct Capabilities {
    pub(in crate::csi) plugin: GetPluginCapabilitiesResponse,
    pub(in crate::csi) controller: Part<ControllerGetCapabilitiesResponse>,
    pub(in crate::csi) group: Part<GroupControllerGetCapabilitiesResponse>,
    pub(in crate::csi) node: Part<NodeGetCapabilitiesResponse>,
}

impl Capabilities {
    fn fields(&self, fields: Fields) -> Fields {
        fields
            .many("Plugin", self.plugin.capabilities.iter().map(plugin_name).collect())
            .many("Controller", self.controller.values(controller_names))
            .many("Group", self.group.values(group_names))
            .many("Node", self.node.values(node_names))
    }
}

impl Render for Capabilities {
    fn json(&self) -> Value {
        json!({
            "plugin": self.plugin.json(),
            "controller": self.controller.json(),
            "group": self.group.json(),
            "node": self.node.json(),
        })
    }

    fn text(&self) -> String {
        self.fields(Fields::default()).text()
    }

    fn verdict(&self) -> Verdict {
        let parts = [self.controller.verdict(), self.group.verdict(), self.node.verdict()];
        if parts.contains(&Verdict::Partial) { Verdict::Partial } else { Verdict::Complete }
    }
}

/// What `orlop csi info` shows.
pub(in crate::csi) struct Overview {
    pub(in crate::csi) info: GetPluginInfoResponse,
    pub(in crate::csi) probe: Part<ProbeResponse>,
    pub(in crate::csi) capabilities: Capabilities,
}

impl Render for Overview {
    fn json(&self) -> Value {
        json!({
            "info": {
                "name": self.info.name,
                "vendorVersion": self.info.vendor_version,
                "manifest": self.info.manifest,
            },
            "probe": self.probe.json(),
            "capabilities": self.capabilities.json(),
        })
    }

    fn text(&self) -> String {
        let fields = Fields::default()
            .one("Name", &self.info.name)
            .one("Version", &self.info.vendor_version)
            .any("Manifest", lines(&self.info.manifest))
            .many("Ready", self.probe.values(|probe| vec![readiness(probe).to_owned()]));
        self.capabilities.fields(fields).text()
    }

    fn verdict(&self) -> Verdict {
        match self.probe.verdict() {
            Verdict::Partial => Verdict::Partial,
            Verdict::Complete => self.capabilities.verdict(),
        }
    }
}

/// WIRE-B.3: a driver that does not say is ready.
fn readiness(probe: &ProbeResponse) -> &'static str {
    match probe.ready {
        Some(true) => "yes",
        None => "yes (the driver does not say, which means yes)",
        Some(false) => "no (healthy, but still starting)",
    }
}

impl Render for ProbeResponse {
    fn json(&self) -> Value {
        json!({ "ready": self.ready })
    }

    fn text(&self) -> String {
        Fields::default().one("Ready", readiness(self)).text()
    }
}

fn plugin_name(capability: &PluginCapability) -> String {
    match &capability.r#type {
        Some(PluginType::Service(it)) => enum_text(it.r#type, service::Type::as_str_name),
        Some(PluginType::VolumeExpansion(it)) => {
            format!("VolumeExpansion {}", enum_text(it.r#type, volume_expansion::Type::as_str_name))
        }
        None => "unknown".to_owned(),
    }
}

impl Render for GetPluginCapabilitiesResponse {
    fn json(&self) -> Value {
        let capability = |it: &PluginCapability| match &it.r#type {
            Some(PluginType::Service(it)) => {
                json!({ "service": { "type": enum_json(it.r#type, service::Type::as_str_name) } })
            }
            Some(PluginType::VolumeExpansion(it)) => {
                json!({ "volumeExpansion": { "type": enum_json(it.r#type, volume_expansion::Type::as_str_name) } })
            }
            None => json!({}),
        };
        json!({ "capabilities": self.capabilities.iter().map(capability).collect::<Vec<_>>() })
    }

    fn text(&self) -> String {
        Fields::default().many("Plugin", self.capabilities.iter().map(plugin_name).collect()).text()
    }
}

/// The three lists of RPCs have one shape and three types.
macro_rules! rpc_list {
    ($response:ty, $module:ident, $label:literal, $names:ident) => {
        fn $names(response: &$response) -> Vec<String> {
            let name = |it: &Option<$module::Type>| match it {
                Some($module::Type::Rpc(rpc)) => enum_text(rpc.r#type, $module::rpc::Type::as_str_name),
                None => "unknown".to_owned(),
            };
            response.capabilities.iter().map(|it| name(&it.r#type)).collect()
        }

        impl Render for $response {
            fn json(&self) -> Value {
                let capability = |it: &Option<$module::Type>| match it {
                    Some($module::Type::Rpc(rpc)) => {
                        json!({ "rpc": { "type": enum_json(rpc.r#type, $module::rpc::Type::as_str_name) } })
                    }
                    None => json!({}),
                };
                json!({ "capabilities": self.capabilities.iter().map(|it| capability(&it.r#type)).collect::<Vec<_>>() })
            }

            fn text(&self) -> String {
                Fields::default().many($label, $names(self)).text()
            }
        }
    };
}

rpc_list!(ControllerGetCapabilitiesResponse, controller_service_capability, "Controller", controller_names);
rpc_list!(GroupControllerGetCapabilitiesResponse, group_controller_service_capability, "Group", group_names);
rpc_list!(NodeGetCapabilitiesResponse, node_service_capability, "Node", node_names);
