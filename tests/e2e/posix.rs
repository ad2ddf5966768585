//! The public POSIX suites find in a mount what they find on a local file system, but for what
//! docs/reference/semantics.md names.
//!
//! Each suite is a program that is not ours and knows nothing of Mayfly; see [`posix`].

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Outcome, Random, Scratch, Turn, binary, skip};
use mayfly_tests::posix::{self, Verdicts};

/// For one run, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(10 * 60);

/// Runs `script` in a new mount, started with `options`; the words of `variables` are set.
fn mounted(
    scratch: &Scratch,
    options: &[&str],
    script: &str,
    variables: &[(&str, &Path)],
) -> Result<Outcome> {
    let data = scratch.join("data");
    let data = match options.contains(&"--data-dir") {
        true => Vec::new(),
        false => vec!["--data-dir".as_ref(), data.as_os_str()],
    };
    let mut job = Job::new(scratch, "mounted", binary::mayfly()?)
        .args(["run", "--times", "all"])
        .args(data)
        .args(options)
        .args(["--", "bash", "-c", &format!(r#"cd "$MAYFLY_MOUNT" && {script}"#)]);
    for (name, value) in variables {
        job = job.env(name, *value);
    }
    job.deadline(DEADLINE).run()
}

fn expect_success(outcome: &Outcome) -> Result<()> {
    let text = [&outcome.stdout[..], &outcome.stderr].concat();
    ensure!(outcome.code == 0, "exit status {}\n{}", outcome.code, String::from_utf8_lossy(&text));
    Ok(())
}

fn read_verdicts(outcome: &Outcome) -> Result<Verdicts> {
    let text = String::from_utf8_lossy(&outcome.stdout);
    let verdicts = posix::verdicts(&text);
    let error = String::from_utf8_lossy(&outcome.stderr);
    ensure!(verdicts.len() > 300, "only {} tests ran\n{text}{error}", verdicts.len());
    Ok(verdicts)
}

/// Through the kernel's mount, without the library.
const BY_MOUNT: &[&str] = &["--access", "fuse"];

fn compare_pjdfstest(options: &[&str]) -> Result<()> {
    let excluded = match options == BY_MOUNT {
        true => posix::excluded_through_the_mount()?,
        false => posix::excluded()?,
    };
    let Some(tool) = posix::tool("pjdfstest") else { return Ok(()) };
    let _turn = Turn::take()?;
    let scratch = Scratch::new("pjd")?;
    let settings = posix::file("pjdfstest.toml");
    let arguments = ["-c".as_ref(), settings.as_os_str(), "-s".as_ref()];
    let second = scratch.join("tmp");
    let native = scratch.join("native");
    std::fs::create_dir(&native)?;
    let job = Job::new(&scratch, "native", &tool).args(arguments).args([&second]);
    let natively =
        job.args(["-p".as_ref(), native.as_os_str()]).env("NO_COLOR", "1").deadline(DEADLINE);
    let natively = read_verdicts(&natively.run()?)?;
    let script = r#"NO_COLOR=1 RUST_BACKTRACE=0 "$TOOL" -c "$SETTINGS" -s "$SECOND""#;
    let variables = [("TOOL", &*tool), ("SETTINGS", &*settings), ("SECOND", &*second)];
    // The name of a socket has room for 107 bytes: the mount point is not longer than the other.
    let mount = scratch.join("mount");
    let options = [options, &["--mount", mount.to_str().context("plain text")?]].concat();
    let inside = read_verdicts(&mounted(&scratch, &options, script, &variables)?)?;
    posix::expect_as_listed(&natively, &inside, &excluded)
}

#[test]
fn pjdfstest_fails_only_what_is_excluded_with_a_reason() -> Result<()> {
    compare_pjdfstest(&[])
}

#[test]
fn pjdfstest_finds_the_same_on_three_shards() -> Result<()> {
    compare_pjdfstest(&["--shards", "3"])
}

#[test]
fn pjdfstest_through_the_mount_fails_only_what_is_excluded_with_a_reason() -> Result<()> {
    if !skip::unless_mountable("pjdfstest through the mount") {
        return Ok(());
    }
    compare_pjdfstest(BY_MOUNT)
}

/// `operations` on one file for each seed, two files at a time; a failure prints the seed, with
/// which `fsx` repeats it. Not too many on one file: `fsx` never unmaps what it read, and cutting a
/// file takes the kernel the longer the more maps it has.
fn exercise(operations: u64, seeds: &[u64], options: &[&str]) -> Result<()> {
    let Some(tool) = posix::tool("fsx") else { return Ok(()) };
    let _turn = Turn::take()?;
    let scratch = Scratch::new("fsx")?;
    let settings = posix::file("fsx.toml");
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    eprintln!("fsx: {operations} operations for each of the seeds {}", seeds.join(" "));
    let one =
        format!(r#""$TOOL" -f "$SETTINGS" -S $0 -N {operations} -P "$ARTIFACTS" file$0 > out$0"#);
    let script = format!(
        "printf '%s\\n' {} | xargs -n 1 -P 2 sh -c '{one} || {{ tail -n 40 out$0; exit 255; }}; \
         rm file$0 out$0'",
        seeds.join(" ")
    );
    let variables = [("TOOL", &*tool), ("SETTINGS", &*settings), ("ARTIFACTS", scratch.path())];
    expect_success(&mounted(&scratch, options, &script, &variables)?)
}

/// As many seeds.
fn seeds(count: u64) -> Vec<u64> {
    let mut random = Random::for_suite("fsx");
    (0..count).map(|_| random.below(1 << 40)).collect()
}

/// Where an instance keeps its data in memory. On a disk the operations of `fsx` that sync take
/// nine tenths of its time.
fn in_memory() -> &'static [&'static str] {
    match Path::new("/dev/shm").is_dir() {
        true => &["--data-dir", "/dev/shm"],
        false => &[],
    }
}

#[test]
fn fsx_reads_back_a_million_random_operations() -> Result<()> {
    exercise(20_000, &seeds(50), in_memory())
}

#[test]
fn fsx_reads_back_40_000_random_operations_from_a_disk() -> Result<()> {
    exercise(20_000, &seeds(2), &[])
}

#[test]
fn fsx_reads_back_20_000_random_operations_on_one_file_through_the_mount() -> Result<()> {
    if !skip::unless_mountable("fsx through the mount") {
        return Ok(());
    }
    exercise(20_000, &[2], BY_MOUNT)
}

/// Takes minutes; `cargo test -p mayfly-tests --test posix -- --ignored` runs it.
#[test]
#[ignore = "ten million operations take minutes"]
fn fsx_reads_back_ten_million_random_operations() -> Result<()> {
    exercise(20_000, &seeds(500), in_memory())
}

/// Stressors of stress-ng on files. Those about what is refused (`inotify`, `mknod` of
/// devices, `io-uring`, `dnotify`) are not here.
const STRESSORS: &[&str] = &[
    "access",
    "aiol",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "fallocate",
    "fcntl",
    "filename",
    "flock",
    "fpunch",
    "fstat",
    "getdent",
    "hdd",
    "iomix",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mmap",
    "mmapfork",
    "mmapmany",
    "msync",
    "open",
    "rename",
    "seek",
    "sendfile",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];

/// Those that the mount serves too; of the long ones some, since a call costs more there.
const STRESSORS_BY_MOUNT: &[&str] = &[
    "access",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "fallocate",
    "fcntl",
    "flock",
    "fpunch",
    "getdent",
    "hdd",
    "io-uring",
    "iomix",
    "link",
    "lockf",
    "lockofd",
    "mmap",
    "msync",
    "rename",
    "splice",
    "sync-file",
    "utime",
    "xattr",
];

fn stress(stressors: &[&str], seconds: u32, options: &[&str]) -> Result<()> {
    if !skip::unless_installed("stress-ng", &["stress-ng"], "stress-ng") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stress")?;
    // A stressor that ended early, for want of something, exits with 0. So does, now and then, one
    // whose other process was quick enough to do all that there was, on any file system.
    let script = format!(
        r#"for name in {}; do
            mkdir "$name"
            for try in 1 2 3 4; do
                log=$(timeout 180 stress-ng --"$name" 2 --"$name"-ops 50 --verify \
                    --temp-path "$name" --timeout {seconds} 2>&1) ||
                    {{ echo "$name: exit status $?"; echo "$log"; }}
                case $log in *prematurely*) ;; *) break;; esac
            done
            case $log in *fail:*|*prematurely*) echo "$name"; echo "$log";; esac
            rmdir "$name" || echo "$name: left files"
        done"#,
        stressors.join(" ")
    );
    let outcome = mounted(&scratch, options, &script, &[])?;
    expect_success(&outcome)?;
    let text = String::from_utf8_lossy(&outcome.stdout);
    ensure!(text.is_empty(), "{text}");
    Ok(())
}

