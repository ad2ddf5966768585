//! Stages from object stores and to them.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_stage::{Bucket, Cancel, Journal, Options, Pair, Report, download, upload};

use super::{
    places::{Places, split_pattern},
    show::Screen,
};
use crate::arguments::Staging;

/// Each request waits for a network: more threads than between directories.
const STREAMS_USUAL: usize = 16;

/// Is one of the paths the address of a bucket?
pub(super) fn are_meant(paths: &[PathBuf]) -> bool {
    paths.iter().any(|path| Bucket::is_address(path.as_os_str()))
}

/// What is copied, where.
pub(super) enum Way {
    In(Bucket, PathBuf),
    Out(Vec<Pair>, Bucket),
}

impl Way {
    pub(super) fn new(staging: &Staging, inward: bool) -> Result<Way> {
        let mount = std::env::var_os("MAYFLY_MOUNT").context("this process is in no instance")?;
        let places = Places::new(Path::new(&mount))?;
        let Some((destination, sources)) = staging.paths.split_last() else { bail!("no paths") };
        let is_address = |path: &Path| Bucket::is_address(path.as_os_str());
        if inward {
            let [source] = sources else { bail!("one bucket at a time: SOURCE DESTINATION") };
            ensure!(is_address(source) && !is_address(destination), "an instance is no bucket");
            ensure!(!staging.delete, "--delete means nothing with a bucket as source");
            let bucket = Bucket::open(source.as_os_str())?;
            return Ok(Way::In(bucket, places.inside(destination)?));
        }
        ensure!(!sources.iter().any(|path| is_address(path)), "an instance is no bucket");
        let address = destination.as_os_str();
        let bucket = Bucket::open(address)?;
        let into = sources.len() > 1 || address.as_bytes().ends_with(b"/");
        let has_prefix = address.as_bytes().iter().filter(|byte| **byte == b'/').count() > 2;
        let pair = |source: &PathBuf| {
            let (source, patterns) = split_pattern(&places.inside(source)?)?;
            let is_file = std::fs::metadata(&source).is_ok_and(|file| !file.is_dir());
            let name = source.file_name().filter(|_| patterns.is_empty());
            let name = name.filter(|_| into || is_file && !has_prefix).unwrap_or(OsStr::new(""));
            let destination = PathBuf::from(name);
            Ok(Pair { source, destination, patterns, like: None })
        };
        Ok(Way::Out(sources.iter().map(pair).collect::<Result<_>>()?, bucket))
    }

    /// Says what the stage is, for its journal.
    pub(super) fn pairs(&self, staging: &Staging) -> Vec<Pair> {
        match self {
            Way::Out(pairs, _) => {
                let to = staging.paths.last().cloned().unwrap_or_default();
                let of = |pair: &Pair| Pair { like: Some(to.clone()), ..pair.clone() };
                pairs.iter().map(of).collect()
            }
            Way::In(_, destination) => {
                let source = staging.paths.first().cloned().unwrap_or_default();
                let destination = destination.clone();
                vec![Pair { source, destination, patterns: Vec::new(), like: None }]
            }
        }
    }

    pub(super) fn copy(
        &self,
        staging: &Staging,
        options: &Options,
        journal: &mut Journal,
        cancel: &Cancel,
        screen: &Screen<'_>,
    ) -> Result<Report> {
        let streams = staging.streams.map_or(STREAMS_USUAL, usize::from);
        let options = &Options { streams, ..options.clone() };
        Ok(match self {
            Way::In(bucket, to) => download(bucket, to, options, journal, cancel, screen)?,
            Way::Out(pairs, bucket) => upload(bucket, pairs, options, journal, cancel, screen)?,
        })
    }
}
