//! A list of what is copied.

use std::{
    ffi::{CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

/// A path that is none below a source.
#[derive(Debug, thiserror::Error)]
#[error("{}: not a path below the source", .0.display())]
pub struct BadPath(PathBuf);

/// Paths below a source; of a directory all that is below it is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed(Vec<Vec<u8>>);

impl Listed {
    /// From a list, its items ended by a zero if there is one, by the ends of lines otherwise.
    ///
    /// # Errors
    /// One of them leads elsewhere.
    pub fn read(text: &[u8]) -> Result<Listed, BadPath> {
        let end = if text.contains(&0) { 0 } else { b'\n' };
        let items = text.split(|byte| *byte == end).filter(|item| !item.is_empty());
        let mut paths = items.map(below).collect::<Result<Vec<_>, _>>()?;
        paths.sort_unstable();
        paths.dedup();
        Ok(Listed(paths))
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        self.0.binary_search_by(|one| one.as_slice().cmp(path)).is_ok()
    }

    /// What of the directory at `path` is listed, or leads to something that is.
    pub(super) fn names_in(&self, path: &Path) -> Vec<CString> {
        let mut start = path.as_os_str().as_bytes().to_vec();
        if !start.is_empty() {
            start.push(b'/');
        }
        let first = self.0.partition_point(|one| *one < start);
        let inside = self.0[first..].iter().map_while(|one| one.strip_prefix(start.as_slice()));
        let mut names: Vec<CString> = Vec::new();
        for rest in inside {
            let name = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
            // Paths with the same beginning may be apart, but not far.
            if !name.is_empty() && names.last().is_none_or(|last| last.as_bytes() != name) {
                names.extend(CString::new(name));
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Without what says nothing.
fn below(item: &[u8]) -> Result<Vec<u8>, BadPath> {
    let path = Path::new(OsStr::from_bytes(item));
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            _ => return Err(BadPath(path.to_owned())),
        }
    }
    Ok(plain.into_os_string().into_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &Listed, path: &str) -> Vec<String> {
        let names = list.names_in(Path::new(path));
        names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_directory_has_what_is_listed_in_it_and_what_leads_there() {
        let list = Listed::read(b"./a/b/c\na/b\na-b\na/d\nx\n\na/b/c\n").expect("paths");
        assert_eq!(names(&list, ""), ["a", "a-b", "x"]);
        assert_eq!(names(&list, "a"), ["b", "d"]);
        assert_eq!(names(&list, "a/b"), ["c"]);
        assert!(names(&list, "x").is_empty());
        assert!(list.has(Path::new("a/b")) && !list.has(Path::new("a")));
    }

    #[test]
    fn zeros_end_items_if_there_are_any() {
        let list = Listed::read(b"a\nb\0c\0").expect("paths");
        assert_eq!(names(&list, ""), ["a\nb", "c"]);
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        assert!(Listed::read(b"a/../b").is_err() && Listed::read(b"/etc/passwd").is_err());
    }
}
