//! The processes of the sessions, watched by their handles, so that the serving thread sees an end
//! before the supervisor has said so.

use std::os::fd::OwnedFd;

use mayfly_types::SessionId;
use rustix::event::epoll;

/// Handles (pidfds) by session.
#[derive(Debug)]
pub(in crate::serve) struct Processes {
    watch: OwnedFd,
    handles: Vec<Option<OwnedFd>>,
}

impl Processes {
    /// None yet.
    ///
    /// # Errors
    /// When the kernel refuses a descriptor.
    pub(in crate::serve) fn new() -> std::io::Result<Processes> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Processes { watch, handles: Vec::new() })
    }

    pub(in crate::serve) fn add(&mut self, session: SessionId, process: OwnedFd) {
        let data = epoll::EventData::new_u64(u64::from(session.0));
        // Without the watch, its end is known as soon as the supervisor says so.
        let _watched = epoll::add(&self.watch, &process, data, epoll::EventFlags::IN);
        let place = session.0 as usize;
        if self.handles.len() <= place {
            self.handles.resize_with(place + 1, || None);
        }
        self.handles[place] = Some(process);
    }

    pub(in crate::serve) fn forget(&mut self, session: SessionId) {
        let handle = self.handles.get_mut(session.0 as usize).and_then(Option::take);
        if let Some(handle) = handle {
            // It is watched no more, or was not.
            let _removed = epoll::delete(&self.watch, &handle);
        }
    }

    /// Sessions whose process has ended by now; each is returned once.
    pub(in crate::serve) fn ended(&mut self) -> Vec<SessionId> {
        let mut ended = Vec::with_capacity(16);
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut ended);
        // An interrupted look is as good as none: the supervisor will say it.
        let _looked = epoll::wait(&self.watch, room, Some(&none));
        let sessions: Vec<SessionId> =
            ended.iter().map(|event| SessionId(event.data.u64() as u32)).collect();
        for session in &sessions {
            self.forget(*session);
        }
        sessions
    }
}
