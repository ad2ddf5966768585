//! Mounting and unmounting: by the kernel as root, by `fusermount3` as anybody else, and by the
//! kernel in a user namespace where neither is to be had. Such a mount is seen in there only.

use std::{
    ffi::OsString,
    fs::File,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    mount::{MountFlags, UnmountFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags,
        SocketType, recvmsg, socketpair,
    },
    thread::{CapabilitySet, capabilities},
};

use super::abi::READ_BYTES_MAX;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// The type that a mount has in `/proc/mounts`.
const KIND: &str = "fuse.mayfly";
/// What its source begins with; the instance's name follows.
const SOURCE: &str = "mayfly:";

/// Chooses a way to mount, where several are there: a word of [`Way`].
const CHOICE: &str = "MAYFLY_MOUNT_BY";

/// How a mount is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the kernel, which root may ask for it.
    Root,
    /// By the program that is there for all others.
    Helper,
    /// By the kernel, in a namespace of its own.
    Namespace,
}

/// For whom a mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Whoever runs on the machine.
    Everybody,
    /// One command, which can be started in a namespace.
    Command,
}

impl Way {
    /// As `status` says it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Way::Root => "root",
            Way::Helper => HELPER,
            Way::Namespace => "namespace",
        }
    }
}

/// The way that this process's environment chooses, if any.
#[must_use]
pub fn choice() -> Option<String> {
    std::env::var(CHOICE).ok().filter(|word| !word.is_empty())
}

/// How this user can mount here, by `choice` where there is one; otherwise why not and what to do.
///
/// # Errors
/// As above.
pub fn way(audience: Audience, choice: Option<&str>) -> Result<Way> {
    // The helper opens it as the user, too.
    open_device()?;
    let all = [Way::Root, Way::Helper, Way::Namespace];
    let wanted = all.into_iter().filter(|way| choice.is_none_or(|word| word == way.word()));
    let mut there = wanted.filter(|way| match way {
        Way::Root => may_mount(),
        Way::Helper => helper().is_some(),
        Way::Namespace => audience == Audience::Command && may_have_namespaces(),
    });
    there.next().with_context(|| match choice {
        Some(word) => format!("{CHOICE}={word}: there is no such way to mount here"),
        None => format!(
            "{HELPER} is not installed, without which only root can mount, and a user namespace \
             is for `mayfly run` where the machine allows it: install the package fuse3, or choose \
             --access preload"
        ),
    })
}

/// As far as the machine's settings tell; the attempt tells the rest.
fn may_have_namespaces() -> bool {
    let setting = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    setting("user/max_user_namespaces").is_some_and(|most| most > 0)
        && setting("kernel/unprivileged_userns_clone") != Some(0)
        && setting("kernel/apparmor_restrict_unprivileged_userns").is_none_or(|no| no == 0)
}

fn open_device() -> Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(DEVICE).with_context(|| {
        format!(
            "FUSE cannot be used here: cannot open {DEVICE}; have the kernel module `fuse` loaded \
             and the device open to users, or choose --access preload"
        )
    })?;
    Ok(file.into())
}

/// The root of a container may lack what root of the machine has.
fn may_mount() -> bool {
    let sets = capabilities(None);
    rustix::process::geteuid().is_root()
        && sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(HELPER)).find(|file| file.is_file())
}

/// Mounts the instance `name` at `point`; the connection to the kernel.
pub(crate) fn mount(point: &Path, name: &str, way: Way) -> Result<OwnedFd> {
    let device = match way {
        Way::Root => mount_directly(point, name),
        Way::Helper => mount_with_helper(point, name),
        Way::Namespace => enter_namespace().and_then(|()| mount_directly(point, name)),
    };
    device.with_context(|| format!("cannot mount at {}", point.display()))
}

/// In there this user is who they are, and nobody else exists.
fn enter_namespace() -> Result<()> {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    mayfly_sys::process::enter_own_namespaces()
        .map_err(|errno| anyhow!("a user namespace is not to be had: {errno}"))?;
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ];
    for (file, text) in maps {
        std::fs::write(format!("/proc/self/{file}"), text)
            .with_context(|| format!("cannot write {file} of a user namespace"))?;
    }
    Ok(())
}

/// The source of the mount of instance `name`.
fn source(name: &str) -> String {
    format!("{SOURCE}{name}")
}

