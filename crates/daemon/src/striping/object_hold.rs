//! Writes that wait while bytes are appended to a striped file.
//!
//! An append asks all parts for the end of the file and then changes one or a few of them. Were the
//! file made longer in between, the append would land below its end. So the home asks the part by
//! [`Question::HoldEnd`]. The part lets the writes that are under way end, and says how far it
//! reaches. From then on every write that would make it longer waits, until the home says that the
//! append is over ([`Question::LetEnd`], which is repeated until it is heard). Leave to write
//! without the daemon ends before, and is not given meanwhile.
//!
//! So does the home where it cannot find out otherwise how long the file is (`file_size.rs`).
//!
//! There is one such hold for each file, since its home does one of these after the other. It goes
//! with either daemon: the home of a new one of a part asks again, and a home that comes back has
//! neither under way.

use mayfly_object::ObjectId;
use mayfly_types::FileId;

use crate::{
    fault::{Fault, Outcome},
    message::{Answer, Append, PartPlace, Question},
    shard::Shard,
    shards::slots::ShardId,
    striping::state::object_hold::Hold,
};

impl Shard {
    /// How far a part reaches, and will until the append is over.
    pub(crate) fn hold_end(
        &mut self,
        from: ShardId,
        object: ObjectId,
        append: Append,
    ) -> Outcome<Answer> {
        let file = object.file;
        if let Some(by) = append.by {
            self.forget_appends_before(file, by);
        }
        // Before it is held: a write that comes again may make the part longer.
        self.check_no_write_in_doubt(file)?;
        let by = (from, append);
        if self.striping.objects.holds.get(&file).is_none_or(|hold| hold.by != by) {
            self.striping.objects.holds.insert(file, Hold { by, end: None });
            self.end_leave_to_write(file);
        }
        self.check_no_append(object)?;
        if self.striping.objects.active.get(&file).is_some_and(|active| active.jobs > 0) {
            return Err(Fault::Busy);
        }
        let answer = self.tell_part(file, object.generation)?;
        if let Answer::Part(facts) = &answer {
            let end = Some(facts.end_bytes);
            self.striping.objects.holds.insert(file, Hold { by, end });
        }
        Ok(answer)
    }

    /// A part of a file of this home is not held any more for the append that is under way.
    pub(crate) fn ask_to_hold_again(&mut self, file: FileId) {
        self.void(|question| match question {
            Question::HoldEnd { file: held, .. } => *held == file,
            _ => false,
        });
    }

    /// The append is over.
    pub(crate) fn let_end(&mut self, from: ShardId, file: FileId, append: &Append) {
        let late = |question: &Question| match question {
            Question::HoldEnd { file: held, append: other, .. } => (held, other) == (&file, append),
            _ => false,
        };
        self.give_up_questions(from, late);
        if let Some(by) = append.by {
            self.forget_append_of(file, by);
        }
        let is_it = |hold: &Hold| hold.by == (from, *append);
        if self.striping.objects.holds.get(&file).is_some_and(is_it) {
            self.striping.objects.holds.remove(&file);
            self.wake_blocked();
        }
    }

    /// A file's home was restarted: it appends to nothing.
    pub(crate) fn let_ends_of(&mut self, home: ShardId) {
        self.give_up_questions(home, |question| matches!(question, Question::HoldEnd { .. }));
        let before = self.striping.objects.holds.len();
        self.striping.objects.holds.retain(|_, hold| hold.by.0 != home);
        if self.striping.objects.holds.len() < before {
            self.wake_blocked();
        }
    }

    /// Whether the part is held for this append of its file's home.
    pub(super) fn is_held(&self, file: FileId, by: (ShardId, Append)) -> bool {
        self.striping.objects.holds.get(&file).is_some_and(|hold| hold.by == by)
    }

    /// Waits while the part may not become longer, if it would.
    pub(super) fn check_end(&self, place: &PartPlace, end: u64) -> Outcome<()> {
        let hold = self.striping.objects.holds.get(&place.file);
        if hold.is_some_and(|hold| hold.end.is_none_or(|held| end > held)) {
            return Err(Fault::Busy);
        }
        Ok(())
    }
}
