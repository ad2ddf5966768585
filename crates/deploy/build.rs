//! Builds the preload library, so that one `cargo build` makes everything.
//!
//! The library lives in host processes and has rules of its own (`no_std`, aborting, fat LTO), so
//! it is a build of its own, with its own target directory below `OUT_DIR`.
//! `MAYFLY_PRELOAD_PREBUILT` names a library that was built elsewhere (packagers) and is taken
//! instead.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Set by the outer cargo for its own build; the inner one chooses for itself.
const OUTER: [&str; 7] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_UNSTABLE_BUILD_STD",
];

fn main() {
    println!("cargo:rerun-if-env-changed=MAYFLY_PRELOAD_PREBUILT");
    let library = match env::var_os("MAYFLY_PRELOAD_PREBUILT") {
        Some(path) => {
            println!("cargo:rerun-if-changed={}", Path::new(&path).display());
            PathBuf::from(path)
        }
        None => build(),
    };
    assert!(library.is_file(), "the preload library was not built at {}", library.display());
    println!("cargo:rustc-env=MAYFLY_PRELOAD_LIBRARY={}", library.display());
}

fn directory(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).unwrap_or_else(|| panic!("cargo sets {variable}")))
}

fn build() -> PathBuf {
    let root = directory("CARGO_MANIFEST_DIR").join("../..");
    let target = directory("OUT_DIR").join("preload");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for variable in OUTER {
        cargo.env_remove(variable);
    }
    let status = cargo
        .current_dir(&root)
        .args(["build", "--quiet", "-p", "mayfly-preload", "--profile", "preload", "--target-dir"])
        .arg(&target)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the preload library failed: {status}"),
        Err(error) => panic!("cargo could not be started for the preload library: {error}"),
    }
    let built = target.join("preload");
    follow(&root, &built.join("libmayfly_preload.d"));
    built.join("libmayfly_preload.so")
}

/// Has the library built again when a file changes that it was made of: those that cargo names, and
/// the manifests of their crates.
fn follow(root: &Path, made_of: &Path) {
    let list = std::fs::read_to_string(made_of)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", made_of.display()));
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    // A space within a name is written with a backslash.
    let sources = sources.replace("\\ ", "\0");
    let sources = sources.split_whitespace().map(|path| PathBuf::from(path.replace('\0', " ")));
    let mut followed: BTreeSet<PathBuf> =
        ["Cargo.toml", "Cargo.lock"].map(|name| root.join(name)).into();
    for source in sources {
        let manifest = |above: &Path| Some(above.join("Cargo.toml")).filter(|path| path.is_file());
        followed.extend(source.ancestors().skip(1).find_map(manifest));
        followed.insert(source);
    }
    for path in followed {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}
