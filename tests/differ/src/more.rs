//! Calls of programs that know more than open, read and write.

use std::ffi::CString;

use crate::calls::{self, digest, errno, name, shown};
use crate::play::Player;

const PAGE: usize = 4096;

impl Player {
    pub(crate) fn more(&mut self) -> String {
        match self.random.below(12) {
            0 => self.rename_with_flags(),
            1 => self.link_description(),
            2 => self.nameless(),
            3 => self.allocate(),
            4 => self.copy_range(),
            5 => self.send(),
            6 => self.map(),
            7 | 8 => self.below_directory(),
            9 => self.change_description(),
            10 => self.set_times(),
            _ => self.flags(),
        }
    }

    fn rename_with_flags(&mut self) -> String {
        let (from, to) = (self.name(), self.name());
        let flags = *self.random.pick(&[libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE, 0, 3]);
        // SAFETY: the paths are C strings.
        let done = unsafe {
            let (from, to) = (name(from), name(to));
            libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
        };
        format!("renameat2 {from:?} {to:?} {flags} = {}", shown(i64::from(done)))
    }

    /// A further name of what is open, by its place in procfs.
    fn link_description(&mut self) -> String {
        let (fd, to) = (self.descriptor(), self.name());
        let from = CString::new(format!("/proc/self/fd/{fd}")).expect("digits");
        // SAFETY: the paths are C strings.
        let done = unsafe {
            let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
            libc::linkat(here, from.as_ptr(), here, name(to).as_ptr(), follow)
        };
        format!("linkat {fd} {to:?} = {}", shown(i64::from(done)))
    }

    fn nameless(&mut self) -> String {
        let at = *self.random.pick(&[".", "d1", "d2", "a"]);
        let exclusive = *self.random.pick(&[0, libc::O_EXCL]);
        let fd = calls::open(&name(at), libc::O_TMPFILE | libc::O_RDWR | exclusive, 0o640);
        if fd < 0 {
            return format!("nameless {at:?} = {}", errno());
        }
        self.open.push(fd);
        format!("nameless {at:?} {exclusive:o} = fd {fd}{}", self.keep_few())
    }

