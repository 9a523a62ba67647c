//! Everything that runs beside one driver, on any context: the engine with the driver behind it, the guards of sources,
//! what tells its room, and what follows the condition of its volumes.
//!
//! It works alone (`orlop sidecar`), or in one process with the binder, whose requests then come without a write.

use std::sync::Arc;

use runtime::Stop;
use runtime::csi::{Driver, Facts};

use super::{CsiProvisioner, GuardOptions, Guards, Options};
use crate::Context;
use crate::capacity::{self, Producer};
use crate::health::{Monitor, MonitorOptions};
use crate::provision::{self, Engine};

/// How the parts behave.
#[derive(Debug, Clone)]
pub struct SidecarOptions {
    pub provisioner: Options,
    pub engine: provision::Options,
    pub guards: GuardOptions,
    /// `--enable-capacity`.
    pub capacity: Option<capacity::Options>,
}

/// The parts beside one driver.
#[derive(Debug)]
pub struct Sidecar {
    provisioner: CsiProvisioner,
    engine: Engine<CsiProvisioner>,
    guards: Guards,
    capacity: Option<Producer>,
    monitor: Option<Monitor>,
}

impl Sidecar {
    /// The parts for a driver that said `facts` when it was met. Nothing happens until [`Sidecar::run`]; somebody has to
    /// run the driver's connection and the context's caches.
    pub fn new(context: &Context, driver: &Driver, facts: &Facts, options: SidecarOptions) -> Self {
        let SidecarOptions { provisioner, engine, guards, capacity } = options;
        let (timeout, only_here) = (provisioner.timeout, provisioner.node.is_some());
        let monitor = provisioner.monitor.map(|interval| {
            Monitor::new(context, driver, &facts.name, MonitorOptions { interval, timeout, only_here })
        });
        let provisioner = CsiProvisioner::new(context, driver, facts, provisioner);
        let capacity = capacity.map(|options| Producer::new(context, driver, &facts.name, options));
        if let Some(producer) = &capacity {
            provisioner.refresh_with(producer.refresh());
        }
        let guards = Guards::new(context, &provisioner, guards);
        let engine = Engine::new(context, Arc::new(provisioner.clone()), engine);
        Self { provisioner, engine, guards, capacity, monitor }
    }

    /// Works until `stop`. It may be called again afterwards, never twice at once.
    pub async fn run(&self, stop: &Stop) {
        let capacity = async {
            if let Some(producer) = &self.capacity {
                producer.run(stop).await;
            }
        };
        let monitor = async {
            if let Some(monitor) = &self.monitor {
                monitor.run(stop).await;
            }
        };
        // Each on the heap: together they would be one large state on the stack of whoever polls.
        tokio::join!(
            Box::pin(self.engine.run(stop)),
            Box::pin(self.provisioner.run(stop)),
            Box::pin(self.guards.run(stop)),
            Box::pin(capacity),
            Box::pin(monitor),
        );
    }
}
