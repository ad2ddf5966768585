//! Programs that nobody wrote for us do the same with the library as without.

use std::path::PathBuf;
use std::process::Command;

use mayfly_hosttest::{self as hosttest, MODES, Mode, skip};

/// Runs `script` with bash in a fresh directory without the library, then in each mode; exit code
/// and output must be the same.
fn assert_same(suite: &str, programs: &[&str], packages: &str, script: &str) {
    if !skip::unless_installed(suite, programs, packages) {
        return;
    }
    let expected = run_script(suite, Mode::Without, script);
    assert_eq!(expected.0, Some(0), "{suite} fails without the library: {expected:?}");
    for mode in MODES {
        assert_eq!(run_script(suite, mode, script), expected, "{suite} in mode {mode:?}");
    }
}

fn run_script(suite: &str, mode: Mode, script: &str) -> (Option<i32>, String) {
    let directory = scratch(&format!("{suite}-{mode:?}"));
    let mut command = hosttest::command("bash", mode);
    let left = hosttest::run(
        command
            .args(["-euc", &format!("cd {}\n{script}", directory.display())])
            .env("HOME", &directory)
            .env("LC_ALL", "C"),
    );
    std::fs::remove_dir_all(&directory).expect("a scratch directory can be removed");
    // The library has nothing to say on standard error, whatever else stands there.
    assert!(!left.errors.contains("mayfly:"), "{left:?}");
    (left.code, left.output)
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mayfly-host-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the temporary directory is writable");
    path
}

#[test]
fn bash_and_coreutils_work() {
    assert_same(
        "bash",
        &["bash", "sort", "sed", "awk"],
        "bash coreutils sed mawk",
        r#"for i in $(seq 200); do echo "$i $((i * 7 % 13))" > "file$i"; done
        cat file* | sort -k2,2n -k1,1n | sed 's/ /:/' | awk -F: '{s += $1 * $2} END {print s}'
        mkdir -p a/b/c; mv file1 a/b; ln -s a/b/file1 link; cp -r a d; cat link; ls -R
        (exit 3) || echo "exit $?"; trap 'echo trapped' USR1; kill -USR1 $$
        sleep 0.05 & wait $!; echo "waited $?"
        exec 5<> pipe; echo into >&5; cat < pipe; rm -r a d; ls | wc -l"#,
    );
}

#[test]
fn python_works() {
    let script = format!("python3 {}", hosttest::program("work.py").display());
    assert_same("python3", &["python3"], "python3", &script);
}

#[test]
fn git_works() {
    assert_same(
        "git",
        &["git"],
        "git",
        r#"git init -q -b main r; cd r; git config user.email a@b; git config user.name n
        export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z'
        export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
        for i in $(seq 60); do echo "$i" > "f$i"; git add .; git commit -q -m "c$i"; done
        git repack -adq; git fsck --strict 2>/dev/null; git log --oneline | head -3
        git rev-parse HEAD; git checkout -q -b side HEAD~10; echo x > g; git add g
        git commit -qm g; git merge -q main; git clone -q . ../copy; cd ../copy
        git status --short | wc -l; git diff --stat HEAD~1 | tail -1"#,
    );
}

#[test]
fn gcc_and_tar_work() {
    assert_same(
        "gcc",
        &["gcc", "tar", "gzip"],
        "gcc libc6-dev tar gzip",
        r#"for i in 1 2 3; do
            echo "int f$i(void) { return $i; }" > $i.c; gcc -pipe -O2 -c $i.c
        done
        echo 'int f1(), f2(), f3(); int main(void) { return f1() + f2() + f3(); }' > m.c
        gcc -o m m.c 1.o 2.o 3.o; ./m || echo $?
        mkdir d; for i in $(seq 300); do head -c $((i * 10)) /dev/zero > d/$i; done
        tar -czf d.tgz d; mkdir e; tar -xzf d.tgz -C e; diff -r d e/d && echo same"#,
    );
}

#[test]
fn java_works() {
    let script = format!("java {}", hosttest::program("Work.java").display());
    assert_same("java", &["java", "javac"], "default-jdk-headless", &script);
}

#[test]
fn node_works() {
    let script = format!("node {}", hosttest::program("work.js").display());
    assert_same("node", &["node"], "nodejs", &script);
}

#[test]
fn a_go_program_with_cgo_works() {
    if !skip::unless_installed("go", &["go", "gcc"], "golang gcc") {
        return;
    }
    let directory = scratch("go-build");
    let program = directory.join("work");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &hosttest::program("work.go")])
        .current_dir(&directory)
        .env("CGO_ENABLED", "1")
        .status()
        .expect("go runs");
    assert!(built.success(), "the Go program does not build");
    assert_same("go", &["go"], "golang", &program.display().to_string());
    std::fs::remove_dir_all(&directory).expect("a scratch directory can be removed");
}

#[test]
fn a_program_with_many_processes_works() {
    assert_same(
        "processes",
        &["bash", "xargs", "make"],
        "bash findutils make",
        r#"seq 200 | xargs -P 8 -n 5 echo | wc -w
        printf 'all: $(shell seq -f o%%g 60)\no%%:\n\t@echo $@ > $@\n' > Makefile
        make -s -j8; cat o* | sort | cksum"#,
    );
}
