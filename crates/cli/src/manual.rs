//! What people and packages need of the command line: help, man pages, completions of shells, the
//! version.
//!
//! All of it comes from the definitions that parse the arguments, so it cannot say anything else;
//! what help says of a subject is the page that packages install.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::{
    arguments::{Arguments, version},
    output::print,
};

/// Pages that `mayfly help` prints.
const SUBJECTS: [(&str, &str); 15] = [
    ("first-steps", include_str!("../../../docs/guide/first-steps.md")),
    ("choosing-options", include_str!("../../../docs/guide/choosing-options.md")),
    ("staging", include_str!("../../../docs/guide/staging.md")),
    ("caching", include_str!("../../../docs/guide/caching.md")),
    ("batch", include_str!("../../../docs/guide/batch.md")),
    ("containers", include_str!("../../../docs/guide/containers.md")),
    ("several-nodes", include_str!("../../../docs/guide/several-nodes.md")),
    ("operators", include_str!("../../../docs/guide/operators.md")),
    ("machine-learning", include_str!("../../../docs/guide/machine-learning.md")),
    ("observing", include_str!("../../../docs/guide/observing.md")),
    ("trouble", include_str!("../../../docs/guide/trouble.md")),
    ("how-it-works", include_str!("../../../docs/guide/how-it-works.md")),
    ("metrics", include_str!("../../../docs/reference/metrics.md")),
    ("requirements", include_str!("../../../docs/reference/requirements.md")),
    ("exit-codes", include_str!("../../../docs/reference/exit-codes.md")),
];

/// Explains a subject, or a command.
pub(crate) fn help(words: &[String]) -> Result<()> {
    let subject = words.first().filter(|_| words.len() == 1);
    let page = SUBJECTS.iter().find(|(name, _)| Some(*name) == subject.map(String::as_str));
    if let Some((_, page)) = page {
        return print(page.as_bytes());
    }
    let mut command = for_people();
    command.build();
    let mut below = &mut command;
    for word in words {
        let known: Vec<&str> = SUBJECTS.iter().map(|(name, _)| *name).collect();
        below = below.find_subcommand_mut(word).with_context(|| {
            format!("no help on {word:?}: say a command, or one of {}", known.join(", "))
        })?;
    }
    print(below.render_long_help().to_string().as_bytes())
}

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut for_people(), "mayfly", &mut script);
    print(&script)
}

/// Writes a page for the command and one for each of its subcommands, to any depth.
pub(crate) fn write_pages(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    clap_mangen::generate_to(for_people(), directory)
        .with_context(|| format!("cannot write to {}", directory.display()))
}

/// The command without the subcommands by which it calls itself, which completions would show.
fn for_people() -> Command {
    let command = Arguments::command();
    let visible = command.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let visible: Vec<Command> = visible.collect();
    Command::new("mayfly")
        .disable_help_subcommand(true)
        .version(version())
        .about(command.get_about().cloned().unwrap_or_default())
        .after_help(command.get_after_help().cloned().unwrap_or_default())
        .subcommands(visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_subcommand_has_a_page_with_its_options() {
        let place = tempfile::tempdir().expect("a temporary directory");
        write_pages(place.path()).expect("a directory that is ours");
        let page = |name: &str| fs::read_to_string(place.path().join(name)).expect(name);
        for below in for_people().get_subcommands() {
            let page = page(&format!("mayfly-{}.1", below.get_name()));
            assert!(page.contains(".SH SYNOPSIS"), "{page}");
        }
        assert!(page("mayfly-run.1").contains("data\\-dir"));
        assert!(page("mayfly-layout-set.1").contains("chunk\\-size"));
        assert!(!place.path().join("mayfly-__daemon.1").exists());
    }

    #[test]
    fn help_explains_commands_and_subjects_and_names_what_there_is() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for known in ["run", "stage in", "layout set", "staging", "batch", "site prolog"] {
            help(&words(known)).expect(known);
        }
        let error = help(&words("stage nothing")).expect_err("there is no such command");
        assert!(format!("{error:#}").contains("staging, caching, batch"), "{error:#}");
        for (name, page) in SUBJECTS {
            assert!(page.starts_with("# "), "{name}");
        }
    }

    #[test]
    fn every_shell_completes_subcommands_and_no_hidden_ones() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut for_people(), "mayfly", &mut script);
            let script = String::from_utf8(script).expect("a script is text");
            assert!(script.contains("doctor") && script.contains("data-dir"), "{shell}");
            assert!(!script.contains("__supervise"), "{shell}");
        }
    }
}
