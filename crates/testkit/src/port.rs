//! Ports for servers that want to be told theirs.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result};

/// Below those that Linux gives to whoever asks for any, which might get it before the server does.
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// How many were given out by this process.
static GIVEN: AtomicU16 = AtomicU16::new(0);

/// A port of the loopback network at which nobody listens, and which is given out once.
pub fn free() -> Result<u16> {
    // Another process begins elsewhere.
    let begin = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    let nth = |given: u16| {
        let place = (begin + u32::from(given)) % u32::from(COUNT);
        FIRST + u16::try_from(place).expect("it is less than the count")
    };
    let mut all = (0..COUNT).map(|_| nth(GIVEN.fetch_add(1, Ordering::Relaxed)));
    all.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).context("no port is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_can_be_listened_at() {
        let (one, two) = (free().expect("a port"), free().expect("another"));
        assert_ne!(one, two);
        let _listener = TcpListener::bind(("127.0.0.1", one)).expect("nobody has it");
        assert!((FIRST..FIRST + COUNT).contains(&two));
    }
}
