//! From the options of the command line to those of the engine.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use mayfly_stage::{Cancel, Listed, Options, Wanted};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::known;
use crate::arguments::{Staging, WhenOpen};

pub(super) fn options(staging: &Staging) -> Result<Options> {
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

/// Who may not stand back copies all the same.
pub(super) fn stand_back() {
    if let Err(error) = mayfly_stage::stand_back() {
        eprintln!("mayfly: this copies with the usual priority: {error}");
    }
}

pub(super) fn cancelled_by_signals() -> Result<Cancel> {
    let cancel = Cancel::default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, cancel.flag())?;
    }
    Ok(cancel)
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
