//! One page of a report: HTML that needs no other file, no script and no network.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use mayfly_metrics::work::{Place, Wait};

use crate::{
    OfProcess, Report,
    figures::{bytes, count, time},
    plot,
};

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; }
body { max-width: 62rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #8884; }
p.sub { color: #777; margin-top: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .5rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; border-bottom: 1px solid #8888; }
td.name, th.name { text-align: left; white-space: normal; overflow-wrap: anywhere; }
tr:nth-child(even) td { background: #8881; }
.tiles { display: flex; flex-wrap: wrap; gap: .7rem; }
.tile { border: 1px solid #8886; border-radius: .4rem; padding: .5rem .9rem; min-width: 8rem; }
.tile b { display: block; font-size: 1.25rem; }
.finding { border-left: .3rem solid #e08a00; background: #e08a0014; }
.finding { padding: .3rem .8rem; margin: .6rem 0; }
.bar { background: #1f77b4; height: .75rem; display: block; min-width: 1px; }
.plot svg { width: 100%; height: auto; background: white; }
.note { color: #777; font-size: .9rem; }
";

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let title = format!("Mayfly: {}", report.name);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(report))
                (findings(report))
                (course(report))
                (operations(report))
                (sizes(report))
                (waits(report))
                @if report.nodes.len() > 1 { (nodes(report)) }
                (processes(report))
                (places("Directories", &report.directories))
                (places("Files", &report.busy_files))
                (how(report))
                script type="application/json" id="report" { (PreEscaped(embedded(report))) }
            }
        }
    };
    markup.into_string()
}

/// The report for programs: no text in it ends the element.
fn embedded(report: &Report) -> String {
    serde_json::to_string(report).unwrap_or_default().replace('<', "\\u003c")
}

fn head(report: &Report) -> Markup {
    let work = &report.work;
    let direct = work.count().saturating_sub(work.count_by("asked"));
    html! {
        h1 { "What " (report.name) " did" }
        p.sub {
            (report.nodes.len()) " node" @if report.nodes.len() != 1 { "s" }
            ", " (time(report.seconds)) ", " (count(report.processes_seen)) " processes"
            @if let Some(command) = &report.command { ": " code { (command.join(" ")) } }
        }
        div.tiles {
            (tile("operations", &count(work.count())))
            (tile("read", &bytes(work.read())))
            (tile("written", &bytes(work.written())))
            (tile("files at the end", &count(report.files)))
            (tile("space at the end", &bytes(report.used_bytes)))
            (tile("without waiting for a daemon", &percent(direct, work.count())))
            (tile("requests between nodes", &count(report.requests_between_nodes)))
        }
        p {
            "Without the instance the shared file system would have got "
            (count(work.count())) " operations, among them "
            (count(work.count_of("create"))) " creates and "
            (count(work.count_of("open") + work.count_of("stat") + work.count_of("list")))
            " opens and looks, and " (bytes(work.read() + work.written()))
            " of transfers. It got what was staged in and out."
        }
    }
}

fn tile(name: &str, value: &str) -> Markup {
    html! { div.tile { b { (value) } (name) } }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    // Nothing is called everything that is not.
    if percent > 99.9 && part < whole { "99.9 %".to_owned() } else { format!("{percent:.1} %") }
}

fn findings(report: &Report) -> Markup {
    html! {
        h2 { "What stands out" }
        @if report.findings.is_empty() {
            p { "Nothing: no kind of access was common that could easily be made better." }
        }
        @for finding in &report.findings {
            div.finding { b { (finding.what) } " " (finding.advice) }
        }
    }
}

fn course(report: &Report) -> Markup {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let curves = [
        plot::curve(&report.line, "operations/s", |span| span.operations as f64),
        plot::curve(&report.line, "MiB/s read", |span| mib(span.read_bytes)),
        plot::curve(&report.line, "MiB/s written", |span| mib(span.written_bytes)),
    ];
    html! {
        @if curves.iter().any(Option::is_some) {
            h2 { "The course of time" }
            @for curve in curves.iter().flatten() { div.plot { (PreEscaped(curve)) } }
        }
    }
}

fn operations(report: &Report) -> Markup {
    let all = report.work.count();
    let mut kinds: Vec<_> = report.work.operations.iter().collect();
    kinds.sort_by_key(|(_, ways)| std::cmp::Reverse(ways.values().sum::<u64>()));
    let way = |ways: &std::collections::BTreeMap<String, u64>, name: &str| {
        count(ways.get(name).copied().unwrap_or(0))
    };
    html! {
        h2 { "Operations" }
        table {
            tr {
                th.name { "kind" } th { "all" } th { "share" }
                th { "by the process itself" } th { "not waited for" } th { "asked for" }
            }
            @for (kind, ways) in kinds {
                tr {
                    td.name { (kind) }
                    td { (count(ways.values().sum())) }
                    td { (percent(ways.values().sum(), all)) }
                    td { (way(ways, "itself")) }
                    td { (way(ways, "unawaited")) }
                    td { (way(ways, "asked")) }
                }
            }
        }
        p.note { (count(report.work.failed)) " of them failed." }
    }
}

/// The upper edge of a size's bucket.
fn size(bucket: usize, buckets: usize) -> String {
    let edge = |bucket: usize| bytes(512 << bucket);
    if bucket + 1 == buckets {
        format!("more than {}", edge(bucket - 1))
    } else {
        format!("up to {}", edge(bucket))
    }
}

fn width(part: u64, whole: u64) -> String {
    format!("width: {:.1}%", 100.0 * part as f64 / whole as f64)
}

fn sizes(report: &Report) -> Markup {
    let work = &report.work;
    let one = |title: &str, sizes: &[u64], in_order: u64| {
        let all: u64 = sizes.iter().sum();
        let most = sizes.iter().copied().max().unwrap_or(0).max(1);
        html! {
            @if all > 0 {
                h2 { (title) ", by size" }
                p.note {
                    (count(all)) " that moved bytes; of these " (percent(in_order, all))
                    " began where the last one ended."
                }
                table {
                    @for (bucket, of_size) in sizes.iter().enumerate().filter(|(_, n)| **n > 0) {
                        tr {
                            td.name style="width: 9rem" { (size(bucket, sizes.len())) }
                            td style="width: 7rem" { (count(*of_size)) }
                            td.name { span.bar style=(width(*of_size, most)) {} }
                        }
                    }
                }
            }
        }
    };
    html! {
        (one("Reads", &work.reads_by_size, work.reads_in_order))
        (one("Writes", &work.writes_by_size, work.writes_in_order))
    }
}

fn waits(report: &Report) -> Markup {
    let mut waits: Vec<(&String, &Wait)> = report.work.waits.iter().collect();
    waits.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
    let quantile = |wait: &Wait, share| time(wait.quantile(share).unwrap_or(0.0));
    html! {
        @if !waits.is_empty() {
            h2 { "Waits for answers of daemons" }
            table {
                tr {
                    th.name { "request" } th { "number" } th { "together" }
                    th { "median" } th { "99 % within" }
                }
                @for (op, wait) in waits {
                    tr {
                        td.name { (op) } td { (count(wait.count)) } td { (time(wait.seconds)) }
                        td { (quantile(wait, 0.5)) } td { (quantile(wait, 0.99)) }
                    }
                }
            }
        }
    }
}

fn nodes(report: &Report) -> Markup {
    html! {
        h2 { "Nodes" }
        table {
            tr {
                th { "node" } th.name { "host" } th { "operations" } th { "read" } th { "written" }
                th { "space" } th { "answers to nodes" } th { "Mayfly's processor time" }
            }
            @for node in &report.nodes {
                tr {
                    td { (node.node) }
                    td.name { (node.host) @if !node.answers { " (silent)" } }
                    td { (count(node.operations)) }
                    td { (bytes(node.read_bytes)) }
                    td { (bytes(node.written_bytes)) }
                    td { (bytes(node.used_bytes)) }
                    td { (count(node.answers_to_nodes)) }
                    td { (time(node.cpu_seconds)) }
                }
            }
        }
    }
}

fn processes(report: &Report) -> Markup {
    let row = |process: &OfProcess| {
        let work = &process.work.work;
        html! {
            tr {
                td.name { (process.work.name) }
                td { (process.work.pid) }
                td { (process.node) }
                td { (time(process.seconds())) }
                td { (time(process.work.busy_seconds)) }
                td { (format!("{:.0} %", 100.0 * process.share())) }
                td { (count(work.count())) }
                td { (bytes(work.read())) }
                td { (bytes(work.written())) }
            }
        }
    };
    html! {
        h2 { "Processes" }
        table {
            tr {
                th.name { "program" } th { "pid" } th { "node" } th { "seen for" }
                th { "in the file system" } th { "share" } th { "operations" }
                th { "read" } th { "written" }
            }
            @for process in &report.processes { (row(process)) }
        }
        p.note {
            "Those that spent the most time there, of " (count(report.processes_seen))
            ". Time is that of all threads of a process together."
        }
    }
}

fn places(title: &str, places: &[Place]) -> Markup {
    html! {
        @if !places.is_empty() {
            h2 { (title) }
            table {
                tr {
                    th.name { "path" } th { "operations" } th { "opens" } th { "read" }
                    th { "written" } th { "time" } th { "processes" }
                }
                @for place in places {
                    tr {
                        td.name { (place.path) }
                        td { (count(place.operations)) }
                        td { (count(place.opens)) }
                        td { (bytes(place.read_bytes)) }
                        td { (bytes(place.written_bytes)) }
                        td { (time(place.seconds)) }
                        td { (place.processes) }
                    }
                }
            }
        }
    }
}

fn how(report: &Report) -> Markup {
    html! {
        h2 { "How this was counted" }
        p.note {
            "Operations, bytes, sizes and waits are counted, each by the process that does it. \
             Directories, files, the course of time and the time of what needed no answer are \
             estimated from samples: every process's first operations, one of 64 later on, and \
             each transfer of 64 KiB or more. The samples are about " (count(report.files_seen))
            " files, " (count(report.shared_files_seen)) " of which several processes of a node \
             used. What a program reads and writes by mmap is not counted; programs that use a \
             mount are counted together, as the mount's process."
        }
    }
}
