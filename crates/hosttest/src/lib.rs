//! Runs host processes under the preload library and looks at what became of them.
//!
//! The library is built by a cargo of its own (its profile aborts, has no std and no test harness),
//! with known answers in place of a file system (feature `selftest`). Programs in `programs/` check
//! one subject each, print what is wrong, and exit with zero when nothing is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mayfly_image::maker;
pub use mayfly_testkit::skip;

/// A host process that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// How the library treats a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Not at all: the process runs without it.
    Without,
    /// Only the few calls with known answers reach the hook.
    Some,
    /// Every call reaches the hook, which lets it pass.
    All,
    /// As `All`, with trampolines where they usually do not go.
    AllElsewhere,
    /// As `All`, with the library named in `LD_AUDIT` too, as for a program whose libraries may lie
    /// in the mount.
    Audited,
}

/// The modes in which the library is present.
pub const MODES: [Mode; 4] = [Mode::Some, Mode::All, Mode::AllElsewhere, Mode::Audited];

fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().and_then(Path::parent).expect("crates/hosttest is two deep").into()
}

/// Where this crate's builds go.
fn directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace().join("target"), PathBuf::from);
    target.join("hosttest")
}

/// The library with known answers behind the hook, freshly built.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build("selftest", &["--features", "selftest"]))
}

/// The library as it is shipped, freshly built.
pub fn shipped_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build("shipped", &[]))
}

fn build(name: &str, arguments: &[&str]) -> PathBuf {
    let target = directory().join(name);
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "preload", "--package", "mayfly-preload"])
        .args(arguments)
        .arg("--target-dir")
        .arg(&target)
        .current_dir(workspace())
        // What the outer cargo set for its own units must not reach the inner one.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the preload library does not build");
    target.join("preload/libmayfly_preload.so")
}

/// A cache with the images of this machine's C libraries.
pub fn images() -> &'static Path {
    static IMAGES: OnceLock<PathBuf> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let cache = directory().join("images");
        for library in maker::libraries_of_this_process() {
            let made = maker::make(&library).expect("the C library can be patched");
            let path = cache.join(maker::image_name(made.header.key()));
            if std::fs::read(&path).is_ok_and(|bytes| bytes != made.bytes) {
                // Of another state of the maker, under the same version.
                std::fs::remove_file(&path).expect("the cache is ours");
            }
            maker::prepare(&library, &cache).expect("the C library can be patched");
        }
        cache
    })
}

/// Compiles `programs/<source>` with `compiler` and `flags`; the suite skips when there is no
/// compiler.
pub fn compile(compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let output = directory().join("programs");
    std::fs::create_dir_all(&output).expect("the target directory is writable");
    let program = output.join(format!("{source}.{compiler}"));
    let status = Command::new(compiler)
        .args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(self::program(source))
        .args(flags)
        .status()
        .expect("the compiler runs");
    assert!(status.success(), "{source} does not compile");
    program
}

/// A source file in `programs/`.
pub fn program(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source)
}

/// What a process left.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

/// A command that runs in `mode`.
pub fn command(program: impl AsRef<std::ffi::OsStr>, mode: Mode) -> Command {
    let mut command = Command::new(program);
    for name in ["LD_PRELOAD", "LD_AUDIT", "MAYFLY_RUN", "MAYFLY_IMAGES", "MAYFLY_SELFTEST"] {
        command.env_remove(name);
    }
    let letters = match mode {
        Mode::Without => return command,
        Mode::Some => "",
        Mode::All => "a",
        Mode::AllElsewhere => "ae",
        Mode::Audited => {
            command.env("LD_AUDIT", library());
            "a"
        }
    };
    command
        .env("LD_PRELOAD", library())
        .env("MAYFLY_RUN", "selftest")
        .env("MAYFLY_IMAGES", images())
        .env("MAYFLY_SELFTEST", letters);
    command
}

/// Runs `command` to its end, which must come before long.
pub fn run(command: &mut Command) -> Left {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    let pid = child.id();
    let (done, finished) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output();
        // Nobody listens any more when the process took too long.
        let _ = done.send(());
        output
    });
    let start = Instant::now();
    if finished.recv_timeout(PATIENCE).is_err() {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        panic!("{command:?} hangs after {:?}", start.elapsed());
    }
    let output =
        waiter.join().expect("the waiter does not panic").expect("the program can be awaited");
    left(&output)
}

fn left(output: &Output) -> Left {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Left { code: output.status.code(), output: text(&output.stdout), errors: text(&output.stderr) }
}

/// Runs a program of ours in `mode`; it must find nothing wrong.
pub fn assert_content(program: &Path, mode: Mode) {
    let left = run(&mut command(program, mode));
    assert_eq!(left.code, Some(0), "{} in mode {mode:?}: {left:#?}", program.display());
}

/// Compiles a C program of ours and runs it in all modes.
pub fn assert_content_in_all_modes(suite: &str, source: &str) {
    if skip::unless_installed(suite, &["gcc"], "gcc libc6-dev") {
        let program = compile("gcc", source, &[]);
        MODES.iter().for_each(|mode| assert_content(&program, *mode));
    }
}
