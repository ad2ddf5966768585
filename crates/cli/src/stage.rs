//! `mayfly stage`, and what `mayfly run` copies in and out.
//!
//! The copying process is served by the instance as any other program is: the command becomes it
//! (the hidden subcommand [`STAGER`]), so that the terminal and signals are its own.

mod buckets;
mod every;
mod known;
mod show;
mod workers;

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Component, Path, PathBuf},
    process::{Command, ExitCode},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_deploy::{
    Config, Level, command::is_told_to_end, command_inside, environment, keep_to_processors,
};
use mayfly_stage::{Cancel, Journal, JournalError, Listed, Options, Pair, Wanted};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::workers::Started;
use crate::{
    arguments::{Stage, Staging, WhenOpen},
    run,
};

pub(crate) use workers::{HANDS, HELPER, help, serve};

/// The hidden subcommand that copies: `__stage in|out` and the arguments of `stage`.
pub(crate) const STAGER: &str = "__stage";
/// Exit status when some of it could not be copied.
pub(crate) const PARTLY: u8 = 3;

/// Something was not copied; it was named.
#[derive(Debug)]
pub(crate) struct Partly(String);

impl std::error::Error for Partly {}

impl std::fmt::Display for Partly {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

/// `FROM:TO` of `mayfly run`.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    from: OsString,
    to: OsString,
}

impl Transfer {
    /// The whole instance, into this directory.
    pub(crate) fn of_everything(to: &Path) -> Transfer {
        Transfer { from: ".".into(), to: to.as_os_str().to_owned() }
    }
}

/// The path in the instance comes last, and has no colon.
pub(crate) fn inward(text: &str) -> Result<Transfer, String> {
    transfer(text.rsplit_once(':'))
}

/// The path in the instance comes first, and has no colon.
pub(crate) fn outward(text: &str) -> Result<Transfer, String> {
    transfer(text.split_once(':'))
}

fn transfer(parts: Option<(&str, &str)>) -> Result<Transfer, String> {
    match parts {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok(Transfer { from: from.into(), to: to.into() })
        }
        _ => Err("say FROM:TO".to_owned()),
    }
}

/// A span of time.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if span < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(span) }
}

/// A span of time before now, or the time of a file.
pub(crate) fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(span) = humantime::parse_duration(text) {
        return SystemTime::now()
            .checked_sub(span)
            .ok_or_else(|| "that is too long ago".to_owned());
    }
    fs::metadata(text)
        .and_then(|file| file.modified())
        .map_err(|error| format!("neither a time such as 2h or 30m, nor a file: {error}"))
}

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
    let config = run::node(&staging.entered.which.name(), staging.entered.node)?;
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
    let workers = match buckets::are_meant(&ends) || is_told_to_end() {
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
    let names = std::iter::once(name.to_owned()).chain(run::names_of_nodes(name));
    let nodes = names.filter_map(|name| run::running(&name).ok());
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
    let log = known::Told::of(wanted);
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

fn pairs(staging: &Staging, inward: bool) -> Result<Vec<Pair>> {
    let mount = std::env::var_os("MAYFLY_MOUNT").context("this process is in no instance")?;
    Places::new(Path::new(&mount))?.pairs(&staging.paths, inward)
}

/// Who may not stand back copies all the same.
fn stand_back() {
    if let Err(error) = mayfly_stage::stand_back() {
        eprintln!("mayfly: this copies with the usual priority: {error}");
    }
}

fn cancelled_by_signals() -> Result<Cancel> {
    let cancel = Cancel::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, cancel.flag())?;
    }
    Ok(cancel)
}

fn options(staging: &Staging) -> Result<Options> {
    let usual = Options::default();
    let listed = staging.files_from.as_deref().map(read_list).transpose()?;
    ensure!(
        listed.is_none() || staging.paths.len() == 2 && !staging.delete,
        "--files-from is for one source, without --delete"
    );
    Ok(Options {
        wanted: Wanted {
            listed: listed.map(Arc::new),
            include: staging.include.clone(),
            exclude: staging.exclude.clone(),
            newer: staging.newer,
            touched: staging.since_stage_in.then(known::last_stage_in).transpose()?,
            larger: staging.larger,
            smaller: staging.smaller,
        },
        changed: staging.changed,
        delete: staging.delete,
        dry_run: staging.dry_run,
        follow: staging.follow,
        verify: staging.verify,
        sync: false,
        open: match staging.open {
            WhenOpen::Skip => mayfly_stage::WhenOpen::Skip,
            WhenOpen::Wait => mayfly_stage::WhenOpen::Wait,
            WhenOpen::Copy => mayfly_stage::WhenOpen::Copy,
        },
        root: std::env::var_os("MAYFLY_MOUNT").map(PathBuf::from),
        idle: staging.idle || staging.background,
        above: 0o777 & !mayfly_stage::clear_umask(),
        unwatched: staging.unwatched,
        streams: staging.streams.map_or(usual.streams, usize::from),
        bandwidth: staging.bandwidth,
        files_per_second: staging.files_per_second,
    })
}

fn read_list(path: &Path) -> Result<Listed> {
    let mut text = Vec::new();
    let read = match path == Path::new("-") {
        true => io::stdin().read_to_end(&mut text).map(drop),
        false => fs::read(path).map(|read| text = read),
    };
    read.with_context(|| format!("--files-from {}", path.display()))?;
    Ok(Listed::read(&text)?)
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

/// What paths of the command line mean.
struct Places<'a> {
    mount: &'a Path,
    here: PathBuf,
}

