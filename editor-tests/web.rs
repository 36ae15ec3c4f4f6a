//! A mock web server on a loopback port, which serves the contents of a `web` block.
//!
//! ```text
//! === /page text/html           what follows is the page, with status 200
//! === /zip application/zip base64   … in base64
//! === /old -> ${WEB}/page       a redirect
//! === /gone 404 text/plain      another status
//! === /slow hang                nothing, ever
//! === /mcp mcp events           a mock MCP server (see `mcp.rs`)
//! ```
//!
//! `${WEB}` is its address; `${PORT}` alone its port, for addresses with another host.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use base64::Engine;

use crate::mcp;

/// A mock web server, which lives as long as the process.
pub struct Web {
    port: u16,
}

#[derive(Clone)]
struct Page {
    head: String,
    body: Vec<u8>,
    hangs: bool,
    /// An MCP server, and how it is.
    mcp: Option<(Arc<mcp::Server>, String)>,
}

impl Web {
    /// Reads a `web` block, and serves it.
    pub fn start(block: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let web = Self {
            port: listener.local_addr().unwrap().port(),
        };
        let pages = pages(&web.fill(block));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let pages = pages.clone();
                thread::spawn(move || answer(stream, &pages));
            }
        });
        web
    }

    /// Returns a text with its address in it.
    pub fn fill(&self, text: &str) -> String {
        text.replace("${WEB}", &self.base())
            .replace("${PORT}", &self.port.to_string())
    }

    /// Its address.
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns its port in an address with another host.
    pub fn behind(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }
}

fn pages(block: &str) -> BTreeMap<String, Page> {
    let mut found = BTreeMap::new();
    for piece in block.split("=== ").skip(1) {
        let (line, body) = piece.split_once('\n').unwrap_or((piece, ""));
        let (path, rest) = line.split_once(' ').unwrap_or((line, "text/plain"));
        let mut words = rest.split(' ').peekable();
        let status = words
            .next_if(|word| word.parse::<u16>().is_ok())
            .unwrap_or("200")
            .to_owned();
        let kind = words.next().unwrap_or("text/plain");
        let encoded = words.next();
        let body = match encoded {
            Some("base64") => base64::engine::general_purpose::STANDARD
                .decode(body.trim())
                .unwrap(),
            _ => body.as_bytes().to_vec(),
        };
        let head = match (kind, encoded) {
            ("->", Some(to)) => format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\n"),
            _ => format!("HTTP/1.1 {status} Whatever\r\ncontent-type: {kind}\r\n"),
        };
        let body = if kind == "->" { Vec::new() } else { body };
        let mcp = (kind == "mcp").then(|| (Arc::default(), rest.trim().to_owned()));
        found.insert(
            path.to_owned(),
            Page {
                head,
                body,
                hangs: kind == "hang",
                mcp,
            },
        );
    }
    found
}

fn answer(mut stream: TcpStream, pages: &BTreeMap<String, Page>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut request = String::new();
    let mut headers = String::new();
    reader.read_line(&mut request).ok()?;
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        if reader.read_line(&mut headers).ok()? == 0 {
            return None;
        }
    }
    let method = request.split(' ').next()?;
    let path = request.split(' ').nth(1)?;
    let nothing = Page {
        head: "HTTP/1.1 404 Not Found\r\n".into(),
        body: Vec::new(),
        hangs: false,
        mcp: None,
    };
    let page = pages
        .get(path.split('?').next()?)
        .cloned()
        .unwrap_or(nothing);
    if page.hangs {
        // Until the other side is gone.
        reader.read_line(&mut request).ok();
        return None;
    }
    if let Some((server, how)) = &page.mcp {
        let length = headers.lines().find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length:")?
                .trim()
                .parse()
                .ok()
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        let asked = mcp::Asked {
            method,
            target: path,
            headers: &headers,
            body: &body,
        };
        return mcp::at_an_address(server, how, &asked, stream);
    }
    let head = format!(
        "{}content-length: {}\r\nconnection: close\r\n\r\n",
        page.head,
        page.body.len()
    );
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&page.body))
        .ok()
}
