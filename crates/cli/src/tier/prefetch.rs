//! `mayfly tier prefetch`.

use std::{
    io::{BufRead, BufReader, IsTerminal, stderr, stdin},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use mayfly_deploy::{Config, Prefetched, path_inside, prefetch_tier};

use crate::{arguments::TierPrefetch, instances, size};

/// No path is longer.
const PATH_BYTES_MAX: u64 = 4096;

/// The paths that standard input names, as they are read, and the first thing that is wrong with
/// them.
struct Named<'a> {
    config: &'a Config,
    from: Box<dyn BufRead + Send>,
    end: u8,
    trouble: Option<anyhow::Error>,
}

impl Iterator for Named<'_> {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        while self.trouble.is_none() {
            let mut path = Vec::new();
            let limited = &mut std::io::Read::take(&mut self.from, PATH_BYTES_MAX);
            match limited.read_until(self.end, &mut path) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => self.trouble = Some(error.into()),
            }
            path.pop_if(|last| *last == self.end);
            if path.is_empty() {
                continue;
            }
            let path = PathBuf::from(std::ffi::OsString::from_vec(path));
            match path_inside(self.config, &path) {
                Ok(path) => return Some(path),
                Err(error) => self.trouble = Some(error),
            }
        }
        None
    }
}

pub(super) fn prefetch(wanted: &TierPrefetch, pins: bool) -> Result<()> {
    let config = instances::running(&wanted.which.name())?;
    let named = wanted.paths.iter().any(|path| path == Path::new("-"));
    let paths = wanted.paths.iter().filter(|path| *path != Path::new("-"));
    let paths = paths.map(|path| path_inside(&config, path)).collect::<Result<Vec<_>>>()?;
    ensure!(named || !wanted.null, "-0 is about what standard input names: say - for it");
    let from: Box<dyn BufRead + Send> =
        if named { Box::new(BufReader::new(stdin())) } else { Box::new(std::io::empty()) };
    let end = if wanted.null { 0 } else { b'\n' };
    let mut named = Named { config: &config, from, end, trouble: None };
    let mut all = paths.into_iter().chain(&mut named);
    let on_terminal = stderr().is_terminal() && !wanted.json;
    let mut show = |done: &Prefetched| {
        if on_terminal {
            eprint!("\r\x1b[Kmayfly: {}", told(done));
        }
    };
    let done = prefetch_tier(&config, &mut all, (wanted.at_once.into(), pins), &mut show)?;
    if on_terminal {
        eprint!("\r\x1b[K");
    }
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&done)?);
    } else {
        for failure in &done.failures {
            eprintln!("mayfly: failed: {}: {}", failure.path.display(), failure.error);
        }
        eprintln!("mayfly: {}", told(&done));
    }
    if let Some(error) = named.trouble {
        return Err(error.context("what standard input names was not read to its end"));
    }
    ensure!(
        !done.full,
        "this is more than the instance has room for: the rest was left out. See --capacity"
    );
    ensure!(done.failed == 0, "{} files or directories could not be fetched", done.failed);
    Ok(())
}

fn told(done: &Prefetched) -> String {
    format!(
        "{} files are here, {}; {} of them were fetched now, {}",
        done.files,
        size::show(done.bytes),
        done.fetched_files,
        size::show(done.fetched_bytes)
    )
}
