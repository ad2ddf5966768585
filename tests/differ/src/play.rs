//! The player: chooses calls, keeps descriptors, prints.

use crate::calls::{self, digest, errno, name, shown};
use crate::random::Random;

const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "d1",
    "d1/a",
    "d1/b",
    "d1/d2",
    "d1/d2/c",
    "d2",
    "d2/x",
    "l1",
    "l1/a",
    "./a",
    "d1/../b",
    "d1/",
    "a/",
    "nothing/x",
    "l2",
    "d2//x",
    "",
];
const DESCRIPTORS_MAX: usize = 12;

/// An upper bound for offsets and lengths: inline contents, objects, and the step between.
const SIZES: &[u64] = &[0, 1, 17, 511, 4095, 4096, 4097, 9000, 70_000, 200_000];

pub(crate) struct Player {
    pub(crate) random: Random,
    pub(crate) open: Vec<i32>,
    /// Nobody else changes files meanwhile, so that descriptors may append: the offset after an
    /// append is not the same everywhere (docs/design/fuse.md).
    pub(crate) alone: bool,
    /// Files are mapped.
    pub(crate) maps: bool,
}

impl Player {
    pub(crate) fn new(seed: u64, maps: bool) -> Self {
        Player { random: Random::new(seed), open: Vec::new(), alone: true, maps }
    }

    /// One of several players in a directory.
    pub(crate) fn following(seed: u64) -> Self {
        Player { alone: false, ..Player::new(seed, false) }
    }

    pub(crate) fn play(mut self, steps: u32) {
        for step in 0..steps {
            let text = self.step();
            println!("{step} {text}");
        }
        for fd in std::mem::take(&mut self.open) {
            // SAFETY: a descriptor of this program's own.
            println!("close {}", shown(i64::from(unsafe { libc::close(fd) })));
        }
    }

    pub(crate) fn step(&mut self) -> String {
        match self.random.below(130) {
            0..18 => self.open_file(),
            18..30 => self.write_some(),
            30..42 => self.read_some(),
            42..46 => self.seek(),
            46..52 => self.close_one(),
            52..56 => self.duplicate(),
            56..66 => self.look(),
            66..76 => self.make_or_remove(),
            76..84 => self.move_or_link(),
            84..90 => self.change(),
            90..94 => self.list(),
            94..97 => self.with_child(),
            97..100 => self.whole_file(),
            _ => self.more(),
        }
    }

