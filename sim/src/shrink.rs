//! Makes what fails smaller: fewer troubles, fewer clients, fewer acts, as long as it still fails.

use std::{fmt, str::FromStr};

use crate::plan::Plan;

/// Runs that are spent on one plan.
const RUNS_MAX: usize = 400;

/// A plan that can be made smaller: it has lists of things that happen.
pub trait Lists: Clone {
    /// How long each list is: what goes wrong, and then what each of several does.
    fn lengths(&self) -> Vec<usize>;

    /// Only these of each list are left, by their numbers.
    fn keep(&mut self, lists: &[Vec<usize>]);
}

/// A part of a plan: which of its troubles, and which acts of each client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    lists: Vec<Vec<usize>>,
}

impl Part {
    /// All of it.
    #[must_use]
    pub fn whole(plan: &impl Lists) -> Part {
        Part { lists: plan.lengths().into_iter().map(|length| (0..length).collect()).collect() }
    }

    /// The plan without the rest.
    #[must_use]
    pub fn of<P: Lists>(&self, plan: &P) -> P {
        let mut plan = plan.clone();
        plan.keep(&self.lists);
        plan
    }
}

impl Lists for Plan {
    fn lengths(&self) -> Vec<usize> {
        let acts = self.scripts.iter().map(|script| script.acts.len());
        [self.troubles.len()].into_iter().chain(acts).collect()
    }

    fn keep(&mut self, lists: &[Vec<usize>]) {
        let list = |which: usize| lists.get(which).map(Vec::as_slice).unwrap_or_default();
        self.troubles = list(0).iter().filter_map(|at| self.troubles.get(*at).copied()).collect();
        for (client, script) in self.scripts.iter_mut().enumerate() {
            let kept = list(client + 1).iter();
            script.acts = kept.filter_map(|at| script.acts.get(*at).copied()).collect();
        }
    }
}

/// The smallest part that was found that still fails.
pub fn shrink<P: Lists>(plan: &P, fails: impl Fn(&P) -> bool) -> Part {
    let mut part = Part::whole(plan);
    let mut runs = 0;
    loop {
        let before = part.clone();
        for which in 0..part.lists.len() {
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
    let mut piece = part.lists[which].len();
    while piece > 0 {
        // From the end, where what matters least is.
        let mut end = part.lists[which].len();
        while end > 0 {
            let begin = end.saturating_sub(piece);
            let mut smaller = part.clone();
            smaller.lists[which].drain(begin..end);
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
        let lists: Vec<String> = self.lists.iter().map(|list| ranges(list)).collect();
        write!(f, "{}", lists.join("/"))
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let lists = text.split('/').map(numbers);
        Ok(Part { lists: lists.collect::<Result<_, _>>()? })
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
