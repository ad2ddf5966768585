//! An instance on disk: its directories, made, found and removed.
//!
//! [`config`] is what it was started with; [`places`] says where things are when nobody says where,
//! [`data_dirs`] in which directories a node keeps files, [`daemons`] how programs find those of
//! their host. [`mount_point`] puts the mount point and takes it away. [`layouts`] gets and sets
//! where bytes go. [`doctor`] finds what a crash has left, and says what to do about it.
//!
//! **Invariants.** An instance exists as long as its run directory does, and lives while the lock
//! in there is held. What is made here is removed here, also after a crash: no file stands outside
//! these directories but the mount point.
//!
//! No process is started here: that is [`crate::supervisor`].

mod attempt;
pub(crate) mod config;
pub(crate) mod daemons;
pub(crate) mod data_dirs;
pub mod doctor;
pub(crate) mod layouts;
pub(crate) mod mount_point;
pub(crate) mod origins;
pub(crate) mod places;

use std::{
    fs::{self, Permissions},
    io::{Read, Seek, SeekFrom, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_types::special::SPECIAL_DIRECTORY;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, linkat, open};
use serde::{Deserialize, Serialize};

use crate::log::LOG_NAME;
use attempt::Attempt;
use config::{Audience, Config, Options};
use data_dirs::DataDir;
use origins::Origin;

/// The preload library, built for the rules of a host process (`build.rs`).
static PRELOAD_LIBRARY: &[u8] = include_bytes!(env!("MAYFLY_PRELOAD_LIBRARY"));
/// Its name in the run directory.
pub(crate) const PRELOAD_NAME: &str = "libmayfly_preload.so";
/// What a live supervisor holds locked, in the run directory.
pub(crate) const LOCK_NAME: &str = "lock";
/// Tries to lock it, with a pause after each, while others look whether it is locked.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Last bytes of a log that are shown when a start fails.
const LOG_TAIL_BYTES: u64 = 2048;
/// The supervisor's socket in the run directory.
pub(crate) const SOCKET_NAME: &str = "sock";
/// Longest path of a unix socket, bytes (`sun_path`, with its terminating zero).
const SOCKET_PATH_BYTES_MAX: usize = 108;

/// What an instance is made from.
#[derive(Debug, Clone, Default)]
pub struct Instance {
    /// Name; `None`: a fresh one.
    pub name: Option<String>,
    /// Mount point; `None`: in the run directory.
    pub mount: Option<PathBuf>,
    /// Where the data go; none: the temporary directory. The first one has the rest too.
    pub data_dirs: Vec<DataDir>,
    /// Where the metadata store goes; `None`: with the data.
    pub meta_dir: Option<PathBuf>,
    /// Leave the data at the end.
    pub keep: bool,
    /// Whose programs there will be.
    pub audience: Audience,
    /// The rest.
    pub options: Options,
}

/// Whether an instance of a name is there.
#[derive(Debug)]
pub enum Found {
    /// Its supervisor lives.
    Running(Box<Config>),
    /// Something is there, and nobody holds it.
    Stale(PathBuf),
    /// Nothing.
    Absent,
}

/// The lock of a run directory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Locked(#[expect(dead_code, reason = "it is held, not used")] fs::File);

/// Takes the lock of a run directory; `None` when a live supervisor holds it.
pub(crate) fn lock(run_dir: &Path) -> Result<Option<Locked>> {
    let path = run_dir.join(LOCK_NAME);
    let file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(Locked(file))),
            // Perhaps by somebody who only looks.
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }
    Ok(None)
}

