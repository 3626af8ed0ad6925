//! The 80-bit floats in which Redis counts: INCRBYFLOAT adds x87 long doubles
//! and prints 17 decimals, and what clients stored must come out the same here.

use std::cmp::Ordering;

/// The longest number that Redis reads.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// 2 to this power is beyond the largest long double.
const EXPONENT_END: i32 = 16_384;
/// Decimal exponents beyond which a number is infinite, or nothing.
const DECIMAL_EXPONENT_MAX: i64 = 4_940;
/// Decimals that are printed.
const DECIMALS: u32 = 17;

/// `mantissa * 2^exponent`; a mantissa that is not 0 has its highest bit set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
    infinite: bool,
}

impl LongDouble {
    pub(crate) const ZERO: Self =
        Self { negative: false, mantissa: 0, exponent: 0, infinite: false };

    pub(crate) fn is_infinite(self) -> bool {
        self.infinite
    }

    /// A number as strtold reads it, and nothing after it. `None` also when it
    /// is out of range or not a number.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if ["inf", "infinity"].iter().any(|name| text.eq_ignore_ascii_case(name.as_bytes())) {
            return Some(Self { negative, infinite: true, ..Self::ZERO });
        }
        let value = match text {
            [b'0', b'x' | b'X', rest @ ..] => Self::parse_digits(rest, 16)?,
            _ => Self::parse_digits(text, 10)?,
        };
        (!value.infinite).then_some(Self { negative, ..value })
    }

    fn parse_digits(text: &[u8], radix: u32) -> Option<Self> {
        let marks: &[u8] = if radix == 16 { b"pP" } else { b"eE" };
        let end = text.iter().position(|byte| marks.contains(byte)).unwrap_or(text.len());
        let mut exponent: i64 = match text.get(end + 1..) {
            None => 0,
            Some([b'+', digits @ ..]) if digits.first().is_some_and(u8::is_ascii_digit) => {
                std::str::from_utf8(digits).ok()?.parse().ok()?
            }
            Some(digits) => std::str::from_utf8(digits).ok()?.parse().ok()?,
        };
        let mut number = Big::default();
        let mut digits = 0;
        let mut point = false;
        for byte in &text[..end] {
            if *byte == b'.' && !point {
                point = true;
                continue;
            }
            number.multiply_add(radix, char::from(*byte).to_digit(radix)?);
            digits += 1;
            if point {
                exponent = exponent.checked_sub(if radix == 16 { 4 } else { 1 })?;
            }
        }
        if digits == 0 {
            return None;
        }
        if number.is_zero() {
            return Some(Self::ZERO);
        }
        if radix == 16 {
            let exponent = i32::try_from(exponent).ok()?;
            return Some(Self::round(&number, exponent, false)).filter(|value| value.mantissa != 0);
        }
        let magnitude = exponent.saturating_add(i64::from(number.bits()) * 302 / 1000);
        if !(-DECIMAL_EXPONENT_MAX - 30..=DECIMAL_EXPONENT_MAX).contains(&magnitude) {
            return None;
        }
        if exponent >= 0 {
            for _ in 0..exponent {
                number.multiply_add(10, 0);
            }
            return Some(Self::round(&number, 0, false));
        }
        Some(Self::divide(number, (-exponent) as u32))
    }

    /// `number / 10^power`, rounded once.
    fn divide(mut number: Big, power: u32) -> Self {
        // 5^power, as the factor 2^power is only an exponent.
        let mut divisor = Big::from(1);
        for _ in 0..power {
            divisor.multiply_add(5, 0);
        }
        // A quotient of 66 or 67 bits: 64 and those that decide the rounding.
        let shift = (divisor.bits() + 66).saturating_sub(number.bits());
        number.shift_left(shift);
        let quotient_bits = number.bits() - divisor.bits() + 1;
        divisor.shift_left(quotient_bits - 1);
        let mut quotient = 0_u128;
        let mut sticky = false;
        for bit in 0..quotient_bits {
            let fits = number.compare(&divisor) != Ordering::Less;
            if fits {
                number.subtract(&divisor);
            }
            if quotient >> 120 == 0 {
                quotient = quotient << 1 | u128::from(fits);
            } else {
                // Numbers of hundreds of digits: the rest only rounds.
                sticky |= fits;
                if bit + 1 == quotient_bits {
                    break;
                }
                let dropped = (quotient_bits - bit) as i32;
                sticky |= !number.is_zero();
                return Self::round_u128(quotient, dropped - shift as i32 - power as i32, sticky);
            }
            divisor.shift_right_one();
        }
        sticky |= !number.is_zero();
        Self::round_u128(quotient, -(shift as i32) - power as i32, sticky)
    }

    fn round(number: &Big, exponent: i32, sticky: bool) -> Self {
        let (top, dropped, more) = number.top_u128();
        Self::round_u128(top, exponent.saturating_add(dropped as i32), sticky || more)
    }

    /// Rounds to the nearest long double, to even between two.
    fn round_u128(value: u128, exponent: i32, sticky: bool) -> Self {
        if value == 0 {
            return Self::ZERO;
        }
        let excess = 64 - value.leading_zeros() as i32;
        let (mut mantissa, mut exponent) = if excess <= 0 {
            ((value << -excess) as u64, exponent + excess)
        } else {
            let kept = (value >> excess) as u64;
            let rest = value & ((1 << excess) - 1);
            let half = 1_u128 << (excess - 1);
            let up = match rest.cmp(&half) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => sticky || kept & 1 == 1,
            };
            match kept.checked_add(u64::from(up)) {
                Some(kept) => (kept, exponent.saturating_add(excess)),
                None => (1 << 63, exponent.saturating_add(excess + 1)),
            }
        };
        let infinite = exponent > EXPONENT_END - 64;
        if exponent < -EXPONENT_END - 64 {
            (mantissa, exponent) = (0, 0);
        }
        Self { negative: false, mantissa, exponent, infinite }
    }

    /// The sum, rounded once; infinite beyond the range.
    pub(crate) fn add(self, other: Self) -> Self {
        if self.infinite || other.infinite {
            let both = self.infinite && other.infinite && self.negative != other.negative;
            // Not a number is as unprintable as the infinite.
            return if self.infinite || both { self } else { other };
        }
        let key = |value: Self| (value.mantissa != 0, value.exponent, value.mantissa);
        let (large, small) = if key(self) >= key(other) { (self, other) } else { (other, self) };
        if small.mantissa == 0 {
            return large;
        }
        let distance = (large.exponent - small.exponent) as u32;
        let high = u128::from(large.mantissa) << 62;
        let shifted = u128::from(small.mantissa) << 62;
        let (mut low, lost) = if distance > 126 {
            (0, true)
        } else {
            let low = shifted >> distance;
            (low, low << distance != shifted)
        };
        // What was lost stands for itself in the lowest of 62 guard bits.
        low |= u128::from(lost);
        let sum = if large.negative == small.negative { high + low } else { high - low };
        Self {
            negative: large.negative && sum != 0,
            ..Self::round_u128(sum, large.exponent - 62, false)
        }
    }

    /// As printf's `%.17Lf` without trailing zeros. `None` when infinite.
    pub(crate) fn to_decimal(self) -> Option<String> {
        if self.infinite {
            return None;
        }
        let mut text = if self.exponent >= 0 {
            let mut whole = Big::from(self.mantissa);
            whole.shift_left(self.exponent as u32);
            whole.to_decimal()
        } else {
            let scale = 10_u128.pow(DECIMALS);
            let scaled = shift_right_rounding(u128::from(self.mantissa) * scale, -self.exponent);
            let text = format!("{}.{:017}", scaled / scale, scaled % scale);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        if self.negative && text != "0" {
            text.insert(0, '-');
        }
        Some(text)
    }
}

