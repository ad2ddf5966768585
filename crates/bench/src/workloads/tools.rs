//! The table of tools: everyday programs on a tree of files, as a user starts them.
//!
//! Each is a line for the shell, which runs in the process's directory of the measured file system.
//! A phase is one operation, so what counts is its rate beside that of the others. The tree comes
//! out of an archive that lies there, too.

/// Files of the tree at most: more than the tools of one afternoon need.
pub(super) const FILES_MAX: u64 = 12_000;
/// The archive that the tree comes out of.
pub(crate) const ARCHIVE: &str = "archive";
/// Files of one of its directories.
pub(crate) const FILES_EACH: u64 = 50;
/// Sizes of its files, in turn, bytes: 16 KiB each, on average.
pub(crate) const SIZES: [usize; 8] = [0, 300, 1200, 3901, 9000, 16_384, 32_768, 65_536];

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    pub(super) name: &'static str,
    /// What has to be installed.
    pub(super) program: &'static str,
    pub(crate) script: &'static str,
}

const fn tool(name: &'static str, program: &'static str, script: &'static str) -> Tool {
    Tool { name, program, script }
}

/// All of them, each on what those before have left.
pub(crate) const TOOLS: &[Tool] = &[
    tool("tar-x", "tar", "mkdir tree && tar -xf archive -C tree"),
    tool("cp-r", "cp", "cp -r tree copy"),
    tool("tar-c", "tar", "tar -cf - tree | cat > /dev/null"),
    tool("find", "find", "find tree -type f -size +4k | wc -l > /dev/null"),
    tool("du", "du", "du -s tree > /dev/null"),
    tool("ls-lR", "ls", "ls -lR tree > /dev/null"),
    tool("ls-lR-again", "ls", "ls -lR tree > /dev/null"),
    tool("read-again", "xargs", "find tree -type f | xargs cat > /dev/null"),
    tool("grep-r", "grep", "grep -r 'no file has that' tree; [ $? = 1 ]"),
    tool("rsync", "rsync", "rsync -a tree/ synced"),
    tool("rsync-same", "rsync", "rsync -a tree/ synced"),
    tool("rm-rf", "rm", "rm -rf copy synced"),
    tool("git-add", "git", "git init -q tree && git -C tree add -A"),
    tool(
        "git-commit",
        "git",
        "git -C tree -c user.name=b -c user.email=b@example.invalid commit -q -m all",
    ),
    tool("git-status", "git", "[ -z \"$(git -C tree status --porcelain)\" ]"),
    tool("git-again", "git", "[ -z \"$(git -C tree status --porcelain)\" ]"),
    tool("exec", "true", "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i + 1)); done"),
];

/// Is the program on the path?
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_tool_has_a_name_of_its_own() {
        let names: BTreeSet<_> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), TOOLS.len());
    }
}
