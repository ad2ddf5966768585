//! How it goes with each of many files, when all are read at the same time: one that waits for a
//! node keeps no other one waiting.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job};

/// Beyond the deadline, for processes that start while the machine is busy.
const SLACK: Duration = Duration::from_secs(5);

/// Bash that makes `file-1` to `file-N` in the mount.
#[must_use]
pub fn make_all(count: usize) -> String {
    format!(r#"for i in $(seq {count}); do echo "text $i" > "$MAYFLY_MOUNT/file-$i"; done"#)
}

/// One file.
#[derive(Debug)]
pub struct Look {
    /// Its number.
    pub file: usize,
    /// How long reading it took.
    pub took: Duration,
    /// What `cat` printed, error or text.
    pub said: String,
}

impl Look {
    /// Whether its text came.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.said == format!("text {}", self.file)
    }
}

/// Reads them all on the node that the environment of `with` chooses.
///
/// # Errors
/// When the script fails or says nothing of a file.
pub fn look_at_all<'a>(
    instance: &Instance<'a>,
    label: &str,
    count: usize,
    with: impl FnOnce(Job<'a>) -> Job<'a>,
) -> Result<Vec<Look>> {
    let script = format!(
        r#"for i in $(seq {count}); do {{
            start=${{EPOCHREALTIME/./}}
            said=$(cat "$MAYFLY_MOUNT/file-$i" 2>&1)
            echo "$i $(( ${{EPOCHREALTIME/./}} - start )) $said"
        }} & done; wait"#
    );
    let outcome = with(instance.shell(label, &script)).run_ok()?;
    let text = String::from_utf8(outcome.stdout)?;
    let looks: Vec<Look> = text.lines().map(read_line).collect::<Result<_>>()?;
    ensure!(looks.len() == count, "{} of {count} files were looked at", looks.len());
    Ok(looks)
}

/// Some files are lost, by EIO and not before the deadline; the others were read at once. How many
/// are lost.
///
/// # Errors
/// When it is otherwise.
pub fn expect_a_part_is_lost(looks: &[Look], deadline: Duration) -> Result<usize> {
    let (read, lost): (Vec<&Look>, Vec<&Look>) = looks.iter().partition(|look| look.is_read());
    for look in &lost {
        ensure!(look.said.contains("Input/output error"), "{look:?}");
        ensure!(look.took >= deadline / 2 && look.took < deadline + SLACK, "{look:?}");
    }
    for look in &read {
        ensure!(look.took < deadline, "it waited for others: {look:?}");
    }
    ensure!(!read.is_empty() && !lost.is_empty(), "{} read, {} lost", read.len(), lost.len());
    Ok(lost.len())
}

/// # Errors
/// When a file is not as it was.
pub fn expect_all_is_there(looks: &[Look]) -> Result<()> {
    let missing: Vec<&Look> = looks.iter().filter(|look| !look.is_read()).collect();
    ensure!(missing.is_empty(), "{missing:?}");
    Ok(())
}

fn read_line(line: &str) -> Result<Look> {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().with_context(|| format!("no look: {line}"));
    Ok(Look {
        file: word()?.parse()?,
        took: Duration::from_micros(word()?.parse()?),
        said: word()?.to_owned(),
    })
}
