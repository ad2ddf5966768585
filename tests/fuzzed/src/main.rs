//! Between the kept inputs of a target, which are text, and a directory of files, which is what a
//! fuzzer works on: `fuzzed unpack TARGET DIR`, `fuzzed keep TARGET DIR`, `fuzzed list`.

use std::{fs, io, path::Path, process::ExitCode};

use fuzzed::{TARGETS, Target, inputs};

/// Bytes of text that are kept of a target.
const KEPT_BYTES_MAX: usize = 96 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        ["unpack", name, directory] => of(name).and_then(|it| unpack(it, Path::new(directory))),
        ["keep", name, directory] => of(name).and_then(|it| keep(it, Path::new(directory))),
        _ => Err(io::Error::other("usage: fuzzed list | fuzzed unpack|keep TARGET DIR")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzzed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn of(name: &str) -> io::Result<&'static Target> {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.ok_or_else(|| io::Error::other(format!("no target {name:?}")))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn unpack(target: &Target, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    // Of a new target nothing is kept.
    let kept =
        inputs::read(&inputs::file(root(), target.name)).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(Vec::new()),
            _ => Err(error),
        })?;
    for (number, input) in kept.iter().chain(&(target.seeds)()).enumerate() {
        fs::write(directory.join(format!("kept-{number}")), input)?;
    }
    Ok(())
}

fn keep(target: &Target, directory: &Path) -> io::Result<()> {
    let read = |entry: io::Result<fs::DirEntry>| fs::read(entry?.path());
    let found: Vec<Vec<u8>> = fs::read_dir(directory)?.map(read).collect::<io::Result<_>>()?;
    inputs::write(&inputs::file(root(), target.name), found, KEPT_BYTES_MAX)
}
