//! The reference model of a group of names.
//!
//! A group is a few places (paths) that no operation leaves, so that its history can be judged by
//! itself. In a *flat* group the places are in two directories that stay, and directories are made,
//! removed and renamed there; in a *tree* group two places are directories, or not, and the others
//! are in them. A walk is not one moment: were a directory renamed while files are made below it,
//! POSIX itself would allow what no order explains. So no group has both.

use mayfly_types::{Errno, FileKind};

use crate::{
    history::{Heard, NameOp},
    linear::Model,
};

/// Places of a group.
pub const PLACES: usize = 6;

/// A group of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Two directories with three places each.
    Flat,
    /// A directory with two places, each of which can have two more in it.
    Tree,
}

impl Group {
    /// The path of a place.
    #[must_use]
    pub fn path(self, number: usize, place: u8) -> String {
        let place = usize::from(place);
        match self {
            Group::Flat => {
                let directory = if place < 3 { 'a' } else { 'b' };
                format!("g{number}{directory}/{}", ['x', 'y', 'z'][place % 3])
            }
            Group::Tree if place < 2 => format!("g{number}a/{}", ['x', 'y'][place]),
            Group::Tree => {
                let parent = ['x', 'y'][(place - 2) / 2];
                format!("g{number}a/{parent}/{}", ['p', 'q'][place % 2])
            }
        }
    }

    /// Directories that it needs.
    #[must_use]
    pub fn directories(self, number: usize) -> Vec<String> {
        vec![format!("g{number}a"), format!("g{number}b")]
    }

    fn parent(self, place: u8) -> Option<usize> {
        match self {
            Group::Flat => None,
            Group::Tree => (place >= 2).then(|| (usize::from(place) - 2) / 2),
        }
    }
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node {
    kind: FileKind,
    /// Its identity, or a number of ours as long as nobody has seen it.
    id: u128,
}

/// Numbers of ours.
const UNSEEN: u128 = 1 << 64;

/// Which part of an operation. A link is made of a file that was found before, in a kernel too: in
/// between its first name may have come to stand for something else. So does a stat look at a file
/// that it found before, and how many names that has is not told by the moment when it had this
/// one. A file that is made at another shard than that of its name is opened after others may have
/// linked or removed it, and the answer has how many names it has then. A rename over several
/// shards sets the new name before it removes the old one; in between, who looks sees both, and who
/// wants to change one of them waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The file of a link or a stat is found.
    Find,
    /// The file that a stat has found is looked at.
    Look,
    /// The link is made.
    Make,
    /// The file is made, and looked at later.
    Create,
    /// The new name of a rename is set.
    Set,
    /// The old one goes.
    Unset,
}

/// An operation on a group with its answer; `number` is unique in the history.
#[derive(Debug, Clone)]
pub struct Step {
    /// What.
    pub op: NameOp,
    /// How much of it.
    pub part: Part,
    /// What was heard.
    pub heard: Heard,
    /// Its place in the history.
    pub number: u64,
}

impl Step {
    /// The parts of an operation.
    #[must_use]
    pub fn parts(op: NameOp, heard: &Heard, number: u64) -> Vec<Step> {
        let parts: &[Part] = match op {
            NameOp::Link(..) => &[Part::Find, Part::Make],
            NameOp::Stat(_) if is_linkable(heard) => &[Part::Find, Part::Look],
            NameOp::Create(_) if was_changed(heard) => &[Part::Create, Part::Look],
            NameOp::Rename(..) if matches!(heard, Heard::Done | Heard::Unknown) => {
                &[Part::Set, Part::Unset]
            }
            _ => &[Part::Whole],
        };
        let step = |part: &Part| Step { op, part: *part, heard: heard.clone(), number };
        parts.iter().map(step).collect()
    }
}

type Places = [Option<Node>; PLACES];

/// What there is, what links that are being made have found, and names that are about to go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    places: Places,
    found: Vec<(u64, Found)>,
    moving: Vec<Move>,
}

/// A rename whose old name is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Move {
    number: u64,
    from: u8,
    to: u8,
}

/// A file, or the errors that are right.
type Found = Result<Node, &'static [Errno]>;

impl Model for Group {
    type State = State;
    type Op = Step;

