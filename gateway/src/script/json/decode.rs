//! Reading JSON: whatever bytes stand in its strings, and numbers as C's strtod reads them.

use mlua::{Lua, Value};

use super::super::given::Failure;
use super::{DEPTH_MAX, Settings};

/// Reads a value that is all of a text.
pub(super) fn decode(lua: &Lua, text: &[u8], settings: &Settings) -> Result<Value, Failure> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut reader = Reader { lua, text, at: 0, depth: 0, settings };
    let first = reader.next();
    let value = reader.value(first)?;
    match reader.next() {
        Found { token: Token::End, .. } => Ok(value),
        other => Err(expected("the end", &other)),
    }
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

/// A token and where it begins, or where it is wrong.
struct Found {
    token: Token,
    at: usize,
}

fn expected(what: &str, found: &Found) -> Failure {
    let name = match found.token {
        Token::ObjectBegin => "T_OBJ_BEGIN",
        Token::ObjectEnd => "T_OBJ_END",
        Token::ArrayBegin => "T_ARR_BEGIN",
        Token::ArrayEnd => "T_ARR_END",
        Token::String(_) => "T_STRING",
        Token::Number(_) => "T_NUMBER",
        Token::Boolean(_) => "T_BOOLEAN",
        Token::Null => "T_NULL",
        Token::Colon => "T_COLON",
        Token::Comma => "T_COMMA",
        Token::End => "T_END",
        Token::Wrong(what) => what,
    };
    Failure::Text(format!("Expected {what} but found {name} at character {}", found.at + 1))
}

struct Reader<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    depth: i64,
    settings: &'a Settings,
}

impl Reader<'_> {
    fn value(&mut self, first: Found) -> Result<Value, Failure> {
        Ok(match first.token {
            Token::String(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(value) => Value::Boolean(value),
            Token::Null => Value::NULL,
            Token::ObjectBegin => self.object()?,
            Token::ArrayBegin => self.array()?,
            _ => return Err(expected("value", &first)),
        })
    }

    fn object(&mut self) -> Result<Value, Failure> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut next = self.next();
        if matches!(next.token, Token::ObjectEnd) {
            self.depth -= 1;
            return Ok(Value::Table(table));
        }
        loop {
            let Token::String(name) = next.token else {
                return Err(expected("object key string", &next));
            };
            let colon = self.next();
            if !matches!(colon.token, Token::Colon) {
                return Err(expected("colon", &colon));
            }
            let first = self.next();
            table.raw_set(self.lua.create_string(name)?, self.value(first)?)?;
            let after = self.next();
            match after.token {
                Token::ObjectEnd => break,
                Token::Comma => next = self.next(),
                _ => return Err(expected("comma or object end", &after)),
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value, Failure> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut next = self.next();
        if matches!(next.token, Token::ArrayEnd) {
            self.depth -= 1;
            return Ok(Value::Table(table));
        }
        for place in 1.. {
            table.raw_set(place, self.value(next)?)?;
            let after = self.next();
            match after.token {
                Token::ArrayEnd => break,
                Token::Comma => next = self.next(),
                _ => return Err(expected("comma or array end", &after)),
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn descend(&mut self) -> Result<(), Failure> {
        self.depth += 1;
        if self.depth > self.settings.decode_depth_max.get().min(DEPTH_MAX) {
            return Err(Failure::Text(format!(
                "Found too many nested data structures ({}) at character {}",
                self.depth, self.at
            )));
        }
        Ok(())
    }

    /// The byte at a place; 0 behind the end, as in C.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Found {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let single = match self.byte(at) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Found { token: Token::End, at },
            b'"' => {
                let token = self.string().unwrap_or_else(Token::Wrong);
                // What is wrong with a string is told where it is.
                let at = if matches!(token, Token::Wrong(_)) { self.at } else { at };
                return Found { token, at };
            }
            _ => return Found { token: self.word(), at },
        };
        self.at += 1;
        Found { token: single, at }
    }

    /// A number, or one of the words.
    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let reads_invalid = self.settings.decode_invalid.get() != 0;
        let is_invalid = is_invalid_number(rest);
        if matches!(rest.first(), Some(b'-' | b'0'..=b'9')) {
            if !reads_invalid && is_invalid {
                return Token::Wrong("invalid number");
            }
            return self.number();
        }
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        if reads_invalid && is_invalid { self.number() } else { Token::Wrong("invalid token") }
    }

    fn number(&mut self) -> Token {
        match strtod(&self.text[self.at..]) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    /// A string; `at` stays at what is wrong with it.
    fn string(&mut self) -> Result<Token, &'static str> {
        let mut string = Vec::new();
        self.at += 1;
        loop {
            match self.byte(self.at) {
                b'"' => break,
                0 => return Err("unexpected end of string"),
                b'\\' => {
                    let escaped = match self.byte(self.at + 1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 0x08,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 0x0c,
                        b'r' => b'\r',
                        b'u' => {
                            let (character, length) =
                                self.unicode().ok_or("invalid unicode escape code")?;
                            let mut bytes = [0; 4];
                            let bytes = character.encode_utf8(&mut bytes);
                            string.extend_from_slice(bytes.as_bytes());
                            self.at += length;
                            continue;
                        }
                        _ => return Err("invalid escape code"),
                    };
                    string.push(escaped);
                    self.at += 2;
                }
                byte => {
                    string.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Ok(Token::String(string))
    }

    /// The character of an escape code, or of two that are a pair, and their length.
    fn unicode(&self) -> Option<(char, usize)> {
        let first = self.hexadecimal(self.at + 2)?;
        if let Some(character) = char::from_u32(first) {
            return Some((character, 6));
        }
        let is_pair = self.byte(self.at + 6) == b'\\' && self.byte(self.at + 7) == b'u';
        let second = self.hexadecimal(self.at + 8).filter(|_| is_pair)?;
        let units = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
        let character = char::decode_utf16(units).next()?.ok()?;
        Some((character, 12))
    }

    fn hexadecimal(&self, at: usize) -> Option<u32> {
        let digit = |place| char::from(self.byte(at + place)).to_digit(16);
        (0..4).try_fold(0, |number, place| Some(number << 4 | digit(place)?))
    }
}

/// Whether a number begins as none in JSON does: with + or 0x or a zero before digits, or
/// because it is a word.
fn is_invalid_number(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let word = unsigned.get(..3).unwrap_or_default();
    match unsigned.first() {
        Some(b'+') => unsigned.len() == text.len(),
        Some(b'0') => matches!(unsigned.get(1), Some(b'x' | b'X' | b'0'..=b'9')),
        _ => word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan"),
    }
}

/// The number at the beginning of a text and its length, as C's strtod finds it.
fn strtod(text: &[u8]) -> Option<(f64, usize)> {
    let sign_bytes = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let rest = &text[sign_bytes..];
    let begins =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    let (number, length) = if begins(b"infinity") {
        (f64::INFINITY, 8)
    } else if begins(b"inf") {
        (f64::INFINITY, 3)
    } else if begins(b"nan") {
        (f64::NAN, 3)
    } else if begins(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        hexadecimal(rest)
    } else {
        decimal(rest)?
    };
    let number = if text.first() == Some(&b'-') { -number } else { number };
    Some((number, sign_bytes + length))
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let digits = |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    let mut count = end;
    if text.get(end) == Some(&b'.') {
        let decimals = digits(end + 1);
        count += decimals;
        end += 1 + decimals;
    }
    if count == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'-' | b'+')));
        let begin = (end + 1 + sign).min(text.len());
        if digits(begin) > 0 {
            end = begin + digits(begin);
        }
    }
    let number = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((number, end))
}

