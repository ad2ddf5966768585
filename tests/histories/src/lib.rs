//! Is a recorded history linearizable?
//!
//! Processes do operations on few objects and note when each was called, when it returned, and what
//! it returned ([`Event`], a line of text). A history is linearizable when its operations can be
//! put into one order in which each returns what [`model`] says, and in which an operation that had
//! returned before another one was called comes before that one.
//!
//! [`check()`] is the search of Wing and Gong with Lowe's memory of what was tried (J. M. Wing and
//! C. Gong, "Testing and verifying concurrent objects", 1993; G. Lowe, "Testing for
//! linearizability", 2017). A history is linearizable when that of each object is, so objects are
//! checked one by one.

pub mod check;
pub mod model;

pub use check::check;
pub use model::{Action, State};

/// One operation of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When it was called, by the clock of the machine, nanoseconds.
    pub called: u64,
    /// When it had returned.
    pub returned: u64,
    /// What was done, and what came of it.
    pub action: Action,
}

impl Event {
    /// The object and the event of a line that [`Event::line`] made.
    #[must_use]
    pub fn parse(line: &str) -> Option<(String, Event)> {
        let mut words = line.split(' ');
        let object = words.next()?.to_owned();
        let (called, returned) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let action = Action::parse(words)?;
        Some((object, Event { called, returned, action }))
    }

    /// The event as what it may be seen as where a file can have both names for a moment, as
    /// rename(2) allows: two events at the same time.
    #[must_use]
    pub fn in_halves(self) -> Vec<Event> {
        let Action::Rename(process, from, to, true) = self.action else { return vec![self] };
        [Action::Enter(process, from, to), Action::Leave(process, from)]
            .map(|action| Event { action, ..self.clone() })
            .to_vec()
    }

    /// The event as what it may be where a kernel looks both names up before it asks for the move:
    /// when somebody else moved the file meanwhile it finds one file under both names, and says
    /// that all is done (`vfs_rename` does nothing for two names of one file). Two events at the
    /// same time.
    #[must_use]
    pub fn by_a_kernel(self) -> Vec<Event> {
        let Action::Rename(process, from, to, true) = self.action else { return vec![self] };
        [Action::Notice(process, from), Action::Arrive(process, from, to)]
            .map(|action| Event { action, ..self.clone() })
            .to_vec()
    }

    /// The event as a line of text.
    #[must_use]
    pub fn line(&self, object: &str) -> String {
        format!("{object} {} {} {}", self.called, self.returned, self.action.words())
    }
}
