//! Rust source without what is not code: comments, strings and tests are blanked, lines stay where
//! they are.
//!
//! This is no parser. It knows the tokens in which a word could hide: comments (nested ones too),
//! strings, raw strings, characters and lifetimes. That is enough to look for words and to count
//! braces.

/// The code of a file: the same text, with blanks instead of comments and of the contents of
/// strings.
pub(super) fn code(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let length = hidden_length(&bytes[at..], preceded_by_word(bytes, at));
        if length == 0 {
            out.push(bytes[at]);
            at += 1;
        } else {
            let hidden = &bytes[at..at + length];
            out.extend(hidden.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at += length;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn preceded_by_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// How many bytes from here are not code; 0 for code.
fn hidden_length(rest: &[u8], inside_word: bool) -> usize {
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => quoted(rest, b'"'),
        [b'r', b'"' | b'#', ..] if !inside_word => raw_string(rest),
        [b'b', b'r', b'"' | b'#', ..] if !inside_word => match raw_string(&rest[1..]) {
            0 => 0,
            length => length + 1,
        },
        [b'\'', b'\\', ..] => quoted(rest, b'\''),
        [b'\'', ..] => character(rest),
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// A raw string, or 0 for a raw identifier.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[2 + hashes..];
    let found = body.windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |place| 2 + hashes + place + end.len())
}

/// A character, or 0 for a lifetime. One character is at most four bytes.
fn character(rest: &[u8]) -> usize {
    let text = String::from_utf8_lossy(&rest[1..rest.len().min(6)]).into_owned();
    let Some(first) = text.chars().next() else { return 0 };
    let length = first.len_utf8();
    if rest.get(1 + length) == Some(&b'\'') { length + 2 } else { 0 }
}

/// The code without its test modules: what follows `#[cfg(test)]`, up to the end of its block or
/// statement.
pub(super) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    while let Some(start) = out.find(MARK) {
        let end = start + MARK.len();
        let end = end + item_length(&out[end..]);
        let blank: String =
            out[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// Up to and with the closing brace of the first block, or the semicolon that comes before any
/// block.
pub(super) fn item_length(code: &str) -> usize {
    let (mut braces, mut others) = (0usize, 0usize);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return at + 1;
                }
            }
            ';' if braces == 0 && others == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The places where `word` stands alone, as byte offsets.
pub(super) fn places_of(code: &str, word: &str) -> Vec<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let alone = |at: &usize| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    };
    code.match_indices(word).map(|(at, _)| at).filter(alone).collect()
}

/// The line of a byte offset, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].bytes().filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked() {
        let text =
            "a /* x /* y */ z */ b // c\n\"d\\\"e\" 'f' '\\'' r#\"g\"h\"# br\"i\" j<'k> '\u{e9}'l";
        let code = code(text);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "b", "j<'k>", "l"]);
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn test_modules_go_and_what_follows_stays() {
        let code = without_tests(
            "one\n#[cfg(test)]\nmod tests { fn x() { {} } }\n#[cfg(test)] use a; two",
        );
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_word_inside_another_is_not_found() {
        assert_eq!(places_of("unsafe_code unsafe {", "unsafe"), [12]);
    }
}
