use api::Key;

use super::*;

const TEXT: &str = r#"# HELP kubelet_volume_stats_used_bytes Number of used bytes in the volume
# TYPE kubelet_volume_stats_used_bytes gauge
kubelet_volume_stats_used_bytes{namespace="shop",persistentvolumeclaim="data"} 1.048576e+06
kubelet_volume_stats_capacity_bytes{namespace="shop",persistentvolumeclaim="data"} 4194304 1767326645000
kubelet_volume_stats_inodes_used{persistentvolumeclaim="data",namespace="shop"} 11
kubelet_volume_stats_inodes{namespace="shop", persistentvolumeclaim="data",} 100
kubelet_volume_stats_health_status_abnormal{namespace="shop",persistentvolumeclaim="data"} 1
kubelet_volume_stats_used_bytes{namespace="shop",persistentvolumeclaim="odd"} NaN
kubelet_volume_stats_used_bytes{namespace="shop"} 7
kubelet_volume_stats_used_bytes{namespace="shop",persistentvolumeclaim="broken
workqueue_depth{name="claims"} 3
workqueue_adds_total{name="claims"} 12
workqueue_retries_total{name="claims"} 2
workqueue_longest_running_processor_seconds{name="claims"} 1.5
workqueue_depth{name="quo\"ted\\"} 0
up 1
"#;

#[test]
fn usage_is_read_by_claim_and_lines_that_say_nothing_are_left_out() {
    let mut usages = Usages::default();
    usages.add(TEXT);
    let usage = usages.get(&Key::namespaced("shop", "data")).expect("it was measured");
    assert_eq!((usage.used, usage.capacity, usage.percent()), (Some(1 << 20), Some(4 << 20), Some(25)));
    assert_eq!((usage.inodes_percent(), usage.abnormal, usage.available), (Some(11), Some(true), None));
    let odd = usages.get(&Key::namespaced("shop", "odd")).expect("it has a line");
    assert_eq!((odd.used, odd.percent()), (None, None));
    assert_eq!(usages.get(&Key::namespaced("shop", "broken")), None);
}

#[test]
fn queues_are_read_by_name() {
    let found = queues(TEXT);
    let names: Vec<&str> = found.iter().map(|queue| &*queue.name).collect();
    assert_eq!(names, ["claims", "quo\"ted\\"]);
    let claims = &found[0];
    assert_eq!((claims.depth, claims.added, claims.retried), (3, Some(12), Some(2)));
    assert_eq!(claims.longest, Some(1.5));
}

#[test]
fn a_number_that_is_no_count_is_none() {
    let count = |value| Sample { name: "n".into(), labels: Vec::new(), value }.count();
    assert_eq!([count(-1.0), count(f64::NAN), count(f64::INFINITY), count(2.0)], [None, None, None, Some(2)]);
}

proptest::proptest! {
    #[test]
    fn any_text_can_be_read(text in "\\PC{0,60}", labels in "[{}=\", \\\\a]{0,30}") {
        let line = format!("workqueue_depth{labels}{text}\nkubelet_volume_stats_{text}{labels}");
        let _ = queues(&line);
        Usages::default().add(&line);
    }
}
