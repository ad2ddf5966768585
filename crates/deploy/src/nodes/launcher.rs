//! How a program is started on another host.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::batch;

/// Longest wait of ssh for a host, seconds.
const SSH_CONNECT_S: u32 = 10;
/// Stand in a template for the host and for what is to run there.
const HOST: &str = "{host}";
const COMMAND: &str = "{command}";

/// Reaches other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launcher {
    /// Does not: every node is on this machine.
    Local,
    /// `ssh`, without a question to the user.
    Ssh,
    /// A step of the Slurm job in which we run.
    Srun,
    /// Any command line.
    Template(String),
}

impl Launcher {
    /// From `local`, `ssh`, `srun` or a template with `{host}` and `{command}`.
    ///
    /// # Errors
    /// For anything else.
    pub fn parse(text: &str) -> Result<Launcher> {
        Ok(match text {
            "local" => Launcher::Local,
            "ssh" => Launcher::Ssh,
            "srun" => Launcher::Srun,
            template => {
                let has = |what: &str| template.split_whitespace().any(|word| word.contains(what));
                ensure!(
                    has(HOST) && template.split_whitespace().any(|word| word == COMMAND),
                    "--launcher {template:?}: choose local, ssh, srun, or a command line with the \
                     words {HOST} and {COMMAND}"
                );
                Launcher::Template(template.to_owned())
            }
        })
    }

    /// Whether what it started must not end before the instance does.
    pub(super) fn must_stay(&self) -> bool {
        *self == Launcher::Srun
    }

    /// The command that runs `program subcommand` on `host`.
    pub(super) fn command(&self, host: &str, program: &Path, subcommand: &str) -> Command {
        let words = [program.as_os_str(), subcommand.as_ref()];
        match self {
            Launcher::Local => {
                let mut command = Command::new(program);
                command.arg(subcommand);
                command
            }
            Launcher::Ssh => {
                let mut command = Command::new("ssh");
                let connect = format!("-oConnectTimeout={SSH_CONNECT_S}");
                command.args(["-T", "-oBatchMode=yes", &connect, "--", host]);
                command.arg(format!("exec {} {subcommand}", quoted(program)));
                command
            }
            Launcher::Srun => {
                let mut command = Command::new("srun");
                command.args(["--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--quiet"]);
                if let Some(component) = batch::component_of(host) {
                    command.arg(format!("--het-group={component}"));
                }
                command.arg(format!("--nodelist={host}")).args(words);
                command
            }
            Launcher::Template(template) => {
                let mut all = template.split_whitespace();
                let mut command = Command::new(all.next().unwrap_or_default().replace(HOST, host));
                for word in all {
                    if word == COMMAND {
                        command.args(words);
                    } else {
                        command.arg(word.replace(HOST, host));
                    }
                }
                command
            }
        }
    }
}

/// For the shell of the other host.
fn quoted(program: &Path) -> String {
    format!("'{}'", program.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(launcher: &Launcher) -> Vec<String> {
        let command = launcher.command("n1", Path::new("/opt/it's/mayfly"), "__relay");
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_template_gets_host_and_command_where_it_wants_them() {
        let launcher = Launcher::parse("ip netns exec {host} {command}").expect("a good template");
        assert_eq!(words(&launcher), ["ip", "netns", "exec", "n1", "/opt/it's/mayfly", "__relay"]);
    }

    #[test]
    fn the_path_is_one_word_for_the_shell_that_ssh_starts() {
        let words = words(&Launcher::Ssh);
        assert_eq!(words.last().map(String::as_str), Some(r"exec '/opt/it'\''s/mayfly' __relay"));
        let host = words.iter().position(|word| word == "n1").expect("it names the host");
        assert_eq!(words[host - 1], "--", "no host is taken for an option");
    }

    #[test]
    fn a_template_without_host_or_command_is_refused() {
        for bad in ["", "rsh", "rsh {host}", "sh -c {command}"] {
            assert!(Launcher::parse(bad).is_err(), "{bad:?}");
        }
    }
}
