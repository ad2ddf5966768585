//! Makes what fails smaller: fewer troubles, fewer clients, fewer acts, as long as it still fails.

use std::{fmt, str::FromStr};

use crate::plan::Plan;

/// Runs that are spent on one plan.
const RUNS_MAX: usize = 400;

/// A part of a plan: which of its troubles, and which acts of each client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    troubles: Vec<usize>,
    acts: Vec<Vec<usize>>,
}

impl Part {
    /// All of it.
    #[must_use]
    pub fn whole(plan: &Plan) -> Part {
        let acts = plan.scripts.iter().map(|script| (0..script.acts.len()).collect());
        Part { troubles: (0..plan.troubles.len()).collect(), acts: acts.collect() }
    }

    /// The plan without the rest.
    #[must_use]
    pub fn of(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        plan.troubles =
            self.troubles.iter().filter_map(|at| plan.troubles.get(*at).copied()).collect();
        for (client, script) in plan.scripts.iter_mut().enumerate() {
            let kept = self.acts.get(client).map(Vec::as_slice).unwrap_or_default();
            script.acts = kept.iter().filter_map(|at| script.acts.get(*at).copied()).collect();
        }
        plan
    }

    fn list(&mut self, which: usize) -> &mut Vec<usize> {
        match which.checked_sub(1) {
            None => &mut self.troubles,
            Some(client) => &mut self.acts[client],
        }
    }
}

/// The smallest part that was found that still fails.
pub fn shrink(plan: &Plan, fails: impl Fn(&Plan) -> bool) -> Part {
    let mut part = Part::whole(plan);
    let mut runs = 0;
    loop {
        let before = part.clone();
        for which in 0..=plan.scripts.len() {
            shrink_list(&mut part, which, &mut |part| {
                runs += 1;
                runs <= RUNS_MAX && fails(&part.of(plan))
            });
        }
        if part == before || runs >= RUNS_MAX {
            return part;
        }
    }
}

/// Leaves out pieces of a list, large ones first.
fn shrink_list(part: &mut Part, which: usize, fails: &mut impl FnMut(&Part) -> bool) {
    let mut piece = part.list(which).len();
    while piece > 0 {
        // From the end, where what matters least is.
        let mut end = part.list(which).len();
        while end > 0 {
            let begin = end.saturating_sub(piece);
            let mut smaller = part.clone();
            smaller.list(which).drain(begin..end);
            if fails(&smaller) {
                *part = smaller;
            }
            end = begin;
        }
        piece /= 2;
    }
}

fn ranges(numbers: &[usize]) -> String {
    let mut text: Vec<String> = Vec::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [one] => text.push(one.to_string()),
            [first, .., last] => text.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    text.join(",")
}

fn numbers(text: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for piece in text.split(',').filter(|piece| !piece.is_empty()) {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
        all.extend(number(first)?..=number(last)?);
    }
    Ok(all)
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ranges(&self.troubles))?;
        self.acts.iter().try_for_each(|acts| write!(f, "/{}", ranges(acts)))
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let mut lists = text.split('/').map(numbers);
        let troubles = lists.next().unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(Part { troubles, acts: lists.collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Shape;

    #[test]
    fn what_matters_is_found_and_can_be_written_down() {
        let plan = (1..).map(|seed| Plan::draw(seed, Shape::default()));
        let plan = plan.into_iter().find(|plan| plan.troubles.len() >= 8).expect("there is one");
        let (trouble, act) = (plan.troubles[5], plan.scripts[1].acts[3]);
        let part = shrink(&plan, |plan| {
            plan.troubles.contains(&trouble) && plan.scripts[1].acts.contains(&act)
        });
        let small = part.of(&plan);
        assert_eq!(small.troubles, [trouble]);
        assert_eq!(small.scripts.iter().map(|script| script.acts.len()).sum::<usize>(), 1);
        assert_eq!(part.to_string().parse(), Ok(part));
    }
}
