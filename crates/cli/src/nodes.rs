//! Which nodes an instance is to have, as the user says it.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use mayfly_deploy::{
    Access, DAEMONS_MAX, Instance, NETWORK_THREADS_MAX, Pool,
    nodes::{
        Fabric, Launch, Launcher, NODES_MAX, Network, POOLS_MAX, RoleLists, expand_hosts,
        hosts_of_file, hosts_of_the_job, parse_ports, pools, pools_of_file, pools_of_the_topology,
        this_host,
    },
};

/// Set for a whole session or test suite, as `--nodes`. Not by clap, for which others would
/// contradict it.
const NODES: &str = "MAYFLY_NODES";
/// The same of the roles, for nodes that [`NODES`] names.
const ROLES: [&str; 3] = ["MAYFLY_SERVERS", "MAYFLY_METADATA_NODES", "MAYFLY_CLIENTS"];
/// Least capacity of a daemon, bytes.
const PART_BYTES_MIN: u64 = 64 << 20;
/// Longest wait for a start that may be chosen, seconds.
const START_TIMEOUT_S_MAX: u64 = 3600;

/// The nodes of an instance.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Several nodes")]
pub(crate) struct Nodes {
    /// Hosts, one for each node: `a,b`, `n[01-16]`; `local:N` for N nodes on this machine; `job`
    /// for the hosts of the Slurm, PBS, LSF, OAR or Flux job in which this runs [default:
    /// $MAYFLY_NODES, or one node, here]
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// A file of hosts, one or a list on each line
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    hostfile: Option<PathBuf>,
    /// Daemons on each host, of which each program uses one: that of its local rank, as MPI, Slurm,
    /// PALS, Flux and torchrun tell it, or of $MAYFLY_DAEMON; without a rank the first. Each has a
    /// part of the host's capacity [default: 1]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DAEMONS_MAX)))]
    daemons: Option<u32>,
    /// The nodes that have the bytes of files: hosts as in --nodes, or numbers of nodes as in
    /// @[1-3]. The others use the instance and store nothing [default: all nodes]
    #[arg(long, value_name = "LIST")]
    servers: Option<String>,
    /// The servers that have names, attributes and small files. Servers that are not among them
    /// have chunks of large files, for which there has to be --layout stripe or hash [default: all
    /// servers]
    #[arg(long, value_name = "LIST")]
    metadata_nodes: Option<String>,
    /// The nodes on which programs use the instance; on others there are no mount point and no
    /// `mayfly env` [default: all nodes]
    #[arg(long, value_name = "LIST")]
    clients: Option<String>,
    /// How other hosts are reached: `ssh`, `srun`, or a command line with the words {host} and
    /// {command}; without --nodes and --hostfile it means `--nodes job` [default: srun in a Slurm
    /// job, otherwise ssh]
    #[arg(long, value_name = "local|ssh|srun|TEMPLATE")]
    launcher: Option<String>,
    /// Where the mayfly program is on other hosts [default: where it is here]
    #[arg(long, value_name = "PATH")]
    remote_path: Option<PathBuf>,
    /// Interface (`ib0`) or network (`10.1.0.0/16`) by which nodes reach each other [default: the
    /// address at which a host is reached]
    #[arg(long, value_name = "IFACE|CIDR")]
    net: Option<String>,
    /// Ports on which nodes listen for each other [default: whichever are free]
    #[arg(long, value_name = "A-B")]
    ports: Option<String>,
    /// Nodes under a name, for directories whose files shall be on these only (`mayfly layout set
    /// pool:NAME`): hosts, or numbers of nodes, as in near=n[01-24] or near=@[0-3]; may be said
    /// several times
    #[arg(long, value_name = "NAME=LIST")]
    pool: Vec<String>,
    /// A file of pools, one NAME=LIST on each line
    #[arg(long, value_name = "FILE")]
    pool_file: Option<PathBuf>,
    /// Pools from the network as Slurm knows it: one for each leaf switch, under the switch's name,
    /// with those nodes of the instance that are below it
    #[arg(long, value_name = "topology", value_parser = ["topology"])]
    pools: Option<String>,
    /// Seal what nodes say to each other
    #[arg(long)]
    encrypt: bool,
    /// Threads of each daemon that talk to other nodes, each with a part of them [default: one for
    /// every eight processors that the daemon may use, at most 8]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(NETWORK_THREADS_MAX)))]
    network_threads: Option<u32>,
    /// How long to wait for all nodes to serve
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=START_TIMEOUT_S_MAX))]
    start_timeout: u64,
}

