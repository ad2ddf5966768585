//! The lines of `docs/reference/programs.md`, in its order.

use crate::verdicts::Line;

/// One for each program.
pub const LINES: &[Line] = &[
    Line {
        test: "sqlite_keeps_a_database_of_two_processes_with_a_rollback_journal",
        program: "SQLite, rollback journal",
        does: "two processes, 240 transactions with pages spilled early, savepoints, one \
               process killed in a transaction, VACUUM, integrity check",
    },
    Line {
        test: "sqlite_keeps_a_database_of_two_processes_with_a_write_ahead_log",
        program: "SQLite, WAL",
        does: "the same through the shared memory of the log",
    },
    Line {
        test: "postgresql_serves_restarts_and_recovers",
        program: "PostgreSQL",
        does: "initdb, pgbench by 4 clients, restart, killed and recovered, VACUUM FULL, \
               pg_amcheck; its socket lies outside",
    },
    Line {
        test: "lmdb_reads_and_writes_through_its_map",
        program: "LMDB",
        does: "two writers, readers that keep their snapshot, a writer killed in a transaction, \
               a full map, a compacted copy",
    },
    Line {
        test: "lmdb_writes_into_its_map",
        program: "LMDB, MDB_WRITEMAP",
        does: "the same, written through the mapping",
    },
    Line {
        test: "h5py_writes_and_follows_with_file_locking",
        program: "h5py with HDF5 file locking",
        does: "chunked, compressed and growing datasets, a second writer kept out, a reader \
               that follows a writer (SWMR)",
    },
    Line {
        test: "h5py_writes_and_follows_without_file_locking",
        program: "h5py without it",
        does: "the same but for the locks",
    },
    Line {
        test: "four_ranks_write_one_hdf5_file",
        program: "parallel HDF5 (MPICH)",
        does: "4 ranks, collective and independent, contiguous and chunked",
    },
    Line {
        test: "romio_sieves_is_atomic_and_shares_file_pointers",
        program: "MPI-IO (ROMIO)",
        does: "4 ranks: data sieving, collective buffering, atomic mode, shared and ordered \
               file pointers",
    },
    Line {
        test: "mpi_ranks_share_a_file_by_posix_and_mpi_io",
        program: "MPI (MPICH)",
        does: "2 and 4 ranks, files of their own and shared ones, by POSIX and MPI-IO",
    },
    Line {
        test: "openfoam_computes_the_same_fields_serial_and_decomposed",
        program: "OpenFOAM",
        does: "simpleFoam, serial and decomposed, the same fields",
    },
    Line {
        test: "numpy_maps_arrays_in_every_mode",
        program: "numpy.memmap",
        does: "modes w+, r+, c, r; 4 workers write parts of one shared mapping",
    },
    Line {
        test: "weights_are_read_through_mappings",
        program: "weights as safetensors",
        does: "tensors read through mappings by 4 processes; a sparse file of 1 TiB mapped",
    },
    Line {
        test: "four_workers_load_50_000_small_files",
        program: "a data loader",
        does: "50,000 files of 200 to 2,000 bytes, made and read in random order by 4 worker \
               processes",
    },
    Line {
        test: "python_walks_copies_and_writes_in_parallel",
        program: "Python",
        does: "files of all sizes, mappings, copies of trees, temporary files, multiprocessing, \
               subprocess",
    },
    Line {
        test: "bash_runs_a_portable_script",
        program: "bash",
        does: "redirections, pipes, subshells, jobs, here-documents, traps",
    },
    Line { test: "dash_runs_a_portable_script", program: "dash", does: "the same" },
    Line { test: "zsh_runs_a_portable_script", program: "zsh", does: "the same" },
    Line {
        test: "bash_redirects_appends_and_shares_offsets",
        program: "bash, descriptors",
        does: "one open file shared by builtins, programs and subshells; parallel appenders",
    },
    Line {
        test: "find_du_cp_and_mv_handle_trees",
        program: "find, du, cp -a, mv and more",
        does: "also install, split, sort, dd, tail -f, tee, sed -i, patch, rm -r",
    },
    Line {
        test: "tar_keeps_what_a_tree_has",
        program: "tar",
        does: "packs, compares, unpacks, updates, deletes; modes, times, links, holes",
    },
    Line {
        test: "rsync_copies_what_has_changed",
        program: "rsync",
        does: "copies, checksums, deletes, --inplace, --link-dest, partial files",
    },
    Line {
        test: "vim_keeps_backups_and_recovers",
        program: "vim",
        does: "backups, undo files, a swap file recovered after kill -9, files with two names",
    },
    Line {
        test: "git_adds_commits_checks_and_clones",
        program: "git",
        does: "3,000 files: commits, stash, repack, fsck, clones that link and copy",
    },
    Line {
        test: "git_syncs_in_every_way",
        program: "git with core.fsync",
        does: "every component synced, by each method; gc, worktrees",
    },
    Line {
        test: "gcc_compiles_archives_and_links",
        program: "gcc, ar, ld",
        does: "archives, shared objects, precompiled headers, link-time optimisation, temporary \
               files in the mount",
    },
    Line {
        test: "a_source_tree_configures_builds_and_runs",
        program: "configure and make",
        does: "a source tree is unpacked, configured, built, run and copied",
    },
    Line {
        test: "cmake_and_ninja_build_what_has_changed",
        program: "cmake and ninja",
        does: "built, changed, built again, nothing left to do, tested, installed",
    },
    Line {
        test: "cargo_builds_tests_and_cleans",
        program: "cargo",
        does: "a library, a build script, tests and a program, changed and built again, \
               CARGO_HOME in the mount",
    },
    Line {
        test: "pip_installs_a_wheel_into_an_environment",
        program: "pip",
        does: "a virtual environment in the mount, and a wheel built on the spot",
    },
    Line {
        test: "the_loader_takes_shared_objects_from_the_mount",
        program: "the dynamic loader",
        does: "needed, preloaded and dlopened libraries in the mount, ctypes, a library replaced",
    },
    Line {
        test: "programs_find_their_libraries_in_the_mount",
        program: "the dynamic loader, search paths",
        does: "LD_LIBRARY_PATH, DT_RUNPATH, DT_RPATH, $ORIGIN",
    },
    Line {
        test: "the_loader_runs_programs_that_it_is_given",
        program: "the dynamic loader, ldd",
        does: "a program of the mount as the loader's argument, with each option; ldd; musl's",
    },
    Line {
        test: "libraries_with_calls_of_their_own_are_served_when_they_are_loaded_later",
        program: "libraries with system calls of their own",
        does: "dlopened from both sides, again and again, by 4 threads, with and without a build \
               id; libaio by Python's ctypes",
    },
    Line {
        test: "programs_run_from_the_mount_by_every_name",
        program: "programs in the mount",
        does: "executed by path, PATH, links, as interpreter, by find, xargs, nice; removed \
               while running; profiled, with AddressSanitizer",
    },
    Line {
        test: "java_streams_maps_and_locks",
        program: "Java",
        does: "streams, channels, locks, mappings, 8 threads, attributes",
    },
    Line {
        test: "node_reads_and_writes_from_its_thread_pool",
        program: "Node.js",
        does: "blocking calls, 500 promises at once, streams, modules and children from the mount",
    },
    Line {
        test: "programs_in_namespaces_of_their_own_are_in_the_instance",
        program: "unshare, nsenter",
        does: "user, mount, pid, ipc, uts, net, cgroup and time namespaces: files, locks and \
               inherited descriptors; a process that joins",
    },
];
