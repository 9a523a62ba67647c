use super::*;

/// Node `a` takes two volumes of the driver, node `b` does not exist.
fn world(count: Value) -> World {
    let mut world = World::new();
    world.nodes.remove(&Key::cluster("b"));
    let driver = json!({"name": "d.example.com", "nodeID": "a", "allocatable": {"count": count}});
    put!(world, csi_nodes, read::<CsiNode>(json!({"metadata": {"name": "a"}, "spec": {"drivers": [driver]}})));
    put!(world, claims, claim("c", json!({})));
    world
}

fn user() -> Pod {
    pod("p", &["c"], json!({}))
}

/// A pod on node `a` with a volume of its own.
fn running(world: &mut World, name: &str) {
    put!(world, volumes, volume(&format!("v-{name}"), reference(name)));
    put!(world, claims, claim(name, bound_to(&format!("v-{name}"))));
    put!(world, pods, pod(name, &[name], json!({"spec": {"nodeName": "a"}})));
}

const FULL: &str = "0/1 nodes are available: 1 node(s) exceed max volume count.";

/// Rule: SCHED-5.9
#[test]
fn a_node_takes_as_many_volumes_as_its_driver_says() {
    let mut world = world(json!(2));
    running(&mut world, "one");
    assert!(world.placed(&user()).is_ok());
    running(&mut world, "two");
    assert_eq!(world.refusal(&user()), FULL);
}

/// Rule: SCHED-5.9
#[test]
fn a_volume_that_is_there_already_takes_no_more_place() {
    let mut world = world(json!(1));
    running(&mut world, "one");
    assert!(world.placed(&pod("p", &["one"], json!({}))).is_ok());
    assert_eq!(world.refusal(&user()), FULL);
}

/// Rule: SCHED-5.9
#[test]
fn what_is_attached_without_a_pod_takes_a_place() {
    let mut world = world(json!(1));
    let attachment = |volume: Value| -> Attachment {
        read(
            json!({"metadata": {"name": "va"}, "spec": {"attacher": "d.example.com", "nodeName": "a", "source": volume}}),
        )
    };
    world.attachments = vec![Arc::new(attachment(json!({"persistentVolumeName": "unknown"})))];
    assert_eq!(world.refusal(&user()), FULL);
    // The pod's own volume, still attached from before, is not counted twice.
    put!(world, volumes, volume("v", reference("c")));
    put!(world, claims, claim("c", bound_to("v")));
    world.attachments = vec![Arc::new(attachment(json!({"persistentVolumeName": "v"})))];
    assert!(world.placed(&user()).is_ok());
}

#[test]
fn pods_in_flight_take_places_too() {
    let mut world = world(json!(1));
    put!(world, claims, claim("d", json!({})));
    let mut book = world.book();
    book.assume(assignment(&pod("q", &["d"], json!({})), "a", &[("d", Means::Make)]), &world);
    assert_eq!(outcome(place(&user(), &world, &book, NOW)), Err(FULL.into()));
}

/// Rule: CTRL-14.26
#[test]
fn without_a_csinode_or_a_count_there_is_no_limit() {
    let mut world = world(Value::Null);
    running(&mut world, "one");
    assert!(world.placed(&user()).is_ok());
    world.csi_nodes.clear();
    assert!(world.placed(&user()).is_ok());
}

/// Rule: SCHED-5.9
#[test]
fn a_driver_may_ask_that_pods_go_only_where_it_runs() {
    let mut world = world(json!(9));
    world.csi_nodes.clear();
    let spec = json!({"preventPodSchedulingIfMissing": true});
    put!(world, drivers, read::<CsiDriver>(json!({"metadata": {"name": "d.example.com"}, "spec": spec})));
    let refused = "0/1 nodes are available: 1 d.example.com CSI driver is not installed on the node.";
    assert_eq!(world.refusal(&user()), refused);
}

/// Rule: SCHED-5.9
#[test]
fn volumes_that_a_driver_took_over_take_its_places() {
    let mut world = World::new();
    world.nodes.remove(&Key::cluster("b"));
    let driver = json!({"name": "ebs.csi.aws.com", "nodeID": "a", "allocatable": {"count": 1}});
    put!(world, csi_nodes, read::<CsiNode>(json!({"metadata": {"name": "a"}, "spec": {"drivers": [driver]}})));
    for name in ["c", "d"] {
        let source = json!({"spec": {"csi": null, "awsElasticBlockStore": {"volumeID": format!("vol-{name}")}}});
        put!(world, volumes, volume(&format!("v-{name}"), over(reference(name), source)));
        put!(world, claims, claim(name, bound_to(&format!("v-{name}"))));
    }
    assert!(world.placed(&user()).is_ok());
    put!(world, pods, pod("other", &["d"], json!({"spec": {"nodeName": "a"}})));
    assert_eq!(world.refusal(&user()), FULL);
}
