//! Dependencies between crates point one way.
//!
//! The table is the picture in `ARCHITECTURE.md`; an edge that is not in it does not exist.
//! Development dependencies are free, since no user's build has them. Nothing under `crates/`
//! depends on tests, benches or tasks.

use std::collections::BTreeSet;

use super::{Complaint, SourceFile};

/// Each crate with the crates it may use, lowest first.
const ALLOWED: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("wire", &["types"]),
    ("sys", &["types"]),
    ("image", &[]),
    ("transport", &["types", "wire"]),
    ("transport-shm", &["types", "wire", "sys", "transport"]),
    ("transport-tcp", &["types", "wire"]),
    ("records", &["types"]),
    ("meta", &["types", "sys", "records"]),
    ("object", &["types", "sys"]),
    (
        "daemon",
        &["types", "wire", "sys", "transport", "transport-shm", "transport-tcp", "meta", "object"],
    ),
    // `transport-shm` for the layout of the node's open-file table, which lies in the session's
    // memory.
    ("client", &["types", "wire", "sys", "records", "transport", "transport-shm"]),
    ("interpose", &["types", "wire", "sys", "transport", "transport-shm", "client"]),
    ("preload", &["types", "sys", "image", "interpose"]),
    ("fuse", &["types", "wire", "sys", "transport-shm", "client"]),
    ("stage", &[]),
    ("tier", &["types", "wire", "transport", "transport-shm", "stage"]),
    ("metrics", &[]),
    (
        "deploy",
        &[
            "types",
            "wire",
            "sys",
            "transport",
            "transport-shm",
            "meta",
            "object",
            "daemon",
            "client",
            "fuse",
            "tier",
            "stage",
            "image",
            "metrics",
        ],
    ),
    ("bench", &["sys", "deploy"]),
    ("site", &[]),
    ("report", &["metrics"]),
    ("cli", &["types", "deploy", "bench", "stage", "site", "metrics", "report"]),
    // Not in `crates/` either: it is built by Python's tools, and nothing links with it.
    ("python", &["types", "wire", "sys", "transport-shm", "client"]),
    // Only for tests: no user's build has them.
    ("testkit", &[]),
    ("hosttest", &["image", "testkit"]),
    // Not in `crates/`: it is a user of theirs, as a daemon's process is.
    (
        "sim",
        &["types", "wire", "sys", "transport-shm", "transport-tcp", "meta", "object", "daemon"],
    ),
];

/// Crates that must build without the standard library.
const NO_STD: &[&str] =
    &["types", "wire", "sys", "records", "transport", "client", "interpose", "preload"];

/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "misc"];

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files {
        let place = match file.path.as_str() {
            path @ ("sim/Cargo.toml" | "python/Cargo.toml") => Some(path),
            path => path.strip_prefix("crates/"),
        };
        let manifest = place.and_then(|place| place.strip_suffix("/Cargo.toml"));
        if let Some(name) = manifest.filter(|name| !name.contains('/')) {
            complaints.extend(check_manifest(name, &file.path, file.text().unwrap_or_default()));
        }
    }
    let names: BTreeSet<&str> = files.iter().filter_map(SourceFile::crate_name).collect();
    let empty = names.iter().filter(|name| EMPTY_NAMES.contains(name));
    complaints.extend(
        empty.map(|name| Complaint::at(&format!("crates/{name}"), "a name that says nothing")),
    );
    for name in NO_STD {
        let path = format!("crates/{name}/src/lib.rs");
        let file = files.iter().find(|file| file.path == path);
        if file.is_some_and(|file| !file.text().unwrap_or_default().contains("no_std")) {
            complaints.push(Complaint::at(&path, "must be no_std"));
        }
    }
    complaints
}

fn check_manifest(name: &str, path: &str, manifest: &str) -> Vec<Complaint> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        return vec![Complaint::at(path, "no line in the table of xtask/src/tidy/edges.rs")];
    };
    let used = dependencies(manifest);
    let wrong = used.iter().filter(|used| !allowed.contains(&used.as_str()));
    wrong.map(|used| Complaint::at(path, format!("{name} must not depend on {used}"))).collect()
}

/// The crates of this workspace in the sections that a build uses. Knows both ways of writing them.
fn dependencies(manifest: &str) -> Vec<String> {
    let (mut found, mut inside) = (Vec::new(), false);
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let (kind, single) = match section.rsplit_once(".mayfly-") {
                Some((kind, name)) => (kind, Some(name)),
                None => (section, None),
            };
            let counts = kind.ends_with("dependencies") && !kind.ends_with("dev-dependencies");
            found.extend(single.filter(|_| counts).map(str::to_owned));
            inside = counts && single.is_none();
        } else if let Some(rest) = line.strip_prefix("mayfly-").filter(|_| inside) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(rest.len());
            found.push(rest[..end].to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_upwards_is_a_complaint() {
        let manifest =
            "[dependencies]\nmayfly-types.workspace = true\nmayfly-client = { path = \"\" }\n";
        let complaints = check_manifest("wire", "crates/wire/Cargo.toml", manifest);
        let text = "wire must not depend on client";
        assert_eq!(complaints, [Complaint::at("crates/wire/Cargo.toml", text)]);
    }

    #[test]
    fn development_dependencies_are_free_and_sections_of_one_count() {
        let manifest =
            "[dev-dependencies]\nmayfly-client = {}\n[dependencies.mayfly-meta]\npath = \"\"\n";
        assert_eq!(dependencies(manifest), ["meta"]);
        let manifest =
            "[dependencies]\nheed = 1\n[target.'cfg(unix)'.build-dependencies]\nmayfly-sys.a=1";
        assert_eq!(dependencies(manifest), ["sys"]);
    }

    #[test]
    fn the_table_is_in_order_so_it_has_no_cycle() {
        for (index, (name, allowed)) in ALLOWED.iter().enumerate() {
            for used in *allowed {
                let place = ALLOWED.iter().position(|(known, _)| known == used);
                assert!(place.is_some_and(|place| place < index), "{name} -> {used}");
            }
        }
    }
}
