//! The comparisons.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use mayfly_meta::{
    key,
    record::{Layout, Policy},
};
use mayfly_object::ObjectId;
use mayfly_types::{FileId, FileKind, Tail};
use mayfly_wire::inspection::{File, Spread};

use crate::{
    fsck::{Finding, Kind, Look, NameAt, Stray},
    striping::arithmetic::Stripes,
};

/// Findings, and the files at which an operation is just now: of these nothing is called wrong.
struct Verdict {
    found: BTreeSet<Finding>,
    busy: HashSet<FileId>,
}

impl Verdict {
    fn say(&mut self, about: FileId, kind: Kind, what: String) {
        if !self.busy.contains(&about) {
            self.found.insert(Finding::new(kind, what));
        }
    }
}

fn layout(spread: &Spread) -> Layout {
    let policy = if spread.hashed { Policy::Hash } else { Policy::Stripe };
    let Spread { width, chunk_log2, striped, .. } = *spread;
    let tail = Tail {
        start_bytes: spread.tail_start_bytes,
        row: spread.tail_row,
        chunk_log2: spread.tail_chunk_log2,
    };
    // What another node says may be anything.
    let tail = if tail.is_possible(width) { tail } else { Tail::default() };
    Layout { width, policy, chunk_log2, striped, tail, ..Layout::default() }
}

impl Look {
    /// What does not fit, as far as this look can tell.
    #[must_use]
    pub fn findings(&self) -> BTreeSet<Finding> {
        let busy = self.operations.values().flatten().copied().collect();
        let mut verdict = Verdict { found: self.found.iter().cloned().collect(), busy };
        self.check_names(&mut verdict);
        self.check_files(&mut verdict);
        self.check_directories(&mut verdict);
        self.check_members(&mut verdict);
        self.check_objects(&mut verdict);
        self.check_parts(&mut verdict);
        self.check_descriptions(&mut verdict);
        self.check_operations(&mut verdict);
        self.check_marks(&mut verdict);
        verdict.found
    }

    fn place(&self, name: &NameAt) -> String {
        let directory = self.path(name.directory);
        let name = String::from_utf8_lossy(&name.name);
        format!("{}/{}", directory.trim_end_matches('/'), name.escape_debug())
    }

    fn check_names(&self, verdict: &mut Verdict) {
        for (id, names) in &self.names {
            let file = self.files.get(id);
            for name in names {
                let place = self.place(name);
                match file {
                    None => {
                        let what = format!("{place}: its file {:016x} is not there", id.0);
                        verdict.say(*id, Kind::Name, what);
                    }
                    Some((_, file)) if file.kind != name.kind => {
                        let (said, is) = (name.kind, file.kind);
                        let what = format!("{place}: the name says {said:?}, the file is {is:?}");
                        verdict.say(*id, Kind::Name, what);
                    }
                    Some(_) => {}
                }
                if !self.directories.contains_key(&name.directory) {
                    let of = name.directory.0;
                    let what = format!("{place}: its directory {of:016x} is not there");
                    verdict.say(name.directory, Kind::Name, what);
                }
            }
        }
    }

    fn check_files(&self, verdict: &mut Verdict) {
        if !self.files.contains_key(&FileId::ROOT) {
            verdict.say(FileId::ROOT, Kind::File, "there is no root directory".to_owned());
        }
        // Files that are open at home.
        let open: HashSet<(u32, FileId)> =
            self.opens.iter().map(|(at, of)| (at.0, of.file)).collect();
        for (id, (home, file)) in &self.files {
            let names = self.names.get(id).map_or(0, Vec::len);
            if names == 0 && *id != FileId::ROOT {
                self.check_nameless(verdict, (*home, file), open.contains(&(*home, *id)));
            } else if file.kind != FileKind::Directory && file.links as usize != names {
                let (path, links) = (self.path(*id), file.links);
                let what =
                    format!("{path}: its inode says {links} links, and it has {names} names");
                verdict.say(*id, Kind::Links, what);
            }
            self.check_flags(verdict, *home, file);
            self.check_content(verdict, *home, file);
        }
    }

