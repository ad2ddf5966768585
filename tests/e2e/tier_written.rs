//! Long files of an origin that are written, mapped and started before they are here.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Scratch, Turn, process, skip};
use outside::{Outside, Speeds};

#[path = "tier/bench.rs"]
#[allow(dead_code, reason = "each suite uses a part of it")]
mod bench;

use bench::{Bench, accesses, is_possible, text};

const LENGTH: usize = 64 << 20;
/// More than the least capacity of a node.
const LONGEST: usize = 160 << 20;
/// Of a file of that length; the keeper's file system may read ahead of it.
const CHUNK: u64 = 128 << 10;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| (at % 251) as u8).collect()
}

fn python(program: &str) -> String {
    format!("python3 - <<'END'\nimport mmap, os\n{program}\nEND")
}

/// Writes 4 KiB to a file, and reads them back.
const WRITE: &str = "long = os.open('long', os.O_RDWR)
assert os.pwrite(long, b'x' * 4096, 20 << 20) == 4096
assert os.pread(long, 4097, 20 << 20)[:-1] == b'x' * 4096";

fn written(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[20 << 20..][..4096].fill(b'x');
    bytes
}

/// All of it was fetched first.
#[test]
fn a_small_write_to_a_long_file_fetches_one_chunk_of_it() -> Result<()> {
    if !is_possible() || !skip::unless_mountable("an origin that counts") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-written")?;
    for access in accesses() {
        let name = format!("written-{access}");
        let below = scratch.join(format!("{name}-below"));
        let shown = scratch.join(format!("{name}-outside"));
        fs::create_dir_all(&below)?;
        fs::create_dir_all(&shown)?;
        fs::write(below.join("long"), content())?;
        let outside = Outside::show(&below, &shown, Speeds::default())?;
        let bench = Bench::start(&scratch, &name, &["--access", access, "--validate", "1s"])?;
        bench.sh(&python(WRITE))?;
        let read = outside.pace().calls().bytes_read;
        ensure!(read <= 2 * CHUNK, "{read} bytes were read outside for 4096 written");
        let cached = bench.origin("cached_bytes")?;
        ensure!(cached == CHUNK, "{cached} bytes are here");
        // What is appended needs nothing at all.
        bench.sh("printf tail >> long; test $(stat -c %s long) = 67108868")?;
        ensure!(bench.origin("cached_bytes")? == CHUNK, "{}", bench.status()?);
        ensure!(fs::read(below.join("long"))? == content(), "nothing goes back by itself");
        let told = bench.flush()?;
        ensure!(told.contains("1 files were written back"), "{told}");
        let expected = [&written(content())[..], b"tail"].concat();
        ensure!(fs::read(below.join("long"))? == expected, "it went back as it was");
        bench.instance.command("fsck").run_ok()?;
        bench.instance.stop()?;
        drop(outside);
    }
    Ok(())
}

/// What was open did not go, so that a file that was longer than a node has space could not even be
/// read. A flush of what was written fetched the rest first, for which there was no room either.
#[test]
fn a_file_that_is_longer_than_there_is_room_is_read_and_changed_in_place() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-room")?;
    let mut expected: Vec<u8> = (0..LONGEST).map(|at| (at % 251) as u8).collect();
    for access in accesses() {
        let name = format!("room-{access}");
        let there = scratch.join(format!("{name}-outside"));
        fs::create_dir_all(&there)?;
        let there = there.join("long");
        expected.chunks_mut(1 << 20).for_each(|part| part[1000..1100].fill(b'n'));
        fs::write(&there, &expected)?;
        let bench = Bench::start(&scratch, &name, &["--access", access, "--capacity", "64M"])?;
        bench.sh(&format!("cmp long {}", text(&there)?))?;
        bench.sh(&python(
            "long = os.open('long', os.O_RDWR)
for at in range(0, os.fstat(long).st_size, 1 << 20):
    assert os.pwrite(long, b'y' * 100, at + 1000) == 100
    assert os.pread(long, 101, at + 999)[1:] == b'y' * 100",
        ))?;
        bench.flush()?;
        expected.chunks_mut(1 << 20).for_each(|part| part[1000..1100].fill(b'y'));
        ensure!(fs::read(&there)? == expected, "it went back as it was written");
        bench.instance.command("fsck").run_ok()?;
        bench.instance.stop()?;
        ensure!(fs::read(&there)? == expected, "and stays so");
    }
    Ok(())
}

