//! Names of other nodes' directories and files, shown to the processes of this one.
//!
//! A process that follows a path by itself needs what the names on it stand for, also of those that
//! another node has. Which of them this shard remembers, and until when, stands in its records, so
//! that a process finds it as it finds what is at home here (`mayfly_records`). It holds until the
//! owner has the name forgotten, which takes the record away before the owner is answered, and no
//! longer than it may be remembered: a daemon that stands still cannot take anything away.

use mayfly_meta::{Scan, StoreError, key};
use mayfly_types::{Durability, FileId, limits::REMEMBERED_BYTES_MAX};

use crate::{fault::store_failed, shard::Shard};

impl Shard {
    /// Whether processes of this node read this shard's records.
    pub(crate) fn shows_records(&self) -> bool {
        self.config.durability == Durability::Process
            && (self.place.alone || self.has_rings() && self.has_seats())
    }

    /// A name of another shard stands for `id`, and may be remembered until then: for a directory,
    /// or a file with the attributes in `record`.
    pub(crate) fn show_name(
        &mut self,
        (directory, name): (FileId, &[u8]),
        (id, until): (FileId, i64),
        record: &[u8],
    ) {
        let until = if self.shows_records() { self.cycles_at(until) } else { 0 };
        if until == 0 {
            return;
        }
        let head = [id.0, until].into_iter().flat_map(u64::to_le_bytes);
        let record: Vec<u8> = head.chain(record.iter().copied()).collect();
        if let Err(error) = self.put_shown(&key::remembered(directory, name), &record) {
            store_failed(&error);
        }
    }

    fn put_shown(&mut self, at: &[u8], record: &[u8]) -> Result<(), StoreError> {
        let before = self.store.get(at)?.map(|record| record.len());
        let shown = &mut self.namespace.shown_names;
        if before.is_none() {
            if shown.count >= self.config.cached_dentries_max || shown.bytes > REMEMBERED_BYTES_MAX
            {
                self.hide_all()?;
            }
            self.namespace.shown_names.count += 1;
        }
        let bytes = &mut self.namespace.shown_names.bytes;
        *bytes = bytes.saturating_sub(before.unwrap_or(0)) + record.len();
        self.store.put(at, record)
    }

    /// What the name stands for is not to be believed any more.
    pub(crate) fn hide_name(&mut self, directory: FileId, name: &[u8]) {
        if self.namespace.shown_names.count == 0 {
            return;
        }
        if let Err(error) = self.delete_shown(&key::remembered(directory, name)) {
            store_failed(&error);
        }
    }

    fn delete_shown(&mut self, at: &[u8]) -> Result<(), StoreError> {
        let Some(record) = self.store.get(at)? else { return Ok(()) };
        let is_directory = record.len() == key::REMEMBERED_BYTES;
        let shown = &mut self.namespace.shown_names;
        shown.count -= 1;
        shown.bytes = shown.bytes.saturating_sub(record.len());
        self.store.delete(at)?;
        // Processes remember where paths led.
        if is_directory { self.store.move_directory() } else { Ok(()) }
    }

    /// Nothing is known of other nodes' names.
    pub(crate) fn hide_names(&mut self) {
        if self.namespace.shown_names.count > 0
            && let Err(error) = self.hide_all()
        {
            store_failed(&error);
        }
    }

    /// The same for what an earlier daemon has shown.
    pub(crate) fn hide_all(&mut self) -> Result<(), StoreError> {
        let mut shown: Vec<Vec<u8>> = Vec::new();
        self.store.scan(&[key::REMEMBERED], &[key::REMEMBERED], &mut |key, _| {
            shown.push(key.to_vec());
            Scan::More
        })?;
        self.namespace.shown_names.count = shown.len();
        shown.iter().try_for_each(|key| self.delete_shown(key))
    }
}
