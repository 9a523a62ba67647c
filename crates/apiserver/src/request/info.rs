//! What a method and a path ask for: a verb on a resource, or one of the server's own endpoints.

use super::query::{Plus, decode};
use super::{FieldSelector, MAX_PATH_BYTES, Query, Refusal};

/// An HTTP method, as far as routing needs to tell them apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    Other(String),
}

/// What is done to a resource, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// `/api/v1/proxy/...`, gone since long and never served.
    Proxy,
    /// A method without a verb, such as OPTIONS. Only a rule for all verbs allows it, and then it is a 405.
    NoVerb,
}

/// One parsed request line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo {
    pub method: Method,
    /// Percent decoding undone; as sent otherwise, so that rules about paths see a trailing slash.
    pub path: String,
    pub query: Query,
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Resource(ResourceRequest),
    Endpoint(Endpoint),
}

/// A verb on a resource that may or may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// Also set to the name for requests about one namespace: a role in it may grant access to it.
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// What follows the subresource; nothing we serve has such a tail.
    pub tail: Vec<String>,
    pub verb: Verb,
    /// The name that `fieldSelector=metadata.name=...` pins a list or a watch to. For authorization only.
    pub pinned_name: Option<String>,
    /// Asked through the deprecated `/watch/` prefix.
    pub watch_path: bool,
}

