//! Which verb on which resource a request line is (API-1.1, API-8).

use super::super::{
    Discovery, Endpoint, Health, MAX_HEADER_BYTES, MAX_HEADERS, MAX_PATH_BYTES, MAX_QUERY_BYTES, Method, RequestInfo,
    Target, check_headers,
};

fn parse(line: &str) -> RequestInfo {
    let (method, uri) = line.split_once(' ').unwrap();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    RequestInfo::parse(method, path, query).unwrap()
}

/// `verb group/version namespace|resource|name|subresource [pinned name]`, with a dash for what is absent.
fn resource(line: &str) -> String {
    let info = parse(line);
    let request = info.resource().unwrap_or_else(|| panic!("{line} is not about a resource"));
    let or_dash = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".into());
    let mut shown = format!(
        "{} {}/{} {}|{}|{}|{}",
        request.verb.as_str(),
        request.group,
        request.version,
        or_dash(&request.namespace),
        request.resource,
        or_dash(&request.name),
        or_dash(&request.subresource),
    );
    if let Some(name) = &request.pinned_name {
        shown.push_str(&format!(" pinned {name}"));
    }
    shown
}

#[test]
fn every_method_and_path_of_a_resource_has_one_verb() {
    let table = [
        ("GET /api/v1/pods", "list /v1 -|pods|-|-"),
        ("HEAD /api/v1/pods", "list /v1 -|pods|-|-"),
        ("GET /api/v1/pods/", "list /v1 -|pods|-|-"),
        ("GET /api/v1/pods?watch=1", "watch /v1 -|pods|-|-"),
        ("GET /api/v1/pods?watch=true", "watch /v1 -|pods|-|-"),
        ("GET /api/v1/pods?watch", "watch /v1 -|pods|-|-"),
        ("GET /api/v1/pods?watch=0", "list /v1 -|pods|-|-"),
        ("GET /api/v1/pods?watch=False", "list /v1 -|pods|-|-"),
        ("GET /api/v1/namespaces/conf/pods/p?watch=1", "get /v1 conf|pods|p|-"),
        ("POST /api/v1/namespaces/conf/pods", "create /v1 conf|pods|-|-"),
        ("PUT /api/v1/namespaces/conf/pods/p", "update /v1 conf|pods|p|-"),
        ("PATCH /api/v1/namespaces/conf/pods/p/status", "patch /v1 conf|pods|p|status"),
        ("DELETE /api/v1/namespaces/conf/pods/p", "delete /v1 conf|pods|p|-"),
        ("DELETE /api/v1/namespaces/conf/pods", "deletecollection /v1 conf|pods|-|-"),
        ("OPTIONS /api/v1/pods", " /v1 -|pods|-|-"),
        ("GET /apis/storage.k8s.io/v1/csinodes/n", "get storage.k8s.io/v1 -|csinodes|n|-"),
        ("POST /api/v1/namespaces/conf/serviceaccounts/sa1/token", "create /v1 conf|serviceaccounts|sa1|token"),
        ("GET /apis/conf.io/v1/namespaces/conf/foos/f", "get conf.io/v1 conf|foos|f|-"),
        ("GET /api/v1/pods/a%20b", "get /v1 -|pods|a b|-"),
    ];
    for (line, expected) in table {
        assert_eq!(resource(line), expected, "{line}");
    }
}

#[test]
fn a_namespace_is_also_the_namespace_of_requests_about_itself() {
    let table = [
        ("GET /api/v1/namespaces", "list /v1 -|namespaces|-|-"),
        ("GET /api/v1/namespaces/conf", "get /v1 conf|namespaces|conf|-"),
        ("PUT /api/v1/namespaces/conf/finalize", "update /v1 conf|namespaces|conf|finalize"),
        ("PATCH /api/v1/namespaces/conf/status", "patch /v1 conf|namespaces|conf|status"),
        ("GET /api/v1/namespaces/conf/statuses", "list /v1 conf|statuses|-|-"),
    ];
    for (line, expected) in table {
        assert_eq!(resource(line), expected, "{line}");
    }
}

/// Rule: API-1.1
#[test]
fn the_deprecated_watch_paths_still_mean_a_watch() {
    // Deprecated, and still served.
    let table = [
        ("GET /api/v1/watch/pods", "watch /v1 -|pods|-|-"),
        ("GET /api/v1/watch/namespaces/conf/pods/p", "watch /v1 conf|pods|p|-"),
        ("GET /apis/storage.k8s.io/v1/watch/csinodes", "watch storage.k8s.io/v1 -|csinodes|-|-"),
        ("GET /api/v1/proxy/nodes/n/x", "proxy /v1 -|nodes|n|-"),
    ];
    for (line, expected) in table {
        assert_eq!(resource(line), expected, "{line}");
    }
    assert!(parse("GET /api/v1/watch/pods").resource().unwrap().watch_path);
    assert_eq!(parse("GET /api/v1/watch").target, Target::Endpoint(Endpoint::Unknown));
}

