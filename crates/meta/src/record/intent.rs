//! Records of operations over several shards, and of directories whose entries are spread.

use mayfly_types::{FileId, FileKind, Timestamp, limits::NAME_BYTES_MAX};

use serde::{Deserialize, Serialize};

use super::{
    BirthKey, Layout,
    inode::{decode_layout, put_layout},
    kind,
    small::form,
};
use crate::{
    StoreError,
    bytes::{Put, Take},
};

const INTENT_V2: u8 = 0x92;
const MEMBER_V2: u8 = 0xa2;
const MAKER_V1: u8 = 0xe1;
/// Steps of one operation at most: a rename over a directory of as many members.
const STEPS_MAX: usize = 70_000;

/// What an operation changes at one shard. Executed once, by the owner of what it names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// The inode gets another name, which another step sets.
    AddLink {
        /// The file.
        id: FileId,
        /// Where its record may be.
        birth: BirthKey,
    },
    /// The inode's dentry moves.
    Moved {
        /// The file.
        id: FileId,
        /// Where its record may be.
        birth: BirthKey,
        /// The directory that holds it now.
        parent: FileId,
        /// Its name there.
        name: Vec<u8>,
    },
    /// The name stands for the file.
    SetName {
        /// The directory.
        directory: FileId,
        /// The name.
        name: Vec<u8>,
        /// The file.
        id: FileId,
        /// Its type.
        kind: FileKind,
        /// What the name stood for.
        expected: Option<(FileId, FileKind)>,
    },
    /// The name goes.
    RemoveName {
        /// The directory.
        directory: FileId,
        /// The name.
        name: Vec<u8>,
        /// What it stood for.
        id: FileId,
        /// Its type.
        kind: FileKind,
    },
    /// A name of the inode, not a directory's, is gone.
    DropLink {
        /// The file.
        id: FileId,
        /// Where its record may be.
        birth: BirthKey,
    },
    /// The directory goes, at its home.
    RemoveDirectory {
        /// The directory.
        id: FileId,
        /// The members that it must have.
        members: Vec<u32>,
    },
    /// The directory goes, at a member.
    DropMember {
        /// The directory.
        id: FileId,
    },
    /// The directory changed in what its members know of it.
    UpdateMember {
        /// The directory.
        id: FileId,
        /// Its mode.
        mode: u16,
        /// Its group.
        gid: u32,
        /// The times at its home are the ones that count.
        forget_times: bool,
    },
    /// There is a new file, whose name is another shard's.
    MakeFile {
        /// The file.
        id: FileId,
        /// Its mode.
        mode: u16,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// The layout of its directory.
        layout: Layout,
        /// By whom.
        maker: Maker,
    },
    /// What is made in a directory from now on has another layout, at its home.
    SetLayout {
        /// The directory.
        id: FileId,
        /// Its layout.
        layout: Layout,
        /// The members that it must have.
        members: Vec<u32>,
    },
    /// The same at a member.
    SetMemberLayout {
        /// The directory.
        id: FileId,
        /// Its layout.
        layout: Layout,
    },
    /// No other directory is moved to another parent meanwhile.
    Elect,
    /// A server's part of a file gets the length that belongs to a file of so many bytes.
    CutPart {
        /// The file.
        id: FileId,
        /// What the record of the part is to be if there is none.
        part: PartOf,
        /// Length of the file, bytes.
        size_bytes: u64,
    },
}

/// The request that makes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Maker {
    /// Node of the process.
    pub node: u32,
    /// What the process is called there.
    pub session: u32,
    /// Id of the request.
    pub request_id: u64,
}

impl Maker {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![MAKER_V1];
        self.put(&mut record);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Maker, StoreError> {
        let mut from = form(record, MAKER_V1)?;
        let maker = Maker::take(&mut from)?;
        from.finish()?;
        Ok(maker)
    }

    fn put(&self, to: &mut Vec<u8>) {
        to.put_u32(self.node);
        to.put_u32(self.session);
        to.put_u64(self.request_id);
    }

    fn take(from: &mut Take<'_>) -> Result<Maker, StoreError> {
        Ok(Maker { node: from.u32()?, session: from.u32()?, request_id: from.u64()? })
    }
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartOf {
    /// Generation of the file's objects.
    pub generation: u32,
    /// Where the chunks of the file are.
    pub layout: Layout,
    /// Which part it is, counted from the first server's.
    pub index: u16,
}

impl PartOf {
    /// Whether there can be such a part.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.generation != 0 && self.layout.is_possible() && self.index < self.layout.width
    }
}

impl Step {
    /// Steps of a later wave are executed when all of the earlier ones are: what makes files (0),
    /// what makes names (1), what removes them (2), what ends files (3), so that nothing is ever
    /// missing.
    #[must_use]
    pub fn wave(&self) -> u8 {
        match self {
            Step::MakeFile { .. } => 0,
            Step::AddLink { .. }
            | Step::Moved { .. }
            | Step::SetName { .. }
            | Step::CutPart { .. }
            | Step::UpdateMember { .. }
            | Step::SetLayout { .. }
            | Step::SetMemberLayout { .. } => 1,
            Step::RemoveName { .. } => 2,
            Step::DropLink { .. }
            | Step::RemoveDirectory { .. }
            | Step::DropMember { .. }
            | Step::Elect => 3,
        }
    }

