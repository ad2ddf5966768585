//! The Debian packages that the suites use.
//!
//! Installed when that may be done without asking anybody: `apt-get` is there, and we are root or
//! `sudo` wants no password. Otherwise the suites that will be skipped are named here, and say it
//! again themselves.

use std::path::Path;
use std::process::{Command, Stdio};

use mayfly_testkit::skip;

use super::Install;

/// What one suite needs.
struct Need {
    suite: &'static str,
    /// Names to be found on `PATH`, or whole paths.
    programs: &'static [&'static str],
    packages: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need { suite: "single calls", programs: &["cc"], packages: &["gcc", "libc6-dev"] },
    Need {
        suite: "source tree",
        programs: &["gcc", "make"],
        packages: &["gcc", "libc6-dev", "make"],
    },
    Need { suite: "static programs", programs: &["busybox"], packages: &["busybox-static"] },
    Need { suite: "musl", programs: &["musl-gcc"], packages: &["musl-tools"] },
    Need { suite: "fuse", programs: &["fusermount3"], packages: &["fuse3"] },
    Need { suite: "sandboxes", programs: &["bwrap"], packages: &["bubblewrap"] },
    Need {
        suite: "containers: podman",
        programs: &["podman", "runc"],
        packages: &["podman", "runc"],
    },
    Need {
        suite: "packages",
        programs: &["strip", "readelf", "dpkg-deb", "rpmbuild"],
        packages: &["binutils", "dpkg", "rpm"],
    },
    Need { suite: "other C libraries", programs: &["mmdebstrap"], packages: &["mmdebstrap"] },
    Need { suite: "metrics", programs: &["promtool", "prometheus"], packages: &["prometheus"] },
    Need { suite: "report", programs: &["chromium", "strace"], packages: &["chromium", "strace"] },
    Need { suite: "top", programs: &["tmux"], packages: &["tmux"] },
    Need { suite: "git", programs: &["git"], packages: &["git"] },
    Need {
        suite: "checkout",
        programs: &["git", "gcc", "make"],
        packages: &["git", "gcc", "make"],
    },
    Need { suite: "Python", programs: &["python3"], packages: &["python3"] },
    Need {
        suite: "MPI",
        programs: &["mpicc.mpich", "mpirun.mpich"],
        packages: &["mpich", "libmpich-dev"],
    },
    Need {
        suite: "OpenFOAM",
        programs: &["simpleFoam", "decomposePar", "mpirun.openmpi"],
        packages: &["openfoam", "openfoam-examples", "openmpi-bin"],
    },
    Need {
        suite: "ssh, MPI launchers",
        programs: &["sshd", "ssh", "ip"],
        packages: &["openssh-server", "openssh-client", "iproute2"],
    },
    Need {
        suite: "slurm",
        programs: &["/usr/sbin/slurmctld", "/usr/sbin/slurmd", "srun", "/usr/sbin/munged"],
        packages: &["slurmctld", "slurmd", "slurm-client", "munge"],
    },
    Need { suite: "stress-ng", programs: &["stress-ng"], packages: &["stress-ng"] },
    Need { suite: "fio", programs: &["fio"], packages: &["fio"] },
    Need {
        suite: "shells and tools",
        programs: &["zsh", "dash", "rsync", "vim", "patch", "find"],
        packages: &["zsh", "dash", "rsync", "vim", "patch", "findutils"],
    },
    Need {
        suite: "cmake and ninja",
        programs: &["cmake", "ninja"],
        packages: &["cmake", "ninja-build"],
    },
    Need {
        suite: "Python libraries",
        programs: &[
            "/usr/lib/python3/dist-packages/numpy",
            "/usr/lib/python3/dist-packages/h5py",
            "/usr/lib/python3/dist-packages/lmdb",
        ],
        packages: &["python3-numpy", "python3-h5py", "python3-lmdb"],
    },
    Need {
        suite: "pip",
        programs: &[
            "/usr/bin/pip3",
            "/usr/share/python-wheels",
            "/usr/lib/python3/dist-packages/setuptools",
            "/usr/lib/python3/dist-packages/wheel",
        ],
        packages: &["python3-pip", "python3-venv", "python3-setuptools", "python3-wheel"],
    },
    Need {
        suite: "parallel HDF5",
        programs: &["h5pcc.mpich"],
        packages: &["libhdf5-mpich-dev", "mpich"],
    },
    Need {
        suite: "PostgreSQL",
        programs: &["pg_ctlcluster", "pg_config", "pgbench", "psql"],
        packages: &["postgresql", "libpq-dev"],
    },
    Need { suite: "Java", programs: &["java", "javac"], packages: &["default-jdk-headless"] },
    Need { suite: "Node.js", programs: &["node"], packages: &["nodejs"] },
];

/// Installs what is missing, if it may. Never fails: a suite without its programs skips itself.
pub(super) fn ensure(install: Install) {
    let missing = missing();
    if missing.is_empty() {
        println!("all programs that the suites use are there");
        return;
    }
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    match install {
        Install::WhereAllowed => add(&packages),
        Install::Never => eprintln!("not installed: {}", packages.join(" ")),
    }
    for need in self::missing() {
        let packages = need.packages.join(" ");
        eprintln!("the suite `{}` will be skipped; it needs: {packages}", need.suite);
    }
}

/// Installs these packages, or says why not.
pub(super) fn add(packages: &[&str]) {
    let hint = packages.join(" ");
    let Some(prefix) = privilege() else {
        return eprintln!("not installed, since that needs root and apt-get: {hint}");
    };
    println!("installing {hint}");
    if !apt_get(prefix, &["update"]) || !install_all(prefix, packages) {
        eprintln!("apt-get could not install all of: {hint}");
    }
}

fn missing() -> Vec<&'static Need> {
    let is_there = |name: &str| match name.contains('/') {
        true => Path::new(name).exists(),
        false => skip::find(name).is_some(),
    };
    let lacks = |need: &&Need| need.programs.iter().any(|program| !is_there(program));
    NEEDS.iter().filter(lacks).collect()
}

/// The words before `apt-get`, or nothing when we may not install.
fn privilege() -> Option<&'static [&'static str]> {
    skip::find("apt-get")?;
    let root: &[&str] = &["env"];
    let sudo: &[&str] = &["sudo", "-n", "env"];
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if is_root {
        return Some(root);
    }
    let mut ask = Command::new("sudo");
    ask.args(["-n", "true"]).stderr(Stdio::null()).stdin(Stdio::null());
    ask.status().is_ok_and(|status| status.success()).then_some(sudo)
}

fn install_all(prefix: &[&str], packages: &[&str]) -> bool {
    let arguments = ["install", "--yes", "--no-install-recommends"];
    let arguments: Vec<&str> = arguments.iter().chain(packages).copied().collect();
    apt_get(prefix, &arguments)
}

fn apt_get(prefix: &[&str], arguments: &[&str]) -> bool {
    let mut command = Command::new(prefix[0]);
    command
        .args(&prefix[1..])
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"])
        .args(arguments);
    command.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}