    fn apply(&self, state: &State, step: &Step) -> Option<State> {
        let mut next = state.clone();
        match (step.part, step.op) {
            (Part::Find, NameOp::Link(from, _)) => {
                next.found.push((step.number, self.find(&state.places, from)));
                return Some(next);
            }
            (Part::Find, NameOp::Stat(at)) => {
                let found = self.find(&state.places, at).ok()?;
                next.found.push((step.number, Ok(found)));
                return may_be(found, &step.heard).then_some(next);
            }
            (Part::Look, _) => return look(next, step),
            _ => {}
        }
        if step.part == Part::Unset {
            return unset(next, step);
        }
        if changes_moving(state, step) {
            return None;
        }
        let mut found = None;
        if step.part == Part::Make {
            let place = state.found.iter().position(|found| found.0 == step.number)?;
            found = Some(next.found.remove(place).1);
        }
        let done = self.carry_out(&mut next.places, step, found);
        if step.part == Part::Create {
            let made = next.places[usize::from(done.ok()??)]?;
            next.found.push((step.number, Ok(made)));
            return Some(next);
        }
        let unchanged = State { places: state.places, ..next.clone() };
        if step.part == Part::Set {
            done.ok()?;
            return Some(self.set(next, state, step));
        }
        match (&step.heard, done) {
            (Heard::Unknown, Ok(_)) => (next.places != state.places).then_some(next),
            // Nothing was done for want of room, whatever else would have been wrong.
            (Heard::Failed(Errno::ENOSPC), _) => Some(unchanged),
            (Heard::Failed(errno), Err(errors)) => errors.contains(errno).then_some(unchanged),
            // Who submits a file without asking sees nothing of it.
            (Heard::Done, Ok(_)) => Some(next),
            (Heard::File { id, kind, links }, Ok(Some(place))) => {
                let node = next.places[usize::from(place)]?;
                see(next, node, ((*id).into(), *kind, *links))
            }
            _ => None,
        }
    }
}

/// The old name of a rename goes.
fn unset(mut next: State, step: &Step) -> Option<State> {
    let NameOp::Rename(from, _) = step.op else { return None };
    let at = next.moving.iter().position(|of| of.number == step.number)?;
    let moved = next.moving.remove(at);
    // A file that had both names keeps them.
    if moved.from != moved.to {
        next.places[usize::from(from)] = None;
    }
    Some(next)
}

/// Whether the operation changes a name that is being moved, so that it has to wait.
fn changes_moving(state: &State, step: &Step) -> bool {
    let is_moving = |at: u8| state.moving.iter().any(|of| of.from == at || of.to == at);
    if matches!(step.heard, Heard::Failed(_)) {
        return false;
    }
    match step.op {
        NameOp::Unlink(at) | NameOp::RemoveDirectory(at) => is_moving(at),
        NameOp::Rename(from, to) => is_moving(from) || is_moving(to),
        NameOp::Create(_) | NameOp::MakeDirectory(_) | NameOp::Link(..) | NameOp::Stat(_) => false,
    }
}

/// Whether others can change how many names a file has that was seen.
fn is_linkable(heard: &Heard) -> bool {
    matches!(heard, Heard::File { kind: FileKind::Regular, .. })
}

/// Whether others have changed how many names a new file has.
fn was_changed(heard: &Heard) -> bool {
    matches!(heard, Heard::File { links, .. } if *links != 1)
}

/// Whether it can be what was seen.
fn may_be(node: Node, heard: &Heard) -> bool {
    let Heard::File { id, kind, .. } = *heard else { return false };
    node.kind == kind && (node.id & UNSEEN != 0 || node.id == id.into())
}

/// A file that was found is looked at.
fn look(mut next: State, step: &Step) -> Option<State> {
    let at = next.found.iter().position(|found| found.0 == step.number)?;
    let node = next.found.remove(at).1.ok()?;
    let Heard::File { id, kind, links } = step.heard else { return None };
    see(next, node, (id.into(), kind, links))
}

/// The state in which a file was seen.
fn see(mut state: State, node: Node, seen: (u128, FileKind, u32)) -> Option<State> {
    let (id, kind, links) = seen;
    let twice = |of: &&Move| of.from != of.to && is_at(&state, of.from, node);
    let twice = state.moving.iter().filter(twice).count() as u32;
    let same = state.places.iter().flatten().filter(|of| of.id == node.id).count() as u32 - twice;
    if node.kind != kind || kind == FileKind::Regular && links != same {
        return None;
    }
    if node.id & UNSEEN == 0 {
        return (node.id == id).then_some(state);
    }
    // It cannot be one that is known to be somebody else.
    if state.places.iter().flatten().any(|of| of.id == id) {
        return None;
    }
    let found = state.found.iter_mut().filter_map(|found| found.1.as_mut().ok());
    for of in state.places.iter_mut().flatten().chain(found).filter(|of| of.id == node.id) {
        of.id = id;
    }
    Some(state)
}

fn is_at(state: &State, place: u8, node: Node) -> bool {
    state.places[usize::from(place)].is_some_and(|of| of.id == node.id)
}

type Done = Result<Option<u8>, &'static [Errno]>;

