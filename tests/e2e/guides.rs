//! The job scripts of `docs/guide/batch.md` run as they stand there: Slurm's on a real one, those
//! of other batch systems with the variables that these document, and stand-ins for what starts
//! programs on other nodes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Scratch, Turn, binary, skip};
use mayfly_tests::slurm::{Cluster, is_possible};

const SUITE: &str = "guides";

/// A user's program: copies its input to the results beside it, or makes a file here.
const SOLVER: &str =
    "#!/bin/sh\nif [ -e \"$1\" ]; then d=$(dirname \"$1\")/results; mkdir -p \"$d\"
cp \"$1\" \"$d/out.${SLURM_PROCID:-0}\"; else echo made > out; fi\n";
const TRAIN: &str =
    "#!/bin/sh\ntest \"$1\" = --data && cat \"$2/sample\" > trained.$SLURM_PROCID\n";
/// Starts a command on another host, which is this one with other directories.
const REMOTE: &str = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nexport \
                      XDG_RUNTIME_DIR=$ROOT/$1/run TMPDIR=$ROOT/$1/tmp\nshift\nexec sh -c \"$*\"\n";
const MPIRUN: &str = "#!/bin/sh\nexec \"$@\"\n";
const FLUX: &str = "#!/bin/sh\ncase $1 in hostlist) echo $FLUX_HOSTS;; run) shift 2; exec \"$@\";; \
                    esac\n";

/// The scripts below a heading.
fn scripts(heading: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(binary::workspace().join("docs/guide/batch.md"))?;
    let below = text.split("\n## ").find(|part| part.starts_with(heading));
    let below = below.with_context(|| format!("no {heading:?}"))?;
    let blocks = below.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let scripts: Vec<String> = blocks.map(str::to_owned).collect();
    ensure!(!scripts.is_empty() && scripts.iter().all(|script| script.starts_with("#!/bin/sh\n")));
    Ok(scripts)
}

fn program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// A directory from which a job is submitted, and programs beside it.
fn prepare(scratch: &Scratch, number: usize) -> Result<(PathBuf, String)> {
    let bin = scratch.join("bin");
    if !bin.exists() {
        fs::create_dir(&bin)?;
        std::os::unix::fs::symlink(binary::mayfly()?, bin.join("mayfly"))?;
        let stand_ins = [("solver", SOLVER), ("train", TRAIN), ("mpirun", MPIRUN), ("flux", FLUX)];
        for (name, text) in stand_ins {
            program(&bin.join(name), text)?;
        }
        for name in ["ssh", "pbs_tmrsh", "blaunch", "oarsh"] {
            program(&bin.join(name), REMOTE)?;
        }
    }
    let work = scratch.join(format!("work{number}"));
    for (directory, file) in [("case", "input"), ("dataset", "sample")] {
        fs::create_dir_all(work.join(directory))?;
        fs::write(work.join(directory).join(file), "content\n")?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    Ok((work, format!("{}:{path}", bin.display())))
}

fn expect(work: &Path, file: &str, content: &str, said: &str) -> Result<()> {
    let found = fs::read_to_string(work.join(file)).unwrap_or_default();
    ensure!(found == content, "{file} is {found:?}: {said}");
    Ok(())
}

#[test]
fn the_job_scripts_for_slurm_run() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("guides-slurm")?;
    let cluster = Cluster::start(&scratch)?;
    let results: [&[&str]; 5] = [
        &["results/out.0"],
        &["results/out.0", "results/out.1"],
        &["results/1/out", "results/2/out"],
        &["trained.0", "trained.1"],
        &["results/out.0", "results/out.1"],
    ];
    let scripts = scripts("Slurm\n")?;
    ensure!(scripts.len() == results.len(), "{} scripts", scripts.len());
    for (number, (script, results)) in scripts.iter().zip(results).enumerate() {
        let (work, path) = prepare(&scratch, number)?;
        let file = scratch.join(format!("job{number}.sh"));
        fs::write(&file, script)?;
        let output = scratch.join(format!("job{number}.out"));
        let said = format!("--output={}", output.display());
        let options =
            ["--parsable", "--chdir", &work.display().to_string(), &said].map(str::to_owned);
        let job = cluster.job("sbatch", "sbatch").env("PATH", &path).args(options).args([&file]);
        let job = String::from_utf8(job.run_ok()?.stdout)?.trim().to_owned();
        let is_good = cluster.ends_well(&job)?;
        let said = fs::read_to_string(&output).unwrap_or_default();
        ensure!(is_good, "{script}\n{said}");
        for file in results {
            let content = if file.ends_with("/out") { "made\n" } else { "content\n" };
            expect(&work, file, content, &format!("{script}\n{said}"))?;
        }
    }
    Ok(())
}

#[test]
fn the_job_scripts_for_other_batch_systems_run_with_their_variables() -> Result<()> {
    if std::env::var_os("MAYFLY_NODES").is_some() {
        skip::note(SUITE, "these name their own nodes");
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("guides")?;
    let host = Job::new(&scratch, "uname", "uname").args(["-n"]).run_ok()?.stdout;
    let host = String::from_utf8(host)?.trim().to_owned();
    let nodes = scratch.join("nodes");
    fs::write(&nodes, format!("{host}\nother\n"))?;
    for directory in ["other/run", "other/tmp"] {
        fs::create_dir_all(scratch.join(directory))?;
    }
    let file = nodes.display().to_string();
    let both = format!("{host} other");
    let comma = format!("{host},other");
    let systems: [(&str, &[(&str, &str)]); 4] = [
        ("PBS\n", &[("PBS_NODEFILE", &file), ("PBS_JOBID", "12.server"), ("PBS_O_WORKDIR", "")]),
        ("LSF\n", &[("LSB_HOSTS", &both), ("LSB_JOBID", "13"), ("LSB_JOBINDEX", "0")]),
        ("Flux\n", &[("FLUX_URI", "local:///x"), ("FLUX_JOB_ID", "ƒ14"), ("FLUX_HOSTS", &comma)]),
        ("OAR\n", &[("OAR_NODEFILE", &file), ("OAR_JOB_ID", "15")]),
    ];
    for (number, (system, variables)) in systems.into_iter().enumerate() {
        for script in scripts(system)? {
            let (work, path) = prepare(&scratch, number)?;
            let mut job = Job::new(&scratch, "job", "env").args(["-C"]).args([&work]);
            job = job.args(["sh", "-c", &script]).env("PATH", &path).env("ROOT", scratch.path());
            for (name, value) in variables {
                let value = if *name == "PBS_O_WORKDIR" {
                    work.display().to_string()
                } else {
                    (*value).to_owned()
                };
                job = job.env(name, value);
            }
            let outcome = job.run()?;
            let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
            ensure!(outcome.code == 0, "{system}{script}\n{said}");
            expect(&work, "results/out.0", "content\n", &said)?;
        }
    }
    Ok(())
}
