//! The second thread: it waits for the supervisor and for the inotify queue, and wakes the serving
//! loop.
//!
//! The loop sleeps on one futex word, which descriptors cannot wake. So this thread polls them,
//! moves what they say into a queue and pokes the loop. Before a lock is decided the loop empties
//! the inotify queue itself; that both may read it is why reading and queueing happen under one
//! mutex.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::serve::{
    Waker,
    sessions::{
        channel::{self, Message},
        event::Event,
        releases::{Queue, Released},
    },
};

/// What both threads share.
#[derive(Debug)]
pub(in crate::serve) struct Control {
    pub(in crate::serve) channel: OwnedFd,
    releases: Queue,
    events: Mutex<VecDeque<Event>>,
    waker: Waker,
}

impl Control {
    /// Starts the thread.
    pub(in crate::serve) fn start(
        channel: OwnedFd,
        releases: OwnedFd,
        waker: Waker,
    ) -> std::io::Result<Arc<Control>> {
        let events = Mutex::new(VecDeque::new());
        let releases = Queue::of(releases);
        let control = Arc::new(Control { channel, releases, events, waker });
        let theirs = Arc::clone(&control);
        thread::Builder::new().name("control".to_owned()).spawn(move || theirs.run())?;
        Ok(control)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has been queued.
    pub(in crate::serve) fn take(&self) -> VecDeque<Event> {
        std::mem::take(&mut *self.lock())
    }

    /// Moves the inotify queue's content to ours.
    fn drain_releases(&self, events: &mut VecDeque<Event>) {
        let released = self.releases.drain();
        events.extend(released.indexes.into_iter().map(Event::Released));
        if released.overflow {
            events.push_back(Event::Overflow);
        }
    }

    /// Takes the releases that the kernel knows of by now, and leaves everything else queued.
    pub(in crate::serve) fn take_releases(&self) -> Released {
        let mut events = self.lock();
        self.drain_releases(&mut events);
        let mut released = Released::default();
        events.retain(|event| match event {
            Event::Released(index) => {
                released.indexes.push(*index);
                false
            }
            Event::Overflow => {
                released.overflow = true;
                false
            }
            _ => true,
        });
        released
    }

    fn run(&self) {
        loop {
            let mut ready = [
                PollFd::new(&self.channel, PollFlags::IN),
                PollFd::new(&self.releases, PollFlags::IN),
            ];
            if poll(&mut ready, None).is_err() {
                continue;
            }
            let (told, released) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
            if released {
                self.drain_releases(&mut self.lock());
            }
            let go_on = !told || self.listen();
            self.waker.wake();
            if !go_on {
                return;
            }
        }
    }

    /// Takes one message of the supervisor; false when there will be no more.
    fn listen(&self) -> bool {
        let event = match channel::receive(&self.channel) {
            Ok(Some((Message::Session { session, pid }, fds))) => {
                let mut fds = fds.into_iter();
                match (fds.next(), fds.next()) {
                    (Some(region), Some(process)) => {
                        Event::Session { session, pid, region, process }
                    }
                    _ => return true,
                }
            }
            Ok(Some((Message::End(session), _))) => Event::End(session),
            Ok(Some((Message::Stop, _))) => Event::Stop,
            Ok(Some(_)) => return true,
            Ok(None) | Err(_) => Event::Orphaned,
        };
        let last = matches!(event, Event::Orphaned);
        self.lock().push_back(event);
        !last
    }
}
