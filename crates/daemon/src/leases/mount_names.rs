//! Names, and attributes of files, that the kernels of mounts believe for a while.
//!
//! A mount asks for a lease of names before it lets its kernel believe them ([`Shard::lease`]).
//! Whoever changes such a name or such a file, but for a program of that same mount, is executed
//! when the mount has had its kernel forget, or when the lease is over by time. It hears of the
//! name with the answer to its `Watch`, as of changes of mapped files ([`super::mounts`]).
//!
//! **Which names.** Those that the shard owns which the processes of the mount's node ask first,
//! and the attributes of regular files at rest, by the rules by which other nodes are told of them
//! ([`super::attributes`]). Absent names are not leased, nor are attributes of directories. A name
//! that was recalled is not leased again for a moment.
//!
//! **Names that change without asking.** Nobody makes or removes names by himself in a directory
//! of which a mount believes one: a lease ends the delegation, and while it lasts there is no new
//! one. Where the names of a directory have changed a moment ago by what was submitted there, the
//! lease is refused instead. So there is one rule for mounts and for other nodes.
//!
//! **The mount that changes something itself.** Its kernel knows, and holds the lock of the
//! directory meanwhile, for which a notice would wait. So it is not told. A name that it moves
//! takes the lease along.
//!
//! **A daemon that was started anew** does not know what was told. It changes nothing until all
//! mounts that the last one knew have forgotten everything, or every lease is over.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_types::{FileId, FileKind, SessionId, limits::LEASED_NAMES_MAX};
use mayfly_wire::{
    Lease, Leased, Request, Wire, Writer,
    notices::{LEASED_ATTRIBUTES, LEASED_NAME, LEASED_NOTHING, names},
};

use crate::{
    api::Caller,
    fault::{Fault, Outcome, Served},
    leases::mounts::body_of,
    namespace::{open::opens_to_read, state::walk::Place},
    shard::Shard,
    shards::planted::{Planted, is_planted},
    transactions::state::prepare_locks::PrepareLock,
};

impl Shard {
    /// The request of this session is executed from here on, or nobody's.
    pub(crate) fn acts(&mut self, session: Option<SessionId>) {
        self.leases.mount_names.acting = session;
    }

    /// Which names of a directory the kernel of the caller's mount may believe.
    pub(crate) fn lease(
        &mut self,
        caller: Caller,
        lease: &Lease<'_>,
        to: &mut Writer<'_>,
    ) -> Outcome<Served> {
        let mut what = Vec::new();
        let is_told = self.leases.mounts.is_clean(caller.session) && !self.has_tier();
        for of in names(lease.names).take(LEASED_NAMES_MAX) {
            what.push(match is_told {
                true => self.lease_name(caller.session, of.directory, of.name)?,
                false => LEASED_NOTHING,
            });
        }
        if what.iter().any(|what| *what != LEASED_NOTHING) {
            let until = self.waited_until().clamp(0, i64::from(u32::MAX)) as u32;
            self.node.head.mounts.leases_until.fetch_max(until, Relaxed);
        }
        let seconds = u32::try_from(self.config.leases.seconds).unwrap_or(0);
        Leased { seconds, what: &what }.encode(to)?;
        Ok(Served::Replied)
    }

    fn lease_name(&mut self, mount: SessionId, directory: FileId, name: &[u8]) -> Outcome<u8> {
        let now = self.leases.now;
        if !self.owns(directory, name)
            || self.leases.mount_names.is_paused(directory, name, now)
            || now < self.leases.mount_names.unknown_until
        {
            return Ok(LEASED_NOTHING);
        }
        match self.may_be_leased(directory, name) {
            Ok(Some((id, what))) => {
                let (of, attributes) = ((directory, name), what == LEASED_ATTRIBUTES);
                let until = self.waited_until();
                let names = &mut self.leases.mount_names;
                let noted = names.note(of, (id, attributes), mount, (now, until));
                Ok(if noted { what } else { LEASED_NOTHING })
            }
            // What is being changed is not believed; nor is what other shards would have to say.
            Ok(None)
            | Err(Fault::Errno(_) | Fault::Busy | Fault::Ask(_) | Fault::Elsewhere(..)) => {
                Ok(LEASED_NOTHING)
            }
            Err(fault) => Err(fault),
        }
    }

    fn may_be_leased(&mut self, directory: FileId, name: &[u8]) -> Outcome<Option<(FileId, u8)>> {
        let Some((_, kind)) = self.lookup(directory, name)? else { return Ok(None) };
        // Names in a table are changed by processes, who tell nobody. The same goes for what they
        // have executed by now.
        let delegated = self.covering(directory).is_some();
        let rests = || kind == FileKind::Regular || delegated;
        if rests() && !self.is_directory_at_rest(directory)? && self.covering(directory).is_some() {
            return Ok(None);
        }
        let Some((id, kind)) = self.lookup(directory, name)? else { return Ok(None) };
        let claim = [(PrepareLock::Name(directory, name.to_vec()), true)];
        if self.transactions.prepare_locks.in_the_way(&claim, None).is_some() {
            return Ok(None);
        }
        Ok(match kind {
            FileKind::Directory | FileKind::Symlink => Some((id, LEASED_NAME)),
            FileKind::Regular if self.is_home(id) => {
                self.links_at_rest(id)?;
                let cookie = mayfly_meta::key::cookie(directory, name);
                let inode = self.load_under(id, directory, cookie, name.to_vec())?.inode;
                let at_rest = !inode.unsettled && self.is_at_rest(directory, name, &inode);
                Some((id, if at_rest { LEASED_ATTRIBUTES } else { LEASED_NAME }))
            }
            _ => None,
        })
    }

