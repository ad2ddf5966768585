//! What the links of procfs stand for, when that is something of the instance: the descriptors and
//! the working directory of any process.

use mayfly_client::OpenFile;
use mayfly_sys::{
    file::{self, AT_FDCWD},
    text::PathText,
};
use mayfly_types::FileId;

use super::cwd;
use crate::{descriptors::identity, process::session};

/// What a link of procfs stands for.
#[derive(Clone, Copy)]
pub(crate) enum Behind {
    /// An open file description.
    Open(OpenFile),
    /// The working directory of a process.
    Directory(FileId),
}

impl Behind {
    /// The file.
    pub(crate) fn id(self) -> FileId {
        match self {
            Behind::Open(open) => open.id(),
            Behind::Directory(directory) => directory,
        }
    }
}

/// What the link of the kernel's at `path` stands for, if that is ours. The link of a description
/// that only its process has says nothing.
pub(crate) fn behind(path: &[u8]) -> Option<Behind> {
    let mut link = PathText::new();
    let path = PathText::from_bytes(path).ok()?;
    file::read_link(AT_FDCWD, &path, &mut link).ok()?;
    if path.as_bytes().ends_with(b"/cwd") {
        return cwd::behind(&path, link.as_bytes()).map(Behind::Directory);
    }
    meaning(link.as_bytes())
}

/// What the text of a link of procfs stands for.
fn meaning(link: &[u8]) -> Option<Behind> {
    if let Some(index) = identity::slot_in(link) {
        return session::get()
            .and_then(|session| session.open_file_at(index))
            .ok()
            .map(Behind::Open);
    }
    cwd::parked(link).map(Behind::Directory)
}
