//! Redis's glob patterns: `*`, `?`, `[a-c]`, `[^a]` and `\`, over any bytes.

/// Whether `text` matches `pattern` as Redis's stringmatchlen has it.
///
/// Linear in the product of the lengths: of several `*` only the last one needs
/// to be tried again, since an earlier one that matched more would only leave
/// less to the rest.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut pattern_at = 0;
    let mut text_at = 0;
    // Where to go on after the last star, and the text that it swallows next.
    let mut star = None;
    loop {
        if pattern.get(pattern_at) == Some(&b'*') {
            pattern_at += 1;
            star = Some((pattern_at, text_at));
            continue;
        }
        if text_at == text.len() {
            return pattern_at == pattern.len();
        }
        if let Some(next) = matches_one(&pattern[pattern_at..], text[text_at]) {
            pattern_at += next;
            text_at += 1;
            continue;
        }
        let Some((after, swallowed)) = star else { return false };
        pattern_at = after;
        text_at = swallowed + 1;
        star = Some((after, text_at));
    }
}

/// Whether the element at the head of `pattern` matches `byte`; its length if so.
fn matches_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => {
            let (is_match, length) = class(pattern, byte);
            is_match.then_some(length)
        }
        [b'\\', escaped, ..] => (escaped == byte).then_some(2),
        [literal, ..] => (literal == byte).then_some(1),
    }
}

/// A class that is not closed ends with the pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut found = false;
    loop {
        match pattern[at..] {
            [] => break,
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= literal == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[\\]]", "]", true),
            ("[a", "a", true),
            ("[", "[", false),
            ("a\\", "a\\", true),
            ("**a**b**", "xxaxxbxx", true),
            ("*a*b", "ab", true),
            ("*ab*c", "aababc", true),
            ("a*", "ba", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches(b"a\0*", b"a\0b"));
        assert!(!matches(b"a\0b", b"a\0c"));
    }

    #[test]
    fn many_stars_take_bounded_time() {
        let pattern = b"a*".repeat(5_000);
        let text = vec![b'a'; 20_000];
        assert!(matches(&pattern, &text));
        let pattern = [b"*a".repeat(2_000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &text));
    }
}
