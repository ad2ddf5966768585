//! What a job asks for, in the words of its user.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// What a line of a job script begins with that is meant for us.
const LINE: &str = "#MAYFLY";
/// So many lines of a script are looked at, up to its first command.
const LINES_MAX: usize = 1000;
/// So many things are brought in or out.
const TRANSFERS_MAX: usize = 64;

/// Options that are handed to `mayfly start` under the same name.
const OPTIONS: [&str; 17] = [
    "access",
    "capacity",
    "chunk_size",
    "clients",
    "consistency",
    "cpus",
    "daemons",
    "deadline",
    "durability",
    "layout",
    "locks",
    "metadata_nodes",
    "net",
    "servers",
    "shards",
    "slow",
    "times",
];

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Options of `mayfly start`, and their values.
    pub options: Vec<(String, String)>,
    /// What is brought in before the job, in this order: from and to.
    pub stage_in: Vec<(String, String)>,
    /// What is brought out after it.
    pub stage_out: Vec<(String, String)>,
}

/// Into an instance, or out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Into it.
    In,
    /// Out of it.
    Out,
}

impl Direction {
    /// The word of `mayfly stage`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }
}

impl Request {
    /// From the site's words, those of a comment and the lines of a script; of options the last one
    /// counts.
    ///
    /// # Errors
    /// Names the word that means nothing.
    pub fn parse(usual: &str, comment: &str, script: &str) -> Result<Request> {
        let mut request = Request::default();
        request.add(usual).context("the site's options")?;
        request.add(comment)?;
        for line in directives(script) {
            request.add(line).with_context(|| format!("{LINE} {line}"))?;
        }
        Ok(request)
    }

    fn add(&mut self, text: &str) -> Result<()> {
        let words = shlex::split(text).context("a quote is not closed")?;
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((&word, ""));
            let value_of = || {
                ensure!(!value.is_empty(), "{name}: say {name}=VALUE");
                Ok(value.to_owned())
            };
            match name {
                "stage_in" => self.stage_in.push(transfer(&value_of()?, Direction::In)?),
                "stage_out" => self.stage_out.push(transfer(&value_of()?, Direction::Out)?),
                // For lines that Slurm's burst_buffer reads too, which has its own `capacity`.
                "size" => self.set("capacity", value_of()?),
                name if OPTIONS.contains(&name) => self.set(name, value_of()?),
                _ => bail!(
                    "{word:?} means nothing: say stage_in=FROM:TO, stage_out=FROM:TO, or one of \
                     {} with a value",
                    OPTIONS.join(", ")
                ),
            }
        }
        let count = self.stage_in.len().max(self.stage_out.len());
        ensure!(count <= TRANSFERS_MAX, "at most {TRANSFERS_MAX} of stage_in or stage_out");
        Ok(())
    }

    fn set(&mut self, name: &str, value: String) {
        self.options.retain(|(other, _)| other != name);
        self.options.push((name.to_owned(), value));
    }

    /// The options as `mayfly start` has them.
    #[must_use]
    pub fn start_options(&self) -> Vec<String> {
        let option =
            |(name, value): &(String, String)| format!("--{}={value}", name.replace('_', "-"));
        self.options.iter().map(option).collect()
    }
}

/// The lines of a script that are meant for us, before its first command.
fn directives(script: &str) -> impl Iterator<Item = &str> {
    script
        .lines()
        .take(LINES_MAX)
        .take_while(|line| line.trim().is_empty() || line.starts_with('#'))
        .filter_map(|line| line.strip_prefix(LINE))
        .filter(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        .map(str::trim)
}

/// `FROM:TO`; what is outside may have colons of its own, as an object store has.
fn transfer(text: &str, direction: Direction) -> Result<(String, String)> {
    let cut = match direction {
        Direction::In => text.rsplit_once(':'),
        Direction::Out => text.split_once(':'),
    };
    let fine = cut.filter(|(from, to)| !from.is_empty() && !to.is_empty());
    let (from, to) = fine.with_context(|| format!("{text:?}: say FROM:TO"))?;
    let outside = if direction == Direction::In { from } else { to };
    ensure!(
        outside.starts_with('/') || outside.contains("://"),
        "{outside:?} is outside the instance: say an absolute path, or s3://BUCKET/PREFIX"
    );
    Ok((from.to_owned(), to.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_lines_of_the_script_are_read_until_its_first_command() {
        let script = "#!/bin/sh\n#SBATCH -N 2\n#MAYFLY capacity=2G layout=stripe\n\n# more\n\
                      #MAYFLY stage_in='/a b':case stage_out=r:/out\n#MAYFLYING\n\
                      #MAYFLY size=3G\nrun\n\
                      #MAYFLY nonsense\n";
        let request = Request::parse("times=all", "capacity=1G stage_in=s3://b/p:data", script)
            .expect("good");
        assert_eq!(request.start_options(), ["--times=all", "--layout=stripe", "--capacity=3G"]);
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(request.stage_in, [pair("s3://b/p", "data"), pair("/a b", "case")]);
        assert_eq!(request.stage_out, [pair("r", "/out")]);
    }

    #[test]
    fn words_that_mean_nothing_are_named() {
        let bad = [
            "capacity",
            "launcher=x",
            "stage_in=/x",
            "stage_in=x:y",
            "stage_out=x:y",
            "name=x",
            "'open",
            "--capacity=1G",
        ];
        for text in bad {
            assert!(Request::parse("", text, "").is_err(), "{text}");
            let error = Request::parse("", "", &format!("#MAYFLY {text}")).expect_err(text);
            assert!(format!("{error:#}").contains("#MAYFLY"), "{error:#}");
        }
    }
}