    fn check_nameless(&self, verdict: &mut Verdict, (home, file): (u32, &File), open: bool) {
        let (id, kind, links) = (file.id, file.kind, file.links);
        // The seat of a directory of an origin, which was gone there when the daemon died that had
        // asked for the seat: who finds that path again is given the same one.
        let is_empty = self.entries.get(&(id, home)).is_none_or(|(names, _)| *names == 0);
        if is_empty && self.is_marked(key::SHOWN, id, 0, home) {
            return;
        }
        let of = format!("file {:016x} ({kind:?}, shard {home}) has no name", id.0);
        if links > 0 {
            verdict.say(id, Kind::File, format!("{of}, and its inode says {links} links"));
        } else if !self.is_marked(key::ORPHAN, id, 0, home) {
            verdict.say(id, Kind::File, format!("{of}, and nothing says that it is open"));
        } else if !open && !self.is_marked(key::PENDING_CREATE, id, 0, home) {
            verdict.say(id, Kind::File, format!("{of}, and nobody has it open"));
        }
    }

    fn check_flags(&self, verdict: &mut Verdict, home: u32, file: &File) {
        for (what, said, words) in [
            (key::UNSETTLED, file.unsettled, "that its length is not settled"),
            (key::XATTRS, file.extended, "that it has extended attributes"),
        ] {
            if said && !self.is_marked(what, file.id, 0, home) {
                let path = self.path(file.id);
                let what = format!("{path}: its inode says {words}, and no record has it");
                verdict.say(file.id, Kind::Mark, what);
            }
        }
    }

    fn check_content(&self, verdict: &mut Verdict, home: u32, file: &File) {
        if file.generation == 0 {
            return;
        }
        let id = ObjectId { file: file.id, generation: file.generation };
        let length = if file.spread.striped {
            let Some(length) = self.length_of_parts(file) else { return };
            length
        } else {
            let node = self.node_of(home);
            let Some(length) = self.objects.get(&(node, id)) else {
                let (path, object) = (self.path(file.id), id.path());
                let what = format!("{path}: its object {object} is not on node {node}");
                return verdict.say(file.id, Kind::Content, what);
            };
            *length
        };
        if !file.unsettled && length != file.size_bytes {
            let (path, said) = (self.path(file.id), file.size_bytes);
            let what = format!("{path}: its inode says {said} bytes, its objects have {length}");
            verdict.say(file.id, Kind::Length, what);
        }
    }

    /// Up to where the parts of a striped file have bytes; nothing while one is to be cut.
    fn length_of_parts(&self, file: &File) -> Option<u64> {
        let mut length = 0;
        for (shard, part) in self.parts.get(&file.id).into_iter().flatten() {
            if part.cut {
                return None;
            }
            let id = ObjectId { file: file.id, generation: part.generation };
            if part.generation == file.generation
                && let Some(bytes) = self.objects.get(&(self.node_of(*shard), id))
            {
                length = length.max(layout(&part.spread).end_of_part(part.index, *bytes));
            }
        }
        Some(length)
    }

    fn check_directories(&self, verdict: &mut Verdict) {
        let mut rooted = HashMap::from([(FileId::ROOT, true)]);
        for (id, directory) in &self.directories {
            let Some((home, file)) = self.files.get(id) else { continue };
            let (entries, directories) =
                self.entries.get(&(*id, *home)).copied().unwrap_or_default();
            let path = self.path(*id);
            if file.links > 0 && (directory.entries, file.links) != (entries, 2 + directories) {
                let (said, links) = (directory.entries, file.links);
                let what = format!(
                    "{path}: its home, shard {home}, says {said} entries and {links} links, \
                     and has {entries} entries, {directories} of them directories"
                );
                verdict.say(*id, Kind::Directory, what);
            }
            if *id == FileId::ROOT {
                continue;
            }
            let names = self.names.get(id).map_or(&[][..], Vec::as_slice);
            if names.len() > 1 {
                let what = format!("{path}: the directory has {} names", names.len());
                verdict.say(*id, Kind::Directory, what);
            } else if let [name] = names
                && (name.directory, &name.name) != (directory.parent, &directory.name)
            {
                let said = String::from_utf8_lossy(&directory.name);
                let what = format!("{path}: the directory believes that it is called {said:?}");
                verdict.say(*id, Kind::Directory, what);
            }
            if !names.is_empty() && !self.reaches_root(*id, &mut rooted) {
                let what = format!("{path}: the directory ({:016x}) is not below the root", id.0);
                verdict.say(*id, Kind::Directory, what);
            }
        }
    }