fn shift_right_rounding(value: u128, by: i32) -> u128 {
    if by >= 128 {
        return 0;
    }
    let kept = value >> by;
    let rest = value & ((1 << by) - 1);
    let half = 1 << (by - 1);
    kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
}

/// A natural number of any size, lowest word first, no zeros on top.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Big(Vec<u32>);

impl From<u64> for Big {
    fn from(value: u64) -> Self {
        let mut big = Self(vec![value as u32, (value >> 32) as u32]);
        big.trim();
        big
    }
}

impl Big {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u32 {
        self.0.last().map_or(0, |top| self.0.len() as u32 * 32 - top.leading_zeros())
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for word in &mut self.0 {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, by: u32) {
        let mut carry = 0;
        if !by.is_multiple_of(32) {
            for word in &mut self.0 {
                let shifted = u64::from(*word) << (by % 32);
                *word = shifted as u32 | carry;
                carry = (shifted >> 32) as u32;
            }
        }
        self.0.push(carry);
        self.0.splice(..0, std::iter::repeat_n(0, by as usize / 32));
        self.trim();
    }

    fn shift_right_one(&mut self) {
        let mut carry = 0;
        for word in self.0.iter_mut().rev() {
            let next = *word << 31;
            *word = *word >> 1 | carry;
            carry = next;
        }
        self.trim();
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Takes away what is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (index, word) in self.0.iter_mut().enumerate() {
            let less = other.0.get(index).copied().unwrap_or(0);
            let (value, first) = word.overflowing_sub(less);
            let (value, second) = value.overflowing_sub(u32::from(borrow));
            *word = value;
            borrow = first || second;
        }
        self.trim();
    }

