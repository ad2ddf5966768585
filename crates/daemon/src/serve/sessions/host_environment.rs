//! What the serving thread hears of the world outside of the daemon: its supervisor, and the
//! kernel's evidence of processes and descriptors.
//!
//! In a daemon that is a channel, handles of processes and an inotify queue ([`Host`]). The
//! simulator has one of its own, so that what stands above it is the same code in both.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
};

use mayfly_types::SessionId;

use crate::serve::sessions::{
    channel::{self, Message},
    control::Control,
    event::Event,
    processes::Processes,
    releases::{self, Released},
};

/// The supervisor and the kernel.
pub trait HostEnvironment: fmt::Debug {
    /// What has been queued.
    fn take(&mut self) -> VecDeque<Event>;

    /// The releases that the kernel knows of by now; everything else stays queued.
    fn take_releases(&mut self) -> Released;

    /// Tells the supervisor.
    fn tell(&mut self, message: &Message);

    /// Watches the process of a session.
    fn watch(&mut self, session: SessionId, process: OwnedFd);

    /// Watches it no more.
    fn forget(&mut self, session: SessionId);

    /// Sessions whose process has ended by now; each is returned once.
    fn ended(&mut self) -> Vec<SessionId>;

    /// Indexes of the slot files that some process holds open.
    fn held(&self) -> HashSet<u32>;
}

/// Those of a real daemon.
#[derive(Debug)]
pub(in crate::serve) struct Host {
    pub(in crate::serve) control: Arc<Control>,
    pub(in crate::serve) processes: Processes,
    /// Directory of the slot files.
    pub(in crate::serve) slot_files: PathBuf,
}

impl HostEnvironment for Host {
    fn take(&mut self) -> VecDeque<Event> {
        self.control.take()
    }

    fn take_releases(&mut self) -> Released {
        self.control.take_releases()
    }

    fn tell(&mut self, message: &Message) {
        // When the supervisor is gone the control thread says so.
        let _sent = channel::send(&self.control.channel, message, &[]);
    }

    fn watch(&mut self, session: SessionId, process: OwnedFd) {
        self.processes.add(session, process);
    }

    fn forget(&mut self, session: SessionId) {
        self.processes.forget(session);
    }

    fn ended(&mut self) -> Vec<SessionId> {
        self.processes.ended()
    }

    fn held(&self) -> HashSet<u32> {
        releases::holders(&self.slot_files)
    }
}

impl HostEnvironment for Box<dyn HostEnvironment> {
    fn take(&mut self) -> VecDeque<Event> {
        self.as_mut().take()
    }

    fn take_releases(&mut self) -> Released {
        self.as_mut().take_releases()
    }

    fn tell(&mut self, message: &Message) {
        self.as_mut().tell(message);
    }

    fn watch(&mut self, session: SessionId, process: OwnedFd) {
        self.as_mut().watch(session, process);
    }

    fn forget(&mut self, session: SessionId) {
        self.as_mut().forget(session);
    }

    fn ended(&mut self) -> Vec<SessionId> {
        self.as_mut().ended()
    }

    fn held(&self) -> HashSet<u32> {
        self.as_ref().held()
    }
}
