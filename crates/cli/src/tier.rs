//! `mayfly tier`, and the flush before an instance ends.

mod prefetch;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mayfly_deploy::{
    Config, Event, Flushed, evict_tier, flush_tier, path_inside, tier_state, unlink_tier,
    unpin_tier, whole_name,
};

use crate::{
    arguments::{Tier, TierFlush, TierStatus, TierUnlink},
    instances, size,
};

pub(crate) fn tier(wanted: &Tier) -> Result<()> {
    match wanted {
        Tier::Status(wanted) => status(wanted),
        Tier::Flush(wanted) => flush(wanted),
        Tier::Evict(wanted) => evict(wanted),
        Tier::Prefetch(wanted) => prefetch::prefetch(wanted, false),
        Tier::Pin(wanted) => prefetch::prefetch(wanted, true),
        Tier::Unpin(wanted) => unpin(wanted),
        Tier::Unlink(wanted) => unlink(wanted),
    }
}

fn status(wanted: &TierStatus) -> Result<()> {
    let state = tier_state(&instances::running(&wanted.which.name())?)?;
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&state)?);
        return Ok(());
    }
    for origin in &state.origins {
        let mode = if origin.read_only { ", read-only" } else { "" };
        println!("{} at /{}{mode}", origin.origin.display(), origin.directory.display());
        println!("  known      {} files and directories", origin.files);
        println!("  cached     {}", size::show(origin.cached_bytes));
        let dirty = (origin.dirty_files, size::show(origin.dirty_bytes));
        println!("  dirty      {} files, {}", dirty.0, dirty.1);
        let pinned = (origin.pinned_files, size::show(origin.pinned_bytes));
        println!("  pinned     {} files, {}", pinned.0, pinned.1);
        let counts = &origin.counts;
        let reads = counts.reads_here + counts.reads_outside;
        if let Some(rate) = (counts.reads_here * 100).checked_div(reads) {
            let bytes = size::show(counts.read_outside_bytes);
            println!("  hit rate   {rate} % of {reads} reads; {bytes} waited for the origin");
        }
        let done = [
            ("fetched", counts.fetches, counts.fetched_bytes),
            ("flushed", counts.flushes, counts.flushed_bytes),
            ("evicted", counts.evictions, counts.evicted_bytes),
        ];
        for (what, count, bytes) in done {
            println!("  {what:<10} {count}, {}", size::show(bytes));
        }
        println!("  fetching   {}", origin.fetching);
        println!("  conflicts  {}", origin.conflicts);
        println!("  errors     {}", origin.errors);
        if origin.names_waiting + origin.names_failed > 0 {
            let (waiting, failed) = (origin.names_waiting, origin.names_failed);
            println!("  names      {waiting} changes not made there yet, {failed} failed");
        }
    }
    for event in &state.events {
        println!("{}", told(event));
    }
    Ok(())
}

fn told(event: &Event) -> String {
    let path = event.path.display();
    match (&event.copy, &event.error) {
        (Some(copy), _) => {
            format!("conflict: {path} was changed by others; ours is {}", copy.display())
        }
        (None, Some(error)) => format!("failed: {path}: {error}"),
        (None, None) => format!("failed: {path}"),
    }
}

/// The paths that are meant, from the root of the instance: everything when there are none.
fn paths_inside(config: &Config, wanted: &TierFlush) -> Result<Vec<PathBuf>> {
    if wanted.paths.is_empty() {
        return Ok(vec![PathBuf::new()]);
    }
    wanted.paths.iter().map(|path| path_inside(config, path)).collect()
}

fn evict(wanted: &TierFlush) -> Result<()> {
    let config = instances::running(&wanted.which.name())?;
    let mut files = 0;
    for path in paths_inside(&config, wanted)? {
        files += evict_tier(&config, &path)?;
    }
    eprintln!("mayfly: the bytes of {files} files are gone from here");
    Ok(())
}

fn unpin(wanted: &TierFlush) -> Result<()> {
    let config = instances::running(&wanted.which.name())?;
    let mut files = 0;
    for path in paths_inside(&config, wanted)? {
        files += unpin_tier(&config, &path)?;
    }
    eprintln!("mayfly: {files} files may go again");
    Ok(())
}

fn unlink(wanted: &TierUnlink) -> Result<()> {
    let config = instances::running(&wanted.which.name())?;
    let path = path_inside(&config, &wanted.path)?;
    let shown = wanted.path.display();
    let is_it = config.options.origins.iter().any(|origin| origin.inside == path);
    ensure!(
        is_it,
        "no origin is shown at {shown}; `mayfly tier evict` frees the space of files and of what \
         is in directories"
    );
    let flushed = flush_tier(&config, &path, false)?;
    say(&flushed);
    ensure!(
        flushed.failed == 0,
        "{} files or names could not be written back, so the origin stays at {shown}",
        flushed.failed
    );
    unlink_tier(&config, &path).with_context(|| format!("the origin stays at {shown}"))?;
    eprintln!("mayfly: {shown} is a directory of the instance now, and empty");
    Ok(())
}

fn flush(wanted: &TierFlush) -> Result<()> {
    let config = instances::running(&wanted.which.name())?;
    let mut all = Flushed::default();
    for path in paths_inside(&config, wanted)? {
        let flushed = flush_tier(&config, &path, false)?;
        all.files += flushed.files;
        all.conflicts += flushed.conflicts;
        all.failed += flushed.failed;
        all.events = flushed.events;
    }
    say(&all);
    ensure!(
        all.failed == 0,
        "{} files or names could not be written back, and are as they were; `mayfly tier status` \
         names what failed",
        all.failed
    );
    eprintln!("mayfly: {} files were written back", all.files);
    Ok(())
}

/// Names conflicts, and what failed.
fn say(flushed: &Flushed) {
    let conflicts = flushed.events.iter().filter(|event| event.copy.is_some());
    let failed = flushed.events.iter().filter(|event| event.error.is_some());
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    for event in conflicts.take(count(flushed.conflicts)).chain(failed.take(count(flushed.failed)))
    {
        eprintln!("mayfly: {}", told(event));
    }
}

/// Whether something of an instance may have to be written back.
fn may_be_dirty(config: &Config) -> bool {
    config.options.origins.iter().any(|origin| !origin.read_only)
}

/// Writes everything back before the instance ends. An error keeps the data: it says so.
pub(crate) fn flush_last(config: &Config) -> Result<()> {
    if !may_be_dirty(config) {
        return Ok(());
    }
    if config.node.is_some() {
        return flush_last_of_many(config);
    }
    let flushed = flush_tier(config, Path::new(""), true)?;
    say(&flushed);
    ensure!(
        flushed.failed == 0,
        "{} files or names could not be written back to their origins, and their data are kept: \
         `mayfly start --reopen {}` takes them up, `mayfly tier flush` writes them back, and then \
         end it",
        flushed.failed,
        config.data_dir.display()
    );
    Ok(())
}

/// The same of an instance of several nodes, which nobody can take up again when it has ended.
fn flush_last_of_many(config: &Config) -> Result<()> {
    let name = whole_name(&config.name);
    let goes_on = format!(
        "the instance goes on: `mayfly tier status --name {name}` says what failed, and `mayfly \
         stop --name {name}` tries again; with --discard it ends without them"
    );
    let flushed = flush_tier(config, Path::new(""), true).context(goes_on.clone())?;
    say(&flushed);
    ensure!(
        flushed.failed == 0,
        "{} files or names could not be written back to their origins, and {goes_on}",
        flushed.failed
    );
    Ok(())
}
