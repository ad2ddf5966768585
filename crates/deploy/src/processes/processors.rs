//! `--cpus`: where the daemon of a node may run.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors of a list like `0-3,8`.
///
/// # Errors
/// Says what is wrong with the list.
fn parse(list: &str) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        let (first, last) = range
            .filter(|(_, last)| *last < CpuSet::MAX_CPU)
            .with_context(|| format!("--cpus {list:?}: name processors like 0-3,8"))?;
        found.extend(first..=last);
    }
    Ok(found)
}

/// The processors of `list`.
///
/// # Errors
/// Names the one on which this process may not run.
pub(crate) fn of_list(list: &str) -> Result<CpuSet> {
    let allowed = sched_getaffinity(None).context("cannot learn which processors there are")?;
    let mut chosen = CpuSet::new();
    for processor in parse(list)? {
        ensure!(
            allowed.is_set(processor),
            "--cpus {list}: processor {processor} is not there, or not this job's"
        );
        chosen.set(processor);
    }
    Ok(chosen)
}

/// Keeps this process, and all threads that it starts from now on, to the processors of `list`.
///
/// # Errors
/// The list makes no sense, or names one on which this process may not run.
pub fn keep_to(list: &str) -> Result<()> {
    sched_setaffinity(None, &of_list(list)?).with_context(|| format!("--cpus {list}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_understood_or_refused() {
        assert_eq!(parse("0-2,5").expect("a good one"), [0, 1, 2, 5]);
        for bad in ["", "a", "2-1", "1-", "0,,1", "99999999"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
