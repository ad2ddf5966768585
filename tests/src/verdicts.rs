//! `docs/reference/programs.md`: one line for each program, with the verdict of the tests.
//!
//! Each test settles its own line: its verdict has to be the one that stands there. With
//! `MAYFLY_PROGRAMS=write` it is written instead, so that
//!
//! `MAYFLY_PROGRAMS=write cargo test -p mayfly-tests --test rows --test programs`
//!
//! makes the table anew. A program that is missing is a skip, said as every skip is, and settles
//! nothing unless the table is written.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{binary, skip};

/// One line of the table.
#[derive(Debug)]
pub struct Line {
    /// The test's name, by which a line is found.
    pub test: &'static str,
    /// The program, or the way of using it.
    pub program: &'static str,
    /// What it is made to do.
    pub does: &'static str,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As natively, and as it verified itself.
    Passes,
    /// Not so, and why.
    Fails(String),
    /// It was not run: this is missing.
    Missing(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passes => f.write_str("passes"),
            Self::Fails(what) => write!(f, "fails: {}", what.lines().next().unwrap_or("")),
            Self::Missing(what) => write!(f, "not run: {what}"),
        }
    }
}

const INTRODUCTION: &str = "\
# Programs

What unmodified programs do in a Mayfly instance, one line for each. The table is made by the tests
that it names: each runs its program natively and in a fresh instance, under the preload library,
and compares what was printed and the exit status; what the program can verify itself it does.
`MAYFLY_PROGRAMS=write cargo test -p mayfly-tests --test rows --test programs` writes the table
anew; an ordinary run of the tests fails when a verdict is not the one that stands here. A program
that is missing on a machine is skipped there, and said so at the end of `cargo xtask test`.

| program | what it is made to do | verdict | test |
|---|---|---|---|
";

/// Tests of one process settle their lines one after the other.
fn table_turn() -> MutexGuard<'static, ()> {
    static TABLE: Mutex<()> = Mutex::new(());
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the table stands.
fn path() -> PathBuf {
    binary::workspace().join("docs/reference/programs.md")
}

impl Line {
    fn written(&self, verdict: &str) -> String {
        format!("| {} | {} | {verdict} | `{}` |", self.program, self.does, self.test)
    }

    /// What stands in `table` as this line's verdict.
    fn verdict<'t>(&self, table: &'t str) -> Option<&'t str> {
        let end = format!(" | `{}` |", self.test);
        let line = table.lines().find(|line| line.ends_with(&end))?;
        line.strip_suffix(end.as_str())?.rsplit_once(" | ").map(|(_, verdict)| verdict)
    }
}

/// Checks the verdict of one test against the table, or writes it there.
///
/// # Errors
/// The program fails, or ends otherwise than the table says.
pub fn settle(lines: &[Line], test: &str, verdict: &Verdict) -> Result<()> {
    let line = lines.iter().find(|line| line.test == test);
    let line = line.with_context(|| format!("{test} has no line in the table of programs"))?;
    let _turn = table_turn();
    if std::env::var_os("MAYFLY_PROGRAMS").is_some_and(|word| word == "write") {
        let table = fs::read_to_string(path()).unwrap_or_default();
        fs::write(path(), with(lines, &table, line, verdict))
            .context("docs/reference/programs.md")?;
    }
    match verdict {
        Verdict::Missing(what) => skip::note(line.program, what),
        Verdict::Fails(what) => bail!("{}: {what}", line.program),
        Verdict::Passes => {
            let table = fs::read_to_string(path()).context("docs/reference/programs.md")?;
            let said = line.verdict(&table).unwrap_or("nothing");
            ensure!(
                said == verdict.to_string(),
                "docs/reference/programs.md says {said}, and it {verdict}"
            );
        }
    }
    Ok(())
}

/// The table with one verdict put in place.
fn with(lines: &[Line], table: &str, changed: &Line, verdict: &Verdict) -> String {
    let mut written = INTRODUCTION.to_owned();
    for line in lines {
        let old = line.verdict(table).unwrap_or("not run yet");
        let verdict = verdict.to_string();
        let text = line.written(if line.test == changed.test { &verdict } else { old });
        written.push_str(&text);
        written.push('\n');
    }
    written
}

/// An error unless the table has exactly these lines.
pub fn expect_lines(lines: &[Line]) -> Result<()> {
    let _turn = table_turn();
    let table = fs::read_to_string(path()).context("docs/reference/programs.md")?;
    let mut wanted = INTRODUCTION.to_owned();
    for line in lines {
        wanted.push_str(&line.written(line.verdict(&table).unwrap_or("not run yet")));
        wanted.push('\n');
    }
    let differs = table.lines().zip(wanted.lines()).find(|(there, wanted)| there != wanted);
    ensure!(
        table == wanted,
        "docs/reference/programs.md is not what the tests write; first: {differs:?}\n\
         MAYFLY_PROGRAMS=write cargo test -p mayfly-tests --test rows --test programs"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[Line] = &[
        Line { test: "one", program: "One", does: "a" },
        Line { test: "two", program: "Two", does: "b" },
    ];

    #[test]
    fn a_verdict_is_put_in_place_and_found_again() {
        let table = with(LINES, "", &LINES[1], &Verdict::Passes);
        assert_eq!(LINES[0].verdict(&table), Some("not run yet"));
        assert_eq!(LINES[1].verdict(&table), Some("passes"));
        let failed = Verdict::Fails("EIO | here\nand more".to_owned());
        let table = with(LINES, &table, &LINES[0], &failed);
        assert_eq!(LINES[1].verdict(&table), Some("passes"));
        assert!(table.contains("fails: EIO"), "{table}");
        assert!(!table.contains("more"), "{table}");
    }
}
