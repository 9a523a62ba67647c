//! Content negotiation: what the client can read, what it sent, and whether a person is looking.

use std::collections::BTreeMap;

use super::{Query, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// How a body was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    /// YAML or JSON.
    Apply,
}

/// Custom resources know no protobuf and no strategic patches, and are refused in other words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceFlavor {
    BuiltIn,
    Custom,
}

/// Another shape than the object's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    Table(MetaVersion),
    PartialObjectMetadata(MetaVersion),
    PartialObjectMetadataList(MetaVersion),
}

/// The version of meta.k8s.io that the client asked a transformed answer in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

/// What is being asked for, as far as it limits the answer's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    One(ResourceFlavor),
    List(ResourceFlavor),
    Watch(ResourceFlavor),
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    pub encoding: Encoding,
    pub transform: Option<Transform>,
    /// Asked for inside Accept; [`wants_pretty`] knows the two other ways.
    pub pretty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoveryForm {
    /// One document for all groups: `application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList`.
    Aggregated,
    Legacy,
}

const ALL: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

impl Encoding {
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn matches(self, clause: &Clause<'_>) -> bool {
        let (kind, subtype) = (clause.kind, clause.subtype);
        (kind == "*" && subtype == "*")
            || (kind == "application" && (subtype == "*" || self.media_type()["application/".len()..] == *subtype))
    }
}

impl MetaVersion {
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl Offer {
    fn flavor(self) -> ResourceFlavor {
        match self {
            Self::One(flavor) | Self::List(flavor) | Self::Watch(flavor) => flavor,
        }
    }

    fn refusal(self) -> Refusal {
        let types = if matches!(self, Self::Watch(_)) { STREAMS } else { ALL };
        Refusal::NotAcceptable(format!("only the following media types are accepted: {types}"))
    }
}

struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: BTreeMap<&'a str, &'a str>,
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).copied()
    }

    fn is_converting(&self) -> bool {
        ["as", "g", "v"].iter().any(|name| self.parameters.contains_key(name))
    }
}

/// Clauses by preference: quality first, then the named before the wild, then as sent. Malformed ones are dropped.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(clause).collect();
    clauses.sort_by(|a, b| {
        b.quality
            .total_cmp(&a.quality)
            .then((a.kind == "*").cmp(&(b.kind == "*")))
            .then((a.subtype == "*").cmp(&(b.subtype == "*")))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';');
    let (kind, subtype) = match parts.next()?.trim().split_once('/') {
        Some((kind, subtype)) if !subtype.contains('/') => (kind.trim(), subtype.trim()),
        None if text.trim().starts_with('*') => ("*", "*"),
        _ => return None,
    };
    let mut clause = Clause { kind, subtype, quality: 1.0, parameters: BTreeMap::new() };
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match (name.trim(), value.trim()) {
            ("q", value) => clause.quality = value.parse().unwrap_or(0.0),
            (name, value) => {
                clause.parameters.insert(name, value);
            }
        }
    }
    Some(clause)
}

/// Chooses the form of an answer about a resource. JSON is preferred over protobuf wherever the client would read
/// both: every known client does, and our objects are JSON at heart. An absent header is an empty `accept`.
pub fn negotiate(accept: &str, offer: Offer) -> Result<Accepted, Refusal> {
    if accept.is_empty() {
        return Ok(Accepted { encoding: Encoding::Json, transform: None, pretty: false });
    }
    let clauses = clauses(accept);
    // The reference looks at the bare types while routing, for built-in resources only.
    if offer.flavor() == ResourceFlavor::BuiltIn && !clauses.iter().any(is_routable) {
        let representations = if matches!(offer, Offer::One(_)) { ALL.to_owned() } else { format!("{ALL}, {STREAMS}") };
        let message = format!("406: Not Acceptable\n\nAvailable representations: {representations}");
        return Err(Refusal::NoRepresentation(message));
    }
    let mut fallback = None;
    for clause in &clauses {
        for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf] {
            let Some(accepted) = accept_clause(clause, encoding, offer) else { continue };
            if encoding != Encoding::Protobuf {
                return usable(accepted, offer);
            }
            fallback.get_or_insert(accepted);
        }
    }
    fallback.map_or_else(|| Err(offer.refusal()), |accepted| usable(accepted, offer))
}

fn is_routable(clause: &Clause<'_>) -> bool {
    [Encoding::Json, Encoding::Yaml, Encoding::Protobuf]
        .iter()
        .any(|encoding| encoding.matches(clause) && (clause.subtype != "*" || clause.kind == "*"))
}

