//! Answers that are older than what the cache learned while they were on their way (found by `orlop-sim`).

use std::time::Duration;

use api::{Claim, Key, Kind};
use control::Live;
use runtime::Stopper;
use serde_json::{Value, json};
use sim::faults::{Ask, Fair, Fate, Verdict};
use sim::{Process, Seed, Setup, World, simulate};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

/// The server says "not found", and a claim of that name is made before the answer arrives.
#[test]
fn a_late_not_found_does_not_hide_the_claim_that_was_made_meanwhile() {
    let scenario = async |world: World| {
        let slow = |ask: &Ask<'_>| {
            let back = if ask.path.ends_with("/claim") { 5 * SECOND } else { Duration::ZERO };
            Verdict { back, ..Fate::Answered.into() }
        };
        let component = world.component("controllers", slow);
        let process = Process::new(&world, &component, 1);
        let user = Process::new(&world, &world.component("user", Fair), 1).context.client;
        let context = process.context.clone();
        let (stopper, stop) = Stopper::new();
        let key = Key::namespaced("default", "claim");
        let work = async {
            let cache = context.cache::<Claim>();
            cache.synced().await;
            let asking = context.read::<Claim>(&key);
            let making = async {
                sleep(SECOND).await;
                let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
                let metadata = json!({"namespace": "default", "name": "claim"});
                let claim =
                    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec});
                user.create::<Value>(Kind::CLAIM, Some("default"), &claim).await.expect("a claim can be made");
            };
            let (answer, ()) = tokio::join!(asking, making);
            assert!(matches!(answer, Ok(Live::Absent)), "{answer:?}");
            let held = cache.get(&key);
            stopper.stop();
            held
        };
        process.run(&stop, work).await
    };
    let held = simulate(Seed(1), Setup::default(), scenario).expect("a world can be made");
    assert!(held.is_some(), "the claim lives, and the cache had seen it");
}