impl Nodes {
    /// What is to be started, when that is more than one node here.
    pub(crate) fn launch(&self, mut instance: Instance) -> Result<Option<Launch>> {
        let Some((hosts, local)) = self.hosts()? else {
            self.refuse_alone()?;
            return Ok(None);
        };
        ensure!(
            !instance.keep,
            "--keep is for instances of one node; several nodes are saved by `mayfly run --save`"
        );
        // Other nodes start elsewhere.
        for origin in &mut instance.options.origins {
            *origin = origin.absolute()?;
        }
        let has_origins = !instance.options.origins.is_empty();
        let daemons = self.daemons();
        expect_parts(&instance, daemons)?;
        instance.options.pools = self.pools(&hosts)?;
        instance.options.network_threads = self.network_threads;
        let fabric = self.net.as_deref().map(Fabric::parse).transpose()?;
        let ports = self.ports.as_deref().map(parse_ports).transpose()?;
        let launch = Launch {
            instance,
            hosts,
            daemons,
            roles: self.roles(),
            launcher: if local { Launcher::Local } else { self.launcher()? },
            remote_path: self.remote_path.clone(),
            network: Network { fabric, ports },
            encrypt: self.encrypt,
            patience: Duration::from_secs(self.start_timeout),
        };
        ensure!(
            !has_origins || launch.roles()?.iter().all(|roles| roles.server || !roles.metadata),
            "with --origin each of the --metadata-nodes has to be among the --servers: what is \
             fetched is where its directory is"
        );
        let roles = launch.roles()?;
        ensure!(
            roles.chunks(daemons as usize).all(|host| host.iter().all(|role| *role == host[0])),
            "with --daemons all daemons of a host have the same roles: name hosts in --servers, \
             --metadata-nodes and --clients"
        );
        Ok(Some(launch))
    }

    fn pools(&self, hosts: &[String]) -> Result<Vec<Pool>> {
        let mut texts = self.pool.clone();
        if let Some(file) = &self.pool_file {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read --pool-file {}", file.display()))?;
            texts.extend(pools_of_file(&text));
        }
        let mut named = pools(&texts, hosts)?;
        if self.pools.is_some() {
            for pool in pools_of_the_topology(hosts)? {
                let twice = named.iter().any(|other| other.name == pool.name);
                ensure!(!twice, "--pools topology: there is a pool {:?} already", pool.name);
                named.push(pool);
            }
            ensure!(named.len() <= POOLS_MAX, "an instance has at most {POOLS_MAX} pools");
        }
        Ok(named)
    }

    /// The lists of roles; the usual ones belong to the usual nodes.
    fn roles(&self) -> RoleLists {
        let given = RoleLists {
            servers: self.servers.clone(),
            metadata: self.metadata_nodes.clone(),
            clients: self.clients.clone(),
        };
        if self.are_named() || given != RoleLists::default() {
            return given;
        }
        let [servers, metadata, clients] =
            ROLES.map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
        RoleLists { servers, metadata, clients }
    }

    /// Were nodes asked for on this command line?
    pub(crate) fn are_named(&self) -> bool {
        self.nodes.is_some() || self.hostfile.is_some() || self.launcher.is_some()
    }

    /// Daemons of each host.
    pub(crate) fn daemons(&self) -> u32 {
        self.daemons.unwrap_or(1)
    }

