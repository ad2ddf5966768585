//! What is here of an origin is served as if there were none, for as long as it is believed.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Scratch, Turn};

#[path = "tier/bench.rs"]
#[allow(dead_code, reason = "each suite uses a part of it")]
mod bench;

use bench::{Bench, LARGE_BYTES, is_possible, text};

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
small, large = open('small', 'rb', 0), open('dir/large', 'rb', 0)
large.read(10), small.read(3)
small.seek(0)
os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o644))
while os.path.exists(sys.argv[1]):
    time.sleep(0.01)
assert small.read() == b'small\\n', 'the small one'
assert os.fstat(small.fileno()).st_size == 6
large.seek(0)
count = 0
while part := large.read(1 << 20):
    assert part == bytes((count + at) % 251 for at in range(len(part))), 'the large one'
    count += len(part)
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
        let script = format!("cd \"$MAYFLY_MOUNT\"; {}", python(HOLDER, text(&flag)?));
        let told = std::thread::scope(|scope| -> Result<String> {
            let holder = scope.spawn(|| bench.instance.shell("holder", &script).run_ok());
            while !flag.exists() && !holder.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
            }
            fs::write(&small, "changed outside\n")?;
            fs::write(&large, "changed, too\n")?;
            // Who looks sees it, after the time for which the old ones are believed.
            let wait = if validate == "always" { "true" } else { "sleep 1.1" };
            let look = format!(
                "{wait}; cat small dir/large; stat -c %s small; ls -l dir/large | \
                    awk '{{ print $5 }}'"
            );
            bench.expect(&look, "changed outside\nchanged, too\n16\n13\n")?;
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