#[test]
fn stress_ng_verifies_what_two_processes_do_to_files() -> Result<()> {
    stress(STRESSORS, 5, &[])
}

#[test]
fn stress_ng_verifies_what_two_processes_do_to_files_through_the_mount() -> Result<()> {
    if !skip::unless_mountable("stress-ng through the mount") {
        return Ok(());
    }
    stress(STRESSORS_BY_MOUNT, 1, BY_MOUNT)
}

#[test]
fn fio_verifies_what_it_wrote_by_calls_and_by_mappings() -> Result<()> {
    if !skip::unless_installed("fio", &["fio"], "fio") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("fio")?;
    let script = r#"status=0
        run() {
            fio --name=verified --size=8m --fallocate=none --randseed=7 --verify=crc32c \
                --verify_fatal=1 --verify_backlog=64 "$@" || status=1
        }
        run --filename=libaio --ioengine=libaio --iodepth=8 --rw=randwrite --bsrange=512-64k
        for engine in psync vsync pvsync2 posixaio; do
            run --filename=$engine --ioengine=$engine --rw=randwrite --bsrange=512-64k --fsync=50
        done
        run --filename=mmap --ioengine=mmap --rw=randwrite --bs=4k
        run --directory=. --nrfiles=50 --numjobs=3 --ioengine=psync --rw=randrw --bs=1k --size=2m
        exit $status"#;
    expect_success(&mounted(&scratch, &[], script, &[])?)
}

#[test]
fn fio_with_io_uring_verifies_what_it_wrote_through_the_mount() -> Result<()> {
    if !skip::unless_mountable("fio with io_uring")
        || !skip::unless_installed("fio", &["fio"], "fio")
    {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("uring")?;
    let script = r#"status=0
        for options in --direct=0 --direct=1 '--direct=0 --registerfiles'; do
            fio --name=verified --filename=f --size=8m --ioengine=io_uring --iodepth=16 \
                --rw=randwrite --bs=8k --randseed=7 --verify=crc32c --verify_fatal=1 \
                --verify_backlog=64 $options || status=1
        done
        exit $status"#;
    expect_success(&mounted(&scratch, BY_MOUNT, script, &[])?)
}
