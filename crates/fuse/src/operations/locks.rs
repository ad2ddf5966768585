//! Requests about locks ([`crate::memory::locks`] has who holds and who waits).

use std::time::Instant;

use mayfly_sys::file::O_RDWR;
use mayfly_types::{Errno, FileId, OpenRef};
use mayfly_wire::{LOCK_FLOCK, LOCK_UNLOCK, WALK_EMPTY, Walk};

use crate::{
    kernel::abi::{Body, Fields, Header},
    memory::{
        locks::{Asked, CLOSING_MAX, EARLY_MAX, Held, OFFSET_MAX, PAUSE_MIN, Wait},
        waiter::Waiter,
    },
    operations::attributes::failed,
    reply::Reply,
    server::Server,
};

impl Server {
    /// The description that holds an owner's locks, made when there is none. It can both write and
    /// read: the kernel has checked what the program's descriptor allows.
    fn holder(&self, node: u64, asked: &Asked) -> Result<OpenRef, Errno> {
        let key = (node, asked.owner);
        if let Some(held) = self.locks.state().holders.get_mut(&key) {
            if held.pid == 0 {
                // F_GETLK does not name the process; the first lock does.
                held.pid = asked.pid;
            }
            return Ok(held.open);
        }
        // By identity: that is enough for a file that the program has open.
        let walk = Walk { start: FileId(node), flags: WALK_EMPTY, path: b"" };
        let none = mayfly_client::NewOwner { mode: 0, uid: 0, gid: 0 };
        let mut escape = mayfly_sys::text::PathText::new();
        let opened = self.client.open(walk, O_RDWR, none, &mut escape).map_err(failed)?;
        let (open, handle, pid) = (opened.open, asked.handle, asked.pid);
        let held = Held { open, handle, pid, ranges: Vec::new() };
        let first = self.locks.state().holders.entry(key).or_insert(held).open;
        if first != opened.open {
            // Another thread of the owner was quicker.
            self.client.close(self.client.open_file(opened.open)?)?;
        }
        Ok(first)
    }

    pub(super) fn lock(
        &self,
        header: &Header,
        fields: Fields<'_>,
        wait: bool,
    ) -> Result<Reply, Errno> {
        let asked = Asked::of(fields)?;
        let range = asked.range;
        let owner = (header.node, asked.owner);
        let open = if range.owner == LOCK_FLOCK {
            self.handle(asked.handle)?.reference
        } else if range.kind == LOCK_UNLOCK {
            let mut state = self.locks.state();
            let Some(held) = state.holders.get_mut(&owner) else { return Ok(Reply::Body) };
            held.note(range);
            held.open
        } else {
            self.holder(header.node, &asked)?
        };
        match self.client.lock(open, range, false) {
            Err(Errno::EAGAIN) if wait || self.locks.is_closing(header.node) => {
                let unique = header.unique;
                let until = (!wait).then(|| Instant::now() + CLOSING_MAX);
                if range.owner == LOCK_FLOCK {
                    self.locks.flocked(asked.handle, header.node);
                }
                let handle = asked.handle;
                let by = Waiter::of(header.thread);
                let wait =
                    Wait { unique, owner, handle, open, range, by, interrupted: false, until };
                self.locks.queue(wait)?;
                Ok(Reply::Later)
            }
            Ok(()) => {
                self.locks.state().note(owner, range);
                if range.owner == LOCK_FLOCK && range.kind != LOCK_UNLOCK {
                    self.locks.flocked(asked.handle, header.node);
                }
                // A lock may also have become a weaker one.
                self.locks.freed();
                Ok(Reply::Body)
            }
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn test_lock(
        &self,
        header: &Header,
        fields: Fields<'_>,
        body: &mut Body,
    ) -> Result<(), Errno> {
        let asked = Asked::of(fields)?;
        let open = self.holder(header.node, &asked)?;
        let conflict = self.client.test_lock(open, asked.range)?;
        let range = conflict.range;
        let last = if range.end == u64::MAX { OFFSET_MAX } else { range.end - 1 };
        let pid = match u32::try_from(conflict.pid) {
            Ok(pid) => pid,
            Err(_) => self.someone_else(header.node, &asked),
        };
        body.u64(range.start).u64(last).u32(range.kind).u32(pid);
        Ok(())
    }

    /// The process that holds the lock in the way, when it took it through this mount; 0 otherwise.
    fn someone_else(&self, node: u64, asked: &Asked) -> u32 {
        let state = self.locks.state();
        let others = state.holders.iter().filter(|(key, _)| key.0 == node && key.1 != asked.owner);
        let mut others = others.filter(|(_, held)| held.is_in_the_way_of(&asked.range));
        others.next().map_or(0, |(_, held)| held.pid)
    }

    /// An owner has closed a descriptor of the file.
    pub(super) fn release_owner(&self, node: u64, owner: u64) {
        let held = self.locks.state().holders.remove(&(node, owner));
        if let Some(held) = held {
            self.give_up(held.open);
        }
    }

    /// A handle is closed. Locks that a description took through it (F_OFD_SETLK) go too.
    pub(super) fn release_handle(&self, handle: u64) {
        let gone: Vec<OpenRef> = {
            let mut state = self.locks.state();
            state.flocked.remove(&handle);
            let of_it = state.holders.extract_if(|_, held| held.handle == handle);
            of_it.map(|(_, held)| held.open).collect()
        };
        for open in gone {
            self.give_up(open);
        }
        self.locks.freed();
    }

    fn give_up(&self, open: OpenRef) {
        // The end of the session gives them up too.
        if let Ok(open) = self.client.open_file(open) {
            let _ = self.client.close(open);
        }
        self.locks.freed();
    }

    /// The program that waits for request `unique` got a signal. A request that does not wait for a
    /// lock is answered soon.
    pub(super) fn interrupt(&self, mut fields: Fields<'_>) -> Result<Reply, Errno> {
        let unique = fields.u64()?;
        let mut state = self.locks.state();
        match state.waits.iter_mut().find(|wait| wait.unique == unique) {
            Some(wait) => {
                wait.interrupted = true;
                state.freed += 1;
                self.locks.changed.notify_one();
            }
            None => {
                if state.early.len() >= EARLY_MAX {
                    state.early.pop_front();
                }
                state.early.push_back(unique);
            }
        }
        Ok(Reply::Later)
    }

    /// Tries those that wait, for ever.
    pub(crate) fn serve_waiting(&self) {
        let (mut seen, mut pause) = (0, PAUSE_MIN);
        loop {
            pause = self.locks.rest(&mut seen, pause);
            for wait in self.locks.waiting() {
                let tried = match wait.interrupted {
                    true => Err(Errno::EINTR),
                    false => self.client.lock(wait.open, wait.range, false),
                };
                let in_time = wait.until.is_none_or(|until| Instant::now() < until);
                if tried == Err(Errno::EAGAIN) && in_time {
                    continue;
                }
                self.locks.take_out(&wait, tried.is_ok());
                match tried {
                    Ok(()) => self.device.answer(wait.unique, &[]),
                    Err(errno) => self.device.refuse(wait.unique, errno),
                }
            }
        }
    }
}
