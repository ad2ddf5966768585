//! `kill -9` at any moment: of the daemon it goes unnoticed, of clients it leaves nothing held.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mayfly_testkit::{Instance, Random, Scratch, Turn, process};
use mayfly_tests::program::{Program, kill_daemons};
use mayfly_tests::suite;

/// How long a restarted daemon may take to free what dead clients held.
const CLEANUP_PATIENCE: Duration = Duration::from_secs(20);

/// Runs `program` against native with daemons dying beside it. `rounds` make it last long enough.
fn survives(
    label: &str,
    rounds: u32,
    program: impl FnOnce(&Scratch) -> Result<Option<Program>>,
) -> Result<()> {
    let turn = Turn::take()?;
    let scratch = Scratch::new(label)?;
    let Some(program) = program(&scratch)? else { return Ok(()) };
    let program = Program { rounds, ..program };
    let mut kills = Ok(0);
    let result = program.compare(&turn, &scratch, |over| {
        let mut random = Random::for_suite(label);
        kills = kill_daemons(&scratch, over, || random.pause(50, 1000));
    });
    let kills = kills?;
    eprintln!("{label}: the daemon was killed {kills} times");
    result?;
    ensure!(kills >= 3, "only {kills} kills: the program is too short for this test");
    Ok(())
}

#[test]
fn a_killed_daemon_goes_unnoticed_by_a_build() -> Result<()> {
    survives("ksource", 1, suite::source_tree)
}

#[test]
fn a_killed_daemon_goes_unnoticed_by_git() -> Result<()> {
    survives("kgit", 3, |_| Ok(suite::git()))
}

#[test]
fn a_killed_daemon_goes_unnoticed_by_python() -> Result<()> {
    survives("kpython", 6, |_| Ok(suite::python_files()))
}

const CLIENTS: u32 = 9;

/// Starts clients that hold files and locks, and returns when all of them do.
fn start_clients(scratch: &Scratch, instance: &Instance, round: u32) -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/held.py");
    let command = r#"exec python3 "$HELD" "$MAYFLY_MOUNT" "$NUMBER""#;
    for number in 0..CLIENTS {
        let label = format!("client{round}.{number}");
        let job =
            instance.shell(&label, command).env("HELD", &script).env("NUMBER", number.to_string());
        // Not waited for: they end by our signal and are found by their mark.
        let client = job.start()?;
        wait_for_text(&scratch.join(format!("{label}.out")), "ready")?;
        drop(client);
    }
    Ok(())
}

fn wait_for_text(path: &Path, text: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string(path).unwrap_or_default().contains(text) {
        ensure!(Instant::now() < deadline, "{} never said {text:?}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn clients(scratch: &Scratch) -> Vec<u32> {
    let all = process::marked(scratch.mark());
    all.iter()
        .filter(|process| process.command.contains("held.py"))
        .map(|process| process.pid)
        .collect()
}

/// Kills the clients in random order and at random moments, until none is left.
fn kill_clients(scratch: &Scratch, random: &mut Random) {
    let mut living = clients(scratch);
    while !living.is_empty() {
        let index = usize::try_from(random.below(living.len() as u64)).expect("an index fits");
        process::kill(living.swap_remove(index));
        std::thread::sleep(random.pause(0, 60));
    }
}

#[test]
fn killed_clients_leave_no_lock_no_file_and_no_session() -> Result<()> {
    let turn = Turn::take()?;
    let scratch = Scratch::new("kclients")?;
    let mut random = Random::for_suite("killed clients");
    let instance = Instance::start(&scratch, "kclients", &scratch.join("mount"))?;
    for round in 0..3 {
        start_clients(&scratch, &instance, round)?;
        let held = instance.counts()?;
        ensure!(held.sessions >= u64::from(CLIENTS), "too few sessions: {held:?}");
        ensure!(held.locks >= u64::from(CLIENTS) * 5, "too few locks: {held:?}");
        kill_clients(&scratch, &mut random);
        instance.expect_nothing_held(CLEANUP_PATIENCE)?;
        // Whoever comes next gets every lock at once.
        let lock = r#"cd "$MAYFLY_MOUNT"; for f in held*; do flock -n "$f" true || exit 1; done"#;
        instance.shell(&format!("after{round}"), lock).run_ok()?;
    }
    instance.stop()?;
    drop(turn);
    Ok(())
}
