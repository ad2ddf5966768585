//! Whatever is left of a job on a node: processes, mounts, directories.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid, chown, geteuid},
};

use crate::{
    Job, Site,
    person::{self, EMPTY, Place, RUN_ROOT},
};

/// What root has noted of a job lies beside its run directory.
const NOTED: &str = "job";
/// Processes that are killed are gone within that time.
const DEATH_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

impl Site {
    /// Where a job's things are.
    pub(crate) fn place(&self, id: &str) -> Place {
        Place { run: self.run.join(id), data: self.data.join(id) }
    }

    fn noted(&self, id: &str) -> PathBuf {
        self.run.join(format!("{id}.{NOTED}"))
    }

    /// Where the prolog leaves for the epilog what was asked for.
    pub(crate) fn request(&self, id: &str) -> PathBuf {
        self.run.join(format!("{id}.request"))
    }

    /// Makes it known to the job's programs on this node that the job is over.
    pub(crate) fn note_end(&self, id: &str) -> Result<()> {
        let path = over(&self.place(id).run);
        fs::write(&path, "").with_context(|| format!("cannot make {}", path.display()))
    }

    /// Makes the directories of a job, its user's alone, and notes it.
    pub(crate) fn make(&self, job: &Job) -> Result<Place> {
        let place = self.place(&job.id);
        for top in [&self.run, &self.data] {
            make_top(top)?;
        }
        // What is noted is cleared up, so it comes first.
        fs::write(self.noted(&job.id), serde_json::to_vec(job)?)?;
        for directory in [&place.run, &place.data] {
            let cannot = || format!("cannot make {}", directory.display());
            fs::DirBuilder::new().mode(0o700).create(directory).with_context(cannot)?;
            if geteuid().as_raw() != job.uid {
                let user = nix::unistd::User::from_uid(Uid::from_raw(job.uid))?;
                let user = user.with_context(|| format!("no user has the number {}", job.uid))?;
                chown(directory, Some(user.uid), Some(user.gid)).with_context(cannot)?;
            }
        }
        Ok(place)
    }

    /// The job that was noted.
    pub(crate) fn find(&self, id: &str) -> Option<Job> {
        let job: Job = serde_json::from_slice(&fs::read(self.noted(id)).ok()?).ok()?;
        (job.id == id).then_some(job)
    }

    /// All of them.
    fn all(&self) -> Vec<Job> {
        let names = fs::read_dir(&self.run).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let ids =
            names.filter_map(|name| name.strip_suffix(&format!(".{NOTED}")).map(str::to_owned));
        ids.filter_map(|id| self.find(&id)).collect()
    }

    /// Removes everything of a job from this node.
    ///
    /// # Errors
    /// Names what is left.
    pub(crate) fn clear(&self, id: &str) -> Result<()> {
        let place = self.place(id);
        if ![&self.noted(id), &place.run, &place.data].iter().any(|path| path.exists()) {
            return Ok(());
        }
        end_processes(&place)?;
        unmount(&place.run)?;
        for directory in [&place.run, &place.data] {
            remove(directory, &place)?;
        }
        for noted in [self.request(id), over(&place.run), self.noted(id)] {
            match fs::remove_file(&noted) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.with_context(|| format!("cannot remove {}", noted.display()))?,
            }
        }
        Ok(())
    }
}

/// What is beside the run directory of a job that is over.
pub(crate) fn over(run: &Path) -> PathBuf {
    let mut path = run.as_os_str().to_owned();
    path.push(".over");
    path.into()
}

/// A directory in which only root makes something, and everybody may pass.
fn make_top(top: &Path) -> Result<()> {
    let cannot = || format!("cannot make {}", top.display());
    fs::DirBuilder::new().recursive(true).mode(0o755).create(top).with_context(cannot)?;
    let found = fs::symlink_metadata(top)?;
    ensure!(
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0,
        "{} may be changed by others than root: chown root, chmod go-w",
        top.display()
    );
    Ok(())
}

/// Removes what is left of jobs on this node: of that one, or of all.
///
/// # Errors
/// Names what is left.
pub fn clean(site: &Site, id: Option<&str>) -> Result<usize> {
    let mut ids: Vec<String> = match id {
        Some(id) => vec![id.to_owned()],
        None => site.all().into_iter().map(|job| job.id).collect(),
    };
    if id.is_none() {
        // After a reboot data directories are all that is left.
        let data = fs::read_dir(&site.data).into_iter().flatten().flatten();
        ids.extend(data.filter_map(|entry| entry.file_name().into_string().ok()));
        ids.sort();
        ids.dedup();
    }
    let mut failed = None;
    for id in &ids {
        if let Err(error) = site.clear(id) {
            eprintln!("mayfly: job {id}: {error:#}");
            failed = Some(error);
        }
    }
    failed.map_or(Ok(ids.len()), Err)
}

