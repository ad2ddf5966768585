//! Scripts: what their first line says, and what their interpreter is told.

use mayfly_sys::{Errno, file::AT_FDCWD, text::PathText};

use crate::process::libraries;

/// Bytes of a file that the kernel looks at (`BINPRM_BUF_SIZE`).
pub(super) const HEAD_BYTES: usize = 256;

/// What a script's first line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interpreter<'h> {
    pub(super) path: &'h [u8],
    pub(super) argument: Option<&'h [u8]>,
}

/// Reads `#! path argument`. As the kernel: blanks are spaces and tabs, everything behind the path
/// is one argument without the blanks around it; a line cut off inside the path is no script.
pub(super) fn interpreter(head: &[u8]) -> Result<Option<Interpreter<'_>>, Errno> {
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = line.iter().position(|byte| *byte == b'\n' || *byte == 0);
    let whole = end.is_some() || head.len() < HEAD_BYTES;
    let line = line.get(..end.unwrap_or(line.len())).unwrap_or(line);
    let start = line.iter().position(|byte| !blank(byte)).ok_or(Errno::ENOEXEC)?;
    let line = line.get(start..).unwrap_or(&[]);
    let Some(length) = line.iter().position(blank) else {
        return match whole {
            true => Ok(Some(Interpreter { path: line, argument: None })),
            false => Err(Errno::ENOEXEC),
        };
    };
    let (path, rest) = line.split_at(length);
    let argument = rest.trim_ascii();
    Ok(Some(Interpreter { path, argument: (!argument.is_empty()).then_some(argument) }))
}

/// Puts the path of the interpreter into `to`; false when the open file is no script.
pub(crate) fn interpreter_of(program: i32, to: &mut PathText) -> bool {
    let mut head = [0; HEAD_BYTES];
    let count = libraries::read_kernel(program, 0, &mut head);
    match interpreter(head.get(..count).unwrap_or(&[])) {
        Ok(Some(by)) => to.push(by.path).is_ok(),
        _ => false,
    }
}

/// What a script's interpreter is told to open.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScriptName<'p> {
    pub(super) directory: i32,
    pub(super) path: &'p [u8],
}

impl ScriptName<'_> {
    pub(super) fn write_to(self, to: &mut PathText) -> Result<(), Errno> {
        if self.directory == AT_FDCWD || self.path.starts_with(b"/") {
            return to.push(self.path);
        }
        to.push(b"/dev/fd/")?;
        to.push_decimal(self.directory as u64)?;
        if self.path.is_empty() { Ok(()) } else { to.push_component(self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_is_read_as_the_kernel_reads_it() {
        let parse = |head: &'static [u8]| interpreter(head);
        let plain = |path, argument| Ok(Some(Interpreter { path, argument }));
        assert_eq!(parse(b"#!/bin/sh\necho"), plain(b"/bin/sh", None));
        assert_eq!(
            parse(b"#! \t/usr/bin/env  python3 -u \n"),
            plain(b"/usr/bin/env", Some(&b"python3 -u"[..]))
        );
        assert_eq!(parse(b"#!/bin/sh"), plain(b"/bin/sh", None));
        assert_eq!(parse(b"#!   \n"), Err(Errno::ENOEXEC));
        assert_eq!(parse(b"#!\n"), Err(Errno::ENOEXEC));
        assert_eq!(parse(b"\x7fELF"), Ok(None));
    }

    #[test]
    fn a_path_cut_off_by_the_head_is_no_interpreter() {
        let mut head = std::vec![b'a'; HEAD_BYTES];
        head[..3].copy_from_slice(b"#!/");
        assert_eq!(interpreter(&head), Err(Errno::ENOEXEC));
        head[200] = b' ';
        assert!(matches!(interpreter(&head), Ok(Some(_))));
    }
}
