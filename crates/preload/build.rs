//! Link arguments of a library that needs nothing and exports nothing.

fn main() {
    let arguments = [
        "-nostartfiles",
        "-nodefaultlibs",
        "-nostdlib",
        "-Wl,-z,defs",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        "-Wl,-z,noexecstack",
        "-Wl,-z,start-stop-visibility=hidden",
        "-Wl,--eh-frame-hdr",
        "-Wl,-soname,libmayfly_preload.so",
        // Where the kernel begins when it runs the library (loader.rs).
        "-Wl,-e,mayfly_begin",
    ];
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
