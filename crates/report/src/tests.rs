use serde_json::json;

use super::*;

fn node(number: u32, reads: u64) -> Node {
    let (mut sizes, none) = ([0; 16], [0_u64; 16]);
    sizes[2] = reads;
    let work = json!({
        "operations": {"read": {"itself": reads}, "open": {"asked": reads / 8}},
        "failed": 0,
        "read_bytes": {"itself": reads * 1500},
        "written_bytes": {},
        "reads_by_size": sizes,
        "writes_by_size": none,
        "reads_in_order": reads / 10,
        "writes_in_order": 0,
        "waits": {},
    });
    let mut process = json!({
        "pid": 77, "name": "</script><b>x", "lives": false,
        "began_seconds": 0.5, "seen_seconds": 10.5, "busy_seconds": 5.0,
    });
    process.as_object_mut().expect("an object").extend(work.as_object().expect("one").clone());
    let place = json!({
        "path": "/a <b>", "operations": reads, "opens": 10, "read_bytes": 0, "written_bytes": 0,
        "seconds": 1.0, "processes": 1,
    });
    let busy = json!({
        "directories": [place], "files": [place], "files_seen": 1, "shared_files_seen": 0,
    });
    let span = json!({
        "began_seconds": 0.0, "seconds": 0.5, "operations": reads, "read_bytes": reads * 1500,
        "written_bytes": 0,
    });
    let mut by_time = [0_u64; 24];
    by_time[6] = reads / 10;
    let held = json!({"count": reads / 10, "seconds": 0.25, "by_time": by_time});
    let outside = json!({"count": reads / 10, "seconds": 0.6, "by_time": by_time});
    let report = json!({
        "state": "serving", "files": 3, "used_bytes": 4096,
        "activity": {"answers_to_nodes": 9, "held": {
            "node": {"open": held}, "origin": {"read": outside},
        }},
        "processes": [{"cpu_seconds": 0.25}, {"cpu_seconds": 0.5}],
        "work": work,
        "detail": {
            "age_seconds": 12.0, "processes_seen": 1, "by_process": [process],
            "busiest": busy, "latest": busy, "lately": [span], "line": [span],
        },
    });
    Node { name: "work".to_owned(), node: number, host: format!("n{number}"), report: Some(report) }
}

#[test]
fn nodes_are_added_up() {
    let silent = Node { report: None, ..node(2, 0) };
    let report = Report::of("work", None, &[node(0, 40_000), node(1, 2000), silent]);
    assert_eq!(report.work.count_of("read"), 42_000);
    assert_eq!((report.files, report.requests_between_nodes), (6, 18));
    assert_eq!(report.directories.len(), 1);
    assert_eq!(report.directories[0].operations, 42_000);
    assert_eq!(report.line.iter().map(|span| span.operations).sum::<u64>(), 42_000);
    assert!((report.nodes[0].cpu_seconds - 0.75).abs() < 1e-9);
    assert!(!report.nodes[2].answers);
    let kinds: Vec<&str> = report.findings.iter().map(|finding| finding.kind).collect();
    let wanted =
        ["silent-nodes", "much-time", "small-reads", "random-reads", "other-nodes", "origin"];
    assert_eq!(kinds, wanted);
}

#[test]
fn a_job_that_did_little_has_nothing_to_find() {
    let report = Report::of("work", None, &[node(0, 20)]);
    let kinds: Vec<&str> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, ["much-time"]);
    assert!(page(&Report { findings: Vec::new(), ..report }).contains("Nothing: no kind"));
}

#[test]
fn no_name_on_the_page_is_taken_for_markup() {
    let report = Report::of("<i>", Some(vec!["a<b".to_owned()]), &[node(0, 2000)]);
    let page = page(&report);
    assert!(!page.contains("<i>") && !page.contains("<b>x") && !page.contains("a<b"), "{page}");
    let (_, embedded) = page.split_once("id=\"report\">").expect("the form for programs");
    let (embedded, _) = embedded.split_once("</script>").expect("its end");
    let form: serde_json::Value = serde_json::from_str(embedded).expect("JSON");
    assert_eq!(form["processes"][0]["name"], "</script><b>x");
    assert_eq!(form["work"]["operations"]["read"]["itself"], 2000);
}