    /// Whether its names are as long as names can be. What is read from a record is.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let name = |name: &[u8]| name.len() <= NAME_BYTES_MAX;
        match self {
            Step::AddLink { birth, .. } | Step::DropLink { birth, .. } => name(&birth.name),
            Step::Moved { birth, name: new, .. } => name(&birth.name) && name(new),
            Step::SetName { name: set, .. } | Step::RemoveName { name: set, .. } => name(set),
            Step::CutPart { part, .. } => part.is_possible(),
            Step::SetLayout { layout, .. }
            | Step::SetMemberLayout { layout, .. }
            | Step::MakeFile { layout, .. } => layout.is_possible(),
            Step::RemoveDirectory { .. }
            | Step::DropMember { .. }
            | Step::UpdateMember { .. }
            | Step::Elect => true,
        }
    }

    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Step::AddLink { id, birth } => put_file(to, 1, *id, birth),
            Step::Moved { id, birth, parent, name } => {
                put_file(to, 2, *id, birth);
                put_place(to, *parent, name);
            }
            Step::SetName { directory, name, id, kind, expected } => {
                to.push(3);
                put_place(to, *directory, name);
                put_kind(to, (*id, *kind));
                put_kind(to, expected.unwrap_or((FileId::NONE, FileKind::Regular)));
            }
            Step::RemoveName { directory, name, id, kind } => {
                to.push(4);
                put_place(to, *directory, name);
                put_kind(to, (*id, *kind));
            }
            Step::DropLink { id, birth } => put_file(to, 5, *id, birth),
            Step::RemoveDirectory { id, members } => {
                to.push(6);
                to.put_u64(id.0);
                put_members(to, members);
            }
            Step::DropMember { id } => {
                to.push(7);
                to.put_u64(id.0);
            }
            Step::UpdateMember { id, mode, gid, forget_times } => {
                to.push(8);
                to.put_u64(id.0);
                to.put_u16(*mode);
                to.put_u32(*gid);
                to.push(u8::from(*forget_times));
            }
            Step::Elect => to.push(9),
            Step::CutPart { id, part, size_bytes } => {
                to.push(10);
                to.put_u64(id.0);
                to.put_u32(part.generation);
                put_layout(to, &part.layout);
                to.put_u16(part.index);
                to.put_u64(*size_bytes);
            }
            Step::SetLayout { id, layout, members } => {
                to.push(11);
                to.put_u64(id.0);
                put_layout(to, layout);
                put_members(to, members);
            }
            Step::SetMemberLayout { id, layout } => {
                to.push(12);
                to.put_u64(id.0);
                put_layout(to, layout);
            }
            Step::MakeFile { id, mode, uid, gid, layout, maker } => {
                to.push(13);
                to.put_u64(id.0);
                to.put_u16(*mode);
                to.put_u32(*uid);
                to.put_u32(*gid);
                put_layout(to, layout);
                maker.put(to);
            }
        }
    }

    fn decode(from: &mut Take<'_>) -> Result<Step, StoreError> {
        Ok(match from.u8()? {
            1 => {
                let (id, birth) = take_file(from)?;
                Step::AddLink { id, birth }
            }
            2 => {
                let (id, birth) = take_file(from)?;
                let (parent, name) = take_place(from)?;
                Step::Moved { id, birth, parent, name }
            }
            3 => {
                let (directory, name) = take_place(from)?;
                let (id, kind) = take_kind(from)?;
                let expected = Some(take_kind(from)?).filter(|found| found.0 != FileId::NONE);
                Step::SetName { directory, name, id, kind, expected }
            }
            4 => {
                let (directory, name) = take_place(from)?;
                let (id, kind) = take_kind(from)?;
                Step::RemoveName { directory, name, id, kind }
            }
            5 => {
                let (id, birth) = take_file(from)?;
                Step::DropLink { id, birth }
            }
            6 => Step::RemoveDirectory { id: FileId(from.u64()?), members: take_members(from)? },
            7 => Step::DropMember { id: FileId(from.u64()?) },
            8 => Step::UpdateMember {
                id: FileId(from.u64()?),
                mode: from.u16()?,
                gid: from.u32()?,
                forget_times: from.u8()? != 0,
            },
            9 => Step::Elect,
            10 => Step::CutPart {
                id: FileId(from.u64()?),
                part: PartOf {
                    generation: from.u32()?,
                    layout: Layout { striped: true, ..decode_layout(from)? },
                    index: from.u16()?,
                },
                size_bytes: from.u64()?,
            },
            11 => Step::SetLayout {
                id: FileId(from.u64()?),
                layout: decode_layout(from)?,
                members: take_members(from)?,
            },
            12 => Step::SetMemberLayout { id: FileId(from.u64()?), layout: decode_layout(from)? },
            13 => Step::MakeFile {
                id: FileId(from.u64()?),
                mode: from.u16()?,
                uid: from.u32()?,
                gid: from.u32()?,
                layout: decode_layout(from)?,
                maker: Maker::take(from)?,
            },
            _ => return Err(StoreError::Corrupt("an unknown step of an operation")),
        })
    }
}