/// A path that is not a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Root,
    Version,
    Metrics,
    /// `/orlop/backup`: all objects at one revision.
    Backup,
    /// `/orlop/join`: a machine asks for certificates.
    Join,
    /// `check` is the last part of `/readyz/etcd`.
    Health {
        of: Health,
        check: Option<String>,
    },
    Discovery(Discovery),
    OpenApiV2,
    OpenApiV3Index,
    /// One document, by group and version; the group is empty for core.
    OpenApiV3 {
        group: String,
        version: String,
    },
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Livez,
    Readyz,
    Healthz,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovery {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/api/v1` with an empty group, `/apis/G/V`
    Resources { group: String, version: String },
}

impl Method {
    pub fn parse(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            other => Self::Other(other.to_owned()),
        }
    }

    /// In lower case, which is the verb of a request that is not about a resource.
    pub fn as_verb(&self) -> String {
        match self {
            Self::Get => "get".into(),
            Self::Head => "head".into(),
            Self::Post => "post".into(),
            Self::Put => "put".into(),
            Self::Patch => "patch".into(),
            Self::Delete => "delete".into(),
            Self::Options => "options".into(),
            Self::Other(method) => method.to_lowercase(),
        }
    }
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::NoVerb => "",
        }
    }

    fn of(method: &Method) -> Self {
        match method {
            Method::Get | Method::Head => Self::Get,
            Method::Post => Self::Create,
            Method::Put => Self::Update,
            Method::Patch => Self::Patch,
            Method::Delete => Self::Delete,
            Method::Options | Method::Other(_) => Self::NoVerb,
        }
    }
}

impl RequestInfo {
    /// `path` and `query` as they stand in the request line, still percent encoded.
    pub fn parse(method: &str, path: &str, query: &str) -> Result<Self, Refusal> {
        if path.len() > MAX_PATH_BYTES {
            return Err(Refusal::PathTooLong);
        }
        let method = Method::parse(method);
        let query = Query::parse(query)?;
        let path = decode(path, Plus::IsPlus)
            .ok_or_else(|| Refusal::BadRequest("the path of the request cannot be decoded".into()))?;
        let target = target(&method, &path, &query);
        Ok(Self { method, path, query, target })
    }

    pub fn resource(&self) -> Option<&ResourceRequest> {
        match &self.target {
            Target::Resource(request) => Some(request),
            Target::Endpoint(_) => None,
        }
    }
}

impl ResourceRequest {
    /// The name that authorization compares with `resourceNames`.
    pub fn authorized_name(&self) -> &str {
        self.name.as_deref().or(self.pinned_name.as_deref()).unwrap_or("")
    }
}

fn target(method: &Method, path: &str, query: &Query) -> Target {
    let trimmed = path.trim_matches('/');
    let parts: Vec<&str> = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
    // An empty part has no meaning anywhere, and guessing one would let two paths name the same object.
    if parts.iter().any(|part| part.is_empty()) {
        return Target::Endpoint(Endpoint::Unknown);
    }
    match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => resource(method, ("", version), rest, query),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => resource(method, (group, version), rest, query),
        other => Target::Endpoint(endpoint(other)),
    }
}

fn endpoint(parts: &[&str]) -> Endpoint {
    let owned = |part: &&str| (*part).to_owned();
    let health = |of, check: &[&str]| Endpoint::Health { of, check: check.first().map(owned) };
    match parts {
        [] => Endpoint::Root,
        ["version"] => Endpoint::Version,
        ["metrics"] => Endpoint::Metrics,
        ["orlop", "backup"] => Endpoint::Backup,
        ["orlop", "join"] => Endpoint::Join,
        ["livez", check @ ..] if check.len() < 2 => health(Health::Livez, check),
        ["readyz", check @ ..] if check.len() < 2 => health(Health::Readyz, check),
        ["healthz", check @ ..] if check.len() < 2 => health(Health::Healthz, check),
        ["api"] => Endpoint::Discovery(Discovery::CoreVersions),
        ["api", version] => Endpoint::Discovery(Discovery::Resources { group: String::new(), version: owned(version) }),
        ["apis"] => Endpoint::Discovery(Discovery::Groups),
        ["apis", group] => Endpoint::Discovery(Discovery::Group(owned(group))),
        ["apis", group, version] => {
            Endpoint::Discovery(Discovery::Resources { group: owned(group), version: owned(version) })
        }
        ["openapi", "v2"] => Endpoint::OpenApiV2,
        ["openapi", "v3"] => Endpoint::OpenApiV3Index,
        ["openapi", "v3", "api", version] => Endpoint::OpenApiV3 { group: String::new(), version: owned(version) },
        ["openapi", "v3", "apis", group, version] => {
            Endpoint::OpenApiV3 { group: owned(group), version: owned(version) }
        }
        _ => Endpoint::Unknown,
    }
}

/// `parts` is what follows the version and is not empty.
fn resource(method: &Method, (group, version): (&str, &str), parts: &[&str], query: &Query) -> Target {
    let (mut verb, mut parts, watch_path) = match parts {
        ["watch" | "proxy"] => return Target::Endpoint(Endpoint::Unknown),
        ["watch", rest @ ..] => (Verb::Watch, rest, true),
        ["proxy", rest @ ..] => (Verb::Proxy, rest, false),
        other => (Verb::of(method), other, false),
    };
    let mut namespace = None;
    if let ["namespaces", name, rest @ ..] = parts {
        namespace = Some((*name).to_owned());
        // Two words after a namespace are its subresources; every other word is a resource inside it.
        if !matches!(rest, [] | ["status" | "finalize", ..]) {
            parts = rest;
        }
    }
    let at = |index: usize| parts.get(index).map(|part| (*part).to_owned());
    let name = at(1);
    let mut pinned_name = None;
    if name.is_none() {
        verb = match verb {
            Verb::Get if query.flag("watch") == Some(true) => Verb::Watch,
            Verb::Get => Verb::List,
            Verb::Delete => Verb::DeleteCollection,
            other => other,
        };
        if matches!(verb, Verb::List | Verb::Watch) && !watch_path {
            pinned_name = pinned(query);
        }
    }
    Target::Resource(ResourceRequest {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace,
        resource: parts[0].to_owned(),
        subresource: if verb == Verb::Proxy { None } else { at(2) },
        tail: parts.iter().skip(3).map(|part| (*part).to_owned()).collect(),
        name,
        verb,
        pinned_name,
        watch_path,
    })
}

fn pinned(query: &Query) -> Option<String> {
    let selector = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    let name = selector.requires_exact("metadata.name")?;
    let possible = !matches!(name, "" | "." | "..") && !name.contains(['/', '%']);
    possible.then(|| name.to_owned())
}
