//! The environment in which a program is served.

use std::{env, ffi::OsString, os::unix::ffi::OsStrExt};

use crate::{Config, instance::PRELOAD_NAME};

/// The variables to set, with their values.
#[must_use]
pub fn variables(config: &Config) -> Vec<(&'static str, OsString)> {
    let library = config.run_dir.join(PRELOAD_NAME).into_os_string();
    let preload = match env::var_os("LD_PRELOAD").filter(|earlier| !earlier.is_empty()) {
        Some(earlier) => {
            let mut both = library;
            both.push(":");
            both.push(earlier);
            both
        }
        None => library,
    };
    vec![
        ("LD_PRELOAD", preload),
        ("MAYFLY_MOUNT", config.mount.clone().into_os_string()),
        ("MAYFLY_RUN", config.run_dir.clone().into_os_string()),
        ("MAYFLY_IMAGES", config.image_dir.clone().into_os_string()),
        ("MAYFLY_OBJECTS", config.object_dir.clone().into_os_string()),
    ]
}

/// The same as lines for a shell: `eval "$(mayfly env)"`.
#[must_use]
pub fn shell_lines(config: &Config) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in variables(config) {
        lines.extend_from_slice(b"export ");
        lines.extend_from_slice(name.as_bytes());
        lines.push(b'=');
        quote(value.as_bytes(), &mut lines);
        lines.push(b'\n');
    }
    lines
}

fn quote(value: &[u8], to: &mut Vec<u8>) {
    to.push(b'\'');
    for byte in value {
        match byte {
            b'\'' => to.extend_from_slice(b"'\\''"),
            other => to.push(*other),
        }
    }
    to.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_path_does_not_end_the_shell_word() {
        let mut line = Vec::new();
        quote(b"/tmp/it's", &mut line);
        assert_eq!(line, b"'/tmp/it'\\''s'");
    }
}
