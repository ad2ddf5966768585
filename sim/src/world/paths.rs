//! What is made before a run, and what is looked at and removed behind it.

use super::World;
use crate::{
    client::{
        locking,
        scraps::{SCRAPS, path_of},
    },
    history::{BytesOp, EntryOp, NameOp, Op},
    names::PLACES,
    plan::{Act, Plan},
};

impl World<'_> {
    /// Everything that is there any more, to be removed: below first.
    pub(super) fn clear(&mut self) -> Vec<Act> {
        let before = self.common.paths.len();
        for (number, group) in self.plan.groups.iter().enumerate() {
            for place in (0..PLACES as u8).rev() {
                let path = group.path(number, place);
                self.common.paths.push((path.clone(), false));
                self.common.paths.push((path, true));
            }
        }
        for event in &self.common.history {
            if let Op::Entry(directory, EntryOp::Add(name)) = &event.op {
                self.common.paths.push((format!("l{directory}/{name}"), false));
            }
        }
        self.common.paths.extend((0..SCRAPS).map(|scrap| (path_of(scrap), false)));
        let locked = (0..locking::LOCKED).map(|file| (locking::path_of(file), false));
        self.common.paths.extend(locked);
        let all = self.common.paths.len();
        // Twice, since a disk may have been told to fail and come to it only now.
        let once = (before..all).chain(0..before);
        once.clone().chain(once).map(Act::Clear).collect()
    }
}

/// What is made before anybody else comes.
pub(super) fn fixed_paths(plan: &Plan) -> Vec<(String, bool)> {
    let mut paths = Vec::new();
    for (number, group) in plan.groups.iter().enumerate() {
        paths.extend(group.directories(number).into_iter().map(|path| (path, true)));
    }
    paths.extend((0..plan.files).map(|file| (format!("d{file}"), false)));
    paths.extend((0..plan.directories).map(|directory| (format!("l{directory}"), true)));
    paths
}

/// A look at everything at the end.
pub(super) fn audit(plan: &Plan) -> Vec<Act> {
    let mut acts = Vec::new();
    for group in 0..plan.groups.len() {
        acts.extend((0..PLACES as u8).map(|at| Act::Name(group, NameOp::Stat(at), 0)));
    }
    for file in 0..plan.files {
        acts.push(Act::Bytes(file, BytesOp::Length));
        acts.extend((0..16).map(|at| Act::Bytes(file, BytesOp::Read(at))));
    }
    acts.extend((0..plan.directories).map(Act::List));
    acts
}
