//! What is left to do, dealt out to threads.
//!
//! A stack: what was found last is done first, so that few directories are under way at a time.
//! A directory's names lie there one after the other, a letter for the kind, the bytes and a zero,
//! and are taken in batches; of its directories one is taken at a time, since each of them opens
//! more.

use std::{
    ffi::CStr,
    sync::{Arc, Condvar, Mutex},
};

use crate::{
    copy::{kind::Kind, parts::Large},
    walk::tree::Dir,
};

/// So many names are taken at a time.
const BATCH_NAMES: usize = 32;

/// Stands for a kind that is not told.
const UNKNOWN: u8 = b'?';

/// Names, each ended by a zero.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    from: usize,
}

impl Names {
    /// One more, of this kind if the directory tells.
    pub(crate) fn push(&mut self, kind: Option<Kind>, name: &CStr) {
        self.bytes.push(kind.map_or(UNKNOWN, Kind::letter));
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
    }

    /// Those that were packed by [`Names::to_bytes`], or what is like them.
    pub(crate) fn of(bytes: Vec<u8>) -> Names {
        Names { bytes, from: 0 }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.bytes[self.from..].to_vec()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from == self.bytes.len()
    }

    fn take(&mut self, count: usize) -> Names {
        let rest = &self.bytes[self.from..];
        let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at + 1);
        let bytes = rest[..ends.take(count).last().unwrap_or(0)].to_vec();
        self.from += bytes.len();
        Names { bytes, from: 0 }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Option<Kind>, &CStr)> {
        let names = self.bytes[self.from..].split_inclusive(|byte| *byte == 0);
        names.filter_map(|name| {
            let (letter, name) = name.split_first()?;
            Some((Kind::of_letter(*letter), CStr::from_bytes_with_nul(name).ok()?))
        })
    }
}

/// What a directory has.
#[derive(Debug)]
pub(super) struct Entries {
    pub(crate) dir: Arc<Dir>,
    pub(crate) files: Names,
    pub(crate) directories: Names,
}

/// What one thread does next.
#[derive(Debug)]
pub(crate) enum Turn {
    /// These names of a directory.
    Names(Arc<Dir>, Names),
    /// The part of a large file with this number.
    Part(Arc<Large>, u64),
}

#[derive(Debug)]
enum Work {
    Entries(Entries),
    Parts { large: Arc<Large>, next: u64 },
}

#[derive(Debug, Default)]
struct State {
    stack: Vec<Work>,
    busy: usize,
}

/// The stack.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    pub(super) fn push_entries(&self, entries: Entries) {
        self.push(Work::Entries(entries));
    }

    pub(crate) fn push_parts(&self, large: Arc<Large>) {
        self.push(Work::Parts { large, next: 0 });
    }

    fn push(&self, work: Work) {
        if let Ok(mut state) = self.state.lock() {
            state.stack.push(work);
        }
        self.changed.notify_all();
    }

    /// Waits for something to do; none when all is done. [`Queue::finish`] must follow.
    pub(crate) fn take(&self) -> Option<Turn> {
        let mut state = self.state.lock().ok()?;
        loop {
            if let Some(turn) = next(&mut state.stack) {
                state.busy += 1;
                return Some(turn);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).ok()?;
        }
    }

    /// What was taken is done.
    pub(crate) fn finish(&self) {
        let Ok(mut state) = self.state.lock() else { return };
        state.busy -= 1;
        if state.busy == 0 && state.stack.is_empty() {
            self.changed.notify_all();
        }
    }
}

fn next(stack: &mut Vec<Work>) -> Option<Turn> {
    loop {
        match stack.last_mut()? {
            Work::Entries(entries) => {
                let (from, count) = match entries.files.is_empty() {
                    false => (&mut entries.files, BATCH_NAMES),
                    true => (&mut entries.directories, 1),
                };
                let names = from.take(count);
                if !names.is_empty() {
                    return Some(Turn::Names(Arc::clone(&entries.dir), names));
                }
            }
            Work::Parts { large, next } => {
                while *next < large.parts() {
                    *next += 1;
                    if !large.was_done(*next - 1) {
                        return Some(Turn::Part(Arc::clone(large), *next - 1));
                    }
                }
            }
        }
        stack.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_in_order_and_each_once() {
        let mut names = Names::default();
        names.push(None, c"a");
        names.push(Some(Kind::File), c"bc");
        names.push(Some(Kind::Directory), c"d\ne");
        let first = names.take(2);
        let expected = [(None, c"a"), (Some(Kind::File), c"bc")];
        assert_eq!(first.iter().collect::<Vec<_>>(), expected);
        let rest = names.take(2);
        assert_eq!(rest.iter().collect::<Vec<_>>(), [(Some(Kind::Directory), c"d\ne")]);
        assert!(names.is_empty() && names.take(1).is_empty());
    }
}
