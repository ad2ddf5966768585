//! One script, run natively and in a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Tree, Turn, binary, process};

/// The run's name for `mayfly`, unique only within its scratch directory.
pub const INSTANCE: &str = "suite";

/// How long the traces of an instance may take to go after the command's end, on a busy machine.
pub(crate) const LEFTOVER_PATIENCE: Duration = Duration::from_secs(20);

/// A program of the suite.
#[derive(Debug)]
pub struct Program {
    /// The script's name in `apps/`, without `.sh`.
    pub script: &'static str,
    /// How long one run may take.
    pub deadline: Duration,
    /// How often the script runs, each time in a directory of its own.
    pub rounds: u32,
    /// Names of files that differ between two native runs too; the script says why.
    pub ignored: &'static [&'static str],
    /// The directory of what the script reads, if any.
    pub input: Option<PathBuf>,
    /// The script works in a copy of this directory, which the instance shows from outside.
    pub origin: Option<PathBuf>,
}

/// What one run printed and left.
#[derive(Debug)]
struct Run {
    outcome: Outcome,
    /// The tree as a process inside packed it.
    inside: Tree,
    /// The tree as it lies there afterwards, or as `--save` copied it.
    outside: Tree,
}

impl Program {
    /// A program with one round and nothing ignored.
    pub fn new(script: &'static str, deadline: Duration) -> Self {
        Self { script, deadline, rounds: 1, ignored: &[], input: None, origin: None }
    }

    /// Runs it natively and in a mount, and compares everything. `disturb` runs beside the second
    /// one, until the flag it is given says that this is over.
    pub fn compare(
        &self,
        turn: &Turn,
        scratch: &Scratch,
        disturb: impl FnOnce(&AtomicBool) + Send,
    ) -> Result<()> {
        let before = Before::look();
        let native = self.native(turn, scratch, "native")?;
        let over = AtomicBool::new(false);
        let mounted = std::thread::scope(|scope| {
            scope.spawn(|| disturb(&over));
            let mounted = self.mounted(turn, scratch);
            over.store(true, Ordering::Relaxed);
            mounted
        })?;
        let (there, here) = (native.outcome.elapsed, mounted.outcome.elapsed);
        eprintln!("{}: {there:.2?} natively, {here:.2?} in the mount", self.script);
        if let Err(difference) = native.expect_same(&mounted) {
            // Not the mount's fault if the script does not do the same twice anywhere.
            if let Ok(again) = self.native(turn, scratch, "again") {
                native.expect_same(&again).with_context(|| format!("{}, natively", self.script))?;
            }
            return Err(difference.context(format!("{}, mounted", self.script)));
        }
        before.expect_nothing_since(scratch, &[], LEFTOVER_PATIENCE)
    }

    /// Runs it in the directory `mount` of the scratch, which is then moved to `label`.
    fn native(&self, _turn: &Turn, scratch: &Scratch, label: &str) -> Result<Run> {
        let mount = scratch.join("mount");
        self.plant(scratch, &mount)?;
        let archive = scratch.join(format!("{label}.tar"));
        let job = Job::new(scratch, label, "bash").args(self.arguments(&archive));
        let outcome = self.prepare(job, scratch).env("MAYFLY_MOUNT", mount).run()?;
        let outside = Tree::read(scratch.rename("mount", label)?)?;
        let inside = unpack(scratch, label, &archive)?;
        self.finish(outcome, inside, outside)
    }

    /// Makes the directory in which a run begins, or that is shown where it begins.
    fn plant(&self, scratch: &Scratch, directory: &Path) -> Result<()> {
        fs::create_dir(directory)?;
        if let Some(origin) = &self.origin {
            let copy = Job::new(scratch, "plant", "cp").args(["-a"]);
            copy.args([origin.join("."), directory.to_owned()]).run_ok()?;
        }
        Ok(())
    }

