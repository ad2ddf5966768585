//! Pools: nodes under a name, for the layouts of directories.

use anyhow::{Context, Result, ensure};
use mayfly_daemon::{Pool, is_name};

use super::lists::nodes_of;

/// Pools of an instance at most.
pub const POOLS_MAX: usize = 4096;

/// The pools that are said as `NAME=LIST`, in an instance with these hosts.
///
/// # Errors
/// Says which pool cannot be, and why.
pub fn pools(texts: &[String], hosts: &[String]) -> Result<Vec<Pool>> {
    ensure!(texts.len() <= POOLS_MAX, "an instance has at most {POOLS_MAX} pools");
    let mut pools: Vec<Pool> = Vec::new();
    for text in texts {
        let pool = pool(text, hosts).with_context(|| format!("--pool {text}"))?;
        let twice = pools.iter().any(|other| other.name == pool.name);
        ensure!(!twice, "--pool {text}: there is a pool {:?} already", pool.name);
        pools.push(pool);
    }
    Ok(pools)
}

/// What stands in a file of pools: one on each line, and comments after `#`.
#[must_use]
pub fn pools_of_file(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn pool(text: &str, hosts: &[String]) -> Result<Pool> {
    let (name, list) = text.split_once('=').context("say NAME=LIST, such as near=n[1-24]")?;
    let name = name.trim();
    ensure!(is_name(name), "use up to 64 letters, digits, '-', '_' and '.' for the name");
    let nodes = nodes_of("its list", list, hosts)?;
    Ok(Pool { name: name.to_owned(), nodes: nodes.into_iter().map(|node| node as u32).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Result<Vec<(String, Vec<u32>)>> {
        let hosts = ["a1", "a2", "b1", "b1", "7"].map(str::to_owned);
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let pools = pools(&texts, &hosts)?;
        Ok(pools.into_iter().map(|pool| (pool.name, pool.nodes)).collect())
    }

    #[test]
    fn a_pool_has_all_nodes_of_its_hosts_and_those_that_are_numbered() {
        let pools = of(&["near=a[1-2]", "far = b1, @0", "odd=@[1-3],7"]).expect("pools");
        let wanted = [("near", vec![0, 1]), ("far", vec![0, 2, 3]), ("odd", vec![1, 2, 3, 4])];
        assert_eq!(pools, wanted.map(|(name, nodes)| (name.to_owned(), nodes)));
        assert_eq!(pools_of_file("near=a1 # a leaf\n\n# none\nfar=b1\n"), ["near=a1", "far=b1"]);
    }

    #[test]
    fn a_pool_that_cannot_be_is_refused_by_name() {
        for bad in [
            "near",
            "=a1",
            "near=",
            "near=c1",
            "near=@5",
            "near=0",
            "near=@0,@0",
            "ne/ar=a1",
            "near=a[2-1]",
        ] {
            assert!(of(&[bad]).is_err(), "{bad:?}");
        }
        assert!(of(&["near=a1", "near=a2"]).is_err(), "twice");
    }
}