/// A number whose digits begin behind `0x`.
fn hexadecimal(text: &[u8]) -> (f64, usize) {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut number, mut end, mut exponent) = (0.0, 2, 0_i32);
    while let Some(digit) = digit(end) {
        number = number * 16.0 + f64::from(digit);
        end += 1;
    }
    if text.get(end) == Some(&b'.') {
        end += 1;
        while let Some(digit) = digit(end) {
            number = number * 16.0 + f64::from(digit);
            exponent = exponent.saturating_sub(4);
            end += 1;
        }
    }
    if matches!(text.get(end), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'-' | b'+')));
        let digits = text.iter().skip(end + 1 + sign).take_while(|byte| byte.is_ascii_digit());
        let count = digits.count();
        if count > 0 {
            let written = String::from_utf8_lossy(&text[end + 1..end + 1 + sign + count]);
            let by = written.parse::<i32>().unwrap_or(if written.starts_with('-') {
                i32::MIN / 2
            } else {
                i32::MAX / 2
            });
            exponent = exponent.saturating_add(by);
            end += 1 + sign + count;
        }
    }
    (number * 2.0_f64.powi(exponent), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_in_c() {
        for (text, number, length) in [
            ("0", 0.0, 1),
            ("-12.5e-1,", -1.25, 8),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            ("1.", 1.0, 2),
            (".5", 0.5, 2),
            ("007", 7.0, 3),
            ("0x10", 16.0, 4),
            ("0x1.8p3", 12.0, 7),
            ("0xg", 0.0, 1),
            ("+inf", f64::INFINITY, 4),
            ("-Infinity", f64::NEG_INFINITY, 9),
            ("1e400", f64::INFINITY, 5),
            ("123456789012345678901234567890", 1.234_567_890_123_456_8e29, 30),
        ] {
            assert_eq!(strtod(text.as_bytes()), Some((number, length)), "{text}");
        }
        assert!(strtod(b"nan").is_some_and(|(number, _)| number.is_nan()));
        for text in ["", "-", "+", ".", "e5", "x"] {
            assert_eq!(strtod(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn any_bytes_are_json_or_an_error() {
        let lua = Lua::new();
        let settings = Settings::default();
        let seeds: [&[u8]; 4] =
            [b"{\"a\":[1,-2.5e3,\"\\ud834\\udd1e\"]}", b"[[[[", b"\"\\u12", b"{\"a\":nul"];
        for seed in seeds {
            for end in 0..=seed.len() {
                for byte in [0, b'"', b'\\', b'u', b'}', b']', b'-', b'e', 0xff] {
                    let mut text = seed[..end].to_vec();
                    text.push(byte);
                    let _ = decode(&lua, &text, &settings);
                }
            }
        }
    }
}
