//! `cargo xtask dist`: what a site installs.
//!
//! A tree as it stands below a prefix (the binary, man pages, completions, documents, a module
//! file), packed as a tarball, and as a `.deb`, an `.rpm` and a Python wheel where the tools of
//! these formats are there; and recipes for EasyBuild, Spack and Apptainer that know the tarball's
//! sum. The binary is built against an old C library by `cargo zigbuild`, so that it runs on any
//! x86-64 Linux of the last ten years, unless a finished one is given.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{binary::workspace, skip};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The oldest C library that the portable binary runs with.
const GLIBC: &str = "2.17";
/// Single files that packages have.
const PAGES: [&str; 7] = [
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/README.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];
/// The documents that packages have: all but the plan.
const DOCUMENTS: [&str; 6] = [
    "docs/guide",
    "docs/reference",
    "docs/design",
    "docs/benchmarks",
    "docs/benchmarks/plots",
    "docs/decisions",
];
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/mayfly"),
    ("zsh", "share/zsh/site-functions/_mayfly"),
    ("fish", "share/fish/vendor_completions.d/mayfly.fish"),
];

/// What makes an installation or an image of the packages, and where it is written beside them.
const RECIPES: [(&str, &str); 3] = [
    ("integrations/easybuild/mayfly.eb", "Mayfly-@VERSION@.eb"),
    ("integrations/spack/package.py", "spack/packages/mayfly/package.py"),
    ("integrations/apptainer/mayfly.def", "mayfly.def"),
];

/// Makes all that can be made here, and says what is left out.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (mut binary, mut out) = (None, workspace().join("target/dist"));
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} takes a path"))?;
        match *word {
            "--binary" => binary = Some(PathBuf::from(value)),
            "--out" => out = PathBuf::from(value),
            other => bail!("{other}: dist takes --binary FILE and --out DIR"),
        }
    }
    let binary = match binary {
        Some(binary) => binary,
        None => build_portable()?,
    };
    let needed = glibc_of(&binary)?;
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let dist = Dist { out: fs::canonicalize(out)?, binary: fs::canonicalize(binary)?, needed };
    let tree = dist.lay_out()?;
    let tarball = dist.tarball(&tree)?;
    println!("{} (glibc {} or newer)", tarball.display(), dist.needed);
    for recipe in dist.recipes(&tarball)? {
        println!("{}", recipe.display());
    }
    for (made, name, tool) in [
        (dist.deb(&tree)?, ".deb", "dpkg-deb"),
        (dist.rpm(&tree)?, ".rpm", "rpmbuild (Debian: rpm)"),
        (
            dist.wheel(&tree)?,
            "wheel",
            "maturin, cargo-zigbuild or zig (pip install maturin ziglang)",
        ),
    ] {
        match made {
            Some(path) => println!("{}", path.display()),
            None => println!("no {name}: not installed: {tool}"),
        }
    }
    Ok(())
}

/// What a command prints, without the end of the line.
fn said_by(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The preload library is built by itself: it is the same for every C library.
fn build_portable() -> Result<PathBuf> {
    // Sources without their history are packed as well.
    let commit = said_by(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]));
    ensure!(
        skip::find("cargo-zigbuild").is_some(),
        "a portable binary needs cargo-zigbuild and zig (cargo install --locked cargo-zigbuild; \
         pip install ziglang); --binary FILE packs one that is there, for machines like this one"
    );
    let root = workspace();
    let build = |command: &mut Command| -> Result<()> {
        let status = command.current_dir(&root).status().context("cannot start cargo")?;
        ensure!(status.success(), "{command:?}: {status}");
        Ok(())
    };
    let library = root.join("target/dist-build");
    let of_library = ["build", "-p", "mayfly-preload", "--profile", "preload", "--target-dir"];
    build(Command::new("cargo").args(of_library).arg(&library))?;
    let target = format!("x86_64-unknown-linux-gnu.{GLIBC}");
    let of_binary = ["zigbuild", "--release", "-p", "mayfly-cli", "--target", &target];
    build(
        Command::new("cargo")
            .args(of_binary)
            .env("MAYFLY_PRELOAD_PREBUILT", library.join("preload/libmayfly_preload.so"))
            .env("MAYFLY_COMMIT", commit.unwrap_or_default()),
    )?;
    Ok(root.join("target/x86_64-unknown-linux-gnu/release/mayfly"))
}

