//! A kube-apiserver with etcd, and the definitions of snapshots that a cluster gets from their controllers.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::kubernetes::{Client, ControlPlane, Durability, Embedded, Options, Programs, Question};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) struct Server {
    pub(super) plane: ControlPlane,
    pub(super) kubeconfig: PathBuf,
}

impl Server {
    pub(super) async fn start(programs: &Programs, orlop: &Path, folder: &Path) -> anyhow::Result<Self> {
        let options = Options { durability: Durability::InMemoryOnly, client_ca: None };
        let plane = ControlPlane::start(programs, folder, &options).await?;
        let kubeconfig = folder.join("cluster.kubeconfig");
        plane.endpoint.write_kubeconfig(&kubeconfig)?;
        define_snapshots(orlop, &Client::new(&plane.endpoint)?, folder).await.context("defining snapshots")?;
        Ok(Self { plane, kubeconfig })
    }
}

/// Takes the definitions from `orlop api`, which has them from its first start on.
async fn define_snapshots(orlop: &Path, client: &Client, folder: &Path) -> anyhow::Result<()> {
    let embedded = Embedded::start(orlop, folder).await?;
    let listed = Client::new(&embedded.endpoint)?.ask(&Question::get(DEFINITIONS)).await?;
    embedded.stop().await?;
    let listed: Value = serde_json::from_slice(&listed.body).context("reading the definitions")?;
    for definition in listed["items"].as_array().context("no definitions")? {
        let metadata = &definition["metadata"];
        let body = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": definition["spec"],
            "metadata": {"name": metadata["name"], "annotations": metadata["annotations"]},
        });
        let question = Question::new(Method::POST, DEFINITIONS).body("application/json", body.to_string());
        let answer = client.ask(&question).await?;
        ensure!(answer.status == 201, "{}: {}", metadata["name"], String::from_utf8_lossy(&answer.body));
    }
    Ok(())
}
