use super::*;

fn user(rules: &str) -> User {
    let mut user = User::new(b"u");
    let words: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    for rule in merged(&words).unwrap() {
        user.apply(&rule).unwrap_or_else(|why| panic!("{}: {why}", rule.escape_ascii()));
    }
    user
}

fn line(user: &User) -> String {
    let mut out = Vec::new();
    user.describe(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_user_is_told_by_rules_that_make_the_same_user() {
    for rules in [
        "on nopass allkeys allchannels allcommands",
        "on >secret ~a* %R~b %W~c:* &news +@all -@dangerous +keys",
        "off resetchannels -@all +get +client -client|kill (+set ~x) (~y +@read %R~z)",
        "on >one >two +@string -append +@hash -@all +get",
    ] {
        let one = user(rules);
        let text = line(&one);
        let (_, rest) = text.split_once("user u ").unwrap();
        let again = user(rest);
        assert_eq!(one, again, "{text}");
    }
}

#[test]
fn later_rules_take_the_place_of_earlier_ones() {
    assert!(line(&user("+get -get +get")).ends_with("-@all +get"));
    assert!(line(&user("+@all -client|kill -client")).ends_with("+@all -client"));
    assert!(line(&user("+@string -@string")).ends_with("-@all -@string"));
    assert!(line(&user("%R~k %W~k")).contains(" ~k "));
}

#[test]
fn passwords_are_right_as_a_whole_and_may_be_taken_back() {
    let mut both = user("on >one >two");
    assert!(both.accepts(b"one") && both.accepts(b"two"));
    for wrong in [&b""[..], b"on", b"ones", b"One"] {
        assert!(!both.accepts(wrong));
    }
    assert_eq!(both.apply(b"<one"), Ok(()));
    assert!(!both.accepts(b"one"));
    assert!(both.apply(b"<one").is_err());
    let hash = both.password_hashes().next().unwrap();
    assert_eq!(both.apply(format!("!{hash}").as_bytes()), Ok(()));
    assert!(!both.accepts(b"two"));
    assert!(both.apply(format!("#{}", hash.to_uppercase()).as_bytes()).is_err());
}

#[test]
fn one_wrong_rule_changes_nothing() {
    let acl = Acl::new("", None).unwrap();
    let rules = [b"on".to_vec(), b"+nosuch".to_vec()];
    let why = acl.change(b"bob", &rules).unwrap_err();
    assert!(why.contains("'+nosuch': Unknown command or category name in ACL"), "{why}");
    assert!(acl.user(b"bob").is_none());
}

#[test]
fn any_bytes_are_a_rule_or_an_error() {
    let mut user = User::new(b"u");
    for rule in
        ["", "~", "&", "%", "%~", "%rr~x", "+", "-", "+@", "(", "()", ">", "#", "+client|", "+|x"]
    {
        let _ = user.apply(rule.as_bytes());
    }
    for byte in 0..=u8::MAX {
        let _ = user.apply(&[byte, byte]);
        let _ = user.apply(&[b'(', byte, b')']);
    }
}

#[test]
fn a_file_that_is_wrong_names_the_line() {
    assert!(parse(b"# users\n\nuser a on +get\nuser b off\n").is_ok_and(|users| users.len() == 2));
    for (text, begin) in [
        ("usr a on", "1: should start with user"),
        ("user a on\nuser", "2: should start with user"),
        ("user a on\nuser a off", "2: duplicate user 'a'"),
        ("user a +nosuch", "1: Unknown command"),
        ("user a (+get", "1: Unmatched parenthesis"),
    ] {
        let why = parse(text.as_bytes()).unwrap_err();
        assert!(why.starts_with(begin), "{why}");
    }
}
