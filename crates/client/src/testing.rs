//! A transport that answers from a script, and tables of a node in ordinary memory.

use std::{
    boxed::Box,
    sync::{Mutex, PoisonError},
    vec,
    vec::Vec,
};

use mayfly_transport::{Answer, Patience, Transport};
use mayfly_transport_shm::layout::{FileEntry, NodeHead, OpenEntry};
use mayfly_types::{Errno, OpenRef};
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
    let mut bytes = vec![0; 1 << 18];
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
}

impl Transport for Scripted {
    fn exchange<'a, O: Operation<'a>, T>(
        &self,
        request: &O,
        _patience: Patience,
        take: impl for<'r> FnOnce(Answer<'r, O::Reply<'r>>) -> T,
    ) -> T {
        let mut bytes = vec![0; 1 << 18];
        let mut to = Writer::new(&mut bytes);
        request.encode(&mut to).expect("room");
        let used = to.used();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(O::OP);
        let request = Request::decode(O::OP, &bytes[..used]).expect("own encoding");
        let reply = (self.script.lock().unwrap_or_else(PoisonError::into_inner))(request);
        match reply {
            Reply::Failed(errno) => take(Answer::Failed(errno)),
            Reply::Escaped(path) => take(Answer::Escaped(path)),
            Reply::Body(body) => {
                let mut from = Reader::new(&body);
                take(Answer::Done(O::Reply::decode(&mut from).expect("a reply of this operation")))
            }
        }
    }

    fn post<'a, O: Operation<'a>>(&self, request: &O) -> Result<(), Errno> {
        self.exchange(request, Patience::Deadline, |_| Ok(()))
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
    let transport =
        Scripted { script: Mutex::new(Box::new(script)), asked: Mutex::new(Vec::new()) };
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
