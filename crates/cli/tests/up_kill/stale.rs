//! What a killed stack leaves lying about keeps no later one from starting.

use rustix::process::Signal;

use crate::needs;
use crate::objects::{self, CLAIMS};
use crate::site::{PATIENCE, Site};

/// Sockets, the page's address, the lock and the port of a run that was killed are taken over by the next one; nobody has to
/// clean anything. While a run lives, its lock keeps others away.
#[tokio::test]
async fn after_a_kill_nothing_has_to_be_cleaned_by_hand() {
    needs!(Ext4);
    let site = Site::new();
    let mut up = site.launch("127.0.0.1:0");
    let address = site.enter(&mut up).await;
    site.create(CLAIMS, &objects::claim("first")).await;
    let page = std::fs::read_to_string(site.data.join("page-url")).unwrap();

    let (code, log) = tokio::time::timeout(PATIENCE, site.launch("127.0.0.1:0").ended()).await.unwrap();
    assert_ne!(code, Some(0), "two runs cannot have one directory");
    assert!(log.contains("process "), "{log}");

    up.kill();
    let lies = ["csi.sock", "page-url", "kubeconfig"].map(|name| site.data.join(name));
    assert!(lies.iter().all(|path| path.exists()), "a kill leaves {lies:?}");
    // The connections of the test were open, so the port has seen better days.
    let mut up = site.launch(&address);
    assert_eq!(site.enter(&mut up).await, address);
    let bound = site.until(CLAIMS, "first", |claim| objects::volume_of(claim).is_some()).await;
    assert_eq!(objects::name(&bound), "first");
    assert_ne!(std::fs::read_to_string(site.data.join("page-url")).unwrap(), page, "the page is at another address");
    site.delete(CLAIMS, "first").await;
    site.until_empty().await;
    up.signal(Signal::TERM);
    let (code, log) = up.ended().await;
    assert_eq!(code, Some(0), "{log}");
}