/// A reader, a writer and a program through the mount. With the library, too, a shared mapping that
/// only reads is the mount's.
#[test]
fn what_is_mapped_or_started_through_the_mount_is_fetched_as_it_is_touched() -> Result<()> {
    if !is_possible() || !skip::unless_mountable("mappings of the mount") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-mapped")?;
    for access in ["fuse", "both"] {
        let name = format!("mapped-{access}");
        let bench = Bench::start(&scratch, &name, &["--access", access, "--validate", "1s"])?;
        fs::write(bench.outside.join("long"), content())?;
        let mut program = fs::read("/bin/true")?;
        program.resize(LENGTH, 0);
        fs::write(bench.outside.join("program"), program)?;
        fs::set_permissions(bench.outside.join("program"), PermissionsExt::from_mode(0o755))?;
        let read = "long = os.open('long', os.O_RDONLY)
there = mmap.mmap(long, 1 << 20, mmap.MAP_SHARED, mmap.PROT_READ, offset=40 << 20)
assert there[1000:2000] == bytes(at % 251 for at in range((40 << 20) + 1000, (40 << 20) + 2000))";
        bench.sh(&python(read))?;
        let cached = bench.origin("cached_bytes")?;
        ensure!((1000..8 << 20).contains(&cached), "{access}: {cached} bytes are here");
        let write = "long = os.open('long', os.O_RDWR)
there = mmap.mmap(long, 1 << 20, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=10 << 20)
there[5:8] = b'new'
there.flush()";
        bench.sh(&python(write))?;
        let cached = bench.origin("cached_bytes")?;
        // One that writes is of the object, where that is possible, so that others see it.
        ensure!((cached < 16 << 20) == (access == "fuse"), "{access}: {cached} bytes are here");
        if access == "fuse" {
            bench.sh("./program")?;
            let more = bench.origin("cached_bytes")? - cached;
            ensure!((1000..8 << 20).contains(&more), "{more} bytes of a program are here");
        }
        bench.instance.stop()?;
        let back = fs::read(bench.outside.join("long"))?;
        let mut expected = content();
        expected[(10 << 20) + 5..][..3].copy_from_slice(b"new");
        ensure!(back == expected, "{access}: it went back as it was");
    }
    Ok(())
}

