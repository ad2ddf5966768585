//! Sizes as people write them.

/// Bytes from `4096`, `512K`, `64MiB`, `1G`: powers of 1024.
///
/// # Errors
/// For people.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "begin with a number, such as 512K".to_owned())?;
    let shift = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("{unit:?} is no unit: use K, M, G or T")),
    };
    number
        .checked_shl(shift)
        .filter(|bytes| bytes >> shift == number)
        .ok_or_else(|| "that is too large".to_owned())
}

/// Bytes for people.
#[must_use]
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_with_and_without_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("512K"), Ok(512 * 1024));
        assert_eq!(parse("64MiB"), Ok(64 << 20));
        assert_eq!(parse("1gb"), Ok(1 << 30));
    }

    #[test]
    fn a_size_that_makes_no_sense_is_refused() {
        for bad in ["", "K", "12X", "-1", "99999999999T", "1.5G"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
