//! What is copied.

use std::{ffi::CString, path::Path, sync::Arc, time::SystemTime};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use crate::{
    Listed as List,
    bucket::Listed,
    copy::settle::{Moment, Stat, is_after},
};

/// What a user wants of a tree.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Files of these patterns only, and all below directories of them, as `.gitignore` has them.
    pub include: Vec<String>,
    /// Nothing of these patterns; a later one that begins with `!` takes back what an earlier one
    /// has left out.
    pub exclude: Vec<String>,
    /// Only what is listed, below the source.
    pub listed: Option<Arc<List>>,
    /// Files changed after that moment.
    pub newer: Option<SystemTime>,
    /// Files of which anything was changed after that moment, by the source's own clock.
    pub touched: Option<Moment>,
    /// Files of so many bytes or more.
    pub larger: Option<u64>,
    /// Files of so many bytes or fewer.
    pub smaller: Option<u64>,
}

/// A pattern that is none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(#[from] ignore::Error);

/// The same, ready to be asked.
#[derive(Debug)]
pub struct Selection {
    include: Option<Gitignore>,
    exclude: Option<Gitignore>,
    listed: Option<Arc<List>>,
    newer: Option<SystemTime>,
    touched: Option<Moment>,
    larger: u64,
    smaller: u64,
}

impl Selection {
    /// Reads the patterns; `more` are further ones to include.
    ///
    /// # Errors
    /// One of them is none.
    pub fn new(wanted: &Wanted, more: &[String]) -> Result<Selection, BadPattern> {
        let include: Vec<&String> = wanted.include.iter().chain(more).collect();
        Ok(Selection {
            include: patterns(&include)?,
            exclude: patterns(&wanted.exclude.iter().collect::<Vec<_>>())?,
            listed: wanted.listed.clone(),
            newer: wanted.newer,
            touched: wanted.touched,
            larger: wanted.larger.unwrap_or(0),
            smaller: wanted.smaller.unwrap_or(u64::MAX),
        })
    }

    /// Do names decide?
    pub(crate) fn has_patterns(&self) -> bool {
        !self.names_all() || self.exclude.is_some()
    }

    /// Do attributes decide?
    pub(crate) fn by_attributes(&self) -> bool {
        self.newer.is_some() || self.touched.is_some() || self.larger > 0 || self.smaller < u64::MAX
    }

    /// Need no file be named?
    pub(super) fn names_all(&self) -> bool {
        self.include.is_none() && self.listed.is_none()
    }

    /// Is nothing there copied, neither it nor what is below? The path is that from the source on.
    pub(crate) fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        self.exclude.as_ref().is_some_and(|globs| globs.matched(path, is_directory).is_ignore())
    }

    /// Is it named to be copied? What is below a directory that is, is too.
    pub(crate) fn names(&self, path: &Path, is_directory: bool) -> bool {
        let included = match &self.include {
            None => true,
            Some(globs) => matches!(globs.matched(path, is_directory), Match::Ignore(_)),
        };
        included && self.listed.as_ref().is_none_or(|listed| listed.has(path))
    }

    /// What of a directory is listed, if there is a list.
    pub(super) fn listed_in(&self, path: &Path) -> Option<Vec<CString>> {
        self.listed.as_ref().map(|listed| listed.names_in(path))
    }

    /// Is a file with this path named, or one of the directories that it is in?
    pub(crate) fn takes_name(&self, path: &Path) -> bool {
        let above = || path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
        let left_out =
            self.leaves_out(path, false) || above().any(|path| self.leaves_out(path, true));
        let all = path.as_os_str().is_empty() || self.names_all();
        let named = all || self.names(path, false) || above().any(|path| self.names(path, true));
        named && !left_out
    }

    /// Is an object that becomes this file copied?
    pub(crate) fn takes(&self, path: &Path, listed: Listed) -> bool {
        let newer = self.newer.is_none_or(|moment| is_after(listed.put, moment));
        newer && (self.larger..=self.smaller).contains(&listed.bytes) && self.takes_name(path)
    }

    /// Do its attributes let a file be copied?
    pub(crate) fn lets(&self, stat: &Stat) -> bool {
        let newer = self.newer.is_none_or(|moment| stat.changed_after(moment));
        let touched = self.touched.is_none_or(|moment| stat.changed > moment);
        newer && touched && (self.larger..=self.smaller).contains(&stat.bytes)
    }
}

fn patterns(lines: &[&String]) -> Result<Option<Gitignore>, BadPattern> {
    if lines.is_empty() {
        return Ok(None);
    }
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        builder.add_line(None, line)?;
    }
    Ok(Some(builder.build()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(include: &[&str], exclude: &[&str]) -> Selection {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let wanted = Wanted { include: own(include), exclude: own(exclude), ..Wanted::default() };
        Selection::new(&wanted, &[]).expect("patterns")
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        let chosen = selection(&["*.h5", "/top"], &["tmp/", "*.log", "!keep.log"]);
        assert!(chosen.names(Path::new("a/b/c.h5"), false));
        assert!(chosen.names(Path::new("top"), true) && !chosen.names(Path::new("a/top"), true));
        assert!(!chosen.names(Path::new("a/c.txt"), false));
        assert!(chosen.leaves_out(Path::new("a/tmp"), true));
        assert!(!chosen.leaves_out(Path::new("a/tmp"), false));
        assert!(chosen.leaves_out(Path::new("x.log"), false));
        assert!(!chosen.leaves_out(Path::new("a/keep.log"), false));
    }

    #[test]
    fn two_stars_are_any_depth() {
        let chosen = selection(&["/**/*.h5"], &[]);
        assert!(chosen.names(Path::new("x.h5"), false));
        assert!(chosen.names(Path::new("a/b/x.h5"), false));
    }

    #[test]
    fn a_pattern_that_is_none_is_an_error() {
        let wanted = Wanted { include: vec!["a{b".to_owned()], ..Wanted::default() };
        assert!(Selection::new(&wanted, &[]).is_err());
    }
}
