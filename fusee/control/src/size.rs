//! A number of bytes as people write it.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// A number of bytes, as `4GiB`, `512mb` or `1073741824`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "SizeText")]
pub struct Size(pub u64);

/// A size in a file: text or a plain number.
#[derive(Deserialize)]
#[serde(untagged)]
enum SizeText {
    Text(String),
    Number(u64),
}

impl TryFrom<SizeText> for Size {
    type Error = String;

    fn try_from(text: SizeText) -> Result<Self, String> {
        match text {
            SizeText::Text(text) => text.parse(),
            SizeText::Number(bytes) => Ok(Self(bytes)),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let shift = match text[end..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err("write a number and a unit, such as 512MiB or 4GiB".to_owned()),
        };
        let number: u64 = text[..end]
            .parse()
            .map_err(|_| "write a number and a unit, such as 512MiB or 4GiB".to_owned())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(|| "that is too large".to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = units.into_iter().find(|(shift, _)| self.0 >= 1 << shift);
        match unit {
            Some((shift, name)) if self.0.is_multiple_of(1 << shift) => {
                write!(f, "{}{name}", self.0 >> shift)
            }
            Some((shift, name)) => {
                write!(f, "{:.1}{name}", self.0 as f64 / (1_u64 << shift) as f64)
            }
            None => write!(f, "{}B", self.0),
        }
    }
}
