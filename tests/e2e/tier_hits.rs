//! What is here of an origin is served as if there were none, for as long as it is believed.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Scratch, Turn};

#[path = "tier/bench.rs"]
#[allow(dead_code, reason = "each suite uses a part of it")]
mod bench;

use bench::{Bench, LARGE_BYTES, accesses, is_possible, text};

/// Looks at files again and again for as many seconds, in one process; prints how often.
const LOOK: &str = "import os, sys, time
until = time.monotonic() + float(sys.argv[1])
rounds = 0
while time.monotonic() < until:
    for _ in range(100):
        assert os.stat('small').st_size == 6
        with open('dir/large', 'rb') as large:
            assert len(large.read(5000)) == 5000
        with open('small', 'rb') as small:
            assert small.read() == b'small\\n'
        assert not os.path.exists('dir/none')
    rounds += 100
print(rounds)";

fn requests(bench: &Bench<'_>) -> Result<u64> {
    let status = bench.instance.status()?;
    status["requests"].as_u64().with_context(|| format!("nothing is said of requests: {status}"))
}

fn python(program: &str, arguments: &str) -> String {
    format!("python3 -c \"{program}\" {arguments}")
}

#[test]
fn what_is_here_is_looked_at_without_a_request() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-hits")?;
    // How many requests a second may take: each second what was seen is looked at once more.
    for (validate, most) in [("never", 40), ("1s", 120)] {
        let bench = Bench::start(&scratch, validate, &["--validate", validate])?;
        bench.sh(&python(LOOK, "0.1"))?;
        let before = requests(&bench)?;
        let rounds: u64 = bench.sh(&python(LOOK, "3"))?.trim().parse()?;
        let asked = requests(&bench)? - before;
        eprintln!("--validate {validate}: {rounds} rounds, {asked} requests");
        ensure!(asked < 200 + 3 * most, "{asked} requests in {rounds} rounds of {validate}");
        ensure!(rounds > 2 * asked, "{asked} requests in only {rounds} rounds of {validate}");
        bench.instance.stop()?;
    }
    Ok(())
}

/// It was asked for each name in the whole instance.
#[test]
fn a_directory_without_an_origin_is_as_quick_as_where_there_is_none() -> Result<()> {
    const MAKE: &str = "import os
for directory in ('plain', 'plain/a', 'plain/b'):
    os.mkdir(directory)
    for number in range(1000):
        with open(f'{directory}/{number}', 'wb') as made:
            made.write(b'x' * 100)
        assert os.stat(f'{directory}/{number}').st_size == 100
for number in range(1000):
    os.unlink(f'plain/a/{number}')
os.rmdir('plain/a')";
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-plain")?;
    // Origins at a directory below the plain one's parent, and beside it.
    let bench = Bench::start(&scratch, "beside", &["in=proj"])?;
    bench.sh(&python(MAKE, ""))?;
    let activity = &bench.instance.status()?["activity"];
    let unasked = |what: &str| activity["unawaited"][what].as_u64().unwrap_or(0);
    ensure!(unasked("create") > 2900 && unasked("unlink") > 900, "{activity}");
    // Nothing of the origin's goes by a submission.
    bench.sh("cd proj; for i in $(seq 50); do echo $i > made-$i; done; rm made-1?; mkdir sub; \
            for i in $(seq 50); do echo $i > sub/made-$i; done; rm -r dir")?;
    ensure!(!bench.outside.join("dir").exists() && !bench.outside.join("made-11").exists());
    ensure!(fs::read_dir(bench.outside.join("sub"))?.count() == 50);
    bench.instance.stop()?;
    ensure!(bench.outside("sub/made-7")? == "7\n" && !bench.outside.join("plain").exists());
    Ok(())
}

/// A process that has opened files by what it is leased, and goes on to read them.
const HOLDER: &str = "import os, sys, time
for _ in range(20):
    open('small', 'rb').close()
small, large, part = (open(name, 'rb', 0) for name in ('small', 'dir/large', 'dir/part'))
while large.read(1 << 20):
    pass
part.read(10), small.read(3)
small.seek(0)
os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o644))
while os.path.exists(sys.argv[1]):
    time.sleep(0.01)
assert small.read() == b'small\\n', 'the small one'
assert os.fstat(small.fileno()).st_size == 6
large.seek(0)
count = 0
while some := large.read(1 << 20):
    assert some == bytes((count + at) % 251 for at in range(len(some))), 'the large one'
    count += len(some)
try:
    part.read(10)
    assert False, 'some bytes of one and some of another one'
except OSError as error:
    assert error.errno == 116, error
print(count)";

#[test]
fn who_reads_without_asking_sees_changes_outside_in_time_and_keeps_what_it_has_open() -> Result<()>
{
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-open")?;
    for validate in ["always", "1s"] {
        let bench = Bench::start(&scratch, validate, &["--validate", validate])?;
        let flag = scratch.join(format!("flag-{validate}"));
        let (small, large) = (bench.outside.join("small"), bench.outside.join("dir/large"));
        let part = bench.outside.join("dir/part");
        fs::copy(&large, &part)?;
        let script = format!("cd \"$MAYFLY_MOUNT\"; {}", python(HOLDER, text(&flag)?));
        let told = std::thread::scope(|scope| -> Result<String> {
            let holder = scope.spawn(|| bench.instance.shell("holder", &script).run_ok());
            while !flag.exists() && !holder.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
            }
            fs::write(&small, "changed outside\n")?;
            fs::write(&large, "changed, too\n")?;
            fs::write(&part, "and the third\n")?;
            // Who looks sees it, after the time for which the old ones are believed.
            let wait = if validate == "always" { "true" } else { "sleep 1.1" };
            let look = format!(
                "{wait}; cat small dir/large dir/part; stat -c %s small; ls -l dir/large | \
                    awk '{{ print $5 }}'"
            );
            bench.expect(&look, "changed outside\nchanged, too\nand the third\n16\n13\n")?;
            fs::remove_file(&flag)?;
            let held = holder.join().expect("the holder does not panic")?;
            Ok(String::from_utf8_lossy(&held.stdout).into_owned())
        })?;
        ensure!(told.trim() == LARGE_BYTES.to_string(), "{told}");
        bench.instance.stop()?;
    }
    Ok(())
}

