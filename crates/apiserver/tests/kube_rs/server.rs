//! A server in this process and clients for it.

use std::sync::Arc;

use apiserver::auth::{AUTHENTICATED, User};
use apiserver::sources::{RuntimeClock, SeededEntropy};
use apiserver::store::{CommitError, History, Options, Store, UnixMillis};
use apiserver::{Api, Settings};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A server whose controllers run until it is dropped.
pub(crate) struct Server {
    pub(crate) api: Api,
    background: tokio::task::JoinHandle<Result<(), CommitError>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with_history(History::default()).await
    }

    pub(crate) async fn with_history(history: History) -> Self {
        let clock = RuntimeClock::starting_at(UnixMillis(1_800_000_000_000));
        let settings = Settings::in_memory(Arc::new(clock), Arc::new(SeededEntropy::new(1))).expect("keys can be made");
        let store = Store::memory(Options { history, ..Options::default() });
        let api = Api::start(Settings { store, ..settings }).await.expect("an empty store can be prepared");
        let background = tokio::spawn({
            let api = api.clone();
            async move { api.run().await }
        });
        Self { api, background }
    }

    /// A client that may do everything.
    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.api.service().as_user(User::loopback()), "default")
    }

    /// A client of somebody without any rights.
    pub(crate) fn nobody(&self) -> kube::Client {
        let user = User { name: "mallory".to_owned(), groups: vec![AUTHENTICATED.to_owned()], ..User::default() };
        kube::Client::new(self.api.service().as_user(user), "default")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.background.abort();
    }
}

pub(crate) fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).expect("the test's objects are well formed")
}

pub(crate) fn map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}}))
}

pub(crate) fn claim(name: &str) -> PersistentVolumeClaim {
    object(json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
}

pub(crate) fn volume(name: &str) -> PersistentVolume {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.example", "volumeHandle": name},
        },
    }))
}

pub(crate) fn pod(name: &str) -> Pod {
    object(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}))
}
