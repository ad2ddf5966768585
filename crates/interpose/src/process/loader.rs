//! A program that is given to the dynamic loader as an argument: `ld.so [OPTION]... PROGRAM ...`,
//! which is also what `ldd` does.
//!
//! The loader opens the program before it loads any library, so nobody is there to serve it. Exec
//! puts a name of the kernel's in the argument's place: of the program's object, or of a copy in
//! memory that is inherited and closed at the start. Loaders that know `--argv0` are told what the
//! program is to be called; from others it hears the other name.
//!
//! The loader takes `$ORIGIN` from the argument. So it is written in a way in which nobody else
//! writes it, with a `.` for a directory, and paths that begin so are taken for paths that begin
//! with the program's directory in the mount, as for a program that was executed
//! ([`crate::process::program`]).
//! `/proc/self/exe` is the loader, as it is without us.

use mayfly_sys::{
    Errno,
    file::{self, AT_FDCWD},
    text::{PathText, parse_decimal},
};

use crate::paths::text;

/// What stands behind the directory of an object.
const DETOUR: &[u8] = b"/.";
/// The directory of a copy.
const COPIES: &[u8] = b"/proc/self/./fd";

/// Options that are followed by a value.
const WITH_VALUE: [&[u8]; 7] = [
    b"--library-path",
    b"--inhibit-rpath",
    b"--audit",
    b"--preload",
    b"--argv0",
    b"--glibc-hwcaps-prepend",
    b"--glibc-hwcaps-mask",
];
/// Options without one that a program may follow.
const ALONE: [&[u8]; 4] = [b"--list", b"--verify", b"--inhibit-cache", b"--"];

/// Which argument the loader takes for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given<'h> {
    /// Its place among the arguments.
    pub(super) index: usize,
    /// What stands there.
    pub(super) path: &'h [u8],
    /// Where libraries are looked for, when that is said.
    pub(super) library_path: Option<&'h [u8]>,
    /// The program's own name is said already.
    pub(super) is_named: bool,
}

/// Is a program with this path a dynamic loader?
pub(super) fn is_one(path: &[u8]) -> bool {
    const NAMES: [&[u8]; 3] = [b"ld-linux", b"ld-musl", b"ld-2."];
    let name = text::split_last(path).1;
    name == b"ld.so" || NAMES.iter().any(|start| name.starts_with(start))
}

/// Takes arguments, the loader's own name not among them, until the program's path is found. One
/// without a slash is looked for in the library path, which is none of our business.
#[derive(Debug, Default)]
pub(super) struct Search<'h> {
    count: usize,
    value_of: Option<&'static [u8]>,
    library_path: Option<&'h [u8]>,
    is_named: bool,
    found: Option<Given<'h>>,
    over: bool,
}

impl<'h> Search<'h> {
    /// Looks at the next argument.
    pub(super) fn look(&mut self, argument: &'h [u8]) {
        let index = self.count;
        self.count += 1;
        if self.over || index == 0 {
            return;
        }
        if let Some(option) = self.value_of.take() {
            if option == b"--library-path" {
                self.library_path = Some(argument);
            }
            return;
        }
        // musl allows a value behind an equals sign.
        let end = argument.iter().position(|byte| *byte == b'=').unwrap_or(argument.len());
        let (name, value) = argument.split_at_checked(end).unwrap_or((argument, b""));
        let option = WITH_VALUE.iter().find(|option| **option == name).copied();
        // Behind `--` there are no options any more.
        self.is_named |= option == Some(b"--argv0") || argument == b"--";
        match option {
            Some(b"--library-path") if !value.is_empty() => self.library_path = value.get(1..),
            Some(_) if !value.is_empty() => {}
            Some(option) => self.value_of = Some(option),
            None if ALONE.contains(&argument) => {}
            None => {
                self.over = true;
                let (library_path, is_named) = (self.library_path, self.is_named);
                let is_path = argument.contains(&b'/') && !argument.starts_with(b"--");
                let given = Given { index, path: argument, library_path, is_named };
                self.found = is_path.then_some(given);
            }
        }
    }

    /// What was found.
    pub(super) fn found(&self) -> Option<Given<'h>> {
        self.found
    }
}

/// Does the loader that `read` reads (offset, buffer, bytes read) know the option `--argv0`?
pub(super) fn knows_names(mut read: impl FnMut(u64, &mut [u8]) -> usize) -> bool {
    /// As musl keeps it, without the dashes.
    const OPTION: &[u8] = b"argv0";
    /// Loaders have a quarter of a MiB; musl's is the whole C library.
    const BYTES_MAX: u64 = 4 << 20;
    let mut buffer = [0; 1024];
    let mut at = 0;
    while at < BYTES_MAX {
        let count = read(at, &mut buffer);
        let part = buffer.get(..count).unwrap_or(&[]);
        if part.windows(OPTION.len()).any(|window| window == OPTION) {
            return true;
        }
        if count <= OPTION.len() {
            return false;
        }
        // The option may lie across the end of the part.
        at += (count - OPTION.len()) as u64;
    }
    false
}

