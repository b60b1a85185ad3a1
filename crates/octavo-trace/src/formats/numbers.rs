//! Numbers as text traces have them.

/// The value of a byte as a hexadecimal digit; 16 if it is none.
const DIGITS: [u8; 256] = {
    let mut digits = [16; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value as usize];
        digits[digit as usize] = value;
        digits[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    digits
};

/// A hexadecimal number of 1 to 16 digits, with or without `0x` before it.
#[inline]
pub(crate) fn hex(text: &[u8]) -> Option<u64> {
    hex_digits(match text {
        [b'0', b'x' | b'X', digits @ ..] => digits,
        _ => text,
    })
}

/// A hexadecimal number of 1 to 16 digits.
pub(crate) fn hex_digits(text: &[u8]) -> Option<u64> {
    leading_hex(text).filter(|(_, digits)| *digits == text.len()).map(|(value, _)| value)
}

/// The hexadecimal number of 1 to 16 digits that `text` begins with, and how many digits it has.
#[inline]
pub(crate) fn leading_hex(text: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut digits) = (0, 0);
    while let Some(digit) = text.get(digits).map(|byte| DIGITS[usize::from(*byte)])
        && digit < 16
    {
        value = value << 4 | u64::from(digit);
        digits += 1;
    }
    (1..=16).contains(&digits).then_some((value, digits))
}

/// A decimal number of 64 bits.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A hexadecimal number after `0x`, a decimal one otherwise.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if matches!(text, [b'0', b'x' | b'X', ..]) { hex(text) } else { decimal(text) }
}

/// Writes `value` in hexadecimal, with zeros before it up to `width` digits.
pub(crate) fn push_hex(out: &mut Vec<u8>, value: u64, width: u32) {
    let digits = (u64::BITS - value.leading_zeros()).div_ceil(4).max(width).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(value >> (4 * place) & 15) as usize]);
    }
}

/// Writes `value` in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn written_numbers_are_read_back(value in any::<u64>(), shift in 0u32..64, width in 0u32..=16) {
            let value = value >> shift;
            let (mut hexadecimal, mut plain) = (Vec::new(), Vec::new());
            push_hex(&mut hexadecimal, value, width);
            push_decimal(&mut plain, value);
            prop_assert_eq!(&hexadecimal, &format!("{value:0w$x}", w = width as usize).into_bytes());
            prop_assert_eq!(&plain, &value.to_string().into_bytes());
            prop_assert_eq!(hex(&hexadecimal), Some(value));
            prop_assert_eq!(hex(format!("0X{value:X}").as_bytes()), Some(value));
            prop_assert_eq!(number(format!("{value:#x}").as_bytes()), Some(value));
            prop_assert_eq!(number(&plain), Some(value));
        }
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for text in ["", "0x", "x1", "g", "1 ", "-1", "+1", "10000000000000000", "0x0x1"] {
            assert_eq!(hex(text.as_bytes()), None, "{text}");
        }
        for text in ["", "a", "18446744073709551616", "99999999999999999999999", "-1", "1.0"] {
            assert_eq!(decimal(text.as_bytes()), None, "{text}");
        }
    }
}
