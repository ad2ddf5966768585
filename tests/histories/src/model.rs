//! What each operation does when it is alone.

/// Names in the directory.
pub const NAMES: usize = 3;
/// Processes, numbered from 1.
pub const PROCESSES_MAX: usize = 8;

/// An operation and its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A file was created, which must not have been there; its number, or it was there.
    Create(usize, Option<u64>),
    /// A process moved a name over another one; whether it was there.
    Rename(u64, usize, usize, bool),
    /// The first half of a move in two halves: the file has the second name too.
    Enter(u64, usize, usize),
    /// The second: it has the first name no more.
    Leave(u64, usize),
    /// A kernel that is about to move a name looked up what it stands for.
    Notice(u64, usize),
    /// It moved the name, or found what it had noticed under the second one already.
    Arrive(u64, usize, usize),
    /// A name was removed; whether it was there.
    Remove(usize, bool),
    /// What a name stands for.
    Look(usize, Option<u64>),
    /// A value was written.
    Write(u64),
    /// A value was read.
    Read(u64),
    /// A value was appended.
    Append(u64),
    /// All that was appended, as their number and [`digest`].
    Whole(u64, u64),
    /// This process wanted the lock; whether it got it.
    Lock(u64, bool),
    /// This process gave it up.
    Unlock(u64),
}

/// What an object is at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// What the names stand for, and what each process has half moved or noticed; 0 for nothing.
    Names([u64; NAMES], [u64; PROCESSES_MAX]),
    /// The value of a register.
    Register(u64),
    /// How many values were appended, and their digest.
    Log(u64, u64),
    /// The process that holds the lock, or none (0).
    Lock(u64),
}

