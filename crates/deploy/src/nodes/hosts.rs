//! Lists of hosts as people and batch systems write them: `a,b`, `n[01-16,20]`, `r[1-2]n[0-3]-ib`.
//!
//! Such text comes from anywhere. A name may hold letters, digits and `.-_:@`, and does not begin
//! with a dash: so none is taken for an option, a path or a word of a shell.

use anyhow::{Context, Result, bail, ensure};

/// Nodes of an instance at most.
pub const NODES_MAX: usize = 65_536;
/// Longest name of a host, bytes (that of DNS).
const HOST_BYTES_MAX: usize = 253;
/// Longest list that is read, bytes.
pub(super) const LIST_BYTES_MAX: usize = 4 << 20;
/// Digits of a number in a range at most, leading zeros included.
const DIGITS_MAX: usize = 9;

/// The hosts of a list, in its order; one that stands there twice is there twice.
///
/// # Errors
/// Says what is wrong with the list, or that it has more than [`NODES_MAX`] hosts.
pub fn expand(list: &str) -> Result<Vec<String>> {
    ensure!(list.len() <= LIST_BYTES_MAX, "a list of hosts has at most {LIST_BYTES_MAX} bytes");
    let mut hosts = Vec::new();
    for item in items(list)? {
        expand_item(item, &mut hosts).with_context(|| format!("in the list of hosts: {item:?}"))?;
    }
    ensure!(!hosts.is_empty(), "the list of hosts is empty");
    Ok(hosts)
}

/// The parts between commas and white space that stand in no bracket.
fn items(list: &str) -> Result<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if inside => bail!("a bracket within a bracket in the list of hosts"),
            '[' => inside = true,
            ']' if !inside => bail!("a bracket is closed that was not opened in the list of hosts"),
            ']' => inside = false,
            _ if !inside && (character == ',' || character.is_whitespace()) => {
                items.push(&list[start..at]);
                start = at + character.len_utf8();
            }
            _ => {}
        }
    }
    ensure!(!inside, "a bracket is not closed in the list of hosts");
    items.push(&list[start..]);
    Ok(items.into_iter().filter(|item| !item.is_empty()).collect())
}

fn expand_item(item: &str, hosts: &mut Vec<String>) -> Result<()> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').context("a bracket is not closed")?;
        let numbers = numbers(ranges)?;
        let count = names.len().saturating_mul(numbers.len());
        room(hosts.len(), count)?;
        let each = |name: String| {
            numbers.iter().map(move |number| format!("{name}{before}{number}")).collect::<Vec<_>>()
        };
        names = names.into_iter().flat_map(each).collect();
        for name in &names {
            ensure!(name.len() <= HOST_BYTES_MAX, "a name is too long");
        }
        rest = after;
    }
    room(hosts.len(), names.len())?;
    for mut name in names {
        name.push_str(rest);
        check(&name)?;
        hosts.push(name);
    }
    Ok(())
}

fn room(there: usize, more: usize) -> Result<()> {
    ensure!(there.saturating_add(more) <= NODES_MAX, "more than {NODES_MAX} hosts");
    Ok(())
}

/// The numbers of `1,3-5,007-010`, as wide as they are written.
fn numbers(ranges: &str) -> Result<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(first)?, number(last)?);
        ensure!(from <= to, "the range {range:?} runs backwards");
        let count = usize::try_from(to - from).unwrap_or(usize::MAX).saturating_add(1);
        room(numbers.len(), count)?;
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

fn number(digits: &str) -> Result<u64> {
    let fine = !digits.is_empty()
        && digits.len() <= DIGITS_MAX
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    ensure!(fine, "{digits:?} is no number of up to {DIGITS_MAX} digits");
    Ok(digits.parse()?)
}

fn check(name: &str) -> Result<()> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:@".contains(&byte);
    ensure!(
        !name.is_empty()
            && name.len() <= HOST_BYTES_MAX
            && !name.starts_with('-')
            && name.bytes().all(fine),
        "{name:?} is no name of a host: letters, digits, '.', '-', '_', ':' and '@', not beginning \
         with '-'"
    );
    Ok(())
}

/// The hosts of a file: one or a list on each line, what follows the first word (`slots=4`) and
/// after `#` does not count.
///
/// # Errors
/// As [`expand`].
pub fn of_file(text: &str) -> Result<Vec<String>> {
    let mut list = String::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        list.push_str(line.split_whitespace().next().unwrap_or_default());
        list.push(',');
    }
    expand(&list)
}

/// Each host once, in the order of their first places: batch systems name one for each of its
/// cores.
pub(super) fn once(hosts: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    hosts.into_iter().filter(|host| seen.insert(host.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expanded(list: &str) -> Vec<String> {
        expand(list).expect("a good list")
    }

    #[test]
    fn brackets_ranges_and_leading_zeros_are_understood() {
        assert_eq!(expanded("a,b c"), ["a", "b", "c"]);
        assert_eq!(expanded("n[08-10,3]"), ["n08", "n09", "n10", "n3"]);
        assert_eq!(expanded("n[1-2]-ib,login"), ["n1-ib", "n2-ib", "login"]);
        assert_eq!(expanded("r[0-1]n[1-2]"), ["r0n1", "r0n2", "r1n1", "r1n2"]);
        assert_eq!(expanded("a,a"), ["a", "a"]);
        assert_eq!(once(expanded("b,a,b")), ["b", "a"]);
    }

    #[test]
    fn what_is_no_list_of_hosts_is_refused() {
        for bad in [
            "",
            ",",
            "n[1-",
            "n]1[",
            "n[[1]]",
            "n[2-1]",
            "n[a-b]",
            "n[]",
            "n[1,]",
            "-oProxy=x",
            "a/b",
            "$(id)",
            "a;b",
            "n[1-2-3]",
            "n[0000000001]",
            "ä",
        ] {
            assert!(expand(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_list_has_no_more_than_65_536_hosts_however_it_is_written() {
        assert_eq!(expanded("n[1-65536]").len(), NODES_MAX);
        for bad in ["n[1-65536],m", "n[0-99999999]", "n[1-256]m[1-257]", "n[1-999]m[1-999]k[1-999]"]
        {
            let error = format!("{:#}", expand(bad).expect_err("too many"));
            assert!(error.contains("more than 65536 hosts"), "{error}");
        }
    }

    #[test]
    fn a_host_file_may_have_comments_and_slots() {
        let text = "# nodes\nn1 slots=4\n\nn[2-3]  # two\n";
        assert_eq!(of_file(text).expect("a good file"), ["n1", "n2", "n3"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c0-2\\[\\],. \\-$/é]{0,40}") {
            if let Ok(hosts) = expand(&text) {
                prop_assert!(!hosts.is_empty() && hosts.len() <= NODES_MAX);
                for host in hosts {
                    prop_assert!(check(&host).is_ok());
                }
            }
        }

        #[test]
        fn a_range_is_what_it_says(first in 0u32..5000, count in 1u32..300, width in 1usize..6) {
            let last = first + count - 1;
            let written = format!("n[{first:0width$}-{last:0width$}]x");
            let wanted: Vec<String> =
                (first..=last).map(|number| format!("n{number:0width$}x")).collect();
            prop_assert_eq!(expanded(&written), wanted);
        }
    }
}
