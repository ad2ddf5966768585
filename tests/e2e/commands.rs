//! The commands of README, CONTRIBUTING and the guide run as they stand there, and whatever they
//! say of `mayfly` is a subcommand and an option that exist.
//!
//! A block that begins with the word `sh` alone is run: all of a page one after the other, in one
//! shell, in a scratch directory. A further word says why a block cannot be run here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Scratch, Turn, binary, skip};

const SUITE: &str = "commands";

/// Why a block is not run. It stands behind the word `sh`.
const NOT_RUN: [(&str, &str); 5] = [
    ("build", "builds from the source, which is what the tests are built by"),
    ("cluster", "needs other hosts, or a batch system"),
    ("container", "needs containers and their images: `sandboxes.rs` runs what can be run"),
    ("bucket", "needs an object store: `buckets.rs` has one"),
    ("operator", "changes the machine: `site.rs` does it in a scratch directory"),
];

/// Pages whose blocks other tests run.
const RUN_ELSEWHERE: [(&str, &str); 1] = [("docs/guide/batch.md", "tests/e2e/guides.rs")];

/// What has to be there before a block that holds this text.
const BEFORE: [(&str, &str, &str); 4] = [
    ("docs/guide/caching.md", "| jq", "command -v jq > /dev/null || jq() { cat; }"),
    ("docs/guide/staging.md", "mayfly stage out 'case", MADE_BY_THE_JOB),
    ("docs/guide/observing.md", "mayfly top --name work", "mayfly start --name work"),
    (
        "docs/guide/observing.md",
        "mayfly report --output",
        "mayfly start; command -v jq > /dev/null || jq() { cat; }",
    ),
];
const MADE_BY_THE_JOB: &str = r#"(
eval "$(mayfly env)"
mkdir -p "$MAYFLY_MOUNT/case/a" "$MAYFLY_MOUNT/results"
echo 1 > "$MAYFLY_MOUNT/case/a/b.h5"; echo 2 > "$MAYFLY_MOUNT/results/out"
)"#;

/// A user's job: makes a result of what was brought in.
const JOB: &str = "#!/bin/sh\nmkdir -p \"$MAYFLY_MOUNT/case/results\"\n\
                   echo done > \"$MAYFLY_MOUNT/case/results/out\"\n";

/// A block of commands, where it begins, and the word behind `sh`.
struct Block {
    line: usize,
    kind: String,
    text: String,
}

fn pages() -> Result<Vec<String>> {
    let root = binary::workspace();
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in fs::read_dir(root.join("docs/guide"))? {
        let name = entry?.file_name().into_string().ok().context("a name in UTF-8")?;
        if Path::new(&name).extension().is_some_and(|end| end == "md") {
            pages.push(format!("docs/guide/{name}"));
        }
    }
    pages.sort();
    Ok(pages)
}

fn read(page: &str) -> Result<String> {
    fs::read_to_string(binary::workspace().join(page)).with_context(|| page.to_owned())
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut found, mut open): (Vec<Block>, bool) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if open && line.starts_with("```") {
            open = false;
        } else if open {
            let block = found.last_mut().expect("an open block was begun");
            block.text.push_str(line);
            block.text.push('\n');
        } else if line == "```sh" || line.starts_with("```sh ") {
            let kind = line["```sh".len()..].trim().to_owned();
            found.push(Block { line: index + 2, kind, text: String::new() });
            open = true;
        }
    }
    found
}

/// The blocks of a page that are run, as one script.
fn script(page: &str, outside: &Path) -> Result<Option<String>> {
    let mut script = String::new();
    for block in blocks(&read(page)?).iter().filter(|block| block.kind.is_empty()) {
        for (_, _, before) in
            BEFORE.iter().filter(|(of, text, _)| *of == page && block.text.contains(text))
        {
            script.push_str(before);
            script.push('\n');
        }
        script.push_str(&format!("echo 'line {}' >&2\n{}", block.line, block.text));
    }
    let script = script.replace("cargo run --release --", "mayfly");
    let script = script.replace("/scratch/me", &outside.display().to_string());
    Ok((!script.is_empty()).then(|| format!("set -euo pipefail\n{script}")))
}

/// What a user has at hand: input outside, a job.
fn prepare(scratch: &Scratch, number: usize) -> Result<(PathBuf, PathBuf)> {
    let work = scratch.join(format!("work{number}"));
    let outside = work.join("outside");
    let outside_too = [
        "outside/case",
        "outside/dataset",
        "outside/project/input",
        "outside/project/reference",
        "outside/sets",
    ];
    for directory in outside_too.into_iter().chain(["home", "bin"]) {
        fs::create_dir_all(work.join(directory))?;
    }
    fs::write(outside.join("case/input"), "content\n")?;
    fs::write(outside.join("dataset/sample"), "content\n")?;
    fs::write(outside.join("project/input/mesh"), "content\n")?;
    fs::write(outside.join("sets/first.tar"), "content\n")?;
    fs::write(work.join("job.sh"), JOB)?;
    fs::set_permissions(work.join("job.sh"), fs::Permissions::from_mode(0o755))?;
    std::os::unix::fs::symlink(binary::mayfly()?, work.join("bin/mayfly"))?;
    Ok((work, outside))
}

