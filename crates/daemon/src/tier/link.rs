//! The directories that show origins, when a daemon begins.

use std::sync::atomic::Ordering::Relaxed;

use mayfly_meta::{
    Scan, key,
    record::{Begun, BirthKey, Dentry, Inode, Master, Origin},
};
use mayfly_object::ObjectId;
use mayfly_transport_shm::layout::FILE_APPEND_BY_REQUEST;
use mayfly_types::{Errno, FileId, FileKind, SessionId, Timestamp, limits::TIER_LONG_LOOK_MS};
use mayfly_wire::tier::TierCounts;

use crate::{
    fault::{Fault, Outcome},
    maps::HashSet,
    namespace::state::{
        inode::Ownership,
        walk::{Last, Place},
    },
    shard::{OpenError, Shard},
    shards::planted::{Planted, is_planted},
    tier::{
        gates::bytes_here,
        state::{
            journal::Changes,
            roots::Root,
            source::{Link, Note, Source},
        },
    },
};

/// What is counted of the origins: files, and bytes that are here.
type Counted = Vec<(u64, u64)>;

fn count(counted: &mut Counted, inode: &Inode) {
    let Some(origin) = inode.origin.filter(|_| inode.links > 0) else { return };
    if let Some((files, bytes)) = counted.get_mut(origin.source as usize) {
        *files += 1;
        *bytes += bytes_here(inode.kind(), &origin);
    }
}

impl Shard {
    /// The instance has these origins, which were the same when it was begun. What was seen of them
    /// is believed for `valid_ms`, or for ever. Before the first request.
    ///
    /// # Errors
    /// [`OpenError`]; ENOTDIR where a directory cannot be.
    pub fn link_origins(&mut self, links: &[Link], valid_ms: Option<u64>) -> Result<(), OpenError> {
        if links.is_empty() {
            return Ok(());
        }
        if !self.place.alone && self.namespace.seats.are_all_spread() {
            return Err(OpenError::Failed(Errno::EOPNOTSUPP));
        }
        self.look_at_clocks();
        self.take_up_roots()?;
        if self.is_home(FileId::ROOT) {
            for (source, link) in links.iter().enumerate() {
                if !self.is_ended(source)? {
                    self.link_one(source as u32, link)?;
                }
            }
        }
        let counted = self.count_origins(links.len())?;
        let sources = links.iter().zip(counted);
        self.tier.sources = sources
            .map(|(link, (files, cached_bytes))| Source {
                read_only: link.read_only,
                names_async: link.names_async,
                inside: link.path.clone(),
                files,
                cached_bytes,
                conflicts: 0,
                errors: 0,
                is_gone: false,
                counts: TierCounts::NONE,
            })
            .collect();
        self.tier.valid_ms = valid_ms;
        self.tier.keeper.patience_ms = TIER_LONG_LOOK_MS;
        self.node.head.tier.for_ever.store(u32::from(valid_ms.is_none()), Relaxed);
        self.tier.last = u64::from(self.counters().restarts) << 32;
        self.take_up_dirty()?;
        self.take_up_chunks()?;
        self.take_up_late()?;
        self.take_up_journal()?;
        self.take_up_changes()?;
        self.take_up_conflicts()?;
        self.take_up_pins()?;
        for source in 0..links.len() {
            if self.is_ended(source)? {
                self.end_source(source)?;
            }
        }
        self.take_up_appenders()?;
        self.commit().map_err(OpenError::Failed)?;
        Ok(())
    }

