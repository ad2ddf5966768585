//! How much stands in one place: files in a folder of code, and fields in a struct.
//!
//! A folder with too many files says nothing of which belong together, and a struct with too many
//! fields is one that everything touches. What is over the bound today has a line here, with a
//! number that only goes down.

use std::collections::BTreeMap;

use super::source::{self, item_length, line_of, places_of};
use super::{Complaint, SourceFile};

/// Files of code in one folder, at most.
const FILES_MAX: usize = 20;
/// Fields of one struct, at most.
const FIELDS_MAX: usize = 20;

/// Folders that have more files, and how many.
const FULL_FOLDERS: &[(&str, usize)] = &[];
/// Structs that have more fields: the file, the name, and how many.
const WIDE_STRUCTS: &[(&str, &str, usize)] = &[
    // A field for each option of one command: the parser makes it so.
    ("crates/cli/src/arguments/stage.rs", "Staging", 26),
    // Two formats, field by field: on disk, and in shared memory.
    ("crates/meta/src/record/inode.rs", "Inode", 22),
    ("crates/transport-shm/src/layout.rs", "NodeHead", 27),
];

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let code: Vec<&SourceFile> =
        files.iter().filter(|file| file.is("rs") && is_product(&file.path)).collect();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &code {
        if let Some((folder, _)) = file.path.rsplit_once('/') {
            *folders.entry(folder).or_default() += 1;
        }
    }
    let mut complaints = check_folders(&folders, FULL_FOLDERS);
    for file in code {
        complaints.extend(check_structs(&file.path, file.text().unwrap_or_default(), WIDE_STRUCTS));
    }
    complaints
}

/// Tests stand in folders as a list that nobody reads from one end to the other.
fn is_product(path: &str) -> bool {
    path.contains("/src/") && !path.starts_with("tests/") && !path.ends_with("/tests.rs")
}

fn check_folders(folders: &BTreeMap<&str, usize>, known: &[(&str, usize)]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (folder, count) in folders {
        let most =
            known.iter().find(|(name, _)| name == folder).map_or(FILES_MAX, |(_, most)| *most);
        if *count > most {
            complaints.push(Complaint::at(folder, format!("{count} files, at most {most}")));
        }
    }
    for (folder, most) in known {
        let count = folders.get(folder).copied().unwrap_or(0);
        if count < *most {
            let what = format!("{count} files now: write that in FULL_FOLDERS, or take it out");
            complaints.push(Complaint::at(folder, what));
        }
    }
    complaints
}

fn check_structs(path: &str, text: &str, known: &[(&str, &str, usize)]) -> Vec<Complaint> {
    let code = source::without_tests(&source::code(text));
    let mut complaints = Vec::new();
    for at in places_of(&code, "struct") {
        let rest = code[at + "struct".len()..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let item = &rest[..item_length(rest)];
        let Some(body) = item.split_once('{').map(|(_, body)| body) else { continue };
        let count = fields(body);
        let line = known.iter().find(|(file, known, _)| *file == path && *known == name);
        let most = line.map_or(FIELDS_MAX, |(_, _, most)| *most);
        let what = match line {
            _ if count > most => format!("struct {name} has {count} fields, at most {most}"),
            Some(_) if count < most => {
                format!("{name} has {count} fields now: WIDE_STRUCTS says {most}")
            }
            _ => continue,
        };
        complaints.push(Complaint::at_line(path, line_of(&code, at), what));
    }
    complaints
}

/// Fields of a struct's body: colons outside of brackets that do not belong to a path.
fn fields(body: &str) -> usize {
    let (mut depth, mut count, mut before) = (0usize, 0, ' ');
    let mut rest = body.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '>' if before != '-' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && before != ':' && rest.peek() != Some(&':') => count += 1,
            _ => {}
        }
        before = c;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_twenty_files_passes_and_one_more_does_not() {
        let folders = |count| BTreeMap::from([("crates/wire/src", count)]);
        assert!(check_folders(&folders(20), &[]).is_empty());
        assert_eq!(check_folders(&folders(21), &[]).len(), 1);
        assert!(check_folders(&folders(30), &[("crates/wire/src", 30)]).is_empty());
        assert_eq!(check_folders(&folders(29), &[("crates/wire/src", 30)]).len(), 1);
    }

    #[test]
    fn fields_are_counted_whatever_their_types() {
        let body = "a: [u8; 2], pub b: Map<Key, fn(x: u8) -> Vec<u8>>,\n c: std::io::Error }";
        assert_eq!(fields(body), 3);
        let text = |count: usize| format!("struct Wide {{ {} }}", "f: u8,".repeat(count));
        assert!(check_structs("a.rs", &text(20), &[]).is_empty());
        assert_eq!(check_structs("a.rs", &text(21), &[]).len(), 1);
        assert!(check_structs("a.rs", &text(21), &[("a.rs", "Wide", 21)]).is_empty());
        assert_eq!(check_structs("a.rs", &text(20), &[("a.rs", "Wide", 21)]).len(), 1);
    }
}
