use super::*;

fn parse(arguments: &[&str]) -> Result<Config, String> {
    let arguments = ["gateway"].iter().chain(arguments);
    Config::from_arguments(arguments).map_err(|error| error.to_string())
}

#[test]
fn sizes_are_read_and_written() {
    for (text, bytes) in [
        ("0", 0),
        ("17", 17),
        ("4GiB", 4 << 30),
        ("512mb", 512 << 20),
        ("2 KiB", 2048),
        ("1t", 1 << 40),
    ] {
        assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
    }
    for text in ["", "GiB", "4 parsecs", "-1", "1.5GiB", "99999999999TiB"] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
    assert_eq!(Size(4 << 30).to_string(), "4GiB");
    assert_eq!(Size(3 << 29).to_string(), "1.5GiB");
    assert_eq!(Size(5).to_string(), "5B");
}

#[test]
fn flags_win_over_the_file() {
    let file = std::env::temp_dir().join(format!("gateway-config-{}.toml", std::process::id()));
    std::fs::write(
        &file,
        "port = 7000\nmemory = \"2GiB\"\nlog-format = \"json\"\nbind = [\"::1\"]\n",
    )
    .expect("a temporary file");
    let path = file.to_str().expect("a plain path");
    let config = parse(&["--config", path, "--port", "7001"]).expect("valid");
    assert_eq!(config.port, 7001);
    assert_eq!(config.memory_bytes, 2 << 30);
    assert_eq!(config.log_format, LogFormat::Json);
    assert_eq!(config.bind, ["::1".parse::<IpAddr>().expect("an address")]);
    std::fs::write(&file, "prot = 7000\n").expect("a temporary file");
    let error = parse(&["--config", path]).expect_err("an unknown name");
    assert!(error.contains("prot") && error.contains("unknown field"), "{error}");
    std::fs::remove_file(&file).expect("it is there");
    let error = parse(&["--config", path]).expect_err("no file");
    assert!(error.contains("check the path after --config"), "{error}");
}

#[test]
fn wrong_values_say_what_to_do() {
    for (arguments, hint) in [
        (&["--workers", "0"][..], "choose 1 to 256"),
        (&["--replicas", "5", "--memory-nodes", "8"], "choose 1 to 4"),
        (&["--replicas", "2"], "raise --memory-nodes or lower --replicas"),
        (&["--memory", "1MiB"], "give at least 64MiB"),
        (&["--memory", "lots"], "such as 512MiB or 4GiB"),
        (&["--max-clients", "0"], "give at least 1"),
        (&["--memory-nodes", "0"], "choose 1 to 256"),
        (&["--port", "70000"], "70000 is not in 0..=65535"),
        (&["--log-format", "xml"], "text, json"),
        (&["--prot", "1"], "--port"),
    ] {
        let error = parse(arguments).expect_err("a wrong value");
        assert!(error.contains(hint), "{arguments:?}: {error}");
    }
}

#[test]
fn help_names_every_setting_with_its_variable() {
    let help = parse(&["--help"]).expect_err("help is printed");
    for name in ["--bind", "--memory", "FUSEE_MEMORY", "6379", "redis-cli ping", "--config"] {
        assert!(help.contains(name), "{name} in {help}");
    }
}
