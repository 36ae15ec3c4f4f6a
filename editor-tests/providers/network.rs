//! Connections to providers: certificates, proxies, reuse.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{model_saying, one_provider};
use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::loopback::{Server, read_request};
use crate::program::{stderr_of, stdout_of};
use crate::project::Project;

/// Returns a TLS server whose answers, their kind and their body, are made of a request's body.
fn guarded_by(
    certificate: &rcgen::Certificate,
    key: &rcgen::KeyPair,
    answer: impl Fn(&str) -> (u16, &'static str, String) + Send + 'static,
) -> (SocketAddr, Arc<AtomicBool>) {
    let chain = vec![certificate.der().clone()];
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let over = stopped.clone();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            if over.load(Ordering::Relaxed) {
                return;
            }
            socket.set_read_timeout(Some(RESPONSE_TIMEOUT)).ok();
            let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1)
            {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let mut asked = vec![0; length.unwrap_or(0)];
            if stream.read_exact(&mut asked).is_err() {
                continue;
            }
            let (status, kind, body) = answer(&String::from_utf8_lossy(&asked));
            let head = format!(
                "HTTP/1.1 {status} Whatever\r\ncontent-type: {kind}\r\nconnection: close\r\n"
            );
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).ok();
            stream.flush().ok();
        }
    });
    (address, stopped)
}

/// Starts a TLS server with a certificate of the test's own authority; returns its port, the means
/// to stop it, and the authority.
pub fn serve_with_own_authority(
    answer: impl Fn(&str) -> (u16, &'static str, String) + Send + 'static,
) -> (SocketAddr, Arc<AtomicBool>, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".into()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let (address, stopped) = guarded_by(&certificate, &key, answer);
    (address, stopped, authority_pem)
}

pub(super) fn only_the_users_own_authority_is_trusted() {
    let (address, stopped, authority_pem) = serve_with_own_authority(|_| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "Trusted." }, "finish_reason": "stop" }] });
        (
            200,
            "text/event-stream",
            format!("data: {chunk}\n\ndata: [DONE]\n\n"),
        )
    });
    let mut project = Project::new();
    project.write("~/authority.pem", &authority_pem);
    let pem = project.path("~/authority.pem").display().to_string();
    one_provider(
        &project,
        &format!("https://localhost:{}/v1", address.port()),
        "a-key",
    );
    // Its certificate is not trusted: reported at once, not retried.
    let stderr = stderr_of(&project, &["run", "Hello"]);
    assert!(
        stderr.contains("the certificate of Own could not be verified")
            && stderr.contains("SSL_CERT_FILE or NODE_EXTRA_CA_CERTS"),
        "{stderr}"
    );
    for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        project.set(variable, Some(&pem));
        assert_eq!(
            stdout_of(&project, &["run", "Hello"]),
            "Trusted.\n",
            "{variable}"
        );
        project.set(variable, None);
    }
    // For another name it is not good.
    project.set("SSL_CERT_FILE", Some(&pem));
    one_provider(
        &project,
        &format!("https://127.0.0.1:{}/v1", address.port()),
        "a-key",
    );
    assert!(
        stderr_of(&project, &["run", "Hello"])
            .contains("the certificate of Own could not be verified")
    );
    stopped.store(true, Ordering::Relaxed);
    TcpStream::connect(address).ok();
}

pub(super) fn proxies_are_used_and_their_refusals_reported() {
    let proxy = Server::start(|received| match received.head[0].split(' ').next() {
        Some("CONNECT") => (403, String::new(), "Not through here.".into()),
        _ => {
            let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "Through the proxy." }, "finish_reason": "stop" }] });
            (
                200,
                "content-type: text/event-stream\r\n".into(),
                format!("data: {chunk}\n\ndata: [DONE]\n\n"),
            )
        }
    });
    let mut project = Project::new();
    project.set("http_proxy", Some(&proxy.base()));
    project.set("https_proxy", Some(&proxy.base()));
    one_provider(&project, "http://gateway.example/v1", "a-key");
    assert_eq!(
        stdout_of(&project, &["run", "Hello"]),
        "Through the proxy.\n"
    );
    assert_eq!(
        proxy.received()[0].path(),
        "http://gateway.example/v1/chat/completions"
    );
    // Who is excepted is asked directly.
    let direct = model_saying("Directly.");
    one_provider(&project, &format!("{}/v1", direct.base()), "secret-key-1");
    assert_eq!(stdout_of(&project, &["run", "Hello"]), "Directly.\n");
    // A refusal of the proxy is reported as such, at the first attempt.
    one_provider(&project, "https://gateway.example/v1", "a-key");
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Hello");
    let received = loop {
        let update = client.receive();
        if update["params"]["update"]["sessionUpdate"] == "agent_thought_chunk" {
            break update.to_string();
        }
    };
    assert!(
        received.contains("The proxy refused the connection to Own (gateway.example)"),
        "{received}"
    );
    client.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(client.answer(2).0["result"]["stopReason"], "cancelled");
    client.leave();
}

/// A model on a connection that stays open: three calls, then words. Gives back how many
/// connections were made and how many requests came over them.
pub(super) fn one_connection_serves_all_steps() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counted = Arc::new((Mutex::new((0, 0)), AtomicBool::new(false)));
    let shared = counted.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if shared.1.load(Ordering::Relaxed) {
                return;
            }
            shared.0.lock().unwrap().0 += 1;
            let shared = shared.clone();
            std::thread::spawn(move || {
                while let Some(request) = read_request(&stream) {
                    shared.0.lock().unwrap().1 += 1;
                    let results = request.body.matches("\"role\":\"tool\"").count();
                    let delta = if results < 3 {
                        let function = json!({ "name": "glob", "arguments": json!({ "pattern": format!("*{results}") }).to_string() });
                        json!({ "tool_calls": [{ "index": 0, "id": format!("c{results}"), "function": function }] })
                    } else {
                        json!({ "content": "Three times the same." })
                    };
                    let why = if results < 3 { "tool_calls" } else { "stop" };
                    let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": why }] });
                    let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if (&stream).write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let project = Project::new();
    one_provider(&project, &format!("http://{address}/v1"), "a-key");
    let mut settings: Value = serde_json::from_str(
        &std::fs::read_to_string(project.path("~/.config/opencode/opencode.json")).unwrap(),
    )
    .unwrap();
    settings["permission"] = json!({ "*": "allow" });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    assert_eq!(
        stdout_of(&project, &["run", "Look three times"]),
        "Three times the same.\n"
    );
    assert_eq!(*counted.0.lock().unwrap(), (1, 4));
    counted.1.store(true, Ordering::Relaxed);
    TcpStream::connect(address).ok();
}
