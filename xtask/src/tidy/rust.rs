//! What Rust files must not hold.

use super::source::{self, line_of, places_of};
use super::{Complaint, SourceFile};

/// Calls that do not belong in the product, with what to do instead.
const BANNED: &[(&str, &str)] = &[
    (".unwrap()", "say why it cannot fail: expect(\"...\")"),
    ("todo!", "write it, or answer a clear errno"),
    ("unimplemented!", "write it, or answer a clear errno"),
    ("dbg!", "remove it"),
];

/// Where `unsafe` may stand: a directory ends with `/`.
const UNSAFE: &[(&str, &str)] = &[
    ("crates/sys/", "raw system calls and mapped memory"),
    ("crates/transport-shm/", "memory shared with another process"),
    ("crates/image/", "mapping code"),
    ("crates/preload/", "code in a host process"),
    ("crates/interpose/", "pointers that the host process passes"),
    ("crates/client/", "buffers of the host process and the mapped open-file table"),
    ("crates/deploy/src/xattrs.rs", "calls of the C library that no safe crate makes"),
    ("crates/stage/src/priority.rs", "calls of the C library that no safe crate makes"),
    ("crates/stage/src/inherited.rs", "descriptors that a process was started with"),
    ("crates/stage/src/writers.rs", "leases, and a signal that is ignored"),
    ("crates/stage/src/xattrs.rs", "calls of the C library that no safe crate makes"),
    ("crates/meta/src/lmdb.rs", "opening a memory-mapped store"),
];

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        if file.path.ends_with("/mod.rs") {
            complaints
                .push(Complaint::at(&file.path, "name it after its module: foo.rs beside foo/"));
        }
        if is_test_file(&file.path) {
            continue;
        }
        let code = source::without_tests(&source::code(file.text().unwrap_or_default()));
        for (banned, instead) in BANNED {
            for (at, _) in code.match_indices(banned) {
                let line = line_of(&code, at);
                complaints.push(Complaint::at_line(
                    &file.path,
                    line,
                    format!("{banned}: {instead}"),
                ));
            }
        }
    }
    complaints
}

pub(super) fn check_unsafe(files: &[SourceFile]) -> Vec<Complaint> {
    let allowed = |path: &str| {
        UNSAFE
            .iter()
            .any(|(place, _)| *place == path || place.ends_with('/') && path.starts_with(place))
    };
    let checked = files.iter().filter(|file| file.is("rs") && file.path.starts_with("crates/"));
    let mut complaints = Vec::new();
    for file in checked.filter(|file| !is_test_file(&file.path) && !allowed(&file.path)) {
        let code = source::without_tests(&source::code(file.text().unwrap_or_default()));
        let lines = places_of(&code, "unsafe").into_iter().map(|at| line_of(&code, at));
        let what = "unsafe here is not in the table of xtask/src/tidy/rust.rs";
        complaints.extend(lines.map(|line| Complaint::at_line(&file.path, line, what)));
    }
    complaints
}

/// Files that no user's build has.
fn is_test_file(path: &str) -> bool {
    let outside = ["tests/", "fuzz/", "bench/"].iter().any(|start| path.starts_with(start));
    outside
        || path.ends_with("/tests.rs")
        || ["/tests/", "/benches/", "/examples/"].iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn unwrap_is_banned_in_code_and_free_in_tests_and_comments() {
        let text = "fn a() { b.unwrap(); } // c.unwrap()\n#[cfg(test)]\nfn d() { e.unwrap(); }";
        let complaints = check(&[file("crates/meta/src/lib.rs", text)]);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].0.starts_with("crates/meta/src/lib.rs:1: .unwrap()"));
        assert!(check(&[file("crates/meta/tests/any.rs", text)]).is_empty());
    }

    #[test]
    fn unsafe_is_free_where_the_table_says() {
        let text = "#![forbid(unsafe_code)]\n\nfn a() { unsafe { b() } }";
        assert_eq!(check_unsafe(&[file("crates/wire/src/lib.rs", text)]).len(), 1);
        assert!(check_unsafe(&[file("crates/sys/src/lib.rs", text)]).is_empty());
        assert_eq!(check_unsafe(&[file("crates/meta/src/mdb.rs", text)]).len(), 1);
        assert!(check_unsafe(&[file("crates/meta/src/lmdb.rs", text)]).is_empty());
    }
}
