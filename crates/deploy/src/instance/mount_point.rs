//! The mount point: a symbolic link to itself, or a directory with the instance mounted on it.
//!
//! Without a mount of the kernel's it is the link.
//! Whoever walks through it without the preload library gets ELOOP, root too, and can leave nothing
//! below it. For programs that are served, the error is so rare among others' failures that a link
//! of the kernel's into the mount is recognised by it at no price for names that just do not exist.
//!
//! With a mount, what lies beneath it is a directory of our own that nobody can write into
//! ([`Beneath`]).
//!
//! An empty directory that the user named as mount point is set aside, beside it, and put
//! back at the end. Where there can be no link, the directory stays what it is, or is made with
//! mode 0500.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::{Found, places};
use crate::{Config, instance, log};

/// The mount point for `mount`, without links of others on its way, and whether it goes with the
/// instance.
pub(super) fn choose(mount: &Path) -> Result<(PathBuf, bool)> {
    let mount = instance::absolute(mount)?;
    let is_loop = is_loop(&mount);
    let is_mine = !is_loop || fs::symlink_metadata(&mount)?.uid() == places::uid();
    ensure!(
        is_mine && user_of(&mount, None).is_none(),
        "the mount point {} is that of another instance",
        mount.display()
    );
    if is_loop {
        // Left by an instance that died.
        let made = !aside(&mount).is_dir();
        return Ok((mount, made));
    }
    match fs::read_dir(&mount) {
        Ok(mut entries) => {
            ensure!(
                entries.next().is_none(),
                "the mount point {} is not empty; choose an empty or a new directory",
                mount.display()
            );
            Ok((mount, false))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((mount, true)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("the mount point {} is not a directory", mount.display())
        }
        Err(error) => {
            Err(error).with_context(|| format!("cannot use the mount point {}", mount.display()))
        }
    }
}

/// Puts what belongs there where the mount point is to be: the link, or a directory to mount on.
/// When it fails, everything is as before.
pub(super) fn put(config: &Config) -> Result<()> {
    if config.way()?.is_some() {
        return put_directory(config);
    }
    if is_loop(&config.mount) {
        return Ok(());
    }
    if !config.mount_made {
        replace_directory(&config.mount);
        return Ok(());
    }
    let cannot = || format!("cannot make the mount point {}", config.mount.display());
    make_parent(&config.mount).with_context(cannot)?;
    if symlink(&config.mount, &config.mount).is_ok() {
        return Ok(());
    }
    fs::DirBuilder::new().mode(0o500).create(&config.mount).with_context(cannot)
}

/// A directory of our own to mount on, so that it can be made unwritable ([`Beneath`]); one of the
/// user's is set aside. Where it cannot be, because it is a mount point of the kernel's or its
/// parent is somebody else's, the mount covers that one.
fn put_directory(config: &Config) -> Result<()> {
    let mount = &config.mount;
    if is_loop(mount) {
        take_link_away(config)?;
    }
    let cannot = || format!("cannot make the mount point {}", mount.display());
    if config.mount_made {
        make_parent(mount).with_context(cannot)?;
    } else if fs::rename(mount, aside(mount)).is_err() {
        return Ok(());
    }
    // Whoever mounts as an ordinary user must be able to write there; nobody else sees it yet.
    let made = fs::DirBuilder::new().mode(0o700).create(mount);
    if made.is_err() && !config.mount_made {
        let _ = fs::rename(aside(mount), mount);
    }
    made.with_context(cannot)
}

fn make_parent(mount: &Path) -> io::Result<()> {
    let Some(parent) = mount.parent() else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)
}

/// The directory that a mount covers. Where the mount is not seen (a bind without it into a
/// container, another mount namespace), or has died, whoever writes to the mount point meets this
/// directory, and what is written there is in no instance.
pub(crate) struct Beneath(fs::File);

impl Beneath {
    /// The directory of an instance's own mount point, before it is covered; none when it is the
    /// user's.
    pub(crate) fn open(config: &Config) -> Option<Beneath> {
        fs::File::open(&config.mount).ok().filter(|_| is_ours(config)).map(Beneath)
    }

