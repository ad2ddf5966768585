//! What operations are called, for people and monitoring systems.

use mayfly_wire::Op;

/// `SetAttr` as `set_attr`.
#[must_use]
pub fn name_of(op: Op) -> String {
    let mut text = String::new();
    for letter in format!("{op:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_named_in_small_letters() {
        assert_eq!(name_of(Op::SetAttr), "set_attr");
        assert_eq!(name_of(Op::Stat), "stat");
    }
}