#[test]
fn the_commands_of_readme_and_guide_run_as_they_stand_there() -> Result<()> {
    if std::env::var_os("MAYFLY_NODES").is_some() {
        skip::note(SUITE, "these name their own nodes");
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("commands")?;
    let elsewhere = |page: &String| RUN_ELSEWHERE.iter().any(|(of, _)| of == page);
    for (number, page) in pages()?.into_iter().filter(|page| !elsewhere(page)).enumerate() {
        let (work, outside) = prepare(&scratch, number)?;
        let Some(script) = script(&page, &outside)? else { continue };
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", work.join("bin").display());
        let bash = |name: &str, script: &str| {
            let script = format!("cd {}\n{script}", work.display());
            let job = Job::new(&scratch, &format!("{name}{number}"), "bash").args(["-c", &script]);
            job.env("PATH", &path).env("HOME", work.join("home")).deadline(Duration::from_secs(300))
        };
        let ran = bash("page", &script).run_ok().with_context(|| format!("{page}:\n{script}"));
        bash("stop", STOP_ALL).run_ok()?;
        ran?;
    }
    Ok(())
}

/// Whatever a page has left running.
const STOP_ALL: &str = r#"mayfly status --json | tr ',{' '\n\n' |
    sed -n 's/^ *"name": *"\([^"]*\)".*/\1/p' | sort -u |
    while read -r name; do mayfly stop --name "$name" || true; done"#;

#[test]
fn whatever_is_not_run_says_why() -> Result<()> {
    for page in pages()? {
        for block in blocks(&read(&page)?) {
            let known = NOT_RUN.iter().any(|(kind, _)| *kind == block.kind);
            ensure!(block.kind.is_empty() || known, "{page}:{}: {}", block.line, block.kind);
        }
    }
    Ok(())
}

/// The help of a subcommand, asked for once.
struct Help<'a> {
    scratch: &'a Scratch,
    known: BTreeMap<String, String>,
}

impl Help<'_> {
    fn of(&mut self, words: &[&str]) -> Result<String> {
        let key = words.join(" ");
        if let Some(text) = self.known.get(&key) {
            return Ok(text.clone());
        }
        let job = Job::new(self.scratch, "help", binary::mayfly()?).args(words).args(["--help"]);
        let text = String::from_utf8(job.run_ok()?.stdout)?;
        self.known.insert(key, text.clone());
        Ok(text)
    }
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> BTreeSet<&str> {
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let listed = listed.split("\n\n").next().unwrap_or_default();
    let lines = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}

/// The words of each command line of `mayfly` in a text, without those of the command that it
/// runs.
fn command_lines(text: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("mayfly ") {
        let begins =
            text[..at].chars().next_back().is_none_or(|before| " \n(\"'`".contains(before));
        if !begins {
            continue;
        }
        let line = text[at + "mayfly ".len()..].split(['\n', '`', ')', ';', '|', '&', '>', '#']);
        let line = line.into_iter().next().unwrap_or_default();
        found.push(line.split_whitespace().take_while(|word| *word != "--").collect());
    }
    found
}

fn check(help: &mut Help<'_>, words: &[&str]) -> Result<()> {
    let mut path: Vec<&str> = Vec::new();
    let mut text = help.of(&[])?;
    for word in words {
        if !subcommands(&text).contains(word) {
            break;
        }
        path.push(word);
        if *word == "help" {
            return Ok(());
        }
        text = help.of(&path)?;
    }
    let is_lower = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let first_is_word = words.first().is_some_and(is_lower);
    ensure!(!path.is_empty() || !first_is_word, "there is no `mayfly {}`", words.join(" "));
    for word in words {
        let word = word.trim_matches(|c: char| "\"'[](),.".contains(c));
        let option = word.split('=').next().unwrap_or_default();
        if option.len() > 2 && option.starts_with("--") {
            let told = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
            ensure!(
                told.into_iter().any(|word| word == option),
                "`mayfly {}` has no {option}",
                path.join(" ")
            );
        }
    }
    Ok(())
}

#[test]
fn every_subcommand_and_option_that_a_page_names_exists() -> Result<()> {
    let scratch = Scratch::new("commands-help")?;
    let mut help = Help { scratch: &scratch, known: BTreeMap::new() };
    let mut wrong = Vec::new();
    for page in pages()? {
        let text = read(&page)?;
        let mut pieces: Vec<String> =
            blocks(&text).into_iter().map(|block| block.text.replace("\\\n", " ")).collect();
        // And what prose says in backquotes.
        let prose = text.split("```").step_by(2).collect::<Vec<_>>().concat();
        let spans = prose.split('`').skip(1).step_by(2);
        pieces.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
        for piece in &pieces {
            for words in command_lines(piece) {
                if let Err(error) = check(&mut help, &words) {
                    wrong.push(format!("{page}: {error}"));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
