//! How much room a driver has that tells nobody by itself: it is asked while somebody looks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::csi::v1::GetCapacityRequest;
use lifecycle::scene::Room;
use runtime::Stop;
use runtime::csi::Driver;
use tokio::time::sleep;

use super::board::Board;

/// How often, and for how long.
const AGAIN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// What drivers said, by their names. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked(Arc<Mutex<BTreeMap<String, Room>>>);

impl Asked {
    pub(super) fn get(&self) -> BTreeMap<String, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this is another answer than before.
    fn set(&self, driver: &str, room: Room) -> bool {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.insert(driver.to_owned(), room.clone()) != Some(room)
    }
}

/// Asks a driver, whenever it is connected, until `stop`.
pub(super) async fn ask(driver: &Driver, (asked, board): (&Asked, &Arc<Board>), stop: &Stop) {
    let asking = async {
        let facts = driver.ready().await;
        let mut viewers = board.viewers();
        loop {
            let _ = viewers.wait_for(|count| *count > 0).await;
            if let Ok(answer) = driver.get_capacity(GetCapacityRequest::default(), PATIENCE).await {
                let room = Room {
                    place: "in its pool".to_owned(),
                    free: answer.available_capacity,
                    largest: answer.maximum_volume_size.filter(|largest| *largest < answer.available_capacity),
                };
                if asked.set(&facts.name, room) {
                    board.ring();
                }
            }
            sleep(AGAIN).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.stopped() => {}
        () = asking => {}
    }
}
