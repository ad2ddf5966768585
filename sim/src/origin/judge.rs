//! What must be so of what is read inside and of what is put outside.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use mayfly_types::Errno;

use super::{
    Content, MARKS_OF_PROGRAM, OF_OTHERS, client::Job, external::is_below, parent_of, plan::below,
};

/// What is under a path outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum There {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// A file with this in it.
    File(Content),
}

/// A mark of a program.
#[derive(Debug, Clone, Copy)]
struct Inside {
    /// It was written to a file that was emptied first, which was known at this time, nanoseconds.
    emptied_ns: Option<u64>,
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
    /// Nothing is done but by the origin's others.
    pub untroubled: bool,
    /// There may be no space though nothing goes wrong.
    pub is_short: bool,
    /// What a program has closed is outside.
    pub flushed_at_close: bool,
    /// Names that programs change.
    pub own: BTreeSet<String>,
    /// Contents that were outside, and marks of them.
    possible: HashSet<Content>,
    flushed: HashSet<u32>,
    /// Since when each path has had what outside.
    timeline: BTreeMap<String, Vec<(u64, There)>>,
    marks: HashMap<u32, Inside>,
    /// Marks that are in the files of a client, by path.
    of_path: BTreeMap<String, Vec<u32>>,
    /// When files were last emptied inside, nanoseconds; nothing: that is under way.
    emptied: BTreeMap<String, Option<u64>>,
    /// The same of files that are being moved.
    moving: BTreeMap<String, Vec<u32>>,
    /// Files that were put beside what others had changed.
    pub copies: u64,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// Times here are counted in milliseconds.
const SLACK_NS: u64 = 2_000_000;

/// For messages: contents may be long.
fn brief(content: &[u32]) -> String {
    match content {
        [first, second, third, .., last] => {
            format!("[{first}, {second}, {third}, …, {last}] ({})", content.len())
        }
        short => format!("{short:?}"),
    }
}

impl Judge {
    /// Something is wrong.
    pub fn say(&mut self, what: String) {
        self.wrong.push(format!("{:.6}: {what}", self.now_ns as f64 / 1e9));
    }

    /// A path has this outside from now on.
    pub fn is_there(&mut self, path: &str, there: There) {
        if let There::File(content) = &there {
            self.possible.insert(content.clone());
            self.flushed.extend(content.iter().copied());
        }
        let now_ns = self.now_ns;
        self.timeline.entry(path.to_owned()).or_default().push((now_ns, there));
    }

    /// A client is about to write a mark; `whole` when it has emptied the file.
    pub fn begin_write(&mut self, path: &str, mark: u32, whole: bool) {
        if whole {
            self.supersede(path);
        }
        let emptied_ns = whole.then_some(self.now_ns);
        if whole {
            self.emptied.insert(path.to_owned(), emptied_ns);
        }
        let inside = Inside { emptied_ns, acknowledged: false, superseded: false };
        self.marks.insert(mark, inside);
        self.of_path.entry(path.to_owned()).or_default().push(mark);
    }

    /// A client is about to empty a file.
    pub fn begin_emptying(&mut self, path: &str) {
        self.supersede(path);
        self.emptied.insert(path.to_owned(), None);
    }

    /// It was told that the mark is written.
    pub fn acknowledge(&mut self, mark: u32) {
        if let Some(inside) = self.marks.get_mut(&mark) {
            inside.acknowledged = true;
        }
    }