/// Does a live supervisor hold this run directory? Makes nothing there, since it may be about to
/// go, and keeps nobody else who looks from looking.
fn is_held(run_dir: &Path) -> Result<bool> {
    let path = run_dir.join(LOCK_NAME);
    let file = match fs::File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        file => file.with_context(|| format!("cannot open {}", path.display()))?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

impl Found {
    /// Looks for the instance `name`.
    ///
    /// # Errors
    /// When its run directory cannot be read.
    pub fn look(name: &str) -> Result<Found> {
        config::check_node_name(name)?;
        let run_dir = places::default_run_root().join(name);
        if !run_dir.exists() {
            return Ok(Found::Absent);
        }
        if !is_held(&run_dir)? {
            return Ok(Found::Stale(run_dir));
        }
        Config::load(&run_dir).map(|config| Found::Running(Box::new(config)))
    }
}

impl Instance {
    /// Makes the directories of a new instance.
    ///
    /// # Errors
    /// When the name is taken, the mount point is in use, a directory cannot be made, or the
    /// options contradict each other; what this attempt has made is gone again then, and nothing
    /// else.
    pub fn make(&self) -> Result<Config> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => format!("run-{}", std::process::id()),
        };
        config::check_name(&name)?;
        let config = self.prepare(&name, fresh_identity()?)?;
        let made = Attempt::at(&config, |attempt| {
            make_run_dir(&config, attempt)?;
            make_rest(&config, None, attempt)
        });
        made.map(|()| config)
    }

    /// The same for one node of an instance; nobody takes its directories for those of a dead one
    /// while the lock is held.
    pub(crate) fn make_node(
        &self,
        base: &str,
        instance: u64,
        (node, daemons): (u32, u32),
        serves_programs: bool,
        shared: Option<&Shared>,
    ) -> Result<(Config, Locked)> {
        let config = self.prepare(base, instance)?;
        let config = Config { node: Some(node), daemons, serves_programs, ..config };
        let made = Attempt::at(&config, |attempt| {
            make_run_dir(&config, attempt)?;
            let Some(lock) = lock(&config.run_dir)? else {
                bail!("another node of this name is starting; choose another --name");
            };
            make_rest(&config, shared, attempt)?;
            Ok(lock)
        });
        made.map(|lock| (config, lock))
    }

    /// Says where everything will be. Whatever can be refused is refused before anything is
    /// removed, which is what a dead instance of this name left.
    fn prepare(&self, name: &str, instance: u64) -> Result<Config> {
        let mut config = self.lay_out(name, instance)?;
        config.check()?;
        let stale = match Found::look(name)? {
            Found::Stale(run_dir) => Some(run_dir),
            Found::Running(running) => bail!(is_running(&running)),
            Found::Absent => None,
        };
        let dead = stale.as_deref().and_then(|run_dir| Config::load(run_dir).ok());
        if let Some(dead) = &dead {
            ensure!(!has_kept_data(dead), "{}", what_is_left(&dead.name, &dead.run_dir));
        }
        expect_nothing_there(&config, dead.as_ref())?;
        self.choose_mount(&mut config, dead.as_ref(), || {
            stale.as_deref().map_or(Ok(()), clear_stale)
        })?;
        Ok(config)
    }

    /// Chooses the mount point, and has `clear` remove what a dead instance left. That may be in
    /// the place of the mount point; otherwise a mount point that cannot be is refused before.
    fn choose_mount(
        &self,
        config: &mut Config,
        dead: Option<&Config>,
        clear: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let wanted = self.mount.as_deref().map(absolute).transpose()?;
        if wanted.is_none() || dead.map(|dead| &dead.mount) != wanted.as_ref() {
            self.mount_point(&config.run_dir)?;
        }
        clear()?;
        (config.mount, config.mount_made) = self.mount_point(&config.run_dir)?;
        Ok(())
    }

    fn lay_out(&self, name: &str, instance: u64) -> Result<Config> {
        let run_dir = absolute(&places::default_run_root().join(name))?;
        let socket = run_dir.join(SOCKET_NAME);
        ensure!(
            socket.as_os_str().len() < SOCKET_PATH_BYTES_MAX,
            "{} is too long for a unix socket; choose a shorter --name, or set XDG_RUNTIME_DIR",
            socket.display()
        );
        let (data_dir, data_class, further) = self.data_places(name)?;
        let origins = self.options.origins.iter().map(Origin::absolute).collect::<Result<_>>()?;
        let meta_dir = match &self.meta_dir {
            Some(dir) => {
                absolute(dir)?.join(format!("mayfly-{}-{name}", places::uid())).join("meta")
            }
            None => data_dir.join("meta"),
        };
        Ok(Config {
            version: config::VERSION,
            name: name.to_owned(),
            instance,
            node: None,
            serves_programs: true,
            daemons: 1,
            // Until it is chosen.
            mount: run_dir.join("mnt"),
            mount_made: true,
            object_dir: data_dir.join("objects"),
            data_dir,
            data_class,
            further,
            meta_dir,
            image_dir: places::image_cache(),
            keep: self.keep,
            audience: self.audience,
            mount_by: mayfly_fuse::choice(),
            options: Options { origins, ..self.options.clone() },
            run_dir,
        })
    }

    /// The instance's own directories: the first, its class, and the others.
    fn data_places(&self, name: &str) -> Result<(PathBuf, Option<String>, Vec<DataDir>)> {
        let usual = || vec![DataDir { class: None, path: std::env::temp_dir() }];
        let chosen = if self.data_dirs.is_empty() { usual() } else { self.data_dirs.clone() };
        let chosen = chosen.iter().map(DataDir::absolute).collect::<Result<Vec<_>>>()?;
        let paths: Vec<PathBuf> = chosen.iter().map(|dir| dir.path.clone()).collect();
        data_dirs::check(&paths)?;
        let mut own =
            chosen.into_iter().map(|dir| DataDir { path: dir.of_instance(name), class: dir.class });
        let first = own.next().context("there is one at least")?;
        Ok((first.path, first.class, own.collect()))
    }

    fn mount_point(&self, run_dir: &Path) -> Result<(PathBuf, bool)> {
        match &self.mount {
            Some(mount) => mount_point::choose(mount),
            None => Ok((run_dir.join("mnt"), true)),
        }
    }
}