#[test]
fn what_was_not_fetched_of_a_file_that_others_change_is_named_and_nothing_is_overwritten()
-> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-stale")?;
    let data = scratch.join("data");
    fs::create_dir(&data)?;
    let options = ["--validate", "1s", "--data-dir", text(&data)?];
    let bench = Bench::start(&scratch, "stale", &options)?;
    fs::write(bench.outside.join("long"), content())?;
    bench.sh(&python(WRITE))?;
    fs::write(bench.outside.join("long"), "theirs")?;
    let failed = bench.tier(&["flush"])?.run()?;
    ensure!(failed.code != 0 && failed.error().contains("long"), "{}", failed.error());
    ensure!(bench.outside("long")? == "theirs", "it was overwritten");
    bench.expect(
        "head -c 4 long > /dev/null 2>&1 || echo none; \
         dd if=long bs=4096 skip=5120 count=1 status=none | head -c 3",
        "none\nxxx",
    )?;
    // At the end what there is goes beside it, with zeros for what nobody knows.
    let stopped = bench.instance.command("stop").run()?;
    let told = stopped.error();
    ensure!(stopped.code == 0 && told.contains("-1-incomplete"), "{told}");
    ensure!(bench.outside("long")? == "theirs", "it was overwritten");
    let names = fs::read_dir(&bench.outside)?.map(|entry| Ok(entry?.path()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let is_copy = |path: &&PathBuf| path.to_string_lossy().ends_with("-1-incomplete");
    let copy = fs::read(names.iter().find(is_copy).context("there is no copy")?)?;
    let (first, at) = (&copy[..4], 4096 * 5120);
    ensure!(first == [0; 4] && copy[at..at + 3] == *b"xxx" && copy.len() == content().len());
    Ok(())
}

/// Writes all over files of which nothing is here, while daemons and the keeper are killed.
#[test]
fn nothing_is_lost_of_what_is_written_to_parts_while_daemon_and_keeper_are_killed() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-written-kills")?;
    let bench = Bench::start(&scratch, "written-kills", &["--validate", "1s"])?;
    const FILES: usize = 4;
    for number in 0..FILES {
        fs::write(bench.outside.join(format!("long-{number}")), content())?;
    }
    let write = "import random
dice = random.Random(7)
pattern = bytes(range(251)) * ((64 << 20) // 251 + 1)
for number in range(4):
    expected = bytearray(pattern[:64 << 20])
    with open(f'long-{number}', 'r+b', 0) as long:
        for turn in range(120):
            count = dice.choice([10, 4096, 128 << 10, 512 << 10])
            at = dice.randrange(0, 64 << 20)
            if count >= 128 << 10: at &= -(128 << 10)
            at = min(at, (64 << 20) - count)
            part = bytes([turn]) * count
            assert os.pwrite(long.fileno(), part, at) == count
            expected[at:at + count] = part
            at = dice.randrange(0, (64 << 20) - 5000)
            assert os.pread(long.fileno(), 5000, at) == expected[at:at + 5000], (number, turn)
    open(os.environ['EXPECTED'] + str(number), 'wb').write(expected)";
    let expected = scratch.join("expected-");
    let script = format!("export EXPECTED={}; {}", text(&expected)?, python(write));
    let kills = bench.instance.beside_kills(|| {
        std::thread::scope(|scope| {
            let keeper = bench.keeper();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                keeper.is_ok_and(process::kill)
            });
            bench.sh(&script).map(drop)
        })
    })?;
    ensure!(kills > 0, "nobody was killed");
    bench.instance.command("fsck").run_ok()?;
    bench.instance.stop()?;
    for number in 0..FILES {
        let back = fs::read(bench.outside.join(format!("long-{number}")))?;
        let wanted = fs::read(scratch.join(format!("expected-{number}")))?;
        let differ = back.iter().zip(&wanted).position(|(there, ours)| there != ours);
        ensure!(back == wanted, "long-{number} from {differ:?}: it went back as it was");
    }
    Ok(())
}

#[test]
fn every_node_writes_to_parts_of_files_that_others_have() -> Result<()> {
    const NODES: usize = 4;
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-written-nodes")?;
    let outside = scratch.join("nodes-outside");
    for node in 0..NODES {
        fs::create_dir_all(outside.join(format!("d{node}")))?;
        fs::write(outside.join(format!("d{node}/long")), content())?;
    }
    let instance = Instance::named(&scratch, "written-nodes")?;
    let mount = scratch.join("nodes-mnt");
    let origin = format!("{}:in", text(&outside)?);
    let start = instance.command("start").args(["--nodes", "local:4", "--origin", &origin]);
    start.args(["--mount", text(&mount)?, "--validate", "1s"]).run_ok()?;
    for node in 0..NODES {
        let other = (node + 1) % NODES;
        let script = format!("cd \"$MAYFLY_MOUNT/in/d{other}\" && {{ {}\n}}", python(WRITE));
        instance.on_node(node, &script)?;
    }
    let bench = Bench { scratch: &scratch, outside, instance };
    let cached = bench.origin("cached_bytes")?;
    ensure!(cached == NODES as u64 * CHUNK, "{cached} bytes are here");
    bench.flush()?;
    let expected = written(content());
    for node in 0..NODES {
        let back = fs::read(bench.outside.join(format!("d{node}/long"))).context("outside")?;
        ensure!(back == expected, "that of node {node}");
    }
    bench.instance.stop()
}
