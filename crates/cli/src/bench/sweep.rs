//! `--sweep OPTION=VALUE,...`: an instance for each value.
//!
//! The words are parsed as the options of an instance are, so that every option of an instance can
//! be swept, and a wrong value is refused with the message that the option itself gives.

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Command, FromArgMatches};
use mayfly_bench::{Place, PlaceKind};

use crate::arguments::Make;

/// The instances to measure: one, or one for each value of each sweep.
pub(super) fn instances(make: &Make, sweeps: &[String]) -> Result<Vec<Place>> {
    if sweeps.is_empty() {
        return Ok(vec![place("mayfly".to_owned(), make, 0)?]);
    }
    let mut places = Vec::new();
    for sweep in sweeps {
        let (option, values) = sweep
            .split_once('=')
            .with_context(|| format!("--sweep {sweep}: write OPTION=VALUE,VALUE"))?;
        ensure!(
            !matches!(option, "mount" | "help"),
            "--sweep {option}: that changes nothing that could be measured"
        );
        for value in values.split(',') {
            let swept = with(make, option, value)?;
            places.push(place(format!("{option}={value}"), &swept, places.len())?);
        }
    }
    Ok(places)
}

fn place(label: String, make: &Make, number: usize) -> Result<Place> {
    let name = format!("bench-{}-{number}", std::process::id());
    let instance = make.instance(Some(name), false)?;
    Ok(Place { label: Some(label), kind: PlaceKind::Instance(Box::new(instance)) })
}

/// `make` with one option changed.
fn with(make: &Make, option: &str, value: &str) -> Result<Make> {
    let words = ["sweep".to_owned(), format!("--{option}={value}")];
    let parser = Make::augment_args_for_update(Command::new("sweep").no_binary_name(false));
    let understood = parser.try_get_matches_from(words).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        anyhow!("--sweep {option}={value}: {line}")
    })?;
    let mut swept = make.clone();
    swept.update_from_arg_matches(&understood)?;
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Make {
        let matches = Make::augment_args(Command::new("x")).get_matches_from(["x"]);
        Make::from_arg_matches(&matches).expect("nothing is required")
    }

    fn chunks(places: &[Place]) -> Vec<u64> {
        let chunk = |place: &Place| match &place.kind {
            PlaceKind::Instance(instance) => instance.options.chunk_bytes,
            PlaceKind::Directory(_) => 0,
        };
        places.iter().map(chunk).collect()
    }

    #[test]
    fn each_value_is_an_instance_of_its_own() {
        let sweeps = ["chunk-size=64K,4M".to_owned(), "times=none".to_owned()];
        let places = instances(&usual(), &sweeps).expect("instances");
        let labels: Vec<_> = places.iter().filter_map(|place| place.label.as_deref()).collect();
        assert_eq!(labels, ["chunk-size=64K", "chunk-size=4M", "times=none"]);
        assert_eq!(chunks(&places), [64 << 10, 4 << 20, 512 << 10]);
    }

    #[test]
    fn a_wrong_option_or_value_is_refused_by_its_name() {
        for wrong in ["chunk-size=12Q", "times=sometimes", "colour=red", "chunk-size", "mount=/x"] {
            let error = instances(&usual(), &[wrong.to_owned()]).expect_err(wrong).to_string();
            assert!(error.starts_with("--sweep"), "{error}");
        }
    }
}
