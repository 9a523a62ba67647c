//! Seats of connections: how many clients may be connected to one port, and who leaves when there are too many.
//!
//! Guarantee: connections that have not shown who they are cannot keep anybody else out. They have a part of the seats of
//! their own, per address half of that part, and the one that has waited longest makes room for the next. Connections of
//! which a client has shown a valid credential have the other seats, and are never asked to leave for a stranger.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// One of so many seats is for connections that have not shown who they are.
const STRANGERS_PART: usize = 4;

/// The seats of one port.
#[derive(Debug)]
pub struct Seats {
    strangers: usize,
    strangers_per_peer: usize,
    known: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// By arrival: the first one has waited longest.
    strangers: BTreeMap<u64, Stranger>,
    known: usize,
}

#[derive(Debug)]
struct Stranger {
    peer: IpAddr,
    leave: Arc<Notify>,
}

/// The seat of one connection, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    number: u64,
    leave: Arc<Notify>,
    is_known: Mutex<bool>,
}

impl Seats {
    /// So many seats in all, at least two.
    pub fn new(count: usize) -> Arc<Self> {
        let strangers = (count / STRANGERS_PART).max(1);
        Arc::new(Self {
            strangers,
            strangers_per_peer: (strangers / 2).max(1),
            known: count.saturating_sub(strangers).max(1),
            taken: Mutex::default(),
        })
    }

    /// A seat for a new connection. If there is none, the stranger that has waited longest is asked to leave.
    pub fn take(self: &Arc<Self>, peer: IpAddr) -> Seat {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer =
            || taken.strangers.iter().filter(|(_, stranger)| stranger.peer == peer).map(|(number, _)| *number);
        let leaving = match of_peer().count() >= self.strangers_per_peer {
            true => of_peer().next(),
            false if taken.strangers.len() >= self.strangers => taken.strangers.keys().next().copied(),
            false => None,
        };
        if let Some(stranger) = leaving.and_then(|number| taken.strangers.remove(&number)) {
            stranger.leave.notify_one();
        }
        let leave = Arc::new(Notify::new());
        taken.next += 1;
        let number = taken.next;
        taken.strangers.insert(number, Stranger { peer, leave: Arc::clone(&leave) });
        Seat { seats: Arc::clone(self), number, leave, is_known: Mutex::new(false) }
    }
}

impl Seat {
    /// Notes that the client has shown a valid credential. While all seats for such connections are taken, it stays among
    /// the strangers.
    pub fn set_known(&self) {
        let mut is_known = self.is_known.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_known {
            return;
        }
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.known < self.seats.known && taken.strangers.remove(&self.number).is_some() {
            taken.known += 1;
            *is_known = true;
        }
    }

    /// Asks the connection to leave.
    pub fn end(&self) {
        self.leave.notify_one();
    }

    /// Ends when the connection has to leave.
    pub async fn revoked(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let is_known = *self.is_known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match is_known {
            true => taken.known -= 1,
            false => drop(taken.strangers.remove(&self.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt as _;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    fn has_to_leave(seat: &Seat) -> bool {
        seat.revoked().now_or_never().is_some()
    }

    #[test]
    fn strangers_make_room_for_each_other_and_known_connections_stay() {
        let seats = Seats::new(16);
        let known: Vec<Seat> = (0..12)
            .map(|_| {
                let seat = seats.take(peer(1));
                seat.set_known();
                seat
            })
            .collect();
        let first = seats.take(peer(1));
        let second = seats.take(peer(1));
        let third = seats.take(peer(1));
        assert!(has_to_leave(&first), "one address has half of the seats of strangers");
        assert!(!has_to_leave(&second) && !has_to_leave(&third));
        let others = [seats.take(peer(2)), seats.take(peer(2))];
        let late = seats.take(peer(3));
        assert!(has_to_leave(&second), "the one that has waited longest");
        assert!([&third, &others[0], &others[1], &late].iter().all(|seat| !has_to_leave(seat)));
        assert!(known.iter().all(|seat| !has_to_leave(seat)));
        late.set_known();
        drop(known);
        late.set_known();
        assert_eq!(seats.taken.lock().expect("no test panicked").known, 1);
        drop((first, second, third, others, late));
        let taken = seats.taken.lock().expect("no test panicked");
        assert_eq!((taken.known, taken.strangers.len()), (0, 0));
    }
}
