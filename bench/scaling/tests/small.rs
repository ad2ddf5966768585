//! The study runs, and the document is what it writes.

use scaling::{
    costs::Daemon,
    document, report,
    study::{self, NODES, Workload},
};

/// Nodes that a test can afford.
const NODES_MAX: u32 = 4;
/// By how much a rate may differ from that in the document: more means that the document is old.
const TOLERANCE: f64 = 0.1;

fn document_text() -> String {
    std::fs::read_to_string(document::path()).expect("the document is in the tree")
}

/// The column of a workload in a table of rates.
fn column(text: &str, table: &str, workload: Workload) -> Vec<String> {
    let table = document::block(text, table).expect("the document has the block");
    let mut rows = table.lines().map(|line| line.trim_matches('|').split('|').map(str::trim));
    let heading = rows.next().expect("a table has a heading");
    let place = heading.into_iter().position(|cell| cell.starts_with(workload.name()));
    let place = place.unwrap_or_else(|| panic!("no column {}", workload.name()));
    rows.skip(1).map(|mut row| row.nth(place).unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_documents_rates_are_those_of_the_study() {
    let text = document_text();
    let usual = Workload::ALL.map(|workload| (workload, Daemon::USUAL, workload.table()));
    let several =
        study::with_more_daemons().map(|(workload, daemon)| (workload, daemon, "daemons"));
    for (workload, daemon, table) in usual.into_iter().chain(several) {
        let column = column(&text, table, workload);
        assert_eq!(column.len(), NODES.len(), "{}", workload.name());
        let scale = match workload.is_long() {
            true => f64::from(workload.bytes()) / f64::from(1 << 30),
            false => 1.0,
        };
        for (nodes, cell) in NODES.into_iter().zip(&column).filter(|of| of.0 <= NODES_MAX) {
            let measured = workload.simulate_with(nodes, daemon).expect("the study runs");
            let rate = measured.rate * scale;
            let written = report::long(cell).unwrap_or_else(|| panic!("{cell:?} is no rate"));
            let ratio = rate / written;
            assert!(
                (1.0 - TOLERANCE..1.0 + TOLERANCE).contains(&ratio),
                "{} on {nodes} nodes: {rate}, in the document {cell}; \
                 cargo run --release -p scaling -- --write",
                workload.name()
            );
        }
    }
}

#[test]
fn the_document_has_everything_that_the_study_writes() {
    let text = document_text();
    let old = "the document is old: cargo run --release -p scaling -- --write";
    // What is computed from parameters alone has to be the same to the letter.
    for (name, block) in report::computed() {
        let written = document::block(&text, name).expect("the document has the block");
        assert_eq!(written, block, "{old}");
    }
    let links = document::block(&text, "links").expect("the document has the block");
    for row in report::link_rows(&report::LINK_NODES[..2]).lines() {
        assert!(links.contains(row), "{old}: {row}");
    }
    let curves = [study::curve(Workload::Stat, Daemon::USUAL, 4).expect("the study runs")];
    for (name, _) in report::plots(&curves).expect("plots can be drawn") {
        let file = document::root().join("docs/benchmarks/plots").join(name);
        assert!(file.exists(), "{}", file.display());
        assert!(text.contains(&format!("plots/{name}")), "{name} is in the document");
    }
}

#[test]
fn a_hot_file_and_other_files_are_told_of_by_as_many_nodes_as_there_are() {
    for workload in [Workload::HotFile, Workload::Stat] {
        let [four, eight] = [4, 8].map(|nodes| workload.simulate(nodes).expect("the study runs"));
        assert!(eight.rate > 1.5 * four.rate, "{}: twice the nodes answer", workload.name());
    }
}

#[test]
fn own_directories_ask_nobody_and_grow_with_the_nodes() {
    for workload in [Workload::OwnCreate, Workload::OwnStat, Workload::OwnRemove] {
        let [two, eight] = [2, 8].map(|nodes| workload.simulate(nodes).expect("the study runs"));
        assert!(eight.requests < 0.01, "{}: {} requests", workload.name(), eight.requests);
        assert!(eight.rate > 3.6 * two.rate, "{}", workload.name());
    }
}

/// All in one process at the same time, each in a thread of its own, beside the other tests.
#[test]
fn a_run_of_the_study_is_the_same_wherever_and_whenever_it_is_made() {
    for workload in [Workload::Remove, Workload::WriteOneStriped] {
        let run = move || workload.simulate(2).expect("the study runs");
        let first = run();
        let threads = [(); 3].map(|()| std::thread::spawn(run));
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), first, "{}", workload.name());
        }
    }
}
