//! What an instance was started with. Kept in its run directory and in its data directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use mayfly_daemon::{Directories, LayoutWords, Pool};
use mayfly_fuse::{Consistency, Way};
use mayfly_types::{
    Durability, Times,
    limits::{
        self, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, DEADLINE_SECONDS_MAX, DEADLINE_SECONDS_MIN,
        SHARDS_MAX,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    data_dirs::DataDir,
    origins::{self, Origin, WriteBack},
    places,
};
use crate::processes::processors;

/// File name of the configuration, in the run directory and in the data directory.
pub(super) const FILE: &str = "instance.json";
/// Version of the configuration file that this program writes and reads.
pub(super) const VERSION: u32 = 1;
/// Below this the metadata store's own reserve leaves nothing to the user.
const CAPACITY_BYTES_MIN: u64 = 64 << 20;
const NAME_BYTES_MAX: usize = 64;
/// Requests that take longer are told. To look for them costs nothing that can be measured.
const SLOW_MS_DEFAULT: u64 = 1000;
/// The shortest that can be chosen. Below it are the pauses of a machine that has other work too.
pub const SLOW_MS_MIN: u64 = 10;
/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// What the user chose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Chunk size, bytes.
    pub chunk_bytes: u64,
    /// Objects and metadata together may use this much, bytes; `None`: what the file system has.
    pub capacity_bytes: Option<u64>,
    /// `none`, `mtime` or `all`.
    pub times: String,
    /// False allows daemons not to ask whether a directory still exists before a name is made in
    /// it. Where asking costs nothing they check all the same: on one node, always.
    pub parent_check: bool,
    /// Serve locks; otherwise answer ENOLCK.
    pub locks: bool,
    /// `none`, `process` or `sync`.
    pub durability: String,
    /// `preload`, `fuse`, `both` or `auto`.
    #[serde(default = "preload")]
    pub access: String,
    /// What holds across the mount and the library: `strict` or `session`.
    #[serde(default = "strict")]
    pub consistency: String,
    /// Where the names of directories are: `whole` or `spread`. The data directory fixes it.
    #[serde(default = "whole")]
    pub names: String,
    /// Shards of the daemon. The data directory fixes it.
    #[serde(default = "one")]
    pub shards: u32,
    /// Processors on which the daemon runs, as a list like `0-3,8`; `None`: all.
    #[serde(default)]
    pub cpus: Option<String>,
    /// Threads of each shard that wait for the disk.
    #[serde(default = "io_threads")]
    pub io_threads: u32,
    /// Threads that talk to other nodes; `None`: by the processors.
    #[serde(default)]
    pub network_threads: Option<u32>,
    /// How long a request waits for whoever has to answer it, seconds.
    #[serde(default = "usual_deadline")]
    pub deadline_seconds: u64,
    /// Requests that take longer are told in the log, milliseconds; 0: none.
    #[serde(default = "usual_slow")]
    pub slow_ms: u64,
    /// `home`, `local`, or `stripe`, `hash`, `pool:NAME` with a width or without, as in `stripe:4`.
    #[serde(default = "home")]
    pub layout: String,
    /// Nodes that directories may choose, under names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Directories outside that it shows. The data directory fixes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Origin>,
    /// How long what was seen there is believed: `always`, `never`, or a time.
    #[serde(default = "usual_validity")]
    pub validate: String,
    /// When what was changed there goes back by itself.
    #[serde(default)]
    pub write_back: WriteBack,
}

/// Most threads of a shard that wait for the disk.
const IO_THREADS_MAX: u32 = 64;

fn io_threads() -> u32 {
    2
}

/// The same of where bytes are.
fn home() -> String {
    "home".to_owned()
}

/// What an instance has that was started before there was a choice.
fn one() -> u32 {
    1
}

/// The same of nodes that no program can use.
fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_true(what: &bool) -> bool {
    *what
}

/// The deadline that such an instance has.
fn usual_deadline() -> u64 {
    limits::DEADLINE_MS_DEFAULT / 1000
}

fn usual_validity() -> String {
    origins::VALID.to_owned()
}

fn usual_slow() -> u64 {
    SLOW_MS_DEFAULT
}

fn whole() -> String {
    "whole".to_owned()
}

fn strict() -> String {
    "strict".to_owned()
}

/// The way in of an instance from before there was a choice.
fn preload() -> String {
    "preload".to_owned()
}

