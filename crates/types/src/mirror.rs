//! Where the files lie that the kernel watches for those who watch files of the instance.
//!
//! In the node's run directory, [`DIRECTORY`], which is there from the first watch on:
//!
//! | name | what |
//! |---|---|
//! | `directories/ID/NAME` | a name in a watched directory |
//! | `files/ID` | a watched file |
//! | `names/ID` | a link to one name in `directories` that the file has |
//! | `passing/N` | what is on its way from one place to another, which nobody watches |
//!
//! Identities are written as 16 hexadecimal digits.

/// The directory in a node's run directory.
pub const DIRECTORY: &str = "watched";
/// Names in watched directories.
pub const DIRECTORIES: &str = "directories";
/// Watched files.
pub const FILES: &str = "files";
/// Links to names of files.
pub const NAMES: &str = "names";
/// What nobody watches.
pub const PASSING: &str = "passing";