    pub(crate) fn name(&mut self) -> &'static str {
        self.random.pick::<&'static str>(NAMES)
    }

    pub(crate) fn size(&mut self) -> u64 {
        let base = *self.random.pick(SIZES);
        base + self.random.below(3)
    }

    pub(crate) fn descriptor(&mut self) -> i32 {
        if self.open.is_empty() || self.random.below(40) == 0 {
            900
        } else {
            *self.random.pick(&self.open)
        }
    }

    fn open_file(&mut self) -> String {
        let path = self.name();
        let access =
            *self.random.pick(&[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR]);
        let mut flags = access;
        for (flag, chance) in [
            (libc::O_CREAT, 2),
            (libc::O_EXCL, 6),
            (libc::O_TRUNC, 6),
            (libc::O_APPEND, 5),
            (libc::O_DIRECTORY, 12),
            (libc::O_NOFOLLOW, 8),
            (libc::O_CLOEXEC, 2),
        ] {
            if self.random.below(chance) == 0 {
                flags |= flag;
            }
        }
        // What O_CREAT | O_DIRECTORY does depends on the kernel's version.
        if flags & libc::O_CREAT != 0 {
            flags &= !libc::O_DIRECTORY;
        }
        if !self.alone {
            flags &= !libc::O_APPEND;
        }
        let mode = *self.random.pick(&[0o644, 0o600, 0o755, 0o666]);
        let fd = calls::open(&name(path), flags, mode);
        let result = if fd >= 0 { format!("fd {fd}") } else { errno() };
        if fd >= 0 {
            self.open.push(fd);
        }
        format!("open {path:?} {flags:o} {mode:o} = {result}{}", self.keep_few())
    }

    /// Closes one of too many.
    pub(crate) fn keep_few(&mut self) -> String {
        if self.open.len() > DESCRIPTORS_MAX {
            format!("; {}", self.close_one())
        } else {
            String::new()
        }
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        let mut seed = self.random.next();
        (0..count)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56) as u8
            })
            .collect()
    }

    fn write_some(&mut self) -> String {
        let fd = self.descriptor();
        let count = self.size();
        let bytes = self.bytes(count);
        let at = self.size();
        match self.random.below(3) {
            0 => {
                // SAFETY: the buffer has the length given.
                let done =
                    unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), at as i64) };
                format!("pwrite {fd} {count} @{at} = {}", shown(done as i64))
            }
            1 => {
                let (head, tail) = bytes.split_at(bytes.len() / 3);
                let parts = [head, tail].map(|part| libc::iovec {
                    iov_base: part.as_ptr().cast_mut().cast(),
                    iov_len: part.len(),
                });
                // SAFETY: two buffers with their lengths.
                let done = unsafe { libc::writev(fd, parts.as_ptr(), 2) };
                format!("writev {fd} {count} = {}", shown(done as i64))
            }
            _ => {
                // SAFETY: the buffer has the length given.
                let done = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
                format!("write {fd} {count} = {}", shown(done as i64))
            }
        }
    }

    fn read_some(&mut self) -> String {
        let fd = self.descriptor();
        let count = self.size();
        let at = self.size();
        let mut buffer = vec![0_u8; count as usize];
        let positioned = self.random.below(2) == 0;
        let done = if positioned {
            // SAFETY: the buffer has the length given.
            unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), at as i64) }
        } else {
            // SAFETY: the buffer has the length given.
            unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) }
        };
        let what = if positioned {
            format!("pread {fd} {count} @{at}")
        } else {
            format!("read {fd} {count}")
        };
        match usize::try_from(done) {
            Ok(done) => format!("{what} = {done} {:x}", digest(&buffer[..done])),
            Err(_) => format!("{what} = {}", errno()),
        }
    }

    fn seek(&mut self) -> String {
        let fd = self.descriptor();
        let at = self.size() as i64 - 5;
        let whence = *self.random.pick(&[libc::SEEK_SET, libc::SEEK_CUR, libc::SEEK_END]);
        // A directory's offsets are the file system's own.
        if calls::is_directory(fd) {
            return "seek in a directory".to_owned();
        }
        // SAFETY: no pointers.
        let done = unsafe { libc::lseek(fd, at, whence) };
        format!("lseek {fd} {at} {whence} = {}", shown(done))
    }

    fn close_one(&mut self) -> String {
        if self.open.is_empty() {
            return "nothing to close".to_owned();
        }
        let index = self.random.below(self.open.len() as u64) as usize;
        let fd = self.open.swap_remove(index);
        // SAFETY: a descriptor of this program's own.
        format!("close {fd} = {}", shown(i64::from(unsafe { libc::close(fd) })))
    }

    fn duplicate(&mut self) -> String {
        let fd = self.descriptor();
        if self.random.below(2) == 0 {
            // SAFETY: no pointers.
            let copy = unsafe { libc::dup(fd) };
            if copy >= 0 {
                self.open.push(copy);
            }
            return format!("dup {fd} = {}", shown(i64::from(copy)));
        }
        let onto = self.descriptor();
        if onto == 900 {
            return "no target".to_owned();
        }
        // SAFETY: no pointers; the target is one of this program's own.
        let copy = unsafe { libc::dup2(fd, onto) };
        format!("dup2 {fd} {onto} = {}", shown(i64::from(copy)))
    }

    fn look(&mut self) -> String {
        let path = self.name();
        match self.random.below(5) {
            0 => format!("stat {path:?} = {}", calls::stat(&name(path))),
            1 => format!("lstat {path:?} = {}", calls::lstat(&name(path))),
            2 => format!("readlink {path:?} = {}", calls::readlink(&name(path))),
            3 => {
                let mode = *self.random.pick(&[libc::F_OK, libc::R_OK, libc::W_OK]);
                // SAFETY: the path is a C string.
                let done = unsafe { libc::access(name(path).as_ptr(), mode) };
                format!("access {path:?} {mode} = {}", shown(i64::from(done)))
            }
            _ => {
                let fd = self.descriptor();
                format!("fstat {fd} = {}", calls::fstat(fd))
            }
        }
    }

    fn make_or_remove(&mut self) -> String {
        let path = self.name();
        match self.random.below(4) {
            0 | 1 => {
                let mode = *self.random.pick(&[0o755, 0o700, 0o1777]);
                // SAFETY: the path is a C string.
                let done = unsafe { libc::mkdir(name(path).as_ptr(), mode) };
                format!("mkdir {path:?} {mode:o} = {}", shown(i64::from(done)))
            }
            2 => format!("unlink {path:?} = {}", calls::path_call(libc::unlink, &name(path))),
            _ => format!("rmdir {path:?} = {}", calls::path_call(libc::rmdir, &name(path))),
        }
    }

    fn move_or_link(&mut self) -> String {
        let (from, to) = (self.name(), self.name());
        let (from_c, to_c) = (name(from), name(to));
        match self.random.below(4) {
            0 | 1 => format!("rename {from:?} {to:?} = {}", calls::rename(&from_c, &to_c)),
            2 => format!("link {from:?} {to:?} = {}", calls::two_paths(libc::link, &from_c, &to_c)),
            _ => format!(
                "symlink {from:?} {to:?} = {}",
                calls::two_paths(libc::symlink, &from_c, &to_c)
            ),
        }
    }

    fn change(&mut self) -> String {
        let path = self.name();
        let path_c = name(path);
        let size = self.size();
        match self.random.below(4) {
            0 => {
                let mode = *self.random.pick(&[0o644, 0o755, 0o700, 0o1755]);
                // SAFETY: the path is a C string.
                let done = unsafe { libc::chmod(path_c.as_ptr(), mode) };
                format!("chmod {path:?} {mode:o} = {}", shown(i64::from(done)))
            }
            1 => {
                // SAFETY: the path is a C string.
                let done = unsafe { libc::truncate(path_c.as_ptr(), size as i64) };
                format!("truncate {path:?} {size} = {}", shown(i64::from(done)))
            }
            2 => {
                let fd = self.descriptor();
                // SAFETY: no pointers.
                let done = unsafe { libc::ftruncate(fd, size as i64) };
                format!("ftruncate {fd} {size} = {}", shown(i64::from(done)))
            }
            _ => {
                let second = 1_000_000 + self.random.below(1000) as i64;
                let times = [libc::timespec { tv_sec: second, tv_nsec: 7_000_000 }; 2];
                // SAFETY: the path is a C string, the array has two entries.
                let done =
                    unsafe { libc::utimensat(libc::AT_FDCWD, path_c.as_ptr(), times.as_ptr(), 0) };
                format!("utimensat {path:?} {second} = {}", shown(i64::from(done)))
            }
        }
    }

    fn list(&mut self) -> String {
        let path = *self.random.pick(&[".", "d1", "d2", "d1/d2", "l1", "a"]);
        format!("list {path:?} = {}", calls::list(path))
    }

    /// A child shares offsets with its parent, and what it closes is closed for itself only.
    fn with_child(&mut self) -> String {
        let fd = self.descriptor();
        let text = b"from the child";
        // SAFETY: this program has one thread, so the child may do anything.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the buffer has the length given; _exit does not return.
            unsafe {
                let done = libc::write(fd, text.as_ptr().cast(), text.len());
                libc::close(fd);
                libc::_exit(if done < 0 { 1 } else { 0 });
            }
        }
        let mut status = 0;
        // SAFETY: the pointer is valid; the child is this program's own.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        // SAFETY: no pointers.
        let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
        let directory = calls::is_directory(fd);
        let at = if directory { "directory".to_owned() } else { shown(at) };
        format!("child writes {fd} = {} then at {at}", libc::WEXITSTATUS(status))
    }

    /// Through another program, so that a descriptor crosses exec.
    fn whole_file(&mut self) -> String {
        let path = *self.random.pick(&["a", "b", "c", "d1/a", "d2/x", "l1", "l2"]);
        match self.random.below(2) {
            0 => match std::fs::read(path) {
                Ok(bytes) => format!("contents {path:?} = {} {:x}", bytes.len(), digest(&bytes)),
                Err(error) => format!("contents {path:?} = errno {:?}", error.raw_os_error()),
            },
            _ => {
                let done = std::fs::OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(path)
                    .and_then(|out| {
                        std::process::Command::new("/bin/echo").arg("by echo").stdout(out).status()
                    });
                match done {
                    Ok(status) => format!("echo >> {path:?} = {:?}", status.code()),
                    Err(error) => format!("echo >> {path:?} = errno {:?}", error.raw_os_error()),
                }
            }
        }
    }
}
