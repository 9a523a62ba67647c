//! Seats of connections: how many clients may be connected to one port, and who leaves when there are too many.
//!
//! Guarantee: connections that have not shown who they are cannot keep anybody else out. They have a part of the seats of
//! their own, per network half of that part, and the one that has waited longest makes room for the next. Connections of
//! which a client has shown a valid credential have the other seats, one identity a part of them, and are never asked to
//! leave for a stranger.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// One of so many seats is for connections that have not shown who they are.
const STRANGERS_PART: usize = 4;
/// One of so many seats of known connections is the most that one identity may have.
const IDENTITY_PART: usize = 8;

/// The seats of one port.
#[derive(Debug)]
pub struct Seats {
    strangers: usize,
    strangers_per_peer: usize,
    known: usize,
    known_per_identity: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// By arrival: the first one has waited longest.
    strangers: BTreeMap<u64, Stranger>,
    known: usize,
    by_identity: BTreeMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Stranger {
    network: IpAddr,
    leave: Arc<Notify>,
}

/// The seat of one connection, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    number: u64,
    leave: Arc<Notify>,
    standing: Mutex<SeatStanding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SeatStanding {
    Stranger,
    /// With one credential for all, as the page has.
    Known,
    Identity(Arc<str>),
}

/// The addresses that one client may have all of: of IPv6, a /64.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => IpAddr::V4(four),
            None => IpAddr::V6((u128::from(six) & !u128::from(u64::MAX)).into()),
        },
    }
}

impl Seats {
    /// So many seats in all, at least two.
    pub fn new(count: usize) -> Arc<Self> {
        let strangers = (count / STRANGERS_PART).max(1);
        let known = count.saturating_sub(strangers).max(1);
        Arc::new(Self {
            strangers,
            strangers_per_peer: (strangers / 2).max(1),
            known,
            known_per_identity: (known / IDENTITY_PART).max(2),
            taken: Mutex::default(),
        })
    }

    /// A seat for a new connection. If there is none, the stranger that has waited longest is asked to leave.
    pub fn take(self: &Arc<Self>, peer: IpAddr) -> Seat {
        let network = network_of(peer);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_network =
            || taken.strangers.iter().filter(|(_, stranger)| stranger.network == network).map(|(number, _)| *number);
        let leaving = match of_network().count() >= self.strangers_per_peer {
            true => of_network().next(),
            false if taken.strangers.len() >= self.strangers => taken.strangers.keys().next().copied(),
            false => None,
        };
        if let Some(stranger) = leaving.and_then(|number| taken.strangers.remove(&number)) {
            stranger.leave.notify_one();
        }
        let leave = Arc::new(Notify::new());
        taken.next += 1;
        let number = taken.next;
        taken.strangers.insert(number, Stranger { network, leave: Arc::clone(&leave) });
        Seat { seats: Arc::clone(self), number, leave, standing: Mutex::new(SeatStanding::Stranger) }
    }
}

impl Seat {
    /// Notes that the client has shown the one credential that all clients of the port have. While all seats for such
    /// connections are taken, it stays among the strangers.
    pub fn set_known(&self) {
        self.settle(SeatStanding::Known);
    }

    /// Notes whom the client has shown to be. While all seats for such connections are taken, or the identity's part of
    /// them, it stays among the strangers.
    pub fn set_known_as(&self, identity: &str) {
        self.settle(SeatStanding::Identity(identity.into()));
    }

    fn settle(&self, as_whom: SeatStanding) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if *standing != SeatStanding::Stranger {
            return;
        }
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match &as_whom {
            SeatStanding::Identity(identity) => taken.by_identity.get(identity).copied().unwrap_or_default(),
            SeatStanding::Stranger | SeatStanding::Known => 0,
        };
        let full = taken.known >= self.seats.known || own >= self.seats.known_per_identity;
        if full || taken.strangers.remove(&self.number).is_none() {
            return;
        }
        taken.known += 1;
        if let SeatStanding::Identity(identity) = &as_whom {
            taken.by_identity.insert(Arc::clone(identity), own + 1);
        }
        *standing = as_whom;
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
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match standing {
            SeatStanding::Stranger => drop(taken.strangers.remove(&self.number)),
            SeatStanding::Known => taken.known -= 1,
            SeatStanding::Identity(identity) => {
                taken.known -= 1;
                match taken.by_identity.get_mut(&identity) {
                    Some(own) if *own > 1 => *own -= 1,
                    _ => drop(taken.by_identity.remove(&identity)),
                }
            }
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

    #[test]
    fn one_identity_has_a_part_of_the_seats_and_one_network_counts_as_one_address() {
        let seats = Seats::new(64);
        let known = |name: &str, last: u8| {
            let seat = seats.take(peer(last));
            seat.set_known_as(name);
            seat
        };
        let many: Vec<Seat> = (0..12).map(|_| known("a", 1)).collect();
        let count = || seats.taken.lock().expect("no test panicked").known;
        assert_eq!(count(), 6, "one identity has an eighth of 48");
        let other = known("b", 2);
        assert_eq!(count(), 7, "another one is not concerned");
        drop((many, other));
        assert!(seats.taken.lock().expect("no test panicked").by_identity.is_empty());

        let from = |host: u16| seats.take(std::net::Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, host).into());
        let crowd: Vec<Seat> = (0..9).map(from).collect();
        assert!(has_to_leave(&crowd[0]), "the addresses of a /64 have half of the seats of strangers together");
        assert!(crowd[1..].iter().all(|seat| !has_to_leave(seat)));
    }
}
