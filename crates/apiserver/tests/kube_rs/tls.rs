//! The same over a socket: the kubeconfig that `orlop api` writes, read by kube's own configuration and TLS.

use std::pin::pin;

use apiserver::auth::{Kubeconfig, Pki, UnixSeconds, kubeconfig};
use apiserver::server::{Limits, TlsKeys, serve, tls};
use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig as ClientConfig};
use kube::runtime::watcher::{self, Event, watcher};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::server::{Server, map};

/// Keys that are valid at the real time: TLS asks the machine's clock, not ours.
fn keys(directory: &std::path::Path) -> Pki {
    #[allow(clippy::disallowed_methods, reason = "TLS checks certificates by the real clock")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is after 1970").as_secs();
    Pki::open(directory, &[], UnixSeconds(i64::try_from(now).expect("a small number"))).expect("keys can be made")
}

#[tokio::test]
async fn the_written_kubeconfig_lets_kube_in_over_tls() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let pki = keys(&directory.path().join("pki"));
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = format!("https://{}", listener.local_addr().expect("it has an address"));
    let keys =
        TlsKeys { chain: vec![pki.server().certificate_der()], key: pki.server().key_der(), client_ca: pki.ca_der() };
    let (stop, stopped) = oneshot::channel::<()>();
    let until = async move { drop(stopped.await) };
    let service = server.api.service();
    let serving = tokio::spawn(serve(listener, tls(keys).expect("they fit"), service, until, Limits::default()));

    let text = kubeconfig(&Kubeconfig { name: "orlop", server: &address, ca_pem: pki.ca_pem(), client: pki.admin() });
    let config = ClientConfig::from_yaml(&text).expect("kube reads it");
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("and takes it");
    let client = kube::Client::try_from(config).expect("a client can be made");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &map("m")).await.expect("a map is made");
    {
        let mut watch = pin!(watcher(maps.clone(), watcher::Config::default().streaming_lists()));
        while !matches!(watch.try_next().await.expect("the watcher goes on"), Some(Event::InitDone)) {}
        maps.create(&PostParams::default(), &map("n")).await.expect("a map is made");
        let event = watch.try_next().await.expect("the watcher goes on");
        assert!(matches!(event, Some(Event::Apply(map)) if map.metadata.name.as_deref() == Some("n")));
    }
    stop.send(()).expect("the server waits for it");
    serving.await.expect("the server ends").expect("and ends well");
    assert_eq!(server.api.open_watches(), 0, "a watch ends with its connection");
}
