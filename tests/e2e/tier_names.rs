//! Names of an origin that are changed there after the calls have returned: on a slow file system,
//! through deaths of the daemon, and when they cannot be changed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process, skip};
use outside::{Call, Outside, Speeds};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);
const NODES: usize = 4;

/// An instance that shows what is shown slowly.
struct Slow<'a> {
    scratch: &'a Scratch,
    instance: Instance<'a>,
    below: PathBuf,
    shown: PathBuf,
    outside: Outside,
}

fn is_possible() -> bool {
    skip::unless_mountable("slow origins")
        && skip::unless_one_node("what one node has of an origin")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of this suite is text")
}

fn plant(directory: &Path) -> Result<()> {
    for node in 0..NODES {
        fs::create_dir_all(directory.join(format!("n{node}/old")))?;
        fs::write(directory.join(format!("n{node}/old/file")), format!("{node}\n"))?;
    }
    Ok(())
}

impl<'a> Slow<'a> {
    fn start(scratch: &'a Scratch, name: &str, options: &[&str]) -> Result<Slow<'a>> {
        let (below, shown) = (scratch.join(format!("{name}-below")), scratch.join("shown"));
        plant(&below)?;
        fs::create_dir(&shown)?;
        let speeds = Speeds { metadata: Duration::from_millis(2), ..Speeds::default() };
        let outside = Outside::show(&below, &shown, speeds)?;
        let instance = Instance::named(scratch, name)?;
        let mount = scratch.join(format!("{name}-mnt"));
        let start = instance.command("start").args(["--mount", text(&mount)?, "--origin"]);
        start.args([text(&shown)?, "--names", "async"]).args(options).run_ok()?;
        Ok(Slow { scratch, instance, below, shown, outside })
    }

    fn sh(&self, script: &str) -> Result<String> {
        let script = format!("cd \"$MAYFLY_MOUNT\" && {{ {script}\n}}");
        let outcome = self.instance.shell("job", &script).deadline(PATIENCE).run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).trim().to_owned())
    }

    /// The same, before the keeper can have said that it fails.
    fn make_slowly(&self, script: &str) -> Result<()> {
        self.sh("ls")?;
        let speeds = |metadata_ms| Speeds {
            metadata: Duration::from_millis(metadata_ms),
            ..Speeds::default()
        };
        self.outside.pace().set_speeds(speeds(700));
        self.sh(script)?;
        self.outside.pace().set_speeds(speeds(2));
        Ok(())
    }

    /// The same is outside and inside as where the script has worked without an instance.
    fn expect_as_natively(&self, script: &str, inside: &str) -> Result<()> {
        let natively = self.scratch.join("natively");
        plant(&natively)?;
        let run = |directory: &Path, script: &str| -> Result<String> {
            let script = format!("cd {} && {{ {script}\n}}", text(directory)?);
            let outcome = Job::new(self.scratch, "run", "bash").args(["-c", &script]).run_ok()?;
            Ok(String::from_utf8_lossy(&outcome.stdout).trim().to_owned())
        };
        run(&natively, script)?;
        let wanted = run(&natively, SHOW)?;
        ensure!(inside == wanted, "inside:\n{inside}\nwanted:\n{wanted}");
        let found = run(&self.below, SHOW)?;
        ensure!(found == wanted, "outside:\n{found}\nwanted:\n{wanted}");
        Ok(())
    }

    fn tier(&self, what: &[&str]) -> Result<Job<'a>> {
        let job = Job::new(self.scratch, "tier", binary::mayfly()?).args(["tier"]).args(what);
        Ok(job.args(["--name", self.instance.name()]).deadline(PATIENCE))
    }

    fn origin(&self, field: &str) -> Result<u64> {
        let outcome = self.tier(&["status", "--json"])?.run_ok()?;
        let status: Value = serde_json::from_slice(&outcome.stdout)?;
        status["origins"][0][field].as_u64().with_context(|| format!("no {field}: {status}"))
    }

    fn wait_for(&self, field: &str, wanted: u64) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.origin(field)? != wanted {
            ensure!(Instant::now() < until, "{field} never is {wanted}");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Makes a tree of 3 levels, looks at it, and removes its files, in one process; how long it took,
/// microseconds.
const TREE: &str = "
begin=$EPOCHREALTIME
for a in 1 2 3; do for b in 1 2 3; do for i in 1 2 3 4 5 6 7 8 9 10 11; do
    : > d$a/e$b/f$i; [ -f d$a/e$b/f$i ] || exit 1
done; done; done
end=$EPOCHREALTIME
echo $((${end/[.,]/} - ${begin/[.,]/}))";

const DIRECTORIES: &str = "mkdir -p d{1,2,3}/e{1,2,3}";

#[test]
fn a_tree_is_made_at_once_and_is_outside_when_it_was_flushed() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    for access in ["preload", "fuse"] {
        let scratch = Scratch::new("names-tree")?;
        let slow = Slow::start(&scratch, "tree", &["--access", access])?;
        let here: u64 = slow.sh(&format!("{DIRECTORIES}; {TREE}"))?.parse()?;
        slow.tier(&["flush"])?.run_ok()?;
        ensure!(slow.origin("names_waiting")? == 0);
        let find = Job::new(&scratch, "find", "find").args([text(&slow.below)?, "-type", "f"]);
        let found = find.run_ok()?.stdout;
        ensure!(
            found.iter().filter(|byte| **byte == b'\n').count() == 99 + NODES,
            "files are missing"
        );
        slow.sh("rm -r d1 && [ ! -e d1 ]")?;
        slow.instance.stop()?;
        ensure!(!slow.below.join("d1").exists() && slow.below.join("d2/e3/f11").exists());
        let script =
            format!("cd {} && mkdir x && cd x && {DIRECTORIES}; {TREE}", text(&slow.shown)?);
        let directly = Job::new(&scratch, "directly", "bash").args(["-c", &script]);
        let directly = String::from_utf8_lossy(&directly.deadline(PATIENCE).run_ok()?.stdout)
            .trim()
            .parse::<u64>()?;
        ensure!(directly > 4 * here, "{access}: {here} µs here, {directly} µs directly");
    }
    Ok(())
}

