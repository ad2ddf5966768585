//! The workloads as a table: groups of phases on one set of files.
//!
//! mdtest's: empty files, each process in a directory of its own (mdtest-easy), 3,901 bytes in one
//! shared directory (mdtest-hard), and the crossings of both. IOR's: a file for each process or one
//! for all, in order, shuffled, or interleaved in transfers of 47,008 bytes (ior-hard). IO500's
//! find. A group begins with its directories and ends without anything.
//!
//! [`calls`] and [`tools`] are tables of the same kind, of what programs do to one file and of
//! everyday programs on a tree. [`settings`] gives the sizes, [`pattern`] the bytes of files, and
//! [`step`] is one phase in the words in which a worker is told of it.

pub(crate) mod calls;
pub(crate) mod pattern;
pub(crate) mod settings;
pub(crate) mod step;
pub(crate) mod tools;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use calls::ROWS;
use settings::Settings;
use step::{Call, Layout, Manner, Order, Step, Transfers, Way};
use tools::{FILES_MAX, TOOLS, Tool, is_installed};

/// Bytes of mdtest-hard's files.
const HARD_FILE_BYTES: u64 = 3901;
/// Bytes of ior-hard's transfers.
const HARD_TRANSFER_BYTES: u64 = 47_008;
/// Directories in one directory: many file systems count them as links, of which they allow 65,000
/// or a few more.
const SUBDIRECTORIES_MAX: u64 = 60_000;
/// How long one process looks at its files while others write.
const BESIDE_MS: u64 = 500;
/// Bytes of one of their writes.
const BESIDE_BYTES: u64 = 64 << 20;
/// How long half of the processes makes files beside the other half.
const BURN_MS: u64 = 500;
/// How long nothing is done.
const REST_MS: u64 = 200;
/// Processes whose first call is timed.
const FIRST: u64 = 50;
/// Files of one directory of find.
const FIND_FILES: u64 = 100;

/// What kind of figure a phase gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Operations on names.
    Meta,
    /// Bytes.
    Data,
    /// Finding.
    Find,
    /// Sequences of calls as programs make them.
    Patterns,
    /// Everyday programs on a tree.
    Tools,
    /// What one process does to another.
    Beside,
    /// What else one node is asked for: memory, first calls, long listings, creates under load.
    Bars,
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Family, String> {
        match text {
            "meta" => Ok(Family::Meta),
            "data" => Ok(Family::Data),
            "find" => Ok(Family::Find),
            "patterns" => Ok(Family::Patterns),
            "tools" => Ok(Family::Tools),
            "beside" => Ok(Family::Beside),
            "bars" => Ok(Family::Bars),
            other => Err(format!(
                "{other:?}: choose meta, data, find, patterns, tools, beside, bars or all"
            )),
        }
    }
}

/// One timed phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phase {
    /// `group/what`.
    pub(crate) name: String,
    pub(crate) step: Step,
}

/// Phases on one set of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) family: Family,
    pub(crate) phases: Vec<Phase>,
}

impl Phase {
    /// What `--cold` empties caches for.
    pub(crate) fn reads(&self) -> bool {
        match self.step {
            Step::Files { call, .. }
            | Step::Directories { call, .. }
            | Step::Trees { call, .. } => call.looks(),
            Step::Calls { row, .. } => {
                ROWS.get(row).is_some_and(crate::workloads::calls::Row::reads)
            }
            Step::Data(transfers) => transfers.way == Way::Read,
            Step::Seek { .. } => true,
            _ => false,
        }
    }

    /// The way of its data, for phases whose figure is a rate of bytes.
    pub(crate) fn way(&self) -> Option<Way> {
        match self.step {
            Step::Data(transfers) => Some(transfers.way),
            _ => None,
        }
    }
}

/// What a metadata group is about.
#[derive(Clone, Copy)]
enum Kind {
    Files(u64, Manner),
    Directories,
    Tree,
}

/// Name, kind, layout, and whether the short table has it.
const META: &[(&str, Kind, Layout, bool)] = &[
    ("empty", Kind::Files(0, Manner::Plain), Layout::Own, true),
    ("empty", Kind::Files(0, Manner::Plain), Layout::Shared, false),
    ("3901", Kind::Files(HARD_FILE_BYTES, Manner::Plain), Layout::Own, false),
    ("3901", Kind::Files(HARD_FILE_BYTES, Manner::Plain), Layout::Shared, true),
    ("mdtest", Kind::Files(HARD_FILE_BYTES, Manner::Mdtest), Layout::Own, false),
    ("mdtest", Kind::Files(HARD_FILE_BYTES, Manner::Mdtest), Layout::Shared, true),
    ("64K", Kind::Files(64 << 10, Manner::Plain), Layout::Own, true),
    ("64K", Kind::Files(64 << 10, Manner::Plain), Layout::Shared, false),
    ("dirs", Kind::Directories, Layout::Own, false),
    ("dirs", Kind::Directories, Layout::Shared, true),
    ("tree", Kind::Tree, Layout::Own, true),
];

