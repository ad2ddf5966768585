//! Directories and buckets outside that an instance shows.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mayfly_daemon::{Directories, Link, WriteBack as When};
use mayfly_stage::Bucket;
use mayfly_tier::Outside;
use mayfly_types::{Durability, limits::TIER_SOURCES_MAX};
use serde::{Deserialize, Serialize};

use super::absolute;

/// How long what was seen outside is believed, unless somebody says so.
pub(super) const VALID: &str = "1s";
/// The shortest time after which something goes back by itself.
const AFTER_MIN: Duration = Duration::from_millis(100);
/// The longest that can be chosen.
const VALID_MAX: Duration = Duration::from_secs(24 * 3600);

/// A directory or bucket outside, and the directory of the instance that shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The directory outside, or the address of a prefix in a bucket.
    pub outside: PathBuf,
    /// The directory of the instance, from its root; empty: the root itself.
    pub inside: PathBuf,
    /// Nothing there may be changed.
    pub read_only: bool,
    /// Names are changed there after the calls have returned; `None`: as for the instance.
    #[serde(default)]
    pub names_async: Option<bool>,
}

impl Origin {
    /// From `DIR[:SUBDIR][,ro][,async|,through]`, or `s3://BUCKET[/PREFIX][:SUBDIR][,ro]`. The
    /// directory inside is behind the last colon.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Origin, String> {
        let (mut places, mut read_only, mut names_async) = (text, false, None);
        while let Some((before, word)) = places.rsplit_once(',') {
            match word {
                "ro" => read_only = true,
                "rw" => read_only = false,
                "async" => names_async = Some(true),
                "through" => names_async = Some(false),
                _ => break,
            }
            places = before;
        }
        let (scheme, rest) = match places.split_once("://") {
            Some((scheme, _)) if scheme != "s3" => {
                return Err(format!("{scheme}: an origin is a directory, or s3://BUCKET/PREFIX"));
            }
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), places),
        };
        let (outside, inside) = rest.rsplit_once(':').unwrap_or((rest, ""));
        if outside.is_empty() {
            return Err("say DIR[:SUBDIR][,ro] or s3://BUCKET[/PREFIX][:SUBDIR][,ro]".to_owned());
        }
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let inside = Path::new(inside.trim_matches('/'));
        if !inside.components().all(plain) {
            return Err(format!("{}: a directory below the mount point", inside.display()));
        }
        let outside = PathBuf::from(format!("{scheme}{outside}"));
        let inside = inside.components().collect();
        Ok(Origin { outside, inside, read_only, names_async })
    }

    /// As the daemon is told of it.
    pub(crate) fn link(&self) -> Link {
        Link {
            path: self.inside.as_os_str().as_bytes().to_vec(),
            read_only: self.read_only,
            names_async: self.names_async == Some(true) && !self.read_only,
        }
    }

    /// Is it in an object store?
    fn is_bucket(&self) -> bool {
        Bucket::is_address(self.outside.as_os_str())
    }

    /// As the keeper opens it.
    pub(crate) fn opened(&self) -> Outside {
        Outside { path: self.outside.clone(), read_only: self.read_only }
    }

    /// The same wherever this process works.
    ///
    /// # Errors
    /// When it does not know where it works.
    pub fn absolute(&self) -> Result<Origin> {
        if self.is_bucket() {
            return Ok(self.clone());
        }
        Ok(Origin { outside: absolute(&self.outside)?, ..self.clone() })
    }

    /// Refuses what cannot be shown at this mount point.
    fn check(&self, mount: &Path) -> Result<PathBuf> {
        let shown = self.outside.display();
        if self.is_bucket() {
            ensure!(
                self.names_async != Some(true) || self.read_only,
                "--origin {shown}: names of a bucket are changed there before a call returns, \
                 since a rename may be refused; say {shown},through, or leave out --names async"
            );
            let bucket = Bucket::open(self.outside.as_os_str());
            let bucket = bucket.with_context(|| format!("--origin {shown}"))?;
            bucket.has_below("").with_context(|| {
                format!(
                    "--origin {shown}: credentials and endpoint come from AWS_ACCESS_KEY_ID, \
                     AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and AWS_REGION"
                )
            })?;
            return Ok(self.outside.clone());
        }
        let outside = absolute(&self.outside)?;
        ensure!(outside.is_dir(), "--origin {shown}: there is no such directory");
        std::fs::read_dir(&outside).with_context(|| format!("--origin {shown}"))?;
        ensure!(
            !outside.starts_with(mount) && !mount.starts_with(&outside),
            "--origin {shown}: one of it and the mount point {} is in the other; choose another \
             --mount",
            mount.display()
        );
        Ok(outside)
    }
}

/// When what was changed goes back by itself, to all origins of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WriteBack {
    /// When it was not written for this time.
    pub after: Option<String>,
    /// Before close returns.
    pub at_close: bool,
    /// Before fsync returns.
    pub at_sync: bool,
    /// Before write returns.
    pub at_write: bool,
}

