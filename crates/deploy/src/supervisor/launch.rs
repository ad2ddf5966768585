//! Starting the supervisor and holding on to it.

use std::{
    io::{BufRead, BufReader, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};

use super::control::LOST;
use crate::{Config, log::LOG_NAME};

/// The hidden subcommand that the supervisor runs as.
pub const SUPERVISE: &str = "__supervise";

/// The caller's hold on an instance: when it is dropped, or the caller dies, the instance ends.
#[derive(Debug)]
pub struct Lifeline {
    line: BufReader<UnixStream>,
    supervisor: Child,
}

/// Starts the supervisor of an instance whose directories are made, and waits until it serves.
///
/// # Errors
/// Says why the instance does not serve; it has cleaned up after itself then.
pub fn launch(config: &Config) -> Result<Lifeline> {
    let (ours, theirs) = UnixStream::pair()?;
    let program = std::env::current_exe().context("cannot find the mayfly program itself")?;
    let log = std::fs::File::create(config.run_dir.join(LOG_NAME))?;
    let supervisor = Command::new(program)
        .arg(SUPERVISE)
        .arg(&config.run_dir)
        .env_remove("LD_PRELOAD")
        .env_remove("LD_AUDIT")
        .env_remove("MAYFLY_RUN")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .spawn()
        .context("cannot start the supervisor")?;
    let mut lifeline = Lifeline { line: BufReader::new(ours), supervisor };
    match lifeline.hear()?.as_str() {
        "ready" => Ok(lifeline),
        "" => bail!("the supervisor of {:?} died before it served", config.name),
        why => Err(anyhow!("{why}")),
    }
}

impl Lifeline {
    fn hear(&mut self) -> Result<String> {
        let mut text = String::new();
        self.line.read_line(&mut text).context("the supervisor does not answer")?;
        Ok(text.trim_end().to_owned())
    }

    fn say(&mut self, word: &str) -> Result<()> {
        // In one piece: the supervisor may close the line when it has the word.
        let line = format!("{word}\n");
        self.line.get_mut().write_all(line.as_bytes()).context("the supervisor is gone")
    }

    /// Process id of the supervisor.
    #[must_use]
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// Leaves the instance to itself: it lives until somebody stops it.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub fn detach(mut self) -> Result<()> {
        self.say("detach")?;
        let answer = self.hear()?;
        if answer == "detached" { Ok(()) } else { bail!("the supervisor is gone") }
    }

    /// From now on the data directory stays when the instance ends, also when the caller is killed.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub fn keep(&mut self) -> Result<()> {
        self.say("keep")
    }

    /// Ends the instance; with `keep_data` its data directory stays whatever was planned. How its
    /// daemon died when its content was lost with it.
    ///
    /// # Errors
    /// Names what could not be removed.
    pub fn stop(mut self, keep_data: bool) -> Result<Option<String>> {
        self.say(if keep_data { "keep" } else { "discard" })?;
        self.say("stop")?;
        let answer = self.hear()?;
        self.supervisor.wait()?;
        match answer.as_str() {
            "stopped" => Ok(None),
            word if word.starts_with(LOST) => Ok(Some(word[LOST.len()..].to_owned())),
            "" => bail!("the supervisor died; look for leftovers with `mayfly status`"),
            why => bail!("{why}"),
        }
    }
}
