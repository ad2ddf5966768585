//! The public POSIX suites: `pjdfstest`, `fsx`, `stress-ng` and `fio`, as their authors made them.
//!
//! What they are told lies in `posix/`. `pjdfstest-excluded.txt` there lists the tests that are
//! expected to fail in a mount, below a line in brackets that says why in the words of
//! docs/reference/semantics.md. The list is kept honest from both sides: a test that fails and is
//! not in it is an error, and so is one in it that passes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{binary, skip};

/// How one test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It found what it expects.
    Passed,
    /// It did not.
    Failed,
    /// The suite itself left it out.
    Skipped,
}

/// What `pjdfstest` printed: the verdict of each test.
pub type Verdicts = BTreeMap<String, Verdict>;

/// A file of `posix/`.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("posix").join(name)
}

/// A tool that cargo installs: on `PATH`, or where `cargo xtask test` puts it. Notes the skip when
/// it is missing.
pub fn tool(name: &str) -> Option<PathBuf> {
    let installed = binary::tools_dir().join("bin").join(name);
    let found = skip::find(name).or_else(|| installed.is_file().then_some(installed));
    if found.is_none() {
        let root = binary::tools_dir();
        let hint = format!("not found; `cargo install {name} --root {}` gets it", root.display());
        skip::note(name, &hint);
    }
    found
}

/// Reads the lines `name   ok`, `name   FAILED`, `name   skipped`.
pub fn verdicts(output: &str) -> Verdicts {
    let line = |line: &str| {
        let (name, word) = line.split_once(char::is_whitespace)?;
        let verdict = match word.trim() {
            "ok" => Verdict::Passed,
            "FAILED" => Verdict::Failed,
            "skipped" => Verdict::Skipped,
            _ => return None,
        };
        name.contains("::").then(|| (name.to_owned(), verdict))
    };
    output.lines().filter_map(line).collect()
}

/// The tests that are expected to fail for a preloaded program.
pub fn excluded() -> Result<BTreeSet<String>> {
    listed("pjdfstest-excluded.txt", "docs/reference/semantics.md")
}

/// The tests that are expected to fail through the kernel's mount.
pub fn excluded_through_the_mount() -> Result<BTreeSet<String>> {
    let mut names = excluded()?;
    for name in listed("pjdfstest-mount.txt", "docs/design/fuse.md")? {
        match name.strip_prefix('-') {
            Some(passes) => ensure!(names.remove(passes), "{passes} is not excluded anyway"),
            None => ensure!(names.insert(name.clone()), "{name} is excluded anyway"),
        }
    }
    Ok(names)
}

fn listed(list: &str, document: &str) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(binary::workspace().join(document)).context("no document")?;
    read_excluded(&fs::read_to_string(file(list))?, &text)
        .with_context(|| format!("{list}, whose reasons are in {document}"))
}

/// The names in `list`; an error when one has no reason, or a reason stands not in `document`.
fn read_excluded(list: &str, document: &str) -> Result<BTreeSet<String>> {
    // A sentence may be broken into lines there.
    let document = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut names, mut reason) = (BTreeSet::new(), None);
    for line in list.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(given) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            ensure!(document.contains(given), "the document does not say `{given}`");
            reason = Some(given);
            continue;
        }
        ensure!(reason.is_some(), "{line} is excluded without a reason");
        ensure!(names.insert(line.to_owned()), "{line} is excluded twice");
    }
    Ok(names)
}

/// An error that names every test whose end in a mount is not the expected one.
pub fn expect_as_listed(
    native: &Verdicts,
    mounted: &Verdicts,
    excluded: &BTreeSet<String>,
) -> Result<()> {
    let mut wrong = Vec::new();
    for (name, verdict) in mounted {
        let natively = native.get(name).copied();
        match (verdict, excluded.contains(name)) {
            (Verdict::Failed, false) if natively != Some(Verdict::Failed) => {
                wrong.push(format!("{name} fails, and is not excluded"));
            }
            (Verdict::Passed, true) => wrong.push(format!("{name} is excluded, and passes")),
            (Verdict::Skipped, false) if natively == Some(Verdict::Passed) => {
                wrong.push(format!("{name} is skipped in the mount only"));
            }
            _ => {}
        }
    }
    let lost = native.keys().filter(|name| !mounted.contains_key(*name));
    wrong.extend(lost.map(|name| format!("{name} did not run")));
    let unknown = excluded.iter().filter(|name| !mounted.contains_key(*name));
    wrong.extend(unknown.map(|name| format!("{name} is excluded, and does not exist")));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn verdicts_are_read_from_the_lines_of_tests_only() {
        let output = "chmod::a   ok\nchmod::b  FAILED\n\treason ok\nlink::c skipped\n\
                      Summary: 0 failed";
        let read = verdicts(output);
        assert_eq!(read.len(), 3);
        assert_eq!(read["chmod::b"], Verdict::Failed);
        assert_eq!(read["link::c"], Verdict::Skipped);
    }

    #[test]
    fn an_exclusion_needs_a_reason_that_the_document_gives() {
        let text = "mode is\nstored";
        let read = read_excluded("# note\n[mode is stored]\na::b\n", text).expect("a good list");
        assert_eq!(read, set(&["a::b"]));
        assert!(read_excluded("a::b\n", text).is_err());
        assert!(read_excluded("[mode is kept]\na::b\n", text).is_err());
    }

    #[test]
    fn a_new_failure_and_an_excluded_success_are_both_told() {
        let native = verdicts("a::b ok\na::c ok\na::d FAILED\na::e ok");
        let same = verdicts("a::b ok\na::c FAILED\na::d FAILED\na::e ok");
        assert!(expect_as_listed(&native, &same, &set(&["a::c"])).is_ok());
        let error = expect_as_listed(&native, &same, &set(&["a::b"])).expect_err("two differ");
        assert_eq!(
            error.to_string(),
            "a::b is excluded, and passes\na::c fails, and is not excluded"
        );
    }
}
