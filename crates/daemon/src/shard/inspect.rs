//! The facts of this shard, for the check that everything fits together (`fsck.rs`).
//!
//! A page holds as much as fits into a reply, and is made of so many records at most that others do
//! not wait for it. Nothing is changed by looking. The removal of an object that nobody has goes
//! the way of every removal: the mark first.

use std::sync::Arc;

use mayfly_meta::{Scan, key, record::Inode};
use mayfly_object::{Listed, ObjectId};
use mayfly_types::{
    Errno, FileId,
    limits::{INSPECTED_OBJECTS_MAX, INSPECTED_RECORDS_MAX, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{
    INSPECT_OBJECTS, INSPECT_OPENS, INSPECT_RECORDS, Inspect, Inspected, RemoveStray, Wire, Writer,
    inspection::{Fact, Object, Open},
};

use crate::{
    api::Caller,
    fault::{Outcome, Served},
    files::state::background::{Done, Length, encoded},
    fsck::facts_of,
    shard::Shard,
    shards::numbering::node_of_owner,
};

/// Room for facts: those of one record fit, whatever it is. The head of a reply fits behind them.
const PAGE_BYTES: usize = TRANSFER_BYTES_MAX + 2048;

struct Page {
    packed: Vec<u8>,
    used: usize,
    /// One did not fit.
    full: bool,
}

impl Page {
    fn new() -> Page {
        Page { packed: vec![0; PAGE_BYTES], used: 0, full: false }
    }

    fn push(&mut self, fact: &Fact<'_>) {
        let mut to = Writer::new(&mut self.packed[self.used..]);
        match fact.encode(&mut to) {
            Ok(()) if !self.full => self.used += to.used(),
            _ => self.full = true,
        }
    }

    fn facts(&self) -> &[u8] {
        &self.packed[..self.used]
    }
}

/// Where a page of objects begins.
fn object_of_place(after: &[u8]) -> Result<Option<ObjectId>, Errno> {
    if after.is_empty() {
        return Ok(None);
    }
    let (file, generation) = after.split_first_chunk().ok_or(Errno::EINVAL)?;
    let generation: [u8; 4] = generation.try_into().map_err(|_| Errno::EINVAL)?;
    let (file, generation) = (u64::from_be_bytes(*file), u32::from_be_bytes(generation));
    Ok(Some(ObjectId { file: FileId(file), generation }))
}

fn place_of_object(id: ObjectId) -> Vec<u8> {
    [&id.file.0.to_be_bytes()[..], &id.generation.to_be_bytes()].concat()
}

impl Shard {
    pub(super) fn inspect(
        &mut self,
        caller: Caller,
        inspect: &Inspect<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        if inspect.shard != self.place.shard.0 {
            return Err(Errno::EINVAL.into());
        }
        let (page, next) = match inspect.what {
            INSPECT_RECORDS => self.inspect_records(inspect.after)?,
            INSPECT_OPENS => self.inspect_opens(inspect.after)?,
            INSPECT_OBJECTS => return self.inspect_objects(caller, inspect.after),
            _ => return Err(Errno::EINVAL.into()),
        };
        self.page_of(&page, &next).encode(to)?;
        Ok(Served::Replied)
    }

    fn page_of<'a>(&self, page: &'a Page, next: &'a [u8]) -> Inspected<'a> {
        let (nodes, shards) = (self.place.numbering.nodes, self.place.numbering.shards);
        Inspected { nodes, shards, next, facts: page.facts() }
    }

    fn inspect_records(&mut self, after: &[u8]) -> Outcome<(Page, Vec<u8>)> {
        if after.len() >= mayfly_meta::KEY_BYTES_MAX {
            return Err(Errno::EINVAL.into());
        }
        // The first key after it.
        let from = if after.is_empty() { vec![b'A'] } else { [after, &[0]].concat() };
        let (mut page, mut next, mut count) = (Page::new(), Vec::new(), 0);
        let mut over = true;
        self.store.scan(&[], &from, &mut |key, record| {
            let before = page.used;
            facts_of(key, record, &mut |fact| page.push(fact));
            if page.full {
                page.used = before;
            }
            if page.full || count == INSPECTED_RECORDS_MAX {
                page.used = before;
                over = false;
                return Scan::Enough;
            }
            count += 1;
            next.clear();
            next.extend_from_slice(key);
            Scan::More
        })?;
        if !over && count == 0 {
            return Err(Errno::EOVERFLOW.into());
        }
        Ok((page, if over { Vec::new() } else { next }))
    }

    fn inspect_opens(&self, after: &[u8]) -> Outcome<(Page, Vec<u8>)> {
        let from = match <[u8; 4]>::try_from(after) {
            Ok(after) => u32::from_be_bytes(after).saturating_add(1),
            Err(_) if after.is_empty() => 0,
            Err(_) => return Err(Errno::EINVAL.into()),
        };
        let (mut page, mut last) = (Page::new(), None);
        self.tell_opens(from, &mut |open| {
            page.push(&Fact::Open(*open));
            if !page.full {
                last = Some(open.open.index);
            }
            !page.full
        });
        let next = last.filter(|_| page.full).map_or(Vec::new(), |last| last.to_be_bytes().into());
        Ok((page, next))
    }

    /// Tells the open file descriptions with numbers from `from` on, until it hears false.
    pub fn tell_opens(&self, from: u32, tell: &mut dyn FnMut(&Open) -> bool) {
        for (number, found) in self.files.opens.all().filter(|(number, _)| number.index >= from) {
            let of_node = node_of_owner(found.session);
            let made_by = self.files.opens.made_by(number.index);
            let held = if of_node.is_some() {
                let spared = self.remote.spared.values().any(|spared| *spared == number);
                spared || self.remote.is_noted(made_by)
            } else {
                self.files.opens.is_shared(number.index) || self.is_known(found.session)
            };
            let told = tell(&Open {
                open: number,
                file: found.id,
                of_node: of_node.map_or(0, |node| node + 1),
                at_shard: found.remote.map_or(0, |remote| remote.shard.0 + 1),
                there: found.remote.map_or(number, |remote| remote.open),
                held,
            });
            if !told {
                return;
            }
        }
    }

    /// The node's objects are looked for where disks are waited for.
    fn inspect_objects(&mut self, caller: Caller, after: &[u8]) -> Outcome<Served> {
        let after = object_of_place(after)?;
        let objects = Arc::clone(&self.objects);
        self.start_job(Length::Any, move || {
            Done::Listed(caller, objects.list(after, INSPECTED_OBJECTS_MAX))
        });
        Ok(Served::Pending)
    }

    pub(crate) fn objects_listed(&mut self, caller: Caller, listed: Result<Vec<Listed>, Errno>) {
        let body = listed.and_then(|listed| {
            let mut page = Page::new();
            for Listed { id, size_bytes, .. } in &listed {
                let (file, generation, size_bytes) = (id.file, id.generation, *size_bytes);
                page.push(&Fact::Object(Object { file, generation, size_bytes }));
            }
            let more = listed.len() == INSPECTED_OBJECTS_MAX;
            let next = listed.last().filter(|_| more).map(|last| place_of_object(last.id));
            encoded(page.used, &self.page_of(&page, &next.unwrap_or_default()))
        });
        self.complete(caller, body);
    }

    /// Removes an object of this node that no file has, as who has looked at all shards says.
    /// Whoever says so is believed only as far as this shard does not know better.
    pub(super) fn remove_stray(&mut self, stray: &RemoveStray) -> Outcome<Served> {
        let RemoveStray { shard, file, generation } = *stray;
        if shard != self.place.shard.0 || generation == 0 {
            return Err(Errno::EINVAL.into());
        }
        let part = self.record_of_part(file)?;
        let has_part = part.is_some_and(|part| part.generation == generation);
        let inode = self.store.get(&key::numbered(key::INODE, file))?.map(Inode::decode_own);
        let has_inode = inode.transpose()?.is_some_and(|inode| inode.generation == generation);
        if has_part || has_inode || self.files.opens.file(file).is_some() {
            return Err(Errno::EBUSY.into());
        }
        self.remove_object(ObjectId { file, generation })?;
        Ok(Served::Replied)
    }
}
