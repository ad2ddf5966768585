//! Documents are in step with the tree: tests that they name exist, files that they link to exist.

use std::collections::BTreeSet;
use std::path::Path;

use mayfly_testkit::binary::workspace;

use super::source::{self, places_of};
use super::{Complaint, SourceFile};

/// A table with a column of this heading promises tests by their names.
const TEST_HEADINGS: &[&str] = &["test", "tests", "checked by"];

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let functions = function_names(files);
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is("md")) {
        let text = file.text().unwrap_or_default();
        for (line, name) in named_tests(text) {
            let is_file = name.contains('/') && files.iter().any(|file| file.path == name);
            if !functions.contains(&name) && !is_file {
                let what = format!("names the test {name}, which does not exist");
                complaints.push(Complaint::at_line(&file.path, line, what));
            }
        }
        complaints.extend(broken_links(&file.path, text));
    }
    complaints
}

fn function_names(files: &[SourceFile]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let code = source::code(file.text().unwrap_or_default());
        names.extend(places_of(&code, "fn").into_iter().map(|at| {
            let rest = code[at + 2..].trim_start();
            rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
        }));
    }
    names
}

/// The names in backquotes in the test columns of tables, with their lines. `a::b` names `b`; a
/// name with a slash is a file of tests.
fn named_tests(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut column) = (Vec::new(), None);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.starts_with('|') {
            column = None;
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let heading = |cell: &&str| TEST_HEADINGS.contains(&cell.to_lowercase().as_str());
        if let Some(place) = cells.iter().position(heading) {
            column = Some(place);
        } else if let Some(cell) = column.and_then(|place| cells.get(place)) {
            let quoted = cell.split('`').skip(1).step_by(2);
            let names = quoted.filter_map(|name| name.rsplit("::").next());
            found.extend(names.map(|name| (index + 1, name.trim().to_owned())));
        }
    }
    found
}

fn broken_links(path: &str, text: &str) -> Vec<Complaint> {
    let root = workspace();
    let here = root.join(path).parent().unwrap_or(Path::new("")).to_path_buf();
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for link in line.split("](").skip(1) {
            let target = link.split([')', '#', ' ']).next().unwrap_or_default();
            let foreign =
                target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !foreign && !here.join(target).exists() {
                let what = format!("links to {target}, which does not exist");
                complaints.push(Complaint::at_line(path, index + 1, what));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_from_their_column_only() {
        let text =
            "| call | test |\n|---|---|\n| `open` | `opens`, `suite::closes` |\n| x | none |\n`y`";
        assert_eq!(named_tests(text), [(3, "opens".to_owned()), (3, "closes".to_owned())]);
    }

    #[test]
    fn a_link_to_nowhere_is_a_complaint() {
        assert_eq!(broken_links("README.md", "[a](nowhere.md) [b](Cargo.toml) [c](#d)").len(), 1);
    }
}
