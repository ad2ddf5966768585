//! What people and batch systems write: hosts, networks, ports, sizes.

use mayfly_deploy::{
    nodes::{Fabric, Launcher, NODES_MAX, expand_hosts, hosts_of_file, parse_ports},
    size,
};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for hosts in [expand_hosts(text), hosts_of_file(text)].into_iter().flatten() {
        assert!(hosts.len() <= NODES_MAX, "{} hosts", hosts.len());
        for host in &hosts {
            assert!(!host.is_empty() && !host.starts_with('-'), "{host:?} would be an option");
            assert!(host.bytes().all(|byte| byte.is_ascii_graphic()), "{host:?} is no host");
        }
    }
    if let Ok((first, last)) = parse_ports(text) {
        assert!(first > 0 && first <= last);
    }
    if let Ok(bytes) = size::parse(text) {
        assert!(!size::show(bytes).is_empty());
    }
    // Neither panics.
    drop(Fabric::parse(text));
    drop(Launcher::parse(text));
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "n[01-16,20]",
        "a,b",
        "r[1-2]n[0-3]-ib",
        "10.0.0.0/8",
        "fab0",
        "7400-7409",
        "64MiB",
        "512K",
        "host slots=4 # text\nother",
        "n[1-65536]",
        "ssh -x {host} {command}",
        "fe80::/10",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
