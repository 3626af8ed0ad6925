//! Reading a server's metrics as Prometheus does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The metrics page.
pub fn fetch(address: SocketAddr) -> io::Result<String> {
    let answer = ask(address, "/metrics")?;
    match answer.split_once("\r\n\r\n") {
        Some((head, page)) if head.starts_with("HTTP/1.1 200") => Ok(page.to_owned()),
        _ => Err(io::Error::other(format!("not a metrics page: {answer:.200}"))),
    }
}

/// The status code by which a path is answered.
pub fn status(address: SocketAddr, path: &str) -> io::Result<u16> {
    let answer = ask(address, path)?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    code.ok_or_else(|| io::Error::other(format!("no status: {answer:.200}")))
}

fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The sum of all samples of a metric whose labels contain `label`.
pub fn sum(page: &str, name: &str, label: &str) -> Option<f64> {
    let values: Vec<f64> = page
        .lines()
        .filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let is_whole_name = labels.is_empty() || labels.starts_with('{');
            (is_whole_name && labels.contains(label)).then(|| value.parse().ok())?
        })
        .collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE a gauge\na 1\na_total{kind=\"x\"} 2\na_total{kind=\"y\"} 3.5\n";

    #[test]
    fn samples_of_one_name_add_up() {
        assert_eq!(sum(PAGE, "a", ""), Some(1.0));
        assert_eq!(sum(PAGE, "a_total", ""), Some(5.5));
        assert_eq!(sum(PAGE, "a_total", "kind=\"y\""), Some(3.5));
    }

    #[test]
    fn a_metric_that_is_not_there_is_none_and_not_zero() {
        assert_eq!(sum(PAGE, "b", ""), None);
        assert_eq!(sum(PAGE, "a_total", "kind=\"z\""), None);
    }
}
