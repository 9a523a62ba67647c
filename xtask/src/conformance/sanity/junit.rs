//! Ginkgo's JUnit report, as far as a verdict needs it: each spec's name, status and why it was skipped.

/// The specs of one run. Pending specs are switched off in the suite itself and count nowhere.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: Vec<String>,
    /// Name and reason.
    pub(super) skipped: Vec<(String, String)>,
    pub(super) failed: Vec<String>,
}

pub(super) fn tally(report: &str) -> Tally {
    let mut tally = Tally::default();
    for case in report.split("<testcase ").skip(1) {
        let head = case.split('>').next().unwrap_or_default();
        let (Some(name), Some(status)) = (attribute(head, "name"), attribute(head, "status")) else { continue };
        // Set-up and clean-up of the whole suite are reported like specs, without this mark.
        let Some(name) = name.strip_prefix("[It] ").map(str::to_owned) else { continue };
        match status.as_str() {
            "passed" => tally.passed.push(name),
            "pending" => {}
            "skipped" => {
                let message = case.split("<skipped ").nth(1).and_then(|rest| attribute(rest, "message"));
                let message = message.unwrap_or_default();
                let reason = message.strip_prefix("skipped - ").unwrap_or(&message).to_owned();
                tally.skipped.push((name, reason));
            }
            _ => tally.failed.push(name),
        }
    }
    tally
}

fn attribute(element: &str, name: &str) -> Option<String> {
    let start = element.find(&format!("{name}=\""))? + name.len() + 2;
    let value = &element[start..];
    Some(unescape(&value[..value.find('"')?]))
}

fn unescape(text: &str) -> String {
    let escapes = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&#34;", "\""),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#xA;", " "),
        ("&amp;", "&"),
    ];
    escapes.iter().fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<testsuites tests="6"><testsuite name="x">
<testcase name="[It] Node should &lt;work&gt;" classname="x" status="passed" time="1"></testcase>
<testcase name="[It] Node should be skipped" classname="x" status="skipped" time="0">
  <skipped message="skipped - ControllerGetVolume not supported"></skipped></testcase>
<testcase name="[It] Node off" classname="x" status="pending" time="0"><skipped message="pending"></skipped></testcase>
<testcase name="[It] Node breaks" classname="x" status="failed" time="0"><failure message="a &quot;b&quot;"></failure></testcase>
<testcase name="[It] Node hangs" classname="x" status="timedout" time="0"></testcase>
<testcase name="[AfterSuite]" classname="x" status="passed" time="0"></testcase>
</testsuite></testsuites>"#;

    #[test]
    fn every_status_lands_where_it_counts() {
        let tally = tally(REPORT);
        assert_eq!(tally.passed, ["Node should <work>"]);
        let skipped = ("Node should be skipped".to_owned(), "ControllerGetVolume not supported".to_owned());
        assert_eq!(tally.skipped, [skipped]);
        assert_eq!(tally.failed, ["Node breaks", "Node hangs"]);
    }

    #[test]
    fn no_report_is_no_spec() {
        assert_eq!(tally(""), Tally::default());
    }
}