/// The last lines of the log in a run directory.
pub(crate) fn log_tail(run_dir: &Path) -> String {
    let tail = || -> std::io::Result<String> {
        let mut log = fs::File::open(run_dir.join(LOG_NAME))?;
        let skipped = log.metadata()?.len().saturating_sub(LOG_TAIL_BYTES);
        log.seek(SeekFrom::Start(skipped))?;
        let mut bytes = Vec::new();
        log.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    tail().unwrap_or_default()
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    // Resolve what exists, so that the mount point has one name.
    let existing = absolute.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    let rest = absolute.strip_prefix(existing).unwrap_or(Path::new(""));
    // By components: without a slash at the end.
    Ok(fs::canonicalize(existing)?.join(rest).components().collect())
}

pub(crate) fn fresh_identity() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes) | 1)
}

fn is_running(config: &Config) -> String {
    let (name, mount) = (&config.name, config.mount.display());
    format!(
        "an instance {name:?} is running at {mount}; choose another --name, or `mayfly stop --name \
         {name}`"
    )
}

fn make_run_dir(config: &Config, attempt: &mut Attempt) -> Result<()> {
    if let Found::Running(running) = Found::look(&config.name)? {
        bail!(is_running(&running));
    }
    places::make_private(config.run_dir.parent().context("a run directory has a parent")?)?;
    attempt.directory(&config.run_dir)
}

/// Refuses to make an instance where something is already: only what `dead` is about to be relieved
/// of may be.
fn expect_nothing_there(config: &Config, dead: Option<&Config>) -> Result<()> {
    let going = dead.filter(|dead| owns_its_data(dead)).map_or_else(Vec::new, Config::own_dirs);
    let in_the_way = |dir: &&Path| dir.exists() && !going.contains(dir);
    let Some(dir) = config.own_dirs().into_iter().find(in_the_way) else { return Ok(()) };
    let shown = dir.display();
    ensure!(
        Config::load(dir).is_err(),
        "{shown} is there already; take it up with `mayfly start --reopen {shown}`, or remove it"
    );
    bail!(
        "{shown} is there already, and may be part of an instance that was kept: choose another \
         --name, or remove it"
    )
}

/// Is what the data directory of a dead instance has still that instance's? Another one may have
/// taken it up (`--reopen`), under another name.
fn owns_its_data(dead: &Config) -> bool {
    // Without a configuration it was being removed.
    Config::load(&dead.data_dir).map_or(true, |stored| stored.run_dir == dead.run_dir)
}

fn has_kept_data(dead: &Config) -> bool {
    (dead.keep || dead.options.may_be_dirty()) && dead.data_dir.exists() && owns_its_data(dead)
}

