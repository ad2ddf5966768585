//! Whether a history is one that a sequential file system could have had: linearizability.
//!
//! As Wing and Gong search, with Lowe's order: the history is walked by time, and what is kept is
//! the set of all states that are possible so far, each with the open operations that have taken
//! effect in it. When an operation returns, those states stay in which it has. What nobody heard
//! the end of may take effect at any later time, or never.

use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
};

/// Above so many possibilities nothing is decided.
const POSSIBLE_MAX: usize = 60_000;
/// Operations that are open at a time.
const OPEN_MAX: usize = 64;

/// A sequential object.
pub trait Model {
    /// What it remembers.
    type State: Clone + Eq + Hash;
    /// What it is asked and answers.
    type Op;
    /// The state after `op`, if its answer is right in this state. When the answer is not known: if
    /// it changes anything.
    fn apply(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;
}

/// When an operation was under way.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Its beginning.
    pub from_ns: u64,
    /// Its end, if it was heard of.
    pub to_ns: Option<u64>,
}

/// What became of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Good,
    /// There is none: the answer to this operation fits no state.
    Bad(usize),
    /// There are too many to tell.
    Undecided,
}

type Possible<S> = HashSet<(S, u64)>;

/// Judges a history: operations with the times at which they were under way.
pub fn check<M: Model>(model: &M, initial: M::State, history: &[(Span, M::Op)]) -> Verdict {
    let mut moments = BTreeMap::new();
    for (index, (span, _)) in history.iter().enumerate() {
        moments.insert((span.from_ns, 0, index), ());
        if let Some(to_ns) = span.to_ns {
            moments.insert((to_ns, 1, index), ());
        }
    }
    let mut open: Vec<Option<usize>> = vec![None; OPEN_MAX];
    let mut possible = Possible::from([(initial, 0)]);
    for (_, end, index) in moments.into_keys() {
        if end == 0 {
            let Some(free) = open.iter_mut().find(|place| place.is_none()) else {
                return Verdict::Undecided;
            };
            *free = Some(index);
            continue;
        }
        let bit = open.iter().position(|of| *of == Some(index)).expect("it began before it ended");
        match settle(model, history, &open, bit, possible) {
            Some(next) if next.is_empty() => return Verdict::Bad(index),
            Some(next) => possible = next,
            None => return Verdict::Undecided,
        }
        open[bit] = None;
    }
    Verdict::Good
}

/// The possibilities in which the operation at `bit` has taken effect. `None`: too many.
fn settle<M: Model>(
    model: &M,
    history: &[(Span, M::Op)],
    open: &[Option<usize>],
    bit: usize,
    possible: Possible<M::State>,
) -> Option<Possible<M::State>> {
    let mut settled = Possible::new();
    let mut seen = Possible::new();
    let mut todo: Vec<(M::State, u64)> = possible.into_iter().collect();
    while let Some((state, done)) = todo.pop() {
        if done & 1 << bit != 0 {
            settled.insert((state, done & !(1 << bit)));
            continue;
        }
        for (place, index) in open.iter().enumerate() {
            let Some(index) = index.filter(|_| done & 1 << place == 0) else { continue };
            let Some(next) = model.apply(&state, &history[index].1) else { continue };
            let next = (next, done | 1 << place);
            if !seen.contains(&next) {
                seen.insert(next.clone());
                todo.push(next);
            }
        }
        if seen.len() > POSSIBLE_MAX {
            return None;
        }
    }
    Some(settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register: `Ok` writes, `Err` reads.
    struct Register;

    impl Model for Register {
        type State = u32;
        type Op = (Result<u32, u32>, bool);
        fn apply(&self, state: &u32, (op, known): &Self::Op) -> Option<u32> {
            match op {
                Ok(value) => Some(*value),
                Err(read) => (*known && read == state).then_some(*state),
            }
        }
    }

    type Step = (Span, (Result<u32, u32>, bool));

    fn span(from_ns: u64, to_ns: Option<u64>, op: Result<u32, u32>) -> Step {
        (Span { from_ns, to_ns }, (op, to_ns.is_some()))
    }

    #[test]
    fn what_overlaps_may_have_any_order_and_what_does_not_has_one() {
        let concurrent =
            [span(0, Some(10), Ok(1)), span(1, Some(9), Ok(2)), span(11, Some(12), Err(1))];
        assert_eq!(check(&Register, 0, &concurrent), Verdict::Good);
        let after = [span(0, Some(1), Ok(1)), span(2, Some(3), Ok(2)), span(4, Some(5), Err(1))];
        assert_eq!(check(&Register, 0, &after), Verdict::Bad(2));
    }

    #[test]
    fn what_nobody_heard_of_happens_late_once_or_never() {
        let lost = || span(0, None, Ok(1));
        let late = [lost(), span(2, Some(3), Err(0)), span(4, Some(5), Err(1))];
        assert_eq!(check(&Register, 0, &late), Verdict::Good);
        let never = [lost(), span(2, Some(3), Err(0)), span(4, Some(5), Err(0))];
        assert_eq!(check(&Register, 0, &never), Verdict::Good);
        let undone = [lost(), span(2, Some(3), Err(1)), span(4, Some(5), Err(0))];
        assert_eq!(check(&Register, 0, &undone), Verdict::Bad(2));
    }
}
