//! Scraps: files that come, are changed and cut, change their names and go, in every order.
//!
//! Nobody judges what is read in them. What they are for is what is left: when all is at rest,
//! names, inodes, parts and objects must fit together, and when they are removed nothing stays.

use mayfly_types::OpenRef;
use mayfly_wire::{Allocate, Link, OpenReply, Rename, Request, Target};

use super::{
    Client, O_CREAT, O_RDWR, What, close, cut, decode, open,
    own::{Of, Work},
    unlink, walk,
};
use crate::{
    bytes::{BLOCKS, bytes_of},
    dice::Dice,
    history::BytesOp,
    node::Node,
};

/// Names that scraps have.
pub const SCRAPS: usize = 3;
const O_TRUNC: u32 = 0o1000;
/// A client has so many of them open at most.
const OPEN_MAX: usize = 3;

/// What is done to a scrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrap {
    /// One is opened, and made if it is not there.
    Open(u8),
    /// The same, and it is emptied.
    Empty(u8),
    /// A block is written to what was opened last.
    Write(u8),
    /// A block is added to it.
    Append,
    /// It gets space up to this block.
    Allocate(u8),
    /// It gets so many blocks.
    CutOpen(u8),
    /// The same by its name.
    Cut(u8, u8),
    /// What was opened first is closed.
    Close,
    /// A name is removed.
    Remove(u8),
    /// It becomes another one's.
    Rename(u8, u8),
    /// It gets another one.
    Link(u8, u8),
}

impl Scrap {
    /// One of these.
    pub fn draw(dice: &mut Dice) -> Scrap {
        let name = |dice: &mut Dice| dice.index(SCRAPS) as u8;
        let blocks = |dice: &mut Dice| dice.below(4 * BLOCKS) as u8;
        match dice.below(20) {
            0..=2 => Scrap::Open(name(dice)),
            3 => Scrap::Empty(name(dice)),
            4..=6 => Scrap::Write(blocks(dice)),
            7..=8 => Scrap::Append,
            9 => Scrap::Allocate(blocks(dice)),
            10 => Scrap::CutOpen(blocks(dice)),
            11..=13 => Scrap::Cut(name(dice), blocks(dice)),
            14 => Scrap::Close,
            15..=17 => Scrap::Remove(name(dice)),
            18 => Scrap::Rename(name(dice), name(dice)),
            _ => Scrap::Link(name(dice), name(dice)),
        }
    }
}

/// The path of a name.
#[must_use]
pub fn path_of(scrap: usize) -> String {
    format!("s{scrap}")
}

impl Client {
    pub(super) fn scrap(&mut self, node: &Node, scrap: Scrap) {
        let path = |name: u8| path_of(usize::from(name));
        match scrap {
            Scrap::Open(name) => self.open_scrap(node, &path(name), O_RDWR | O_CREAT),
            Scrap::Empty(name) => self.open_scrap(node, &path(name), O_RDWR | O_CREAT | O_TRUNC),
            Scrap::Cut(name, blocks) => {
                let path = path(name);
                self.ask(node, &cut(Target::Path(walk(&path)), blocks), What::Unnoted, None);
            }
            Scrap::Remove(name) => {
                self.ask(node, &unlink(&path(name), false), What::Unnoted, None);
            }
            Scrap::Rename(from, to) => {
                let (from, to) = (path(from), path(to));
                let rename = Rename { from: walk(&from), to: walk(&to), flags: 0 };
                self.ask(node, &Request::Rename(rename), What::Unnoted, None);
            }
            Scrap::Link(from, to) => {
                let (from, to) = (path(from), path(to));
                let link = Link { from: Target::Path(walk(&from)), to: walk(&to) };
                self.ask(node, &Request::Link(link), What::Unnoted, None);
            }
            Scrap::Close => {
                if let Some(open) = self.scraps.pop_front() {
                    self.ask(node, &close(open), What::Unnoted, None);
                }
            }
            Scrap::Write(_) | Scrap::Append | Scrap::Allocate(_) | Scrap::CutOpen(_) => {
                if let Some(open) = self.scraps.back().copied() {
                    self.change_scrap(node, open, scrap);
                }
            }
        }
    }

    fn open_scrap(&mut self, node: &Node, path: &str, flags: u32) {
        if self.scraps.len() < OPEN_MAX {
            self.ask(node, &open(path, flags), What::OpenScrap, None);
        }
    }

    pub(super) fn take_scrap(&mut self, body: &[u8]) {
        self.scraps.push_back(decode::<OpenReply<'_>>(body).opened.open);
    }

    fn change_scrap(&mut self, node: &Node, open: OpenRef, scrap: Scrap) {
        let work = |op| Work { of: Of::Scrap, open, op, event: None, tries: 0 };
        let request = match scrap {
            Scrap::Append => return self.work(node, work(BytesOp::Append(1))),
            Scrap::Write(at) => return self.work(node, work(BytesOp::Write(at, 1))),
            Scrap::Allocate(blocks) => Request::Allocate(Allocate {
                open,
                mode: 0,
                offset: 0,
                bytes: bytes_of(blocks).max(1),
            }),
            Scrap::CutOpen(blocks) => cut(Target::Open(open), blocks),
            _ => return,
        };
        self.ask(node, &request, What::Unnoted, None);
    }
}
