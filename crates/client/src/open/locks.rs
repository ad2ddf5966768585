//! Locks on files.

use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::tally::Kind;
use mayfly_types::{Errno, OpenRef};
use mayfly_wire::{Conflict, LOCK_UNLOCK, Lock, LockRange, MoveLock, TestLock};

use crate::{Client, Descriptors};

impl<T: Transport, D: Descriptors> Client<T, D> {
    /// Takes, changes or gives up a lock; with `wait`, waits for it as long as nobody interrupts.
    ///
    /// # Errors
    /// EAGAIN for a conflict, EINTR, EDEADLK, ENOLCK.
    pub fn lock(&self, open: OpenRef, range: LockRange, wait: bool) -> Result<(), Errno> {
        let waits = wait && range.kind != LOCK_UNLOCK;
        let patience = if waits { Patience::Interruptible } else { Patience::Deadline };
        let request = Lock { open, range, wait: waits };
        self.asked_open(Kind::Lock, open, || {
            self.transport.exchange(&request, patience, |answer| match answer {
                Answer::Done(()) => Ok(()),
                Answer::Failed(errno) => Err(errno),
                Answer::Escaped(_) => Err(Errno::EIO),
            })
        })
    }

    /// Gives flock's lock of a description, if it has one, to another one of the file.
    ///
    /// # Errors
    /// EBUSY while there are other locks.
    pub fn move_lock(&self, open: OpenRef, to: OpenRef) -> Result<(), Errno> {
        self.ask(&MoveLock { open, to }, Ok)
    }

    /// Finds the holder that stands in the way of a lock.
    ///
    /// # Errors
    /// ENOLCK, EIO.
    pub fn test_lock(&self, open: OpenRef, range: LockRange) -> Result<Conflict, Errno> {
        self.asked_open(Kind::Lock, open, || self.ask(&TestLock { open, range }, Ok))
    }
}
