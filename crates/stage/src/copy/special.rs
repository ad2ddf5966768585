//! What has no content: symbolic links and pipes.

use std::ffi::{CStr, OsStr};

use nix::{
    errno::Errno,
    fcntl::{readlinkat, renameat},
    sys::stat::{FchmodatFlags, Mode, fchmodat},
    unistd::{UnlinkatFlags, mkfifoat, symlinkat, unlinkat},
};

use crate::{
    copy::{
        kind::Done,
        settle::{Stat, set_times_at},
        whole::{make_anew, temporary_name},
    },
    report::Problem,
    stager::Stager,
    walk::tree::{Dir, os},
};

impl Stager<'_> {
    pub(super) fn link(&self, dir: &Dir, name: &CStr, stat: &Stat) -> Result<Done, Problem> {
        let leads = readlinkat(&dir.source, name).map_err(Problem::of("read the link"))?;
        self.special(dir, name, stat, "make the link", |target, to| {
            symlinkat(leads.as_os_str(), target, to)
        })
    }

    pub(super) fn pipe(&self, dir: &Dir, name: &CStr, stat: &Stat) -> Result<Done, Problem> {
        let mode = Mode::from_bits_truncate(stat.permissions() & 0o777);
        self.special(dir, name, stat, "make the pipe", |target, to| {
            mkfifoat(target, to, mode)?;
            fchmodat(target, to, mode, FchmodatFlags::FollowSymlink)
        })
    }

    /// Something without content: it is whole when it is made.
    fn special(
        &self,
        dir: &Dir,
        name: &CStr,
        stat: &Stat,
        doing: &'static str,
        make: impl Fn(std::os::fd::BorrowedFd<'_>, &OsStr) -> Result<(), Errno>,
    ) -> Result<Done, Problem> {
        let (target, to) = (dir.target()?, dir.target_name(os(name)));
        let temporary = temporary_name((self.stage, self.node), to);
        let made = make_anew(target, &temporary, || make(target, os(&temporary)));
        made.map_err(Problem::not_made(doing))?;
        let named = set_times_at(target, temporary.as_c_str(), stat)
            .and_then(|()| renameat(target, temporary.as_c_str(), target, to));
        if let Err(errno) = named {
            let _ = unlinkat(target, temporary.as_c_str(), UnlinkatFlags::NoRemoveDir);
            return Err(Problem::NotMade { doing, errno });
        }
        self.copied(0);
        Ok(Done::Now)
    }
}
