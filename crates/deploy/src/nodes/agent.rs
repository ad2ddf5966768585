//! The process of one node. It makes the node's directories, opens its socket, tells the relay
//! where that is, and hears which other nodes there are. From then on it is the node's supervisor.
//!
//! Standard input is a socket to the relay on this host. If anything goes wrong before the
//! supervisor serves, or if the line is cut, the process removes the node's directories again.

use std::{
    fs::File,
    io::{BufReader, Write},
    net::TcpListener,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
};

use anyhow::{Context, Result, ensure};

use super::{
    members::Members,
    net,
    words::{Job, NodeMessage, Order, Place, Settings, Up, read_line, write_line},
};
use crate::{
    Config, Instance,
    instance::{self, Keep, Locked, daemons},
    log, supervisor,
};

/// What a node has when there are other nodes.
#[derive(Debug)]
pub(crate) struct Net {
    /// Where its daemon is to listen.
    pub(crate) listener: TcpListener,
    /// 64 hexadecimal digits.
    pub(crate) secret: String,
    /// Its number.
    pub(crate) node: u32,
}

/// Serves one node until its end.
///
/// # Errors
/// When it cannot serve; it has cleaned up then. A node that has told its relay why ends without an
/// error.
pub fn run_node() -> Result<()> {
    let _ = rustix::process::setsid();
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut line = BufReader::new(stream);
    let order: Order = read_line(&mut line)?.context("nothing is ordered")?;
    let place = order.places.first().context("a node has a place")?.clone();
    let Job::Start(settings) = &order.job else { anyhow::bail!("a node is only started") };
    match begin(&order, settings, &place, &mut line) {
        Ok(Some((config, lock, net))) => supervisor::run_node(config, lock, line.into_inner(), net),
        // The process that wanted the node has ended.
        Ok(None) => Ok(()),
        Err(error) => {
            let said = NodeMessage::Failed { why: format!("{error:#}"), log: String::new() };
            // The relay collects the reasons of all nodes, so it is told once. If it cannot be
            // told, the reason goes to standard error.
            match write_line(line.get_mut(), &Up { node: place.node, said }) {
                Ok(()) => Ok(()),
                Err(_) => Err(error),
            }
        }
    }
}

type Prepared = (Config, Locked, Net);

fn begin(
    order: &Order,
    settings: &Settings,
    place: &Place,
    line: &mut BufReader<UnixStream>,
) -> Result<Option<Prepared>> {
    let listener = net::listen(&settings.net, &order.launcher, place)?;
    let base = place.base(&order.name);
    let (config, lock) = described(settings, place).make_node(
        &base,
        order.instance,
        (place.node, settings.daemons),
        place.roles.client,
        order.shared.as_ref(),
    )?;
    let joined = log_to(&config.run_dir).and_then(|()| {
        let at = NodeMessage::At(listener.local_addr()?);
        write_line(line.get_mut(), &Up { node: place.node, said: at })?;
        join(order, place, &config, line)
    });
    if !matches!(joined, Ok(true)) {
        instance::remove(&config, Keep::Nothing);
    }
    let net = Net { listener, secret: settings.secret.clone(), node: place.node };
    joined.map(|joined| joined.then_some((config, lock, net)))
}

fn described(settings: &Settings, place: &Place) -> Instance {
    let mount = settings.mount.clone().and_then(|mount| match place.shares {
        // Programs know the mount point of their host's first daemon only.
        true if settings.daemons > 1 => None,
        true => {
            let mut path = mount.into_os_string();
            path.push(format!("@{}", place.node));
            Some(path.into())
        }
        false => Some(mount),
    });
    Instance {
        audience: crate::Audience::Everybody,
        name: None,
        mount,
        data_dirs: settings.data_dirs.clone(),
        meta_dir: settings.meta_dir.clone(),
        keep: false,
        options: settings.options.clone(),
    }
}

/// From here on messages about trouble go to the node's log.
fn log_to(run_dir: &Path) -> Result<()> {
    let log = File::create(run_dir.join(log::LOG_NAME))?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}

/// Hears of the others; false when the line is cut instead.
fn join(
    order: &Order,
    place: &Place,
    config: &Config,
    line: &mut BufReader<UnixStream>,
) -> Result<bool> {
    let Some(members) = read_line::<Members>(line)? else { return Ok(false) };
    ensure!(
        members.instance == order.instance && members.nodes.len() > place.node as usize,
        "the list of nodes is that of another instance"
    );
    members.store(&config.run_dir)?;
    daemons::link(config)?;
    // Nothing more is said before this node is ready.
    ensure!(line.buffer().is_empty(), "the relay speaks out of turn");
    Ok(true)
}

/// The words of a supervisor as those of a node.
pub(crate) fn word_of(node: u32, word: &str, log: Option<String>) -> Vec<u8> {
    let said = match log {
        Some(log) => NodeMessage::Failed { why: word.to_owned(), log },
        None => NodeMessage::Word(word.to_owned()),
    };
    super::words::line(&Up { node, said }).unwrap_or_default()
}

/// Tells of a node in its relay's stead.
pub(super) fn say(to: &mut impl Write, node: u32, said: NodeMessage) {
    // A relay that does not listen any more need not know.
    let _ = write_line(to, &Up { node, said });
}