fn put_members(to: &mut Vec<u8>, members: &[u32]) {
    to.put_u16(members.len() as u16);
    members.iter().for_each(|member| to.put_u32(*member));
}

fn take_members(from: &mut Take<'_>) -> Result<Vec<u32>, StoreError> {
    let count = from.u16()?;
    (0..count).map(|_| from.u32()).collect()
}

fn put_file(to: &mut Vec<u8>, tag: u8, id: FileId, birth: &BirthKey) {
    to.push(tag);
    to.put_u64(id.0);
    put_place(to, birth.directory, &birth.name);
}

fn put_place(to: &mut Vec<u8>, directory: FileId, name: &[u8]) {
    debug_assert!(name.len() <= NAME_BYTES_MAX);
    to.put_u64(directory.0);
    to.push(name.len() as u8);
    to.extend_from_slice(name);
}

fn put_kind(to: &mut Vec<u8>, (id, kind): (FileId, FileKind)) {
    to.put_u64(id.0);
    to.push(kind as u8);
}

fn take_file(from: &mut Take<'_>) -> Result<(FileId, BirthKey), StoreError> {
    let id = FileId(from.u64()?);
    let (directory, name) = take_place(from)?;
    Ok((id, BirthKey { directory, name }))
}

fn take_place(from: &mut Take<'_>) -> Result<(FileId, Vec<u8>), StoreError> {
    let directory = FileId(from.u64()?);
    let name_bytes = usize::from(from.u8()?);
    Ok((directory, from.bytes(name_bytes)?.to_vec()))
}

fn take_kind(from: &mut Take<'_>) -> Result<(FileId, FileKind), StoreError> {
    Ok((FileId(from.u64()?), kind(from.u8()?)?))
}

/// An operation over several shards that was decided. It is finished whatever happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Session of the request.
    pub session: u32,
    /// Lane of the request.
    pub lane: u32,
    /// Id of the request.
    pub request_id: u64,
    /// The file that it cuts.
    pub cut: Option<FileId>,
    /// What each shard does.
    pub parts: Vec<(u32, Vec<Step>)>,
}

impl Intent {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![INTENT_V2];
        record.put_u32(self.session);
        record.put_u32(self.lane);
        record.put_u64(self.request_id);
        record.put_u64(self.cut.unwrap_or(FileId::NONE).0);
        record.put_u32(self.parts.len() as u32);
        for (shard, steps) in &self.parts {
            record.put_u32(*shard);
            record.put_u32(steps.len() as u32);
            steps.iter().for_each(|step| step.encode(&mut record));
        }
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Intent, StoreError> {
        let mut from = form(record, INTENT_V2)?;
        let (session, lane, request_id) = (from.u32()?, from.u32()?, from.u64()?);
        let cut = Some(FileId(from.u64()?)).filter(|file| *file != FileId::NONE);
        let mut parts = Vec::new();
        let mut left = STEPS_MAX;
        for _ in 0..from.u32()? {
            let shard = from.u32()?;
            let count = from.u32()? as usize;
            left = left.checked_sub(count.max(1)).ok_or(StoreError::Corrupt("too many steps"))?;
            let steps = (0..count).map(|_| Step::decode(&mut from)).collect::<Result<_, _>>()?;
            parts.push((shard, steps));
        }
        from.finish()?;
        Ok(Intent { session, lane, request_id, cut, parts })
    }
}

/// What a shard that is not the home of a directory keeps of it while it may have entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Member {
    /// Entries here.
    pub entries: u64,
    /// Directories among them.
    pub subdirectories: u32,
    /// Permission bits of the directory, for what is made in it.
    pub mode: u16,
    /// Group of the directory, for the same reason.
    pub gid: u32,
    /// When a name was last added or removed here; 0 when that does not count.
    pub mtime: Timestamp,
    /// Layout of the directory, for what is made in it.
    pub layout: Layout,
}

impl Member {
    /// The record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![MEMBER_V2];
        record.put_u64(self.entries);
        record.put_u32(self.subdirectories);
        record.put_u16(self.mode);
        record.put_u32(self.gid);
        record.put_time(self.mtime);
        put_layout(&mut record, &self.layout);
        record
    }

    /// From the record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub fn decode(record: &[u8]) -> Result<Member, StoreError> {
        let mut from = form(record, MEMBER_V2)?;
        let member = Member {
            entries: from.u64()?,
            subdirectories: from.u32()?,
            mode: from.u16()?,
            gid: from.u32()?,
            mtime: from.time()?,
            layout: decode_layout(&mut from)?,
        };
        from.finish()?;
        Ok(member)
    }
}
