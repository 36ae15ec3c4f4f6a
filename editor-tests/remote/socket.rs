//! A WebSocket client of the tests' own.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::editor::RESPONSE_TIMEOUT;
use crate::project::Project;

/// A raw socket, which can misbehave.
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    /// Head of the handshake's response.
    pub(super) head: String,
}

impl Socket {
    pub(super) fn try_open(address: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).unwrap();
        let host = if headers.contains("Host:") {
            ""
        } else {
            "Host: localhost\r\n"
        };
        let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        write!(
            stream,
            "GET /acp HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n{key}\r\n{headers}\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        Self {
            stream,
            head: String::from_utf8(head).unwrap(),
        }
    }

    pub(super) fn open(address: &str) -> Self {
        let socket = Self::try_open(address, "");
        assert!(socket.head.starts_with("HTTP/1.1 101"), "{}", socket.head);
        assert!(
            socket.head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            "{}",
            socket.head
        );
        socket
    }

    pub(super) fn frame(&mut self, kind: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            length @ ..126 => frame.push(0x80 | length as u8),
            length @ ..65_536 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        // A mask of zeros changes nothing.
        frame.extend([0; 4]);
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.frame(1, message.to_string().as_bytes()).unwrap();
    }

    /// Returns the next frame: its kind, and its payload.
    pub(super) fn next(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length).unwrap();
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length).unwrap();
                u64::from_be_bytes(length)
            }
            length => u64::from(length),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        (head[0] & 15, payload)
    }

    /// Receives messages until the model's text contains this word.
    pub(super) fn receive_until(&mut self, word: &str) {
        let mut received = Vec::new();
        while !super::words(&received).contains(word) {
            received.push(self.receive());
        }
    }

    pub(super) fn receive(&mut self) -> Value {
        loop {
            let (kind, payload) = self.next();
            match kind {
                1 => return serde_json::from_slice(&payload).unwrap(),
                9 => self.frame(10, &payload).unwrap(),
                8 => panic!("closed: {}", String::from_utf8_lossy(&payload)),
                _ => {}
            }
        }
    }

    pub(super) fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// Returns the answer to a request, and the messages before it.
    pub(super) fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(message);
        }
    }

    pub(super) fn hello(&mut self) {
        self.hello_with(&json!({}));
    }

    pub(super) fn hello_with(&mut self, capabilities: &Value) {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        self.request(0, "initialize", &params);
        let hello = self.answer(0).0;
        assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
    }

    /// Asks for version 2: the version that is spoken.
    pub(super) fn hello_in_second(&mut self) -> Value {
        let info = json!({ "name": "socket", "version": "1" });
        self.request(
            0,
            "initialize",
            &json!({ "protocolVersion": 2, "info": info, "capabilities": {} }),
        );
        self.answer(0).0["result"]["protocolVersion"].take()
    }

    pub(super) fn new_session(&mut self, project: &Project) -> Value {
        self.request(
            1,
            "session/new",
            &json!({ "cwd": project.cwd(), "mcpServers": [] }),
        );
        self.answer(1).0
    }

    pub(super) fn session(&mut self, project: &Project) -> String {
        let opened = self.new_session(project);
        opened["result"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{opened}"))
            .to_owned()
    }

    pub(super) fn prompt(&mut self, id: u64, session: &str, text: &str) {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request(
            id,
            "session/prompt",
            &json!({ "sessionId": session, "prompt": prompt }),
        );
    }

    pub(super) fn load(
        &mut self,
        id: u64,
        session: &str,
        project: &Project,
    ) -> (Value, Vec<Value>) {
        self.request(
            id,
            "session/load",
            &json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] }),
        );
        self.answer(id)
    }
}