/// One more value behind others.
#[must_use]
pub fn digest(before: u64, value: u64) -> u64 {
    (before.rotate_left(7) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl State {
    /// What the object of this name is at first.
    #[must_use]
    pub fn first(object: &str) -> Option<State> {
        Some(match object {
            "names" => State::Names([0; NAMES], [0; PROCESSES_MAX]),
            "small" | "large" => State::Register(0),
            "log" => State::Log(0, 0),
            "lock" => State::Lock(0),
            _ => return None,
        })
    }

    /// The state after the action; `None` when it could not have returned that here.
    #[must_use]
    pub fn after(self, action: Action) -> Option<State> {
        match (self, action) {
            (State::Names(names, moving), Action::Enter(..) | Action::Leave(..)) => {
                half_moved(names, moving, action)
            }
            (State::Names(names, moving), Action::Notice(..) | Action::Arrive(..)) => {
                moved_by_a_kernel(names, moving, action)
            }
            (State::Names(names, moving), action) => {
                after_on_names(names, action).map(|names| State::Names(names, moving))
            }
            (State::Register(_), Action::Write(value)) => Some(State::Register(value)),
            (State::Register(value), Action::Read(read)) => (read == value).then_some(self),
            (State::Log(count, before), Action::Append(value)) => {
                Some(State::Log(count + 1, digest(before, value)))
            }
            (State::Log(count, before), Action::Whole(seen, digest)) => {
                ((seen, digest) == (count, before)).then_some(self)
            }
            (State::Lock(holder), Action::Lock(process, got)) => match got {
                true => (holder == 0 || holder == process).then_some(State::Lock(process)),
                false => (holder != 0 && holder != process).then_some(self),
            },
            (State::Lock(holder), Action::Unlock(process)) => {
                Some(if holder == process { State::Lock(0) } else { self })
            }
            _ => None,
        }
    }
}

fn half_moved(
    mut names: [u64; NAMES],
    mut moving: [u64; PROCESSES_MAX],
    action: Action,
) -> Option<State> {
    match action {
        Action::Enter(process, from, to) => {
            let (there, moved) = (*names.get(from)?, moving.get_mut(process as usize)?);
            if there == 0 || *moved != 0 {
                return None;
            }
            *moved = there;
            *names.get_mut(to)? = there;
        }
        Action::Leave(process, from) => {
            let moved = std::mem::take(moving.get_mut(process as usize)?);
            let name = names.get_mut(from)?;
            if moved == 0 || *name != moved {
                return None;
            }
            *name = 0;
        }
        _ => return None,
    }
    Some(State::Names(names, moving))
}

fn moved_by_a_kernel(
    names: [u64; NAMES],
    mut moving: [u64; PROCESSES_MAX],
    action: Action,
) -> Option<State> {
    let names = match action {
        Action::Notice(process, from) => {
            *moving.get_mut(process as usize)? = *names.get(from)?;
            names
        }
        Action::Arrive(process, from, to) => {
            let noticed = std::mem::take(moving.get_mut(process as usize)?);
            if noticed != 0 && *names.get(to)? == noticed {
                names
            } else {
                after_on_names(names, Action::Rename(process, from, to, true))?
            }
        }
        _ => return None,
    };
    Some(State::Names(names, moving))
}

fn after_on_names(mut names: [u64; NAMES], action: Action) -> Option<[u64; NAMES]> {
    match action {
        Action::Create(name, made) => {
            let there = *names.get(name)?;
            match made {
                Some(number) => {
                    *names.get_mut(name)? = number;
                    (there == 0).then_some(names)
                }
                None => (there != 0).then_some(names),
            }
        }
        Action::Rename(_, from, to, moved) => {
            let there = *names.get(from)?;
            if moved {
                *names.get_mut(from)? = 0;
                *names.get_mut(to)? = there;
            }
            (moved == (there != 0)).then_some(names)
        }
        Action::Remove(name, removed) => {
            let there = std::mem::take(names.get_mut(name)?);
            (removed == (there != 0)).then_some(names)
        }
        Action::Look(name, seen) => (*names.get(name)? == seen.unwrap_or(0)).then_some(names),
        _ => None,
    }
}

impl Action {
    /// The words of the text form.
    #[must_use]
    pub fn words(&self) -> String {
        match *self {
            Action::Create(name, made) => format!("create {name} {}", made.unwrap_or(0)),
            Action::Rename(process, from, to, moved) => {
                format!("rename {process} {from} {to} {}", u8::from(moved))
            }
            Action::Enter(process, from, to) => format!("enter {process} {from} {to}"),
            Action::Leave(process, from) => format!("leave {process} {from}"),
            Action::Notice(process, from) => format!("notice {process} {from}"),
            Action::Arrive(process, from, to) => format!("arrive {process} {from} {to}"),
            Action::Remove(name, removed) => format!("remove {name} {}", u8::from(removed)),
            Action::Look(name, seen) => format!("look {name} {}", seen.unwrap_or(0)),
            Action::Write(value) => format!("write {value}"),
            Action::Read(value) => format!("read {value}"),
            Action::Append(value) => format!("append {value}"),
            Action::Whole(count, digest) => format!("whole {count} {digest}"),
            Action::Lock(process, got) => format!("lock {process} {}", u8::from(got)),
            Action::Unlock(process) => format!("unlock {process}"),
        }
    }

    /// From those words.
    pub fn parse<'w>(mut words: impl Iterator<Item = &'w str>) -> Option<Action> {
        let what = words.next()?;
        let numbers = words.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        let some = |number: u64| (number != 0).then_some(number);
        Some(match (what, numbers.as_slice()) {
            ("create", &[name, made]) => Action::Create(name as usize, some(made)),
            ("rename", &[process, from, to, moved]) => {
                Action::Rename(process, from as usize, to as usize, moved != 0)
            }
            ("enter", &[process, from, to]) => Action::Enter(process, from as usize, to as usize),
            ("leave", &[process, from]) => Action::Leave(process, from as usize),
            ("notice", &[process, from]) => Action::Notice(process, from as usize),
            ("arrive", &[process, from, to]) => Action::Arrive(process, from as usize, to as usize),
            ("remove", &[name, removed]) => Action::Remove(name as usize, removed != 0),
            ("look", &[name, seen]) => Action::Look(name as usize, some(seen)),
            ("write", &[value]) => Action::Write(value),
            ("read", &[value]) => Action::Read(value),
            ("append", &[value]) => Action::Append(value),
            ("whole", &[count, digest]) => Action::Whole(count, digest),
            ("lock", &[process, got]) => Action::Lock(process, got != 0),
            ("unlock", &[process]) => Action::Unlock(process),
            _ => return None,
        })
    }
}