fn mount_directly(point: &Path, name: &str) -> Result<OwnedFd> {
    let device = open_device()?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},max_read={READ_BYTES_MAX}\0",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes())?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    rustix::mount::mount(source(name).as_str(), point, KIND, flags, options).map_err(|errno| {
        anyhow!("{errno}; a container may need to be given leave, or choose --access preload")
    })?;
    Ok(device)
}

/// The helper mounts and sends the device back over the socket whose number stands in its
/// environment; that is its standard input here.
fn mount_with_helper(point: &Path, name: &str) -> Result<OwnedFd> {
    let helper = helper()
        .with_context(|| format!("{HELPER} is not installed: install the package fuse3"))?;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let output = Command::new(helper)
        .arg("-o")
        .arg(format!(
            "nosuid,nodev,max_read={READ_BYTES_MAX},subtype=mayfly,fsname={}",
            source(name)
        ))
        .arg("--")
        .arg(point)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .output()
        .with_context(|| format!("cannot start {HELPER}"))?;
    if !output.status.success() {
        bail!("{}", refused_by_helper(&String::from_utf8_lossy(&output.stderr)));
    }
    receive_device(&ours).with_context(|| format!("{HELPER} hands nothing over"))
}

/// The reason of a failure. The helper's own words are for people who know the helper.
fn refused_by_helper(said: &str) -> String {
    let user = rustix::process::getuid().as_raw();
    let why = match open_device() {
        Err(error) => format!("{error:#}"),
        Ok(_) if said.contains("could not determine username") => {
            format!("user {user} is not in this machine's user database (`getent passwd {user}`)")
        }
        Ok(_) => said.lines().last().unwrap_or("it does not say why").trim().to_owned(),
    };
    format!(
        "FUSE cannot be used here: {HELPER} refuses to mount: {why}. Choose --access preload, or \
         ask the operator of this machine or container for {DEVICE} and a {HELPER} that works for \
         you"
    )
}

fn receive_device(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    descriptors.next().and_then(|mut first| first.next()).context("no descriptor came")
}

/// Takes the topmost mount of ours at `point` away, whoever still uses it and whatever became of
/// the process that serves it. False when there is none.
pub fn unmount(point: &Path) -> bool {
    if !is_mounted(point) {
        return false;
    }
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    // As root, or in the namespace of the mount.
    if rustix::mount::unmount(point, flags).is_ok() {
        return true;
    }
    let helper = helper().unwrap_or_else(|| PathBuf::from(HELPER));
    let status = Command::new(helper)
        .args(["-u", "-z", "-q", "--"])
        .arg(point)
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// A mount of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The instance's name.
    pub name: String,
    /// Where.
    pub point: PathBuf,
}

/// All mounts of instances, dead ones too. Asks no file system, since ours may not answer.
#[must_use]
pub fn mounted() -> Vec<Mounted> {
    let table = table();
    let lines = table.split(|byte| *byte == b'\n').filter_map(Line::of);
    let ours = lines.filter(|line| line.kind == KIND.as_bytes());
    let named = ours.filter_map(|line| {
        let name = line.source.strip_prefix(SOURCE.as_bytes())?;
        Some(Mounted { name: String::from_utf8(name.to_vec()).ok()?, point: line.point })
    });
    named.collect()
}

/// Is the topmost mount at `point` one of ours?
fn is_mounted(point: &Path) -> bool {
    let table = table();
    let mut lines = table.split(|byte| *byte == b'\n').filter_map(Line::of);
    lines.rfind(|line| line.point == point).is_some_and(|line| line.kind == KIND.as_bytes())
}

fn table() -> Vec<u8> {
    std::fs::read("/proc/self/mounts").unwrap_or_default()
}

/// A line of `/proc/mounts`; blanks and their like are octal there.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    source: Vec<u8>,
    point: PathBuf,
    kind: &'a [u8],
}

impl Line<'_> {
    fn of(line: &[u8]) -> Option<Line<'_>> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (source, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let point = PathBuf::from(OsString::from_vec(unescaped(point)));
        Some(Line { source: unescaped(source), point, kind })
    }
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_mount_is_read_with_its_blanks() {
        let line = br"mayfly:a /tmp/with\040blank\134 fuse.mayfly rw,nosuid 0 0";
        let read = Line::of(line).expect("three fields");
        assert_eq!(read.point, Path::new("/tmp/with blank\\"));
        assert_eq!((read.source.as_slice(), read.kind), (&b"mayfly:a"[..], &b"fuse.mayfly"[..]));
        assert_eq!(Line::of(b""), None);
    }
}