/// Layout and order, and whether the short table has it.
const DATA: &[(&str, Layout, Order, bool)] = &[
    ("seq", Layout::Own, Order::Sequential, true),
    ("random", Layout::Own, Order::Random, false),
    ("seq", Layout::Shared, Order::Sequential, false),
    ("random", Layout::Shared, Order::Random, true),
];

/// The groups of a run with this many processes.
pub(crate) fn groups(settings: &Settings, procs: u32) -> Vec<Group> {
    let mut groups = Vec::new();
    for family in &settings.families {
        match family {
            Family::Meta => groups.extend(metadata(settings, procs)),
            Family::Data => groups.extend(data(settings, procs)),
            Family::Find => groups.push(find(settings, procs)),
            Family::Patterns => groups.extend(patterns(settings, procs)),
            Family::Tools => groups.push(tools(settings, procs)),
            Family::Beside => groups.extend(beside(procs)),
            Family::Bars => groups.extend(bars(settings, procs)),
        }
    }
    let wanted = &settings.only_phases;
    let is_wanted = |group: &Group| {
        let named = |phase: &Phase| wanted.iter().any(|part| phase.name.contains(part));
        wanted.is_empty() || group.phases.iter().any(named)
    };
    groups.retain(is_wanted);
    groups
}

fn metadata(settings: &Settings, procs: u32) -> impl Iterator<Item = Group> {
    let rows = META.iter().filter(|(.., quick)| *quick || !settings.quick);
    rows.map(move |(word, kind, layout, _)| {
        let (kind, layout) = (*kind, *layout);
        let name = match kind {
            Kind::Tree => (*word).to_owned(),
            _ => format!("{word}/{}", layout.word()),
        };
        let count = match (kind, layout) {
            (Kind::Directories, Layout::Shared) => {
                settings.files_each(procs).min(SUBDIRECTORIES_MAX / u64::from(procs)).max(1)
            }
            (Kind::Tree, _) => settings.trees_each(procs),
            _ => settings.files_each(procs),
        };
        let steps: Vec<(Call, Step)> = calls(kind)
            .iter()
            .map(|call| (*call, meta_step(settings, kind, *call, layout, count)))
            .collect();
        let phase =
            |(call, step): (Call, Step)| Phase { name: format!("{name}/{}", call.word()), step };
        let phases = steps.into_iter().map(phase).collect();
        Group { phases, name, family: Family::Meta }
    })
}

fn calls(kind: Kind) -> &'static [Call] {
    match kind {
        Kind::Files(bytes, _) if bytes > 0 => &[Call::Create, Call::Stat, Call::Read, Call::Remove],
        _ => &[Call::Create, Call::Stat, Call::Remove],
    }
}

fn meta_step(settings: &Settings, kind: Kind, call: Call, layout: Layout, count: u64) -> Step {
    match kind {
        Kind::Files(bytes, manner) => {
            // Large files fill a small node's memory before they are many.
            let count = count.min(settings.size_bytes / bytes.max(1)).max(1);
            Step::Files { call, layout, manner, bytes, count }
        }
        Kind::Directories => Step::Directories { call, layout, count },
        Kind::Tree => Step::Trees { call, tree: settings.tree, count },
    }
}

fn data(settings: &Settings, procs: u32) -> Vec<Group> {
    let rows = DATA.iter().filter(|(.., quick)| *quick || !settings.quick);
    let mut groups: Vec<Group> = rows
        .flat_map(|(word, layout, order, _)| {
            settings.transfers_bytes.iter().map(move |bytes| {
                let name = format!("{}/{word}/{}", data_word(*layout), short(*bytes));
                data_group(settings, procs, name, *layout, *order, *bytes)
            })
        })
        .collect();
    if settings.size_bytes >= HARD_TRANSFER_BYTES {
        let (layout, order) = (Layout::Shared, Order::Strided);
        let name = "one/strided/47008".to_owned();
        groups.push(data_group(settings, procs, name, layout, order, HARD_TRANSFER_BYTES));
    }
    groups
}

/// A file for each process, or one for all.
fn data_word(layout: Layout) -> &'static str {
    match layout {
        Layout::Own => "each",
        Layout::Shared => "one",
    }
}

fn data_group(
    settings: &Settings,
    procs: u32,
    name: String,
    layout: Layout,
    order: Order,
    transfer_bytes: u64,
) -> Group {
    let count = settings.transfers_each(procs, transfer_bytes);
    let phase = |way, word| {
        let fsync = settings.fsync && way == Way::Write;
        let transfers = Transfers { layout, order, way, transfer_bytes, count, fsync };
        Phase { name: format!("{name}/{word}"), step: Step::Data(transfers) }
    };
    let phases = vec![phase(Way::Write, "write"), phase(Way::Read, "read")];
    Group { phases, name, family: Family::Data }
}

