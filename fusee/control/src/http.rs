//! A small HTTP/1.1 server for /metrics, /livez and /readyz: one request a
//! connection, everything bounded.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::debug;

/// Requests at a time; more wait to be accepted.
const CONNECTIONS_MAX: usize = 32;
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// From the connection to the end of its reply.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A reply without its head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Code and reason.
    pub status: &'static str,
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Page {
    /// Metrics in Prometheus's text format.
    pub fn metrics(body: String) -> Self {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        Self { status: "200 OK", content_type, body }
    }

    /// Plain text.
    pub fn text(status: &'static str, body: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.to_owned() }
    }
}

/// Answers GET and HEAD of any path by what `page` makes of it.
pub async fn serve(listener: TcpListener, page: impl Fn(&str) -> Option<Page> + 'static) {
    let page = Arc::new(page);
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = permits.clone().acquire_owned().await.expect("the semaphore stays open");
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let page = page.clone();
        tokio::task::spawn_local(async move {
            match tokio::time::timeout(TIME_MAX, answer(stream, &*page)).await {
                Ok(Err(error)) => debug!(%error, "a metrics request broke"),
                Err(_) => debug!("a metrics request took too long"),
                Ok(Ok(())) => {}
            }
            drop(permit);
        });
    }
}

async fn answer(mut stream: TcpStream, page: impl Fn(&str) -> Option<Page>) -> std::io::Result<()> {
    let mut head = Vec::new();
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
        if head.len() > HEAD_BYTES_MAX {
            let page = Page::text("431 Request Header Fields Too Large", "the head is too long\n");
            return send(&mut stream, &page, true).await;
        }
        if head.windows(4).any(|window| window == b"\r\n\r\n") {
            break;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default().split('?').next().unwrap_or_default();
    let page = match method {
        "GET" | "HEAD" => {
            page(path).unwrap_or_else(|| Page::text("404 Not Found", "try /metrics\n"))
        }
        _ => Page::text("405 Method Not Allowed", "only GET and HEAD\n"),
    };
    send(&mut stream, &page, method != "HEAD").await
}

async fn send(stream: &mut TcpStream, page: &Page, with_body: bool) -> std::io::Result<()> {
    let Page { status, content_type, body } = page;
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        reply.push_str(body);
    }
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}
