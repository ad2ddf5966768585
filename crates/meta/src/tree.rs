//! The store of instances that need only outlive their processes: a B+ tree that is changed in
//! place, in a mapped file.
//!
//! LMDB, which [`crate::LmdbStore`] is, copies every page that a transaction changes and keeps
//! lists of the pages that this sets free: that makes it whole after a power loss, and was more
//! than half of what a create or an unlink cost. Where only the process dies, the page cache is the
//! disk and a store to memory is a write to it. So pages are changed where they are, after what
//! they were was noted in a journal ([`journal`]); a commit is one store to memory; and no
//! operation makes a system call but when the file grows.
//!
//! * [`page`]: the bytes of a node. [`pages`]: the file, its free pages, and the rule that makes a
//!   transaction whole or nothing. [`long`]: values that do not fit.
//! * [`walk`]: looking up and scanning. [`insert`], [`remove`]: what their names say.
//! * [`space`]: what outlives the process. [`file`](mod@file): the two files of an instance.
//!
//! Everything that is read from the file is looked at before it is believed: bytes that make no
//! sense are [`StoreError::Corrupt`], never a panic, a signal or a search without end. They are not
//! detected beyond that: there is no checksum, as there is none in the page cache.
//!
//! A store belongs to one thread, and a second process is kept out by a lock.

mod file;
mod insert;
mod journal;
mod long;
mod page;
mod pages;
mod remove;
mod space;
#[cfg(test)]
mod tests;
mod walk;

pub use file::{TreeOptions, TreeStore};

use self::{
    insert::Run,
    page::{Builder, Bytes},
    pages::Pages,
    space::Space,
    walk::{Last, Often},
};
use crate::{KEY_BYTES_MAX, Scan, Store, StoreError};

/// The tree and what it works with.
#[derive(Debug)]
struct Tree<S> {
    pages: Pages<S>,
    poisoned: bool,
    run: Run,
    last: Last,
    often: Often,
    /// Pages that are being made.
    builder: Builder,
    other: Builder,
    /// An entry that is being made.
    cell: Vec<u8>,
    /// A long value, put together.
    value: Vec<u8>,
}

fn empty_leaf() -> Result<Box<Bytes>, StoreError> {
    let mut builder = Builder::new();
    builder.clear(0);
    Ok(Box::new(*builder.finish()?))
}

impl<S: Space> Tree<S> {
    fn new(pages: Pages<S>) -> Tree<S> {
        Tree {
            pages,
            poisoned: false,
            run: Run::default(),
            last: Last::default(),
            often: Often::default(),
            builder: Builder::new(),
            other: Builder::new(),
            cell: Vec::new(),
            value: Vec::new(),
        }
    }

    #[inline]
    fn check(&self, key: &[u8]) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(StoreError::BadKey);
        }
        Ok(())
    }

    /// After a failed write the pages are neither what they were nor what they should be. What the
    /// journal has leads back, at the next opening.
    #[inline]
    fn written<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.poisoned |= result.is_err();
        result
    }
}

impl<S: Space + Send> Store for Tree<S> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        self.check(key)?;
        self.look_up(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.check(key)?;
        let done = self.set(key, value);
        self.written(done)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        self.check(key)?;
        let done = self.remove(key);
        self.written(done)
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError> {
        self.check(from)?;
        self.show(prefix, from, visit)
    }

    fn announce(&mut self) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        let done = self.pages.begin();
        self.written(done)
    }

    fn move_directory(&mut self) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        let done = self.pages.count_move();
        self.written(done)
    }

    fn commit(&mut self) -> Result<u64, StoreError> {
        if self.poisoned {
            return Err(StoreError::Poisoned);
        }
        let done = self.pages.commit();
        self.written(done)
    }

    fn pending_transaction(&self) -> u64 {
        let pending = self.pages.is_changed() || self.poisoned;
        if pending { self.pages.committed().wrapping_add(1) } else { 0 }
    }

    fn committed_transaction(&self) -> u64 {
        self.pages.committed()
    }

    fn used_bytes(&self) -> u64 {
        self.pages.used_bytes()
    }

    fn has_room(&mut self) -> bool {
        self.pages.has_room()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if self.poisoned { Err(StoreError::Poisoned) } else { self.pages.sync() }
    }
}