impl Places<'_> {
    fn new(mount: &Path) -> Result<Places<'_>> {
        let here = std::env::current_dir().context("there is no working directory")?;
        Ok(Places { mount, here })
    }

    /// A path in the instance: it begins at the instance's root, unless the working directory is in
    /// the instance.
    fn inside(&self, path: &Path) -> Result<PathBuf> {
        let start = if self.here.starts_with(self.mount) { &self.here } else { self.mount };
        let whole = plain(&start.join(path));
        ensure!(
            whole.starts_with(self.mount),
            "{} is not in the instance, which is at {}",
            path.display(),
            self.mount.display()
        );
        Ok(whole)
    }

    fn outside(&self, path: &Path) -> Result<PathBuf> {
        let whole = plain(&self.here.join(path));
        ensure!(
            !whole.starts_with(self.mount),
            "{} is in the instance; within it use `cp -a`",
            path.display()
        );
        Ok(whole)
    }

    fn pairs(&self, paths: &[PathBuf], inward: bool) -> Result<Vec<Pair>> {
        let Some((destination, sources)) = paths.split_last() else { bail!("nothing to copy") };
        let target = if inward { self.inside(destination) } else { self.outside(destination) }?;
        let into = sources.len() > 1 || destination.as_os_str().as_bytes().ends_with(b"/");
        let mut pairs = Vec::new();
        for source in sources {
            let from = if inward { self.outside(source) } else { self.inside(source) }?;
            let (from, patterns) = split_pattern(&from)?;
            let is_file = fs::metadata(&from).is_ok_and(|file| !file.is_dir());
            // What a pattern chooses goes into the destination itself, and so does a root.
            let name = from.file_name().filter(|_| patterns.is_empty() && from != self.mount);
            let destination = match name {
                Some(name) if into || is_file && target.is_dir() => target.join(name),
                _ => target.clone(),
            };
            if let Some(earlier) = pairs.iter().find(|pair: &&Pair| pair.destination == destination)
            {
                let two = !patterns.is_empty() && !earlier.patterns.is_empty();
                ensure!(
                    two,
                    "{} and {} would both become {}",
                    earlier.source.display(),
                    from.display(),
                    destination.display()
                );
            }
            pairs.push(Pair { source: from, destination, patterns, like: None });
        }
        Ok(pairs)
    }
}

/// Without `.`, and with `..` taken back, as the words say.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The directory before the first component with a pattern, and the pattern from there on; unless
/// there is something of that very name.
fn split_pattern(path: &Path) -> Result<(PathBuf, Vec<String>)> {
    let is_pattern = |name: &OsStr| name.as_bytes().iter().any(|byte| b"*?[".contains(byte));
    if !is_pattern(path.as_os_str()) || fs::symlink_metadata(path).is_ok() {
        return Ok((path.to_owned(), Vec::new()));
    }
    let components: Vec<Component<'_>> = path.components().collect();
    let first = components.iter().position(|component| is_pattern(component.as_os_str()));
    let (base, pattern) = components.split_at(first.unwrap_or(components.len()));
    let pattern: PathBuf = pattern.iter().collect();
    let text = pattern.to_str().context("a pattern is text")?;
    Ok((base.iter().collect(), vec![format!("/{text}")]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places<'static> {
        Places { mount: Path::new("/mnt/own"), here: PathBuf::from("/work") }
    }

    fn pairs(paths: &[&str], inward: bool) -> Result<Vec<(String, String)>> {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let show = |path: &Path| path.to_string_lossy().into_owned();
        let pairs = places().pairs(&paths, inward)?;
        Ok(pairs.iter().map(|pair| (show(&pair.source), show(&pair.destination))).collect())
    }

    #[test]
    fn one_source_becomes_the_destination_and_several_go_into_it() {
        let is = |paths: &[&str], expected: &[(&str, &str)]| {
            let found = pairs(paths, true).expect("pairs");
            let found: Vec<_> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            assert_eq!(found, expected, "{paths:?}");
        };
        is(&["case", "x"], &[("/work/case", "/mnt/own/x")]);
        is(&["case/", "."], &[("/work/case", "/mnt/own")]);
        is(&["case", "x/"], &[("/work/case", "/mnt/own/x/case")]);
        is(&["a", "../b", "x"], &[("/work/a", "/mnt/own/x/a"), ("/b", "/mnt/own/x/b")]);
        is(&["a", "/mnt/own/y"], &[("/work/a", "/mnt/own/y")]);
    }

    #[test]
    fn both_sides_are_where_they_should_be() {
        assert!(pairs(&["a", "/elsewhere"], true).is_err());
        assert!(pairs(&["/mnt/own/a", "b"], true).is_err());
        assert!(pairs(&["a", "/mnt/own/b"], false).is_err());
        assert!(pairs(&["../../etc", "b"], false).is_err());
        assert!(pairs(&["a/x", "b/x", "c"], false).is_err());
    }

    #[test]
    fn a_pattern_begins_at_its_first_component() {
        let split = |text: &str| split_pattern(Path::new(text)).expect("it is text");
        assert_eq!(split("/a/b"), (PathBuf::from("/a/b"), vec![]));
        let expected = (PathBuf::from("/none/b"), vec!["/c*/**/d.h5".to_owned()]);
        assert_eq!(split("/none/b/c*/**/d.h5"), expected);
    }

    #[test]
    fn a_transfer_is_two_paths() {
        let shown = |transfer: Transfer| (transfer.from, transfer.to);
        assert_eq!(shown(inward("a:b:c").expect("two")), ("a:b".into(), "c".into()));
        assert_eq!(shown(outward("a:b:c").expect("two")), ("a".into(), "b:c".into()));
        assert!(inward("a").is_err() && outward(":a").is_err() && inward("a:").is_err());
    }
}
