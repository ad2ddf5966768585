//! Values of options, as people write them: times, moments, and pairs of paths.
//!
//! Each function is a parser for one kind of value. What it refuses, it refuses in words that a
//! user can act on. Sizes are parsed by [`mayfly_deploy::size`].

use std::{
    ffi::OsString,
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use mayfly_deploy::{Level, SLOW_MS_MIN};

/// The shortest interval of `mayfly top`, milliseconds.
pub(crate) const INTERVAL_MS_MIN: u64 = 100;
/// The longest one, milliseconds.
pub(crate) const INTERVAL_MS_MAX: u64 = 60_000;

/// `FROM:TO` of `mayfly run`.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub(crate) from: OsString,
    pub(crate) to: OsString,
}

impl Transfer {
    /// The whole instance, into this directory.
    pub(crate) fn of_everything(to: &Path) -> Transfer {
        Transfer { from: ".".into(), to: to.as_os_str().to_owned() }
    }
}

/// The path in the instance comes last, and has no colon.
pub(crate) fn inward(text: &str) -> Result<Transfer, String> {
    transfer(text.rsplit_once(':'))
}

/// The path in the instance comes first, and has no colon.
pub(crate) fn outward(text: &str) -> Result<Transfer, String> {
    transfer(text.split_once(':'))
}

fn transfer(parts: Option<(&str, &str)>) -> Result<Transfer, String> {
    match parts {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok(Transfer { from: from.into(), to: to.into() })
        }
        _ => Err("say FROM:TO".to_owned()),
    }
}

/// `on` or `off`.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("{other:?}: choose on or off")),
    }
}

/// A span of time.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if span < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(span) }
}

/// A span of time before now, or the time of a file.
pub(crate) fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(span) = humantime::parse_duration(text) {
        return SystemTime::now()
            .checked_sub(span)
            .ok_or_else(|| "that is too long ago".to_owned());
    }
    fs::metadata(text)
        .and_then(|file| file.modified())
        .map_err(|error| format!("neither a time such as 2h or 30m, nor a file: {error}"))
}

/// `--slow` of start and run, milliseconds.
pub(crate) fn slow_ms(text: &str) -> Result<u64, String> {
    if text == "off" {
        return Ok(0);
    }
    let span = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let ms = u64::try_from(span.as_millis()).ok().filter(|ms| *ms >= SLOW_MS_MIN);
    ms.ok_or_else(|| format!("choose at least {SLOW_MS_MIN}ms, or off"))
}

/// `--level`.
pub(crate) fn level(word: &str) -> Result<Level, String> {
    Level::of(word).ok_or_else(|| "choose info, warn or error".to_owned())
}

/// `--interval`.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let within = u128::from(INTERVAL_MS_MIN)..=u128::from(INTERVAL_MS_MAX);
    if within.contains(&interval.as_millis()) {
        Ok(interval)
    } else {
        Err(format!("{INTERVAL_MS_MIN} ms to {} s", INTERVAL_MS_MAX / 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_two_paths() {
        let shown = |transfer: Transfer| (transfer.from, transfer.to);
        assert_eq!(shown(inward("a:b:c").expect("two")), ("a:b".into(), "c".into()));
        assert_eq!(shown(outward("a:b:c").expect("two")), ("a".into(), "b:c".into()));
        assert!(inward("a").is_err() && outward(":a").is_err() && inward("a:").is_err());
    }
}
