//! Development tasks: `cargo xtask test`, `fuzz`, `tidy`, `dist`, `deny`.
//!
//! `test` is the README's test command and the whole of CI; `tidy` and `deny` are steps of it, and
//! it runs what `fuzz` has kept.

mod deny;
mod dist;
mod fuzz;
mod suite;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask COMMAND

  test [--no-install]  every check and suite; installs what is missing when it may
  test --quick         what a change usually needs, in some minutes
  fuzz [--seconds N] [--keep] [TARGET...]
                       what comes from outside, made up by a fuzzer (nightly, cargo-fuzz)
  tidy                 the rules that the compiler does not know
  dist [--binary FILE] [--out DIR]
                       what a site installs: tarball, .deb, .rpm (target/dist), of a binary for
                       any Linux, or of the one that is given
  deny                 licences and advisories of the dependencies, if cargo-deny is installed";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["test"] => suite::run(suite::Install::WhereAllowed),
        ["test", "--quick"] => suite::run_quick(),
        ["test", "--no-install"] => suite::run(suite::Install::Never),
        ["fuzz", ref rest @ ..] => fuzz::run(rest).map(|()| ExitCode::SUCCESS),
        ["dist", ref rest @ ..] => dist::run(rest).map(|()| ExitCode::SUCCESS),
        ["tidy"] => tidy::run().map(|()| ExitCode::SUCCESS),
        ["deny"] => deny::run().map(|_| ExitCode::SUCCESS),
        _ => bail!("{USAGE}"),
    }
}