/// How programs reach an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Through the preload library.
    Preload,
    /// Through a mount.
    Fuse,
    /// Through the library, and who cannot have it through the mount.
    Both,
    /// [`Access::Both`] where there can be a mount, otherwise [`Access::Preload`].
    Auto,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            chunk_bytes: limits::CHUNK_BYTES_DEFAULT,
            capacity_bytes: None,
            times: "mtime".to_owned(),
            parent_check: true,
            locks: true,
            durability: "process".to_owned(),
            access: "auto".to_owned(),
            consistency: strict(),
            names: whole(),
            shards: 1,
            cpus: None,
            io_threads: io_threads(),
            network_threads: None,
            deadline_seconds: usual_deadline(),
            slow_ms: usual_slow(),
            layout: home(),
            pools: Vec::new(),
            origins: Vec::new(),
            validate: usual_validity(),
            write_back: WriteBack::default(),
        }
    }
}

impl Options {
    /// Which time stamps are kept.
    ///
    /// # Errors
    /// For a word that is none of the three.
    pub fn times(&self) -> Result<Times> {
        Ok(match self.times.as_str() {
            "none" => Times::None,
            "mtime" => Times::Mtime,
            "all" => Times::All,
            other => bail!("--times {other}: choose none, mtime or all"),
        })
    }

    /// Where the names of new directories are.
    ///
    /// # Errors
    /// For a word that is none of the two.
    pub fn names(&self) -> Result<Directories> {
        Ok(match self.names.as_str() {
            "whole" => Directories::Whole,
            "spread" => Directories::Spread,
            other => bail!("--names {other}: choose whole or spread"),
        })
    }

    /// What survives what.
    ///
    /// # Errors
    /// For a word that is none of the three.
    pub fn durability(&self) -> Result<Durability> {
        Ok(match self.durability.as_str() {
            "none" => Durability::None,
            "process" => Durability::Process,
            "sync" => Durability::Sync,
            other => bail!("--durability {other}: choose none, process or sync"),
        })
    }

    /// How programs reach the instance.
    ///
    /// # Errors
    /// For a word that is none of the four.
    pub fn access(&self) -> Result<Access> {
        Ok(match self.access.as_str() {
            "preload" => Access::Preload,
            "fuse" => Access::Fuse,
            "both" => Access::Both,
            "auto" => Access::Auto,
            other => bail!("--access {other}: choose preload, fuse, both or auto"),
        })
    }

    /// The deadline of a request, milliseconds.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_seconds * 1000
    }

    /// How much the kernel may remember of the instance's files.
    ///
    /// # Errors
    /// For a word that is none of the two.
    pub fn consistency(&self) -> Result<Consistency> {
        Ok(match self.consistency.as_str() {
            "strict" => Consistency::Strict,
            "session" => Consistency::Session,
            other => bail!("--consistency {other}: choose strict or session"),
        })
    }

    /// Where the bytes of files are, in directories of which nothing else is said.
    ///
    /// # Errors
    /// For words that are none of these.
    pub fn placement(&self) -> Result<LayoutWords> {
        let layout: Result<LayoutWords, _> = self.layout.parse();
        let layout = layout.map_err(|why| anyhow!("--layout {}: {why}", self.layout))?;
        ensure!(layout.chunk_bytes.is_none(), "--layout {}: say --chunk-size", self.layout);
        let there = layout.number_of_pool(&self.pools).is_some();
        ensure!(there, "--layout {}: there is no such --pool", self.layout);
        Ok(layout)
    }

    /// How long what was seen in origins is believed, milliseconds; `None`: for ever.
    ///
    /// # Errors
    /// For what is no time.
    pub fn valid_ms(&self) -> Result<Option<u64>> {
        origins::valid_ms(&self.validate)
    }

    /// Whether there may be something that has to be written back.
    #[must_use]
    pub fn may_be_dirty(&self) -> bool {
        self.origins.iter().any(|origin| !origin.read_only)
    }

    /// Refuses origins where they cannot be.
    fn check_origins(&self, mount: &Path) -> Result<()> {
        self.valid_ms()?;
        self.write_back.when()?;
        if self.origins.is_empty() {
            return Ok(());
        }
        origins::check_instance(self.durability()?, self.names()?)?;
        origins::check(&self.origins, mount)
    }

    fn check(&self) -> Result<()> {
        self.placement()?;
        self.access()?;
        self.consistency()?;
        self.names()?;
        self.times()?;
        self.durability()?;
        let chunk = self.chunk_bytes;
        ensure!(
            chunk.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk),
            "--chunk-size {chunk}: choose a power of two from 64K to 1G"
        );
        ensure!(
            (1..=SHARDS_MAX).contains(&self.shards),
            "--shards {}: choose 1 to {SHARDS_MAX}",
            self.shards
        );
        ensure!(
            (1..=IO_THREADS_MAX).contains(&self.io_threads),
            "--io-threads {}: choose 1 to {IO_THREADS_MAX}",
            self.io_threads
        );
        ensure!(
            (DEADLINE_SECONDS_MIN..=DEADLINE_SECONDS_MAX).contains(&self.deadline_seconds),
            "--deadline {}: choose {DEADLINE_SECONDS_MIN} to {DEADLINE_SECONDS_MAX} s",
            self.deadline_seconds
        );
        if let Some(capacity) = self.capacity_bytes {
            ensure!(
                capacity >= CAPACITY_BYTES_MIN,
                "--capacity {capacity}: at least 64M are needed"
            );
        }
        Ok(())
    }
}

