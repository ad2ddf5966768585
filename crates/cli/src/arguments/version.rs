//! The version, as `mayfly --version` prints it.

use mayfly_deploy::PROTOCOL_VERSION;

/// What `mayfly --version` prints behind the name: the release, the commit where whoever built it
/// has said it (`MAYFLY_COMMIT`), and the version of what nodes say to each other. Only nodes with
/// one version make an instance.
pub(crate) fn version() -> &'static str {
    static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let commit = option_env!("MAYFLY_COMMIT").filter(|commit| !commit.is_empty());
        let commit = commit.map_or_else(|| "not packaged".to_owned(), |id| format!("commit {id}"));
        format!("{} ({commit}, protocol {PROTOCOL_VERSION})", env!("CARGO_PKG_VERSION"))
    });
    &TEXT
}
