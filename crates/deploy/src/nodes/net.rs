//! Where a node's daemon listens for the other nodes.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{launcher::Launcher, words::Place};

/// What the user says of the network between nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Net {
    /// `--net`; `None`: the address at which a node's host is reached.
    pub fabric: Option<Fabric>,
    /// `--ports`, both ends included; `None`: whatever port is free.
    pub ports: Option<(u16, u16)>,
}

/// Which of a host's addresses to use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// That of the interface of this name.
    Interface(String),
    /// The one in this network: an address and the number of its leading bits that count.
    Network(IpAddr, u8),
}

/// Longest name of an interface, bytes (`IFNAMSIZ`, with its terminating zero).
const INTERFACE_BYTES_MAX: usize = 15;

impl Fabric {
    /// From `ib0`, `10.1.0.0/16`, `fd00::/8`.
    ///
    /// # Errors
    /// For what is neither.
    pub fn parse(text: &str) -> Result<Fabric> {
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().with_context(|| format!("--net {text}"))?;
            let bits: u8 = bits.parse().with_context(|| format!("--net {text}"))?;
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            ensure!(bits <= bits_max, "--net {text}: an address has {bits_max} bits");
            return Ok(Fabric::Network(address, bits));
        }
        let fine = !text.is_empty()
            && text.len() <= INTERFACE_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        ensure!(fine, "--net {text:?}: name an interface (ib0) or a network (10.1.0.0/16)");
        Ok(Fabric::Interface(text.to_owned()))
    }

    fn has(&self, interface: &str, address: IpAddr) -> bool {
        match self {
            Fabric::Interface(name) => name == interface && !is_link_local(address),
            Fabric::Network(network, bits) => leading(*network, *bits) == leading(address, *bits),
        }
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fabric::Interface(name) => write!(f, "on the interface {name}"),
            Fabric::Network(address, bits) => write!(f, "in the network {address}/{bits}"),
        }
    }
}

/// Others could not tell which link is meant.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The first `bits` of an address, and whether it is of the older kind.
fn leading(address: IpAddr, bits: u8) -> (bool, u128) {
    let (number, all) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let gone = u32::from(all - bits.min(all));
    (address.is_ipv4(), number.checked_shr(gone).unwrap_or(0))
}

/// From `7000-7100`.
///
/// # Errors
/// For what is no such range.
pub fn parse_ports(text: &str) -> Result<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().with_context(|| format!("--ports {text}"));
    let (first, last) = (number(first)?, number(last)?);
    ensure!(first > 0 && first <= last, "--ports {text}: choose two ports, the lower one first");
    Ok((first, last))
}

/// Opens the socket of a node.
///
/// # Errors
/// When the host has no such address, or none of the ports is free.
pub(super) fn listen(net: &Net, launcher: &Launcher, place: &Place) -> Result<TcpListener> {
    let address = match &net.fabric {
        Some(fabric) => address_of(fabric)
            .with_context(|| format!("{} has no address {fabric} (--net)", place.host))?,
        None if *launcher == Launcher::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        None => reached(place)?,
    };
    let Some((first, last)) = net.ports else {
        return TcpListener::bind((address, 0))
            .with_context(|| format!("cannot listen at {address} on {}", place.host));
    };
    for port in first..=last {
        match TcpListener::bind((address, port)) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            bound => {
                return bound.with_context(|| {
                    format!("cannot listen at {address}, port {port}, on {}", place.host)
                });
            }
        }
    }
    bail!("no port from {first} to {last} is free at {address} on {} (--ports)", place.host)
}

fn address_of(fabric: &Fabric) -> Result<IpAddr> {
    let addresses = nix::ifaddrs::getifaddrs().context("cannot list this host's addresses")?;
    let mut fits: Vec<IpAddr> = addresses
        .filter_map(|found| Some((found.interface_name, address(&found.address?)?)))
        .filter_map(|(interface, address)| fabric.has(&interface, address).then_some(address))
        .collect();
    // The older kind first.
    fits.sort_by_key(IpAddr::is_ipv6);
    fits.first().copied().context("none of its addresses fits")
}

