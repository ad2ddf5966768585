//! Whether what an instance keeps fits together.
//!
//! Every shard tells what it keeps, page by page, as [`inspection::Fact`]s; a [`Look`] takes in
//! those of all shards and nodes and compares them: names with inodes, inodes with objects and
//! parts, directories with their members, descriptions with those that stand for them, marks with
//! what they are about.
//!
//! Nobody stands still for a look, so what it finds may be what was changing just then. Numbers of
//! files, objects and operations are never given twice: what is found again, in the same words, by
//! a look that began after the first one had ended, was not changing. [`Doubts`] has what all looks
//! have found so far.
//!
//! A look keeps about a hundred bytes of each file. It knows no network: `mayfly fsck` asks the
//! daemons for the facts, the simulator and tests take them from the shards.

mod compare;
mod facts;
mod finding;

pub use facts::facts_of;
pub use finding::{Doubts, Finding, Kind, Stray};

use std::collections::{HashMap, HashSet};

use mayfly_meta::key;
use mayfly_object::ObjectId;
use mayfly_types::{FileId, FileKind, OpenRef};
use mayfly_wire::inspection::{self, Fact, File};

/// A name, where it was found.
#[derive(Debug)]
struct NameAt {
    directory: FileId,
    kind: FileKind,
    name: Box<[u8]>,
}

#[derive(Debug)]
struct Directory {
    parent: FileId,
    name: Box<[u8]>,
    entries: u64,
    /// A bit for each shard.
    members: Box<[u8]>,
}

impl Directory {
    fn has_member(&self, shard: u32) -> bool {
        let byte = self.members.get((shard / 8) as usize).copied().unwrap_or(0);
        byte >> (shard % 8) & 1 != 0
    }
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// Names.
    pub names: u64,
    /// Inodes that are no directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Objects, parts among them.
    pub objects: u64,
    /// Parts of striped files.
    pub parts: u64,
    /// Open file descriptions.
    pub descriptions: u64,
    /// Operations over several shards that are not finished.
    pub operations: u64,
    /// Facts, of all these and of others.
    pub records: u64,
}

/// All that was told in one look.
#[derive(Debug)]
pub struct Look {
    /// Of each node.
    shards: u32,
    names: HashMap<FileId, Vec<NameAt>>,
    files: HashMap<FileId, (u32, File)>,
    directories: HashMap<FileId, Directory>,
    members: HashMap<(FileId, u32), (u64, u32)>,
    /// Entries that were found, and directories among them.
    entries: HashMap<(FileId, u32), (u64, u32)>,
    /// First byte of the key, file, generation, shard.
    marks: HashSet<(u8, FileId, u32, u32)>,
    parts: HashMap<FileId, Vec<(u32, inspection::Part)>>,
    /// Unfinished operations, and what they are about.
    operations: HashMap<u64, Vec<FileId>>,
    /// Operations of which steps were done, and where.
    applied: HashSet<(u64, u32)>,
    /// By node; with their length.
    objects: HashMap<(u32, ObjectId), u64>,
    opens: HashMap<(u32, OpenRef), inspection::Open>,
    facts: u64,
    /// What was wrong when it was told.
    found: Vec<Finding>,
}

impl Look {
    /// At an instance whose nodes have so many shards each.
    #[must_use]
    pub fn new(shards: u32) -> Look {
        Look {
            shards: shards.max(1),
            names: HashMap::new(),
            files: HashMap::new(),
            directories: HashMap::new(),
            members: HashMap::new(),
            entries: HashMap::new(),
            marks: HashSet::new(),
            parts: HashMap::new(),
            operations: HashMap::new(),
            applied: HashSet::new(),
            objects: HashMap::new(),
            opens: HashMap::new(),
            facts: 0,
            found: Vec::new(),
        }
    }

    fn node_of(&self, shard: u32) -> u32 {
        shard / self.shards
    }

