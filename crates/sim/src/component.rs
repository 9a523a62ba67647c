//! A part under test: one process of the world.

use std::pin::pin;

use apiserver::auth::{AUTHENTICATED, SYSTEM_MASTERS, User};

use crate::World;
use crate::faults::{Fates, Faulty, Line};

/// How a component's work came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended<T> {
    Finished(T),
    /// It died at a request, as its fates wanted.
    Crashed,
}

/// One process: a name, its way to the API server, and the possibility to die. Dropping [`Component::run`]'s future is
/// how it dies; requests that something it left behind still makes never get an answer.
#[derive(Debug)]
pub struct Component {
    line: Line,
    way: Faulty,
}

impl Component {
    pub(crate) fn new(world: &World, name: &str, fates: Box<dyn Fates>) -> Self {
        let line = Line::new(name, world.journal().clone(), fates, world.refusals().clone());
        let groups = vec![SYSTEM_MASTERS.to_owned(), AUTHENTICATED.to_owned()];
        let user = User { name: name.to_owned(), groups, ..User::default() };
        let way = Faulty::new(line.clone(), world.service().as_user(user), world.api().store().clone());
        Self { line, way }
    }

    pub fn name(&self) -> &str {
        self.line.name()
    }

    /// A client whose requests meet this component's fates. To be called inside the world's runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.way.clone(), "default")
    }

    /// The component dies now.
    pub fn kill(&self) {
        self.line.note("killed (injected)");
        self.line.kill();
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// A line of the journal in the component's name.
    pub fn note(&self, what: impl std::fmt::Display) {
        self.line.note(what);
    }

    /// Does the component's work until it ends, or until one of its requests kills it.
    pub async fn run<F: Future>(&self, work: F) -> Ended<F::Output> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            () = self.line.died() => Ended::Crashed,
            output = &mut work => Ended::Finished(output),
        }
    }
}
