//! Files of a crate that import each other in circles.
//!
//! The graph is made of what files say of each other: `use` declarations and paths that begin with
//! `crate`, `super` or `self`. A path counts for the file of the longest module that it names; who
//! names only the root of the crate depends on no file. From a face to what is in its folder there
//! is no arrow, as a folder and its face are read together. Tests are left out.
//!
//! The files of one circle cannot be understood one after the other, so a circle stays small.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{self, places_of};
use super::{Complaint, SourceFile};

/// Files of one circle, at most.
const FILES_MAX: usize = 3;
/// Circles in all crates, at most.
const CIRCLES_MAX: usize = 4;

/// Circles that are there still, by a file of each: how many files it has. A number here only goes
/// down.
const KNOWN: &[(&str, usize)] = &[];

/// A module of a crate, as the words of its path.
type Module = Vec<String>;

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    check_with(files, KNOWN)
}

fn check_with(files: &[SourceFile], table: &[(&str, usize)]) -> Vec<Complaint> {
    let circles = circles(files);
    let known = |circle: &BTreeSet<String>| {
        table.iter().find(|(file, _)| circle.contains(*file)).map(|(_, count)| *count)
    };
    let mut complaints = Vec::new();
    for circle in &circles {
        let most = known(circle).unwrap_or(FILES_MAX);
        if circle.len() > most {
            let names: Vec<&str> = circle.iter().map(String::as_str).collect();
            let what = format!(
                "{} files import each other in a circle, at most {most}: {}",
                circle.len(),
                names.join(", ")
            );
            complaints.push(Complaint::at(names[0], what));
        }
    }
    for (file, count) in table {
        let now = circles.iter().find(|circle| circle.contains(*file)).map_or(0, BTreeSet::len);
        if now < *count {
            complaints
                .push(Complaint::at(file, format!("its circle has {now} files now, write so")));
        }
    }
    let small: Vec<_> = circles.iter().filter(|circle| known(circle).is_none()).collect();
    if small.len() > CIRCLES_MAX {
        let firsts: Vec<&str> =
            small.iter().filter_map(|circle| circle.first()).map(String::as_str).collect();
        let what = format!("{} circles, at most {CIRCLES_MAX}: {}", small.len(), firsts.join(", "));
        complaints.push(Complaint::at("crates", what));
    }
    complaints
}

/// The circles of all crates, as paths of files.
fn circles(files: &[SourceFile]) -> Vec<BTreeSet<String>> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &SourceFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is("rs") && !file.path.ends_with("/tests.rs")) {
        let place = file.path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        let Some((name, inside)) = place else { continue };
        crates.entry(name).or_default().insert(module_of(inside), file);
    }
    crates.values().flat_map(circles_of_crate).collect()
}

/// `a/b.rs` is `a::b`; the root of the crate has no words.
fn module_of(inside: &str) -> Module {
    let path = inside.strip_suffix(".rs").unwrap_or(inside);
    let root = path == "lib" || path == "main";
    path.split('/').filter(|_| !root).map(str::to_owned).collect()
}

fn circles_of_crate(modules: &BTreeMap<Module, &SourceFile>) -> Vec<BTreeSet<String>> {
    let arrows: BTreeMap<&Module, BTreeSet<&Module>> = modules
        .iter()
        .map(|(module, file)| (module, arrows(module, file.text().unwrap_or_default(), modules)))
        .collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        arrows.keys().map(|from| (*from, reached(from, &arrows))).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (module, onward) in &reached {
        if !onward.contains(*module) || seen.contains(*module) {
            continue;
        }
        let members: Vec<&Module> =
            onward.iter().filter(|other| reached[*other].contains(*module)).copied().collect();
        seen.extend(members.iter().copied());
        circles.push(members.iter().map(|member| modules[*member].path.clone()).collect());
    }
    circles
}

/// Everything to which arrows lead from here, in any number of steps.
fn reached<'a>(
    from: &Module,
    arrows: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Module> = arrows[from].iter().copied().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(arrows[next].iter().copied());
        }
    }
    found
}

