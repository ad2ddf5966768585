//! Source files and functions that documents mention are there.
//!
//! A mention is a path in backquotes: `store.rs`, `serve/threads/lead.rs`, or with a function of
//! that file, `daemon/src/namespace/open.rs::open_file`. A path may leave out what it begins with,
//! so it is right when some file's path ends with it. What stands in a block of code is no mention.
//! Decisions are left out: they tell of the day on which they were made.

use std::collections::BTreeSet;

use super::source;
use super::{Complaint, SourceFile};

/// Documents at the root that mention files.
const AT_ROOT: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Documents in which each path stands with a function, and begins at `crates/`.
const WALKS: &str = "docs/design/walks.md";

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let sources: Vec<&SourceFile> = files.iter().filter(|file| file.is("rs")).collect();
    let documents = files.iter().filter(|file| is_checked(&file.path));
    let mut complaints = Vec::new();
    for document in documents {
        for (line, mention) in mentions(document.text().unwrap_or_default()) {
            if let Some(what) = wrong(&mention, &sources, document.path == WALKS) {
                complaints.push(Complaint::at_line(&document.path, line, what));
            }
        }
    }
    complaints
}

fn is_checked(path: &str) -> bool {
    let in_docs = path.starts_with("docs/") && path.ends_with(".md");
    AT_ROOT.contains(&path) || in_docs && !path.starts_with("docs/decisions/")
}

#[derive(Debug, PartialEq, Eq)]
struct Mention {
    path: String,
    function: Option<String>,
}

/// What is wrong with a mention.
fn wrong(mention: &Mention, sources: &[&SourceFile], is_whole: bool) -> Option<String> {
    let Mention { path, function } = mention;
    let is_it = |file: &&&SourceFile| match file.path.strip_suffix(path.as_str()) {
        Some(before) if is_whole && function.is_some() => before == "crates/",
        Some(before) => before.is_empty() || before.ends_with('/'),
        None => false,
    };
    let named: Vec<_> = sources.iter().filter(is_it).collect();
    if named.is_empty() {
        return Some(format!("names the file {path}, which does not exist"));
    }
    let name = function.as_ref().filter(|name| !named.iter().any(|file| defines(file, name)));
    name.map(|name| format!("names {path}::{name}, but no such function is there"))
}

fn defines(file: &SourceFile, name: &str) -> bool {
    functions(&source::code(file.text().unwrap_or_default())).contains(name)
}

fn functions(code: &str) -> BTreeSet<&str> {
    let of = |at: usize| {
        let rest = code[at + 2..].trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    };
    source::places_of(code, "fn").into_iter().map(of).collect()
}

/// The mentions of a document with their lines.
fn mentions(text: &str) -> Vec<(usize, Mention)> {
    let (mut found, mut line, mut fenced) = (Vec::new(), 1, false);
    let prose: String = text
        .split_inclusive('\n')
        .map(|line| {
            let is_fence = line.trim_start().starts_with("```");
            fenced ^= is_fence;
            if fenced || is_fence { "\n" } else { line }
        })
        .collect();
    for (index, piece) in prose.split('`').enumerate() {
        if index % 2 == 1 {
            found.extend(mention(piece).map(|mention| (line, mention)));
        }
        line += piece.matches('\n').count();
    }
    found
}

/// The words in these backquotes as a mention, if they are one.
fn mention(words: &str) -> Option<Mention> {
    let (path, function) = match words.split_once(".rs::") {
        Some((path, function)) => (format!("{path}.rs"), Some(function.to_owned())),
        None => (words.to_owned(), None),
    };
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let stem = path.strip_suffix(".rs")?;
    (!stem.is_empty() && stem.chars().all(is_path)).then_some(Mention { path, function })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    fn complaints_about(document: &str, text: &str) -> Vec<Complaint> {
        let code = "fn make() {}\n// fn gone() {}\nfn maker<T>() {}";
        check(&[file("crates/meta/src/store.rs", code), file(document, text)])
    }

    #[test]
    fn a_function_that_is_there_is_no_complaint_and_a_planted_one_is() {
        let text = "1. `meta/src/store.rs::make`\n2. `meta/src/store.rs::maker`\n";
        assert_eq!(complaints_about(WALKS, text), []);
        let text = "1. `meta/src/store.rs::make`\n2. `meta/src/store.rs::gone` — steps\n";
        let what = "names meta/src/store.rs::gone, but no such function is there";
        assert_eq!(complaints_about(WALKS, text), [Complaint::at_line(WALKS, 2, what)]);
    }

    #[test]
    fn a_walk_names_whole_paths() {
        let complaints = complaints_about(WALKS, "`src/store.rs::make`, but `store.rs`");
        let what = "names the file src/store.rs, which does not exist";
        assert_eq!(complaints, [Complaint::at_line(WALKS, 1, what)]);
        assert_eq!(complaints_about("docs/design/shm.md", "`store.rs::make`"), []);
    }

    #[test]
    fn a_path_is_right_when_a_file_ends_with_it() {
        let right = "`crates/meta/src/store.rs` `src/store.rs` `store.rs`";
        assert_eq!(complaints_about("ARCHITECTURE.md", right), []);
        let wrong = "`core/store.rs`\n\n`re.rs`";
        let lines = [1, 3].map(|line| {
            let path = if line == 1 { "core/store.rs" } else { "re.rs" };
            let what = format!("names the file {path}, which does not exist");
            Complaint::at_line("ARCHITECTURE.md", line, what)
        });
        assert_eq!(complaints_about("ARCHITECTURE.md", wrong), lines);
        assert_eq!(complaints_about("docs/decisions/of-a-day.md", wrong), []);
    }

    #[test]
    fn blocks_of_code_commands_and_patterns_are_no_mentions() {
        let text = "`cargo test\nsome.rs` `*.rs` `.rs`\n```\n`x.rs`\n```\n`a.rs::b`";
        let last = Mention { path: "a.rs".to_owned(), function: Some("b".to_owned()) };
        assert_eq!(mentions(text), [(6, last)]);
    }
}
