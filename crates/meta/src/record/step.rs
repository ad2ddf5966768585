//! Steps of transactions over several shards: what each shard does of one.

use mayfly_types::{
    FileId, FileKind,
    limits::{NAME_BYTES_MAX, NAMES_MOVED_MAX},
};
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

const MAKER_V1: u8 = 0xe1;

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
    /// There is a new directory, whose name is another shard's.
    MakeDirectory {
        /// The directory.
        id: FileId,
        /// Its mode.
        mode: u16,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// The layout of the directory that has its name.
        layout: Layout,
        /// That directory.
        parent: FileId,
        /// Its name there.
        name: Vec<u8>,
    },
    /// A member of a directory takes names that its seat gives away.
    TakeNames {
        /// The directory.
        directory: FileId,
        /// The names.
        names: Vec<NamedFile>,
    },
    /// The seat of a directory gives all names away that it has in a range of cookies, but those
    /// that are its own anyway.
    GiveNames {
        /// The directory.
        directory: FileId,
        /// The range begins here: as far as the directory is spread already.
        from: u64,
        /// It ends before this one.
        upto: u64,
        /// The names.
        names: Vec<NamedFile>,
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

/// A name that moves to another shard.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedFile {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub id: FileId,
    /// Its type.
    pub kind: FileKind,
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
            Step::MakeFile { .. } | Step::MakeDirectory { .. } => 0,
            Step::AddLink { .. }
            | Step::TakeNames { .. }
            | Step::Moved { .. }
            | Step::SetName { .. }
            | Step::CutPart { .. }
            | Step::UpdateMember { .. }
            | Step::SetLayout { .. }
            | Step::SetMemberLayout { .. } => 1,
            Step::RemoveName { .. } | Step::GiveNames { .. } => 2,
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
            Step::MakeDirectory { name: set, layout, .. } => name(set) && layout.is_possible(),
            Step::TakeNames { names, .. } | Step::GiveNames { names, .. } => {
                names.len() <= NAMES_MOVED_MAX && names.iter().all(|moved| name(&moved.name))
            }
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

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
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
                put_id(to, 6, *id);
                put_members(to, members);
            }
            Step::DropMember { id } => {
                put_id(to, 7, *id);
            }
            Step::UpdateMember { id, mode, gid, forget_times } => {
                put_id(to, 8, *id);
                to.put_u16(*mode);
                to.put_u32(*gid);
                to.push(u8::from(*forget_times));
            }
            Step::Elect => to.push(9),
            Step::CutPart { id, part, size_bytes } => {
                put_id(to, 10, *id);
                to.put_u32(part.generation);
                put_layout(to, &part.layout);
                to.put_u16(part.index);
                to.put_u64(*size_bytes);
            }
            Step::SetLayout { id, layout, members } => {
                put_id(to, 11, *id);
                put_layout(to, layout);
                put_members(to, members);
            }
            Step::SetMemberLayout { id, layout } => {
                put_id(to, 12, *id);
                put_layout(to, layout);
            }
            Step::MakeFile { id, mode, uid, gid, layout, maker } => {
                put_made(to, 13, *id, (*mode, *uid, *gid), layout);
                maker.put(to);
            }
            Step::MakeDirectory { id, mode, uid, gid, layout, parent, name } => {
                put_made(to, 14, *id, (*mode, *uid, *gid), layout);
                put_place(to, *parent, name);
            }
            Step::TakeNames { directory, names } => {
                put_id(to, 15, *directory);
                put_names(to, names);
            }
            Step::GiveNames { directory, from, upto, names } => {
                put_id(to, 16, *directory);
                to.put_u64(*from);
                to.put_u64(*upto);
                put_names(to, names);
            }
        }
    }

    pub(super) fn decode(from: &mut Take<'_>) -> Result<Step, StoreError> {
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
            13 => {
                let (id, (mode, uid, gid), layout) = take_made(from)?;
                Step::MakeFile { id, mode, uid, gid, layout, maker: Maker::take(from)? }
            }
            14 => {
                let (id, (mode, uid, gid), layout) = take_made(from)?;
                let (parent, name) = take_place(from)?;
                Step::MakeDirectory { id, mode, uid, gid, layout, parent, name }
            }
            15 => Step::TakeNames { directory: FileId(from.u64()?), names: take_names(from)? },
            16 => Step::GiveNames {
                directory: FileId(from.u64()?),
                from: from.u64()?,
                upto: from.u64()?,
                names: take_names(from)?,
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

fn put_id(to: &mut Vec<u8>, tag: u8, id: FileId) {
    to.push(tag);
    to.put_u64(id.0);
}

/// Mode, owner and group.
type Owner = (u16, u32, u32);

fn put_made(to: &mut Vec<u8>, tag: u8, id: FileId, (mode, uid, gid): Owner, layout: &Layout) {
    put_id(to, tag, id);
    to.put_u16(mode);
    to.put_u32(uid);
    to.put_u32(gid);
    put_layout(to, layout);
}

fn take_made(from: &mut Take<'_>) -> Result<(FileId, Owner, Layout), StoreError> {
    let id = FileId(from.u64()?);
    let owner = (from.u16()?, from.u32()?, from.u32()?);
    Ok((id, owner, decode_layout(from)?))
}

fn put_names(to: &mut Vec<u8>, names: &[NamedFile]) {
    debug_assert!(names.len() <= NAMES_MOVED_MAX);
    to.put_u16(names.len() as u16);
    for NamedFile { name, id, kind } in names {
        to.push(name.len() as u8);
        to.extend_from_slice(name);
        put_kind(to, (*id, *kind));
    }
}

fn take_names(from: &mut Take<'_>) -> Result<Vec<NamedFile>, StoreError> {
    let count = from.u16()?;
    let one = |_| {
        let name_bytes = usize::from(from.u8()?);
        let name = from.bytes(name_bytes)?.to_vec();
        let (id, kind) = take_kind(from)?;
        Ok(NamedFile { name, id, kind })
    };
    (0..count).map(one).collect()
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
