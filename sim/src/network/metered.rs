//! What the study of scaling needs of the network: links with bandwidth, and an account of what
//! each daemon does. The checker's runs have neither.

use mayfly_transport_tcp::Event;

use super::{Due, Network};
use crate::fabric::{Fabric, Flow};

/// What a daemon has done with the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests taken.
    pub requests_in: u64,
    /// Replies taken.
    pub replies_in: u64,
    /// Bytes of what was taken.
    pub bytes_in: u64,
    /// Requests sent.
    pub requests_out: u64,
    /// Replies sent.
    pub replies_out: u64,
    /// Bytes of what was sent.
    pub bytes_out: u64,
}

#[derive(Debug)]
pub(super) struct Meter {
    /// Without one, links are as fast as anybody likes.
    fabric: Option<Fabric>,
    /// What travels through it.
    cargo: Vec<Option<Due>>,
    free_cargo: Vec<usize>,
    /// Streams that may send when the daemon's turn is over.
    held: Option<Vec<Flow>>,
    work: Vec<Work>,
}

impl Meter {
    pub(super) fn new(nodes: u32) -> Meter {
        Meter {
            fabric: None,
            cargo: Vec::new(),
            free_cargo: Vec::new(),
            held: None,
            work: vec![Work::default(); nodes as usize],
        }
    }

    /// Whether a stream is kept back, which it is from now on then.
    pub(super) fn holds(&mut self, stream: Flow) -> bool {
        let Some(held) = &mut self.held else { return false };
        if !held.contains(&stream) {
            held.push(stream);
        }
        true
    }

    pub(super) fn sends(&mut self, node: u32, is_request: bool, bytes: usize) {
        let work = &mut self.work[node as usize];
        work.bytes_out += bytes as u64;
        if is_request {
            work.requests_out += 1;
        } else {
            work.replies_out += 1;
        }
    }

    pub(super) fn takes(&mut self, node: u32, event: &Event) {
        let work = &mut self.work[node as usize];
        match event {
            Event::Request { body, .. } => {
                work.requests_in += 1;
                work.bytes_in += body.len() as u64;
            }
            Event::Reply { body, .. } => {
                work.replies_in += 1;
                work.bytes_in += body.len() as u64;
            }
            _ => {}
        }
    }

    fn load(&mut self, now_ns: u64, flow: Flow, due: Due, bytes: u64) {
        let Some(fabric) = &mut self.fabric else { return };
        let place = self.free_cargo.pop().unwrap_or(self.cargo.len());
        if place == self.cargo.len() {
            self.cargo.push(None);
        }
        self.cargo[place] = Some(due);
        fabric.send(now_ns, flow, bytes, place as u64);
    }
}

impl Network {
    /// Links have a bandwidth from now on, and frames no jitter.
    pub fn set_fabric(&mut self, fabric: Fabric) {
        self.meter.fabric = Some(fabric);
    }

    /// The links, if they have a bandwidth.
    #[must_use]
    pub fn fabric(&self) -> Option<&Fabric> {
        self.meter.fabric.as_ref()
    }

    /// Keeps back what is sent from now on, until [`Network::release`].
    pub fn hold(&mut self) {
        self.meter.held = Some(Vec::new());
    }

    /// What was kept back goes at this time.
    pub fn release(&mut self, at_ns: u64) {
        for (from, to, lane) in self.meter.held.take().unwrap_or_default() {
            self.agenda.push((at_ns, Due::Pump(from, to, lane)));
        }
    }

    /// What a node's daemon has done since this was asked last.
    pub fn take_work(&mut self, node: u32) -> Work {
        std::mem::take(&mut self.meter.work[node as usize])
    }

    /// What has come to its end arrives after the delay of the way.
    pub(super) fn stage(&mut self, stage: usize) {
        let Meter { fabric, cargo, free_cargo, .. } = &mut self.meter;
        let arrived = fabric.as_mut().and_then(|fabric| fabric.done(self.now_ns, stage));
        if let Some(place) = arrived
            && let Some(due) = cargo[place as usize].take()
        {
            free_cargo.push(place as usize);
            self.agenda.push((self.now_ns + self.weather.delay_ns, due));
        }
        self.note_stages();
    }

    pub(super) fn load(&mut self, due: Due, bytes: u64) {
        let Due::Arrive { from, to, lane, .. } = due else { return };
        self.meter.load(self.now_ns, (from, to, lane), due, bytes);
        self.note_stages();
    }

    fn note_stages(&mut self) {
        let Some(fabric) = &mut self.meter.fabric else { return };
        let agenda = fabric.agenda.drain(..).map(|(at_ns, stage)| (at_ns, Due::Stage(stage)));
        self.agenda.extend(agenda);
    }
}
