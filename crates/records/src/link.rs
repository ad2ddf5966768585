//! Where symbolic links lead.

use mayfly_types::FileKind;

use crate::{
    Unsure,
    attributes::{of_link, peek, plain},
    key,
    search::{Place, Runs, Source, find},
    small::record,
    walk::{Last, Question, believe, find_dentry, settled, to_last},
};

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// A symbolic link, whose target has so many bytes.
    Link(usize),
    /// Something else.
    Other,
}

/// Copies the target of the symbolic link that a path names. One that is longer than `to` is left
/// to the daemon, and so is a path that names nothing, or is to be followed to its end.
///
/// # Errors
/// [`Unsure`]: to be asked for.
pub fn read_link<S: Source>(
    source: &S,
    question: Question<'_>,
    to: &mut [u8],
) -> Result<Linked, Unsure> {
    let Question { start, path, follow: false } = question else { return Err(Unsure) };
    settled(source, |version| {
        let Last::Name { directory, name, slash: false, .. } =
            to_last(source, version, start, path)?
        else {
            return Err(Unsure);
        };
        let place = find_dentry(source, directory, name)?.ok_or(Unsure)?;
        let head = record(&place)?;
        match plain(head.as_flattened())? {
            None => target((source, &place), head.as_flattened(), to),
            Some(_) if peek(head.as_flattened())?.1 != FileKind::Symlink => Ok(Linked::Other),
            Some(id) => {
                let place = find(source, &key::numbered(key::INODE, id))?.ok_or(Unsure)?;
                target((source, &place), record(&place)?.as_flattened(), to)
            }
        }
    })
}

fn target<S: Source>(
    (source, place): (&S, &Place<'_, S>),
    head: &[u8],
    to: &mut [u8],
) -> Result<Linked, Unsure> {
    let found = of_link(head)?;
    believe(source, found.seen.map(|seen| seen.until))?;
    let Some((at, bytes)) = found.target else { return Ok(Linked::Other) };
    let to = to.get_mut(..bytes).ok_or(Unsure)?;
    copy(source, &place.runs()?.behind(at).up_to(bytes as u64), to)?;
    Ok(Linked::Link(bytes))
}

/// Copies what lies in the runs, which is as long as `to`.
fn copy<S: Source>(source: &S, runs: &Runs, to: &mut [u8]) -> Result<(), Unsure> {
    let mut done = 0;
    for (at, bytes) in runs.from(0) {
        let to = to.get_mut(done..done + bytes).ok_or(Unsure)?;
        for (part, to) in to.chunks_mut(8).enumerate() {
            let from = source.chunk(at + 8 * part).ok_or(Unsure)?;
            to.copy_from_slice(from.get(..to.len()).ok_or(Unsure)?);
        }
        done += bytes;
    }
    if done == to.len() { Ok(()) } else { Err(Unsure) }
}
