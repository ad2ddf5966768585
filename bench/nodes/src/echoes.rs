//! What of the price of many nodes is this machine's: a bare request over TCP to many processes
//! that sleep in between, against one to few.

use std::net::TcpStream;

use anyhow::Result;
use mayfly_testkit::Scratch;

use crate::{
    processor, report,
    stream::{self, Listening},
};

const ROUNDS: usize = 5;
const TRIPS: usize = 200;
/// As many bytes as a stat of a node's has, and its reply.
const REQUEST_BYTES: usize = 112;
const REPLY_BYTES: usize = 160;
/// An odd stride leads by all of them, in no order that a cache would know.
const STRIDE: usize = 27;

/// Processes that answer, and a connection to each.
struct Echoes<'a> {
    listening: Vec<Listening<'a>>,
    streams: Vec<TcpStream>,
}

impl<'a> Echoes<'a> {
    fn start(scratches: &'a [Scratch]) -> Result<Echoes<'a>> {
        let start = |scratch: &'a Scratch| stream::start(scratch, &["__echo"]);
        let listening = scratches.iter().map(start).collect::<Result<Vec<_>>>()?;
        let streams =
            listening.iter().map(|one| stream::connect(&one.address)).collect::<Result<_>>()?;
        Ok(Echoes { listening, streams })
    }

    /// Processor time of a request, of all processes, µs.
    fn round(&mut self) -> Result<f64> {
        let others: Vec<u32> = self.listening.iter().map(Listening::pid).collect();
        let (mut bytes, count) = ([0; REQUEST_BYTES], self.streams.len());
        let (done, used) = processor::used_ns(&others, || {
            (0..TRIPS).try_for_each(|trip| {
                stream::trip(&mut self.streams[trip * STRIDE % count], &mut bytes, REPLY_BYTES)
            })
        });
        done?;
        Ok(used as f64 / 1000.0 / TRIPS as f64)
    }

    fn end(self) -> Result<()> {
        self.listening.into_iter().try_for_each(Listening::end)
    }
}

/// Prints a row of `many` such processes and of `few`.
pub(crate) fn row(many: usize, few: usize) -> Result<()> {
    let scratches = |count: usize| (0..count).map(|_| Scratch::new("nodes-echo")).collect();
    let (many, few): (Result<Vec<_>>, Result<Vec<_>>) = (scratches(many), scratches(few));
    let (many, few) = (many?, few?);
    let (mut many, mut few) = (Echoes::start(&many)?, Echoes::start(&few)?);
    let (mut of_many, mut of_few) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (one, other) = (many.round()?, few.round()?);
        // The first one is for nobody.
        if round > 0 {
            of_many.push(one);
            of_few.push(other);
        }
    }
    report::row("a bare request over TCP", "µs", &of_many, &of_few);
    many.end()?;
    few.end()
}