    /// Has every attempt to write there fail from now on: by its mode, and for root, where the file
    /// system and root's rights allow it, by the flag that says that it never changes.
    pub(crate) fn seal(&self) -> io::Result<()> {
        self.0.set_permissions(fs::Permissions::from_mode(0o500))?;
        if rustix::process::geteuid().is_root() {
            let flags = ioctl_getflags(&self.0).map(|flags| flags | IFlags::IMMUTABLE);
            // In a container's root it is not to be had; the mode stays.
            let _ = flags.and_then(|flags| ioctl_setflags(&self.0, flags));
        }
        Ok(())
    }
}

/// Lets the directory go that was covered.
fn unseal(mount: &Path) {
    // An ordinary user's has no flags, and root can open it whatever its mode is.
    if let Ok(directory) = fs::File::open(mount) {
        let flags = ioctl_getflags(&directory).map(|flags| flags - IFlags::IMMUTABLE);
        let _ = flags.and_then(|flags| ioctl_setflags(&directory, flags));
    }
}

/// Was the directory at the mount point made for the instance?
fn is_ours(config: &Config) -> bool {
    config.mount_made || aside(&config.mount).is_dir()
}

/// Removes the directory that was mounted on.
fn remove_directory(mount: &Path) -> io::Result<()> {
    unseal(mount);
    match fs::remove_dir(mount) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Err(io::Error::other(
            "has entries that somebody made beneath the mount, where it was not seen; they are in \
             no instance: take what you need and remove the directory",
        )),
        other => other,
    }
}

/// The instance is not mounted there any more, or could not be: puts the link where the directory
/// was, so that nobody writes into that.
pub(crate) fn close(config: &Config) {
    let mount = &config.mount;
    if !is_ours(config) {
        replace_directory(mount);
    } else if remove_directory(mount).is_ok() && symlink(mount, mount).is_err() {
        // It is made again where there can be no link; in the way of nobody otherwise.
        let _ = fs::DirBuilder::new().mode(0o500).create(mount);
    }
}

/// Undoes what a dead instance left of its link.
fn take_link_away(config: &Config) -> Result<()> {
    let mount = &config.mount;
    let cannot = || format!("cannot take away the link {}", mount.display());
    fs::remove_file(mount).with_context(cannot)?;
    if !config.mount_made {
        fs::rename(aside(mount), mount).with_context(cannot)?;
    }
    Ok(())
}

/// Where it cannot be replaced, because it is a mount point of the kernel's or its parent is
/// somebody else's, the empty directory stays.
fn replace_directory(mount: &Path) {
    let aside = aside(mount);
    if fs::symlink_metadata(&aside).is_err()
        && fs::rename(mount, &aside).is_ok()
        && symlink(mount, mount).is_err()
        && let Err(error) = fs::rename(&aside, mount)
    {
        let (mount, aside) = (mount.display(), aside.display());
        log::warn(format_args!("the directory {mount} is now {aside}: {error}"));
    }
}

/// Takes the link or the directory away and puts the user's directory back, unless another instance
/// runs there.
pub(super) fn take_away(config: &Config) -> io::Result<()> {
    let mount = &config.mount;
    // What is in the own run directory is nobody else's: that saves looking at all the others.
    let own = mount.starts_with(&config.run_dir);
    if !own && user_of(mount, Some(&config.name)).is_some() {
        return Ok(());
    }
    // One that was left by a process which was killed; that of a living one is gone by now. What
    // else is mounted there is somebody else's.
    let topmost = mayfly_fuse::mounted().into_iter().rfind(|mounted| mounted.point == *mount);
    if topmost.is_some_and(|mounted| mounted.name == config.name) {
        mayfly_fuse::unmount(mount);
    }
    if is_loop(mount) {
        fs::remove_file(mount)?;
    } else if is_ours(config) {
        remove_directory(mount)?;
    }
    let aside = aside(mount);
    if !config.mount_made && aside.is_dir() {
        fs::rename(aside, mount)?;
    }
    Ok(())
}

/// Whether this process sees the instance at its mount point, as all that is started here does.
/// Nobody is asked, who might not answer.
#[must_use]
pub fn is_seen(config: &Config) -> bool {
    mayfly_fuse::mounted().iter().any(|mounted| mounted.point == config.mount)
}