fn address(found: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = found.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
    v4.or_else(|| found.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip())))
}

/// The address at which this host was reached, or could be by its name.
fn reached(place: &Place) -> Result<IpAddr> {
    // Client, its port, server, its port.
    let by_ssh = std::env::var("SSH_CONNECTION").ok();
    if let Some(address) = by_ssh.as_deref().and_then(|words| words.split(' ').nth(2)) {
        return address.parse().with_context(|| format!("$SSH_CONNECTION: {address:?}"));
    }
    let by_name = named(&place.host).into_iter().find(|address| !address.is_loopback());
    by_name.or_else(by_route).with_context(|| {
        format!("{} has no address at which others reach it; choose one by --net", place.host)
    })
}

/// Those of the host's addresses that are this host's.
fn named(host: &str) -> Vec<IpAddr> {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    found.map(|found| found.ip()).filter(|ip| UdpSocket::bind((*ip, 0)).is_ok()).collect()
}

/// The address of ours with which the kernel would go out. Nothing is sent.
fn by_route() -> Option<IpAddr> {
    let out = |from: SocketAddr, to: IpAddr| {
        let socket = UdpSocket::bind(from).ok()?;
        // Addresses for documentation: nobody has them.
        socket.connect((to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let v4 = || out((Ipv4Addr::UNSPECIFIED, 0).into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let v6 = || {
        let nobody = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        out((Ipv6Addr::UNSPECIFIED, 0).into(), nobody.into())
    };
    v4().or_else(v6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Roles;
    use proptest::prelude::*;

    #[test]
    fn interfaces_and_networks_are_told_apart() {
        let network = |text: &str| Fabric::parse(text).expect("a good one");
        assert_eq!(network("ib0"), Fabric::Interface("ib0".to_owned()));
        let ten = network("10.1.2.0/23");
        assert!(ten.has("x", "10.1.3.7".parse().expect("an address")));
        assert!(!ten.has("x", "10.1.4.7".parse().expect("an address")));
        assert!(network("0.0.0.0/0").has("x", "1.2.3.4".parse().expect("an address")));
        assert!(!network("0.0.0.0/0").has("x", "::1".parse().expect("an address")));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "an interface", "sixteen-letters!"] {
            assert!(Fabric::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ports_are_taken_from_the_range_until_it_is_used_up() {
        let place = Place { node: 0, host: "here".to_owned(), shares: false, roles: Roles::ALL };
        let free = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = free.local_addr().expect("bound").port();
        let net = Net { fabric: None, ports: Some((port, port)) };
        let error = listen(&net, &Launcher::Local, &place).expect_err("it is in use").to_string();
        assert!(error.contains("--ports") && error.contains("here"), "{error}");
        drop(free);
        let bound = listen(&net, &Launcher::Local, &place).expect("it is free now");
        assert_eq!(bound.local_addr().expect("bound").port(), port);
        for bad in ["", "0", "9-8", "1-70000", "a-b"] {
            assert!(parse_ports(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_host_without_such_an_address_is_named() {
        let place = Place { node: 0, host: "n7".to_owned(), shares: false, roles: Roles::ALL };
        let fabric = Fabric::parse("nosuch0").expect("a name");
        let net = Net { fabric: Some(fabric), ports: None };
        let error = format!("{:#}", listen(&net, &Launcher::Ssh, &place).expect_err("none"));
        assert!(error.contains("n7 has no address on the interface nosuch0"), "{error}");
    }

    proptest! {
        #[test]
        fn an_address_is_in_each_network_around_it(number: u32, other: u32, bits in 0u8..=32) {
            let address = IpAddr::V4(number.into());
            let fabric = Fabric::Network(address, bits);
            prop_assert!(fabric.has("x", address));
            let same = bits == 0 || number >> (32 - bits) == other >> (32 - bits);
            prop_assert_eq!(fabric.has("x", IpAddr::V4(other.into())), same);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "[0-9a-f:./\\-é ]{0,30}") {
            let _refused_or_not = (Fabric::parse(&text).is_ok(), parse_ports(&text).is_ok());
        }
    }
}
