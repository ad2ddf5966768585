//! What does not fit together, in words.

use std::{collections::BTreeSet, fmt};

use mayfly_object::ObjectId;
use serde::Serialize;

/// What sort of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A name whose file is not there, or is of another type.
    Name,
    /// A file for which no name stands, no description and no operation.
    File,
    /// A number of links that is not the number of names.
    Links,
    /// A directory that its home, its members and its entries say different things of.
    Directory,
    /// A file whose bytes are not there.
    Content,
    /// A settled length that is not that of the bytes.
    Length,
    /// An object that no file has.
    Object,
    /// A part that no file has.
    Part,
    /// An open file description that nobody has, or that leads nowhere.
    Description,
    /// An operation that is not finished and does not go on.
    Operation,
    /// A mark of something that is not so.
    Mark,
    /// A record that cannot be read, or is there twice.
    Record,
}

impl Kind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Kind; 12] = [
        Kind::Name,
        Kind::File,
        Kind::Links,
        Kind::Directory,
        Kind::Content,
        Kind::Length,
        Kind::Object,
        Kind::Part,
        Kind::Description,
        Kind::Operation,
        Kind::Mark,
        Kind::Record,
    ];

    /// What is wrong, for a table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Kind::Name => "names without their file",
            Kind::File => "files without a name",
            Kind::Links => "numbers of links",
            Kind::Directory => "directories",
            Kind::Content => "files without their bytes",
            Kind::Length => "lengths",
            Kind::Object => "objects without their file",
            Kind::Part => "parts without their file",
            Kind::Description => "descriptions of nobody",
            Kind::Operation => "operations that stand still",
            Kind::Mark => "marks of nothing",
            Kind::Record => "records",
        }
    }
}

/// An object that can be removed since nothing stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stray {
    /// The node that has it.
    pub node: u32,
    /// Which it is.
    pub id: ObjectId,
}

/// Something that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// What sort of thing.
    pub kind: Kind,
    /// All that is known of it: the same words mean the same state.
    pub what: String,
    /// If it is an object that can be removed.
    #[serde(skip)]
    pub stray: Option<Stray>,
}

impl Finding {
    pub(super) fn new(kind: Kind, what: String) -> Finding {
        Finding { kind, what, stray: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What every look so far has found.
#[derive(Debug, Default)]
pub struct Doubts {
    looks: u32,
    found: BTreeSet<Finding>,
}

impl Doubts {
    /// Takes in what one more look has found, which began after the others had ended.
    pub fn add(&mut self, found: BTreeSet<Finding>) {
        if self.looks == 0 {
            self.found = found;
        } else {
            self.found.retain(|finding| found.contains(finding));
        }
        self.looks += 1;
    }

    /// What all of them have found.
    #[must_use]
    pub fn found(&self) -> &BTreeSet<Finding> {
        &self.found
    }

    /// How many there were.
    #[must_use]
    pub fn looks(&self) -> u32 {
        self.looks
    }
}
