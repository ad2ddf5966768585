//! What an entry of a directory is, and how far its copy is.

use nix::sys::stat::SFlag;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    Link,
    Pipe,
    Special(&'static str),
}

impl Kind {
    pub(crate) fn of(kind: SFlag) -> Kind {
        match kind {
            SFlag::S_IFDIR => Kind::Directory,
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFLNK => Kind::Link,
            SFlag::S_IFIFO => Kind::Pipe,
            SFlag::S_IFSOCK => Kind::Special("sockets"),
            _ => Kind::Special("devices"),
        }
    }

    /// What stands for it in a list of names.
    pub(crate) fn letter(self) -> u8 {
        match self {
            Kind::Directory => b'd',
            Kind::File => b'f',
            Kind::Link => b'l',
            Kind::Pipe => b'p',
            Kind::Special(_) => b's',
        }
    }

    /// None for one that has to be looked at.
    pub(crate) fn of_letter(letter: u8) -> Option<Kind> {
        match letter {
            b'd' => Some(Kind::Directory),
            b'f' => Some(Kind::File),
            b'l' => Some(Kind::Link),
            b'p' => Some(Kind::Pipe),
            _ => None,
        }
    }
}

/// How far an entry is.
pub(crate) enum Done {
    /// Whatever there was to do is done.
    Now,
    /// Somebody else ends it: who copies its parts, or what it is a name of.
    Later,
}
