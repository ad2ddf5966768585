//! `mayfly layout`: where the bytes of files are, and go.

use std::{
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, anyhow, bail, ensure};
use mayfly_deploy::{Laid, LayoutWords, environment, layout_of, set_layout};
use serde_json::{Value, json};

use crate::{arguments, instances, size};

const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

pub(crate) fn get(wanted: &arguments::LayoutGet) -> Result<()> {
    enter(&wanted.paths)?;
    let mut missing = 0;
    let mut found = Vec::new();
    for path in &wanted.paths {
        match layout_of(path) {
            Ok(laid) => found.push((path, laid)),
            Err(error) => {
                missing += 1;
                eprintln!("mayfly: {}: {}", path.display(), why_not_told(&error));
            }
        }
    }
    if wanted.json {
        let values: Result<Vec<Value>> =
            found.iter().map(|(path, laid)| json(path, laid)).collect();
        println!("{}", serde_json::to_string_pretty(&values?)?);
    } else {
        print(&found);
    }
    ensure!(missing == 0, "{missing} of {} paths have no layout", wanted.paths.len());
    Ok(())
}

pub(crate) fn set(wanted: &arguments::LayoutSet) -> Result<()> {
    let mut layout: LayoutWords =
        wanted.layout.parse().map_err(|why| anyhow!("{}: {why}", wanted.layout))?;
    layout.chunk_bytes = wanted.chunk_size.or(layout.chunk_bytes);
    // What it would be refused for there, in words.
    let _: LayoutWords = layout.to_string().parse().map_err(|why: String| anyhow!(why))?;
    enter(&wanted.directories)?;
    for path in &wanted.directories {
        // Elsewhere the attribute may well be set, and would mean nothing.
        layout_of(path).map_err(|error| anyhow!("{}: {}", path.display(), why_not_told(&error)))?;
        set_layout(path, &layout)
            .map_err(|error| anyhow!("{}: {}", path.display(), why_not_set(&error, &layout)))?;
    }
    Ok(())
}

fn why_not_told(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(ENODATA | EOPNOTSUPP) => "not a file or directory of a running instance".to_owned(),
        _ => error.to_string(),
    }
}

fn why_not_set(error: &io::Error, layout: &LayoutWords) -> String {
    match (error.raw_os_error(), &layout.pool) {
        (Some(EINVAL), Some(pool)) => format!(
            "the instance has no pool {pool}: it was started without such a --pool. `mayfly \
             status` shows its pools"
        ),
        (Some(EOPNOTSUPP), _) => "a file keeps the layout with which it was made. Set that of a \
                             directory and copy the file into it"
            .to_owned(),
        _ => error.to_string(),
    }
}

/// Begins anew as a program of the instance in which the first path lies, unless this is one.
fn enter(paths: &[PathBuf]) -> Result<()> {
    let Some(path) = paths.first() else { return Ok(()) };
    let path = std::path::absolute(path)?;
    let Some(config) = instances::instance_of(&path) else { return Ok(()) };
    if std::env::var_os("MAYFLY_MOUNT").is_some_and(|mount| mount == *config.mount) {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).envs(environment::variables(&config));
    bail!("cannot enter the instance {:?}: {}", config.name, command.exec())
}

fn json(path: &Path, laid: &Laid) -> Result<Value> {
    let mut value = serde_json::to_value(laid)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("path".to_owned(), json!(path.to_string_lossy()));
    }
    Ok(value)
}

fn print(found: &[(&PathBuf, Laid)]) {
    let mut rows = vec![["layout", "chunk", "path", "bytes on nodes"].map(str::to_owned)];
    for (path, laid) in found {
        let nodes = laid.nodes.iter().flatten();
        let nodes: Vec<String> =
            nodes.map(|(node, bytes)| format!("{node}: {}", size::show(*bytes))).collect();
        let path = path.display().to_string();
        rows.push([laid.layout.clone(), size::show(laid.chunk_bytes), path, nodes.join(", ")]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