/// A further place to mount at: an empty directory outside the instance.
pub(crate) fn choose_further(config: &Config, point: &Path) -> Result<PathBuf> {
    let point = instance::absolute(point)?;
    ensure!(
        !point.starts_with(&config.mount),
        "{} is in the instance itself; choose a directory elsewhere",
        point.display()
    );
    let mut entries = fs::read_dir(&point).with_context(|| {
        format!("cannot mount at {}: make the directory first", point.display())
    })?;
    ensure!(
        entries.next().is_none(),
        "{} is not empty; choose an empty directory",
        point.display()
    );
    Ok(point)
}

/// Is it a link to itself, as `put` makes it?
fn is_loop(mount: &Path) -> bool {
    fs::read_link(mount).is_ok_and(|target| target == mount)
}

/// Where the user's directory is meanwhile.
fn aside(mount: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(mount.file_name().unwrap_or_default());
    name.push(".mayfly");
    mount.with_file_name(name)
}

/// A running instance of this user, other than `own`, with this mount point.
fn user_of(mount: &Path, own: Option<&str>) -> Option<String> {
    let entries = fs::read_dir(places::default_run_root()).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        match Found::look(&name) {
            Ok(Found::Running(config)) if config.mount == mount && own != Some(&name) => Some(name),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of the test's own.
    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("mayfly-{name}-{}", std::process::id()));
        fs::create_dir_all(&place).expect("the temporary directory is writable");
        fs::canonicalize(place).expect("it was just made")
    }

    fn config(mount: PathBuf, mount_made: bool) -> Config {
        let nowhere = PathBuf::from("/nonexistent");
        Config {
            serves_programs: true,
            daemons: 1,
            version: 1,
            name: "mount-point-test".to_owned(),
            instance: 1,
            node: None,
            run_dir: nowhere.clone(),
            mount,
            mount_made,
            data_dir: nowhere.clone(),
            data_class: None,
            further: Vec::new(),
            meta_dir: nowhere.clone(),
            object_dir: nowhere.clone(),
            image_dir: nowhere,
            keep: false,
            audience: crate::Audience::Everybody,
            mount_by: None,
            options: crate::Options { access: "preload".to_owned(), ..crate::Options::default() },
        }
    }

    #[test]
    fn nobody_gets_through_the_mount_point() {
        let place = place("loop");
        let (mount, made) = choose(&place.join("new/mnt")).expect("a new name will do");
        assert!(made);
        let config = config(mount.clone(), made);
        put(&config).expect("links can be made here");
        for path in [mount.clone(), mount.join("x")] {
            let error = fs::write(path, "x").expect_err("a stranger's write");
            assert_eq!(error.raw_os_error(), Some(40), "ELOOP");
        }
        // What a dead instance left is taken over.
        assert_eq!(choose(&mount).expect("no instance runs there"), (mount.clone(), true));
        put(&config).expect("it is there");
        take_away(&config).expect("it is ours");
        assert!(fs::symlink_metadata(&mount).is_err());
        fs::remove_dir_all(place).expect("nothing of it is in use");
    }

    #[test]
    fn an_empty_directory_of_the_users_comes_back() {
        let place = place("aside");
        let before = fs::metadata(&place).expect("it is there").ino();
        let mount = place.join("mnt");
        fs::create_dir(&mount).expect("nothing is there");
        let inode = fs::metadata(&mount).expect("just made").ino();
        let (chosen, made) = choose(&mount).expect("empty");
        assert_eq!((&chosen, made), (&mount, false));
        let config = config(chosen, made);
        put(&config).expect("the parent is ours");
        assert!(fs::read_dir(&mount).is_err());
        assert_eq!(choose(&mount).expect("no instance runs there"), (mount.clone(), false));
        take_away(&config).expect("it is ours");
        assert_eq!(fs::metadata(&mount).expect("put back").ino(), inode);
        assert_eq!(fs::metadata(&place).expect("untouched").ino(), before);
        fs::write(mount.join("file"), "").expect("an ordinary directory again");
        assert!(choose(&mount).is_err(), "not empty");
        fs::remove_dir_all(place).expect("nothing of it is in use");
    }
}
