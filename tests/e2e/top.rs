//! `mayfly top` in a real terminal, and what it shows held against what a job does.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, skip};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// A terminal of 80 × 24.
struct Terminal<'a> {
    scratch: &'a Scratch,
    socket: PathBuf,
}

impl<'a> Terminal<'a> {
    fn start(scratch: &'a Scratch, command: &str) -> Result<Terminal<'a>> {
        let terminal = Terminal { scratch, socket: scratch.join("tmux") };
        let size = ["new-session", "-d", "-x", "80", "-y", "24", command];
        terminal.tmux(&size)?;
        Ok(terminal)
    }

    fn tmux(&self, words: &[&str]) -> Result<String> {
        let job = Job::new(self.scratch, "tmux", "tmux").args(["-f", "/dev/null", "-S"]);
        let job = job.args([&self.socket]).args(words).env("LC_ALL", "C.UTF-8");
        Ok(String::from_utf8_lossy(&job.run_ok()?.stdout).into_owned())
    }

    /// Until the screen is as it should be.
    fn await_screen(&self, what: &str, is_so: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&["capture-pane", "-p"])?;
            if is_so(&screen) {
                return Ok(screen);
            }
            ensure!(Instant::now() < deadline, "no {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn has_ended(&self) -> Result<bool> {
        let job = Job::new(self.scratch, "tmux-has", "tmux").args(["-S"]).args([&self.socket]);
        Ok(job.args(["has-session"]).run()?.code != 0)
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // It has ended by itself, as a rule.
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Forty changes of a mode each second and more, which nobody does without asking.
const WORK: &str = "cd \"$MAYFLY_MOUNT\" && mkdir d && echo > d/f && i=0; \
                    while [ -e d/f ]; do chmod 6$((i % 8))0 d/f; i=$((i + 1)); sleep 0.005; done";

#[test]
fn top_shows_what_a_job_does_in_a_terminal_and_once_for_scripts() -> Result<()> {
    if !skip::unless_installed("top", &["tmux"], "tmux") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("top")?;
    let instance = Instance::named(&scratch, "busy")?;
    instance.command("start").args(["--nodes", "local:2"]).run_ok()?;
    let work = instance.shell("work", WORK).start()?;
    let mayfly = binary::mayfly()?;
    let mut environment = String::new();
    for (name, value) in scratch.environment() {
        environment.push_str(&format!("{name}='{}' ", value.display()));
    }
    let command = format!("env {environment} {} top --interval 500ms", mayfly.display());
    let terminal = Terminal::start(&scratch, &command)?;
    let row = |screen: &str, name: &str| -> Option<f64> {
        let line = screen.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let busy = |screen: &str| row(screen, "change").is_some_and(|rate| rate > 10.0);
    let screen = terminal.await_screen("changes", busy)?;
    ensure!(screen.contains("2 nodes, 2 serve") && screen.contains("q end"), "{screen}");
    ensure!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    terminal.tmux(&["send-keys", "?"])?;
    terminal.await_screen("help", |screen| screen.contains("Ctrl-C"))?;
    terminal.tmux(&["send-keys", "?", "s"])?;
    terminal.await_screen("order", |screen| screen.contains("operations by total"))?;
    // Requests, then processes: chmod is another one each time, the shell itself looks.
    terminal.tmux(&["send-keys", "s", "s", "Tab"])?;
    let waits = |screen: &str| row(screen, "set_attr").is_some_and(|rate| rate > 10.0);
    terminal.await_screen("waits", waits)?;
    terminal.tmux(&["send-keys", "Tab"])?;
    let has_shell = |screen: &str| screen.contains("processes by rate") && screen.contains("chmod");
    terminal.await_screen("processes", has_shell)?;
    terminal.tmux(&["send-keys", "Tab"])?;
    terminal.await_screen("directories", |screen| screen.contains("/d"))?;
    // What the screen says is what the counters say.
    let once = instance.command("top").args(["--once", "--json", "--interval", "1s"]);
    let rates: Value = serde_json::from_slice(&once.run_ok()?.stdout)?;
    let operations = rates["operations"].as_array().context("operations")?;
    let of = operations.iter().find(|row| row["op"] == "change").context("no change")?;
    ensure!(of["per_second"].as_f64().is_some_and(|rate| rate > 10.0), "{rates}");
    let text = instance.command("top").args(["--once", "--interval", "200ms"]).run_ok()?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    ensure!(text.contains("set_attr") && text.contains("KiB") && text.contains("/d"), "{text}");
    terminal.tmux(&["send-keys", "q"])?;
    let deadline = Instant::now() + PATIENCE;
    while !terminal.has_ended()? {
        ensure!(Instant::now() < deadline, "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    instance.shell("end", "rm \"$MAYFLY_MOUNT/d/f\"").run_ok()?;
    drop(work);
    instance.stop()
}
