//! The operator's file.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;
use serde::Deserialize;

/// Where it is when nobody says otherwise.
pub const CONFIG: &str = "/etc/mayfly/site.toml";
/// Stands in a path for the name that the batch system gives to the node.
const NODE: &str = "%n";
/// A file is at most so long, bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Ports by which nodes of a job reach each other's doors.
const PORTS: Ports = Ports { first: 7400, last: 7499 };

/// What the operator has chosen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Run directories: one for each job. On a file system that a reboot empties.
    pub run: PathBuf,
    /// Data directories: one for each job. The node's fast storage.
    pub data: PathBuf,
    /// The site's key.
    pub key: PathBuf,
    /// The feature of nodes by which a job asks for an instance.
    pub feature: String,
    /// The generic resource of Slurm's by which a job may ask too; empty: none. Each prolog then
    /// asks the controller.
    pub gres: String,
    /// Doors listen on one of these, first and last.
    pub ports: Ports,
    /// What every job asks for that does not say otherwise, in the words of a `#MAYFLY` line.
    pub options: String,
    /// A start may take so long.
    #[serde(deserialize_with = "span")]
    pub start_max: Duration,
    /// Bringing in may take so long.
    #[serde(deserialize_with = "span")]
    pub stage_in_max: Duration,
    /// Bringing out may take so long; nodes are held meanwhile.
    #[serde(deserialize_with = "span")]
    pub stage_out_max: Duration,
    /// What becomes of a job whose instance does not start.
    pub on_failure: OnFailure,
}

/// A range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Ports {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

/// What becomes of a job whose instance does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// It is put back into the queue, and held there until somebody releases it.
    #[default]
    Hold,
    /// It ends.
    Cancel,
}

impl Default for Site {
    fn default() -> Site {
        Site {
            run: "/run/mayfly".into(),
            data: "/var/tmp/mayfly".into(),
            key: "/etc/mayfly/site.key".into(),
            feature: "mayfly".to_owned(),
            gres: String::new(),
            ports: PORTS,
            options: String::new(),
            start_max: Duration::from_secs(60),
            stage_in_max: Duration::from_secs(30 * 60),
            stage_out_max: Duration::from_secs(60 * 60),
            on_failure: OnFailure::Hold,
        }
    }
}

impl Site {
    /// Reads the file; `node` is what the batch system calls this node.
    ///
    /// # Errors
    /// It cannot be read, says what means nothing, or others than root and whoever reads it may
    /// change it.
    pub fn load(path: &Path, node: &str) -> Result<Site> {
        let text = String::from_utf8(trusted(path)?).context("it is not UTF-8");
        let site: Site = text
            .and_then(|text| toml::from_str(&text).map_err(Into::into))
            .with_context(|| format!("cannot use {}", path.display()))?;
        let place = |place: &Path| -> Result<PathBuf> {
            let text = place.to_str().context("a path is not UTF-8")?.replace(NODE, node);
            // Paths go into command lines that are cut at spaces.
            let fine = text.starts_with('/') && !text.contains(char::is_whitespace);
            ensure!(fine, "{text:?} in {}: say an absolute path without spaces", path.display());
            Ok(text.into())
        };
        Ok(Site { run: place(&site.run)?, data: place(&site.data)?, ..site })
    }
}

/// What a file says that only root, or whoever reads it, can have written.
pub(crate) fn trusted(path: &Path) -> Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let file = fs::File::open(path).with_context(cannot)?;
    let found = file.metadata().with_context(cannot)?;
    let owned = found.uid() == 0 || found.uid() == geteuid().as_raw();
    ensure!(
        owned && found.mode() & 0o022 == 0,
        "{} may be changed by others than root: chown root, chmod go-w",
        path.display()
    );
    ensure!(found.len() <= BYTES_MAX, "{} has more than {BYTES_MAX} bytes", path.display());
    fs::read(path).with_context(cannot)
}

fn span<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(serde::de::Error::custom)
}

impl TryFrom<String> for Ports {
    type Error = String;

    fn try_from(text: String) -> Result<Ports, String> {
        let parsed = text.split_once('-').and_then(|(first, last)| {
            Some(Ports { first: first.parse().ok()?, last: last.parse().ok()? })
        });
        match parsed {
            Some(ports) if ports.first > 0 && ports.first <= ports.last => Ok(ports),
            _ => Err(format!("ports = {text:?}: say two, as in \"7400-7499\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn load(text: &str) -> Result<Site> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), text)?;
        Site::load(file.path(), "n7")
    }

    #[test]
    fn what_the_operator_says_is_taken_and_the_rest_is_usual() {
        let text = "run = \"/run/mayfly-%n\"\nports = \"9000-9001\"\nstage_out_max = \"2h\"\n\
                    on_failure = \"cancel\"\noptions = \"durability=sync\"\n";
        let site = load(text).expect("a good file");
        assert_eq!(site.run, Path::new("/run/mayfly-n7"));
        assert_eq!((site.ports.first, site.ports.last), (9000, 9001));
        assert_eq!(site.stage_out_max, Duration::from_secs(7200));
        assert_eq!(site.on_failure, OnFailure::Cancel);
        assert_eq!(site.feature, "mayfly");
        assert_eq!(load("").expect("an empty file"), Site::default());
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for bad in ["runn = \"/x\"", "run = \"x\"", "run = \"/a b\"", "ports = \"9\"", "="] {
            assert!(load(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_others_may_change_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("its own");
        assert!(Site::load(file.path(), "n").is_err());
    }
}
