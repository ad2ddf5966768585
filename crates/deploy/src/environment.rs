//! The environment in which a program is served.
//!
//! A program is in an instance by what its environment says. [`command`] runs one command so,
//! [`namespace`] does it where the mount is in a user namespace of its own, and [`containers`] says
//! what a container needs so that the programs in it are in the instance of the host.
//!
//! Only variables are set: nothing of a running process is changed.

mod cannot_run;
pub mod command;
pub mod containers;
pub(crate) mod namespace;

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

use crate::{
    Config,
    instance::{PRELOAD_NAME, config::Access, daemons, places::RUN_ROOT},
};

/// Variables with lists of libraries, among which ours is.
const LISTS: [&str; 2] = ["LD_PRELOAD", "LD_AUDIT"];

/// What takes back all variables but the lists.
const UNSET: &[u8] = b"unset MAYFLY_MOUNT MAYFLY_RUN MAYFLY_IMAGES MAYFLY_OBJECTS MAYFLY_DAEMONS \
    MAYFLY_DAEMON\n";

/// The variables to set, with their values; what this process preloads stays behind the library.
#[must_use]
pub fn variables(config: &Config) -> Vec<(&'static str, OsString)> {
    let mut variables = variables_alone(config);
    for (name, value) in &mut variables {
        if *name == "LD_PRELOAD" {
            *value = with_first(Path::new(value), name);
        }
    }
    // What the program starts itself is looked at when it does so.
    let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let is_there = |directory: PathBuf| directory.starts_with(&config.mount);
    if variables.len() > 1 && env::split_paths(&path).any(is_there) {
        let library = config.run_dir.join(PRELOAD_NAME);
        variables.push(("LD_AUDIT", with_first(&library, "LD_AUDIT")));
    }
    // Where a site keeps a job's run directories, programs of the job look for the instance.
    if let Some(root) = env::var_os(RUN_ROOT).filter(|root| config.run_dir.starts_with(root)) {
        variables.push((RUN_ROOT, root));
    }
    variables
}

/// The same whatever this process has set.
pub(crate) fn variables_alone(config: &Config) -> Vec<(&'static str, OsString)> {
    let (first, chosen) = match daemons::first(config) {
        Some((first, chosen)) => (Some(first), chosen),
        None => (None, Vec::new()),
    };
    let config = first.as_ref().unwrap_or(config);
    let mount = ("MAYFLY_MOUNT", config.mount.clone().into_os_string());
    if config.options.access().is_ok_and(|access| access == Access::Fuse) {
        return vec![mount];
    }
    let library = config.run_dir.join(PRELOAD_NAME);
    let mut variables = vec![
        mount,
        ("LD_PRELOAD", library.into_os_string()),
        ("MAYFLY_RUN", config.run_dir.clone().into_os_string()),
        ("MAYFLY_IMAGES", config.image_dir.clone().into_os_string()),
        ("MAYFLY_OBJECTS", config.object_dir.clone().into_os_string()),
    ];
    variables.extend(chosen);
    variables
}

/// The list of libraries in the variable `name`, with ours in front.
fn with_first(library: &Path, name: &str) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(earlier) = env::var_os(name).filter(|earlier| !earlier.is_empty()) {
        list.push(":");
        list.push(earlier);
    }
    list
}

/// The same as lines for a shell: `eval "$(mayfly env)"`.
#[must_use]
pub fn shell_lines(config: &Config) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in variables(config) {
        lines.extend_from_slice(b"export ");
        lines.extend_from_slice(name.as_bytes());
        lines.push(b'=');
        quote(value.as_bytes(), &mut lines);
        lines.push(b'\n');
    }
    lines
}

/// Lines for a shell that undo those of [`shell_lines`]: `eval "$(mayfly env --unset)"`. They need
/// no instance, since it may have ended; what this process preloads besides ours stays.
#[must_use]
pub fn shell_lines_that_undo() -> Vec<u8> {
    let mut lines = Vec::new();
    let is_ours =
        |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(PRELOAD_NAME.as_bytes());
    for name in LISTS {
        let Some(list) = env::var_os(name) else { continue };
        // The loader takes blanks as well.
        let parts = list.as_bytes().split(|byte| b": ".contains(byte));
        let others: Vec<&[u8]> = parts.filter(|part| !part.is_empty() && !is_ours(part)).collect();
        if others.is_empty() {
            lines.extend_from_slice(format!("unset {name}\n").as_bytes());
        } else {
            lines.extend_from_slice(format!("export {name}=").as_bytes());
            quote(&others.join(&b':'), &mut lines);
            lines.push(b'\n');
        }
    }
    lines.extend_from_slice(UNSET);
    lines
}

/// The variables as lines that no shell reads: a value goes to the end of its line.
///
/// # Errors
/// A path has a line end in it.
pub fn plain_lines(config: &Config) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for (name, value) in variables(config) {
        ensure!(!value.as_bytes().contains(&b'\n'), "a path in {name} has a line end in it");
        lines.extend_from_slice(&[b"export ", name.as_bytes(), b"=", value.as_bytes()].concat());
        lines.push(b'\n');
    }
    Ok(lines)
}

/// The same as options of Open MPI's `mpirun`, which hands nothing on to other nodes by itself.
#[must_use]
pub fn mpirun_words(config: &Config) -> Vec<u8> {
    let mut words = Words::default();
    for (name, value) in variables(config) {
        words.add("-x");
        words.add([OsStr::new(name), OsStr::new("="), &value].into_iter().collect::<OsString>());
    }
    words.into_line()
}

/// Words in one line, quoted where a shell would take them for something else.
#[derive(Default)]
pub(crate) struct Words(Vec<u8>);

impl Words {
    pub(crate) fn add(&mut self, word: impl Into<OsString>) {
        let word = word.into();
        if !self.0.is_empty() {
            self.0.push(b' ');
        }
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:=,@+".contains(byte);
        if word.as_bytes().iter().all(plain) {
            self.0.extend_from_slice(word.as_bytes());
        } else {
            quote(word.as_bytes(), &mut self.0);
        }
    }

    pub(crate) fn into_line(self) -> Vec<u8> {
        self.0
    }
}

pub(crate) fn quote(value: &[u8], to: &mut Vec<u8>) {
    to.push(b'\'');
    for byte in value {
        match byte {
            b'\'' => to.extend_from_slice(b"'\\''"),
            other => to.push(*other),
        }
    }
    to.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_path_does_not_end_the_shell_word() {
        let mut line = Vec::new();
        quote(b"/tmp/it's", &mut line);
        assert_eq!(line, b"'/tmp/it'\\''s'");
    }
}
