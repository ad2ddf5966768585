//! What must be so of what is read inside and of what is put outside.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Content, OF_OTHERS};

/// A mark of a client.
#[derive(Debug, Clone, Copy)]
struct Inside {
    /// It was written to a file that was emptied first.
    whole: bool,
    /// The write was acknowledged.
    acknowledged: bool,
    /// Its file was emptied, removed or replaced since, or that was begun.
    superseded: bool,
}

/// All that was seen.
#[derive(Debug, Default)]
pub struct Judge {
    /// The present, nanoseconds.
    pub now_ns: u64,
    /// How long what was seen outside is believed, nanoseconds; nothing: for ever.
    pub valid_ns: Option<u64>,
    /// Contents that were outside, and marks of them.
    possible: HashSet<Content>,
    external: HashSet<u32>,
    /// Since when each path has had what outside.
    timeline: BTreeMap<String, Vec<(u64, Option<Content>)>>,
    marks: HashMap<u32, Inside>,
    /// Marks that are in the files of a client, by path.
    of_path: BTreeMap<String, Vec<u32>>,
    /// The same of files that are being moved.
    moving: BTreeMap<String, Vec<u32>>,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// Looks for a change outside are begun so long after what they are for, and end so late.
const SLACK_NS: u64 = 6_000_000_000;

impl Judge {
    fn say(&mut self, what: String) {
        self.wrong.push(format!("{:.6}: {what}", self.now_ns as f64 / 1e9));
    }

    /// A path has another content outside, or none.
    pub fn external_is(&mut self, path: &str, content: Option<Content>) {
        if let Some(content) = &content {
            self.possible.insert(content.clone());
            self.external.extend(content.iter().copied());
        }
        let now_ns = self.now_ns;
        self.timeline.entry(path.to_owned()).or_default().push((now_ns, content));
    }

    /// A client is about to write a mark; `whole` when it has emptied the file.
    pub fn begin_write(&mut self, path: &str, mark: u32, whole: bool) {
        if whole {
            self.supersede(path);
        }
        let inside = Inside { whole, acknowledged: false, superseded: false };
        self.marks.insert(mark, inside);
        self.of_path.entry(path.to_owned()).or_default().push(mark);
    }

    /// It was told that the mark is written.
    pub fn acknowledge(&mut self, mark: u32) {
        if let Some(inside) = self.marks.get_mut(&mark) {
            inside.acknowledged = true;
        }
    }

    /// What clients have written to the path may go from now on.
    pub fn supersede(&mut self, path: &str) {
        for mark in self.of_path.remove(path).unwrap_or_default() {
            if let Some(inside) = self.marks.get_mut(&mark) {
                inside.superseded = true;
            }
        }
    }

    /// A client is about to move a file. Until it hears of that, either may be there.
    pub fn begin_move(&mut self, from: &str, to: &str) {
        self.supersede(to);
        let marks = self.of_path.get(from).cloned().unwrap_or_default();
        self.supersede(from);
        self.moving.insert(from.to_owned(), marks);
    }

    /// It was moved.
    pub fn moved(&mut self, from: &str, to: &str) {
        let marks = self.moving.remove(from).unwrap_or_default();
        for mark in &marks {
            if let Some(inside) = self.marks.get_mut(mark) {
                inside.superseded = false;
            }
        }
        self.of_path.entry(to.to_owned()).or_default().extend(marks);
    }

    fn is_inside(mark: u32) -> bool {
        mark < OF_OTHERS
    }

    /// Whether a content can have come about.
    fn is_valid(&self, content: &[u32]) -> bool {
        let Some((last, before)) = content.split_last() else { return true };
        if self.possible.contains(content) {
            return true;
        }
        let Some(inside) = self.marks.get(last) else { return false };
        if inside.whole { before.is_empty() } else { self.is_valid(before) }
    }

    /// A file was read from the one moment to the present.
    pub fn read(&mut self, path: &str, from_ns: u64, content: &Content, owned: bool) {
        if !self.is_valid(content) {
            return self.say(format!("{path} was read as {content:?}, which it never was"));
        }
        // Acknowledged before the read began is what the caller makes sure of.
        let marks = self.of_path.get(path).cloned().unwrap_or_default();
        for mark in marks {
            let inside = self.marks[&mark];
            let only_here = inside.acknowledged && !self.external.contains(&mark);
            if owned && only_here && !content.contains(&mark) {
                return self.say(format!("{path} was read as {content:?}, without its {mark}"));
            }
        }
        let Some(valid_ns) = self.valid_ns else { return };
        let untouched = content.iter().all(|mark| !Self::is_inside(*mark));
        let by_others = !self.of_path.contains_key(path) && !owned;
        if !untouched || !by_others || content.is_empty() {
            return;
        }
        let since_ns = from_ns.saturating_sub(valid_ns + SLACK_NS);
        let seen = self.timeline.get(path).map_or(&[][..], Vec::as_slice);
        let was_there = seen.iter().enumerate().any(|(at, (_, there))| {
            let until_ns = seen.get(at + 1).map_or(u64::MAX, |next| next.0);
            there.as_ref() == Some(content) && until_ns >= since_ns
        });
        if !was_there {
            self.say(format!("{path} was read as {content:?}, which it has not been for long"));
        }
    }

    /// A flush puts a content in the place of another one.
    pub fn replaced(&mut self, path: &str, old: &Content, new: &Content) {
        if !self.is_valid(new) {
            return self.say(format!("{path} was flushed as {new:?}, which it never was"));
        }
        let whole = new.first().is_none_or(|mark| self.marks.get(mark).is_some_and(|of| of.whole));
        let other = old.first() != new.first();
        if !(new.starts_with(old) || whole && other) {
            self.say(format!("{path} was {old:?} outside and is flushed as {new:?}"));
        }
    }

    /// Nothing that was acknowledged is lost, when everything was flushed.
    pub fn expect_all_flushed(&mut self) {
        let mut lost: Vec<u32> = self
            .marks
            .iter()
            .filter(|(_, inside)| inside.acknowledged && !inside.superseded)
            .map(|(mark, _)| *mark)
            .filter(|mark| !self.external.contains(mark))
            .collect();
        lost.sort_unstable();
        if !lost.is_empty() {
            self.say(format!("{lost:?} were acknowledged and are nowhere outside"));
        }
    }
}
