//! Pods that stay: each has a file open all the time and writes to it, whoever lives or dies.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;

use super::user::World;
use crate::api_rig::Random;

/// Between two records, so that the disk is there for others too.
const PAUSE: Duration = Duration::from_millis(4);
const FILE: &str = "journal";

/// A pod and its open file.
#[derive(Debug)]
pub(super) struct Tenant {
    claim: String,
    pod: String,
    path: PathBuf,
    /// Opened once, before the first kill.
    file: File,
    records: u64,
}

impl Tenant {
    pub(super) async fn settle(world: &World, number: usize) -> Self {
        let (claim, pod) = (format!("tenant-{number}"), format!("tenant-{number}-pod"));
        world.make_claim(&claim).await;
        let target = world.make_pod(&pod, &claim).await;
        let path = target.join(FILE);
        let file = File::options().create_new(true).append(true).open(&path).expect("the mount can be written");
        Self { claim, pod, path, file, records: 0 }
    }

    /// One record more, on disk.
    fn write(&mut self) {
        self.file.write_all(&record(&self.claim, self.records)).expect("an open file stays writable");
        self.file.sync_data().expect("an open file stays writable");
        self.records += 1;
    }

    /// Every record is read by the path, as somebody else would.
    fn check(&self) {
        let found = std::fs::read(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        let wanted: Vec<u8> = (0..self.records).flat_map(|number| record(&self.claim, number)).collect();
        assert!(found == wanted, "{}: {} bytes instead of {}", self.path.display(), found.len(), wanted.len());
    }

    async fn leave(self, world: &World) {
        self.check();
        drop(self.file);
        world.delete_pod(&self.pod).await;
        world.delete_claim(&self.claim).await;
    }
}

/// Sixteen bytes that no other record has.
fn record(tenant: &str, number: u64) -> [u8; 16] {
    let seed = tenant.bytes().fold(number, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&Random::new(seed).below(u64::MAX).to_le_bytes());
    bytes
}

/// They write in turns until told to stop, compare what is there whenever a new run was counted, and leave in the end. Gives
/// the number of records.
pub(super) async fn live(
    world: World,
    mut tenants: Vec<Tenant>,
    mut runs: watch::Receiver<u64>,
    stop: watch::Receiver<bool>,
) -> u64 {
    while !*stop.borrow() {
        let checks = runs.has_changed().expect("the test goes on");
        runs.mark_unchanged();
        let turn = move || {
            for tenant in &mut tenants {
                tenant.write();
                if checks {
                    tenant.check();
                }
            }
            tenants
        };
        tenants = tokio::task::spawn_blocking(turn).await.expect("every tenant can write and read");
        world.site.written.send_modify(|count| *count += 1);
        tokio::time::sleep(PAUSE).await;
    }
    let records = tenants.iter().map(|tenant| tenant.records).sum();
    for tenant in tenants {
        tenant.leave(&world).await;
    }
    records
}