    /// The highest 128 bits, how many are below, and whether any of them is set.
    fn top_u128(&self) -> (u128, u32, bool) {
        let dropped = self.0.len().saturating_sub(4);
        let top = self.0[dropped..]
            .iter()
            .rev()
            .fold(0_u128, |value, word| value << 32 | u128::from(*word));
        (top, dropped as u32 * 32, self.0[..dropped].iter().any(|word| *word != 0))
    }

    fn to_decimal(&self) -> String {
        let mut rest = self.clone();
        let mut groups = Vec::new();
        while !rest.is_zero() {
            let mut remainder = 0_u64;
            for word in rest.0.iter_mut().rev() {
                remainder = remainder << 32 | u64::from(*word);
                *word = (remainder / 1_000_000_000) as u32;
                remainder %= 1_000_000_000;
            }
            rest.trim();
            groups.push(remainder);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        for group in groups.iter().rev() {
            text.push_str(&format!("{group:09}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        LongDouble::parse(a.as_bytes())?.add(LongDouble::parse(b.as_bytes())?).to_decimal()
    }

    #[test]
    fn sums_are_what_redis_prints() {
        // Each line was read from redis-server 7.0.15.
        for (a, b, expected) in [
            ("0", "0.1", "0.1"),
            ("0.1", "0.2", "0.3"),
            ("3", "1.1", "4.1"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1.1", "-0.1"),
            ("1.5", "-1.5", "0"),
            ("-0", "0", "0"),
            ("17179869184", "1.5", "17179869185.5"),
            ("1e20", "1", "100000000000000000000"),
            ("1e-17", "0", "0.00000000000000001"),
            ("4e-18", "0", "0"),
            ("0x1p3", "0", "8"),
            (".5", "5.", "5.5"),
            ("3.0000000000000000", "1", "4"),
            ("1e30", "1", "1000000000000000000024696061952"),
            ("0.1", "1e17", "100000000000000000.1015625"),
            ("123456.789", "0", "123456.78900000000000148"),
            ("5e-18", "0", "0"),
            ("0x1.8p1", "0.25", "3.25"),
            ("1e-4950", "0", "0"),
            ("123456789012345678901234567890.5", "0", "123456789012345678899921813504"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", " 1", "1 ", "abc", "1e", "e1", ".", "nan", "1e5000", "1e-6000", "0x", "1.2.3",
            "--1",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1e4932", "1e4932"), None);
    }

    #[test]
    fn doubles_survive_parsing_and_printing() {
        for text in ["0.00000000000012345", "99999999999999999", "2.5"] {
            assert_eq!(sum(text, "0").as_deref(), Some(text));
        }
        let long = format!("{}.5", "7".repeat(900));
        let whole = sum(&long, "0").expect("in range");
        assert_eq!(whole.len(), 900);
        assert!(whole.starts_with("7777777777777777777"));
    }
}