    /// Runs it in a mount at the directory `mount` of the scratch, saved to `saved`, or shown from
    /// there.
    fn mounted(&self, _turn: &Turn, scratch: &Scratch) -> Result<Run> {
        let archive = scratch.join("mounted.tar");
        let data = scratch.join("data");
        let (mount, saved) = (scratch.join("mount"), scratch.join("saved"));
        fs::create_dir(&data)?;
        let outside = if self.origin.is_some() {
            self.plant(scratch, &saved)?;
            "--origin"
        } else {
            "--save"
        };
        let job = Job::new(scratch, "mounted", binary::mayfly()?)
            .args(["run", "--name", INSTANCE])
            .args(["--mount".as_ref(), mount.as_os_str(), "--data-dir".as_ref(), data.as_os_str()])
            .args([outside.as_ref(), saved.as_os_str(), "--".as_ref(), "bash".as_ref()])
            .args(self.arguments(&archive));
        let outcome = self.prepare(job, scratch).run()?;
        let output = mayfly_testkit::job::tail(scratch, "mounted");
        let context = || format!("exit status {}\n{output}", outcome.code);
        let outside = Tree::read(saved).with_context(context)?;
        let inside = unpack(scratch, "mounted", &archive).with_context(context)?;
        let left: Vec<_> = fs::read_dir(&data)?.flatten().map(|entry| entry.path()).collect();
        ensure!(left.is_empty(), "left in the data directory: {left:?}");
        self.finish(outcome, inside, outside)
    }

    fn arguments(&self, archive: &Path) -> [PathBuf; 3] {
        let apps = apps_dir();
        [apps.join("run.sh"), apps.join(format!("{}.sh", self.script)), archive.to_path_buf()]
    }

    fn prepare<'a>(&self, job: Job<'a>, scratch: &Scratch) -> Job<'a> {
        let input = self.input.clone().unwrap_or_else(apps_dir);
        job.deadline(self.deadline)
            .env("APP_INPUT", input)
            .env("APP_ROUNDS", self.rounds.to_string())
            .env("APP_REFERENCE", scratch.join("native"))
    }

    fn finish(&self, outcome: Outcome, inside: Tree, outside: Tree) -> Result<Run> {
        let (inside, outside) = (inside.without(self.ignored), outside.without(self.ignored));
        Ok(Run { outcome, inside, outside })
    }
}

impl Run {
    /// An error unless both printed and left the same, and both succeeded.
    fn expect_same(&self, other: &Self) -> Result<()> {
        self.outside.expect_same(&other.outside).context("as it lies there afterwards")?;
        self.inside.expect_same(&other.inside).context("as a process inside sees it")?;
        ensure!(
            self.outcome.code == other.outcome.code,
            "exit status {} and {}\n{}",
            self.outcome.code,
            other.outcome.code,
            String::from_utf8_lossy(&other.outcome.stderr)
        );
        expect_same_text("standard output", &self.outcome.stdout, &other.outcome.stdout)?;
        expect_same_text("standard error", &self.outcome.stderr, &other.outcome.stderr)?;
        ensure!(!self.outside.is_empty(), "the program left nothing");
        let error = String::from_utf8_lossy(&self.outcome.stderr);
        ensure!(self.outcome.code == 0, "both runs failed with {}\n{error}", self.outcome.code);
        Ok(())
    }
}

pub(crate) fn expect_same_text(what: &str, one: &[u8], two: &[u8]) -> Result<()> {
    let (one, two) = (String::from_utf8_lossy(one), String::from_utf8_lossy(two));
    let lines = one.lines().zip(two.lines()).enumerate();
    for (number, (mine, theirs)) in lines {
        ensure!(mine == theirs, "{what}, line {}:\n  {mine}\n  {theirs}", number + 1);
    }
    ensure!(one == two, "{what}: {} and {} lines", one.lines().count(), two.lines().count());
    Ok(())
}

/// Kills the daemon of a program's mount again and again, after a pause each time, until the script
/// is done, which is when the archive is begun, or until the run is `over` for another reason.
/// Returns how often.
pub fn kill_daemons(
    scratch: &Scratch,
    over: &AtomicBool,
    mut pause: impl FnMut() -> Duration,
) -> Result<u32> {
    let instance = Instance::named(scratch, INSTANCE)?;
    let archive = scratch.join("mounted.tar");
    let mut kills = 0;
    while !over.load(Ordering::Relaxed) && !archive.exists() {
        std::thread::sleep(pause());
        // Before the instance is up and after its end there is no status; that is no error here.
        let Ok(pid) = instance.daemon_pid() else { continue };
        kills += u32::from(process::kill(pid));
    }
    Ok(kills)
}

/// Where the scripts are.
pub fn apps_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("apps")
}

fn unpack(scratch: &Scratch, label: &str, archive: &Path) -> Result<Tree> {
    let target = scratch.join(format!("{label}.inside"));
    fs::create_dir(&target)?;
    let label = format!("{label}-tar");
    let job =
        Job::new(scratch, &label, "tar").args(["-xpf".as_ref(), archive, "-C".as_ref(), &target]);
    job.run_ok()?;
    Tree::read(target)
}
