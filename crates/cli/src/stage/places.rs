//! What paths of the command line mean: in the instance, or outside of it.
//!
//! A path in the instance begins at its root, unless the working directory is in there. The last
//! path is the destination. Each source becomes it or goes into it, as with `cp`; a pattern is cut
//! off and given to the engine. Links are not looked at: the words decide.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_stage::Pair;

use crate::arguments::Staging;

/// Sources and destinations of a stage.
pub(super) fn pairs(staging: &Staging, inward: bool) -> Result<Vec<Pair>> {
    let mount = std::env::var_os("MAYFLY_MOUNT").context("this process is in no instance")?;
    Places::new(Path::new(&mount))?.pairs(&staging.paths, inward)
}

/// What paths of the command line mean.
pub(super) struct Places<'a> {
    mount: &'a Path,
    here: PathBuf,
}

impl Places<'_> {
    pub(super) fn new(mount: &Path) -> Result<Places<'_>> {
        let here = std::env::current_dir().context("there is no working directory")?;
        Ok(Places { mount, here })
    }

    /// A path in the instance: it begins at the instance's root, unless the working directory is in
    /// the instance.
    pub(super) fn inside(&self, path: &Path) -> Result<PathBuf> {
        let start = if self.here.starts_with(self.mount) { &self.here } else { self.mount };
        let whole = plain(&start.join(path));
        ensure!(whole.starts_with(self.mount), "{}", self.not_inside(path));
        Ok(whole)
    }

    /// A path from the root is one of the machine's, and may have been meant as one of the
    /// instance's.
    fn not_inside(&self, path: &Path) -> String {
        let (shown, mount) = (path.display(), self.mount.display());
        let said = format!("{shown} is not in the instance, which is at {mount}");
        match path.strip_prefix("/").map(|inner| plain(&self.mount.join(inner))) {
            Ok(inner) if inner.starts_with(self.mount) => {
                format!("{said}: write {}", inner.display())
            }
            _ => said,
        }
    }

    pub(super) fn outside(&self, path: &Path) -> Result<PathBuf> {
        let whole = plain(&self.here.join(path));
        ensure!(
            !whole.starts_with(self.mount),
            "{} is in the instance; within it use `cp -a`",
            path.display()
        );
        Ok(whole)
    }

    pub(super) fn pairs(&self, paths: &[PathBuf], inward: bool) -> Result<Vec<Pair>> {
        let Some((destination, sources)) = paths.split_last() else { bail!("nothing to copy") };
        let target = if inward { self.inside(destination) } else { self.outside(destination) }?;
        let into = sources.len() > 1 || destination.as_os_str().as_bytes().ends_with(b"/");
        let mut pairs = Vec::new();
        for source in sources {
            let from = if inward { self.outside(source) } else { self.inside(source) }?;
            let (from, patterns) = split_pattern(&from)?;
            let is_file = fs::metadata(&from).is_ok_and(|file| !file.is_dir());
            // What a pattern chooses goes into the destination itself, and so does a root.
            let name = from.file_name().filter(|_| patterns.is_empty() && from != self.mount);
            let destination = match name {
                Some(name) if into || is_file && target.is_dir() => target.join(name),
                _ => target.clone(),
            };
            if let Some(earlier) = pairs.iter().find(|pair: &&Pair| pair.destination == destination)
            {
                let two = !patterns.is_empty() && !earlier.patterns.is_empty();
                ensure!(
                    two,
                    "{} and {} would both become {}",
                    earlier.source.display(),
                    from.display(),
                    destination.display()
                );
            }
            pairs.push(Pair { source: from, destination, patterns, like: None });
        }
        Ok(pairs)
    }
}

/// Without `.`, and with `..` taken back, as the words say.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The directory before the first component with a pattern, and the pattern from there on; unless
/// there is something of that very name.
pub(super) fn split_pattern(path: &Path) -> Result<(PathBuf, Vec<String>)> {
    let is_pattern = |name: &OsStr| name.as_bytes().iter().any(|byte| b"*?[".contains(byte));
    if !is_pattern(path.as_os_str()) || fs::symlink_metadata(path).is_ok() {
        return Ok((path.to_owned(), Vec::new()));
    }
    let components: Vec<Component<'_>> = path.components().collect();
    let first = components.iter().position(|component| is_pattern(component.as_os_str()));
    let (base, pattern) = components.split_at(first.unwrap_or(components.len()));
    let pattern: PathBuf = pattern.iter().collect();
    let text = pattern.to_str().context("a pattern is text")?;
    Ok((base.iter().collect(), vec![format!("/{text}")]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places<'static> {
        Places { mount: Path::new("/mnt/own"), here: PathBuf::from("/work") }
    }

    fn pairs(paths: &[&str], inward: bool) -> Result<Vec<(String, String)>> {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let show = |path: &Path| path.to_string_lossy().into_owned();
        let pairs = places().pairs(&paths, inward)?;
        Ok(pairs.iter().map(|pair| (show(&pair.source), show(&pair.destination))).collect())
    }

    #[test]
    fn one_source_becomes_the_destination_and_several_go_into_it() {
        let is = |paths: &[&str], expected: &[(&str, &str)]| {
            let found = pairs(paths, true).expect("pairs");
            let found: Vec<_> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            assert_eq!(found, expected, "{paths:?}");
        };
        is(&["case", "x"], &[("/work/case", "/mnt/own/x")]);
        is(&["case/", "."], &[("/work/case", "/mnt/own")]);
        is(&["case", "x/"], &[("/work/case", "/mnt/own/x/case")]);
        is(&["a", "../b", "x"], &[("/work/a", "/mnt/own/x/a"), ("/b", "/mnt/own/x/b")]);
        is(&["a", "/mnt/own/y"], &[("/work/a", "/mnt/own/y")]);
    }

    #[test]
    fn both_sides_are_where_they_should_be() {
        assert!(pairs(&["a", "/elsewhere"], true).is_err());
        assert!(pairs(&["/mnt/own/a", "b"], true).is_err());
        assert!(pairs(&["a", "/mnt/own/b"], false).is_err());
        assert!(pairs(&["../../etc", "b"], false).is_err());
        assert!(pairs(&["a/x", "b/x", "c"], false).is_err());
    }

    #[test]
    fn a_pattern_begins_at_its_first_component() {
        let split = |text: &str| split_pattern(Path::new(text)).expect("it is text");
        assert_eq!(split("/a/b"), (PathBuf::from("/a/b"), vec![]));
        let expected = (PathBuf::from("/none/b"), vec!["/c*/**/d.h5".to_owned()]);
        assert_eq!(split("/none/b/c*/**/d.h5"), expected);
    }
}
