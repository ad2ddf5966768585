//! Files that are made at another shard than that of their name, until the request that makes them
//! has opened them.
//!
//! The shard of the name has the file made, sets the name, and sends the request on to the file's
//! home to be opened there, by the file's id: by then others may have removed the name, or set it
//! anew. The name's shard keeps the file's id like an answer, until the lane goes on. A request may
//! come again after any of the daemons was killed. By that id it goes to the same file, and makes
//! no other one.
//!
//! At its home it is noted who made the file until that request has opened it: an exclusive create
//! of somebody else finds a file that is there. A file that loses its last name before becomes an
//! orphan as if its maker had it open; it goes when the process has ended. That holds for processes
//! that the home knows of: of those of another node it need not have heard yet, and then the file
//! goes at once. The request comes back from there, with the number of the file that is gone, and
//! makes another one.

use mayfly_meta::{
    StoreError, key,
    record::{Content, Inode, Layout, Maker, Policy, Step},
};
use mayfly_transport_tcp::Body;
use mayfly_types::{FileId, FileKind, SessionId};

use crate::{
    api::{Caller, Completion},
    fault::{Fault, Outcome},
    log,
    message::{At, Forward, Resolved},
    namespace::state::inode::{Located, Ownership},
    shard::{Shard, state::task::Task},
    shards::numbering::{origin, session_elsewhere},
    transactions::state::transaction::Transaction,
};

/// Stands for the status where the answer is that the file with this id was made and is to be
/// opened at its home.
const STATUS_CREATE_PENDING: u32 = u32::MAX;

impl Transaction {
    /// The file that it makes for its request.
    pub(crate) fn created_file(&self) -> Option<FileId> {
        let mut steps = self.parts().iter().flat_map(|(_, steps)| steps);
        steps.find_map(|step| match step {
            Step::MakeFile { id, .. } => Some(*id),
            _ => None,
        })
    }
}

impl Shard {
    /// Whether a file may have been made by another shard than its home.
    pub(super) fn may_be_placed(&self, inode: &Inode) -> bool {
        let by_policy = matches!(inode.layout.policy, Policy::Local | Policy::Pool);
        let is_placed = by_policy || !self.namespace.seats.are_all_spread();
        is_placed && !self.place.alone && inode.kind() == FileKind::Regular
    }

    pub(super) fn maker(&self, caller: Caller) -> Maker {
        let here = (self.place.numbering.node, caller.session);
        let (node, session) = origin(caller.session).unwrap_or(here);
        Maker { node, session: session.0, request_id: caller.request_id }
    }

    /// A step of an operation: there is a new file, which will get its name.
    pub(crate) fn make_file(
        &mut self,
        id: FileId,
        owner: Ownership,
        inherited: &Layout,
        maker: &Maker,
    ) -> Outcome<()> {
        let inode = self.new_inode(id, owner, Content::Inline(Vec::new()), inherited);
        self.save(&Located { inode: Box::new(inode), fused: None })?;
        self.counters.files += 1;
        Ok(self.store.put(&key::numbered(key::PENDING_CREATE, id), &maker.encode())?)
    }

    /// Whether this request has made the file, and not opened it so far.
    pub(super) fn is_pending_create_of(&mut self, file: FileId, caller: Caller) -> Outcome<bool> {
        let maker = self.maker(caller);
        Ok(!self.place.alone && self.maker_of(file)? == Some(maker))
    }

    /// The file was opened by its maker, or is gone.
    pub(super) fn forget_maker(&mut self, inode: &Inode) -> Outcome<()> {
        let key = key::numbered(key::PENDING_CREATE, inode.id);
        if self.may_be_placed(inode) && self.store.get(&key)?.is_some() {
            self.store.delete(&key)?;
        }
        Ok(())
    }

