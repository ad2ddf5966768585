//! A site's prolog and epilog, in a real Slurm, for jobs of another user where the test is root's.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Scratch, Turn, binary, process};
use mayfly_tests::{
    passable::{NOBODY, Passable},
    slurm::{Cluster, Extra, NODES, PATIENCE, is_possible},
};

const SUITE: &str = "site";

/// A cluster whose site has installed Mayfly.
struct Bench<'a> {
    scratch: &'a Scratch,
    cluster: Cluster<'a>,
    program: PathBuf,
    /// Jobs are another user's.
    is_root: bool,
    _passable: Option<Passable>,
}

impl<'a> Bench<'a> {
    fn start(scratch: &'a Scratch, more: &str) -> Result<Bench<'a>> {
        Bench::start_with(scratch, more, "")
    }

    /// With lines of slurm.conf.
    fn start_with(scratch: &'a Scratch, more: &str, slurm: &str) -> Result<Bench<'a>> {
        let is_root = rustix::process::geteuid().is_root();
        let passable = if is_root { Passable::make(scratch)? } else { None };
        let is_root = is_root && passable.is_some();
        let program = scratch.join("mayfly");
        fs::copy(binary::mayfly()?, &program)?;
        let config = scratch.join("site.toml");
        let root = scratch.path().display();
        let text = format!(
            "run = \"{root}/%n/site-run\"\ndata = \"{root}/%n/site-data\"\n\
             key = \"{root}/site.key\"\nports = \"17400-17499\"\n{more}"
        );
        fs::write(&config, text)?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o644))?;
        Job::new(scratch, "key", &program)
            .args(["site", "key"])
            .args([scratch.join("site.key")])
            .run_ok()?;
        let shipped = binary::workspace().join("integrations/slurm");
        let mut lines = format!("PrologFlags=Alloc\n{slurm}");
        for (name, file) in
            [("Prolog", "prolog.sh"), ("Epilog", "epilog.sh"), ("TaskProlog", "task-prolog.sh")]
        {
            // What a site does: a script of its own that calls ours.
            let path = scratch.join(file);
            let log = if name == "TaskProlog" {
                String::new()
            } else {
                format!(">> {root}/{file}.log 2>&1")
            };
            let script = format!(
                "#!/bin/sh\nf={root}/{name}-$SLURMD_NODENAME; [ -e $f ] && . $f\n\
                 MAYFLY={} MAYFLY_SITE={} {} {log}\n",
                program.display(),
                config.display(),
                shipped.join(file).display()
            );
            fs::write(&path, script)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            lines.push_str(&format!("{name}={}\n", path.display()));
        }
        // Slurm's programs know nothing of the test's directories, which users must pass.
        let task = fs::read_to_string(scratch.join("task-prolog.sh"))?;
        let inlined = task.replace(
            &shipped.join("task-prolog.sh").display().to_string(),
            &format!("{root}/shipped-task-prolog.sh"),
        );
        fs::write(scratch.join("task-prolog.sh"), inlined)?;
        fs::copy(shipped.join("task-prolog.sh"), scratch.join("shipped-task-prolog.sh"))?;
        let program_there = Some(program.clone());
        let gres = if more.contains("gres") { "mayfly" } else { "" };
        let features = "mayfly";
        let extra = Extra { config: lines, features, gres, program: program_there };
        let cluster = Cluster::start_with(scratch, &extra)?;
        for node in NODES {
            fs::set_permissions(scratch.join(node), fs::Permissions::from_mode(0o711))?;
        }
        let jobs = scratch.join("jobs");
        fs::create_dir(&jobs)?;
        if is_root {
            chown(&jobs, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(Bench { scratch, cluster, program, is_root, _passable: passable })
    }

    /// Submits a script for both nodes; its number.
    fn submit(&self, name: &str, script: &str, options: &[&str]) -> Result<String> {
        let path = self.scratch.join("jobs").join(format!("{name}.sh"));
        fs::write(&path, format!("#!/bin/sh\n{script}"))?;
        let mut job = self.cluster.job(name, "sbatch").args(["--parsable", "--nodes=2"]);
        // The directories of the test are not its user's.
        job = job.env("TMPDIR", "/tmp").env("XDG_RUNTIME_DIR", "");
        job = job.args(options).args([format!("--output={}", self.output(name).display())]);
        if self.is_root {
            job = job.args([format!("--uid={NOBODY}"), format!("--gid={NOBODY}")]);
        }
        job = job.args([format!("--chdir={}", self.scratch.join("jobs").display())]);
        let outcome = job.args([path]).run_ok()?;
        Ok(String::from_utf8(outcome.stdout)?.trim().to_owned())
    }

    fn output(&self, name: &str) -> PathBuf {
        self.scratch.join("jobs").join(format!("{name}.out"))
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.output(name)).unwrap_or_default()
    }

    /// What Slurm shows of a job.
    fn shown(&self, job: &str) -> Result<String> {
        let outcome =
            self.cluster.job("show", "scontrol").args(["-o", "show", "job", job]).run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
    }

    fn await_state(&self, job: &str, state: &str) -> Result<String> {
        self.await_shown(job, &format!("JobState={state} "))
    }

    fn await_shown(&self, job: &str, words: &str) -> Result<String> {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let shown = self.shown(job)?;
            if shown.contains(words) {
                return Ok(shown);
            }
            ensure!(Instant::now() < deadline, "not {words}: {shown}{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// It has nodes, and a prolog runs on them.
    fn await_begun(&self, job: &str) -> Result<()> {
        let deadline = Instant::now() + 2 * PATIENCE;
        while self.shown(job)?.contains("JobState=PENDING ") {
            ensure!(Instant::now() < deadline, "it has no nodes: {}", self.shown(job)?);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn await_said(&self, name: &str, words: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.said(name).contains(words) {
            ensure!(Instant::now() < deadline, "{name}: {}{}", self.said(name), self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn logs(&self) -> String {
        let log = |file: &str| fs::read_to_string(self.scratch.join(file)).unwrap_or_default();
        format!("\nprologs: {}\nepilogs: {}", log("prolog.sh.log"), log("epilog.sh.log"))
    }

    /// The nodes take jobs, and nothing of any is left on them.
    fn expect_idle_and_clean(&self) -> Result<()> {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let left = self.left()?;
            // A node that still ends a job is not one that is idle, but `-t idle` shows it.
            let asked = self.cluster.job("sinfo", "sinfo").args(["-h", "-N", "-o", "%N %T"]);
            let idle = asked.run()?.stdout == b"n1 idle\nn2 idle\n";
            if idle && left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "idle {idle}, left {left:?}{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Directories and processes of jobs.
    fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for node in NODES {
            for place in ["site-run", "site-data"] {
                let entries = fs::read_dir(self.scratch.join(node).join(place));
                let entries = entries.into_iter().flatten().flatten();
                left.extend(entries.map(|entry| entry.path().display().to_string()));
            }
        }
        for entry in fs::read_dir("/proc")?.flatten() {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let text = String::from_utf8_lossy(&words).replace('\0', " ");
            let program = self.program.display().to_string();
            if text.starts_with(&format!("{program} __")) {
                left.push(text);
            }
        }
        Ok(left)
    }

    fn clean(&self, node: &str) -> Result<()> {
        let job =
            Job::new(self.scratch, "clean", &self.program).args(["site", "clean", "--config"]);
        let job = job.args([self.scratch.join("site.toml")]).args(["--node", node]);
        job.run_ok().map(drop)
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // What jobs have started does not have the scratch's mark.
        for node in NODES {
            let _ = self.clean(node);
        }
    }
}

impl Bench<'_> {
    /// By a generic resource, and over several components.
    fn expect_other_ways(&self) -> Result<()> {
        let script = "ls -d $MAYFLY_MOUNT && echo good\n";
        let job = self.submit("gres", script, &["--gres=mayfly"])?;
        let shown = self.await_state(&job, "COMPLETED")?;
        ensure!(self.said("gres").ends_with("good\n"), "{}{shown}", self.said("gres"));

        // All components of a heterogeneous job have one, also when only one of them asks.
        let script = "echo text > $MAYFLY_MOUNT/first\n\
                  srun --het-group=1 sh -c 'ls $MAYFLY_MOUNT; echo $MAYFLY_RUN_ROOT'\necho good\n";
        let first = ["--nodes=1", "--constraint=mayfly", ":"];
        let job = self.submit("het", script, &[&first[..], &["--nodes=1"]].concat())?;
        let shown = self.await_state(&job, "COMPLETED")?;
        let there =
            format!("first\n{}/n2/site-run/{job}/mayfly\ngood\n", self.scratch.path().display());
        ensure!(self.said("het") == there, "{}{shown}{}", self.said("het"), self.logs());
        Ok(())
    }
}

impl Bench<'_> {
    /// By the comment alone, twice at a time on the same nodes, and as an array.
    fn expect_several_at_a_time(&self) -> Result<()> {
        let each = "echo $SLURM_JOB_ID > $MAYFLY_MOUNT/own; sleep 1; ls $MAYFLY_MOUNT; \
                    cat $MAYFLY_MOUNT/own; echo good\n";
        let comment = "--comment=mayfly capacity=64M";
        // A prolog that has to wait looks whether its job is over: all of an array is shown then.
        fs::write(self.scratch.join("Prolog-n2"), "sleep 3\n")?;
        let one = self.submit("one", each, &[comment])?;
        let array = self.submit("array-%a", each, &[comment, "--array=1-2"])?;
        for (job, name) in [(one, "one"), (array.clone(), "array-1"), (array, "array-2")] {
            self.await_state(&job, "COMPLETED")?;
            self.await_said(name, "good\n")?;
            ensure!(self.said(name).starts_with("own\n"), "{name}: {}", self.said(name));
        }
        Ok(())
    }

    /// A job that is cancelled while its first node waits for one that was never made ready.
    fn expect_end_without_a_node(&self) -> Result<()> {
        let missing = self.scratch.join("Prolog-n2");
        fs::write(&missing, "exit 0\n")?;
        let job = self.submit("alone", "true\n", &["--constraint=mayfly"])?;
        let deadline = Instant::now() + PATIENCE;
        while !self.left()?.iter().any(|left| left.contains("__site-reach")) {
            ensure!(Instant::now() < deadline, "nothing is waited for: {:?}", self.left()?);
            std::thread::sleep(Duration::from_millis(20));
        }
        self.cluster.job("scancel", "scancel").args([&job]).run_ok()?;
        self.expect_idle_and_clean().context("alone")?;
        // Neither was a node found guilty, nor is it begun again.
        self.await_state(&job, "CANCELLED")?;
        Ok(fs::remove_file(missing)?)
    }
}

#[test]
fn a_job_that_asks_finds_an_instance_on_its_nodes_and_its_results_outside() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("site")?;
    let options = "options = \"capacity=64M\"\ngres = \"mayfly\"\n";
    let bench = Bench::start_with(&scratch, options, "SchedulerParameters=bf_interval=1\n")?;
    let jobs = scratch.join("jobs");
    fs::create_dir(jobs.join("case"))?;
    fs::write(jobs.join("case/input"), "input\n")?;
    let script = format!(
        "#MAYFLY stage_in={0}/case:case layout=stripe\n#MAYFLY stage_out=case/results:{0}/results\n\
         set -e\nid -u\nmkdir $MAYFLY_MOUNT/case/results\n\
         srun sh -c 'cat $MAYFLY_MOUNT/case/input > $MAYFLY_MOUNT/case/results/$SLURM_PROCID'\n\
         {1} status\necho good\n",
        jobs.display(),
        bench.program.display()
    );
    let job = bench.submit("asks", &script, &["--constraint=mayfly"])?;
    let shown = bench.await_state(&job, "COMPLETED")?;
    let said = bench.said("asks");
    ensure!(said.ends_with("good\n"), "{said}{shown}{}", bench.logs());
    for words in [format!("job-{job}, 2 nodes"), "64.0 MiB".to_owned()] {
        ensure!(said.contains(&words), "nothing of {words:?}: {said}");
    }
    ensure!(!bench.is_root || said.starts_with("65534\n"), "whose job was it? {said}");
    bench.expect_idle_and_clean()?;
    for task in ["0", "1"] {
        let path = jobs.join("results").join(task);
        ensure!(fs::read(&path)? == b"input\n", "{}", path.display());
    }

    // The script of the guide, as it stands there.
    let guide = fs::read_to_string(binary::workspace().join("docs/guide/batch.md"))?;
    let script =
        guide.split("\n## Where the site has").nth(1).and_then(|part| part.split("```").nth(1));
    let script = script.context("no script in the guide")?.trim_start_matches("sh\n#!/bin/sh\n");
    ensure!(script.contains("#MAYFLY stage_in=/scratch/me/"), "{script}");
    let solver = "cp \"$MAYFLY_MOUNT/case/input\" \"$MAYFLY_MOUNT/case/results/of-$SLURM_PROCID\"";
    fs::write(jobs.join("solver"), format!("#!/bin/sh\n{solver}\n"))?;
    fs::set_permissions(jobs.join("solver"), fs::Permissions::from_mode(0o755))?;
    fs::create_dir(jobs.join("case/results"))?;
    let script = script.replace("/scratch/me", &jobs.display().to_string());
    let script = script.replace("srun solver", "srun ./solver");
    let job = bench.submit("guide", &script, &[])?;
    bench.await_state(&job, "COMPLETED")?;
    for task in ["of-0", "of-1"] {
        ensure!(
            fs::read(jobs.join("results").join(task))? == b"input\n",
            "{}",
            bench.said("guide")
        );
    }

    bench.expect_other_ways()?;

    bench.expect_several_at_a_time()?;
    bench.expect_idle_and_clean()
}

#[test]
fn a_job_that_does_not_ask_is_left_alone_and_words_that_mean_nothing_hold_one() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("site-held")?;
    let bench = Bench::start(&scratch, "")?;
    let script = "echo mount $MAYFLY_MOUNT, library $LD_PRELOAD; ls $1\n";
    let job = bench.submit("alone", script, &[])?;
    bench.await_state(&job, "COMPLETED")?;
    ensure!(bench.said("alone").starts_with("mount , library"), "{}", bench.said("alone"));
    ensure!(!bench.said("alone").contains("libmayfly"), "{}", bench.said("alone"));
    bench.expect_idle_and_clean()?;

    let script = "#MAYFLY capacity=64M layuot=stripe\necho began\n";
    let job = bench.submit("wrong", script, &["--constraint=mayfly"])?;
    let shown = bench.await_shown(&job, "Reason=job_requeued_in_held_state")?;
    for words in ["layuot=stripe", "means nothing"] {
        ensure!(shown.contains(words), "nothing of {words:?}: {shown}");
    }
    ensure!(!bench.said("wrong").contains("began"), "it began without an instance");
    // The nodes have no part in that.
    bench.expect_idle_and_clean()?;
    bench.cluster.job("scancel", "scancel").args([job]).run_ok()?;

    // What came in before that is not brought out: with a part of it, that would undo the rest.
    let out = scratch.join("jobs/results");
    let script = format!(
        "#MAYFLY stage_in={0}:case stage_in=/nowhere:x stage_out=case:{1}\necho began\n",
        bench.scratch.join("jobs/missing.sh").display(),
        out.display()
    );
    let job = bench.submit("missing", &script, &["--constraint=mayfly"])?;
    let shown = bench.await_shown(&job, "Reason=job_requeued_in_held_state")?;
    ensure!(shown.contains("/nowhere was not brought in"), "{shown}");
    bench.expect_idle_and_clean()?;
    ensure!(!out.exists(), "what a job never had was brought out");
    bench.cluster.job("scancel", "scancel").args([job]).run_ok().map(drop)
}

#[test]
fn jobs_that_end_anyhow_leave_nothing_and_come_again() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("site-ends")?;
    let bench = Bench::start(&scratch, "")?;
    let script = "srun sh -c 'for i in $(seq 100); do echo x > $MAYFLY_MOUNT/$SLURM_PROCID-$i; \
                  done; sleep 60' & echo working; wait\n";
    // At whatever moment it is.
    for (number, pause) in [0_u64, 50, 100, 200, 400, 800].into_iter().enumerate() {
        let name = format!("ended{number}");
        let job = bench.submit(&name, script, &["--constraint=mayfly"])?;
        bench.await_begun(&job)?;
        std::thread::sleep(Duration::from_millis(pause));
        if number == 4 {
            for process in bench.left()? {
                ensure!(!process.is_empty());
            }
            kill_all(&bench.program)?;
        }
        bench.cluster.job("scancel", "scancel").args([&job]).run_ok()?;
        bench.expect_idle_and_clean().with_context(|| name)?;
    }
    bench.expect_end_without_a_node()?;
    // One that is put back into the queue gets another instance.
    let script = "ls -A $MAYFLY_MOUNT | wc -l; echo x > $MAYFLY_MOUNT/file; echo run \
                  $SLURM_RESTART_COUNT; [ -n \"$SLURM_RESTART_COUNT\" ] || sleep 60\n";
    let options = ["--constraint=mayfly", "--open-mode=append"];
    let job = bench.submit("again", script, &options)?;
    bench.await_said("again", "run")?;
    bench.cluster.job("requeue", "scontrol").args(["requeue", &job]).run_ok()?;
    // It would wait for two minutes otherwise.
    bench.await_state(&job, "PENDING")?;
    let now = [format!("JobId={job}"), "StartTime=now".to_owned()];
    bench.cluster.job("now", "scontrol").args(["update"]).args(now).run_ok()?;
    bench.await_said("again", "run 1")?;
    ensure!(bench.said("again").matches("0\n").count() == 2, "{}", bench.said("again"));
    bench.expect_idle_and_clean()?;

    // Everything is gone at once, as with the node's power: the unit at the next start clears up.
    let job = bench.submit("lost", "echo working; sleep 60\n", &["--constraint=mayfly"])?;
    bench.await_said("lost", "working")?;
    kill_all(&bench.program)?;
    for node in NODES {
        bench.clean(node)?;
    }
    ensure!(bench.left()?.is_empty(), "{:?}", bench.left());
    bench.cluster.job("scancel", "scancel").args([&job]).run_ok()?;
    bench.expect_idle_and_clean()
}

/// By Slurm's burst_buffer/lua, on the controller's host.
#[test]
fn a_line_of_the_script_is_enough_where_slurm_reads_it_and_a_wrong_one_is_no_job() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("site-buffer")?;
    let script = binary::workspace().join("integrations/slurm/burst_buffer.lua");
    fs::copy(script, scratch.join("burst_buffer.lua"))?;
    fs::write(scratch.join("burst_buffer.conf"), "Directive=MAYFLY\n")?;
    let bench = Bench::start_with(&scratch, "", "BurstBufferType=burst_buffer/lua\n")?;
    let refused = bench.submit("wrong", "#MAYFLY layuot=stripe\ntrue\n", &[]);
    let told = format!("{:#}", refused.err().context("a job whose line means nothing")?);
    ensure!(told.contains("layuot=stripe") && told.contains("means nothing"), "{told}");
    let out = scratch.join("jobs/results");
    let script = format!(
        "#MAYFLY size=64M stage_out=r:{}\nmkdir $MAYFLY_MOUNT/r\n\
         srun sh -c 'df $MAYFLY_MOUNT > $MAYFLY_MOUNT/r/$SLURM_PROCID'\n",
        out.display()
    );
    let job = bench.submit("line", &script, &["--comment=a run of mine"])?;
    let shown = bench.await_state(&job, "COMPLETED")?;
    ensure!(shown.contains("Comment=mayfly; a run of mine"), "{shown}");
    for task in ["0", "1"] {
        let told = fs::read_to_string(out.join(task)).unwrap_or_default();
        ensure!(told.contains(" 131072 "), "{told}{}{}", bench.said("line"), bench.logs());
    }
    // One without such a line has nothing to do with it.
    let job = bench.submit("none", "echo mount $MAYFLY_MOUNT\n", &["--comment=another one"])?;
    let shown = bench.await_state(&job, "COMPLETED")?;
    ensure!(shown.contains("Comment=another one") && bench.said("none") == "mount\n", "{shown}");
    bench.expect_idle_and_clean()
}

/// Kills everything that runs of a program.
fn kill_all(program: &Path) -> Result<()> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let is_it = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|_| is_it) {
            process::kill(pid);
        }
    }
    Ok(())
}
