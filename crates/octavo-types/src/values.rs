//! Sizes, counts and fractions as users write them, read exactly: never through a float.

/// Why a value is refused: the allowed values, in words that can follow "must be".
pub type Refused = &'static str;

/// The longest number read; anything sensible is far shorter.
const MAX_DIGITS: usize = 30;
/// Fractions are held as multiples of 1/`WHOLE`.
pub const WHOLE: u64 = 1_000_000_000;

const BAD_SIZE: Refused = "a size in bytes such as 4096, 64KiB or 1.5GiB";
const BAD_COUNT: Refused = "a whole number such as 1000, 1_000, 10M or 1e9";
const BAD_FRACTION: Refused = "a number with at most nine decimals, such as 0.25";
const BAD_ADDRESS: Refused = "an address such as 0x7f0000000000";

/// A decimal number: `digits / 10^decimals`.
struct Decimal {
    digits: u128,
    decimals: u32,
}

impl Decimal {
    /// Reads `12`, `1_000`, `1.5`, and with `exponents` also `1e9`; returns the number and the rest
    /// of the text.
    fn leading(text: &str, exponents: bool) -> Option<(Self, &str)> {
        let (mut digits, mut decimals, mut seen, mut point) = (0u128, 0u32, 0, false);
        let mut used = 0;
        for byte in text.bytes() {
            match byte {
                b'0'..=b'9' => {
                    seen += 1;
                    digits = digits.checked_mul(10)?.checked_add(u128::from(byte - b'0'))?;
                    decimals += u32::from(point);
                }
                b'_' if seen > 0 => {}
                b'.' if seen > 0 && !point => point = true,
                _ => break,
            }
            used += 1;
        }
        if seen == 0 || seen > MAX_DIGITS {
            return None;
        }
        let rest = &text[used..];
        let exponent = rest.strip_prefix(['e', 'E']).filter(|_| exponents);
        let Some(exponent) = exponent else { return Some((Decimal { digits, decimals }, rest)) };
        let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
        let length = exponent.bytes().take_while(u8::is_ascii_digit).count();
        let power: u32 = exponent[..length].parse().ok().filter(|power| *power <= 30)?;
        let decimal = Decimal { digits: digits.checked_mul(10u128.pow(power))?, decimals };
        Some((decimal, &exponent[length..]))
    }

    /// The number times `unit`, if that is whole and no more than 64 bits.
    fn times(&self, unit: u64) -> Option<u64> {
        let all = self.digits.checked_mul(u128::from(unit))?;
        let divisor = 10u128.pow(self.decimals);
        if all % divisor != 0 { None } else { u64::try_from(all / divisor).ok() }
    }
}

/// `64KiB`, `64K`, `1.5GiB` or plain bytes; units are powers of 1024, in any case.
pub fn size(text: &str) -> Result<u64, Refused> {
    let (number, unit) = Decimal::leading(text.trim(), false).ok_or(BAD_SIZE)?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        // No `e`, which looks like an exponent.
        "eb" | "eib" => 60,
        _ => return Err(BAD_SIZE),
    };
    number.times(1 << shift).ok_or(BAD_SIZE)
}

/// `1000`, `1_000`, `10M`, `1e9`; units are powers of 1000.
pub fn count(text: &str) -> Result<u64, Refused> {
    let (number, unit) = Decimal::leading(text.trim(), true).ok_or(BAD_COUNT)?;
    let unit = match unit.trim() {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        "t" | "T" => 1_000_000_000_000,
        _ => return Err(BAD_COUNT),
    };
    number.times(unit).ok_or(BAD_COUNT)
}

/// `0.25`, in parts of [`WHOLE`].
pub fn fraction(text: &str) -> Result<u64, Refused> {
    match Decimal::leading(text.trim(), true) {
        Some((number, "")) => number.times(WHOLE).ok_or(BAD_FRACTION),
        _ => Err(BAD_FRACTION),
    }
}

/// A hexadecimal address with `0x`, or a decimal one.
pub fn address(text: &str) -> Result<u64, Refused> {
    let digits = text.trim().replace('_', "");
    let number = match digits.strip_prefix("0x") {
        Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16),
        _ if digits.starts_with('+') => return Err(BAD_ADDRESS),
        _ => digits.parse(),
    };
    number.map_err(|_| BAD_ADDRESS)
}

/// A size in the largest unit that holds it exactly.
pub fn size_text(bytes: u64) -> String {
    let units = [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}

/// A fraction without zeros at its end.
pub fn fraction_text(parts: u64) -> String {
    let decimals = format!("{:09}", parts % WHOLE);
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{}{point}{decimals}", parts / WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_counts_and_fractions_are_exact() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("1.5GiB"), Ok(3 << 29));
        assert_eq!(size("1_000"), Ok(1000));
        assert_eq!(size("0.5PiB"), Ok(1 << 49));
        assert_eq!(size("15EiB"), Ok(15 << 60));
        assert_eq!(count("1e9"), Ok(1_000_000_000));
        assert_eq!(count("1.5e1"), Ok(15));
        assert_eq!(count("10M"), Ok(10_000_000));
        assert_eq!(count("2.5k"), Ok(2500));
        assert_eq!(fraction("0.3"), Ok(300_000_000));
        assert_eq!(fraction("1"), Ok(WHOLE));
        assert_eq!(address("0x7fff_0000"), Ok(0x7fff_0000));
        assert_eq!(address("4096"), Ok(4096));
    }

    #[test]
    fn malformed_values_are_refused() {
        for text in
            ["", "MiB", "1.3B", "1e3", "-1", "4 potatoes", "1e", "16EiB", "99999999999999999999"]
        {
            assert!(size(text).is_err(), "{text}");
        }
        for text in ["", "1.5", "1e", "1e99", "-1", "1e-3", "ten", "1e9000000000000", "NaN"] {
            assert!(count(text).is_err(), "{text}");
        }
        for text in ["", "a", "0.0000000001", "0.5x", ".5"] {
            assert!(fraction(text).is_err(), "{text}");
        }
        for text in ["", "0x", "0x+1", "+1", "0xg", "0x1_0000_0000_0000_0000"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn written_values_read_back(value in any::<u64>(), shift in 0u32..50) {
            let value = value >> shift << shift;
            prop_assert_eq!(size(&size_text(value)), Ok(value));
            prop_assert_eq!(fraction(&fraction_text(value)), Ok(value));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,60}", digits in "[0-9_.eE+KMGiBx]{0,60}") {
            for text in [text, digits] {
                let _ = (size(&text), count(&text), fraction(&text), address(&text));
            }
        }
    }
}