fn accept_clause(clause: &Clause<'_>, encoding: Encoding, offer: Offer) -> Option<Accepted> {
    let streams = clause
        .parameter("stream")
        .is_none_or(|stream| stream.is_empty() || (stream == "watch" && encoding != Encoding::Yaml));
    if !encoding.matches(clause) || !streams {
        return None;
    }
    let transform = if clause.is_converting() { Some(transform(clause)?) } else { None };
    let possible = match (transform, encoding) {
        (Some(Transform::Table(_)), Encoding::Protobuf) => false,
        (None, Encoding::Protobuf) => offer.flavor() == ResourceFlavor::BuiltIn,
        _ => true,
    };
    possible.then(|| Accepted { encoding, transform, pretty: clause.parameter("pretty") == Some("1") })
}

fn transform(clause: &Clause<'_>) -> Option<Transform> {
    let version = match (clause.parameter("g"), clause.parameter("v")) {
        (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
        (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
        _ => return None,
    };
    match clause.parameter("as")? {
        "Table" => Some(Transform::Table(version)),
        "PartialObjectMetadata" => Some(Transform::PartialObjectMetadata(version)),
        "PartialObjectMetadataList" => Some(Transform::PartialObjectMetadataList(version)),
        _ => None,
    }
}

/// A chosen form that this kind of answer cannot have is a refusal, not a reason to look at the next clause.
fn usable(accepted: Accepted, offer: Offer) -> Result<Accepted, Refusal> {
    match (offer, accepted.transform, accepted.encoding) {
        (Offer::Watch(_), _, Encoding::Yaml) => Err(offer.refusal()),
        (Offer::List(_), Some(Transform::PartialObjectMetadata(_)), _) => Err(Refusal::NotAcceptable(
            "you requested PartialObjectMetadata, but the requested object is a list".into(),
        )),
        (Offer::One(_) | Offer::Watch(_), Some(Transform::PartialObjectMetadataList(_)), _) => {
            Err(Refusal::NotAcceptable(
                "you requested PartialObjectMetadataList, but the requested object is not a list".into(),
            ))
        }
        _ => Ok(accepted),
    }
}

/// Chooses between the two forms of `/api` and `/apis`; both are JSON.
pub fn negotiate_discovery(accept: &str) -> Result<DiscoveryForm, Refusal> {
    if accept.is_empty() {
        return Ok(DiscoveryForm::Legacy);
    }
    let clauses = clauses(accept);
    let json = || clauses.iter().filter(|clause| Encoding::Json.matches(clause));
    let aggregated = |clause: &Clause<'_>| {
        clause.parameter("g") == Some("apidiscovery.k8s.io")
            && clause.parameter("v") == Some("v2")
            && clause.parameter("as") == Some("APIGroupDiscoveryList")
    };
    if json().any(aggregated) {
        Ok(DiscoveryForm::Aggregated)
    } else if json().any(|clause| !clause.is_converting()) {
        Ok(DiscoveryForm::Legacy)
    } else {
        Err(Refusal::NotAcceptable("only the following media types are accepted: application/json".into()))
    }
}

/// How a body that is not a patch was written. No header means JSON.
pub fn body_type(content_type: &str, flavor: ResourceFlavor) -> Result<BodyType, Refusal> {
    let bare = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match (bare.as_str(), flavor) {
        ("" | "application/json", _) => Ok(BodyType::Json),
        ("application/yaml", _) => Ok(BodyType::Yaml),
        ("application/vnd.kubernetes.protobuf", ResourceFlavor::BuiltIn) => Ok(BodyType::Protobuf),
        ("application/vnd.kubernetes.protobuf", ResourceFlavor::Custom) => {
            Err(unknown_format("application/json, application/yaml"))
        }
        _ => Err(unknown_format(ALL)),
    }
}

/// How a patch was written. There is no default.
pub fn patch_type(content_type: &str, flavor: ResourceFlavor) -> Result<PatchType, Refusal> {
    match (content_type.split(';').next().unwrap_or_default(), flavor) {
        ("application/json-patch+json", _) => Ok(PatchType::Json),
        ("application/merge-patch+json", _) => Ok(PatchType::Merge),
        ("application/apply-patch+yaml", _) => Ok(PatchType::Apply),
        ("application/strategic-merge-patch+json", ResourceFlavor::BuiltIn) => Ok(PatchType::Strategic),
        (_, ResourceFlavor::BuiltIn) => Err(Refusal::NoPatchType),
        (_, ResourceFlavor::Custom) => Err(unknown_format(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
    }
}

fn unknown_format(accepted: &str) -> Refusal {
    let text = "the body of the request was in an unknown format - accepted media types include";
    Refusal::UnsupportedMediaType(format!("{text}: {accepted}"))
}

/// `?pretty=` decides if it is there; else programs that people look at get indented JSON.
pub fn wants_pretty(query: &Query, user_agent: &str) -> bool {
    match query.get("pretty") {
        Some(text) if !text.is_empty() => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        _ => ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| user_agent.starts_with(prefix)),
    }
}
