//! What is wrong with a history.

use std::collections::{BTreeMap, HashSet};

use crate::{
    bytes::Content,
    history::{EntryOp, Event, Heard, Op},
    linear::{Model, Span, Verdict, check},
    names::{Group, State, Step},
};

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong(pub String);

impl Wrong {
    /// What of it is the same in a smaller run.
    #[must_use]
    pub fn kind(&self) -> String {
        self.0.chars().filter(|of| !of.is_ascii_digit()).take(KIND_CHARS).collect()
    }
}

/// See [`Wrong::kind`].
const KIND_CHARS: usize = 34;

/// What the checks came to.
#[derive(Debug, Default)]
pub struct Judgement {
    /// What is wrong.
    pub wrong: Vec<Wrong>,
    /// Histories with too many possibilities.
    pub undecided: usize,
    /// Histories that are right.
    pub good: usize,
}

fn say(events: &[(usize, &Event)]) -> String {
    let mut text = String::new();
    for (number, event) in events {
        let to = event.to_ns.map_or("?".to_owned(), |to| format!("{:.6}", to as f64 / 1e9));
        text.push_str(&format!(
            "\n  {number}: client {} {:.6}..{to} {:?} -> {:?}",
            event.client,
            event.from_ns as f64 / 1e9,
            event.op,
            event.heard
        ));
    }
    text
}

impl Judgement {
    fn take<M: Model>(
        &mut self,
        what: &str,
        (model, initial): (&M, M::State),
        events: &[(usize, &Event)],
        steps: impl Fn(usize, &Event) -> Vec<M::Op>,
    ) {
        let (mut history, mut of_event) = (Vec::new(), Vec::new());
        for (at, (number, of)) in events.iter().enumerate() {
            let span = Span { from_ns: of.from_ns, to_ns: of.to_ns };
            for step in steps(*number, of) {
                history.push((span, step));
                of_event.push(at);
            }
        }
        match check(model, initial, &history) {
            Verdict::Good => self.good += 1,
            Verdict::Undecided => self.undecided += 1,
            Verdict::Bad(at) => {
                let at = of_event[at];
                let until_ns = events[at].1.to_ns.unwrap_or(u64::MAX);
                let mut seen: Vec<(usize, &Event)> =
                    events.iter().filter(|of| of.1.from_ns <= until_ns).copied().collect();
                seen.sort_by_key(|of| of.1.to_ns.unwrap_or(u64::MAX));
                let (number, text) = (events[at].0, say(&seen));
                let why = format!("{what}: no order explains the answer to {number}{text}");
                self.wrong.push(Wrong(why));
            }
        }
    }
}

/// Judges everything that clients heard.
#[must_use]
pub fn judge(history: &[Event], groups: &[Group]) -> Judgement {
    let mut judgement = Judgement::default();
    let mut names: BTreeMap<usize, Vec<(usize, &Event)>> = BTreeMap::new();
    let mut bytes = names.clone();
    let mut entries = names.clone();
    for (number, event) in history.iter().enumerate() {
        match event.op {
            Op::Name(group, _) => names.entry(group).or_default().push((number, event)),
            Op::Bytes(file, _) => bytes.entry(file).or_default().push((number, event)),
            Op::Entry(directory, _) => entries.entry(directory).or_default().push((number, event)),
        }
    }
    for (group, events) in names {
        let model = (&groups[group], State::default());
        judgement.take(&format!("names of group {group}"), model, &events, |number, event| {
            let Op::Name(_, op) = event.op else { unreachable!("sorted above") };
            Step::parts(op, &event.heard, number as u64)
        });
    }
    for (file, events) in bytes {
        let model = (&Content, Vec::new());
        judgement.take(&format!("content of file {file}"), model, &events, |_, event| {
            let Op::Bytes(_, op) = event.op else { unreachable!("sorted above") };
            vec![(op, event.heard.clone())]
        });
    }
    for (directory, events) in entries {
        judge_listings(&mut judgement, directory, &events);
    }
    judgement
}