impl WriteBack {
    /// As the daemon is told of it.
    ///
    /// # Errors
    /// For what is no time.
    pub fn when(&self) -> Result<When> {
        // What no write tells of, such as a truncation, goes soon, too.
        let after = self.after.as_deref().or(self.at_write.then_some(VALID));
        let after_ms = match after {
            None => None,
            Some(text) => {
                let span = humantime::parse_duration(text).ok();
                let span = span.filter(|span| (AFTER_MIN..=VALID_MAX).contains(span));
                let span = span.with_context(|| {
                    format!("--flush-after {text}: a time from 100ms to a day, such as 30s")
                })?;
                Some(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
            }
        };
        let (at_close, at_sync) = (self.at_close || self.at_write, self.at_sync || self.at_write);
        Ok(When { after_ms, at_close, at_sync })
    }

    /// How often somebody has to look for what is due.
    ///
    /// # Errors
    /// For what is no time.
    pub fn look_every(&self) -> Result<Option<Duration>> {
        let after_ms = self.when()?.after_ms;
        Ok(after_ms.map(|after_ms| Duration::from_millis((after_ms / 4).clamp(50, 5_000))))
    }
}

/// Refuses instances that can have none.
pub(super) fn check_instance(durability: Durability, names: Directories) -> Result<()> {
    ensure!(
        durability != Durability::None,
        "--origin and --durability none contradict each other: what is not written back would be \
         lost with the daemon"
    );
    ensure!(
        names == Directories::Whole,
        "--origin and --names spread contradict each other: what is fetched is where its \
         directory is"
    );
    Ok(())
}

/// Refuses origins that cannot be shown together.
pub(super) fn check(origins: &[Origin], mount: &Path) -> Result<()> {
    ensure!(
        origins.len() <= TIER_SOURCES_MAX,
        "an instance has at most {TIER_SOURCES_MAX} origins"
    );
    for (at, one) in origins.iter().enumerate() {
        let outside = one.check(mount)?;
        for other in &origins[..at] {
            let (shown, inside) = (one.outside.display(), other.inside.display());
            ensure!(
                !one.inside.starts_with(&other.inside) && !other.inside.starts_with(&one.inside),
                "--origin {shown}: {:?} and {:?} are in each other; choose directories beside each \
                 other",
                one.inside.display().to_string(),
                inside.to_string()
            );
            let theirs = other.absolute()?.outside;
            let apart = !outside.starts_with(&theirs) && !theirs.starts_with(&outside);
            ensure!(
                apart || one.read_only && other.read_only,
                "--origin {shown}: it and {} are in each other, and what is written by one is not \
                 known to the other",
                other.outside.display()
            );
        }
    }
    Ok(())
}

/// How long what was seen outside is believed, milliseconds; `None`: for ever.
pub(super) fn valid_ms(text: &str) -> Result<Option<u64>> {
    match text {
        "always" => Ok(Some(0)),
        "never" => Ok(None),
        text => {
            let span = humantime::parse_duration(text).ok().filter(|span| *span <= VALID_MAX);
            let span = span.with_context(|| {
                format!(
                    "--validate {text}: choose always, never, or a time up to a day, such as 5s"
                )
            })?;
            Ok(Some(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_directory_and_where_it_is_shown() {
        let origin = Origin::parse("/a/b:sub/dir,ro").unwrap();
        assert_eq!(origin.outside, Path::new("/a/b"));
        assert_eq!((origin.inside.as_path(), origin.read_only), (Path::new("sub/dir"), true));
        let origin = Origin::parse("/a").unwrap();
        assert_eq!((origin.inside.as_os_str().len(), origin.read_only), (0, false));
        let origin = Origin::parse("s3://bucket/data:a/b,ro").unwrap();
        assert_eq!(origin.outside, Path::new("s3://bucket/data"));
        assert_eq!((origin.inside.as_path(), origin.read_only), (Path::new("a/b"), true));
        assert_eq!(Origin::parse("s3://bucket").unwrap().outside, Path::new("s3://bucket"));
        let origin = Origin::parse("/a:b,async").unwrap();
        assert_eq!((origin.outside.as_path(), origin.names_async), (Path::new("/a"), Some(true)));
        assert_eq!(Origin::parse("/a,through,ro").unwrap().names_async, Some(false));
        assert_eq!(Origin::parse("/a,b").unwrap().outside, Path::new("/a,b"));
        for bad in ["", ":x", "/a:../x", "s3://", "s3://:x", "http://host/a"] {
            assert!(Origin::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn origins_that_are_in_each_other_are_refused() {
        let (scratch, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let one = |dir: &Path, inside: &str, read_only| Origin {
            outside: dir.to_owned(),
            inside: inside.into(),
            read_only,
            names_async: None,
        };
        let mount = Path::new("/run/nowhere");
        let first = one(scratch.path(), "a", false);
        assert!(check(std::slice::from_ref(&first), mount).is_ok());
        assert!(check(&[first.clone(), one(other.path(), "b", false)], mount).is_ok());
        assert!(check(&[first.clone(), one(other.path(), "a/b", false)], mount).is_err());
        assert!(check(&[first.clone(), one(scratch.path(), "b", false)], mount).is_err());
        assert!(check(&[first], &scratch.path().join("mnt")).is_err());
    }

    #[test]
    fn what_was_seen_is_believed_for_a_time_that_is_said() {
        assert_eq!(valid_ms("always").unwrap(), Some(0));
        assert_eq!(valid_ms("never").unwrap(), None);
        assert_eq!(valid_ms("5s").unwrap(), Some(5000));
        for bad in ["soon", "", "30days"] {
            assert!(valid_ms(bad).is_err(), "{bad}");
        }
    }
}