/// What the loader takes for the directory of the program whose object is at `path`.
pub(super) fn origin_of_object(path: &[u8], to: &mut PathText) -> Result<(), Errno> {
    let directory = text::split_last(path).0;
    to.push(directory.strip_suffix(b"/").unwrap_or(directory))?;
    to.push(DETOUR)
}

/// The same of one whose copy this is.
pub(super) fn origin_of_copy(to: &mut PathText) -> Result<(), Errno> {
    to.push(COPIES)
}

/// What a program that a loader runs is told: the descriptor of its copy, if there is one, and the
/// length of `origin`, which the loader takes for its directory; that; and its path in the mount.
pub(super) fn describe(
    path: &[u8],
    origin: &[u8],
    copy: Option<i32>,
    to: &mut PathText,
) -> Result<(), Errno> {
    if let Some(copy) = copy {
        to.push_decimal(copy as u64)?;
    }
    to.push(b":")?;
    to.push_decimal(origin.len() as u64)?;
    to.push(b":")?;
    to.push(origin)?;
    to.push(path)
}

/// Reads what [`describe`] wrote: the program's path in the mount, and the directory that the
/// loader takes for the program's. A copy is closed, since the loader has mapped it. `None` when
/// what runs was not started by a loader, of the kernel's or `program` of the mount.
pub(super) fn take_up<'v>(value: &'v [u8], program: Option<&[u8]>) -> Option<[&'v [u8]; 2]> {
    let mut parts = value.splitn(3, |byte| *byte == b':');
    let (copy, length, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (origin, path) = rest.split_at_checked(parse_decimal(length)? as usize)?;
    let mut link = PathText::new();
    file::read_link(AT_FDCWD, &PathText::from_bytes(b"/proc/self/exe").ok()?, &mut link).ok()?;
    if !is_one(program.unwrap_or(link.as_bytes())) {
        return None;
    }
    if let Some(copy) = parse_decimal(copy).and_then(|copy| i32::try_from(copy).ok()) {
        close_copy(copy);
    }
    Some([path, origin])
}

/// Closes the descriptor if it is one of a copy.
fn close_copy(copy: i32) {
    let mut link = PathText::new();
    let is_copy = file::descriptor_link(copy, &mut link).is_ok()
        && link.as_bytes().starts_with(crate::process::program::COPY_LINK);
    if is_copy {
        file::close(copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search<'h>(arguments: &[&'h str]) -> Option<Given<'h>> {
        let mut search = Search::default();
        arguments.iter().for_each(|argument| search.look(argument.as_bytes()));
        search.found()
    }

    #[test]
    fn the_program_is_the_first_argument_that_is_no_option() {
        let plain = Given { index: 1, path: b"/m/p", library_path: None, is_named: false };
        assert_eq!(search(&["ld.so", "/m/p", "--list", "/m/q"]), Some(plain));
        assert_eq!(search(&["ld.so", "--verify", "/m/p"]), Some(Given { index: 2, ..plain }));
        let list = Given { index: 5, library_path: Some(b"/a:/b"), is_named: true, ..plain };
        let words = ["ld.so", "--argv0", "x/y", "--library-path", "/a:/b", "/m/p"];
        assert_eq!(search(&words), Some(list));
        let musl = Given { index: 3, library_path: Some(b"/a"), is_named: true, ..plain };
        assert_eq!(search(&["ld.so", "--library-path=/a", "--", "/m/p"]), Some(musl));
    }

    #[test]
    fn what_names_no_file_is_no_program() {
        assert_eq!(search(&["ld.so"]), None);
        assert_eq!(search(&["ld.so", "p", "/m/p"]), None);
        assert_eq!(search(&["ld.so", "--help", "/m/p"]), None);
        assert_eq!(search(&["ld.so", "--preload", "/m/p"]), None);
        assert_eq!(search(&["/m/p"]), None);
    }

    #[test]
    fn loaders_are_known_by_their_names() {
        for name in
            ["/lib64/ld-linux-x86-64.so.2", "ld-musl-x86_64.so.1", "/lib/ld-2.31.so", "ld.so"]
        {
            assert!(is_one(name.as_bytes()), "{name}");
        }
        for name in ["/usr/bin/ld", "/usr/bin/ld.bfd", "/ld-linux/x", "ld.so.conf", ""] {
            assert!(!is_one(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn an_option_is_found_wherever_it_lies_in_the_loader() {
        for at in [0, 1000, 1017, 1020, 1023, 5000] {
            let mut bytes = std::vec![b'-'; 6000];
            let read = |bytes: &[u8], offset: u64, to: &mut [u8]| {
                let rest = bytes.get(offset as usize..).unwrap_or(&[]);
                let count = rest.len().min(to.len());
                to[..count].copy_from_slice(&rest[..count]);
                count
            };
            assert!(!knows_names(|offset, to| read(&bytes, offset, to)));
            bytes[at..at + 5].copy_from_slice(b"argv0");
            assert!(knows_names(|offset, to| read(&bytes, offset, to)), "at {at}");
        }
    }
}