fn find(settings: &Settings, procs: u32) -> Group {
    let directories = settings.files_each(procs).div_ceil(FIND_FILES);
    let phase = |word: &str, step| Phase { name: format!("find/{word}"), step };
    let phases = vec![
        phase("create", Step::Hide { directories }),
        phase("walk", Step::Seek { directories }),
    ];
    Group { phases, name: "find".to_owned(), family: Family::Find }
}

/// Each row of the table of patterns, on files of its own.
fn patterns(settings: &Settings, procs: u32) -> impl Iterator<Item = Group> {
    ROWS.iter().enumerate().map(move |(index, row)| {
        let most = settings.size_bytes / u64::from(row.bytes()).max(1);
        let count = settings.files_each(procs).min(most).max(1);
        let name = format!("patterns/{}", row.name);
        let phase = Phase { name: name.clone(), step: Step::Calls { row: index, count } };
        Group { phases: vec![phase], name, family: Family::Patterns }
    })
}

/// The tools that are installed, one after the other on one tree of each process.
fn tools(settings: &Settings, procs: u32) -> Group {
    let files = settings.files_each(procs).min(FILES_MAX);
    let installed = TOOLS.iter().enumerate().filter(|(_, tool)| is_installed(tool.program));
    let phase = |(index, tool): (usize, &Tool)| Phase {
        name: format!("tools/{}", tool.name),
        step: Step::Tool { tool: index, files },
    };
    Group {
        phases: installed.map(phase).collect(),
        name: "tools".to_owned(),
        family: Family::Tools,
    }
}

/// The same calls of one process, alone and while the others write.
fn beside(procs: u32) -> Option<Group> {
    let phase = |word: &str, transfer_bytes| {
        let step = Step::Beside { milliseconds: BESIDE_MS, transfer_bytes };
        Phase { name: format!("beside/{word}"), step }
    };
    let phases = vec![phase("alone", 0), phase("stream", BESIDE_BYTES)];
    (procs > 1).then(|| Group { phases, name: "beside".to_owned(), family: Family::Beside })
}

/// With one process what it costs to have an instance, to come to it, and to fill and list a large
/// directory; with more, creates beside others that want the processors.
fn bars(settings: &Settings, procs: u32) -> Vec<Group> {
    let group = |name: &str, steps: &[(&str, Step)]| {
        let phase =
            |(word, step): &(&str, Step)| Phase { name: format!("{name}/{word}"), step: *step };
        let phases = steps.iter().map(phase).collect();
        Group { phases, name: name.to_owned(), family: Family::Bars }
    };
    if procs > 1 {
        return vec![group("burners", &[("create", Step::Burn { milliseconds: BURN_MS })])];
    }
    let (layout, count) = (Layout::Own, settings.files_each(procs));
    let manner = Manner::Plain;
    let files = |call| Step::Files { call, layout, manner, bytes: 0, count };
    let list = [
        ("create", files(Call::Create)),
        ("attributes", Step::List { count }),
        ("remove", files(Call::Remove)),
    ];
    vec![
        group("idle", &[("rest", Step::Rest { milliseconds: REST_MS })]),
        group("first", &[("stat", Step::First { count: FIRST })]),
        group("list", &list),
    ]
}

/// A size as it stands in a phase's name.
fn short(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workloads::settings::tests::usual;

    fn names(settings: &Settings) -> Vec<String> {
        let groups = groups(settings, 2);
        groups.iter().flat_map(|group| &group.phases).map(|phase| phase.name.clone()).collect()
    }

    #[test]
    fn each_phase_has_a_name_of_its_own() {
        let names = names(&usual());
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{names:?}");
        for name in ["empty/own/create", "3901/shared/read", "one/random/4K/write", "find/walk"] {
            assert!(names.iter().any(|known| known == name), "{name} of {names:?}");
        }
    }

    #[test]
    fn no_directory_gets_more_directories_than_file_systems_allow() {
        let mut settings = usual();
        settings.files = 20_000;
        for group in groups(&settings, 8) {
            for phase in &group.phases {
                if let Step::Directories { layout: Layout::Shared, count, .. } = phase.step {
                    assert!(count * 8 <= SUBDIRECTORIES_MAX, "{}", phase.name);
                }
            }
        }
    }

    #[test]
    fn the_short_table_is_part_of_the_long_one() {
        let mut quick = usual();
        quick.quick = true;
        let (short, long) = (names(&quick), names(&usual()));
        assert!(short.len() < long.len() && short.iter().all(|name| long.contains(name)));
    }

    #[test]
    fn a_group_stays_whole_when_one_of_its_phases_is_wanted() {
        let mut settings = usual();
        settings.only_phases = vec!["3901/shared/read".to_owned()];
        assert_eq!(names(&settings).len(), 4, "what is read must have been made");
    }
}
