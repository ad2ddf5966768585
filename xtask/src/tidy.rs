//! The rules that neither the compiler nor clippy knows.
//!
//! Each rule is a function from the files of the tree to complaints. The tables of what is allowed
//! stand beside the rules, so that an exception is a line in a diff with its reason.

mod blobs;
mod circles;
mod documents;
mod edges;
mod lengths;
mod mentions;
mod parts;
mod replaced;
mod rooms;
mod rust;
mod source;
mod words;

use std::fmt::Display;

use anyhow::{Result, ensure};

use crate::tree::{self, SourceFile};

/// One thing that is wrong, at a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint(String);

impl Complaint {
    /// At a file.
    fn at(path: &str, what: impl Display) -> Self {
        Self(format!("{path}: {what}"))
    }

    /// At a line of a file; lines count from 1.
    fn at_line(path: &str, line: usize, what: impl Display) -> Self {
        Self(format!("{path}:{line}: {what}"))
    }
}

type Rule = fn(&[SourceFile]) -> Vec<Complaint>;

const RULES: &[(&str, Rule)] = &[
    ("dependencies point down", edges::check),
    ("banned in Rust", rust::check),
    ("unsafe stays where it is argued", rust::check_unsafe),
    ("lengths", lengths::check),
    ("parts of a shard", parts::check),
    ("rooms are not full", rooms::check),
    ("no circles of files", circles::check),
    ("words that were replaced", replaced::check),
    ("no blobs", blobs::check),
    ("words", words::check),
    ("documents are in step", documents::check),
    ("mentions of code", mentions::check),
];

/// Applies all rules.
pub(crate) fn run() -> Result<()> {
    let files = tree::read()?;
    let mut count = 0;
    for (name, rule) in RULES {
        let complaints = rule(&files);
        for Complaint(text) in &complaints {
            eprintln!("tidy: {name}: {text}");
        }
        count += complaints.len();
    }
    ensure!(count == 0, "tidy: {count} complaints");
    println!("tidy: {} files, {} rules, no complaint", files.len(), RULES.len());
    Ok(())
}
