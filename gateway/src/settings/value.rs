//! What a setting may be, and how it is written.

use crate::notify::Classes;

/// The kind of a setting's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Anything.
    Text,
    /// `yes` or `no`.
    YesNo,
    /// A whole number within bounds.
    Number(i64, i64),
    /// Bytes, also as `10mb`; told as a number.
    Bytes,
    /// Bytes, or a share of the memory as `5%`.
    BytesOrShare,
    /// One of some words.
    OneOf(&'static [&'static str]),
    /// Classes of clients with three limits each.
    OutputLimits,
    /// Letters, one for each class of keyspace notifications.
    EventClasses,
    /// Pairs of seconds and changes.
    SavePoints,
}

impl Kind {
    /// The value as it is told, or why it is none.
    pub(super) fn check(self, text: &str, old: &str) -> Result<String, String> {
        let plain = || Ok(text.to_owned());
        match self {
            Self::Text => plain(),
            Self::YesNo => match text.to_ascii_lowercase().as_str() {
                known @ ("yes" | "no") => Ok(known.to_owned()),
                _ => Err("argument must be 'yes' or 'no'".to_owned()),
            },
            Self::Number(least, most) => match text.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number.to_string()),
                Ok(_) => Err(format!("argument must be between {least} and {most} inclusive")),
                Err(_) => Err("argument couldn't be parsed into an integer".to_owned()),
            },
            Self::Bytes => match bytes(text) {
                Some(bytes) => Ok(bytes.to_string()),
                None => Err("argument must be a memory value".to_owned()),
            },
            Self::BytesOrShare => match text.strip_suffix('%').map(str::parse::<u64>) {
                Some(Ok(0..=100)) => plain(),
                Some(Ok(_)) => Err("percentage argument must be less or equal to 100".to_owned()),
                Some(Err(_)) => Err("argument must be a memory or percent value".to_owned()),
                None => match bytes(text) {
                    Some(bytes) => Ok(bytes.to_string()),
                    None => Err("argument must be a memory or percent value".to_owned()),
                },
            },
            Self::OneOf(words) => {
                let known = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                known.map(|word| (*word).to_owned()).ok_or_else(|| {
                    format!("argument must be one of the following: {}", words.join(", "))
                })
            }
            Self::OutputLimits => output_limits(text, old),
            Self::EventClasses => match Classes::parse(text) {
                Some(classes) => Ok(classes.letters()),
                None => Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
            },
            Self::SavePoints => {
                let numbers = text.split_whitespace().map(str::parse::<u32>);
                match numbers.collect::<Result<Vec<_>, _>>() {
                    Ok(numbers) if numbers.len().is_multiple_of(2) => plain(),
                    _ => Err("Invalid save parameters".to_owned()),
                }
            }
        }
    }
}

/// A number of bytes as Redis reads it: `k` is 1000 of them, `kb` 1024.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[end..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(unit)
}

/// Puts the limits of the classes that `text` names into `old`.
fn output_limits(text: &str, old: &str) -> Result<String, String> {
    let mut classes: Vec<String> = old.split(' ').map(str::to_owned).collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    let wrong = |why: &str| Err(why.to_owned());
    if !words.len().is_multiple_of(4) {
        return wrong("Wrong number of arguments in buffer limit configuration.");
    }
    for class in words.chunks(4) {
        let name = if class[0].eq_ignore_ascii_case("replica") { "slave" } else { class[0] };
        let Some(at) = classes.iter().position(|known| known.eq_ignore_ascii_case(name)) else {
            return wrong("Invalid client class specified in buffer limit configuration.");
        };
        let limits = (bytes(class[1]), bytes(class[2]), class[3].parse::<u32>());
        let (Some(hard), Some(soft), Ok(seconds)) = limits else {
            return wrong(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            );
        };
        for (offset, number) in [hard, soft, seconds.into()].into_iter().enumerate() {
            classes[at + 1 + offset] = number.to_string();
        }
    }
    Ok(classes.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_in_one_way() {
        for (kind, text, told) in [
            (Kind::YesNo, "YES", Some("yes")),
            (Kind::YesNo, "maybe", None),
            (Kind::Number(0, 10), "07", Some("7")),
            (Kind::Number(0, 10), "11", None),
            (Kind::Bytes, "10mb", Some("10485760")),
            (Kind::Bytes, "1k", Some("1000")),
            (Kind::Bytes, "99999999999gb", None),
            (Kind::Bytes, "", None),
            (Kind::BytesOrShare, "200%", None),
            (Kind::BytesOrShare, "5%", Some("5%")),
            (Kind::OneOf(&["a", "b"]), "B", Some("b")),
            (Kind::OneOf(&["a", "b"]), "c", None),
            (Kind::SavePoints, "3000 5", Some("3000 5")),
            (Kind::SavePoints, "3000", None),
        ] {
            assert_eq!(kind.check(text, "").ok().as_deref(), told, "{kind:?} {text}");
        }
    }
}