    /// Others change what is at the path, or below it. What is being written there just now may be
    /// written to a file that has no name any more.
    pub fn others_change(&mut self, path: &str) {
        let at_it = |of: &str| of == path || is_below(of, path);
        let marks = self.of_path.iter().filter(|(of, _)| at_it(of)).flat_map(|(_, marks)| marks);
        for mark in marks {
            if let Some(inside) = self.marks.get_mut(mark).filter(|inside| !inside.acknowledged) {
                inside.superseded = true;
            }
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

    /// It was told that the file with the mark is closed.
    pub fn closed(&mut self, mark: u32) {
        let inside = self.marks.get(&mark);
        let counts = inside.is_some_and(|inside| inside.acknowledged && !inside.superseded);
        if self.flushed_at_close && counts && !self.flushed.contains(&mark) {
            self.say(format!("the file with {mark} is closed, which is nowhere outside"));
        }
    }

    /// A client is about to move a file, or a directory with all that is in it. Until it hears of
    /// that, either may be there.
    pub fn begin_move(&mut self, from: &str, to: &str) {
        for rest in self.rests_below(from) {
            self.begin_move_one(&format!("{from}{rest}"), &format!("{to}{rest}"));
        }
        self.begin_move_one(from, to);
    }

    /// Files of clients in a directory, by the end of their paths.
    fn rests_below(&self, directory: &str) -> Vec<String> {
        let paths = self.of_path.keys().chain(self.moving.keys()).chain(self.emptied.keys());
        let rests: BTreeSet<&str> = paths.filter_map(|path| below(path, directory)).collect();
        rests.into_iter().map(str::to_owned).collect()
    }

    fn begin_move_one(&mut self, from: &str, to: &str) {
        self.supersede(to);
        let marks = self.of_path.get(from).cloned().unwrap_or_default();
        self.supersede(from);
        if let Some(emptied) = self.emptied.get(from).copied() {
            self.emptied.insert(to.to_owned(), emptied);
        }
        self.moving.insert(from.to_owned(), marks);
    }

    /// It was moved.
    pub fn moved(&mut self, from: &str, to: &str) {
        for rest in self.rests_below(from) {
            self.moved_one(&format!("{from}{rest}"), &format!("{to}{rest}"));
        }
        self.moved_one(from, to);
    }

    fn moved_one(&mut self, from: &str, to: &str) {
        let marks = self.moving.remove(from).unwrap_or_default();
        for mark in &marks {
            if let Some(inside) = self.marks.get_mut(mark) {
                inside.superseded = false;
            }
        }
        self.of_path.entry(to.to_owned()).or_default().extend(marks);
    }

    /// Whether a content can have come about.
    fn is_valid(&self, content: &[u32]) -> bool {
        let mut content = content;
        while let Some((last, before)) = content.split_last() {
            if self.possible.contains(content) {
                return true;
            }
            match self.marks.get(last) {
                Some(Inside { emptied_ns: Some(_), .. }) => return before.is_empty(),
                Some(_) => content = before,
                None => return false,
            }
        }
        true
    }

    /// What was there at a moment or since.
    fn since(&self, path: &str, since_ns: u64) -> &[(u64, There)] {
        let seen = self.timeline.get(path).map_or(&[][..], Vec::as_slice);
        let begun = seen.partition_point(|(at_ns, _)| *at_ns <= since_ns);
        &seen[begun.saturating_sub(1)..]
    }

    /// Whether it was so all the time since.
    fn was_always(&self, path: &str, since_ns: u64, so: impl Fn(&There) -> bool) -> bool {
        let seen = self.since(path, since_ns);
        let from_the_start = seen.first().is_some_and(|(at_ns, _)| *at_ns <= since_ns);
        from_the_start && seen.iter().all(|(_, there)| so(there))
    }

    /// Whether the directories above were there all the time since.
    fn was_below_directories(&self, path: &str, since_ns: u64) -> bool {
        let mut above = parent_of(path);
        while !above.is_empty() {
            if !self.was_always(above, since_ns, |there| *there == There::Directory) {
                return false;
            }
            above = parent_of(above);
        }
        true
    }

    /// What who begins at that moment may still believe was so from this one on.
    fn believed_ns(&self, from_ns: u64) -> u64 {
        self.valid_ns.map_or(0, |valid_ns| from_ns.saturating_sub(valid_ns + SLACK_NS))
    }

    /// A file was read from the one moment to the present.
    pub fn read(&mut self, path: &str, from_ns: u64, content: &Content, owned: bool) {
        if !self.is_valid(content) {
            return self.say(format!("{path} was read as {}, which it never was", brief(content)));
        }
        // Acknowledged before the read began is what the caller makes sure of.
        for mark in self.of_path.get(path).cloned().unwrap_or_default() {
            if owned && self.is_only_here(mark) && !content.contains(&mark) {
                let content = brief(content);
                return self.say(format!("{path} was read as {content}, without its {mark}"));
            }
        }
        if !self.own.contains(path) {
            self.check_age(path, from_ns, |there| there == content, &brief(content));
        }
    }

    /// Some marks of it were read, from this one on.
    pub fn read_part(&mut self, path: &str, from_ns: u64, at: usize, marks: &[u32]) {
        let is_part = |content: &Content| content.get(at..).unwrap_or(&[]).starts_with(marks);
        self.check_age(path, from_ns, is_part, &brief(marks));
    }

    fn check_age(
        &mut self,
        path: &str,
        from_ns: u64,
        is_it: impl Fn(&Content) -> bool,
        told: &str,
    ) {
        let since = self.since(path, self.believed_ns(from_ns));
        let is_it = |there: &There| matches!(there, There::File(content) if is_it(content));
        if !since.iter().any(|(_, there)| is_it(there)) {
            self.say(format!("{path} was read as {told}, which it has not been for long"));
        }
    }

    /// Whether something in the directory may be dirty, so that it stays when it is gone outside.
    fn may_be_kept(&self, directory: &str) -> bool {
        let below = format!("{directory}/");
        self.own.iter().any(|path| path.starts_with(&below))
    }

    fn is_only_here(&self, mark: u32) -> bool {
        let inside = self.marks[&mark];
        inside.acknowledged && !inside.superseded && !self.flushed.contains(&mark)
    }

    /// A directory was listed from the one moment to the present.
    pub fn listed(&mut self, directory: &str, from_ns: u64, names: &[String]) {
        let since_ns = self.believed_ns(from_ns);
        if !self.was_below_directories(&format!("{directory}/x"), since_ns) {
            return;
        }
        let full = |name: &str| match directory {
            "" => name.to_owned(),
            _ => format!("{directory}/{name}"),
        };
        let shown: BTreeSet<String> = names.iter().map(|name| full(name)).collect();
        let known: Vec<String> = self.timeline.keys().cloned().collect();
        for path in known.into_iter().filter(|path| parent_of(path) == directory) {
            if path.is_empty() || self.own.contains(&path) {
                continue;
            }
            let was_there = self.was_always(&path, since_ns, |there| *there != There::Nothing);
            let since = self.since(&path, since_ns);
            let was_ever = since.iter().any(|(_, there)| *there != There::Nothing);
            match shown.contains(&path) {
                true if !was_ever && !self.may_be_kept(&path) => {
                    self.say(format!("{path} is listed, and has not been there for long"));
                }
                false if was_there => self.say(format!("{path} is not listed, and is there")),
                _ => {}
            }
        }
    }

    /// Something that was begun at that moment has failed; `is_open` when that was possible.
    pub fn failed(&mut self, job: &Job, is_open: bool, from_ns: u64, errno: Errno) {
        if self.is_short && errno == Errno::ENOSPC {
            return;
        }
        let (Job::Read { path, .. } | Job::ReadPart { path, .. } | Job::List { path }) = job else {
            let of_disk = [Errno::EIO, Errno::ENOSPC, Errno::ETIMEDOUT].contains(&errno);
            if self.untroubled && of_disk {
                self.say(format!("{errno} though nothing went wrong: {job:?}"));
            }
            return;
        };
        let since_ns = self.believed_ns(from_ns);
        let is_gone = errno == Errno::ENOENT || errno == Errno::ENOTDIR;
        if !self.was_below_directories(path, since_ns) || !(is_gone || self.untroubled) {
            return;
        }
        let is_list = matches!(job, Job::List { .. });
        let is_it = |there: &There| match there {
            There::Nothing => false,
            There::Directory => is_list,
            There::File(_) => !is_list,
        };
        let stays = self.since(path, since_ns).len() == 1;
        if !self.own.contains(path) {
            // Who meets a change in the middle may say that.
            if self.was_always(path, since_ns, is_it) && (is_gone || stays) {
                let open = if is_open { ", open," } else { "" };
                self.say(format!("{job:?}{open} failed with {errno}, and it is there"));
            }
            return;
        }
        let marks = self.of_path.get(path).into_iter().flatten();
        let lost: Vec<u32> = marks.copied().filter(|mark| self.is_only_here(*mark)).collect();
        if is_gone && !lost.is_empty() {
            self.say(format!("{job:?} failed with {errno}, and has {lost:?}"));
        }
    }

    /// A flush puts a content in the place of another one, which others have put there at that
    /// moment, nanoseconds.
    pub fn replaced(&mut self, path: &str, old: (&Content, Option<u64>), new: &Content) {
        let (old, by_others_ns) = old;
        let (told, was) = (brief(new), brief(old));
        if !self.is_valid(new) {
            return self.say(format!("{path} was flushed as {told}, which it never was"));
        }
        if new.starts_with(old) {
            return;
        }
        let of_inside = |mark: Option<&u32>| mark.copied().filter(|mark| *mark < OF_OTHERS);
        let (first, before) = (of_inside(new.first()), of_inside(old.first()));
        // Who has emptied it may have died before it wrote, and another one has added something.
        let emptied = || self.emptied.get(path).map(|ns| ns.unwrap_or(u64::MAX));
        let emptied_ns = match first.and_then(|mark| self.marks.get(&mark)) {
            Some(inside) => inside.emptied_ns.or_else(emptied),
            None if new.is_empty() => emptied(),
            None => None,
        };
        // Of one program; what others have moved there is judged by its time.
        let is_older = by_others_ns.is_none()
            && first.zip(before).is_some_and(|(mark, before)| {
                mark / MARKS_OF_PROGRAM == before / MARKS_OF_PROGRAM && mark <= before
            });
        match emptied_ns {
            None => self.say(format!("{path} was {was} outside and is flushed as {told}")),
            Some(_) if is_older => {
                self.say(format!("{path} was {was} outside and is flushed as {told}, older"));
            }
            Some(emptied_ns) if by_others_ns.is_some_and(|ns| ns > emptied_ns) => {
                self.say(format!("{path} was changed to {was} and is flushed as {told}"));
            }
            Some(_) => {}
        }
    }

    /// A flush puts a content beside what is outside.
    pub fn kept_beside(&mut self, copy: &str, content: &Content) {
        self.copies += 1;
        if !self.is_valid(content) {
            self.say(format!("{copy} has {}, which it never was", brief(content)));
        }
    }

    /// The same of what there is of a content, in its order.
    pub fn kept_in_part(&mut self, path: &str, content: &Content) {
        self.copies += 1;
        let known = |mark: &u32| {
            self.marks.contains_key(mark) || self.possible.iter().any(|of| of.contains(mark))
        };
        if !content.iter().all(known) {
            self.say(format!("{path} has {} in part, which it never was", brief(content)));
        }
        self.flushed.extend(content.iter().copied());
    }

    /// Nothing that was acknowledged is lost, when everything was flushed.
    pub fn expect_all_flushed(&mut self) {
        let mut lost: Vec<u32> = self
            .marks
            .iter()
            .filter(|(_, inside)| inside.acknowledged && !inside.superseded)
            .map(|(mark, _)| *mark)
            .filter(|mark| !self.flushed.contains(mark))
            .collect();
        lost.sort_unstable();
        if !lost.is_empty() {
            self.say(format!("{lost:?} were acknowledged and are nowhere outside"));
        }
    }
}