    /// Whether a file that has lost its last name, and that nobody has open, is still to be opened
    /// by its maker.
    pub(crate) fn is_awaited(&mut self, file: FileId) -> Outcome<bool> {
        if self.place.alone {
            return Ok(false);
        }
        let Some(maker) = self.maker_of(file)? else { return Ok(false) };
        Ok(self.sessions.contains_key(&self.session_of_maker(&maker)))
    }

    fn maker_of(&mut self, file: FileId) -> Outcome<Option<Maker>> {
        let record = self.store.get(&key::numbered(key::PENDING_CREATE, file))?;
        Ok(record.map(Maker::decode).transpose()?)
    }

    /// What its process is called here.
    fn session_of_maker(&self, maker: &Maker) -> SessionId {
        let session = SessionId(maker.session);
        if maker.node == self.place.numbering.node {
            return session;
        }
        session_elsewhere(maker.node, session)
    }

    /// A process has ended: nobody opens any more what it has made.
    pub(crate) fn forget_pending_creates_of(&mut self, session: SessionId) {
        if self.place.alone {
            return;
        }
        let ended = self
            .pending_creates_of(session)
            .map_err(Fault::from)
            .and_then(|made| made.into_iter().try_for_each(|file| self.end_pending_create(file)));
        if let Err(fault) = ended {
            log::error("files without a name", fault.errno());
        }
    }

    fn pending_creates_of(&mut self, session: SessionId) -> Result<Vec<FileId>, StoreError> {
        let mut made = Vec::new();
        for (file, record) in self.marks(key::PENDING_CREATE)? {
            if self.session_of_maker(&Maker::decode(&record)?) == session {
                made.push(file);
            }
        }
        Ok(made)
    }

    fn end_pending_create(&mut self, file: FileId) -> Outcome<()> {
        self.store.delete(&key::numbered(key::PENDING_CREATE, file))?;
        let is_orphan = self.store.get(&key::numbered(key::ORPHAN, file))?.is_some();
        if is_orphan && self.files.opens.file(file).is_none() {
            self.end_orphan(file)?;
        }
        Ok(())
    }

    /// The request goes on to the file that it has made.
    pub(crate) fn open_created(&mut self, task: Task, file: FileId) {
        let Task::Request { caller, op, body } = task else { return };
        self.end_run();
        self.send_to_created(Forward { caller, op, body, place: Resolved::default() }, file);
    }

    fn send_to_created(&mut self, forward: Forward, file: FileId) {
        let at = At::File { id: file, slash: false, by_name: true };
        let place = Resolved { at, ..forward.place };
        self.pass_to(self.place.slots.home(file), Forward { place, ..forward });
    }

    /// What a request of another node's process has made is noted in place of an answer, unless its
    /// lane has gone on.
    pub(crate) fn note_created(&mut self, caller: Caller, file: FileId) {
        if origin(caller.session).is_none() || self.has_later_answer(caller) {
            return;
        }
        let body = Body::from(file.0.to_le_bytes().to_vec());
        self.store_answer(caller, STATUS_CREATE_PENDING, &body);
    }

    /// Whether what is kept as an answer says that the request has made a file which is gone, as
    /// its home says: others have removed its name.
    pub(crate) fn has_lost_what_it_made(&self, forward: &Forward, kept: &Completion) -> bool {
        forward.place.gone.is_some() && made_file(kept) == forward.place.gone
    }

    /// Whether what is kept as an answer says that the request has made a file; then it is sent
    /// there.
    pub(crate) fn go_to_created(&mut self, forward: &Forward, kept: &Completion) -> bool {
        let Some(file) = made_file(kept) else { return false };
        let Forward { caller, op, ref body, ref place } = *forward;
        let (body, place) = (body.clone(), place.clone());
        self.send_to_created(Forward { caller, op, body, place }, file);
        true
    }
}

/// The file that a request has made, if that is kept in place of an answer.
fn made_file(kept: &Completion) -> Option<FileId> {
    let id = kept.body.to_vec().try_into().ok().filter(|_| kept.status == STATUS_CREATE_PENDING);
    id.map(|id| FileId(u64::from_le_bytes(id)))
}