    /// The host of each node, and whether they are all this one. The daemons of one host stand one
    /// after the other.
    fn hosts(&self) -> Result<Option<(Vec<String>, bool)>> {
        let daemons = self.daemons() as usize;
        let Some((hosts, local)) = self.named_hosts()? else {
            return Ok((daemons > 1).then(|| (vec![this_host(); daemons], true)));
        };
        if daemons == 1 {
            return Ok(Some((hosts, local)));
        }
        let different: BTreeSet<&String> = hosts.iter().collect();
        ensure!(
            different.len() == hosts.len(),
            "with --daemons each host is named once; for several daemons on this machine say \
             --daemons N without --nodes"
        );
        let hosts = hosts.into_iter().flat_map(|host| vec![host; daemons]).collect();
        Ok(Some((hosts, local)))
    }

    /// The hosts that are asked for, and whether they are all this one.
    fn named_hosts(&self) -> Result<Option<(Vec<String>, bool)>> {
        if let Some(file) = &self.hostfile {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read --hostfile {}", file.display()))?;
            return Ok(Some((hosts_of_file(&text)?, false)));
        }
        let usual = || std::env::var(NODES).ok().filter(|text| !text.is_empty());
        let Some(list) = self.nodes.clone().or_else(|| match self.launcher.as_deref() {
            None => usual(),
            Some(_) => Some("job".to_owned()),
        }) else {
            return Ok(None);
        };
        if let Some(count) = list.strip_prefix("local:") {
            let other = self.launcher.as_deref().is_some_and(|launcher| launcher != "local");
            ensure!(!other, "--nodes {list} needs no --launcher");
            return Ok(Some((vec![this_host(); parse_count(count)?], true)));
        }
        ensure!(
            self.launcher.as_deref() != Some("local"),
            "--launcher local starts nodes on this machine only: say --nodes local:N"
        );
        let hosts = if list == "job" { hosts_of_the_job()? } else { expand_hosts(&list)? };
        Ok(Some((hosts, false)))
    }

    fn launcher(&self) -> Result<Launcher> {
        match &self.launcher {
            Some(text) => Launcher::parse(text),
            None if std::env::var_os("SLURM_JOB_ID").is_some() => Ok(Launcher::Srun),
            None => Ok(Launcher::Ssh),
        }
    }

    fn refuse_alone(&self) -> Result<()> {
        let options = [
            ("--net", self.net.is_some()),
            ("--ports", self.ports.is_some()),
            ("--encrypt", self.encrypt),
            ("--network-threads", self.network_threads.is_some()),
            ("--remote-path", self.remote_path.is_some()),
            ("--pool", !self.pool.is_empty()),
            ("--pool-file", self.pool_file.is_some()),
            ("--pools", self.pools.is_some()),
            ("--servers", self.servers.is_some()),
            ("--metadata-nodes", self.metadata_nodes.is_some()),
            ("--clients", self.clients.is_some()),
        ];
        match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!("{option} is for several nodes: name them with --nodes"),
            None => Ok(()),
        }
    }
}

/// Refuses what several daemons of a host cannot have.
fn expect_parts(instance: &Instance, daemons: u32) -> Result<()> {
    if daemons == 1 {
        return Ok(());
    }
    ensure!(
        instance.options.access()? != Access::Fuse,
        "--daemons is for programs with the preload library: all that use a mount use the first \
         daemon. Say --access auto, both or preload"
    );
    if let Some(bytes) = instance.options.capacity_bytes {
        ensure!(
            bytes / u64::from(daemons) >= PART_BYTES_MIN,
            "--capacity is for all {daemons} daemons of a host together: at least 64M are needed \
             for each"
        );
    }
    Ok(())
}

fn parse_count(text: &str) -> Result<usize> {
    let count = text.parse().ok().filter(|count| *count > 0);
    let count: usize = count.with_context(|| {
        format!("--nodes local:{text}: say how many nodes, 1 or more: each is two processes here")
    })?;
    ensure!(
        count <= NODES_MAX,
        "--nodes local:{count}: an instance has at most {NODES_MAX} nodes, and this machine needs \
         two processes and some memory for each"
    );
    Ok(count)
}
