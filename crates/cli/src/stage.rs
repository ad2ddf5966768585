//! `mayfly stage`, and what `mayfly run` copies in and out.
//!
//! The copying process is served by the instance as any other program is: the command becomes it
//! (the hidden subcommand [`STAGER`]), so that the terminal and signals are its own.

mod buckets;
mod choices;
mod every;
mod known;
mod outcome;
mod places;
mod show;
mod workers;

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use mayfly_deploy::{
    Config, Level, command::is_end_requested, command_inside, environment, keep_to_processors,
};
use mayfly_stage::{Journal, JournalError, Options, Pair};

use self::{
    choices::{cancelled_by_signals, options, stand_back},
    places::pairs,
    workers::Started,
};
use crate::{
    arguments::{STAGER, Stage, Staging, values::Transfer},
    instances,
};

pub(crate) use outcome::{PARTLY, Partly};
pub(crate) use workers::{help, serve};

/// Becomes the process that copies, or tells of those that do.
pub(crate) fn stage(wanted: &Stage) -> ExitCode {
    let done = match wanted {
        Stage::In(staging) | Stage::Out(staging) => begin(wanted, staging),
        Stage::Every(every) => begin(wanted, &every.staging),
        Stage::Status(wanted) => known::status(wanted).map(|()| ExitCode::SUCCESS),
        Stage::Wait(wanted) => known::wait(wanted),
        Stage::Cancel(wanted) => known::cancel(wanted).map(|()| ExitCode::SUCCESS),
    };
    end(done)
}

fn begin(wanted: &Stage, staging: &Staging) -> Result<ExitCode> {
    let config = instances::node(&staging.entered.which.name(), staging.entered.node)?;
    // The same words again: what they mean is found out where both sides are seen.
    let words = std::env::args_os().skip_while(|word| word != "stage").skip(1);
    if let Some(cpus) = &staging.cpus {
        keep_to_processors(cpus)?;
    }
    let mut command = stager(&config)?;
    command.args(words);
    let workers = match staging.dry_run || buckets::are_meant(&staging.paths) {
        true => Started::default(),
        false => Started::new(&config, staging.nodes_used, staging.cpus.as_deref())?,
    };
    workers.tell(&mut command)?;
    if staging.background || matches!(wanted, Stage::Every(_)) {
        return known::leave(command, &config).map(|()| ExitCode::SUCCESS);
    }
    bail!("cannot enter the instance {:?}: {}", config.name, command.exec())
}

fn stager(config: &Config) -> Result<Command> {
    let mut command = command_inside(config, std::env::current_exe()?.as_os_str())?;
    command.arg(STAGER).envs(environment::variables(config));
    command.env(known::STAGES, known::directory(config));
    Ok(command)
}

/// Copies what `mayfly run` was asked to, and waits for it.
///
/// # Errors
/// [`Partly`]; it could not be begun.
pub(crate) fn transfer_now(config: &Config, direction: &str, what: &Transfer) -> Result<()> {
    let ends = [&what.from, &what.to].map(PathBuf::from);
    // To reach other nodes takes time that may not be left, where a batch system lets it at all.
    let workers = match buckets::are_meant(&ends) || is_end_requested() {
        true => Started::default(),
        false => Started::new(config, None, None)?,
    };
    let mut command = stager(config)?;
    workers.tell(&mut command)?;
    let status = command
        // Its command has ended: who has files open still will not come to an end.
        .args([direction, "--quiet", "--open", "copy"])
        .args((direction == "in").then_some("--unwatched"))
        .arg("--")
        .args([&what.from, &what.to])
        .status()
        .context("cannot start the copy")?;
    workers.end();
    let words = format!(
        "stage {direction} of {} to {}",
        Path::new(&what.from).display(),
        Path::new(&what.to).display()
    );
    match status.code() {
        Some(0) => Ok(()),
        Some(code) if code == i32::from(PARTLY) => bail!(Partly(format!("{words} is not whole"))),
        _ => bail!("{words} failed"),
    }
}

/// Those that were begun on this node and run, a line each.
pub(crate) fn running(config: &Config) -> Vec<String> {
    let running = known::running(config);
    running.iter().map(|shown| known::line(shown).trim_start().to_owned()).collect()
}

