//! Being the job's user.
//!
//! A process of root's that is to do something for a user starts this program once more, which
//! gives up everything of root's first: groups, group, user, environment, working directory.

use std::{
    ffi::OsString,
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::stat::{Mode, umask},
    unistd::{Uid, User, chdir, geteuid, initgroups, setgid, setuid},
};

use crate::Site;

/// The hidden subcommand.
pub const BECOME: &str = "__site-as";
/// The hidden subcommand that removes what is in a directory.
pub const EMPTY: &str = "__site-empty";
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where a job's things are on a node.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) run: std::path::PathBuf,
    pub(crate) data: std::path::PathBuf,
}

impl Place {
    /// The parent of run directories, as [`RUN_ROOT`] says.
    pub(crate) fn run_root(&self) -> std::path::PathBuf {
        self.run.join("mayfly")
    }
}

/// Names the parent of run directories for every program of the job.
pub const RUN_ROOT: &str = "MAYFLY_RUN_ROOT";

/// The parent of the run directories of this user's job with that number; none for a job that has
/// no instance here.
#[must_use]
pub fn run_root(site: &Site, id: &str) -> Option<std::path::PathBuf> {
    let place = site.place(id);
    let is_ours = |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
    let is_there = fs::symlink_metadata(&place.run).is_ok_and(is_ours);
    is_there.then(|| place.run_root())
}

/// `mayfly ARGUMENTS` as that user, who finds the job's instance and nothing else of the
/// environment.
pub(crate) fn command(uid: u32, place: &Place) -> Result<Command> {
    let user = User::from_uid(Uid::from_raw(uid))?;
    let user = user.with_context(|| format!("no user has the number {uid}"))?;
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let mut command = Command::new(&program);
    command
        .args([BECOME.as_ref(), uid.to_string().as_ref(), program.as_os_str()])
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", &user.dir)
        .env("USER", &user.name)
        .env("LOGNAME", &user.name)
        .env("SHELL", &user.shell)
        .env("TMPDIR", &place.data)
        .env(RUN_ROOT, place.run_root())
        .stdin(Stdio::null())
        .current_dir("/");
    if let Some(slurm) = std::env::var_os("SLURM_CONF") {
        command.env("SLURM_CONF", slurm);
    }
    Ok(command)
}

/// Becomes the user, and is the command from then on.
///
/// # Errors
/// Only root becomes somebody else.
pub fn become_and_run(uid: u32, command: &[OsString]) -> Result<()> {
    let uid = Uid::from_raw(uid);
    let [program, arguments @ ..] = command else { bail!("no command") };
    if geteuid() != uid {
        ensure!(geteuid().is_root(), "only root runs something as another user");
        let user = User::from_uid(uid)?.with_context(|| format!("no user has the number {uid}"))?;
        let name = std::ffi::CString::new(user.name)?;
        initgroups(&name, user.gid).context("cannot take on the user's groups")?;
        setgid(user.gid).context("cannot take on the user's group")?;
        setuid(uid).context("cannot become the user")?;
    }
    umask(Mode::from_bits_truncate(0o077));
    chdir("/")?;
    Err(Command::new(program).args(arguments).exec()).context("cannot start the program")
}

/// Removes all that is in a directory, as its owner.
///
/// # Errors
/// Something cannot be removed.
pub fn empty(directory: &Path) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let is_directory = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        let removed = match is_directory {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        match removed {
            // What is ending may remove things too.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("cannot remove {}", path.display()))?,
        }
    }
    Ok(())
}
