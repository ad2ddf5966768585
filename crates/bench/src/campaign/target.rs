//! Where the calls go: plain directories, and instances that the run starts itself.
//!
//! Everything of a run lies in one directory `mayfly-bench-<pid>` of each target. A plain one is
//! removed at the end, whatever happened, and nothing else in its parent is touched; an instance
//! ends and takes its own with it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_deploy::{Config, Instance, Lifeline, environment, launch, report};

use super::{crew::Crew, interrupt::Interrupt};
use crate::{report::results::TargetReport, storage::mounts};

/// What to measure, before it is there.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its name in tables; `None`: the file system's.
    pub label: Option<String>,
    /// Where it is.
    pub kind: PlaceKind,
}

/// A directory that exists, or an instance that does not yet.
#[derive(Debug, Clone)]
pub enum PlaceKind {
    /// An existing directory.
    Directory(PathBuf),
    /// How to make the instance.
    Instance(Box<Instance>),
}

/// An instance of the run's own.
struct Own {
    config: Config,
    lifeline: Lifeline,
    daemon: u32,
}

/// A target that is ready.
pub(super) struct Target {
    pub(super) label: String,
    /// The run's directory as its workers see it.
    pub(crate) root: PathBuf,
    /// Where the bytes lie, as this process sees it.
    pub(super) storage: PathBuf,
    own: Option<Own>,
    /// `None` until all targets are there.
    crew: Option<Crew>,
}

/// Name of the run's directory in each target.
fn root_name() -> String {
    format!("mayfly-bench-{}", std::process::id())
}

/// A plain directory for each file system directory in which an instance of `places` keeps its
/// data: what the instance is compared with when nobody says.
#[must_use]
pub fn beside(places: &[Place]) -> Vec<Place> {
    let mut found: Vec<PathBuf> = Vec::new();
    for place in places {
        if let PlaceKind::Instance(instance) = &place.kind {
            let first = instance.data_dirs.first().map(|first| first.path.clone());
            let directory = first.unwrap_or_else(std::env::temp_dir);
            if !found.contains(&directory) {
                found.push(directory);
            }
        }
    }
    let place = |directory| Place { label: None, kind: PlaceKind::Directory(directory) };
    found.into_iter().map(place).collect()
}

impl Target {
    /// Makes it ready: an instance is started, in a directory the run's own is made.
    pub(super) fn open(place: &Place) -> Result<Target> {
        match &place.kind {
            PlaceKind::Directory(directory) => Target::in_directory(place, directory),
            PlaceKind::Instance(instance) => Target::start(place, instance),
        }
    }

    fn in_directory(place: &Place, directory: &Path) -> Result<Target> {
        let cannot = || format!("cannot measure {}", directory.display());
        let directory = fs::canonicalize(directory).with_context(cannot)?;
        ensure!(directory.is_dir(), "cannot measure {}: no directory", directory.display());
        let root = directory.join(root_name());
        fs::create_dir(&root).with_context(cannot)?;
        let label = place.label.clone().unwrap_or_else(|| mounts::kind(&directory));
        Ok(Target { label, storage: root.clone(), root, own: None, crew: None })
    }

    fn start(place: &Place, instance: &Instance) -> Result<Target> {
        let config = instance.make()?;
        let lifeline = launch(&config)?;
        let daemon = match report(config.clone()) {
            Ok(report) => report.daemon_pid,
            Err(error) => {
                let _ = lifeline.stop(false);
                return Err(error);
            }
        };
        Ok(Target {
            label: place.label.clone().unwrap_or_else(|| "mayfly".to_owned()),
            root: config.mount.join(root_name()),
            storage: config.data_dir.clone(),
            own: Some(Own { config, lifeline, daemon }),
            crew: None,
        })
    }

    /// Starts its workers.
    pub(super) fn staff(&mut self, count: u32, interrupt: &Interrupt) -> Result<()> {
        let environment: Vec<(&'static str, OsString)> =
            self.own.as_ref().map_or_else(Vec::new, |own| environment::variables(&own.config));
        self.crew = Some(Crew::start(&self.label, count, &environment, interrupt)?);
        Ok(())
    }

    pub(super) fn crew(&mut self) -> Result<&mut Crew> {
        self.crew.as_mut().context("the workers are started before the first phase")
    }

    /// The instance's own processes: the supervisor and what it has started, the daemon and what
    /// serves a mount.
    pub(super) fn servants(&self) -> Vec<u32> {
        let Some(own) = &self.own else { return Vec::new() };
        let supervisor = own.lifeline.supervisor_pid();
        let mut all = vec![supervisor, own.daemon];
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        // Kernels may be built without this file; a mount's processor time is not counted then.
        let children = fs::read_to_string(children).unwrap_or_default();
        let children = children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
        all.extend(children.filter(|pid| *pid != own.daemon));
        all
    }

    /// Where the contents of its files lie. An instance's metadata lie elsewhere: where only pages
    /// can be given up, the kernel keeps its names and attributes, and so may an instance.
    pub(super) fn contents(&self) -> &Path {
        self.own.as_ref().map_or(&self.storage, |own| &own.config.object_dir)
    }

    /// What a report says of it.
    pub(super) fn describe(&self, loop_ns: f64) -> TargetReport {
        let storage = self.storage.parent().unwrap_or(&self.storage);
        TargetReport {
            label: self.label.clone(),
            is_instance: self.own.is_some(),
            directory: storage.to_path_buf(),
            file_system: mounts::kind(storage),
            options: self.own.as_ref().map(|own| own.config.options.clone()),
            loop_ns,
        }
    }

    /// Takes everything away again.
    pub(super) fn close(mut self) -> Result<()> {
        drop(self.crew.take());
        match self.own.take() {
            Some(own) => match own.lifeline.stop(false)? {
                None => Ok(()),
                Some(how) => bail!("the instance was lost while it was measured: {how}"),
            },
            None => fs::remove_dir_all(&self.root)
                .with_context(|| format!("cannot remove {}", self.root.display())),
        }
    }
}
