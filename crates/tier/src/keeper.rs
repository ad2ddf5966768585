//! The threads, and the process around them.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::{AttachOptions, Earlier, ShmTransport, attach};
use mayfly_types::{
    Errno,
    limits::{LANES, TRANSFER_BYTES_MAX},
};
use mayfly_wire::{
    TierAsk, TierDone, TierItem, TierWork,
    tier::{
        TIER_CHECK, TIER_CHUNKS, TIER_CREATE, TIER_FETCH, TIER_FLUSH, TIER_FLUSH_DUE, TIER_LOOK,
        TIER_MAKE_DIRECTORY, TIER_REMOVE, TIER_REMOVE_DIRECTORY, TIER_REMOVE_XATTR, TIER_RENAME,
        TIER_SET_ATTR, TIER_SET_XATTR, TIER_SYMLINK, TIER_XATTRS,
    },
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{AtFlags, Mode},
    pipe::{PipeFlags, pipe_with},
};

use crate::{
    bucket::Store,
    busy::BusyNames,
    bytes,
    chunks::{self, OpenFiles},
    flush, names,
    outcome::Outcome,
    place::{OWN_PREFIX, Place, open_root},
    xattrs,
};

/// Things that are done at a time.
const THREADS: usize = 8;
/// Bytes of an answer that go at once; the rest goes before them.
const PIECE_BYTES: usize = TRANSFER_BYTES_MAX / 2;

const _: () = assert!(THREADS + 1 < LANES);

/// The origins of an instance, and what of it the keeper uses.
#[derive(Debug, Clone)]
pub struct Origins {
    /// The supervisor's socket.
    pub socket: PathBuf,
    /// The node's object directory.
    pub objects: PathBuf,
    /// A directory for notes that outlive the keeper.
    pub notes: PathBuf,
    /// What they are outside, by their numbers.
    pub outside: Vec<Outside>,
    /// Which shard of all is the first one of this node.
    pub shard: u32,
    /// How often the daemon is to look for what is due to be written back.
    pub look_every: Option<Duration>,
}

/// What an origin is.
#[derive(Debug, Clone)]
pub struct Outside {
    /// A directory, or the address of a prefix in a bucket.
    pub path: PathBuf,
    /// Nothing there is changed.
    pub read_only: bool,
}

/// An origin that is open.
enum Root {
    Directory(OwnedFd),
    Bucket(Store),
}

impl Root {
    /// `None`: a directory that is not there now. It may come back, or is shown no more.
    fn open(outside: &Outside) -> Result<Option<Root>> {
        let path = &outside.path;
        if !Store::is_address(path) {
            return Ok(open_root(path).ok().map(Root::Directory));
        }
        let opened = Store::open(path, outside.read_only);
        let opened = opened.map_err(|why| anyhow!("the origin {}: {why}", path.display()))?;
        Ok(Some(Root::Bucket(opened)))
    }
}

/// All that the threads share.
struct Keeper {
    transport: ShmTransport,
    roots: Vec<Option<Root>>,
    origins: Origins,
    names: BusyNames,
    open: OpenFiles,
}

/// Works for the daemon until `stop` hangs up. Calls `ready` when it has begun.
///
/// # Errors
/// When it cannot begin, or the daemon does not answer any more.
pub fn keep(origins: &Origins, stop: impl AsFd, ready: impl FnOnce()) -> Result<()> {
    // Modes come as they are to be.
    rustix::process::umask(Mode::empty());
    let roots = origins.outside.iter().map(Root::open).collect::<Result<Vec<_>>>()?;
    std::fs::create_dir_all(&origins.notes)
        .with_context(|| format!("cannot make {}", origins.notes.display()))?;
    let socket_path = std::os::unix::ffi::OsStrExt::as_bytes(origins.socket.as_os_str());
    let options = AttachOptions { socket_path, fd_min: 3, node: None, earlier: Earlier::Ends };
    let attached = attach(&options)
        .map_err(|errno| anyhow!("cannot attach at {}: {errno}", origins.socket.display()))?;
    let keeper = Arc::new(Keeper {
        transport: attached.transport,
        roots,
        origins: origins.clone(),
        names: BusyNames::default(),
        open: OpenFiles::default(),
    });
    let (served, serving) = pipe_with(PipeFlags::CLOEXEC)?;
    let serving = Arc::new(serving);
    for number in 0..THREADS {
        let (keeper, serving) = (Arc::clone(&keeper), Arc::clone(&serving));
        let work = move || {
            while keeper.work_once() {}
            drop(serving);
        };
        thread::Builder::new().name(format!("tier-{number}")).spawn(work)?;
    }
    if let Some(every) = origins.look_every {
        let (keeper, serving) = (Arc::clone(&keeper), Arc::clone(&serving));
        let look = move || {
            while keeper.look_once() {
                thread::sleep(every);
            }
            drop(serving);
        };
        thread::Builder::new().name("tier-due".to_owned()).spawn(look)?;
    }
    drop(serving);
    ready();
    loop {
        let mut ends = [PollFd::new(&stop, PollFlags::IN), PollFd::new(&served, PollFlags::IN)];
        match poll(&mut ends, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let [stopped, ended] = ends.map(|end| !end.revents().is_empty());
        if stopped {
            return Ok(());
        }
        if ended {
            return Err(anyhow!("the daemon does not answer"));
        }
    }
}

/// An item, copied out of the shared memory.
struct Owned {
    item: TierItem<'static>,
    path: Vec<u8>,
    other: Vec<u8>,
    bytes: Vec<u8>,
}

impl Owned {
    fn of(item: TierItem<'_>) -> Owned {
        let TierItem { number, source, what, again, file, which, .. } = item;
        let TierItem { start, end, known, attr, .. } = item;
        let (path, other, bytes) = (item.path.to_vec(), item.other.to_vec(), item.bytes.to_vec());
        let empty = (&b""[..], &b""[..], &b""[..]);
        let item = TierItem {
            number,
            source,
            what,
            again,
            file,
            path: empty.0,
            other: empty.1,
            bytes: empty.2,
            which,
            start,
            end,
            known,
            attr,
        };
        Owned { item, path, other, bytes }
    }

    fn item(&self) -> TierItem<'_> {
        TierItem { path: &self.path, other: &self.other, bytes: &self.bytes, ..self.item }
    }
}

