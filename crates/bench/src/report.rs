//! A report: what a run found, and how people and programs read it.
//!
//! [`results`] is the form of `--json`, from which table and plot are made. [`statistics`] makes
//! one figure of several runs, [`latency`] does it with latencies of calls. Nothing is measured
//! here.

mod cells;
pub(crate) mod latency;
mod plot;
pub(crate) mod results;
pub(crate) mod statistics;
mod text;

pub use plot::svg;
pub use text::{Style, table};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        campaign::ledger::Page,
        report::results::{Machine, Report, Run, TargetReport},
        workloads::{groups, settings::tests::usual},
    };

    fn report() -> Report {
        let settings = usual();
        let labels = ["mayfly".to_owned(), "tmpfs".to_owned()];
        let run = |speed: f64| Run {
            elapsed_s: 1.0 / speed,
            ops: 1000,
            bytes: 1 << 20,
            client_user_us: 10,
            client_system_us: 10,
            daemon_cpu_us: 0.0,
        };
        let mut phases = Vec::new();
        for procs in &settings.procs {
            for group in groups(&settings, *procs) {
                for phase in &group.phases {
                    let mut page = Page::new(phase, group.family, *procs, labels.len());
                    page.accounts[0].add(run(3.0), &[]);
                    page.accounts[1].add(run(2.0), &[]);
                    phases.push(page.close(&labels, 1, |_, _, _| Vec::new()));
                }
            }
        }
        let target = |label: &String| TargetReport {
            label: label.clone(),
            is_instance: label == "mayfly",
            directory: "/tmp".into(),
            file_system: "tmpfs".to_owned(),
            options: None,
            loop_ns: 30.0,
        };
        Report {
            version: 1,
            machine: Machine { cpus: 2, memory_bytes: 1 << 30, kernel: "6".to_owned() },
            settings,
            targets: labels.iter().map(target).collect(),
            reference: "tmpfs".to_owned(),
            cold: Vec::new(),
            devices: Vec::new(),
            phases,
        }
    }

    #[test]
    fn each_phase_has_a_row_for_each_target_and_the_ratio_to_the_reference() {
        let report = report();
        let text = table(&report, Style::Terminal);
        for phase in &report.phases {
            assert!(text.contains(&phase.phase), "{}", phase.phase);
        }
        assert_eq!(text.matches("1.50 (1.50–1.50)").count(), report.phases.len());
    }

    #[test]
    fn the_last_lines_say_what_it_comes_to() {
        let text = table(&report(), Style::Terminal);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let last = text.lines().last().map(words).expect("lines");
        assert_eq!(last, ["4", "mayfly", "1.50", "1.50", "1.50"]);
    }

    #[test]
    fn every_row_of_markdown_has_the_cells_of_its_head() {
        let text = table(&report(), Style::Markdown);
        let mut cells = None;
        for line in text.lines() {
            let count = line.starts_with('|').then(|| line.matches('|').count());
            if let (Some(count), Some(head)) = (count, cells) {
                assert_eq!(count, head, "{line}");
            }
            cells = count;
        }
    }

    #[test]
    fn the_plot_names_every_phase_and_target() {
        let report = report();
        let page = svg(&report).expect("it can be drawn");
        let names = report.phases.iter().map(|phase| &phase.phase);
        for name in names.chain(report.targets.iter().map(|target| &target.label)) {
            assert!(page.contains(name.as_str()), "{name}");
        }
    }
}
