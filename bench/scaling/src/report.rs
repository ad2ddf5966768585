//! Tables and plots of everything that was looked at.

use anyhow::Result;

use crate::{
    balance,
    costs::{self, CORES, Daemon, MEASURED, Operation, START},
    field::PUBLISHED,
    plots::{Line, Mark, svg},
    startup,
    study::{Curve, DEALT, NODES, Point, Workload},
    transfers::transfers,
};

/// A block of the document: its name, and its text.
pub type Block = (&'static str, String);
/// A file beside the document: its name, and its text.
pub type Plot = (&'static str, String);

/// Numbers of nodes for which links alone are simulated.
pub const LINK_NODES: [u32; 4] = [24, 96, 384, 1536];
/// What daemons can move in the rows of that table, in and out together, GiB a second.
const DAEMONS: [(f64, &str); 3] =
    [(1000.0, "as fast as links"), (4.0, "4 GiB/s each"), (1.0, "1 GiB/s each")];
const BALANCE_FILES: u32 = 1_000_000;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Three digits and a unit, as tables have it.
#[must_use]
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        _ if value >= 1e9 => (value / 1e9, "G"),
        _ if value >= 1e6 => (value / 1e6, "M"),
        _ if value >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    match scaled {
        _ if scaled >= 100.0 => format!("{scaled:.0}{unit}"),
        _ if scaled >= 10.0 => format!("{scaled:.1}{unit}"),
        _ => format!("{scaled:.2}{unit}"),
    }
}

/// What [`short`] wrote.
#[must_use]
pub fn long(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(['k', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => 1.0,
    };
    Some(digits.parse::<f64>().ok()? * unit)
}

fn scale(workload: Workload) -> f64 {
    if workload.is_long() { f64::from(workload.bytes()) / GIB } else { 1.0 }
}

fn cell(workload: Workload, point: Point) -> String {
    let scale = scale(workload);
    match point {
        Point::Simulated(rate) => short(rate * scale),
        Point::Modelled(least, most) => {
            let (least, most) = (short(least * scale), short(most * scale));
            if least == most { format!("*{most}*") } else { format!("*{least}–{most}*") }
        }
    }
}

fn header(first: &str, columns: &[String]) -> String {
    let names: String = columns.iter().map(|name| format!(" {name} |")).collect();
    let rules: String = columns.iter().map(|_| "---:|").collect();
    format!("| {first} |{names}\n|---:|{rules}\n")
}

fn name_of(workload: Workload) -> String {
    let unit = if workload.is_long() { "GiB/s" } else { "/s" };
    format!("{}, {unit}", workload.name())
}

/// The table of some curves.
#[must_use]
pub fn rates(curves: &[&Curve]) -> String {
    let names: Vec<String> = curves.iter().map(|curve| name_of(curve.workload)).collect();
    let mut text = header("nodes", &names);
    for (row, nodes) in NODES.into_iter().enumerate() {
        let cells = curves.iter().map(|curve| cell(curve.workload, curve.points[row].1));
        let cells: String = cells.map(|cell| format!(" {cell} |")).collect();
        text += &format!("| {nodes} |{cells}\n");
    }
    text
}

/// The table of daemons with more threads: each workload's rates, by threads of a daemon.
fn threads(curves: &[Curve]) -> String {
    let mut columns = Vec::new();
    let mut chosen = Vec::new();
    for workload in DEALT {
        let those = |curve: &&Curve| curve.workload == workload && curve.daemon.of_host == 1;
        for curve in curves.iter().filter(those) {
            let name = workload.name().split(',').next().unwrap_or_default();
            columns.push(format!("{name}, {} + {0}", curve.daemon.shards));
            chosen.push(curve);
        }
    }
    let mut text = header("nodes", &columns);
    for (row, nodes) in NODES.into_iter().enumerate() {
        let cells = chosen.iter().map(|curve| cell(curve.workload, curve.points[row].1));
        let cells: String = cells.map(|cell| format!(" {cell} |")).collect();
        text += &format!("| {nodes} |{cells}\n");
    }
    text
}

/// The table of several daemons on each host: each workload's rates.
fn daemons(curves: &[Curve]) -> String {
    let chosen: Vec<&Curve> = curves.iter().filter(|curve| curve.daemon.of_host > 1).collect();
    rates(&chosen)
}

fn fits(curves: &[Curve]) -> String {
    let columns = [
        "simulated up to",
        "simulated by model there",
        "model fitted at a quarter of that was off by",
        "requests between nodes, an operation",
        "busiest front thread",
        "front thread in the middle",
    ];
    let mut text = header("workload", &columns.map(str::to_owned));
    for curve in curves {
        let Some((nodes, last)) = curve.measured.last() else { continue };
        let name = match (curve.daemon.of_host, curve.daemon.shards) {
            (1, 1) => curve.workload.name().to_owned(),
            (1, shards) => format!("{}, {shards} + {shards}", curve.workload.name()),
            (of_host, _) => format!("{}, {of_host} daemons", curve.workload.name()),
        };
        text += &format!(
            "| {name} | {nodes} | {:.2} | {:+.0} % | {:.2} | {:.0} % | {:.0} % |\n",
            curve.factor,
            curve.error * 100.0,
            last.requests,
            last.busiest_front * 100.0,
            last.median_front * 100.0
        );
    }
    text
}

fn costs() -> String {
    let columns = [
        "requests",
        "asking front",
        "owner's front",
        "owner's other shards",
        "own front",
        "network threads",
        "I/O pool",
    ];
    let mut text = header("µs of processor time", &columns.map(str::to_owned));
    for of in MEASURED.into_iter().chain(costs::DEALT) {
        let Operation { name, requests, ask_us, serve_us, shards_us, own_us, .. } = of;
        text += &format!(
            "| {name} | {requests} | {ask_us:.2} | {serve_us:.2} | {shards_us:.2} | {own_us:.2} | \
             {:.2} | {:.2} |\n",
            of.network_us, of.pool_us
        );
    }
    text
}

fn links() -> String {
    let mut columns = Vec::new();
    for cores in CORES {
        columns.extend(["all nodes", "own leaf"].map(|pools| format!("{cores} core, {pools}")));
    }
    header("nodes; daemons", &columns) + &link_rows(&LINK_NODES)
}

/// The rows of the table of links for some numbers of nodes.
#[must_use]
pub fn link_rows(all: &[u32]) -> String {
    let mut text = String::new();
    for (daemon_gib, says) in DAEMONS {
        for nodes in all {
            text += &format!("| {nodes}; {says} |");
            for cores in CORES {
                for pools in [false, true] {
                    let moved = transfers(*nodes, cores, pools, daemon_gib);
                    let (rate, used) = (short(moved.gib_per_second), moved.uplink * 100.0);
                    text += &format!(" {rate} ({used:.0} %) |");
                }
            }
            text += "\n";
        }
    }
    text
}

fn starts() -> String {
    let columns = ["levels of relays", "tree, s", "one after the other, s"];
    let mut text = header("nodes", &columns.map(str::to_owned));
    for nodes in NODES {
        text += &format!(
            "| {nodes} | {} | {:.2} | {:.1} |\n",
            startup::levels(nodes),
            startup::seconds(nodes, &START),
            startup::seconds_without_tree(nodes, &START)
        );
    }
    text
}

fn evenness() -> String {
    let columns = ["in one directory", "in 1,000 directories", "10 files a node"];
    let mut text = header("nodes", &columns.map(str::to_owned));
    for nodes in NODES.into_iter().filter(|nodes| *nodes > 1) {
        text += &format!(
            "| {nodes} | {:.3} | {:.3} | {:.2} |\n",
            balance::fullest(nodes, BALANCE_FILES, 1),
            balance::fullest(nodes, BALANCE_FILES, 1000),
            balance::fullest(nodes, nodes * 10, 1)
        );
    }
    text
}

fn published() -> String {
    let mut text = String::from("| system | what | nodes | published |\n|---|---|---:|---:|\n");
    for of in PUBLISHED {
        let value = format!("{} {}", short(of.value), of.unit);
        text += &format!("| {} | {} | {} | {value} |\n", of.system, of.what, of.nodes);
    }
    text
}

fn line(curve: &Curve) -> Line {
    let scale = scale(curve.workload);
    let points = curve.points.iter().map(|(nodes, point)| {
        let mark = match point {
            Point::Simulated(_) => Mark::Filled,
            Point::Modelled(..) => Mark::Hollow,
        };
        (f64::from(*nodes), point.middle() * scale, mark)
    });
    Line { name: curve.workload.name().to_owned(), points: points.collect() }
}

fn crosses(name: &str, of: impl Fn(&crate::field::Published) -> bool) -> Line {
    let found = PUBLISHED.iter().filter(|published| of(published));
    let points = found.map(|of| (f64::from(of.nodes), of.value, Mark::Cross)).collect();
    Line { name: format!("{name} (published, other hardware)"), points }
}

fn is_in(table: &'static str) -> impl Fn(Workload) -> bool {
    move |workload| workload.table() == table
}

/// The tables that follow from the parameters alone, and quickly.
#[must_use]
pub fn computed() -> Vec<Block> {
    vec![
        ("costs", costs()),
        ("starts", starts()),
        ("balance", evenness()),
        ("published", published()),
    ]
}

/// Those whose daemons have one thread of either kind.
fn usual(curves: &[Curve]) -> Vec<Curve> {
    curves.iter().filter(|curve| curve.daemon == Daemon::USUAL).cloned().collect()
}

/// The tables of what was simulated.
#[must_use]
pub fn blocks(curves: &[Curve]) -> Vec<Block> {
    let all = curves;
    let curves = &usual(curves);
    let some = |of: &dyn Fn(Workload) -> bool| -> String {
        let chosen: Vec<&Curve> = curves.iter().filter(|curve| of(curve.workload)).collect();
        rates(&chosen)
    };
    vec![
        ("metadata", some(&is_in("metadata"))),
        ("own", some(&is_in("own"))),
        ("dataset", some(&is_in("dataset"))),
        ("data", some(&is_in("data"))),
        ("threads", threads(all)),
        ("daemons", daemons(all)),
        ("fits", fits(all)),
        ("links", links()),
    ]
}

/// All plots.
///
/// # Errors
/// One cannot be drawn.
pub fn plots(curves: &[Curve]) -> Result<Vec<Plot>> {
    let curves = &usual(curves);
    let some = |of: &dyn Fn(Workload) -> bool| -> Vec<Line> {
        curves.iter().filter(|curve| of(curve.workload)).map(line).collect()
    };
    let gekko = || crosses("GekkoFS create, stat, remove", |of| of.value >= 1e6);
    let (mut metadata, mut own) = (some(&is_in("metadata")), some(&is_in("own")));
    metadata.extend(some(&|workload| workload == Workload::DatasetSecond));
    metadata.push(gekko());
    own.push(gekko());
    let mut small = some(&|workload| workload.table() == "data" && !workload.is_long());
    small.push(crosses("GekkoFS, one file, no size cache", |of| of.value == 150e3));
    let mut long = some(&Workload::is_long);
    long.push(crosses("GekkoFS on SATA SSDs", |of| of.unit == "GiB/s"));
    let start = |name: &str, of: &dyn Fn(u32) -> f64| {
        let points = NODES.into_iter().map(|nodes| (f64::from(nodes), of(nodes), Mark::Hollow));
        Line { name: name.to_owned(), points: points.collect() }
    };
    let starts = [
        start("tree of relays", &|nodes| startup::seconds(nodes, &START)),
        start("one after the other", &|nodes| startup::seconds_without_tree(nodes, &START)),
        crosses("GekkoFS", |of| of.system == "GekkoFS" && of.unit == "s"),
        crosses("BeeOND", |of| of.system == "BeeOND"),
        crosses("Gfarm/BB", |of| of.system == "Gfarm/BB"),
    ];
    Ok(vec![
        ("metadata.svg", svg("Metadata, 16 processes a node", "operations/s", &metadata)?),
        ("own.svg", svg("Own directories, 16 processes a node", "operations/s", &own)?),
        ("small.svg", svg("8 KiB transfers, 16 processes a node", "operations/s", &small)?),
        ("long.svg", svg("1 MiB transfers, 16 processes a node", "GiB/s", &long)?),
        ("start.svg", svg("Start-up", "seconds", &starts)?),
    ])
}
