//! Two nodes of this machine that have a network between them, and nothing else of it.

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Result, ensure};
use mayfly_testkit::skip;

/// Two network namespaces with two pairs of interfaces, `fab0` (10.77.0.0/24) and `fab1`
/// (10.78.0.0/24). They go when this does.
pub struct Namespaces {
    /// As `ip netns` knows them.
    pub names: [String; 2],
}

/// `ip` with these words, separated by single spaces.
///
/// # Errors
/// With what it says.
pub fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "ip {words}: {error}");
    Ok(())
}

/// What nobody else calls his: the machine's namespaces have one list of names.
fn number() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Says why not for `suite`, when namespaces cannot be made here.
#[must_use]
pub fn is_possible(suite: &str) -> bool {
    if !skip::unless_installed(suite, &["ip", "bash"], "iproute2 bash") {
        return false;
    }
    let name = format!("mft-{}-try", number());
    if let Err(error) = ip(&format!("netns add {name}")) {
        skip::note(suite, &format!("network namespaces need root: {error}"));
        return false;
    }
    ip(&format!("netns del {name}")).is_ok()
}

impl Namespaces {
    /// Makes both.
    ///
    /// # Errors
    /// When the kernel refuses them.
    pub fn new() -> Result<Namespaces> {
        let number = number();
        let names = ["a", "b"].map(|end| format!("mft-{number}-{end}"));
        let made = Namespaces { names };
        let [a, b] = &made.names;
        for name in [a, b] {
            ip(&format!("netns add {name}"))?;
            // Otherwise the kernel looks for neighbours and routers.
            for which in ["all", "default"] {
                let setting = format!("net.ipv6.conf.{which}.disable_ipv6=1");
                ip(&format!("netns exec {name} sysctl -qw {setting}"))?;
            }
            ip(&format!("-n {name} link set lo up"))?;
        }
        for fabric in 0..2 {
            let peer = format!("type veth peer name fab{fabric} netns {b}");
            ip(&format!("link add fab{fabric} netns {a} {peer}"))?;
            for (name, host) in [(a, 1), (b, 2)] {
                let address = format!("10.{}.0.{host}/24", 77 + fabric);
                ip(&format!("-n {name} addr add {address} dev fab{fabric}"))?;
                ip(&format!("-n {name} link set fab{fabric} up"))?;
            }
        }
        Ok(made)
    }

    /// Bytes that the first one has sent and received on `interface`.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn bytes_of_first(&self, interface: &str) -> Result<u64> {
        let counters = ["rx_bytes", "tx_bytes"]
            .map(|counter| format!("/sys/class/net/{interface}/statistics/{counter}"));
        // A fresh /sys belongs to the namespace.
        let output = Command::new("ip")
            .args(["netns", "exec", &self.names[0], "cat"])
            .args(counters)
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let numbers = text.split_whitespace().map(str::parse::<u64>);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
        ensure!(numbers.len() == 2, "the counters of {interface} say {text:?}");
        Ok(numbers.iter().sum())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = ip(&format!("netns del {name}")) {
                eprintln!("{error}");
            }
        }
    }
}