    fn allocate(&mut self) -> String {
        let (fd, at, count) = (self.descriptor(), self.size(), self.size());
        let (keep, punch) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE);
        let mode = *self.random.pick(&[0, keep, keep | punch, punch]);
        // What takes or gives nothing leaves a file's times as they are.
        if mode & keep != 0 && at as usize >= calls::bytes_of(fd) {
            return format!("nothing to allocate in {fd}");
        }
        // SAFETY: no pointers.
        let done = unsafe { libc::fallocate(fd, mode, at as i64, count as i64) };
        format!("fallocate {fd} {mode} @{at} {count} = {}", shown(i64::from(done)))
    }

    fn copy_range(&mut self) -> String {
        let (from, to, count) = (self.descriptor(), self.descriptor(), self.size());
        let (mut at, mut onto) = (self.size() as i64, self.size() as i64);
        // What is copied onto itself, and what of it before an error, is the kernel's own.
        if calls::same_file(from, to) || [from, to].iter().any(|fd| calls::is_directory(*fd)) {
            return "no copy".to_owned();
        }
        let placed = self.random.below(2) == 0;
        let place =
            |at: &mut i64| if placed { std::ptr::from_mut(at) } else { std::ptr::null_mut() };
        let (at_place, onto_place) = (place(&mut at), place(&mut onto));
        // SAFETY: the offsets are this function's own, or there are none.
        let done =
            unsafe { libc::copy_file_range(from, at_place, to, onto_place, count as usize, 0) };
        format!("copy_file_range {from} {to} {count} {placed} = {} {at} {onto}", shown(done as i64))
    }

    fn send(&mut self) -> String {
        let (from, to, count) = (self.descriptor(), self.descriptor(), self.size());
        let mut at = self.size() as i64;
        if calls::same_file(from, to) || [from, to].iter().any(|fd| calls::is_directory(*fd)) {
            return "nothing sent".to_owned();
        }
        // SAFETY: the offset is this function's own.
        let done = unsafe { libc::sendfile(to, from, &raw mut at, count as usize) };
        format!("sendfile {to} {from} {count} = {} {at}", shown(done as i64))
    }

    /// What a mapping shows, and what is written through one, of whole pages that the file has.
    fn map(&mut self) -> String {
        let fd = self.descriptor();
        let pages = calls::bytes_of(fd) / PAGE;
        if pages == 0 || !self.maps {
            return "nothing to map".to_owned();
        }
        let first = self.random.below(pages as u64) as usize;
        let count = 1 + self.random.below((pages - first) as u64) as usize;
        let shared = self.random.below(2) == 0;
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let writes = shared && self.random.below(2) == 0;
        let access = if writes { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let (bytes, at) = (count * PAGE, (first * PAGE) as i64);
        // SAFETY: a new mapping where the kernel finds room.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, fd, at) };
        if mapped == libc::MAP_FAILED {
            return format!("mmap {fd} {kind} {access} = {}", errno());
        }
        let mark = self.random.next() as u8;
        // SAFETY: so many bytes are mapped, and nobody cuts the file meanwhile.
        let seen = unsafe {
            if writes {
                *mapped.cast::<u8>().add(bytes / 2) = mark;
            }
            let seen = digest(std::slice::from_raw_parts(mapped.cast::<u8>(), bytes));
            libc::munmap(mapped, bytes);
            seen
        };
        format!("mmap {fd} {kind} {access} @{at} {bytes} = {seen:x}")
    }

    fn below_directory(&mut self) -> String {
        let at = self.descriptor();
        let path = *self.random.pick(&["a", "b", "d2", "d2/c", "x", "..", "../a", "."]);
        let path_c = name(path);
        // SAFETY: the path is a C string.
        let (what, done) = unsafe {
            match self.random.below(6) {
                0 => ("mkdirat", libc::mkdirat(at, path_c.as_ptr(), 0o750)),
                1 => ("unlinkat", libc::unlinkat(at, path_c.as_ptr(), 0)),
                2 => ("rmdirat", libc::unlinkat(at, path_c.as_ptr(), libc::AT_REMOVEDIR)),
                3 => ("faccessat", libc::faccessat(at, path_c.as_ptr(), libc::W_OK, 0)),
                4 => {
                    let fd = libc::openat(at, path_c.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o664);
                    self.open.extend((fd >= 0).then_some(fd));
                    ("openat", fd)
                }
                _ => return format!("fstatat {at} {path:?} = {}", calls::stat_at(at, &path_c)),
            }
        };
        format!("{what} {at} {path:?} = {}{}", shown(i64::from(done)), self.keep_few())
    }

    fn change_description(&mut self) -> String {
        let fd = self.descriptor();
        let mode = *self.random.pick(&[0o644, 0o755, 0o700, 0o1600]);
        // SAFETY: no pointers.
        let (what, done) = unsafe {
            match self.random.below(4) {
                0 | 1 => ("fchmod", libc::fchmod(fd, mode)),
                2 => ("fsync", libc::fsync(fd)),
                _ => ("fdatasync", libc::fdatasync(fd)),
            }
        };
        format!("{what} {fd} {mode:o} = {}", shown(i64::from(done)))
    }

    /// Some of the times, of a name, of a link itself, or of what is open.
    fn set_times(&mut self) -> String {
        let second = 2_000_000 + self.random.below(1000) as i64;
        let to = libc::timespec { tv_sec: second, tv_nsec: 9_000_000 };
        let stays = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
        let now = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
        let times = *self.random.pick(&[[to, to], [stays, to], [to, stays], [to, now], [now, to]]);
        let (path, fd) = (self.name(), self.descriptor());
        let follow = *self.random.pick(&[0, libc::AT_SYMLINK_NOFOLLOW]);
        // SAFETY: the path is a C string, the array has two entries.
        let (what, done) = unsafe {
            if self.random.below(2) == 0 {
                (format!("{fd}"), libc::futimens(fd, times.as_ptr()))
            } else {
                let path_c = name(path);
                let done = libc::utimensat(libc::AT_FDCWD, path_c.as_ptr(), times.as_ptr(), follow);
                (format!("{path:?} {follow}"), done)
            }
        };
        let nanoseconds = times.map(|time| time.tv_nsec);
        format!("times of {what} {second} {nanoseconds:?} = {}", shown(i64::from(done)))
    }

    fn flags(&mut self) -> String {
        let fd = self.descriptor();
        // SAFETY: no pointers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 || !self.alone || self.random.below(2) == 0 {
            return format!("flags {fd} = {}", shown(i64::from(flags)));
        }
        // SAFETY: no pointers.
        let done = unsafe { libc::fcntl(fd, libc::F_SETFL, flags ^ libc::O_APPEND) };
        format!("flags {fd} ^ append = {}", shown(i64::from(done)))
    }
}