    fn reaches_root(&self, directory: FileId, known: &mut HashMap<FileId, bool>) -> bool {
        let (mut at, mut way) = (directory, HashSet::new());
        let rooted = loop {
            if let Some(rooted) = known.get(&at) {
                break *rooted;
            }
            if !way.insert(at) {
                break false;
            }
            match self.names.get(&at).and_then(|names| names.first()) {
                Some(name) => at = name.directory,
                None => break false,
            }
        };
        known.extend(way.into_iter().map(|on_the_way| (on_the_way, rooted)));
        rooted
    }

    fn check_members(&self, verdict: &mut Verdict) {
        let held = self.entries.keys().chain(self.members.keys()).copied();
        for (id, shard) in held.collect::<BTreeSet<_>>() {
            // Names in a directory that is not there are told by name.
            let (Some((home, _)), Some(directory)) =
                (self.files.get(&id), self.directories.get(&id))
            else {
                if self.members.contains_key(&(id, shard)) {
                    let what = format!("shard {shard} is a member of {:016x}, which is gone", id.0);
                    verdict.say(id, Kind::Directory, what);
                }
                continue;
            };
            if shard == *home {
                continue;
            }
            let found = self.entries.get(&(id, shard)).copied().unwrap_or_default();
            let path = self.path(id);
            match self.members.get(&(id, shard)) {
                None => {
                    let what = format!("{path}: shard {shard} has entries and is no member");
                    verdict.say(id, Kind::Directory, what);
                }
                Some(said) if *said != found => {
                    let what = format!(
                        "{path}: shard {shard} says {} entries, {} of them directories, and has \
                         {} and {}",
                        said.0, said.1, found.0, found.1
                    );
                    verdict.say(id, Kind::Directory, what);
                }
                Some(_) if !directory.has_member(shard) => {
                    let what = format!("{path}: its home does not know of its member {shard}");
                    verdict.say(id, Kind::Directory, what);
                }
                Some(_) => {}
            }
        }
    }

    fn check_objects(&self, verdict: &mut Verdict) {
        for (node, id) in self.objects.keys() {
            if !self.is_of_file(*node, *id) && !self.is_doomed(*node, *id) {
                let object = id.path();
                let what = match self.files.contains_key(&id.file) {
                    false => format!("node {node}: object {object} is of no file"),
                    true => format!(
                        "node {node}: object {object} is none of those of {}",
                        self.path(id.file)
                    ),
                };
                let stray = Some(Stray { node: *node, id: *id });
                if !verdict.busy.contains(&id.file) {
                    verdict.found.insert(Finding { kind: Kind::Object, what, stray });
                }
            }
        }
    }

    fn is_of_file(&self, node: u32, id: ObjectId) -> bool {
        let part = self.parts.get(&id.file).into_iter().flatten();
        let mut here = part.filter(|(shard, _)| self.node_of(*shard) == node);
        if here.any(|(_, part)| part.generation == id.generation) {
            return true;
        }
        let file = self.files.get(&id.file);
        file.is_some_and(|(home, file)| {
            file.generation == id.generation && self.node_of(*home) == node
        })
    }

    fn check_parts(&self, verdict: &mut Verdict) {
        let unlinked = self.marks.iter().filter(|mark| mark.0 == key::UNLINKED);
        let unlinked: HashSet<(FileId, u32)> = unlinked.map(|mark| (mark.1, mark.2)).collect();
        for (id, parts) in &self.parts {
            let mut had = HashSet::new();
            for (shard, part) in parts {
                let of = format!("part {} of generation {}", part.index, part.generation);
                if !had.insert((part.index, part.generation)) {
                    let what = format!("{}: {of} is there twice", self.path(*id));
                    verdict.say(*id, Kind::Part, what);
                }
                let has = |file: &File| file.spread.striped && file.generation == part.generation;
                let is_had = self.files.get(id).is_some_and(|(_, file)| has(file));
                if !is_had && !unlinked.contains(&(*id, part.generation)) {
                    let what = format!("shard {shard} has {of} of no file: {:016x}", id.0);
                    verdict.say(*id, Kind::Part, what);
                }
                let parts = self.files.get(id).map_or(0, |(_, file)| file.parts);
                if is_had && part.index >= parts {
                    let what = format!("{}: {of} is there, of {parts}", self.path(*id));
                    verdict.say(*id, Kind::Part, what);
                }
            }
        }
    }

