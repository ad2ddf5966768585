//! Images that processes ask for: one maker for each library, however many wait for it.
//!
//! The supervisor itself reads no library: a child makes the image ([`crate::processes::image`])
//! and its exit is the answer. A library that is unfit is remembered, so that a program that is
//! started a thousand times costs one attempt.

use std::{
    collections::HashSet,
    fs::File,
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use mayfly_image::format;
use mayfly_transport_shm::image::{ImageRequest, KEY_BYTES_MAX};
use mayfly_types::{
    Errno,
    limits::{IMAGE_WAITERS_MAX, IMAGES_MADE_MAX},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
};

use super::process_end;
use super::{Source, ears::Around, sessions};
use crate::{
    Config, log,
    processes::image::{IMAGE, UNFIT, hexadecimal},
};

/// Libraries remembered because there is no image of them; beyond that all are tried again.
const REFUSED_MAX: usize = 256;
/// How long a maker may finish when the instance ends.
const FINISH_MAX: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// By this one library is known from another. It does not say where a process has mapped it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    key: Vec<u8>,
    text_vaddr: u64,
    text_bytes: u64,
}

impl Identity {
    fn of(request: &ImageRequest) -> Identity {
        Identity {
            key: request.key().to_vec(),
            text_vaddr: request.text_vaddr,
            text_bytes: request.text_bytes,
        }
    }
}

/// A process that waits for an image, and where it has the code.
struct Waiting {
    connection: OwnedFd,
    pid: u32,
    request: ImageRequest,
}

struct Maker {
    number: u32,
    identity: Identity,
    child: Child,
    exit: OwnedFd,
    /// Beginning with the one in whose process the maker looks.
    waiting: Vec<Waiting>,
}

#[derive(Default)]
pub(super) struct Images {
    makers: Vec<Maker>,
    refused: HashSet<Identity>,
    last: u32,
}

impl Images {
    /// Process `pid` at the other end of `connection` wants an image; it is answered when there is
    /// one, or none to be had.
    pub(super) fn ask(
        &mut self,
        connection: OwnedFd,
        pid: u32,
        request: &ImageRequest,
        around: &Around<'_>,
    ) {
        let config = around.config;
        let identity = Identity::of(request);
        let who = Waiting { connection, pid, request: *request };
        let waiting = self.makers.iter().map(|maker| maker.waiting.len()).sum::<usize>();
        if self.refused.contains(&identity) {
            refuse(&who.connection, config, Errno::ENOEXEC);
        } else if waiting >= IMAGE_WAITERS_MAX {
            refuse(&who.connection, config, Errno::EBUSY);
        } else if let Some(maker) = self.makers.iter_mut().find(|one| one.identity == identity) {
            maker.waiting.push(who);
        } else if self.makers.len() >= IMAGES_MADE_MAX {
            refuse(&who.connection, config, Errno::EBUSY);
        } else {
            self.start(vec![who], around);
        }
    }

    /// Starts a maker that looks in the process of the first who waits.
    fn start(&mut self, waiting: Vec<Waiting>, around: &Around<'_>) {
        let Some(first) = waiting.first() else { return };
        self.last = self.last.wrapping_add(1);
        match Maker::start(self.last, first.pid, &first.request, around) {
            Ok(maker) => self.makers.push(Maker { waiting, ..maker }),
            Err(error) => {
                log::warn(format_args!("{error:#}"));
                waiting.iter().for_each(|who| refuse(&who.connection, around.config, Errno::EIO));
            }
        }
    }

    /// A maker is done.
    pub(super) fn made(&mut self, number: u32, around: &Around<'_>) {
        let config = around.config;
        let Some(place) = self.makers.iter().position(|maker| maker.number == number) else {
            return;
        };
        let mut maker = self.makers.swap_remove(place);
        around.watch.remove(&maker.exit);
        let code = maker.child.wait().ok().and_then(|status| status.code());
        let made = if code == Some(0) { open(config, &maker.identity) } else { None };
        if code == Some(UNFIT) {
            if self.refused.len() >= REFUSED_MAX {
                self.refused.clear();
            }
            self.refused.insert(maker.identity);
        }
        // The process in which it looked may have ended; what the others have mapped is there.
        let tries_again = made.is_none() && code != Some(UNFIT);
        let left = match tries_again {
            true => maker.waiting.split_off(maker.waiting.len().min(1)),
            false => Vec::new(),
        };
        for who in maker.waiting {
            match &made {
                Some(image) => give(&who.connection, config, image),
                None => refuse(&who.connection, config, Errno::ENOEXEC),
            }
        }
        self.start(left, around);
    }

    /// The instance ends: what is nearly done finishes, so that it leaves no half of a file.
    pub(super) fn end(&mut self) {
        for mut maker in self.makers.drain(..) {
            let mut exit = [PollFd::from_borrowed_fd(maker.exit.as_fd(), PollFlags::IN)];
            if !matches!(poll(&mut exit, Some(&FINISH_MAX)), Ok(1)) {
                let _ = maker.child.kill();
            }
            let _ = maker.child.wait();
        }
    }
}

impl Maker {
    fn start(number: u32, pid: u32, request: &ImageRequest, around: &Around<'_>) -> Result<Maker> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(IMAGE)
            .arg(&around.config.image_dir)
            .arg(pid.to_string())
            .arg(hexadecimal(&request.encode()))
            .stdin(Stdio::null())
            .stderr(around.ear.for_child()?)
            .spawn()
            .context("cannot start the making of an image")?;
        let raw = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let exit = raw.context("a process has a number").and_then(|raw| {
            let exit = process_end::of(raw)?;
            around.watch.add(&exit, Source::Maker(number))?;
            Ok(exit)
        });
        match exit {
            Ok(exit) => {
                let identity = Identity::of(request);
                Ok(Maker { number, identity, child, exit, waiting: Vec::new() })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

/// The image in the cache.
fn open(config: &Config, identity: &Identity) -> Option<File> {
    let mut name = [0; 2 * KEY_BYTES_MAX + 16];
    let bytes = format::file_name(&identity.key, &mut name)?;
    let name = std::str::from_utf8(name.get(..bytes)?).ok()?;
    File::open(config.image_dir.join(name)).ok()
}

/// A descriptor goes along: the process may not see the cache.
fn give(connection: &OwnedFd, config: &Config, image: &File) {
    sessions::answer(connection, 0, 0, config.instance, &[image.as_fd()]);
}

fn refuse(connection: &OwnedFd, config: &Config, why: Errno) {
    sessions::answer(connection, 0, why.raw() as u32, config.instance, &[]);
}