    /// The directory that shows the origin.
    fn link_one(&mut self, source: u32, link: &Link) -> Outcome<()> {
        let root = Root { source, path: Vec::new() };
        if let Some(known) = self.tier.roots.find(&root) {
            return self.note_above(known);
        }
        let mut directory = FileId::ROOT;
        for name in link.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            directory = match self.lookup(directory, name)? {
                Some((id, FileKind::Directory)) => id,
                Some(_) => return Err(Errno::ENOTDIR.into()),
                None => {
                    let place = new_place(directory, name);
                    let parent = self.load_parent(directory)?;
                    let owner =
                        Ownership { mode: 0o755, uid: self.config.uid, gid: self.config.gid };
                    self.add_directory(&place, parent, owner)?
                }
            };
        }
        let mut located = self.load_own(directory)?;
        if located.inode.origin.is_none() {
            let mtime = Timestamp::default();
            let origin = Origin { source, mtime, ..Origin::default() };
            located.inode.origin = Some(origin);
            located.inode.residency = Master::default().encode();
            located.inode.unlisted = true;
            self.save(&located)?;
        }
        self.show_root(directory, root)?;
        self.note_above(directory)
    }

    /// What leads to the directory stays where it is, if others tell the path by heart.
    fn note_above(&mut self, mut directory: FileId) -> Outcome<()> {
        while !self.place.alone && directory != FileId::ROOT && self.is_home(directory) {
            directory = self.load_own(directory)?.directory()?.parent;
            self.tier.roots.note_above(directory);
        }
        Ok(())
    }

    fn count_origins(&mut self, sources: usize) -> Result<Counted, OpenError> {
        let mut counted = vec![(0, 0); sources];
        self.store.scan(&[key::DENTRY], &[key::DENTRY], &mut |_, record| {
            if let Ok(Dentry::Fused(inode)) = Dentry::decode(record) {
                count(&mut counted, &inode);
            }
            Scan::More
        })?;
        self.store.scan(&[key::INODE], &[key::INODE], &mut |_, record| {
            if let Ok(inode) = Inode::decode_own(record) {
                count(&mut counted, &inode);
            }
            Scan::More
        })?;
        Ok(counted)
    }

    fn take_up_dirty(&mut self) -> Result<(), OpenError> {
        if is_planted(Planted::DirtyForgotten) {
            return Ok(());
        }
        for (id, record) in self.marks(key::DIRTY)? {
            self.tier.dirty.insert(id, BirthKey::decode(&record)?);
        }
        self.show_dirty();
        Ok(())
    }

    /// Objects that are being removed now may be made after that by who works outside, for the last
    /// daemon or for one before it. Those of earlier ones are removed once more now.
    fn take_up_late(&mut self) -> Outcome<()> {
        let mut late: HashSet<ObjectId> = HashSet::default();
        self.store.scan(&[key::LATE], &[key::LATE], &mut |key, _| {
            let object = key::split_late(key);
            late.extend(object.map(|(file, generation)| ObjectId { file, generation }));
            Scan::More
        })?;
        for object in late.clone() {
            self.store.put(&key::doomed(object.file, object.generation), &[1])?;
            self.files.background.doomed.push(object);
        }
        for ObjectId { file, generation } in &self.files.background.doomed {
            self.store.put(&key::late(*file, *generation), &[1])?;
        }
        late.extend(self.files.background.doomed.iter().copied());
        self.tier.keeper.may_make = late;
        self.tier.keeper.earlier = self.sessions.keys().copied().collect();
        Ok(())
    }

    /// Changes that were begun outside by requests which may come again.
    fn take_up_changes(&mut self) -> Result<(), OpenError> {
        for (of, record) in self.marks(key::THROUGH)? {
            let (session, lane) = (SessionId((of.0 >> 32) as u32), of.0 as u32);
            if self.is_known(session) {
                let Begun { request_id, names } = Begun::decode(&record)?;
                let changes = Changes { request_id, names, earlier: true };
                self.tier.journal.begun.insert((session, lane), changes);
            } else {
                self.store.delete(&key::numbered(key::THROUGH, of))?;
            }
        }
        Ok(())
    }

    fn take_up_conflicts(&mut self) -> Result<(), OpenError> {
        for (number, record) in self.marks(key::CONFLICT)? {
            self.tier.notes.last_conflict = self.tier.notes.last_conflict.max(number.0);
            let Some((source, names)) = record.split_first_chunk() else { continue };
            let source = u32::from_le_bytes(*source);
            let mut names = names.split(|byte| *byte == 0).map(<[u8]>::to_vec);
            let (path, copy) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
            self.tier.note(Note { source, errno: 0, path, copy });
        }
        Ok(())
    }

    /// Files that were open when the last daemon died: nobody appends to them by itself.
    fn take_up_appenders(&mut self) -> Result<(), Fault> {
        let open: Vec<FileId> = self.files.opens.files().map(|(id, _)| id).collect();
        for id in open {
            if self.load_open(id)?.inode.origin.is_some() {
                self.files.opens.set_flag(id, FILE_APPEND_BY_REQUEST);
            }
        }
        Ok(())
    }
}

/// A place for a new name.
pub(crate) fn new_place(directory: FileId, name: &[u8]) -> Place {
    Place {
        directory,
        name: name.to_vec(),
        cookie: key::cookie(directory, name),
        last: Last::Name,
        slash: false,
        found: None,
    }
}
