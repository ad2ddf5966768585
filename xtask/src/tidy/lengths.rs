//! Lines, functions and files have a length beyond which they are not read.

use super::source::{self, item_length, line_of, places_of};
use super::{Complaint, SourceFile};

const LINE_COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

/// Files that are longer, and by how much. A number here only goes down: when the file gets
/// shorter, the rule asks for the smaller number; when it fits, for the line's removal.
const LONG_FILES: &[(&str, usize)] = &[];

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files {
        let is_code = ["rs", "py", "c", "sh"].iter().any(|kind| file.is(kind));
        let Some(text) = file.text().filter(|_| is_code) else { continue };
        complaints.extend(check_lines(&file.path, text));
        complaints.extend(check_file(&file.path, text.lines().count()));
        if file.is("rs") {
            complaints.extend(check_functions(&file.path, text));
        }
    }
    complaints
}

fn check_lines(path: &str, text: &str) -> Vec<Complaint> {
    let long = |(index, line): (usize, &str)| {
        let columns = line.chars().count();
        let what = format!("{columns} columns, at most {LINE_COLUMNS_MAX}");
        (columns > LINE_COLUMNS_MAX).then(|| Complaint::at_line(path, index + 1, what))
    };
    text.lines().enumerate().filter_map(long).collect()
}

fn check_file(path: &str, lines: usize) -> Option<Complaint> {
    let what = match LONG_FILES.iter().find(|(known, _)| *known == path) {
        None if lines > FILE_LINES_MAX => format!("{lines} lines, at most {FILE_LINES_MAX}"),
        Some((_, known)) if lines > *known => format!("{lines} lines, more than its {known}"),
        Some(_) if lines <= FILE_LINES_MAX => "fits now: remove it from LONG_FILES".to_owned(),
        Some((_, known)) if lines < *known => format!("shorter now: write {lines} in LONG_FILES"),
        _ => return None,
    };
    Some(Complaint::at(path, what))
}

/// Counts lines with code, as clippy's `too_many_lines` does, but also where clippy does not look:
/// in macros and in code that this build leaves out.
fn check_functions(path: &str, text: &str) -> Vec<Complaint> {
    let code = source::code(text);
    let mut complaints = Vec::new();
    for at in places_of(&code, "fn") {
        let rest = &code[at + 2..];
        let name: String =
            rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // A type of function has no name.
        if name.is_empty() {
            continue;
        }
        let item = &rest[..item_length(rest)];
        let body = item.find('{').map_or("", |start| &item[start + 1..]);
        let lines = body.lines().filter(|line| !line.trim().is_empty()).count();
        if lines > FUNCTION_LINES_MAX + 1 {
            let what = format!("fn {name} has {} lines, at most {FUNCTION_LINES_MAX}", lines - 1);
            complaints.push(Complaint::at_line(path, line_of(&code, at), what));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_seventy_lines_passes_and_one_more_does_not() {
        let function =
            |lines: usize| format!("fn f(a: [u8; 2]) {{\n{}}}\n", "    x();\n".repeat(lines));
        assert!(check_functions("a.rs", &function(70)).is_empty());
        assert_eq!(check_functions("a.rs", &function(71)).len(), 1);
    }

    #[test]
    fn comments_do_not_make_a_function_long() {
        let text = format!("fn f() {{\n{}}}\n", "    // why\n".repeat(100));
        assert!(check_functions("a.rs", &text).is_empty());
    }
}
