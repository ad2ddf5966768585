//! Files with several names: the copies are one file too.
//!
//! Who meets such a file first copies it; who meets another name of it meanwhile leaves that name
//! to whoever copies. An entry goes when all names that the file has were met.

use std::{
    collections::HashMap,
    ffi::CString,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use crate::walk::tree::Dir;

/// A name in a directory.
pub(crate) type Name = (Arc<Dir>, CString);

#[derive(Debug)]
struct Known {
    left: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It is being copied; these names wait.
    Copying(Vec<Name>),
    /// The copy, from the directory above the tree on.
    Copied(PathBuf),
}

/// What is to be done about a name.
#[derive(Debug)]
pub(super) enum Claim {
    /// It is copied.
    Copy,
    /// Somebody else does it, when the copy is there.
    Wait,
    /// It becomes a name of this copy.
    Link(PathBuf),
}

/// Files with several names, by device and inode.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<(u64, u64), Known>>);

impl Links {
    /// Another name of a file that has so many.
    pub(super) fn claim(&self, identity: (u64, u64), links: u64, name: Name) -> Claim {
        let Ok(mut known) = self.0.lock() else { return Claim::Copy };
        let Some(one) = known.get_mut(&identity) else {
            let state = State::Copying(Vec::new());
            known.insert(identity, Known { left: links - 1, state });
            return Claim::Copy;
        };
        one.left = one.left.saturating_sub(1);
        match &mut one.state {
            State::Copying(waiting) => {
                waiting.push(name);
                Claim::Wait
            }
            State::Copied(path) => {
                let path = path.clone();
                if one.left == 0 {
                    known.remove(&identity);
                }
                Claim::Link(path)
            }
        }
    }

    /// It was copied to `path`, or was not; the names that wait for it.
    pub(crate) fn copied(&self, identity: (u64, u64), path: Option<PathBuf>) -> Vec<Name> {
        let Ok(mut known) = self.0.lock() else { return Vec::new() };
        let Some(one) = known.remove(&identity) else { return Vec::new() };
        let waiting = match one.state {
            State::Copying(waiting) => waiting,
            State::Copied(_) => Vec::new(),
        };
        if let Some(path) = path.filter(|_| one.left > 0) {
            known.insert(identity, Known { left: one.left, state: State::Copied(path) });
        }
        waiting
    }
}
