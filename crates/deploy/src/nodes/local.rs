//! Tasks for nodes on this host: looking, stopping, clearing up.

use std::{
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use anyhow::{Context, Result, bail, ensure};

use super::words::CLEARED;
use super::{
    agent::say,
    below::Below,
    logs,
    words::{Job, NodeMessage, Order, Place},
};
use crate::{
    Config, Found, instance, report_in,
    status::{Report, State},
    supervisor::control,
};

/// Nodes of one host that are asked at the same time. Asking is waiting.
const AT_ONCE: usize = 64;
/// Stack of the thread that asks one, bytes.
const STACK_BYTES: usize = 256 << 10;

/// Starts doing `order.job` at these places; their answers come on the line.
pub(super) fn perform(order: &Order, places: Vec<Place>) -> Result<Below> {
    let (ours, theirs) = UnixStream::pair()?;
    let below = Below::new(&places, ours)?;
    if let Job::Logs(wanted) = &order.job {
        let told = logs::Teller::new(&order.name, order.instance, &places, wanted, theirs);
        thread::Builder::new().spawn(move || told.tell())?;
        return Ok(below);
    }
    let (line, next) = (Arc::new(Mutex::new(theirs)), Arc::new(AtomicUsize::new(0)));
    let work = Arc::new((order.clone_without_places(), places));
    for _ in 0..work.1.len().min(AT_ONCE) {
        let (line, next, work) = (Arc::clone(&line), Arc::clone(&next), Arc::clone(&work));
        let ask_each = move || {
            while let Some(place) = work.1.get(next.fetch_add(1, Relaxed)) {
                let said = one(&work.0, place).unwrap_or_else(|error| NodeMessage::Failed {
                    why: format!("{error:#}"),
                    log: String::new(),
                });
                let mut line = line.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                say(&mut *line, place.node, said);
            }
        };
        thread::Builder::new().stack_size(STACK_BYTES).spawn(ask_each)?;
    }
    Ok(below)
}

fn one(order: &Order, place: &Place) -> Result<NodeMessage> {
    let base = place.base(&order.name);
    match &order.job {
        Job::Start(_) => bail!("a node is started by a process of its own"),
        Job::Logs(_) => bail!("logs are told by one thread for all nodes"),
        Job::Status(depth) => {
            let report = report_in(running(order, &base)?, *depth)?;
            Ok(NodeMessage::Report(Box::new(serde_json::to_value(with_trouble(report))?)))
        }
        Job::Stop => {
            // Its left-over files are removed next. Who asks for that tells of them.
            ensure!(!matches!(Found::look(&base)?, Found::Stale(_)), "its supervisor is dead");
            Ok(NodeMessage::Word(match control::stop(&running(order, &base)?)? {
                None => "stopped".to_owned(),
                Some(how) => format!("{}{how}", control::LOST),
            }))
        }
        Job::Clear => {
            // Another instance of this name may have died here earlier: that is its user's.
            if let Found::Stale(run_dir) = Found::look(&base)?
                && instance::is_left_of(order.instance, &run_dir)
            {
                instance::clear_stale(&run_dir)?;
                return Ok(NodeMessage::Word(CLEARED.to_owned()));
            }
            Ok(NodeMessage::Word("nothing is left".to_owned()))
        }
    }
}

fn running(order: &Order, base: &str) -> Result<Config> {
    let config = match Found::look(base)? {
        Found::Running(config) => *config,
        Found::Stale(run_dir) => {
            bail!("its supervisor is dead; `mayfly doctor --clean` removes {}", run_dir.display())
        }
        Found::Absent => bail!("it does not run"),
    };
    (config.instance == order.instance)
        .then_some(config)
        .context("another instance of that name runs there")
}

/// A report with the trouble that people have to hear of.
#[derive(serde::Serialize)]
struct WithTrouble {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

fn with_trouble(report: Report) -> WithTrouble {
    let trouble = (report.state != State::Serving).then(|| report.trouble()).flatten();
    WithTrouble { report, trouble }
}