    fn check_descriptions(&self, verdict: &mut Verdict) {
        // Descriptions at other nodes for which one stands: whose, where, which.
        let proxies = self.opens.iter().filter(|(_, open)| open.at_shard > 0);
        let proxies: HashSet<_> = proxies
            .map(|((shard, _), open)| (self.node_of(*shard), open.at_shard - 1, open.there))
            .collect();
        for ((shard, number), open) in &self.opens {
            let of = format!(
                "shard {shard}: description {}.{} of file {:016x}",
                number.index, number.generation, open.file.0
            );
            let wrong = if let Some(at) = open.at_shard.checked_sub(1) {
                let there = self.opens.get(&(at, open.there));
                let is_right = there.is_some_and(|there| there.of_node == self.node_of(*shard) + 1);
                (!is_right).then(|| format!("stands for one that is not at shard {at}"))
            } else if !self.files.contains_key(&open.file) {
                Some("has no file".to_owned())
            } else if let Some(node) = open.of_node.checked_sub(1) {
                let is_had = open.held || proxies.contains(&(node, *shard, *number));
                (!is_had).then(|| format!("belongs to node {node}, which does not know it"))
            } else {
                (!open.held).then(|| "belongs to a process that is gone".to_owned())
            };
            if let Some(wrong) = wrong {
                verdict.say(open.file, Kind::Description, format!("{of} {wrong}"));
            }
        }
    }

    fn check_operations(&self, verdict: &mut Verdict) {
        for (id, about) in &self.operations {
            let paths: Vec<String> = about.iter().map(|file| self.path(*file)).collect();
            let what = format!("operation {id:016x} is not finished: {}", paths.join(", "));
            verdict.found.insert(Finding::new(Kind::Operation, what));
        }
        for (id, shard) in &self.applied {
            if !self.operations.contains_key(id) {
                let what =
                    format!("shard {shard} has something of operation {id:016x}, which is over");
                verdict.found.insert(Finding::new(Kind::Operation, what));
            }
        }
    }

    fn check_marks(&self, verdict: &mut Verdict) {
        let mut going = BTreeMap::new();
        for (what, id, generation, shard) in &self.marks {
            let file = self.files.get(id).filter(|(home, _)| home == shard).map(|(_, file)| file);
            let is_right = match *what {
                key::ORPHAN => file.is_some_and(|file| file.links == 0),
                key::UNSETTLED => file.is_some_and(|file| file.unsettled),
                key::XATTRS => file.is_some_and(|file| file.extended),
                // An append may be noted where a part is.
                key::APPEND => file.is_some() || self.parts.contains_key(id),
                // Its process may have made the object, and no record names that so far.
                key::PROMISED => true,
                // The process that works outside may make the object, which no file wants.
                key::LATE => true,
                key::DOOMED | key::UNLINKED => {
                    let of: &mut BTreeSet<_> = going.entry((*shard, *what)).or_default();
                    of.insert((*id, *generation));
                    true
                }
                _ => file.is_some(),
            };
            if !is_right {
                let letter = char::from(*what);
                let what = format!("shard {shard}: mark {letter} is not right for {:016x}", id.0);
                verdict.say(*id, Kind::Mark, what);
            }
        }
        // What is to go goes one after the other: as long as there are fewer each time, it goes.
        for ((shard, what), objects) in going {
            let Some((file, generation)) = objects.first() else { continue };
            let sort = if what == key::UNLINKED { "striped files" } else { "objects" };
            let what = format!(
                "shard {shard}: {} {sort} are to go and stay, the first is {:016x}.{generation}",
                objects.len(),
                file.0
            );
            verdict.found.insert(Finding::new(Kind::Mark, what));
        }
    }
}