/// Those that were begun on the nodes of an instance that are on this machine: each with its
/// attributes, and the number of the node.
pub(crate) fn running_here(name: &str) -> serde_json::Value {
    let names = std::iter::once(name.to_owned()).chain(instances::names_of_nodes(name));
    let nodes = names.filter_map(|name| instances::running(&name).ok());
    let of_node = |config: Config| {
        let node = config.node.unwrap_or(0);
        known::running(&config).into_iter().filter_map(move |shown| {
            let mut value = serde_json::to_value(shown).ok()?;
            value["node"] = node.into();
            Some(value)
        })
    };
    nodes.flat_map(of_node).collect()
}

/// What the stages of a node on this machine have done, for monitoring.
pub(crate) fn work(config: &Config) -> serde_json::Value {
    known::work(config)
}

/// Waits for stages in the background, which the end of the instance would end.
pub(crate) fn wait_for_all(config: &Config) {
    known::wait_for_all(config);
}

/// The copying process.
pub(crate) fn perform(wanted: &Stage) -> ExitCode {
    let log = known::LoggedStage::of(wanted);
    log.say(Level::Info, "began");
    let done = copy(wanted);
    match &done {
        Ok(code) if *code == ExitCode::SUCCESS => log.say(Level::Info, "ended"),
        Ok(_) => log.say(Level::Warn, "ended, and is not whole"),
        Err(error) => log.say(Level::Warn, &format!("failed: {error:#}")),
    }
    end(done)
}

fn end(done: Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mayfly: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn copy(wanted: &Stage) -> Result<ExitCode> {
    let (staging, inward) = match wanted {
        Stage::In(staging) => (staging, true),
        Stage::Out(staging) => (staging, false),
        Stage::Every(every) => return every::copy(every),
        Stage::Status(_) | Stage::Wait(_) | Stage::Cancel(_) => bail!("nothing to copy"),
    };
    if staging.background {
        mayfly_stage::leave_terminal()?;
    }
    if staging.background || staging.idle {
        stand_back();
    }
    let options = Options { sync: !inward, ..options(staging)? };
    let bucket = match buckets::are_meant(&staging.paths) {
        true => Some(buckets::Way::new(staging, inward)?),
        false => None,
    };
    let pairs = match &bucket {
        Some(way) => way.pairs(staging),
        None => pairs(staging, inward)?,
    };
    let workers = workers::handed_on()?;
    let mut journal = journal(staging, &pairs, inward)?;
    let cancel = cancelled_by_signals()?;
    let entry = known::entry(if inward { "in" } else { "out" }, &staging.paths, false);
    let screen = show::Screen::new(staging, inward, entry.as_ref());
    if journal.is_resumed() {
        screen.say_resumed();
    }
    let report = match &bucket {
        Some(way) => way.copy(staging, &options, &mut journal, &cancel, &screen)?,
        None => {
            mayfly_stage::stage_with(&workers, &pairs, &options, &mut journal, &cancel, &screen)?
        }
    };
    screen.end(&report);
    if inward && !staging.dry_run {
        known::note_stage_in();
    }
    if let Some(entry) = entry {
        entry.end(&report);
    }
    Ok(match report.is_whole() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(PARTLY),
    })
}

/// What an earlier try of the same stage has left. Without a place for it the stage goes on all the
/// same.
fn journal(staging: &Staging, pairs: &[Pair], inward: bool) -> Result<Journal> {
    if staging.dry_run {
        return Ok(Journal::none());
    }
    let Some(state) = state_directory() else { return Ok(Journal::none()) };
    let Staging { include, exclude, newer, larger, smaller, follow, files_from, .. } = staging;
    // A span of time means another moment each time.
    let times = (newer.is_some(), staging.since_stage_in);
    let chosen = (include, exclude, times, larger, smaller, follow, files_from);
    let what = format!("{pairs:?} {inward} {chosen:?}");
    match Journal::open(&state.join("mayfly/stages"), what.as_bytes(), staging.restart) {
        Err(JournalError::Io { path, source }) => {
            eprintln!(
                "mayfly: no journal in {}: {source}; if this is killed, the next try begins anew",
                path.display()
            );
            Ok(Journal::none())
        }
        journal => Ok(journal?),
    }
}

fn state_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))
}