/// Is this what a node of the instance `instance` left that is dead?
pub(crate) fn is_left_of(instance: u64, run_dir: &Path) -> bool {
    match Config::load(run_dir) {
        Ok(config) => config.instance == instance,
        // One that was killed while it made its directories has locked this one first of all.
        Err(_) => !Config::is_in(run_dir) && run_dir.join(LOCK_NAME).exists(),
    }
}

/// What somebody reads who asks for an instance that is dead.
#[must_use]
pub fn what_is_left(name: &str, run_dir: &Path) -> String {
    format!("the instance {name:?} is dead: {}", what_to_do(name, run_dir))
}

/// The name of an instance, from that of a node: one that shares its host with another one is
/// called `name@3`.
#[must_use]
pub fn whole_name(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// What it left, and what to do about that. Data that were to be kept are the user's to decide
/// about.
#[must_use]
pub fn what_to_do(name: &str, run_dir: &Path) -> String {
    let kept = Config::load(run_dir).ok().filter(has_kept_data);
    let (run_dir, name) = (run_dir.display(), whole_name(name));
    match kept.map(|config| config.data_dir) {
        Some(data) => format!(
            "its data were to be kept, and `mayfly start --reopen {}` takes them up; to give them \
             up, remove that directory and {run_dir}",
            data.display(),
        ),
        None => format!(
            "it left {run_dir}; `mayfly start --name {name}` starts a new one in its place, and \
             `mayfly doctor --clean` removes it"
        ),
    }
}

/// Removes what a dead instance of the same name left. Its data are removed too, unless another
/// instance has taken them up, or they were to be kept: then the name stays taken until the user
/// has decided.
pub(crate) fn clear_stale(run_dir: &Path) -> Result<()> {
    if let Ok(config) = Config::load(run_dir) {
        ensure!(!has_kept_data(&config), "{}", what_is_left(&config.name, run_dir));
        eprintln!("mayfly: removing what a dead instance {:?} left", config.name);
        remove(&config, if owns_its_data(&config) { Keep::Nothing } else { Keep::Data });
    }
    match fs::remove_dir_all(run_dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the stale {}", run_dir.display()))
        }
        _ => Ok(()),
    }
}

fn make_rest(config: &Config, shared: Option<&Shared>, attempt: &mut Attempt) -> Result<()> {
    for dir in config.own_dirs() {
        attempt.directory(dir)?;
    }
    for dir in [&config.meta_dir, &config.object_dir] {
        places::make_private(dir)?;
    }
    data_dirs::deal_out(config)?;
    config.store(&config.data_dir)?;
    make_ready(config, shared, attempt)
}

impl Instance {
    /// Takes up the data of an instance that was kept; name and mount point may be new.
    ///
    /// # Errors
    /// When there is no such instance, it is running, or its directories cannot be made.
    pub fn reopen(&self, data_dir: &Path) -> Result<Config> {
        let stored = Config::load(&absolute(data_dir)?)?;
        expect_unused(&stored)?;
        let mut config = stored;
        config.keep = true;
        if let Some(name) = &self.name {
            config.name.clone_from(name);
            config.run_dir = absolute(&places::default_run_root().join(name))?;
        }
        config::check_name(&config.name)?;
        config.audience = self.audience;
        config.mount_by = mayfly_fuse::choice();
        config.options.access.clone_from(&self.options.access);
        config.options.consistency.clone_from(&self.options.consistency);
        config.options.slow_ms = self.options.slow_ms;
        config.image_dir = places::image_cache();
        config.check()?;
        let stale = match Found::look(&config.name)? {
            Found::Stale(run_dir) => Some(run_dir),
            Found::Running(running) => bail!(is_running(&running)),
            Found::Absent => None,
        };
        let dead = stale.as_deref().and_then(|run_dir| Config::load(run_dir).ok());
        let data_dir = config.data_dir.clone();
        self.choose_mount(&mut config, dead.as_ref(), || match (&stale, &dead) {
            (None, _) => Ok(()),
            // All but the data, which are taken up.
            (Some(_), Some(dead)) if dead.data_dir == data_dir => {
                let left = remove(dead, Keep::Data);
                ensure!(left.is_empty(), "cannot be removed: {}", left.join(", "));
                Ok(())
            }
            (Some(run_dir), _) => clear_stale(run_dir),
        })?;
        let made = Attempt::at(&config, |attempt| {
            make_run_dir(&config, attempt)?;
            make_ready(&config, None, attempt)?;
            // Last: from then on they are the data of this run directory.
            config.store(&config.data_dir)
        });
        made.map(|()| config)
    }
}

