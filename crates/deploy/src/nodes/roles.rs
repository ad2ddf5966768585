//! What each node of an instance does, chosen by lists of hosts.
//!
//! A *server* has bytes of files, a *metadata node* names and attributes, a *client* serves
//! programs. Without lists every node is all three. A file begins where its name is, in the record
//! of that name, so metadata nodes are servers too.

use std::{collections::BTreeSet, fmt};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::lists::nodes_of;
use crate::Options;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// It has bytes of files.
    pub server: bool,
    /// It has names and attributes.
    pub metadata: bool,
    /// Programs of its host are served.
    pub client: bool,
}

impl Roles {
    /// What a node does unless a list says otherwise.
    pub const ALL: Roles = Roles { server: true, metadata: true, client: true };

    /// For files that were written before there were roles.
    pub(super) fn all() -> Roles {
        Roles::ALL
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn is_all(&self) -> bool {
        *self == Roles::ALL
    }
}

impl Default for Roles {
    fn default() -> Self {
        Roles::ALL
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        let words = [(self.server, "server"), (self.metadata, "metadata"), (self.client, "client")];
        let words: Vec<&str> = words.iter().filter(|word| word.0).map(|word| word.1).collect();
        f.write_str(&words.join("+"))
    }
}

/// The lists, as the user gives them: hosts, and `@K` for the node with number K.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleLists {
    /// `--servers`.
    pub servers: Option<String>,
    /// `--metadata-nodes`.
    pub metadata: Option<String>,
    /// `--clients`.
    pub clients: Option<String>,
}

impl RoleLists {
    /// What each of the nodes on `hosts` does.
    ///
    /// # Errors
    /// Names the list that is empty, names no node of the instance, or contradicts another one, and
    /// says what to do.
    pub fn resolve(&self, hosts: &[String], options: &Options) -> Result<Vec<Roles>> {
        let everybody = || (0..hosts.len()).collect::<BTreeSet<usize>>();
        let chosen = |option: &str, list: &Option<String>| {
            list.as_ref().map(|list| nodes_of(option, list, hosts)).transpose()
        };
        let named_metadata = chosen("--metadata-nodes", &self.metadata)?;
        let servers = chosen("--servers", &self.servers)?.unwrap_or_else(everybody);
        let metadata = named_metadata.unwrap_or_else(|| servers.clone());
        let clients = chosen("--clients", &self.clients)?.unwrap_or_else(everybody);
        let name = |node: &usize| format!("node {node} on {}", hosts[*node]);
        if let Some(node) = metadata.difference(&servers).next() {
            bail!(
                "--metadata-nodes: {} is not among --servers, but files begin where their names \
                 are: put it into --servers too",
                name(node)
            );
        }
        let idle = (0..hosts.len()).find(|node| !servers.contains(node) && !clients.contains(node));
        if let Some(node) = idle {
            bail!(
                "{} is in none of --servers, --metadata-nodes and --clients, so that it would do \
                 nothing: put it into one of them, or leave it out of the nodes",
                name(&node)
            );
        }
        if let Some(node) = servers.difference(&metadata).next() {
            ensure!(
                options.placement()?.width > 1,
                "--servers: {} would have no bytes, since without stripes all of a file is where \
                 its name is: choose --layout stripe or hash, or put it into --metadata-nodes too",
                name(node)
            );
        }
        for pool in &options.pools {
            if let Some(node) = pool.nodes.iter().find(|node| !servers.contains(&(**node as usize)))
            {
                bail!(
                    "--pool {}: {} is not among --servers: put it there, or leave it out of the \
                     pool",
                    pool.name,
                    name(&(*node as usize))
                );
            }
        }
        let roles = |node: usize| Roles {
            server: servers.contains(&node),
            metadata: metadata.contains(&node),
            client: clients.contains(&node),
        };
        Ok((0..hosts.len()).map(roles).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPED: &str = "stripe";

    fn roles(lists: [Option<&str>; 3], layout: &str) -> Result<Vec<String>> {
        let hosts: Vec<String> = ["n1", "n2", "n3", "n3"].map(str::to_owned).to_vec();
        let [servers, metadata, clients] = lists.map(|list| list.map(str::to_owned));
        let options = Options { layout: layout.to_owned(), ..Options::default() };
        let roles = RoleLists { servers, metadata, clients }.resolve(&hosts, &options)?;
        Ok(roles.iter().map(Roles::to_string).collect())
    }

    fn refused(lists: [Option<&str>; 3], layout: &str, why: &str) {
        let error = format!("{:#}", roles(lists, layout).unwrap_err());
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn without_lists_every_node_is_everything() {
        assert_eq!(roles([None; 3], "home").unwrap(), ["all"; 4]);
    }

    #[test]
    fn a_host_means_all_of_its_nodes_and_a_number_one() {
        let clients = "client";
        let found = roles([Some("n[1-2]"), None, None], "home").unwrap();
        assert_eq!(found, ["all", "all", clients, clients]);
        let found = roles([Some("n3"), None, None], "home").unwrap();
        assert_eq!(found, [clients, clients, "all", "all"]);
        let found = roles([Some("@[1-3]"), Some("@1"), Some("n1,n2")], STRIPED).unwrap();
        assert_eq!(found, [clients, "all", "server", "server"]);
    }

    #[test]
    fn lists_that_mean_nothing_or_contradict_each_other_are_refused() {
        refused([Some(""), None, None], STRIPED, "--servers: the list is empty");
        refused([Some("n9"), None, None], STRIPED, "--servers: no node of the instance is on n9");
        refused([Some("@4"), None, None], STRIPED, "numbered from 0 to 3");
        refused([None, None, Some("n1,@0")], STRIPED, "--clients: @0 is in the list twice");
        refused([Some("n1"), Some("n2"), None], STRIPED, "node 1 on n2 is not among --servers");
        refused([Some("n1,n2"), None, Some("n1")], STRIPED, "node 2 on n3 is in none of");
        refused([None, Some("n1"), None], "home", "node 1 on n2 would have no bytes");
        assert!(roles([None, Some("n1"), None], "hash").is_ok());
    }
}
