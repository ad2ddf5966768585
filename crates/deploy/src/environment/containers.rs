//! What a container needs so that the programs in it are in the instance of the host.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use serde::Serialize;

use super::Words;
use crate::{
    Config, environment,
    instance::{daemons, mount_point},
};

/// A program that starts containers, by the words it understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// bubblewrap.
    Bwrap,
    /// podman, as an ordinary user or as root.
    Podman,
    /// docker: the container's root is the host's, so the user is said.
    Docker,
    /// Apptainer, and Singularity, which it was.
    Apptainer,
}

impl std::str::FromStr for Container {
    type Err = String;

    fn from_str(text: &str) -> Result<Container, String> {
        match text {
            "bwrap" => Ok(Container::Bwrap),
            "podman" => Ok(Container::Podman),
            "docker" => Ok(Container::Docker),
            "apptainer" | "singularity" => Ok(Container::Apptainer),
            other => Err(format!("{other}: choose bwrap, podman, docker or apptainer")),
        }
    }
}

/// What has to be seen in the container at the same paths, and what has to be set there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Directories to bind, with what is mounted below them.
    pub binds: Vec<PathBuf>,
    /// Variables to set. What the container itself preloads comes behind `LD_PRELOAD`'s.
    pub variables: Vec<(String, String)>,
}

impl Needs {
    /// Those of the instance's node that `config` describes.
    ///
    /// # Errors
    /// When a path is not UTF-8, which the files of containers do not take.
    pub fn of(config: &Config) -> Result<Needs> {
        let mut wanted = Vec::new();
        for daemon in daemons::all(config) {
            if daemon.serves_programs {
                wanted.push(daemon.run_dir.clone());
                wanted.push(daemon.data_dir.clone());
                wanted.extend(daemon.further.iter().map(|further| further.path.clone()));
            }
            if mount_point::is_seen(&daemon) {
                wanted.push(daemon.mount);
            }
        }
        // What lies below another comes with it.
        let binds = wanted
            .iter()
            .filter(|path| !wanted.iter().any(|other| other != *path && path.starts_with(other)));
        let binds = binds.cloned().collect();
        let mut variables = Vec::new();
        for (name, value) in environment::variables_alone(config) {
            let Ok(value) = value.into_string() else {
                bail!("the value of {name} is not UTF-8, which no container takes");
            };
            variables.push((name.to_owned(), value));
        }
        Ok(Needs { binds, variables })
    }

    /// The options for the container, one word after the other, as a shell takes them.
    #[must_use]
    pub fn words(&self, container: Container) -> Vec<u8> {
        let mut words = Words::default();
        if container == Container::Docker && !rustix::process::geteuid().is_root() {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            words.add("--user");
            words.add(format!("{}:{}", user.as_raw(), group.as_raw()));
        }
        for bind in &self.binds {
            match container {
                Container::Bwrap => {
                    words.add("--bind");
                    words.add(bind);
                    words.add(bind);
                }
                Container::Podman | Container::Docker => {
                    words.add("--volume");
                    words.add(pair(bind, ":", bind));
                }
                Container::Apptainer => {
                    words.add("--bind");
                    words.add(bind);
                }
            }
        }
        for (name, value) in &self.variables {
            match container {
                Container::Bwrap => {
                    words.add("--setenv");
                    words.add(name);
                    words.add(value);
                }
                _ => {
                    words.add("--env");
                    words.add(pair(Path::new(name), "=", Path::new(value)));
                }
            }
        }
        words.into_line()
    }
}

fn pair(one: &Path, between: &str, other: &Path) -> OsString {
    let mut word = one.as_os_str().to_owned();
    word.push(between);
    word.push(other);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_container_gets_its_own_words_and_a_shell_takes_them_apart_again() {
        let needs = Needs {
            binds: vec!["/run/user/7/mayfly/a".into(), "/data/it's here".into()],
            variables: vec![("MAYFLY_MOUNT".to_owned(), "/m".to_owned())],
        };
        let text = |container| String::from_utf8(needs.words(container)).expect("ASCII");
        assert_eq!(
            text(Container::Bwrap),
            "--bind /run/user/7/mayfly/a /run/user/7/mayfly/a \
             --bind '/data/it'\\''s here' '/data/it'\\''s here' --setenv MAYFLY_MOUNT /m"
        );
        assert_eq!(
            text(Container::Podman),
            "--volume /run/user/7/mayfly/a:/run/user/7/mayfly/a \
             --volume '/data/it'\\''s here:/data/it'\\''s here' --env MAYFLY_MOUNT=/m"
        );
        assert!(text(Container::Apptainer).starts_with("--bind /run/user/7/mayfly/a --bind "));
        assert!("lxc".parse::<Container>().is_err());
    }
}
