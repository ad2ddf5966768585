//! Instructions around a `syscall` do in the trampoline what they did in the library.

use mayfly_hosttest::{self as hosttest, MODES};
use mayfly_image::maker::{self, Reason};

#[test]
fn moved_instructions_behave_and_branch_targets_stay() {
    if !hosttest::skip::unless_installed("moved", &["gcc"], "gcc libc6-dev") {
        return;
    }
    // Under the name of a library that the preload library looks for.
    let flags = ["-shared", "-nostdlib", "-Wl,--build-id", "-Wl,-soname,libpthread.so.0"];
    let library = hosttest::compile("gcc", "moved.S", &flags);
    let directory = library.with_file_name("moved");
    std::fs::create_dir_all(&directory).unwrap();
    let named = directory.join("libpthread.so.0");
    std::fs::copy(&library, &named).unwrap();
    let made = maker::make(&named).unwrap();
    let no_room = made.unpatched.iter().filter(|left| left.why == Reason::NoRoom).count();
    assert_eq!((made.header.sites, no_room), (6, 2), "{:x?}", made.unpatched);
    maker::prepare(&named, hosttest::images()).unwrap();
    let search = format!("-Wl,-rpath,{}", directory.display());
    let program = hosttest::compile("gcc", "moved.c", &[named.to_str().unwrap(), &search]);
    MODES.iter().for_each(|mode| hosttest::assert_content(&program, *mode));
}