/// The newest version of the C library that the binary asks for.
fn glibc_of(binary: &Path) -> Result<String> {
    let told = said_by(Command::new("readelf").args(["--version-info", "--wide"]).arg(binary))?;
    let versions = told.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    let numbers = |text: &&str| -> Option<Vec<u32>> {
        text.split('.').map(|part| part.parse().ok()).collect()
    };
    let newest = versions.max_by_key(numbers);
    Ok(newest.unwrap_or("2.2.5").to_owned())
}

struct Dist {
    out: PathBuf,
    binary: PathBuf,
    /// The C library that the binary needs.
    needed: String,
}

impl Dist {
    /// The tree below the prefix.
    fn lay_out(&self) -> Result<PathBuf> {
        let tree = self.out.join(format!("mayfly-{VERSION}-x86_64"));
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        let place = |below: &str| -> Result<PathBuf> {
            let path = tree.join(below);
            fs::create_dir_all(path.parent().context("a path below the tree")?)?;
            Ok(path)
        };
        let program = place("bin/mayfly")?;
        said_by(Command::new("strip").arg("-o").arg(&program).arg(&self.binary))?;
        said_by(Command::new(&program).arg("__man").arg(tree.join("share/man/man1")))?;
        for (shell, path) in COMPLETIONS {
            let script = said_by(Command::new(&program).args(["completions", shell]))?;
            fs::write(place(path)?, script + "\n")?;
        }
        let root = workspace();
        let module = fs::read_to_string(root.join("integrations/modulefiles/mayfly.lua"))?;
        let module_path = format!("share/modulefiles/mayfly/{VERSION}.lua");
        fs::write(place(&module_path)?, module.replace("@VERSION@", VERSION))?;
        for name in PAGES {
            fs::copy(root.join(name), place(&format!("share/doc/mayfly/{name}"))?)?;
        }
        for directory in DOCUMENTS {
            for entry in fs::read_dir(root.join(directory))? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    let name = entry.file_name().into_string().ok().context("a name in UTF-8")?;
                    fs::copy(
                        entry.path(),
                        place(&format!("share/doc/mayfly/{directory}/{name}"))?,
                    )?;
                }
            }
        }
        // What batch systems and the boot run: below share/mayfly, as its documents say.
        for directory in ["slurm", "pbs", "lsf", "flux", "oar", "systemd", "grafana"] {
            for entry in fs::read_dir(root.join("integrations").join(directory))? {
                let entry = entry?;
                let name = entry.file_name().into_string().ok().context("a name in UTF-8")?;
                fs::copy(entry.path(), place(&format!("share/mayfly/{directory}/{name}"))?)?;
            }
        }
        fs::copy(root.join("integrations/site.toml"), place("share/mayfly/site.toml")?)?;
        open_to_all(&tree)?;
        Ok(tree)
    }

    /// The same bytes from the same tree, whoever packs it and when.
    fn tarball(&self, tree: &Path) -> Result<PathBuf> {
        let name = tree.file_name().context("the tree has a name")?;
        let path = self.out.join(format!("{}.tar.gz", name.to_string_lossy()));
        let when = said_by(Command::new("git").args(["log", "-1", "--format=@%ct"]));
        let when = when.unwrap_or_else(|_| "@0".to_owned());
        let options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner"];
        let mut tar = Command::new("tar");
        tar.args(options).arg(format!("--mtime={when}")).env("GZIP", "-n");
        said_by(tar.arg("-czf").arg(&path).arg("-C").arg(&self.out).arg(name))?;
        Ok(path)
    }

    fn recipes(&self, tarball: &Path) -> Result<Vec<PathBuf>> {
        let told = said_by(Command::new("sha256sum").arg(tarball))?;
        let sum = told.split_whitespace().next().context("sha256sum prints a sum")?;
        let fill = |text: &str| text.replace("@VERSION@", VERSION).replace("@SHA256@", sum);
        let mut made = Vec::new();
        for (from, to) in RECIPES {
            let path = self.out.join(fill(to));
            fs::create_dir_all(path.parent().context("a path below the packages")?)?;
            fs::write(&path, fill(&fs::read_to_string(workspace().join(from))?))?;
            made.push(path);
        }
        Ok(made)
    }

    /// The tree below `/usr`, for Debian and its kin.
    fn deb(&self, tree: &Path) -> Result<Option<PathBuf>> {
        if skip::find("dpkg-deb").is_none() {
            return Ok(None);
        }
        let needed = &self.needed;
        let root = self.out.join("deb");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(root.join("DEBIAN"))?;
        said_by(Command::new("cp").arg("-r").arg(tree).arg(root.join("usr")))?;
        let control = format!(
            "Package: mayfly\nVersion: {VERSION}\nArchitecture: amd64\nSection: utils\n\
             Priority: optional\nMaintainer: Mayfly developers <mayfly@example.invalid>\n\
             Depends: libc6 (>= {needed})\nRecommends: fuse3\n\
             Description: temporary distributed file system for HPC and AI jobs\n \
             Pools the node-local storage of a job's nodes into one namespace, started by any\n \
             user without root, and gone when the job ends.\n"
        );
        fs::write(root.join("DEBIAN/control"), control)?;
        open_to_all(&root)?;
        let path = self.out.join(format!("mayfly_{VERSION}_amd64.deb"));
        let build = ["--root-owner-group", "--build"];
        said_by(Command::new("dpkg-deb").args(build).arg(&root).arg(&path))?;
        fs::remove_dir_all(&root)?;
        Ok(Some(path))
    }

    /// The same for Enterprise Linux, SLES and their kin.
    fn rpm(&self, tree: &Path) -> Result<Option<PathBuf>> {
        if skip::find("rpmbuild").is_none() {
            return Ok(None);
        }
        let needed = &self.needed;
        let top = self.out.join("rpm");
        fs::create_dir_all(&top)?;
        let spec = top.join("mayfly.spec");
        // The binary is finished: nothing of it is looked through, stripped or split.
        let text = format!(
            "%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n\
             %global _build_id_links none\n\
             Name: mayfly\nVersion: {VERSION}\nRelease: 1\nLicense: Apache-2.0 OR MIT\n\
             Summary: Temporary distributed file system for HPC and AI jobs\nAutoReqProv: no\n\
             Requires: glibc >= {needed}\nRecommends: fuse3\nBuildArch: x86_64\n%description\n\
             Pools the node-local storage of a job's nodes into one namespace, started by any\n\
             user without root, and gone when the job ends.\n%install\nmkdir -p %{{buildroot}}\n\
             cp -r {} %{{buildroot}}/usr\n%files\n/usr/bin/mayfly\n/usr/share/man/man1/*\n\
             /usr/share/bash-completion/completions/mayfly\n/usr/share/zsh/site-functions/_mayfly\n\
             /usr/share/fish/vendor_completions.d/mayfly.fish\n/usr/share/modulefiles/mayfly\n\
             /usr/share/mayfly\n/usr/share/doc/mayfly\n",
            tree.display()
        );
        fs::write(&spec, text)?;
        let mut build = Command::new("rpmbuild");
        build.args(["-bb", "--quiet", "--define"]).arg(format!("_topdir {}", top.display()));
        said_by(build.arg(&spec))?;
        let name = format!("mayfly-{VERSION}-1.x86_64.rpm");
        let path = self.out.join(&name);
        fs::rename(top.join("RPMS/x86_64").join(&name), &path)?;
        fs::remove_dir_all(&top)?;
        Ok(Some(path))
    }
}

