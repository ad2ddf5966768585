//! The command line of what a batch system runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const ABOUT: &str = "\
A site that installs these as prolog and epilog gives an instance to every job that asks for one
by a feature of its nodes or by its comment:

  sbatch --constraint=mayfly job.sh
  sbatch --comment='mayfly capacity=100G stage_out=results:/scratch/me/out' job.sh

or, with the first of them, by lines of the script: #MAYFLY stage_in=/scratch/me/case:case

The operator's file is /etc/mayfly/site.toml; docs/guide/operators.md explains it.";

#[derive(Debug, Subcommand)]
#[command(after_help = ABOUT)]
pub(crate) enum Site {
    /// Make a node ready for the job of whose prolog this is a part; on the first node, start the
    /// job's instance
    Prolog {
        #[command(flatten)]
        config: Config,
        /// One half of it, for batch systems that go through a job's nodes one by one: `ready`, on
        /// all nodes first; then `start`, which does nothing but on the first
        #[arg(long, value_enum, value_name = "HALF")]
        only: Option<Half>,
    },
    /// Bring out what the job asked for, end its instance, remove what is left of it
    Epilog(Config),
    /// Print the variables of the job's instance, for Slurm's TaskProlog
    TaskProlog(Config),
    /// Say what is wrong with the #MAYFLY lines of a job script, on whatever machine: for plugins
    /// of a batch system that look at jobs when they are submitted
    Check {
        /// The script; `-`: standard input
        script: PathBuf,
    },
    /// Remove what is left of jobs on this node, when none runs: after a reboot
    Clean(Clean),
    /// Make the site's key, which is to be the same file on all nodes
    Key { file: PathBuf },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Half {
    Ready,
    Start,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    /// The operator's file
    #[arg(long, value_name = "FILE", default_value = mayfly_site::CONFIG)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Clean {
    #[command(flatten)]
    pub(crate) config: Config,
    /// What the batch system calls this node, where the operator's file says %n
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) node: String,
    /// Only of this job
    #[arg(long, value_name = "ID")]
    pub(crate) job: Option<String>,
}