/// When a name was there: surely, and at all.
#[derive(Debug, Default)]
struct Presence {
    surely_from: Option<u64>,
    surely_to: Option<u64>,
    perhaps_from: Option<u64>,
    perhaps_to: Option<u64>,
}

fn judge_listings(judgement: &mut Judgement, directory: usize, events: &[(usize, &Event)]) {
    let before = judgement.wrong.len();
    let mut presences: BTreeMap<&str, Presence> = BTreeMap::new();
    for (number, event) in events {
        let Op::Entry(_, op) = &event.op else { continue };
        match op {
            EntryOp::Add(name) => {
                let presence = presences.entry(name).or_default();
                if !matches!(event.heard, Heard::Failed(_)) {
                    presence.perhaps_from = Some(event.from_ns);
                }
                presence.surely_from = event.to_ns.filter(|_| event.heard == Heard::Done);
            }
            EntryOp::Remove(name) => {
                let presence = presences.entry(name).or_default();
                presence.surely_to = Some(event.from_ns);
                presence.perhaps_to = event.to_ns.filter(|_| event.heard == Heard::Done);
            }
            EntryOp::List => continue,
        }
        if let Heard::Failed(errno) = event.heard
            && errno != mayfly_types::Errno::ENOSPC
        {
            let why = format!("{number}: {op:?} of a name that nobody else uses: {errno:?}");
            judgement.wrong.push(Wrong(why));
        }
    }
    for (number, event) in events {
        let (Heard::Names(names), Some(to_ns)) = (&event.heard, event.to_ns) else { continue };
        let from_ns = event.from_ns;
        let mut listed = HashSet::new();
        let mut wrong = |what: &str, name: &str| {
            let of = presences.get(name);
            let why = format!("listing {number} of directory {directory}: {name} {what}: {of:?}");
            judgement.wrong.push(Wrong(why));
        };
        for name in names.iter().filter(|name| *name != "." && *name != "..") {
            if !listed.insert(name.as_str()) {
                wrong("is there twice", name);
            }
            let there = presences.get(name.as_str()).is_some_and(|of| {
                of.perhaps_from.is_some_and(|begin| begin <= to_ns)
                    && of.perhaps_to.is_none_or(|end| end >= from_ns)
            });
            if !there {
                wrong("is there and never was", name);
            }
        }
        for (name, of) in &presences {
            let all_the_time = of.surely_from.is_some_and(|begin| begin < from_ns)
                && of.surely_to.is_none_or(|end| end > to_ns);
            if all_the_time && !listed.contains(name) {
                wrong("is missing", name);
            }
        }
    }
    judgement.good += usize::from(judgement.wrong.len() == before);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(op: EntryOp, from_ns: u64, to_ns: u64, heard: Heard) -> Event {
        Event { client: 0, op: Op::Entry(0, op), from_ns, to_ns: Some(to_ns), heard }
    }

    fn listed(names: &[&str]) -> Vec<Wrong> {
        let add = |name: &str, at| event(EntryOp::Add(name.to_owned()), at, at + 1, Heard::Done);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let history = [
            add("stays", 0),
            add("goes before", 2),
            event(EntryOp::Remove("goes before".to_owned()), 4, 5, Heard::Done),
            add("goes meanwhile", 6),
            event(EntryOp::List, 10, 20, Heard::Names(names)),
            event(EntryOp::Remove("goes meanwhile".to_owned()), 15, 16, Heard::Done),
        ];
        judge(&history, &[]).wrong
    }

    #[test]
    fn a_listing_has_what_was_there_all_the_time_once_and_nothing_that_was_not() {
        assert_eq!(listed(&["stays"]), []);
        assert_eq!(listed(&["stays", "goes meanwhile"]), []);
        for bad in [&["goes meanwhile"][..], &["stays", "stays"], &["stays", "goes before"]] {
            assert_eq!(listed(bad).len(), 1, "{bad:?}");
        }
    }
}