/// Who is to reach an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audience {
    /// Whoever runs on the machine.
    #[default]
    Everybody,
    /// The command of `mayfly run`.
    Command,
}

impl From<Audience> for mayfly_fuse::Audience {
    fn from(audience: Audience) -> Self {
        match audience {
            Audience::Everybody => mayfly_fuse::Audience::Everybody,
            Audience::Command => mayfly_fuse::Audience::Command,
        }
    }
}

/// An instance's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Version of this file's form.
    pub version: u32,
    /// The user's name for the instance.
    pub name: String,
    /// Its identity.
    pub instance: u64,
    /// This node's number, in an instance of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Daemons that this host has for its programs ([`super::daemons`]).
    #[serde(default = "one")]
    pub daemons: u32,
    /// Whether programs of this host can use it: then there are a mount point and a library.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub serves_programs: bool,
    /// Run directory.
    pub run_dir: PathBuf,
    /// Mount point, without symbolic links.
    pub mount: PathBuf,
    /// True when the mount point was made for the instance and goes with it.
    pub mount_made: bool,
    /// This instance's own directory below `--data-dir`.
    pub data_dir: PathBuf,
    /// Its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_class: Option<String>,
    /// The same below further `--data-dir`s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<DataDir>,
    /// Directory of the metadata store.
    pub meta_dir: PathBuf,
    /// Directory of the objects.
    pub object_dir: PathBuf,
    /// Prepared images.
    pub image_dir: PathBuf,
    /// Leave the data directory at the end.
    pub keep: bool,
    /// Whose programs there will be.
    #[serde(default)]
    pub audience: Audience,
    /// The way to mount that was chosen when it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_by: Option<String>,
    /// The rest.
    pub options: Options,
}

impl Config {
    /// Reads the configuration in `dir`.
    ///
    /// # Errors
    /// Names the file that cannot be read or understood.
    pub fn load(dir: &Path) -> Result<Config> {
        let path = dir.join(FILE);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let config: Config = serde_json::from_str(&text)
            .with_context(|| format!("{} is not an instance's configuration", path.display()))?;
        ensure!(
            config.version == VERSION,
            "{} was written by another version of mayfly",
            path.display()
        );
        Ok(config)
    }

