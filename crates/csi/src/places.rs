//! Places of connections on a port where nobody has to say who they are, such as one for metrics.
//!
//! Guarantee: connections that send nothing cannot keep others out. A new connection always gets a place. When there are too
//! many, the one that has been open longest makes room; one address has at most half of the places.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The places of one port.
#[derive(Debug)]
pub struct ConnectionPlaces {
    most: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    /// By arrival.
    by_number: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    places: Arc<ConnectionPlaces>,
    number: u64,
    leave: Arc<Notify>,
}

impl ConnectionPlaces {
    /// So many places, at least two.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(2), open: Mutex::default() })
    }

    /// A place for a new connection.
    pub fn take(self: &Arc<Self>, peer: IpAddr) -> ConnectionPlace {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = || open.by_number.iter().filter(|(_, (known, _))| *known == peer).map(|(number, _)| *number);
        let leaving = match of_peer().count() >= self.most / 2 {
            true => of_peer().next(),
            false if open.by_number.len() >= self.most => open.by_number.keys().next().copied(),
            false => None,
        };
        if let Some((_, leave)) = leaving.and_then(|number| open.by_number.remove(&number)) {
            leave.notify_one();
        }
        let leave = Arc::new(Notify::new());
        open.next += 1;
        let number = open.next;
        open.by_number.insert(number, (peer, Arc::clone(&leave)));
        ConnectionPlace { places: Arc::clone(self), number, leave }
    }
}

impl ConnectionPlace {
    /// Runs until its end, or until the connection has to make room for another one.
    pub async fn hold<T>(&self, connection: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.leave.notified() => None,
            ended = connection => Some(ended),
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.places.open.lock().unwrap_or_else(PoisonError::into_inner).by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    fn has_to_leave(place: &ConnectionPlace) -> bool {
        let mut held = pin!(place.hold(std::future::pending::<()>()));
        matches!(held.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(None))
    }

    #[test]
    fn the_longest_open_connection_makes_room_and_one_address_has_half() {
        let places = ConnectionPlaces::new(4);
        let first = [places.take(peer(1)), places.take(peer(1))];
        let third = places.take(peer(1));
        assert!(has_to_leave(&first[0]) && !has_to_leave(&first[1]) && !has_to_leave(&third));
        let others = [places.take(peer(2)), places.take(peer(2))];
        let late = places.take(peer(3));
        assert!(has_to_leave(&first[1]));
        assert!([&third, &others[0], &others[1], &late].iter().all(|place| !has_to_leave(place)));
        drop((first, third, others, late));
        assert!(places.open.lock().expect("no test panicked").by_number.is_empty());
    }
}