impl Dist {
    /// The Python package, with the program in it: for every Linux whose C library is as old as
    /// the program's.
    fn wheel(&self, tree: &Path) -> Result<Option<PathBuf>> {
        if ["maturin", "cargo-zigbuild"].iter().any(|tool| skip::find(tool).is_none()) {
            return Ok(None);
        }
        let package = workspace().join("python");
        fs::create_dir_all(package.join("mayfly/bin"))?;
        fs::copy(tree.join("bin/mayfly"), package.join("mayfly/bin/mayfly"))?;
        let made = self.out.join("wheel");
        let platform = format!("manylinux_{}", self.needed.replace('.', "_"));
        let mut build = Command::new("maturin");
        build.args(["build", "--locked", "--zig", "--target", "x86_64-unknown-linux-gnu"]);
        build.args(["--compatibility", &platform, "--out"]).arg(&made);
        said_by(build.current_dir(&package))?;
        let wheel = fs::read_dir(&made)?.next().context("maturin has made no wheel")??;
        let path = self.out.join(wheel.file_name());
        fs::rename(wheel.path(), &path)?;
        fs::remove_dir_all(&made)?;
        Ok(Some(path))
    }
}

/// Whatever the mask of who packs: everybody may read, and execute what its owner may.
fn open_to_all(tree: &Path) -> Result<()> {
    said_by(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree)).map(drop)
}
