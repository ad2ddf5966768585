//! What instances do, for monitoring systems.

use std::{
    collections::BTreeSet,
    fs,
    io::Cursor,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use mayfly_deploy::{
    Depth, Found,
    nodes::{NodeState, report_all, this_host},
    report_in,
};
use mayfly_metrics::Node;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::{arguments, instances, output::print, stage};

/// What the texts are called by HTTP.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OLDER_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const PATH: &str = "/metrics";

pub(crate) fn metrics(wanted: &arguments::Metrics) -> Result<()> {
    if wanted.reference {
        return print(mayfly_metrics::page().as_bytes());
    }
    if let Some(address) = &wanted.listen {
        return listen(address, wanted);
    }
    let Some(output) = &wanted.output else { return print(gather(wanted)?.as_bytes()) };
    loop {
        write(output, &mayfly_metrics::older(&gather(wanted)?))?;
        match wanted.every {
            Some(pause) => thread::sleep(pause),
            None => return Ok(()),
        }
    }
}

/// What all nodes that are asked for say, as text.
fn gather(wanted: &arguments::Metrics) -> Result<String> {
    let mut nodes = nodes(&wanted.scope, Depth::Sums)?;
    nodes.iter_mut().for_each(tell_stages);
    Ok(mayfly_metrics::text(nodes)?)
}

/// What the nodes of an instance say, or of all that this user has here: those on this machine, or
/// all of them.
pub(crate) fn nodes(scope: &arguments::Scope, depth: Depth) -> Result<Vec<Node>> {
    let all_nodes = scope.all_nodes;
    let names = match &scope.name {
        Some(name) => BTreeSet::from([name.clone()]),
        None if all_nodes => instances::instances(),
        None => instances::instances_here(),
    };
    let mut nodes = Vec::new();
    for name in names {
        match instances::members(&name)? {
            Some(members) if all_nodes => {
                let reports = report_all(&members, depth)?.into_iter();
                nodes.extend(reports.map(|told| Node {
                    name: name.clone(),
                    node: told.node,
                    host: told.host,
                    report: match told.state {
                        NodeState::Answers(report) => Some(*report),
                        NodeState::Unreachable { .. } => None,
                    },
                }));
            }
            _ => nodes.extend(here(&name, depth)?),
        }
    }
    Ok(nodes)
}

/// Stages are told by the node's own machine, if that is this one.
fn tell_stages(node: &mut Node) {
    let Some(report) = &mut node.report else { return };
    let of_node = format!("{}@{}", node.name, node.node);
    let config = instances::running(&of_node).or_else(|_| instances::running(&node.name));
    if let Ok(config) = config.as_ref()
        && config.node.unwrap_or(0) == node.node
    {
        report["staging"] = stage::work(config);
    }
}

/// The nodes of an instance on this machine.
fn here(name: &str, depth: Depth) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for of_node in std::iter::once(name.to_owned()).chain(instances::names_of_nodes(name)) {
        let (node, report) = match Found::look(&of_node)? {
            Found::Running(config) => (config.node.unwrap_or(0), report_in(*config, depth).ok()),
            // Its number stands in what nobody holds any more.
            Found::Stale(run_dir) if run_dir.is_dir() => {
                let number = of_node.split_once('@').and_then(|(_, number)| number.parse().ok());
                (number.unwrap_or(0), None)
            }
            _ => continue,
        };
        // One that does not answer is told as such.
        let report = report.map(serde_json::to_value).transpose()?;
        nodes.push(Node { name: name.to_owned(), node, host: this_host(), report });
    }
    if nodes.is_empty() {
        bail!("no instance {name:?} on this machine; `mayfly status` lists those that run");
    }
    Ok(nodes)
}

/// Puts a whole file in the place of the one before.
fn write(path: &Path, text: &str) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let mut beside = path.as_os_str().to_owned();
    // A collector takes files that end in .prom.
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let done = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if done.is_err() {
        let _ = fs::remove_file(&beside);
    }
    done.with_context(cannot)
}

/// In the format that the scraper knows.
fn answer(request: &Request, text: String) -> Result<Response<Cursor<Vec<u8>>>> {
    let accepts = |header: &Header| {
        header.field.equiv("Accept") && header.value.as_str().contains("openmetrics-text")
    };
    let (text, kind) = if request.headers().iter().any(accepts) {
        (text, TYPE)
    } else {
        (mayfly_metrics::older(&text), OLDER_TYPE)
    };
    let header = Header::from_bytes("Content-Type", kind).map_err(|()| anyhow!("a bad header"))?;
    Ok(Response::from_string(text).with_header(header))
}

fn listen(address: &str, wanted: &arguments::Metrics) -> Result<()> {
    let server = match address.strip_prefix("unix:") {
        Some(path) => Server::http_unix(Path::new(path)),
        None => Server::http(if address.contains(':') {
            address.to_owned()
        } else {
            format!("127.0.0.1:{address}")
        }),
    };
    let server = server.map_err(|error| anyhow!("cannot listen at {address}: {error}"))?;
    match server.server_addr() {
        tiny_http::ListenAddr::IP(at) => eprintln!("mayfly: metrics at http://{at}{PATH}"),
        tiny_http::ListenAddr::Unix(_) => eprintln!("mayfly: metrics at {address}, {PATH}"),
    }
    for request in server.incoming_requests() {
        let told = match (request.method(), request.url()) {
            (Method::Get, PATH) => match gather(wanted) {
                Ok(text) => answer(&request, text)?,
                Err(error) => Response::from_string(format!("{error:#}\n")).with_status_code(500),
            },
            _ => Response::from_string(format!("{PATH}\n")).with_status_code(404),
        };
        // A scraper that has gone meanwhile comes again.
        let _ = request.respond(told);
    }
    Ok(())
}
