//! Prepares images of the C libraries and loaders of this machine, or of the libraries named, in
//! the directory given first: `prepare <cache directory> [library...]`.

use std::path::PathBuf;
use std::process::ExitCode;

use mayfly_image::maker;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(cache) = arguments.next() else {
        eprintln!("usage: prepare <cache directory> [library...]");
        return ExitCode::from(2);
    };
    let mut libraries: Vec<PathBuf> = arguments.collect();
    if libraries.is_empty() {
        libraries = maker::libraries_of_this_process();
    }
    let mut code = ExitCode::SUCCESS;
    for library in libraries {
        match maker::prepare(&library, &cache) {
            Ok(image) => println!("{} -> {}", library.display(), image.display()),
            Err(error) => {
                eprintln!("{error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
