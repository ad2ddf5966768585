//! Builds the preload library, so that one `cargo build` makes everything.
//!
//! The library lives in host processes and has rules of its own (`no_std`, aborting, fat LTO), so
//! it is a build of its own, with its own target directory below `OUT_DIR`.
//! `MAYFLY_PRELOAD_PREBUILT` names a library that was built elsewhere (packagers) and is taken
//! instead.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

const PARTS: [&str; 9] = [
    "preload",
    "interpose",
    "client",
    "image",
    "sys",
    "types",
    "wire",
    "transport",
    "transport-shm",
];

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
    for part in PARTS {
        for file in ["src", "Cargo.toml", "build.rs"] {
            let path = root.join("crates").join(part).join(file);
            if path.exists() {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
    }
    println!("cargo:rerun-if-changed={}", root.join("Cargo.toml").display());
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
        Ok(status) if status.success() => target.join("preload/libmayfly_preload.so"),
        Ok(status) => panic!("building the preload library failed: {status}"),
        Err(error) => panic!("cargo could not be started for the preload library: {error}"),
    }
}