/// Rule: API-3.6
#[test]
fn a_selector_on_the_name_pins_lists_and_watches_to_it() {
    // Such a list is authorized by resourceNames.
    let table = [
        ("GET /api/v1/pods?fieldSelector=metadata.name%3Dp", "list /v1 -|pods|-|- pinned p"),
        ("GET /api/v1/pods?watch=1&fieldSelector=a%3Db,metadata.name%3Dp", "watch /v1 -|pods|-|- pinned p"),
        ("GET /api/v1/pods?fieldSelector=metadata.name!%3Dp", "list /v1 -|pods|-|-"),
        ("GET /api/v1/pods?fieldSelector=metadata.name%3D..", "list /v1 -|pods|-|-"),
        ("GET /api/v1/pods?fieldSelector=metadata.name%3Da/b", "list /v1 -|pods|-|-"),
        ("DELETE /api/v1/pods?fieldSelector=metadata.name%3Dp", "deletecollection /v1 -|pods|-|-"),
    ];
    for (line, expected) in table {
        assert_eq!(resource(line), expected, "{line}");
    }
}

#[test]
fn paths_of_the_server_itself_are_told_apart() {
    let discovery = |of| Endpoint::Discovery(of);
    let health = |of, check: Option<&str>| Endpoint::Health { of, check: check.map(str::to_owned) };
    let document = |group: &str| Endpoint::OpenApiV3 { group: group.into(), version: "v1".into() };
    let resources = |group: &str| discovery(Discovery::Resources { group: group.into(), version: "v1".into() });
    let table = [
        ("/", Endpoint::Root),
        ("/version", Endpoint::Version),
        ("/version/", Endpoint::Version),
        ("/metrics", Endpoint::Metrics),
        ("/orlop/backup", Endpoint::Backup),
        ("/orlop/join", Endpoint::Join),
        ("/livez", health(Health::Livez, None)),
        ("/readyz/etcd", health(Health::Readyz, Some("etcd"))),
        ("/healthz/", health(Health::Healthz, None)),
        ("/readyz/a/b", Endpoint::Unknown),
        ("/api", discovery(Discovery::CoreVersions)),
        ("/api/v1", resources("")),
        ("/apis/", discovery(Discovery::Groups)),
        ("/apis/storage.k8s.io", discovery(Discovery::Group("storage.k8s.io".into()))),
        ("/apis/storage.k8s.io/v1/", resources("storage.k8s.io")),
        ("/openapi/v2", Endpoint::OpenApiV2),
        ("/openapi/v3", Endpoint::OpenApiV3Index),
        ("/openapi/v3/api/v1", document("")),
        ("/openapi/v3/apis/storage.k8s.io/v1", document("storage.k8s.io")),
        ("/openapi/v4", Endpoint::Unknown),
        ("/api/v1/namespaces//pods", Endpoint::Unknown),
        ("/favicon.ico", Endpoint::Unknown),
    ];
    for (path, expected) in table {
        assert_eq!(parse(&format!("GET {path}")).target, Target::Endpoint(expected), "{path}");
    }
}

#[test]
fn a_path_is_kept_as_sent_for_rules_about_paths() {
    let info = parse("TRACE /version/");
    assert_eq!((info.path.as_str(), info.method.as_verb()), ("/version/", "trace".into()));
    assert_eq!(info.method, Method::Other("TRACE".into()));
}

#[test]
fn a_selector_that_cannot_be_decoded_is_not_forgotten() {
    // Without its selector, a deletion of some objects would be one of all.
    for query in ["labelSelector=%ff", "labelSelector=%zz", "labelSelector=a%3Db;c", "labelSelector=%2"] {
        let refusal = RequestInfo::parse("DELETE", "/api/v1/pods", query).unwrap_err();
        assert_eq!(refusal.code(), 400, "{query}");
    }
}

#[test]
fn what_is_too_long_is_refused_before_it_is_read() {
    let long = |length: usize| "/".to_owned() + &"a".repeat(length);
    let code = |path: &str, query: &str| RequestInfo::parse("GET", path, query).map_err(|refusal| refusal.code());
    assert!(code(&long(MAX_PATH_BYTES - 1), "").is_ok());
    assert_eq!(code(&long(MAX_PATH_BYTES), ""), Err(414));
    assert_eq!(code("/", &"a".repeat(MAX_QUERY_BYTES + 1)), Err(414));
    assert_eq!(code("/api/v1/%zz", ""), Err(400));
    assert_eq!(code("/api/v1/%ff", ""), Err(400));

    let value = vec![b'v'; MAX_HEADER_BYTES / MAX_HEADERS];
    let headers = |count: usize, value: &[u8]| {
        let fields = vec![("n", value); count];
        check_headers(fields).map_err(|refusal| refusal.code())
    };
    assert_eq!(headers(MAX_HEADERS, b"v"), Ok(()));
    assert_eq!(headers(MAX_HEADERS + 1, b"v"), Err(431));
    assert_eq!(headers(MAX_HEADERS, &value), Err(431), "names count too");
}
