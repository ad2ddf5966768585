//! Words that must not appear anywhere: they would tie the tree to one machine.

use super::{Complaint, SourceFile};

/// This file, which has to name them.
const HERE: &str = "xtask/src/tidy/words.rs";

/// What each begins with, and why not.
const WORDS: &[(&str, &str)] = &[
    ("/root/", "a directory of a development machine"),
    ("/home/", "a directory of a development machine"),
    ("FIXME", "fix it, or open an issue"),
    ("XXX", "fix it, or open an issue"),
    ("<<<<<<<", "a merge conflict"),
    (">>>>>>>", "a merge conflict"),
];

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.path != HERE && file.path != "Cargo.lock") {
        for (index, line) in file.text().unwrap_or_default().lines().enumerate() {
            let found = WORDS.iter().filter(|(word, _)| line.contains(word));
            complaints.extend(found.map(|(word, why)| {
                Complaint::at_line(&file.path, index + 1, format!("{word}: {why}"))
            }));
        }
    }
    complaints
}