/// Refuses data with which an instance runs.
fn expect_unused(stored: &Config) -> Result<()> {
    let running = is_held(&stored.run_dir)?.then(|| Config::load(&stored.run_dir)).transpose()?;
    if let Some(running) = running.filter(|running| running.data_dir == stored.data_dir) {
        let (data, name) = (stored.data_dir.display(), running.name);
        bail!("the instance {name:?} runs with {data}: end it by `mayfly stop --name {name}`");
    }
    Ok(())
}

/// What nodes on one machine need not make for each of them. Prepared images are the other part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    /// The preload library: a descriptor of another process, to be linked to.
    library: PathBuf,
}

impl Shared {
    /// Makes it, as a file without a name, which goes with the descriptor. `None` where that cannot
    /// be: each node makes its own then.
    pub(crate) fn make() -> Option<(Shared, fs::File)> {
        let root = places::default_run_root();
        places::make_private(&root).ok()?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut written = fs::File::from(open(&root, flags, Mode::from(0o700)).ok()?);
        written.write_all(PRELOAD_LIBRARY).ok()?;
        // Nobody can execute what somebody has open for writing.
        let file = fs::File::open(format!("/proc/self/fd/{}", written.as_raw_fd())).ok()?;
        prepare_images(&places::image_cache());
        let library = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Some((Shared { library: library.into() }, file))
    }

    fn link(&self, name: &Path) -> bool {
        linkat(CWD, &self.library, CWD, name, AtFlags::SYMLINK_FOLLOW).is_ok()
    }
}

fn prepare_images(cache: &Path) {
    for path in mayfly_image::maker::libraries_of_this_process() {
        if let Err(error) = mayfly_image::maker::prepare(&path, cache) {
            eprintln!("mayfly: programs that run with {} are not served: {error}", path.display());
        }
    }
}

fn make_ready(config: &Config, shared: Option<&Shared>, attempt: &mut Attempt) -> Result<()> {
    places::make_private(&config.run_dir.join("ofd"))?;
    places::make_private(&config.run_dir.join(SPECIAL_DIRECTORY))?;
    if !config.serves_programs {
        return config.store(&config.run_dir);
    }
    let library = config.run_dir.join(PRELOAD_NAME);
    let shared = shared.is_some_and(|shared| shared.link(&library));
    if !shared {
        fs::write(&library, PRELOAD_LIBRARY)
            .and_then(|()| fs::set_permissions(&library, Permissions::from_mode(0o700)))
            .with_context(|| format!("cannot write {}", library.display()))?;
        prepare_images(&config.image_dir);
    }
    attempt.mount_point(config)?;
    config.store(&config.run_dir)
}

/// What [`remove`] leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing.
    Nothing,
    /// The data directory.
    Data,
}

/// Removes the directories of an instance whose processes are gone; goes on after errors.
pub(crate) fn remove(config: &Config, keep: Keep) -> Vec<String> {
    let mut left = Vec::new();
    let mut gone = |path: &Path, result: std::io::Result<()>| match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            left.push(format!("{}: {error}", path.display()));
        }
        _ => {}
    };
    if config.serves_programs {
        gone(&config.mount, mount_point::take_away(config));
    }
    if keep == Keep::Nothing {
        gone(&config.data_dir, fs::remove_dir_all(&config.data_dir));
        gone(&config.meta_dir, fs::remove_dir_all(&config.meta_dir));
        data_dirs::remove(config, &mut gone);
        if let Some(parent) = config.meta_dir.parent().filter(|dir| dir.exists()) {
            gone(parent, fs::remove_dir(parent));
        }
    }
    gone(&config.run_dir, fs::remove_dir_all(&config.run_dir));
    // The root of the run directories goes with its last instance; others may be in it.
    if let Some(root) = config.run_dir.parent() {
        let _ = fs::remove_dir(root);
    }
    left
}