    /// Takes in what a shard has told.
    pub fn take(&mut self, shard: u32, fact: &Fact<'_>) {
        self.facts += 1;
        match *fact {
            Fact::Name(name) => self.take_name(shard, &name),
            Fact::File(file) => self.take_file(shard, file),
            Fact::Directory(directory) => {
                let inspection::Directory { id, parent, name, entries, members } = directory;
                let (name, members) = (name.into(), members.into());
                self.directories.insert(id, Directory { parent, name, entries, members });
            }
            Fact::Member(member) => {
                let told = (member.entries, member.subdirectories);
                self.members.insert((member.directory, shard), told);
            }
            Fact::Mark(mark) => {
                self.marks.insert((mark.what, mark.file, mark.generation, shard));
            }
            Fact::Part(part) => self.parts.entry(part.file).or_default().push((shard, part)),
            Fact::Operation(operation) if operation.file == FileId::NONE => {
                self.applied.insert((operation.id, shard));
            }
            Fact::Operation(operation) => {
                self.operations.entry(operation.id).or_default().push(operation.file);
            }
            Fact::Object(object) => {
                let id = ObjectId { file: object.file, generation: object.generation };
                self.objects.insert((self.node_of(shard), id), object.size_bytes);
            }
            Fact::Open(open) => {
                self.opens.insert((shard, open.open), open);
            }
            Fact::Unreadable(unreadable) => {
                let key = unreadable.key.escape_ascii();
                let what = format!("shard {shard} has a record that makes no sense: {key}");
                self.found.push(Finding::new(Kind::Record, what));
            }
        }
    }

    fn take_name(&mut self, shard: u32, name: &inspection::Name<'_>) {
        let inspection::Name { directory, file, kind, name } = *name;
        let of = self.entries.entry((directory, shard)).or_default();
        of.0 += 1;
        of.1 += u32::from(kind == FileKind::Directory);
        let at = NameAt { directory, kind, name: name.into() };
        self.names.entry(file).or_default().push(at);
    }

    fn take_file(&mut self, shard: u32, file: File) {
        if let Some((other, _)) = self.files.insert(file.id, (shard, file)) {
            let what =
                format!("file {:016x} has two inodes, at shards {other} and {shard}", file.id.0);
            self.found.push(Finding::new(Kind::Record, what));
        }
    }

    /// What was looked at.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |count: usize| count as u64;
        Counts {
            names: count(self.names.values().map(Vec::len).sum()),
            files: count(self.files.len() - self.directories.len().min(self.files.len())),
            directories: count(self.directories.len()),
            objects: count(self.objects.len()),
            parts: count(self.parts.values().map(Vec::len).sum()),
            descriptions: count(self.opens.len()),
            operations: count(self.operations.len()),
            records: self.facts,
        }
    }

    /// Whether any shard has this mark.
    fn is_marked(&self, what: u8, file: FileId, generation: u32, shard: u32) -> bool {
        self.marks.contains(&(what, file, generation, shard))
    }

    /// Whether an object is to go, is being filled, or may be of a file that is not made yet, as a
    /// shard of its node knows.
    fn is_doomed(&self, node: u32, id: ObjectId) -> bool {
        let mut here = node * self.shards..(node + 1) * self.shards;
        here.any(|shard| {
            [key::DOOMED, key::PROMISED, key::CHUNKS, key::LATE]
                .into_iter()
                .any(|what| self.is_marked(what, id.file, id.generation, shard))
        })
    }

    /// A path for people, as far as it is known.
    fn path(&self, id: FileId) -> String {
        let mut parts = Vec::new();
        let mut at = id;
        while at != FileId::ROOT && parts.len() < DEPTH_MAX {
            let Some(name) = self.names.get(&at).and_then(|names| names.first()) else {
                parts.push(format!("({:016x})", at.0));
                break;
            };
            parts.push(String::from_utf8_lossy(&name.name).escape_debug().to_string());
            at = name.directory;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }
}

/// Names in a path that is shown.
const DEPTH_MAX: usize = 100;