/// Changes of all kinds, which leave what a directory of this machine has after them.
const WORK: &str = "
for i in $(seq 1 12); do
    mkdir -p t$i/a/b && echo $i > t$i/a/b/file && : > t$i/empty && ln -s a/b t$i/link || exit 1
    mv t$i/a t$i/c && echo more >> t$i/c/b/file && chmod 640 t$i/c/b/file || exit 1
    touch -d @1000000000 t$i/empty && mkdir t$i/a && mv t$i/c/b t$i/a/b || exit 1
    rm t$i/link && rmdir t$i/c && mv t$i/a/b/file t$i/a/file && mkdir t$i/c || exit 1
    if [ $((i % 3)) = 0 ]; then rm -r t$i || exit 1; fi
done";

const SHOW: &str = "find . -printf '%P %y %m\\n' | LC_ALL=C sort; \
                    find . -type f -name empty -printf '%P %T@\\n' | LC_ALL=C sort; \
                    cat $(find . -name file | LC_ALL=C sort)";

#[test]
fn what_was_acknowledged_is_done_outside_whatever_dies_meanwhile() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("names-kills")?;
    let slow = Slow::start(&scratch, "kills", &[])?;
    let over = AtomicBool::new(false);
    let kills = thread::scope(|scope| {
        let killing = scope.spawn(|| {
            let mut kills = 0;
            while !over.load(Relaxed) {
                thread::sleep(Duration::from_millis(150));
                kills += usize::from(slow.instance.daemon_pid().is_ok_and(process::kill));
            }
            kills
        });
        let done = slow.sh(WORK);
        over.store(true, Relaxed);
        let kills = killing.join().unwrap_or(0);
        done.map(|_| kills)
    })?;
    ensure!(kills > 0, "nobody was killed");
    let inside = slow.sh(SHOW)?;
    slow.instance.stop()?;
    slow.expect_as_natively(WORK, &inside)
}

