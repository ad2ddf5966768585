//! `cargo xtask fuzz`: every target of `fuzz/` for some time, beginning with the kept inputs.
//!
//! It needs the nightly toolchain and cargo-fuzz; what the ordinary tests need of it is in
//! `tests/fuzzed`. What takes new branches is kept in `fuzz/inputs` when that is asked for.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::binary::{target_dir, workspace};

/// For each target, unless another time is given, s.
const SECONDS: u64 = 60;
/// Longest input, bytes: what is longer is slower, and kept inputs are read by people.
const INPUT_BYTES_MAX: u32 = 1024;
const USAGE: &str = "usage: cargo xtask fuzz [--seconds N] [--keep] [TARGET...]";

struct Fuzz {
    seconds: u64,
    /// The kept inputs are replaced by what covers as much.
    keep: bool,
    targets: Vec<String>,
}

/// Runs them one after the other; ends at the first failure.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let fuzz = Fuzz::parse(arguments)?;
    let version = cargo(&["+nightly", "fuzz", "--version"]).stdout(Stdio::null()).status();
    ensure!(
        version.is_ok_and(|status| status.success()),
        "fuzzing needs `rustup toolchain install nightly` and `cargo install cargo-fuzz`"
    );
    for target in &fuzz.targets {
        println!("==> {target}, {} s", fuzz.seconds);
        fuzz.target(target).with_context(|| format!("target {target}"))?;
    }
    Ok(())
}

impl Fuzz {
    fn parse(arguments: &[&str]) -> Result<Fuzz> {
        let mut fuzz = Fuzz { seconds: SECONDS, keep: false, targets: Vec::new() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seconds" => {
                    fuzz.seconds =
                        words.next().and_then(|text| text.parse().ok()).context(USAGE)?;
                }
                "--keep" => fuzz.keep = true,
                name => {
                    ensure!(!name.starts_with('-'), USAGE);
                    fuzz.targets.push(name.to_owned());
                }
            }
        }
        if fuzz.targets.is_empty() {
            let said = fuzzed(&["list"]).stderr(Stdio::inherit()).output()?;
            ensure!(said.status.success(), "the list of targets cannot be had");
            fuzz.targets = String::from_utf8(said.stdout)?.lines().map(str::to_owned).collect();
        }
        Ok(fuzz)
    }

    fn target(&self, name: &str) -> Result<()> {
        let corpus = directory("corpus", name)?;
        done(fuzzed(&["unpack", name]).arg(&corpus))?;
        let found = directory("artifacts", name)?;
        let options = [
            format!("-max_total_time={}", self.seconds),
            format!("-max_len={INPUT_BYTES_MAX}"),
            "-timeout=20".to_owned(),
            format!("-artifact_prefix={}/", found.display()),
        ];
        done(fuzz_command("run", name).arg(&corpus).arg("--").args(options))?;
        if self.keep {
            done(fuzz_command("cmin", name).arg(&corpus))?;
            done(fuzzed(&["keep", name]).arg(&corpus))?;
        }
        Ok(())
    }
}

fn directory(what: &str, target: &str) -> Result<PathBuf> {
    let path = target_dir().join("fuzz").join(what).join(target);
    std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    Ok(path)
}

fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    // That of the outer cargo would be taken before the `+nightly`.
    command.args(words).current_dir(workspace()).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

fn fuzz_command(what: &str, target: &str) -> Command {
    let mut command = cargo(&["+nightly", "fuzz", what, "-O", "--fuzz-dir"]);
    let own: &Path = &target_dir().join("fuzz/build");
    command.arg(workspace().join("fuzz")).arg(target).env("CARGO_TARGET_DIR", own);
    command
}

fn fuzzed(words: &[&str]) -> Command {
    let mut command = cargo(&["run", "--quiet", "--package", "fuzzed", "--"]);
    command.args(words);
    command
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
