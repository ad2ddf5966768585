//! Programs that people run, each natively and in a fresh instance: `docs/reference/programs.md` is
//! made here.

use anyhow::Result;
use mayfly_testkit::Scratch;
use mayfly_tests::lines::LINES;
use mayfly_tests::rows::Row;
use mayfly_tests::verdicts;

/// One test for each row, and what it runs.
macro_rules! rows {
    ($(fn $name:ident = $row:expr;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                let row = $row;
                let turn = row.turn()?;
                let scratch = Scratch::new("row")?;
                let verdict = row.verdict(&turn, &scratch)?;
                verdicts::settle(LINES, stringify!($name), &verdict)
            }
        )*

        const ROWS: &[&str] = &[$(stringify!($name)),*];
    };
}

#[test]
fn the_table_of_programs_has_a_line_for_each_test() -> Result<()> {
    for name in ROWS {
        assert!(LINES.iter().any(|line| line.test == *name), "{name} has no line");
    }
    verdicts::expect_lines(LINES)
}

const SQLITE: Row = Row { modules: &["sqlite3"], ..Row::new("sqlite.py", "python3") };
const LMDB: Row = Row { modules: &["lmdb"], ..Row::new("lmdb_store.py", "python3-lmdb") };
const H5PY: Row = Row { modules: &["h5py", "numpy"], ..Row::new("h5py_files.py", "python3-h5py") };
const SHELL: Row = Row::new("shell.sh", "bash dash zsh");
const GCC: &[&str] = &["gcc"];

rows! {
    fn sqlite_keeps_a_database_of_two_processes_with_a_rollback_journal =
        Row { arguments: &["rollback"], ..SQLITE };
    fn sqlite_keeps_a_database_of_two_processes_with_a_write_ahead_log =
        Row { arguments: &["wal"], ..SQLITE };
    fn postgresql_serves_restarts_and_recovers = Row {
        programs: &["pg_ctlcluster", "pg_config", "pgbench", "psql"],
        user: Some("postgres"),
        ..Row::new("postgresql.sh", "postgresql libpq-dev")
    };
    fn lmdb_reads_and_writes_through_its_map = Row { arguments: &["plain"], ..LMDB };
    fn lmdb_writes_into_its_map = Row { arguments: &["writemap"], ..LMDB };
    fn h5py_writes_and_follows_with_file_locking =
        Row { variables: &[("HDF5_USE_FILE_LOCKING", "TRUE")], ..H5PY };
    fn h5py_writes_and_follows_without_file_locking =
        Row { variables: &[("HDF5_USE_FILE_LOCKING", "FALSE")], ..H5PY };
    fn four_ranks_write_one_hdf5_file = Row {
        programs: &["h5pcc.mpich", "mpirun.mpich"],
        ..Row::new("parallel_hdf5.sh", "libhdf5-mpich-dev mpich")
    };
    fn romio_sieves_is_atomic_and_shares_file_pointers = Row {
        programs: &["mpicc.mpich", "mpirun.mpich"],
        ..Row::new("romio.sh", "mpich libmpich-dev")
    };
    fn numpy_maps_arrays_in_every_mode =
        Row { modules: &["numpy"], ..Row::new("memmap.py", "python3-numpy") };
    fn weights_are_read_through_mappings =
        Row { modules: &["numpy"], ..Row::new("safetensors.py", "python3-numpy") };
    fn four_workers_load_50_000_small_files = Row::new("loader.py", "python3");

    fn bash_runs_a_portable_script = Row { shell: Some("bash"), ..SHELL };
    fn dash_runs_a_portable_script = Row { shell: Some("dash"), ..SHELL };
    fn zsh_runs_a_portable_script = Row { shell: Some("zsh"), ..SHELL };
    fn find_du_cp_and_mv_handle_trees =
        Row { programs: &["patch", "find", "du"], ..Row::new("files.sh", "patch findutils") };
    fn tar_keeps_what_a_tree_has = Row { programs: &["tar"], ..Row::new("tar.sh", "tar") };
    fn rsync_copies_what_has_changed =
        Row { programs: &["rsync"], ..Row::new("rsync.sh", "rsync") };
    fn vim_keeps_backups_and_recovers =
        Row { programs: &["vim"], ..Row::new("vim.sh", "vim") };
    fn git_syncs_in_every_way =
        Row { programs: &["git"], ..Row::new("git_fsync.sh", "git") };

    fn gcc_compiles_archives_and_links =
        Row { programs: &["gcc", "ar", "objdump"], ..Row::new("gcc.sh", "gcc libc6-dev binutils") };
    fn cmake_and_ninja_build_what_has_changed = Row {
        programs: &["cmake", "ninja", "gcc"],
        ..Row::new("cmake.sh", "cmake ninja-build gcc libc6-dev")
    };
    fn cargo_builds_tests_and_cleans =
        Row { programs: &["cargo", "cc"], ..Row::new("cargo.sh", "cargo gcc") };
    fn pip_installs_a_wheel_into_an_environment = Row {
        modules: &["setuptools", "wheel", "pip", "venv", "ensurepip"],
        ..Row::new("pip.sh", "python3-pip python3-venv python3-setuptools python3-wheel")
    };
    fn the_loader_takes_shared_objects_from_the_mount =
        Row { programs: GCC, modules: &["ctypes"], ..Row::new("loading.sh", "gcc libc6-dev") };
    fn libraries_with_calls_of_their_own_are_served_when_they_are_loaded_later = Row {
        programs: GCC,
        modules: &["ctypes"],
        // A mount would serve what the library does not.
        variables: &[("MAYFLY_ACCESS", "preload")],
        ..Row::new("raw_calls.sh", "gcc libc6-dev libaio1")
    };
    fn the_loader_runs_programs_that_it_is_given = Row {
        programs: &["gcc", "ldd", "/lib64/ld-linux-x86-64.so.2"],
        ..Row::new("loader_argument.sh", "gcc libc6-dev libc-bin")
    };
    fn programs_run_from_the_mount_by_every_name =
        Row { programs: GCC, ..Row::new("executing.sh", "gcc libc6-dev") };
    fn java_streams_maps_and_locks = Row {
        programs: &["java", "javac"],
        ..Row::new("java.sh", "default-jdk-headless")
    };
    fn node_reads_and_writes_from_its_thread_pool =
        Row { programs: &["node"], ..Row::new("node.sh", "nodejs") };
    fn programs_in_namespaces_of_their_own_are_in_the_instance = Row {
        programs: &["unshare", "nsenter", "pgrep", "hostname", "python3"],
        namespaces: true,
        ..Row::new("namespaces.sh", "util-linux procps hostname python3")
    };
}