    /// Whether the kernel of a mount believes the name, which does not know of the change.
    pub(crate) fn is_believed(&self, directory: FileId, name: &[u8]) -> bool {
        let names = &self.leases.mount_names;
        !names.is_empty()
            && names.is_held(directory, name, self.leases.now)
            && !is_planted(Planted::MountNotTold)
    }

    /// A name is about to change: has the mounts that believe it forget it, but for the one that
    /// changes it. To be asked for again until nobody is waited for.
    pub(crate) fn ask_mounts(
        &mut self,
        directory: FileId,
        name: &[u8],
        spared: Option<SessionId>,
    ) -> Outcome<()> {
        let now = self.leases.now;
        if self.leases.mount_names.is_empty() || is_planted(Planted::MountNotTold) {
            return Ok(());
        }
        let (id, asked) = self.leases.mount_names.recall((directory, name), spared, now);
        for session in asked {
            let Some(mount) = self.leases.mounts.all.get_mut(&session) else {
                self.leases.mount_names.let_go(directory, name, session);
                continue;
            };
            mount.names.push_back((directory, id, name.to_vec()));
            if let Some(caller) = mount.waits.take() {
                let news = mount.take();
                self.complete(caller, body_of(news));
            }
        }
        self.wait_for_mounts(directory, name)
    }

    /// Waits until the mounts that were asked to forget the name have done so.
    pub(crate) fn wait_for_mounts(&mut self, directory: FileId, name: &[u8]) -> Outcome<()> {
        match self.leases.mount_names.waits(directory, name, self.leases.now) {
            true => Err(Fault::Busy),
            false => Ok(()),
        }
    }

    /// A file is about to change: mounts that believe its attributes forget them first.
    pub(crate) fn have_mounts_forget_file(&mut self, id: FileId) -> Outcome<()> {
        let Some((directory, name)) = self.leases.mount_names.name_of(id) else { return Ok(()) };
        let (name, acting) = (name.to_vec(), self.leases.mount_names.acting);
        self.ask_mounts(directory, &name, acting)
    }

    /// The mount whose request this is moves names by itself.
    pub(crate) fn mount_moves(&mut self, from: &Place, to: &Place, exchange: bool) {
        let Some(mount) = self.leases.mount_names.acting else { return };
        let now = self.leases.now;
        let ends = [(from, to), (to, from)];
        for (from, to) in ends.into_iter().take(if exchange { 2 } else { 1 }) {
            let (from, to) = ((from.directory, &*from.name), (to.directory, &*to.name));
            self.leases.mount_names.moved(from, to, mount, now);
        }
    }

    /// What a mount was asked to forget it has forgotten, when it comes for more.
    pub(crate) fn has_forgotten(&mut self, mount: SessionId, names: &[(FileId, Vec<u8>)]) {
        for (directory, name) in names {
            self.leases.mount_names.let_go(*directory, name, mount);
        }
        let (clean, names) = (self.leases.mounts.clean(), &mut self.leases.mount_names);
        let known = &self.node.head.mounts.known;
        if names.unknown_until > 0 && clean >= known.load(Relaxed) {
            names.unknown_until = 0;
            self.wake_blocked();
        }
        if self.leases.mount_names.unknown_until == 0 {
            known.store(clean, Relaxed);
        }
    }

    /// The names that an earlier daemon has told may be believed still.
    pub(crate) fn expect_old_names(&mut self) {
        let until = i64::from(self.node.head.mounts.leases_until.load(Relaxed));
        self.look_at_clocks();
        let believed = self.has_rings()
            && self.node.head.mounts.known.load(Relaxed) > 0
            && self.leases.now < until;
        self.leases.mount_names.unknown_until = if believed { until } else { 0 };
    }

    /// Whether a request has to wait until it is known what mounts believe.
    pub(crate) fn waits_for_old_names(&self, request: &Request<'_>) -> bool {
        self.leases.now < self.leases.mount_names.unknown_until
            && match request {
                Request::Open(open) => !opens_to_read(open.flags),
                Request::Unlink(_)
                | Request::Rename(_)
                | Request::Link(_)
                | Request::SetAttr(_)
                | Request::SetXattr(_)
                | Request::RemoveXattr(_) => true,
                _ => false,
            }
    }

    /// The same of what other shards ask.
    pub(crate) fn has_old_names(&self) -> bool {
        self.leases.now < self.leases.mount_names.unknown_until
    }

    /// Looks in time whether somebody has waited long enough.
    pub(crate) fn forget_in_time(&mut self) {
        if self.leases.mount_names.is_due() && self.leases.mount_names.is_over(self.leases.now) {
            self.wake_blocked();
        }
    }
}
