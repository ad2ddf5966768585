//! Stages that an instance knows: `mayfly stage status`, `wait` and `cancel`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_deploy::{Config, Level, Part, add_to_log};
use mayfly_stage::{
    Counts, Moment,
    registry::{self, Entry, Shown, State},
};

use super::outcome::PARTLY;
use crate::{
    arguments::{Stage, StageIds, StageStatus},
    instances, size,
};

/// Where the process that copies tells of itself.
pub(super) const STAGES: &str = "MAYFLY_STAGES";
/// What those in the background say.
const LOG: &str = "background.log";
/// A process in the background tells of itself within that time, or has failed.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// One that is asked to end does, or is told of.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Where the stages of an instance are known, on this node.
pub(super) fn directory(config: &Config) -> PathBuf {
    config.run_dir.join("stages")
}

/// Of this process. Nothing is said of one that cannot be known: it copies all the same.
pub(super) fn entry(kind: &str, paths: &[PathBuf], is_periodic: bool) -> Option<Entry> {
    let directory = std::env::var_os(STAGES)?;
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let what = format!("{kind} {}", paths.join(" "));
    Entry::new(Path::new(&directory), what, is_periodic).ok()
}

/// What is said of a stage in its node's log (`mayfly logs`).
pub(super) struct LoggedStage {
    /// The run directory, and the node.
    place: Option<(PathBuf, u32)>,
    what: String,
}

impl LoggedStage {
    /// Of the one that this process is.
    pub(super) fn of(wanted: &Stage) -> LoggedStage {
        let run_dir = std::env::var_os(STAGES).map(PathBuf::from);
        let run_dir = run_dir.and_then(|stages| Some(stages.parent()?.to_owned()));
        let place = run_dir.and_then(|run_dir| {
            let node = Config::load(&run_dir).ok()?.node.unwrap_or(0);
            Some((run_dir, node))
        });
        let (kind, paths) = match wanted {
            Stage::In(staging) => ("in", &staging.paths[..]),
            Stage::Out(staging) => ("out", &staging.paths[..]),
            Stage::Every(every) => ("every", &every.staging.paths[..]),
            Stage::Status(_) | Stage::Wait(_) | Stage::Cancel(_) => ("", &[][..]),
        };
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        LoggedStage { place, what: format!("{kind} {}", paths.join(" ")) }
    }

    pub(super) fn say(&self, level: Level, event: &str) {
        if let Some((run_dir, node)) = &self.place {
            add_to_log(run_dir, *node, Part::Stage, level, &format!("{}: {event}", self.what));
        }
    }
}

/// What is in the instance now was there, or has come in; what is made later is the job's.
pub(super) fn note_stage_in() {
    let mount = std::env::var_os("MAYFLY_MOUNT");
    let now = mount.and_then(|mount| mayfly_stage::now_at(Path::new(&mount)));
    if let (Some(directory), Some(now)) = (std::env::var_os(STAGES), now) {
        // Whoever asks for it later is told that nothing is known.
        let _ = registry::note_stage_in(Path::new(&directory), now);
    }
}

pub(super) fn last_stage_in() -> Result<Moment> {
    let directory = std::env::var_os(STAGES).context("this process is in no instance")?;
    registry::last_stage_in(Path::new(&directory))
        .context("--since-stage-in: no `stage in` of this instance has ended on this node")
}