impl Group {
    /// Changes the state; the place that the answer is about, or the errors that are right.
    fn carry_out(self, state: &mut Places, step: &Step, found: Option<Found>) -> Done {
        let Step { op, number, .. } = step;
        let id = UNSEEN | u128::from(*number);
        match *op {
            NameOp::Create(at) => {
                self.make(state, at, Node { kind: FileKind::Regular, id }).map(|()| Some(at))
            }
            NameOp::MakeDirectory(at) => {
                self.make(state, at, Node { kind: FileKind::Directory, id }).map(|()| None)
            }
            NameOp::Unlink(at) => match self.find(state, at)?.kind {
                FileKind::Directory => Err(&[Errno::EISDIR]),
                _ => self.remove(state, at),
            },
            NameOp::RemoveDirectory(at) => match self.find(state, at)?.kind {
                FileKind::Directory if self.has_entries(state, at) => Err(&[Errno::ENOTEMPTY]),
                FileKind::Directory => self.remove(state, at),
                _ => Err(&[Errno::ENOTDIR]),
            },
            NameOp::Rename(from, to) => self.rename(state, from, to),
            NameOp::Link(_, to) => self.link(state, found.ok_or(&[][..])??, to),
            NameOp::Stat(at) => self.find(state, at).map(|_| Some(at)),
        }
    }

    /// `next` after a whole rename, with the old name back where it goes later.
    fn set(self, mut next: State, before: &State, step: &Step) -> State {
        let NameOp::Rename(from, to) = step.op else { return next };
        let kept = next.places[usize::from(from)].is_some();
        next.places[usize::from(from)] = before.places[usize::from(from)];
        let to = if kept { from } else { to };
        next.moving.push(Move { number: step.number, from, to });
        next
    }

    fn link(self, state: &mut Places, node: Node, to: u8) -> Done {
        if node.kind == FileKind::Directory {
            return Err(&[Errno::EPERM, Errno::EEXIST, Errno::ENOENT, Errno::ENOTDIR]);
        }
        let named = state.iter().flatten().find(|of| of.id == node.id);
        match named.copied() {
            Some(node) => self.make(state, to, node).map(|()| None),
            None if state[usize::from(to)].is_some() => Err(&[Errno::ENOENT, Errno::EEXIST]),
            None => Err(&[Errno::ENOENT, Errno::ENOTDIR]),
        }
    }

    /// The directory of a place is there.
    fn enter(self, state: &Places, at: u8) -> Result<(), &'static [Errno]> {
        match self.parent(at).map(|parent| state[parent]) {
            None => Ok(()),
            Some(None) => Err(&[Errno::ENOENT]),
            Some(Some(node)) if node.kind == FileKind::Directory => Ok(()),
            Some(Some(_)) => Err(&[Errno::ENOTDIR]),
        }
    }

    fn find(self, state: &Places, at: u8) -> Result<Node, &'static [Errno]> {
        self.enter(state, at)?;
        state[usize::from(at)].ok_or(&[Errno::ENOENT])
    }

    fn make(self, state: &mut Places, at: u8, node: Node) -> Result<(), &'static [Errno]> {
        self.enter(state, at)?;
        if state[usize::from(at)].is_some() {
            return Err(&[Errno::EEXIST]);
        }
        state[usize::from(at)] = Some(node);
        Ok(())
    }

    fn remove(self, state: &mut Places, at: u8) -> Done {
        state[usize::from(at)] = None;
        Ok(None)
    }

    fn has_entries(self, state: &Places, at: u8) -> bool {
        (0..PLACES as u8)
            .any(|of| self.parent(of) == Some(usize::from(at)) && state[usize::from(of)].is_some())
    }

    fn rename(self, state: &mut Places, from: u8, to: u8) -> Done {
        // Of two things that are wrong either may be named.
        if self.enter(state, from).is_err() || self.enter(state, to).is_err() {
            return Err(&[Errno::ENOENT, Errno::ENOTDIR]);
        }
        let node = self.find(state, from)?;
        match (node.kind, state[usize::from(to)]) {
            (_, Some(there)) if there.id == node.id => return Ok(None),
            (FileKind::Directory, Some(there)) if there.kind != FileKind::Directory => {
                return Err(&[Errno::ENOTDIR]);
            }
            (FileKind::Directory, Some(_)) if self.has_entries(state, to) => {
                return Err(&[Errno::ENOTEMPTY, Errno::EEXIST]);
            }
            (kind, Some(there))
                if kind != FileKind::Directory && there.kind == FileKind::Directory =>
            {
                return Err(&[Errno::EISDIR]);
            }
            _ => {}
        }
        state[usize::from(to)] = Some(node);
        state[usize::from(from)] = None;
        Ok(None)
    }
}
