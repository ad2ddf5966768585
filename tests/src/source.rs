//! The source tree of program 1: GNU hello, as Debian's source archive has it.
//!
//! It is fetched with `apt-get`, whose lists and caches are put into a directory of our own: that
//! needs no root, no `deb-src` line in the machine's configuration and no change to it. Signatures
//! are checked as usual.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Scratch, binary};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The directory that holds `hello_*.orig.tar.gz`, fetched unless a former run did.
pub fn fetch(scratch: &Scratch) -> Result<PathBuf> {
    let cache = binary::target_dir().join("test-input/hello");
    if !has_archive(&cache) {
        download(scratch, &cache)?;
    }
    ensure!(has_archive(&cache), "apt-get left no archive in {}", cache.display());
    Ok(cache)
}

fn has_archive(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| name.starts_with("hello_") && name.ends_with(".orig.tar.gz"))
}

fn download(scratch: &Scratch, cache: &Path) -> Result<()> {
    let state = scratch.join("apt");
    for directory in ["lists/partial", "cache/archives/partial", "parts", "download"] {
        fs::create_dir_all(state.join(directory))?;
    }
    fs::write(state.join("sources.list"), source_line()?)?;
    apt(scratch, &state, &["update"])?;
    apt(scratch, &state, &["source", "--download-only", "hello"])?;
    fs::create_dir_all(cache)?;
    for entry in fs::read_dir(state.join("download"))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(".orig.tar.gz") {
            // Under its final name only when it is whole; another test may be fetching it too.
            let partial = cache.join(format!("partial-{}", scratch.mark()));
            fs::copy(entry.path(), &partial)?;
            fs::rename(&partial, cache.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn apt(scratch: &Scratch, state: &Path, arguments: &[&str]) -> Result<()> {
    let option = |name: &str, leaf: &str| format!("{name}={}", state.join(leaf).display());
    let options = [
        option("Dir::Etc::sourcelist", "sources.list"),
        option("Dir::Etc::sourceparts", "parts"),
        option("Dir::State::lists", "lists"),
        option("Dir::Cache", "cache"),
    ];
    let command = r#"cd "$0" && exec apt-get -q "$@""#;
    let job =
        Job::new(scratch, "apt-get", "sh").args(["-c", command]).args([state.join("download")]);
    let job = job.args(options.iter().flat_map(|option| ["-o", option])).args(arguments);
    job.deadline(Duration::from_secs(180)).run_ok().map(drop)
}

/// A `deb-src` line for the archive that the machine takes its packages from.
fn source_line() -> Result<String> {
    let format = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .output()
        .context("apt-get")?;
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let main = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() == 4 && words[2] == "main" && !words[1].contains('-') && words[3] == "Debian"
    };
    let line = listing.lines().find(main).context("apt-get names no Debian archive")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let signed =
        if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
    Ok(format!("deb-src {signed}{} {} main\n", words[0], words[1]))
}