/// Starts a process that goes on alone, and says how it is called.
pub(super) fn leave(mut command: Command, config: &Config) -> Result<()> {
    let directory = directory(config);
    fs::create_dir_all(&directory)?;
    let log = directory.join(LOG);
    let file = fs::File::options().append(true).create(true).open(&log)?;
    let told = fs::metadata(&log)?.len();
    let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
    let mut child = child.context("cannot start the copy")?;
    let until = Instant::now() + BEGINS_WITHIN;
    while Instant::now() < until {
        let ours = registry::list(&directory).into_iter().find(|shown| shown.pid == child.id());
        if let Some(shown) = ours {
            println!("{}", shown.id);
            eprintln!(
                "mayfly: stage {} goes on in the background: `mayfly stage status`, `wait` or \
                 `cancel {}` --name {}; what it says is in {}",
                shown.id,
                shown.id,
                config.name,
                log.display()
            );
            return Ok(());
        }
        if child.try_wait()?.is_some() {
            let said = fs::read(&log)?.split_off(told as usize);
            bail!("it did not begin:\n{}", String::from_utf8_lossy(&said).trim_end());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("it has not begun after {} s; see {}", BEGINS_WITHIN.as_secs(), log.display())
}

pub(super) fn status(wanted: &StageStatus) -> Result<()> {
    let config = instances::node(&wanted.entered.which.name(), wanted.entered.node)?;
    let all = registry::list(&directory(&config));
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    for shown in &all {
        println!("{}", line(shown));
    }
    Ok(())
}

pub(super) fn line(shown: &Shown) -> String {
    let state = match shown.state {
        State::Running => "running",
        State::Done => "done",
        State::Partly => "partly",
        State::Ended => "ended",
        State::Killed => "killed",
    };
    let counts = &shown.counts;
    format!(
        "{:>4}  {state:<8}{:>10} files  {:>10}  {} failed  {}",
        shown.id,
        counts.files,
        size::show(counts.bytes),
        counts.failed,
        shown.what
    )
}

/// What the stages that were begun on a node's machine have done, for monitoring.
pub(super) fn work(config: &Config) -> serde_json::Value {
    let directory = directory(config);
    let running = registry::list(&directory);
    let running = running.iter().filter(|shown| shown.state == State::Running).count();
    let Counts { files, bytes, unchanged, failed, .. } = registry::sum(&directory);
    serde_json::json!({
        "running": running, "bytes": bytes,
        "files": { "copied": files, "unchanged": unchanged, "failed": failed },
    })
}

pub(super) fn running(config: &Config) -> Vec<Shown> {
    meant(&directory(config), &[]).unwrap_or_default()
}

/// Those that are meant: all that run when none is named.
fn meant(directory: &Path, ids: &[u32]) -> Result<Vec<Shown>> {
    let mut all = registry::list(directory);
    if ids.is_empty() {
        all.retain(|shown| shown.state == State::Running);
        return Ok(all);
    }
    for id in ids {
        let is_known = all.iter().any(|shown| shown.id == *id);
        ensure!(is_known, "no stage {id}; `mayfly stage status` lists them");
    }
    all.retain(|shown| ids.contains(&shown.id));
    Ok(all)
}

pub(super) fn wait(wanted: &StageIds) -> Result<ExitCode> {
    let config = instances::node(&wanted.entered.which.name(), wanted.entered.node)?;
    let directory = directory(&config);
    let ids: Vec<u32> = meant(&directory, &wanted.ids)?.iter().map(|shown| shown.id).collect();
    let ended = registry::wait(&directory, &ids, None);
    for shown in &ended {
        eprintln!("mayfly: {}", line(shown).trim_start());
    }
    let whole = ended.iter().all(|shown| shown.state == State::Done);
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(PARTLY) })
}

pub(super) fn cancel(wanted: &StageIds) -> Result<()> {
    let config = instances::node(&wanted.entered.which.name(), wanted.entered.node)?;
    let directory = directory(&config);
    let mut running = meant(&directory, &wanted.ids)?;
    running.retain(|shown| shown.state == State::Running);
    for shown in &running {
        shown.cancel().with_context(|| format!("stage {} cannot be ended", shown.id))?;
    }
    let ids: Vec<u32> = running.iter().map(|shown| shown.id).collect();
    let ended = registry::wait(&directory, &ids, Some(Instant::now() + ENDS_WITHIN));
    let left = ended.iter().find(|shown| shown.state == State::Running);
    ensure!(left.is_none(), "stage {} has not ended yet", left.map_or(0, |shown| shown.id));
    Ok(())
}

/// The end of an instance is not that of a copy that somebody has asked for.
pub(super) fn wait_for_all(config: &Config) {
    let directory = directory(config);
    let Ok(running) = meant(&directory, &[]) else { return };
    let ids: Vec<u32> = running.iter().map(|shown| shown.id).collect();
    for shown in &running {
        // What is copied again and again is so until the end; its last whole copy stays.
        if shown.is_periodic && shown.cancel().is_ok() {
            continue;
        }
        eprintln!("mayfly: waiting for stage {} ({})", shown.id, shown.what);
    }
    let _ = registry::wait(&directory, &ids, None);
}
