//! One set of behaviours for every `node::host::Host`: the model answers as Linux does, or the simulator proves nothing.

mod cases;

use std::path::Path;

use node::host::Host as _;
use sim::faults::Fair;
use sim::machine::{Machine, ModelHost};
use sim::{Seed, Setup, World, simulate};

#[test]
fn the_model_behaves_as_a_machine_does() {
    for case in cases::ALL {
        println!("{}", case.name);
        let scenario = async |world: World| {
            let component = world.component("agent", Fair);
            let machine = Machine::new(&world, "node-a");
            let host = ModelHost::new(&machine, &component, Fair);
            let root = Path::new("/var/lib/case");
            host.make_directory(root, 0o750).await.expect("a root can be made");
            (case.run)(&host, root).await;
        };
        simulate(Seed(1), Setup::default(), scenario).expect("a world can be made");
    }
}
