//! Words that were replaced: one word for one thing, and the field's own where it has one.
//!
//! A word of the table must not come back in the name of a file or of something public. To replace
//! a word, rename what bears it in the tree and add a line here. Names of fields and variables are
//! free, and so is prose: there a word may be explained.

use super::source::{self, places_of};
use super::{Complaint, SourceFile};

/// Where a word was replaced (the start of a path), the word, and the one that took its place.
const REPLACED: &[(&str, &str, &str)] = &[
    ("crates/daemon/src/", "chase", "deadlock search"),
    ("crates/daemon/src/", "lendings", "file leases"),
    ("crates/daemon/src/", "borrower", "holder"),
    ("crates/daemon/src/", "claims", "prepare locks"),
    ("crates/transport-shm/src/", "posted", "submitted"),
    ("crates/transport-shm/src/", "posts", "submissions"),
    ("crates/transport-shm/src/", "lent", "leased"),
    ("crates/transport/src/", "posted", "submitted"),
    ("crates/transport/src/", "posts", "submissions"),
    ("crates/transport/src/", "lent", "leased"),
    ("crates/client/src/", "posted", "submitted"),
    ("crates/client/src/", "posts", "submissions"),
    ("crates/client/src/", "lent", "leased"),
    ("crates/interpose/src/", "posted", "submitted"),
    ("crates/interpose/src/", "posts", "submissions"),
    ("crates/interpose/src/", "lent", "leased"),
    ("crates/daemon/src/", "posted", "submitted"),
    ("crates/daemon/src/", "posts", "submissions"),
    ("crates/daemon/src/", "lent", "leased"),
    ("crates/transport-shm/src/", "post", "submit"),
    ("crates/transport-shm/src/", "standing", "name state"),
    ("crates/transport-shm/src/", "begun", "started"),
    ("crates/transport-tcp/src/", "post", "queue"),
    ("crates/transport-tcp/src/", "lent", "shared"),
    ("crates/client/src/", "lending", "leased files"),
    ("crates/client/src/", "borrowed", "leased"),
    ("crates/daemon/src/", "lending", "leasing"),
    ("crates/daemon/src/", "begun", "started"),
    ("crates/daemon/src/files/", "doubts", "writes in doubt"),
    ("crates/daemon/src/", "distant", "remote"),
    ("crates/daemon/src/", "standing", "proxies"),
    ("crates/daemon/src/", "gone", "unlinked"),
    ("crates/daemon/src/", "carrier", "peer network"),
    ("crates/daemon/src/", "outside", "host environment"),
    ("crates/daemon/src/", "apart", "placement"),
    ("crates/daemon/src/", "lead", "leader"),
    ("crates/daemon/src/", "told", "notified"),
    ("crates/daemon/src/", "looked", "found"),
    ("crates/meta/src/", "gone", "unlinked"),
    ("crates/meta/src/", "standing", "leaf entry"),
    ("sim/src/", "carrier", "peer network"),
    ("sim/src/", "outside", "host"),
];

/// What introduces a public name.
const KINDS: &[&str] = &["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    check_with(files, REPLACED)
}

fn check_with(files: &[SourceFile], table: &[(&str, &str, &str)]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        for (_, old, new) in table.iter().filter(|(place, ..)| file.path.starts_with(place)) {
            let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
            let code = source::without_tests(&source::code(file.text().unwrap_or_default()));
            let public = public_names(&code);
            let names = std::iter::once(stem.to_owned()).chain(public);
            for name in names.filter(|name| has_word(name, old)) {
                let what = format!("{name}: say {new} instead of {old}");
                complaints.push(Complaint::at(&file.path, what));
            }
        }
    }
    complaints
}

/// Names that are declared with `pub`, however far that reaches.
fn public_names(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for at in places_of(code, "pub") {
        let line = code[at..].lines().next().unwrap_or_default();
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.any(|word| KINDS.contains(&word)) {
            names.extend(words.find(|word| !word.is_empty()).map(str::to_owned));
        }
    }
    names
}

/// Is `word` one of the words of a name in snake case, capitals or camel case?
fn has_word(name: &str, word: &str) -> bool {
    let mut spaced = String::new();
    let mut before = '_';
    for c in name.chars() {
        if c.is_uppercase() && !before.is_uppercase() {
            spaced.push('_');
        }
        spaced.extend(c.to_lowercase());
        before = c;
    }
    spaced.split('_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn a_replaced_word_does_not_come_back_in_files_and_public_names() {
        let table = [("crates/", "chase", "deadlock")];
        let found = |path, text| check_with(&[file(path, text)], &table).len();
        assert_eq!(found("crates/wire/src/chase.rs", ""), 1);
        assert_eq!(found("crates/wire/src/a.rs", "pub(crate) struct ChaseEdge;"), 1);
        assert_eq!(found("crates/wire/src/a.rs", "pub unsafe fn begin_chase() {}"), 1);
        assert_eq!(found("crates/wire/src/a.rs", "fn chase() {} // pub fn chase"), 0);
        assert_eq!(found("crates/wire/src/a.rs", "pub fn purchases() {}"), 0);
        assert_eq!(found("xtask/src/chase.rs", ""), 0);
    }
}