/// The other modules that a file names.
fn arrows<'a>(
    module: &Module,
    text: &str,
    modules: &'a BTreeMap<Module, &SourceFile>,
) -> BTreeSet<&'a Module> {
    let code = source::without_tests(&source::code(text));
    let mut found = BTreeSet::new();
    for start in ["crate", "super", "self"] {
        // `pub(super)` and `pub(in …)` say who may see a name, and name nothing.
        let named = |at: &usize| {
            code[at + start.len()..].starts_with("::") && !code[..*at].ends_with("pub(in ")
        };
        for at in places_of(&code, start).into_iter().filter(named) {
            for path in paths(&code[at..]) {
                let named = absolute(module, &path);
                let known = (1..=named.len()).rev().find_map(|length| {
                    modules.get_key_value(&named[..length]).map(|(known, _)| known)
                });
                // Its own folder is a part of it.
                found.extend(known.filter(|known| !known.starts_with(module)));
            }
        }
    }
    found
}

/// The paths that a text begins with: one, or one for each name in braces.
fn paths(text: &str) -> Vec<Vec<String>> {
    let word: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let rest = &text[word.len()..];
    let Some(rest) = rest.strip_prefix("::").filter(|_| !word.is_empty()) else {
        return if word.is_empty() { Vec::new() } else { vec![vec![word]] };
    };
    let tails = match rest.strip_prefix('{') {
        Some(list) => names_in(list).into_iter().flat_map(paths).collect(),
        None => paths(rest),
    };
    let tails = if tails.is_empty() { vec![Vec::new()] } else { tails };
    tails.into_iter().map(|tail| [vec![word.clone()], tail].concat()).collect()
}

/// The parts of a list in braces, whose opening brace is before the text.
fn names_in(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut names) = (0usize, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(list[start..at].trim());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// From the root of the crate.
fn absolute(module: &Module, path: &[String]) -> Module {
    let mut from = module.clone();
    let mut rest = path;
    while let [first, others @ ..] = rest {
        match first.as_str() {
            "crate" => from.clear(),
            "super" => drop(from.pop()),
            "self" => {}
            _ => break,
        }
        rest = others;
    }
    from.extend(rest.iter().cloned());
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    /// Each file of the circle imports the next one.
    fn planted(count: usize) -> Vec<SourceFile> {
        let name = |index: usize| format!("m{}", index % count);
        let text = |index| format!("use crate::{{Root, {}::{{A, B}}}};", name(index + 1));
        let one = |index| file(&format!("crates/wire/src/{}.rs", name(index)), &text(index));
        (0..count).map(one).collect()
    }

    #[test]
    fn a_circle_of_three_files_passes_and_one_of_four_does_not() {
        assert!(check_with(&planted(3), &[]).is_empty());
        let complaints = check_with(&planted(4), &[]);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].0.contains("4 files import each other in a circle, at most 3"));
    }

    #[test]
    fn a_known_circle_only_gets_smaller() {
        let known = [("crates/wire/src/m0.rs", 5)];
        assert!(check_with(&planted(5), &known).is_empty());
        assert_eq!(check_with(&planted(6), &known).len(), 1);
        assert_eq!(check_with(&planted(4), &known).len(), 1);
    }

    #[test]
    fn a_chain_is_no_circle_and_tests_do_not_close_one() {
        let chain = [
            file("crates/wire/src/a.rs", "use super::b::B;"),
            file("crates/wire/src/b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }"),
            file("crates/wire/src/x.rs", "mod y;"),
            file("crates/wire/src/x/y.rs", "use crate::z;\npub(super) fn f() {}"),
            file("crates/wire/src/z.rs", "use crate::x::f;"),
        ];
        assert!(circles(&chain).is_empty());
    }

    #[test]
    fn paths_in_code_and_above_close_a_circle() {
        let two = [
            file("crates/wire/src/x/a.rs", "fn f() { super::b::g() }"),
            file("crates/wire/src/x/b.rs", "use crate::x::a;"),
            file("crates/wire/src/x.rs", "mod a;\nmod b;\nuse a::f;"),
        ];
        assert_eq!(circles(&two).len(), 1);
        assert_eq!(circles(&two)[0].len(), 2);
    }

    #[test]
    fn five_small_circles_are_too_many() {
        let pair = |name: &str| {
            let at = |part: &str| format!("crates/{name}/src/{part}.rs");
            [file(&at("a"), "use crate::b;"), file(&at("b"), "use crate::a;")]
        };
        let of = |names: &[&str]| names.iter().flat_map(|name| pair(name)).collect::<Vec<_>>();
        assert!(check_with(&of(&["k", "l", "m", "n"]), &[]).is_empty());
        assert_eq!(check_with(&of(&["k", "l", "m", "n", "o"]), &[]).len(), 1);
    }
}
