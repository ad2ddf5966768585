//! A transport that answers from a script, and tables of a node in ordinary memory.

use std::{
    boxed::Box,
    sync::{Mutex, PoisonError},
    vec,
    vec::Vec,
};

use mayfly_transport::{Answer, Patience, Pending, Transport};
use mayfly_transport_shm::layout::{FileEntry, NodeHead, OpenEntry};
use mayfly_types::{Errno, OpenRef, limits::REQUEST_BYTES_MAX};
use mayfly_wire::{Op, Operation, Reader, Request, Wire, Writer};

use crate::{Client, Descriptors, Node, ObjectDirectory};

/// What a script answers: the bytes of a reply, or why not.
pub(crate) enum Reply {
    Body(Vec<u8>),
    Failed(Errno),
    Escaped(&'static [u8]),
}

/// The bytes of a reply.
pub(crate) fn body<'a>(reply: &impl Wire<'a>) -> Reply {
    let mut bytes = vec![0; REQUEST_BYTES_MAX];
    let mut to = Writer::new(&mut bytes);
    reply.encode(&mut to).expect("room");
    let used = to.used();
    bytes.truncate(used);
    Reply::Body(bytes)
}

type Script = Box<dyn FnMut(Request<'_>) -> Reply + Send>;

/// Answers every request by calling the script, and notes what was asked.
pub(crate) struct Scripted {
    script: Mutex<Script>,
    pub(crate) asked: Mutex<Vec<Op>>,
    /// Requests that were begun, by their numbers.
    pending: Mutex<Vec<Vec<u8>>>,
    /// How many were under way at a time.
    pub(crate) most: Mutex<usize>,
}

impl Transport for Scripted {
    fn exchange<'a, O: Operation<'a>, T>(
        &self,
        request: &O,
        _patience: Patience,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        self.answer::<O, T>(&encoded(request), take)
    }

    fn begin<'a, O: Operation<'a>>(&self, request: &O) -> Option<Pending> {
        let mut pending = lock(&self.pending);
        pending.push(encoded(request));
        let under_way = pending.iter().filter(|request| !request.is_empty()).count();
        let mut most = lock(&self.most);
        *most = under_way.max(*most);
        Some(Pending { lane: 0, id: pending.len() as u64 - 1, at: 0 })
    }

    fn finish<'a, O: Operation<'a>, T>(
        &self,
        pending: Pending,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        let request = core::mem::take(&mut lock(&self.pending)[pending.id as usize]);
        self.answer::<O, T>(&request, take)
    }

    fn send_unawaited<'a, O: Operation<'a>>(&self, request: &O) -> Result<(), Errno> {
        self.exchange(request, Patience::Deadline, |_| Ok(()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn encoded<'a>(request: &impl Operation<'a>) -> Vec<u8> {
    let mut bytes = vec![0; REQUEST_BYTES_MAX];
    let mut to = Writer::new(&mut bytes);
    request.encode(&mut to).expect("room");
    let used = to.used();
    bytes.truncate(used);
    bytes
}

impl Scripted {
    fn answer<'a, O: Operation<'a>, T>(
        &self,
        request: &[u8],
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        lock(&self.asked).push(O::OP);
        let request = Request::decode(O::OP, request).expect("own encoding");
        let reply = (lock(&self.script))(request);
        match reply {
            Reply::Failed(errno) => take(Answer::Failed(errno)),
            Reply::Escaped(path) => take(Answer::Escaped(path)),
            Reply::Body(body) => {
                let mut from = Reader::new(&body);
                take(Answer::Done(O::Reply::decode(&mut from).expect("a reply of this operation")))
            }
        }
    }
}

/// Leaves descriptors where they are.
pub(crate) struct InPlace;

impl Descriptors for InPlace {
    fn conceal(&self, descriptor: i32) -> Result<i32, Errno> {
        Ok(descriptor)
    }

    fn release(&self, descriptor: i32) {
        mayfly_sys::file::close(descriptor);
    }
}

fn zeroed<E>(count: usize) -> &'static [E] {
    let bytes = count * size_of::<E>();
    let start = mayfly_sys::memory::map_anonymous(bytes).expect("memory").cast::<E>();
    // SAFETY: entries consist of atomics, for which zeros are valid; the mapping is never undone.
    unsafe { core::slice::from_raw_parts(start.as_ptr(), count) }
}

/// A client with empty tables of a few entries.
pub(crate) fn client(
    directory: i32,
    script: impl FnMut(Request<'_>) -> Reply + Send + 'static,
) -> Client<Scripted, InPlace> {
    let script: Script = Box::new(script);
    let (asked, pending, most) = Default::default();
    let transport = Scripted { script: Mutex::new(script), asked, pending, most };
    let head = &zeroed::<NodeHead>(1)[0];
    let node = Node { head, opens: zeroed::<OpenEntry>(4), files: zeroed::<FileEntry>(4) };
    Client::new(transport, node, ObjectDirectory(directory), InPlace).expect("memory")
}

/// Index 1 of both tables, for a file with this id that is open with these flags.
pub(crate) fn open_entry(client: &Client<Scripted, InPlace>, id: u64, flags: u32) -> OpenRef {
    use core::sync::atomic::Ordering::Relaxed;
    let entry = &client.node.opens[1];
    entry.state.store(mayfly_transport_shm::layout::OPEN_PRIVATE, Relaxed);
    entry.flags.store(flags, Relaxed);
    entry.file.store(1, Relaxed);
    entry.id.store(id, Relaxed);
    entry.kind.store(1, Relaxed);
    client.node.files[1].id.store(id, Relaxed);
    OpenRef { index: 1, generation: 0 }
}

/// A directory for objects that goes away with the test.
pub(crate) struct Objects {
    pub(crate) path: std::path::PathBuf,
    pub(crate) descriptor: i32,
}

impl Objects {
    pub(crate) fn new(name: &str) -> Objects {
        let name = std::format!("mayfly-client-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        let text = mayfly_sys::text::PathText::from_bytes(path.as_os_str().as_encoded_bytes());
        let flags = mayfly_sys::file::O_DIRECTORY | mayfly_sys::file::O_PATH;
        let descriptor =
            mayfly_sys::file::open_at(mayfly_sys::file::AT_FDCWD, &text.expect("short"), flags, 0);
        Objects { path, descriptor: descriptor.expect("a directory") }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        mayfly_sys::file::close(self.descriptor);
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
