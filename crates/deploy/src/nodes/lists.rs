//! Lists of nodes of an instance: hosts, each for all its nodes, and `@K` for the node with number
//! K.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::hosts;

/// The numbers of the nodes that a list names, which `option` was given.
pub(super) fn nodes_of(option: &str, list: &str, hosts: &[String]) -> Result<BTreeSet<usize>> {
    ensure!(
        list.chars().any(|character| character != ',' && !character.is_whitespace()),
        "{option}: the list is empty: name a node at least, or leave the option out for all nodes"
    );
    let mut nodes = BTreeSet::new();
    for name in hosts::expand(list).with_context(|| option.to_owned())? {
        let before = nodes.len();
        match name.strip_prefix('@') {
            Some(number) => {
                let node = number.parse().ok().filter(|node| *node < hosts.len());
                nodes.insert(node.with_context(|| {
                    format!(
                        "{option}: there is no node {number}; they are numbered from 0 to {}",
                        hosts.len() - 1
                    )
                })?);
            }
            None => {
                let of_host = |(_, host): &(usize, &String)| **host == name;
                let mut found = hosts.iter().enumerate().filter(of_host).peekable();
                ensure!(
                    found.peek().is_some(),
                    "{option}: no node of the instance is on {name}. Name hosts as --nodes does, \
                     or nodes by their numbers, as in @[0-3]"
                );
                nodes.extend(found.map(|(node, _)| node));
            }
        }
        ensure!(nodes.len() > before, "{option}: {name} is in the list twice");
    }
    Ok(nodes)
}
