//! Which of several sockets of one driver is used (NODE-3.5, NODE-31.14).
//!
//! Upstream refuses a second socket of a driver until the first is gone. Here the newest of the highest version is used,
//! and those before it stay as what to fall back to: a driver can be replaced without a moment in which nobody has it.

use std::collections::BTreeMap;

use super::version::Version;

/// A socket that a driver was registered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance<T> {
    pub driver: String,
    pub version: Version,
    /// When it came: a later one has a higher number.
    pub order: u64,
    pub held: T,
}

/// All of them, by the path of the registration socket.
#[derive(Debug)]
pub struct Instances<T> {
    by_socket: BTreeMap<String, Instance<T>>,
}

impl<T> Default for Instances<T> {
    fn default() -> Self {
        Self { by_socket: BTreeMap::new() }
    }
}

impl<T> Instances<T> {
    pub fn insert(&mut self, socket: &str, instance: Instance<T>) {
        self.by_socket.insert(socket.to_owned(), instance);
    }

    pub fn remove(&mut self, socket: &str) -> Option<Instance<T>> {
        self.by_socket.remove(socket)
    }

    pub fn get(&self, socket: &str) -> Option<&Instance<T>> {
        self.by_socket.get(socket)
    }

    pub fn get_mut(&mut self, socket: &str) -> Option<&mut Instance<T>> {
        self.by_socket.get_mut(socket)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Instance<T>)> {
        self.by_socket.iter().map(|(socket, instance)| (socket.as_str(), instance))
    }

    /// The one to use for a driver, of those that `usable` accepts.
    pub fn chosen(&self, driver: &str, usable: impl Fn(&T) -> bool) -> Option<&Instance<T>> {
        let of_driver = self.by_socket.values().filter(|instance| instance.driver == driver && usable(&instance.held));
        of_driver.max_by(|a, b| (&a.version, a.order).cmp(&(&b.version, b.order)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(version: &str, order: u64) -> Instance<&'static str> {
        let version = Version::parse(version).expect("it is a version");
        Instance { driver: "d".to_owned(), version, order, held: "usable" }
    }

    /// Rules: NODE-31.14, NODE-32.2
    #[test]
    fn the_newest_is_used_and_the_one_before_it_when_that_goes() {
        let mut all = Instances::default();
        all.insert("/a", instance("1.0.0", 1));
        all.insert("/b", instance("1.0.0", 2));
        let order = |all: &Instances<&str>| all.chosen("d", |_| true).map(|instance| instance.order);
        assert_eq!(order(&all), Some(2), "NODE-32.2: the second is taken, not refused");
        all.remove("/b");
        assert_eq!(order(&all), Some(1));
        all.remove("/a");
        assert_eq!(order(&all), None);
    }

    /// Rule: NODE-3.5
    #[test]
    fn a_higher_version_is_used_whenever_it_came() {
        let mut all = Instances::default();
        all.insert("/new", instance("1.1.0", 1));
        all.insert("/old", instance("1.0.0", 2));
        assert_eq!(all.chosen("d", |_| true).map(|instance| instance.order), Some(1));
        assert_eq!(all.chosen("other", |_| true), None);
        assert_eq!(all.chosen("d", |held| *held == "something else"), None);
    }
}
