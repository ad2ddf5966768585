//! From a record to what is compared of it.

use mayfly_meta::{
    StoreError, key,
    record::{Content, Dentry, Inode, Intent, Layout, Member, Part, Policy, Step},
};
use mayfly_types::{FIRST_OBJECT, FileId};
use mayfly_wire::inspection::{self, Directory, Fact, File, Mark, Name, Operation, Spread};
/// Tells what is compared of a record; nothing of one that has nothing to do with others.
pub fn facts_of(key: &[u8], record: &[u8], tell: &mut dyn FnMut(&Fact<'_>)) {
    if read(key, record, tell).is_err() {
        tell(&Fact::Unreadable(inspection::Unreadable { key }));
    }
}

fn read(key: &[u8], record: &[u8], tell: &mut dyn FnMut(&Fact<'_>)) -> Result<(), StoreError> {
    let bad = StoreError::Corrupt("a key that makes no sense");
    let Some(tag) = key.first().copied() else { return Err(bad) };
    let numbered = key::split_numbered(key);
    let mark = |file: FileId, generation| Fact::Mark(Mark { what: tag, file, generation });
    match tag {
        key::DENTRY => {
            let (directory, _, name) = key::split_dentry(key).ok_or(bad)?;
            let dentry = Dentry::decode(record)?;
            let (file, kind) = (dentry.id(), dentry.kind());
            tell(&Fact::Name(Name { directory, file, kind, name }));
            if let Dentry::Fused(inode) = &dentry {
                tell_inode(inode, tell);
            }
        }
        key::INODE => tell_inode(&Inode::decode_own(record)?, tell),
        key::MEMBER => {
            let Member { entries, subdirectories, .. } = Member::decode(record)?;
            let directory = numbered.ok_or(bad)?;
            tell(&Fact::Member(inspection::Member { directory, entries, subdirectories }));
        }
        key::PART => {
            let Part { generation, layout, index, cut, .. } = Part::decode(record)?;
            let (file, spread, cut) = (numbered.ok_or(bad)?, spread(&layout), cut.is_some());
            tell(&Fact::Part(inspection::Part { file, generation, index, spread, cut }));
        }
        key::ORPHAN
        | key::UNSETTLED
        | key::XATTRS
        | key::LOCKS
        | key::PENDING_CREATE
        | key::SHOWN
        | key::SPREAD => {
            tell(&mark(numbered.ok_or(bad)?, 0));
        }
        key::APPEND => tell(&mark(key::split_append(key).ok_or(bad)?.0, 0)),
        key::DOOMED => {
            let (file, generation) = key::split_doomed(key).ok_or(bad)?;
            tell(&mark(file, generation));
        }
        key::PROMISED => {
            let (ids, _) = record.as_chunks();
            for file in ids.iter().map(|id| FileId(u64::from_le_bytes(*id))) {
                tell(&mark(file, FIRST_OBJECT));
            }
        }
        key::CHUNKS => {
            let (file, generation) = key::split_chunks(key).ok_or(bad)?;
            tell(&mark(file, generation));
        }
        key::LATE => {
            let (file, generation) = key::split_late(key).ok_or(bad)?;
            tell(&mark(file, generation));
        }
        key::UNLINKED => {
            let (file, generation) = key::split_unlinked(key).ok_or(bad)?;
            tell(&mark(file, generation));
        }
        key::INTENT => tell_intent(numbered.ok_or(bad)?.0, &Intent::decode(record)?, tell),
        key::APPLIED => {
            let id = key::split_applied(key).ok_or(bad)?;
            tell(&Fact::Operation(Operation { id, file: FileId::NONE }));
        }
        _ => {}
    }
    Ok(())
}

fn spread(layout: &Layout) -> Spread {
    let Layout { width, policy, chunk_log2, striped, tail, .. } = *layout;
    Spread {
        width,
        hashed: policy == Policy::Hash,
        chunk_log2,
        striped,
        tail_start_bytes: tail.start_bytes,
        tail_row: tail.row,
        tail_chunk_log2: tail.chunk_log2,
    }
}

fn tell_inode(inode: &Inode, tell: &mut dyn FnMut(&Fact<'_>)) {
    let generation = match inode.content {
        Content::Object(generation) => generation,
        _ => 0,
    };
    tell(&Fact::File(File {
        id: inode.id,
        kind: inode.kind(),
        links: inode.links,
        unsettled: inode.unsettled,
        extended: inode.extended,
        generation,
        size_bytes: inode.size_bytes,
        spread: spread(&inode.layout),
        parts: inode.parts,
    }));
    if let Content::Directory(node) = &inode.content {
        let mut members = Vec::new();
        for member in &node.members {
            let (byte, bit) = ((member / 8) as usize, member % 8);
            if members.len() <= byte {
                members.resize(byte + 1, 0);
            }
            members[byte] |= 1 << bit;
        }
        let (id, parent, entries) = (inode.id, node.parent, node.entries);
        let (name, members) = (&node.name[..], &members[..]);
        tell(&Fact::Directory(Directory { id, parent, name, entries, members }));
    }
}

/// One that is finished is only kept until its request can come no more.
fn tell_intent(id: u64, intent: &Intent, tell: &mut dyn FnMut(&Fact<'_>)) {
    let steps = intent.parts.iter().flat_map(|(_, steps)| steps);
    let mut about: Vec<FileId> = steps.flat_map(files_of).flatten().collect();
    about.sort_unstable();
    about.dedup();
    about.iter().for_each(|file| tell(&Fact::Operation(Operation { id, file: *file })));
}

/// What a step changes: a file, and a directory.
fn files_of(step: &Step) -> [Option<FileId>; 2] {
    match step {
        Step::SetName { directory, id, .. } | Step::RemoveName { directory, id, .. } => {
            [Some(*id), Some(*directory)]
        }
        Step::Moved { id, parent, .. } | Step::MakeDirectory { id, parent, .. } => {
            [Some(*id), Some(*parent)]
        }
        Step::TakeNames { directory, .. } | Step::GiveNames { directory, .. } => {
            [Some(*directory), None]
        }
        Step::AddLink { id, .. }
        | Step::DropLink { id, .. }
        | Step::RemoveDirectory { id, .. }
        | Step::DropMember { id }
        | Step::UpdateMember { id, .. }
        | Step::MakeFile { id, .. }
        | Step::SetLayout { id, .. }
        | Step::SetMemberLayout { id, .. }
        | Step::CutPart { id, .. } => [Some(*id), None],
        Step::Elect => [None, None],
    }
}
