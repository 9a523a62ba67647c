//! The paths that are not resources: health, version, discovery, OpenAPI, and the backup of all objects.

use serde_json::Value;

use super::answer::Answer;
use super::handle::Call;
use crate::discovery::{self, Check, Half};
use crate::request::{Discovery, DiscoveryForm, Endpoint, Health, Method, negotiate_discovery};
use crate::status::ApiError;
use crate::verbs::Outcome;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) fn serve(call: &Call, endpoint: &Endpoint) -> Outcome<Answer> {
    if !matches!(call.info.method, Method::Get | Method::Head) {
        return match endpoint {
            Endpoint::Unknown => Ok(Answer::page_not_found()),
            _ => Err(ApiError::method_not_allowed().into()),
        };
    }
    match endpoint {
        Endpoint::Root => Ok(json(call, &discovery::paths(&call.shared.core.served()))),
        Endpoint::Version => Ok(json(call, &discovery::version())),
        Endpoint::Health { of, check } => Ok(health(call, *of, check.as_deref())),
        Endpoint::Discovery(discovery) => discover(call, discovery),
        Endpoint::OpenApiV3Index => Ok(discovery::openapi_index(&call.shared.core.served(), &call.known_tag)),
        Endpoint::OpenApiV3 { group, version } => {
            let hash = call.info.query.get("hash").unwrap_or_default();
            Ok(discovery::openapi_document(&call.shared.core.served(), (group, version), hash))
        }
        Endpoint::Backup => Ok(Answer::stream(call.shared.core.store.snapshot().into_pieces())),
        Endpoint::OpenApiV2 => {
            let served = call.shared.core.served();
            call.shared.swagger.answer(&served, &call.accept, &call.known_tag)
        }
        Endpoint::Metrics => {
            let core = &call.shared.core;
            let mut text = call.shared.metrics.print(&core.served(), &core.store);
            if let Some(beside) = call.shared.beside.get() {
                let beside = (beside.0)();
                // The mark of OpenMetrics for the end has no place in the older form, and each of several texts has one.
                for line in beside.lines().filter(|line| *line != "# EOF") {
                    text.extend([line, "\n"]);
                }
            }
            Ok(Answer::bytes(200, "text/plain; version=0.0.4; charset=utf-8", text))
        }
        // A join is answered before anybody comes here.
        Endpoint::Join | Endpoint::Unknown => Ok(Answer::page_not_found()),
    }
}

fn json(call: &Call, value: &Value) -> Answer {
    Answer::json(200, value, call.layout)
}

fn health(call: &Call, of: Health, only: Option<&str>) -> Answer {
    let stopping = *call.shared.core.stopping.borrow();
    let ping = Check { name: "ping", passed: true };
    let store = Check { name: "store", passed: call.shared.core.store.stopped().is_none() };
    let shutdown = Check { name: "shutdown", passed: !stopping };
    let (path, checks) = match of {
        Health::Livez => ("livez", vec![ping, store]),
        Health::Healthz => ("healthz", vec![ping, store]),
        Health::Readyz => ("readyz", vec![ping, store, shutdown]),
    };
    let checks: Vec<Check> = match only {
        None => checks,
        Some(name) => checks.into_iter().filter(|check| check.name == name).collect(),
    };
    if checks.is_empty() {
        return Answer::page_not_found();
    }
    let excluded: Vec<&str> = call.info.query.all("exclude").collect();
    let verbose = call.info.query.get("verbose").is_some();
    let health = discovery::health(path, &checks, &excluded, verbose);
    Answer::text(health.code, health.text).header("x-content-type-options", "nosniff")
}

fn discover(call: &Call, what: &Discovery) -> Outcome<Answer> {
    let served = call.shared.core.served();
    match what {
        Discovery::CoreVersions => match negotiate_discovery(&call.accept)? {
            DiscoveryForm::Aggregated => Ok(aggregated(call, Half::Core)),
            DiscoveryForm::Legacy => Ok(json(call, &discovery::api_versions(&call.shared.address))),
        },
        Discovery::Groups => match negotiate_discovery(&call.accept)? {
            DiscoveryForm::Aggregated => Ok(aggregated(call, Half::Named)),
            DiscoveryForm::Legacy => Ok(json(call, &discovery::group_list(&call.shared.core.served()))),
        },
        Discovery::Group(name) => Ok(match served.group(name).filter(|group| !group.name.is_empty()) {
            Some(group) => json(call, &discovery::api_group(group)),
            None => Answer::page_not_found(),
        }),
        Discovery::Resources { group, version } => match served.group(group) {
            None => Ok(Answer::page_not_found()),
            Some(group) => match group.versions.iter().find(|known| known.name == *version) {
                Some(version) => Ok(json(call, &discovery::resource_list(group, version))),
                None => Err(ApiError::unknown_resource().into()),
            },
        },
    }
}

fn aggregated(call: &Call, half: Half) -> Answer {
    let bytes = super::json_bytes(&discovery::aggregated(&call.shared.core.served(), half));
    let tag = format!("\"{}\"", discovery::etag(&bytes));
    let answer = match call.known_tag == tag {
        true => Answer::not_modified(),
        false => Answer::bytes(200, AGGREGATED, bytes),
    };
    answer
        .typed(AGGREGATED)
        .header("etag", tag)
        .header("vary", "Accept")
        .header("cache-control", "public")
        .header("x-varied-accept", call.accept.as_str())
}