impl Keeper {
    /// Does one thing; false when there will be nothing more to do.
    fn work_once(&self) -> bool {
        let got = self.transport.exchange(&TierWork {}, Patience::Endless, |answer| match answer {
            Answer::Done(item) => Ok(Owned::of(item)),
            Answer::Failed(errno) => Err(errno),
            Answer::Escaped(_) => Err(Errno::EPROTO),
        });
        let Ok(owned) = got else { return false };
        let item = owned.item();
        let done = self.perform(&item);
        self.tell(&item, done)
    }

    /// Has what is due written back, and waits for that; false when the daemon does not answer.
    fn look_once(&self) -> bool {
        let ask = TierAsk { what: TIER_FLUSH_DUE, shard: self.origins.shard, path: b"" };
        let asked = self.transport.exchange(&ask, Patience::Endless, |answer| match answer {
            Answer::Done(_) => Ok(()),
            Answer::Failed(errno) => Err(errno),
            Answer::Escaped(_) => Err(Errno::EPROTO),
        });
        asked.is_ok()
    }

    fn perform(&self, item: &TierItem<'_>) -> Result<Outcome, Errno> {
        // An earlier daemon may have given the same to another thread. Whatever comes of this one,
        // that is over then.
        let _busy = self.names.take(item);
        let outside = self.origins.outside.get(item.source as usize).ok_or(Errno::EINVAL)?;
        let late;
        let name = item.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if item.what == TIER_CHECK && name.starts_with(OWN_PREFIX) {
            return Err(Errno::ENOENT);
        }
        let root = match self.roots.get(item.source as usize) {
            Some(Some(root)) => root,
            _ => {
                late = Root::Directory(open_root(&outside.path)?);
                &late
            }
        };
        let root = match root {
            Root::Directory(root) => root,
            Root::Bucket(store) => {
                return store.perform(item, || self.object(item), &self.origins.notes);
            }
        };
        let place = Place::find(root, item.path)?;
        match item.what {
            TIER_LOOK => names::look(&place, &item.known),
            TIER_CHECK => names::check(&place),
            TIER_FETCH => bytes::fetch(&place, &self.object(item)?),
            TIER_CHUNKS => chunks::fetch(&self.open, &place, item, &self.object(item)?),
            TIER_FLUSH => flush::flush(&place, item, &self.origins.objects, &self.origins.notes),
            TIER_CREATE => names::create(&place, item),
            TIER_MAKE_DIRECTORY => names::make_directory(&place, item),
            TIER_SYMLINK => names::symlink(&place, item),
            TIER_REMOVE => names::remove(&place, item, AtFlags::empty()),
            TIER_REMOVE_DIRECTORY => names::remove(&place, item, AtFlags::REMOVEDIR),
            TIER_RENAME => names::rename(root, &place, item),
            TIER_SET_ATTR => names::set_attr(&place, item),
            TIER_XATTRS => xattrs::list(&place),
            TIER_SET_XATTR => xattrs::set(&place, item),
            TIER_REMOVE_XATTR => xattrs::remove(&place, item),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn object(&self, item: &TierItem<'_>) -> Result<PathBuf, Errno> {
        flush::object_path(&self.origins.objects, item.other)
    }

    /// Says what came of an item; false when nobody hears.
    fn tell(&self, item: &TierItem<'_>, done: Result<Outcome, Errno>) -> bool {
        let (status, outcome) = match done {
            Ok(outcome) => (outcome.status, outcome),
            Err(errno) => (errno.raw() as u32, Outcome::default()),
        };
        let Outcome { same, attr, bytes, .. } = outcome;
        let mut pieces: Vec<&[u8]> = bytes.chunks(PIECE_BYTES).collect();
        let last = pieces.pop().unwrap_or_default();
        let said = |more: bool, bytes: &[u8]| {
            let done = TierDone { number: item.number, status, more, same, attr, bytes };
            self.transport.exchange(&done, Patience::Endless, |answer| match answer {
                Answer::Done(()) => Ok(()),
                Answer::Failed(errno) => Err(errno),
                Answer::Escaped(_) => Err(Errno::EPROTO),
            })
        };
        let told = pieces.into_iter().try_for_each(|piece| said(true, piece));
        match told.and_then(|()| said(false, last)) {
            Ok(()) => {
                if item.what == TIER_FLUSH && status == 0 {
                    flush::forget_note(&self.origins.notes, item);
                }
                true
            }
            // An earlier daemon gave it, or somebody else has it now.
            Err(Errno::ESTALE | Errno::EFBIG) => {
                self.undo(item);
                true
            }
            Err(_) => false,
        }
    }

    /// Nobody knows of an object that was filled for an earlier daemon.
    fn undo(&self, item: &TierItem<'_>) {
        // Of an object that has chunks the next daemon knows, unless there was none yet.
        let makes = item.what == TIER_CHUNKS && item.which != 0;
        if (item.what == TIER_FETCH || makes)
            && let Ok(object) = self.object(item)
        {
            remove(&object);
        }
    }
}

fn remove(object: &Path) {
    // A daemon that knows of it may have been faster.
    let _ = std::fs::remove_file(object);
}