#[test]
fn that_is_so_on_several_nodes() -> Result<()> {
    if !skip::unless_mountable("slow origins") || !skip::unless_one_node("these are four") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("names-nodes")?;
    let slow = Slow::start(&scratch, "nodes", &["--nodes", &format!("local:{NODES}")])?;
    let on = |node: usize, script: &str| {
        slow.instance.on_node(node, &format!("cd \"$MAYFLY_MOUNT\" && {{ {script}\n}}"))
    };
    // Each in a directory that mostly is another node's.
    let work = |node: usize| {
        format!("(cd n{node} && rm -r old && {{ {WORK}\n}} && mkdir old && echo 7 > old/file)")
    };
    let over = AtomicBool::new(false);
    let kills = thread::scope(|scope| {
        let killing = scope.spawn(|| {
            let mut kills = 0;
            while !over.load(Relaxed) {
                thread::sleep(Duration::from_millis(400));
                let daemon = slow.instance.daemon_pid_of(kills % NODES);
                kills += usize::from(daemon.is_ok_and(process::kill));
            }
            kills
        });
        let (on, work) = (&on, &work);
        let jobs = (1..NODES).map(|node| scope.spawn(move || on(node - 1, &work(node))));
        let jobs: Vec<_> = jobs.collect();
        let ended = jobs.into_iter().map(|job| job.join().unwrap_or_else(|_| bail!("a panic")));
        let ended: Vec<Result<String>> = ended.collect();
        over.store(true, Relaxed);
        let kills = killing.join().unwrap_or(0);
        ended.into_iter().collect::<Result<Vec<_>>>().map(|_| kills)
    })?;
    ensure!(kills > 0, "nobody was killed");
    on(0, "rm -r n2")?;
    let inside = on(2, SHOW)?;
    slow.instance.command("fsck").run_ok()?;
    slow.instance.stop()?;
    let all = (1..NODES).map(work).collect::<Vec<_>>().join(" && ");
    slow.expect_as_natively(&format!("{all} && rm -r n2"), &inside)
}

#[test]
fn what_cannot_be_done_outside_is_told_once_and_by_status_and_tried_again() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("names-fails")?;
    let slow = Slow::start(&scratch, "fails", &["--validate", "1h"])?;
    slow.outside.pace().fail(Call::MakeDirectory, libc::EDQUOT, 1_000);
    slow.make_slowly("mkdir d && echo x > d/f")?;
    slow.wait_for("names_waiting", 0)?;
    ensure!(slow.origin("names_failed")? >= 2, "{}", slow.origin("names_failed")?);
    let said = slow.sh("LC_ALL=C stat d 2>&1 > /dev/null; LC_ALL=C stat -c %F d")?;
    ensure!(said.contains("quota exceeded") && said.ends_with("directory"), "{said}");
    let status = String::from_utf8_lossy(&slow.tier(&["status"])?.run_ok()?.stdout).into_owned();
    ensure!(status.contains("/d: Disk quota exceeded") && status.contains("failed"), "{status}");
    let flush = slow.tier(&["flush"])?.run()?;
    ensure!(flush.code != 0, "{}", String::from_utf8_lossy(&flush.stderr));
    ensure!(!slow.below.join("d").exists());
    slow.outside.pace().fail(Call::MakeDirectory, libc::EDQUOT, 0);
    slow.tier(&["flush"])?.run_ok()?;
    ensure!(fs::read(slow.below.join("d/f"))? == b"x\n", "what waited was not written");
    slow.instance.stop()
}

#[test]
fn an_instance_whose_names_cannot_be_made_outside_keeps_its_data() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("names-kept")?;
    let data = scratch.join("data");
    fs::create_dir(&data)?;
    let slow = Slow::start(&scratch, "kept", &["--data-dir", text(&data)?])?;
    slow.outside.pace().fail(Call::MakeDirectory, libc::EDQUOT, 1_000_000);
    slow.make_slowly("mkdir d && echo precious > d/f")?;
    let stopped = slow.instance.command("stop").run()?;
    let told = String::from_utf8_lossy(&stopped.stderr).into_owned();
    ensure!(stopped.code != 0 && told.contains("could not be written back"), "{told}");
    let Some(kept) = fs::read_dir(&data)?.next() else { bail!("the data are gone") };
    slow.outside.pace().fail(Call::MakeDirectory, libc::EDQUOT, 0);
    let later = Instance::named(&scratch, "later")?;
    later.command("start").args(["--reopen", text(&kept?.path())?]).run_ok()?;
    later.stop()?;
    ensure!(fs::read(slow.below.join("d/f"))? == b"precious\n");
    Ok(())
}

#[test]
fn words_that_fit_no_origin_are_refused() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("names-refused")?;
    let cases: [(&[&str], &str); 2] = [
        (&["--names", "async"], "say --origin"),
        (&["--names", "async", "--origin", "s3://bucket/data:data"], "names of a bucket"),
    ];
    for (options, word) in cases {
        let job = Job::new(&scratch, "start", binary::mayfly()?).args(["start", "--name", "no"]);
        let outcome = job.args(options).run()?;
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        ensure!(outcome.code != 0 && told.contains(word), "{options:?}: {told}");
    }
    Ok(())
}