#[test]
fn a_clean_file_that_is_read_without_asking_is_dirty_when_it_was_written() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-first-write")?;
    let bench = Bench::start(&scratch, "first", &["--validate", "never"])?;
    bench.sh("for i in 1 2 3 4 5 6 7 8; do cat small dir/large > /dev/null; done")?;
    bench.sh(&python(
        "import os
for _ in range(20):
    open('small', 'rb').close()
for name in ('small', 'dir/large'):
    both = os.open(name, os.O_RDWR)
    os.read(both, 3)
    os.pwrite(both, b'X', 1)
    os.close(both)",
        "",
    ))?;
    ensure!(bench.origin("dirty_files")? == 2, "{}", bench.status()?);
    bench.flush()?;
    ensure!(bench.outside("small")? == "sXall\n");
    ensure!(fs::read(bench.outside.join("dir/large"))?[..3] == [0, b'X', 2]);
    bench.instance.stop()
}

/// A file was fetched as a whole, and the first byte came last.
#[test]
fn a_part_of_a_long_file_is_fetched_without_the_rest() -> Result<()> {
    const LENGTH: usize = 64 << 20;
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-parts")?;
    for access in accesses() {
        let name = format!("parts-{access}");
        let bench = Bench::start(&scratch, &name, &["--access", access, "--validate", "1s"])?;
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        fs::write(bench.outside.join("long"), &bytes)?;
        let read = |at: usize| {
            format!(
                "import os
long = os.open('long', os.O_RDONLY)
assert os.pread(long, 1000, {at}) == bytes(at % 251 for at in range({at}, {at} + 1000))
assert os.fstat(long).st_size == {LENGTH}"
            )
        };
        bench.sh(&python(&read(40 << 20), ""))?;
        bench.sh(&python(&read(10 << 20), ""))?;
        let cached = bench.origin("cached_bytes")?;
        ensure!((2000..4 << 20).contains(&cached), "{cached} bytes were fetched for 2000");
        let sum = bench.sh("cksum < long")?;
        ensure!(bench.origin("cached_bytes")? >= LENGTH as u64, "{}", bench.status()?);
        let outside = std::process::Command::new("cksum")
            .stdin(fs::File::open(bench.outside.join("long"))?)
            .output()?;
        ensure!(sum.as_bytes() == outside.stdout, "{sum}");
        // It is one as any other from now on.
        bench.sh("printf X | dd of=long bs=1 seek=5 conv=notrunc 2>/dev/null")?;
        bench.instance.stop()?;
        let back = fs::read(bench.outside.join("long"))?;
        ensure!(back[5] == b'X' && back[6..] == bytes[6..] && back.len() == LENGTH);
    }
    Ok(())
}

#[test]
fn nothing_is_lost_of_a_long_file_while_daemon_and_reader_go_on() -> Result<()> {
    const LENGTH: usize = 96 << 20;
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-parts-kills")?;
    let bench = Bench::start(&scratch, "parts-kills", &["--validate", "1s"])?;
    for name in ["one", "two", "three"] {
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at % 241) as u8).collect();
        fs::write(bench.outside.join(name), &bytes)?;
    }
    let read = python(
        "pattern = bytes(range(241)) * 5000
for name in ('one', 'two', 'three'):
    with open(name, 'rb', 0) as long:
        count = 0
        while part := long.read(1 << 20):
            assert part == pattern[count % 241:][:len(part)], count
            count += len(part)
    assert count == 96 << 20, count",
        "",
    );
    let kills = bench.instance.beside_kills(|| bench.sh(&read).map(drop))?;
    ensure!(kills > 0, "nobody was killed");
    ensure!(bench.origin("cached_bytes")? >= 3 * LENGTH as u64, "{}", bench.status()?);
    bench.instance.command("fsck").run_ok()?;
    bench.instance.stop()
}

#[test]
fn more_than_there_is_room_for_is_read_by_turns() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-evict")?;
    let bench = Bench::start(&scratch, "evict", &["--validate", "1s", "--capacity", "64M"])?;
    for number in 0..16 {
        fs::write(bench.outside.join(format!("set-{number}")), vec![number as u8; 8 << 20])?;
    }
    let read = "for turn in range(2):
    for number in range(16):
        with open(f'set-{number}', 'rb') as file:
            assert file.read() == bytes([number]) * (8 << 20)
with open('own', 'wb') as own:
    own.write(b'x' * (24 << 20))";
    bench.sh(&python(read, ""))?;
    ensure!(bench.origin("cached_bytes")? < 64 << 20, "{}", bench.status()?);
    bench.tier(&["evict"])?.run_ok()?;
    ensure!(bench.origin("dirty_files")? == 1, "what is dirty stays: {}", bench.status()?);
    bench.expect("head -c 3 set-3 | od -An -tu1", "   3   3   3\n")?;
    bench.instance.command("fsck").run_ok()?;
    bench.instance.stop()?;
    ensure!(fs::metadata(bench.outside.join("own"))?.len() == 24 << 20);
    Ok(())
}