    /// Whether there is one in `dir`, whatever it says.
    pub(crate) fn is_in(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// The directories of the instance's own outside its run directory; none is in another. Nothing
    /// of anybody else is in them.
    pub(crate) fn own_dirs(&self) -> Vec<&Path> {
        let further = self.further.iter().map(|dir| dir.path.as_path());
        let mut dirs: Vec<&Path> =
            std::iter::once(self.data_dir.as_path()).chain(further).collect();
        let meta = self.meta_dir.parent().unwrap_or(&self.meta_dir);
        if !dirs.iter().any(|dir| meta.starts_with(dir)) {
            dirs.push(meta);
        }
        dirs
    }

    /// Writes the configuration to `dir`, all or nothing.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn store(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE);
        let fresh = dir.join("instance.json.new");
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&fresh, text)
            .and_then(|()| std::fs::rename(&fresh, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Directory of the metadata of one shard.
    pub(crate) fn meta_dir_of(&self, shard: u32) -> PathBuf {
        match self.options.shards {
            1 => self.meta_dir.clone(),
            _ => self.meta_dir.join(format!("shard-{shard}")),
        }
    }

    /// How the instance is to be mounted at its mount point; `None`: not at all.
    ///
    /// # Errors
    /// Says why it cannot be, where that was asked for.
    pub(crate) fn way(&self) -> Result<Option<Way>> {
        if !self.serves_programs {
            return Ok(None);
        }
        let way = || mayfly_fuse::way(self.audience.into(), self.mount_by.as_deref());
        Ok(match self.options.access()? {
            Access::Preload => None,
            Access::Auto => way().ok(),
            Access::Fuse | Access::Both => Some(way()?),
        })
    }

    /// Refuses what cannot be or contradicts itself.
    ///
    /// # Errors
    /// Says which options do not go together and what to choose instead.
    pub fn check(&self) -> Result<()> {
        self.options.check()?;
        self.options.check_origins(&self.mount)?;
        self.options.cpus.as_deref().map(processors::of_list).transpose()?;
        self.way()?;
        let durability = self.options.durability()?;
        if self.keep && durability == Durability::None {
            bail!(
                "--keep and --durability none contradict each other: nothing of such an instance \
                 outlives its daemon. Choose --durability process, or drop --keep"
            );
        }
        if durability == Durability::Sync {
            let further = self.further.iter().map(|dir| &dir.path);
            for dir in [&self.data_dir, &self.meta_dir].into_iter().chain(further) {
                refuse_memory(dir)?;
            }
        }
        Ok(())
    }
}

/// What was fsynced cannot survive a power loss in memory.
fn refuse_memory(dir: &Path) -> Result<()> {
    let parent = places::existing(dir);
    let kind = rustix::fs::statfs(parent)?.f_type;
    ensure!(
        kind != TMPFS_MAGIC,
        "--durability sync cannot hold in {}: it is memory (tmpfs). Choose --data-dir on a disk, \
         or --durability process",
        parent.display()
    );
    Ok(())
}

/// Names become file names and part of a socket's path.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    ensure!(
        !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && name.bytes().all(fine),
        "--name {name:?}: use up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
    );
    Ok(())
}

/// The same for a node that shares its host with another one of its instance: `name@3`.
pub(crate) fn check_node_name(name: &str) -> Result<()> {
    match name.rsplit_once('@') {
        Some((name, node)) if node.parse::<u32>().is_ok() => check_name(name),
        _ => check_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_leave_its_directory_is_refused() {
        for bad in ["", "..", "a/b", ".hidden", "new\nline", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("job-17.a_b").is_ok());
        assert!(check_name("job@3").is_err());
    }

    #[test]
    fn a_node_has_its_number_behind_the_name() {
        assert!(check_node_name("job@3").is_ok());
        for bad in ["job@", "@3", "job@x", "job@3@4", "../job@3"] {
            assert!(check_node_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_chunk_size_that_is_no_power_of_two_is_refused() {
        let options = Options { chunk_bytes: 100_000, ..Options::default() };
        assert!(options.check().is_err());
    }

    #[test]
    fn an_instance_from_before_the_choice_has_one_shard() {
        let mut text = serde_json::to_value(Options::default()).expect("it is plain data");
        text.as_object_mut().expect("a struct").remove("shards");
        let options: Options = serde_json::from_value(text).expect("the rest is there");
        assert_eq!(options, Options::default());
    }

    #[test]
    fn a_number_of_shards_out_of_bounds_is_refused() {
        for shards in [0, SHARDS_MAX + 1] {
            assert!(Options { shards, ..Options::default() }.check().is_err());
        }
    }

    #[test]
    fn a_deadline_out_of_bounds_is_refused() {
        for deadline_seconds in [0, DEADLINE_SECONDS_MIN - 1, DEADLINE_SECONDS_MAX + 1, u64::MAX] {
            assert!(Options { deadline_seconds, ..Options::default() }.check().is_err());
        }
    }

    #[test]
    fn options_written_in_words_are_understood_or_refused() {
        let options = Options { times: "some".to_owned(), ..Options::default() };
        assert!(options.check().is_err());
        assert_eq!(Options::default().times().expect("the default is a word"), Times::Mtime);
        let options = Options { names: "wide".to_owned(), ..Options::default() };
        assert!(options.check().is_err());
        assert_eq!(Options::default().names().expect("the default is a word"), Directories::Whole);
    }
}
