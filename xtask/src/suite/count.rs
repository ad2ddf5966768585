//! The sum of what all test runners said.

use std::fmt;

/// How many tests ended how, and what is to be said about some of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    pub(super) reasons: Vec<String>,
}

impl Count {
    /// Adds the tests of one runner, if this is its closing line:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`.
    pub(super) fn add_result_line(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.reasons.push(format!("FAILED {name}"));
        }
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        let counts = counts.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                Some((number, "ignored")) => self.skipped += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend(other.reasons);
    }

    /// Tests that skipped themselves were counted as passed by Rust's runner. `notes` has a line
    /// for each.
    pub(super) fn subtract_skips(&mut self, notes: &str) {
        let lines: Vec<&str> = notes.lines().filter(|line| !line.is_empty()).collect();
        self.passed = self.passed.saturating_sub(lines.len());
        self.skipped += lines.len();
        self.reasons.extend(lines.iter().map(|line| (*line).to_owned()));
        self.reasons.dedup();
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed_and_other_lines_are_not() {
        let mut count = Count::default();
        count.add_result_line(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out",
        );
        count.add_result_line("test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured");
        count.add_result_line("9 passed");
        count.add_result_line("test rename_keeps_the_target ... FAILED");
        assert_eq!(count.to_string(), "7 passed, 2 failed, 1 skipped");
        assert_eq!(count.reasons, ["FAILED rename_keeps_the_target"]);
    }

    #[test]
    fn a_test_that_skipped_itself_did_not_pass() {
        let mut count = Count { passed: 2, ..Count::default() };
        count.subtract_skips("SKIPPED MPI: no mpicc\n");
        assert_eq!(count.to_string(), "1 passed, 0 failed, 1 skipped");
    }
}