/// Processes that have been told where the job's instance is; not this one.
pub(crate) fn processes(place: &Place) -> Vec<i32> {
    let wanted = format!("{RUN_ROOT}={}", place.run_root().display());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let told = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    pids.filter(|pid| *pid != std::process::id().cast_signed()).filter(told).collect()
}

fn end_processes(place: &Place) -> Result<()> {
    let until = Instant::now() + DEATH_MAX;
    loop {
        let left = processes(place);
        if left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < until, "processes {left:?} do not end");
        for pid in left {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Unmounts what is mounted below a directory, whoever serves it or does not any more.
fn unmount(below: &Path) -> Result<()> {
    let mut points = mounts(&fs::read_to_string("/proc/self/mountinfo")?, below);
    // The innermost ones first.
    points.reverse();
    for point in points {
        umount2(&point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
            .with_context(|| format!("cannot unmount {}", point.display()))?;
    }
    Ok(())
}

fn mounts(told: &str, below: &Path) -> Vec<PathBuf> {
    let points = told.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(unescaped(point)));
    points.filter(|point| point.starts_with(below)).collect()
}

/// The kernel writes spaces and line ends in paths as octal numbers.
fn unescaped(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let number = piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(byte) => {
                whole.push(char::from(byte));
                whole.push_str(&piece[3..]);
            }
            None => whole.push_str(piece),
        }
    }
    whole
}

/// Removes a job's directory: what is in it as its owner, who may have put anything there, and
/// itself as whoever we are.
fn remove(directory: &Path, place: &Place) -> Result<()> {
    let found = match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    ensure!(found.is_dir(), "{} is no directory", directory.display());
    if found.uid() == geteuid().as_raw() {
        person::empty(directory)?;
    } else {
        let mut command = person::command(found.uid(), place)?;
        // Not by the mark of what is to be killed.
        let command = command.env_remove(RUN_ROOT).arg(EMPTY).arg(directory);
        let output = command.output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", complaint.trim());
    }
    match fs::remove_dir(directory) {
        // An epilog may be at the same.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("cannot remove {}", directory.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_directory_are_found_by_whole_names() {
        let told = "1 2 0:1 / /run/mayfly/12/mnt rw - fuse x rw\n\
                    1 2 0:1 / /run/mayfly/123 rw - fuse x rw\n\
                    1 2 0:1 / /run/mayfly/12/a\\040b rw - fuse x rw\n1 2 0:1 / / rw - ext4 x rw\n";
        let found = mounts(told, Path::new("/run/mayfly/12"));
        assert_eq!(found, [Path::new("/run/mayfly/12/mnt"), Path::new("/run/mayfly/12/a b")]);
    }

    #[test]
    fn what_was_left_of_jobs_goes_and_links_are_not_followed() {
        let place = tempfile::tempdir().expect("a directory");
        let (run, data) = (place.path().join("run"), place.path().join("data"));
        let site = Site { run, data, ..Site::default() };
        let job = Job {
            is_component: false,
            id: "7".to_owned(),
            uid: geteuid().as_raw(),
            hosts: "n".to_owned(),
            node: "n".to_owned(),
            restarts: 0,
            constraints: String::new(),
            comment: String::new(),
            system: crate::job::System::Other,
        };
        let other = place.path().join("other");
        fs::create_dir(&other).expect("a directory");
        fs::write(other.join("kept"), "").expect("a file");
        let made = site.make(&job).expect("made");
        assert_eq!(site.find("7"), Some(job));
        fs::create_dir(made.data.join("deep")).expect("a directory");
        std::os::unix::fs::symlink(&other, made.data.join("deep/link")).expect("a link");
        std::os::unix::fs::symlink(&other, made.run.join("link")).expect("a link");
        assert_eq!(clean(&site, None).expect("its own"), 1);
        assert!(other.join("kept").exists());
        for top in [&site.run, &site.data] {
            assert_eq!(fs::read_dir(top).expect("there").count(), 0);
        }
        assert_eq!(clean(&site, None).expect("nothing"), 0);
    }
}
