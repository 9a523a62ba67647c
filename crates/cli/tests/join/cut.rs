//! Two machines, a claim each, and a cable that is pulled and put back.

use std::path::Path;

use serde_json::Value;

use super::site::{CLAIMS, PODS, SERVER, Site, delete, get, gone, make, make_pod, on_site, ready, until};

const SECOND: &str = "second";

#[test]
fn two_machines_have_a_claim_each_and_a_cut_between_them_ends_clean() {
    on_site("two machines", async |site| two_machines(&site).await);
}

async fn two_machines(site: &Site) {
    let (up, api) = site.up().await;
    let first = own_name(&api).await;
    let token = site.token(&["create", "--node", SECOND]);
    let server = format!("https://{SERVER}");
    let words = ["--server", &server, "--token", &token, "--node-name", SECOND, "--log-level", "debug"];
    let (second, _) = site.start("node", site.node("other", &words), "joined").await;

    make(&api, "one", &first).await;
    make(&api, "two", SECOND).await;
    let (pod_one, volume_one) = ready(&api, "one").await;
    let (pod_two, volume_two) = ready(&api, "two").await;
    let (at_one, at_two) = (site.server.mount_of(&pod_one, &volume_one), site.other.mount_of(&pod_two, &volume_two));
    std::fs::write(at_one.join("file"), "of one").unwrap();
    std::fs::write(at_two.join("file"), "of two").unwrap();
    assert_eq!(entries(&site.server.data.join("pool/volumes")), 1, "one volume is on the server's machine");
    assert_eq!(entries(&site.other.data.join("pool/volumes")), 1, "and one on the other");
    only_on(&api, &volume_two, SECOND).await;

    site.cable("down");
    // While nobody reaches the other machine, this one works on, and what happens there waits.
    delete(&api, &format!("{PODS}/one")).await;
    gone(&api, &format!("{PODS}/one")).await;
    delete(&api, &format!("{PODS}/two")).await;
    make(&api, "three", SECOND).await;
    make(&api, "four", &first).await;
    ready(&api, "four").await;
    let three = until("the claim three waits for its machine", async || {
        let claim = get(&api, &format!("{CLAIMS}/three")).await?;
        let node = &claim["metadata"]["annotations"][api::keys::annotation::SELECTED_NODE.text()];
        (*node == SECOND).then_some(claim)
    });
    assert_eq!(three.await["status"]["phase"], "Pending");
    assert_eq!(std::fs::read_to_string(at_two.join("file")).unwrap(), "of two", "the mount outlives the cut");
    let two = get(&api, &format!("{PODS}/two")).await.expect("a pod stays until its machine has let go of it");
    assert!(two["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(attachments_of(&api, &volume_two).await, 1, "nobody detaches without evidence");

    // The server dies while nobody could tell the other machine, which has to find out by itself.
    drop(up);
    let (up, api) = site.up().await;

    site.cable("up");
    gone(&api, &format!("{PODS}/two")).await;
    let (pod_three, volume_three) = ready(&api, "three").await;
    std::fs::write(site.other.mount_of(&pod_three, &volume_three).join("file"), "of three").unwrap();
    make_pod(&api, "again", ("two", SECOND)).await;
    let (pod_again, volume_again) = ready(&api, "again").await;
    let kept = std::fs::read_to_string(site.other.mount_of(&pod_again, &volume_again).join("file"));
    assert_eq!((kept.unwrap().as_str(), volume_again), ("of two", volume_two), "the next pod finds what was written");
    ends_clean(site, &api).await;
    second.stop();
    up.stop();
    site.server.assert_empty();
    site.other.assert_empty();
}

/// Deletes everything, and looks for what is left.
async fn ends_clean(site: &Site, api: &kube::Client) {
    for name in ["three", "four", "again"] {
        delete(api, &format!("{PODS}/{name}")).await;
    }
    for name in ["one", "two", "three", "four"] {
        delete(api, &format!("{CLAIMS}/{name}")).await;
    }
    let mut left = Vec::new();
    let nothing = until("nothing is left", async || {
        left.clear();
        for path in [PODS, CLAIMS, "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/volumeattachments"] {
            let list = get(api, path).await.unwrap();
            left.extend(list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].to_string()));
        }
        left.extend(site.server.left());
        left.extend(site.other.left());
        left.extend(loops_below(&site.scratch.path("")));
        println!("left: {left:?}");
        left.is_empty().then_some(())
    });
    nothing.await;
}

/// The name of the server's own node, once it is there.
pub(super) async fn own_name(api: &kube::Client) -> String {
    until("the server's own node", async || {
        let nodes = get(api, "/api/v1/nodes").await?;
        nodes["items"][0]["metadata"]["name"].as_str().map(str::to_owned)
    })
    .await
}

/// A volume can be reached from its machine and from no other.
async fn only_on(api: &kube::Client, volume: &str, node: &str) {
    let volume = get(api, &format!("/api/v1/persistentvolumes/{volume}")).await.unwrap();
    let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let values: Vec<&Value> =
        terms.as_array().unwrap().iter().map(|term| &term["matchExpressions"][0]["values"]).collect();
    assert_eq!(values, [&serde_json::json!([node])], "{terms}");
}

pub(super) async fn attachments_of(api: &kube::Client, volume: &str) -> usize {
    let list = get(api, "/apis/storage.k8s.io/v1/volumeattachments").await.unwrap();
    let of = |item: &&Value| item["spec"]["source"]["persistentVolumeName"] == volume;
    list["items"].as_array().unwrap().iter().filter(of).count()
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Loop devices on files below a folder, also on those that are deleted.
pub(super) fn loops_below(folder: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let backing = devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    backing.map(|file| file.trim().to_owned()).filter(|file| Path::new(file).starts_with(folder)).collect()
}
