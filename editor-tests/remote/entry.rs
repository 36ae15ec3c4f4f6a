//! Admission: web pages, tokens, certificates, directories.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde_json::json;

use super::socket::Socket;
use super::{Served, project};
use crate::client::Client;
use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::project::Project;

pub(super) fn web_pages_are_refused() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    for (headers, why) in [
        ("Origin: https://evil.example\r\n", "serve.origins"),
        ("Host: evil.example\r\n", "for this machine only"),
        (
            "Host: evil.example:80\r\nOrigin: http://evil.example\r\n",
            "for this machine only",
        ),
    ] {
        let mut socket = Socket::try_open(&served.address, headers);
        assert!(
            socket.head.starts_with("HTTP/1.1 403"),
            "{headers}: {}",
            socket.head
        );
        let mut body = vec![0; 300];
        let length = socket.stream.read(&mut body).unwrap();
        let body = String::from_utf8_lossy(&body[..length]).into_owned();
        assert!(body.contains(why), "{headers}: {body}");
    }
    let posted = served.http(
        "POST /acp HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json",
        "{}",
    );
    assert!(posted.starts_with("HTTP/1.1 403"), "{posted}");
    for path in ["/healthz", "/readyz", "/metrics", "/"] {
        let rebound = served.http(&format!("GET {path} HTTP/1.1\r\nHost: evil.example"), "");
        assert!(
            rebound.starts_with("HTTP/1.1 403") && rebound.contains("for this machine only"),
            "{path}: {rebound}"
        );
    }
    assert!(served.http("GET /healthz HTTP/1.1", "").ends_with("ok\n"));
    assert!(served.http("GET /readyz HTTP/1.1", "").ends_with("ready\n"));
    assert!(
        served
            .http("GET / HTTP/1.1", "")
            .starts_with("HTTP/1.1 404")
    );
    assert!(
        served
            .http("PUT /acp HTTP/1.1", "")
            .starts_with("HTTP/1.1 405")
    );
}

/// Makes a token in a file.
pub(super) fn new_token(project: &Project, file: &str, name: &str, user: &[&str]) -> String {
    let arguments = [&["--token-file", file, "--new-token", name], user].concat();
    let made = Served::command(project, &arguments)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

pub(super) fn tokens_separate_users() {
    let (project, _model) = project();
    let file = project.path("~/tokens").display().to_string();
    let ada = new_token(&project, &file, "laptop", &["--user", "ada"]);
    let bob = new_token(&project, &file, "phone", &["--user", "bob"]);
    let served = Served::start(&project, &["--token-file", &file]);
    assert!(
        Socket::try_open(&served.address, "")
            .head
            .starts_with("HTTP/1.1 401")
    );
    let with = |token: &str| {
        Socket::try_open(
            &served.address,
            &format!("Authorization: Bearer {token}\r\n"),
        )
    };
    assert!(with("wrong").head.starts_with("HTTP/1.1 401"));
    let mut hers = with(&ada);
    hers.hello();
    let session = hers.session(&project);
    hers.request(
        2,
        "session/set_title",
        &json!({ "sessionId": session, "title": "Hers" }),
    );
    assert!(hers.answer(2).0.get("result").is_some());
    let listed = |socket: &mut Socket| {
        socket.request(3, "session/list", &json!({}));
        socket.answer(3).0["result"]["sessions"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(listed(&mut hers), 1);
    // Another user neither sees it nor can open it.
    let mut his = with(&bob);
    his.hello();
    assert_eq!(listed(&mut his), 0);
    assert_eq!(his.load(4, &session, &project).0["error"]["code"], -32002);
    // A new token takes the place of an old one without a restart.
    std::fs::write(&file, "").unwrap();
    let new = new_token(&project, &file, "laptop", &["--user", "ada"]);
    assert!(with(&ada).head.starts_with("HTTP/1.1 401"));
    let mut again = with(&new);
    again.hello();
    assert_eq!(listed(&mut again), 1);
    // The bridge reads it from a file.
    let kept = project.path("~/token");
    std::fs::write(&kept, format!("{new}\n")).unwrap();
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .args([
            "connect",
            &format!("ws://{}/acp", served.address),
            "--token-file",
        ])
        .arg(&kept);
    let project = Arc::new(project);
    Client::of(project.clone(), Editor::run(command)).leave();
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .args(["connect", &format!("ws://{}/acp", served.address)])
        .stdin(Stdio::null());
    let refused = command.output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && why.contains("401") && why.contains("a token is needed"),
        "{why}"
    );
}

pub(super) fn strangers_are_refused() {
    let (project, _model) = project();
    let root = project.cwd().display().to_string();
    for (arguments, why) in [
        (vec!["--listen", "0.0.0.0:0"], "certificate"),
        (
            vec!["--listen", "0.0.0.0:0", "--root", &root],
            "certificate",
        ),
        (vec!["--listen", "nowhere"], "not an address with a port"),
        (
            vec!["--listen", "127.0.0.1:0", "--root", "/no/such"],
            "not a directory",
        ),
        (
            vec!["--listen", "127.0.0.1:0", "--token-file", "/no/such"],
            "cannot be read",
        ),
    ] {
        let output = Served::command(&project, &arguments)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && stderr.contains(why),
            "{arguments:?}: {stderr}"
        );
    }
}

pub(super) fn directories_outside_the_roots_are_refused() {
    let (project, _model) = project();
    let outside = tempfile::tempdir().unwrap();
    let link = project.path("link");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let inside = project.path("below");
    std::fs::create_dir(&inside).unwrap();
    let root = project.cwd().display().to_string();
    let served = Served::start(&project, &["--root", &root]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    for (directory, allowed) in [
        (project.cwd(), true),
        (inside, true),
        (outside.path().to_owned(), false),
        (link, false),
        (PathBuf::from("/"), false),
    ] {
        socket.request(
            5,
            "session/new",
            &json!({ "cwd": directory, "mcpServers": [] }),
        );
        let answer = socket.answer(5).0;
        assert_eq!(
            answer.get("result").is_some(),
            allowed,
            "{}: {answer}",
            directory.display()
        );
        if !allowed {
            assert!(
                answer["error"]["data"]
                    .to_string()
                    .contains("may not be opened"),
                "{answer}"
            );
        }
    }
    let extra = json!({ "cwd": project.cwd(), "mcpServers": [], "additionalDirectories": [outside.path()] });
    socket.request(6, "session/new", &extra);
    assert!(
        socket.answer(6).0["error"]
            .to_string()
            .contains("may not be opened")
    );
    // The checked path is the opened path. The system reads `..` after a link differently.
    let disguised = disguised(&project, outside.path());
    let session = socket.session(&project);
    for method in [
        "session/new",
        "session/load",
        "session/resume",
        "session/fork",
    ] {
        for (cwd, extra) in [
            (disguised.clone(), vec![]),
            (project.cwd(), vec![&disguised]),
        ] {
            let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [], "additionalDirectories": extra });
            socket.request(7, method, &params);
            let answer = socket.answer(7).0;
            assert!(
                answer["error"]["data"]
                    .to_string()
                    .contains("may not be opened"),
                "{method}: {answer}"
            );
        }
    }
    let beside = project.path("link/../below");
    socket.request(
        8,
        "session/new",
        &json!({ "cwd": beside, "mcpServers": [] }),
    );
    assert!(
        socket.answer(8).0.get("result").is_some(),
        "{}",
        beside.display()
    );
}

/// Returns a path that is in the project if `..` means the parent of a link's target, and outside
/// if `..` removes the component before it.
fn disguised(project: &Project, outside: &Path) -> PathBuf {
    let up = project.cwd().components().count();
    let deep = (0..up).map(|n| n.to_string()).collect::<PathBuf>();
    std::fs::create_dir_all(project.path("maze").join(&deep)).unwrap();
    std::os::unix::fs::symlink(project.path("maze").join(&deep), project.path("in")).unwrap();
    let rest = outside.strip_prefix("/").unwrap();
    std::fs::create_dir_all(project.path("maze").join(rest)).unwrap();
    let path = project.path("in").join("../".repeat(up)).join(rest);
    let real = path.canonicalize().unwrap();
    assert!(
        real.starts_with(project.cwd()),
        "{} is {}",
        path.display(),
        real.display()
    );
    path
}

/// Returns an authority of the test's own, and writes certificates that it has signed: for this
/// machine and for a client.
pub fn authority(project: &Project) -> (rcgen::Certificate, rcgen::KeyPair) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    project.write(
        "~/authority.pem",
        &authority.self_signed(&authority_key).unwrap().pem(),
    );
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        (
            rcgen::CertificateParams::new(vec![name.into()])
                .unwrap()
                .signed_by(&key, &issuer)
                .unwrap(),
            key,
        )
    };
    let (certificate, key) = signed("localhost");
    project.write("~/certificate.pem", &certificate.pem());
    project.write("~/key.pem", &key.serialize_pem());
    signed("ada")
}

/// Returns the server's answer to a client that shows a certificate, or none.
fn over(
    served: &Served,
    project: &Project,
    shown: Option<&(rcgen::Certificate, rcgen::KeyPair)>,
) -> Option<String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(project.path("~/authority.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            config
                .with_client_auth_cert(vec![certificate.der().clone()], key)
                .unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(&served.address).unwrap();
    socket.set_read_timeout(Some(RESPONSE_TIMEOUT)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    let answer = String::from_utf8(answer).unwrap();
    (!answer.is_empty()).then_some(answer)
}

pub(super) fn tls_carries_a_conversation() {
    let (mut project, _model) = project();
    let somebody = authority(&project);
    let path = |name: &str| project.path(name).display().to_string();
    let certificate = path("~/certificate.pem");
    let key = path("~/key.pem");
    let authority = path("~/authority.pem");
    let served = Served::start(
        &project,
        &["--tls-certificate", &certificate, "--tls-key", &key],
    );
    let address = format!("localhost:{}", served.address.rsplit(':').next().unwrap());
    let connect = |project: &Project| {
        let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
        command.args(["connect", &format!("wss://{address}")]);
        command
    };
    let refused = connect(&project).stdin(Stdio::null()).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && why.contains("cannot be reached"),
        "{why}"
    );
    project.set("NODE_EXTRA_CA_CERTS", Some(&authority));
    let editor = Editor::run(connect(&project));
    let project = Client::of(Arc::new(project), editor).leave();
    drop(served);
    // Clients must show a certificate of the authority.
    project.settings(&json!({ "serve": { "tls": { "clients": authority } } }));
    let served = Served::start(
        &project,
        &["--tls-certificate", &certificate, "--tls-key", &key],
    );
    assert_eq!(over(&served, &project, None), None);
    let answer = over(&served, &project, Some(&somebody)).unwrap_or_default();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    project.write("~/own.pem", &somebody.0.pem());
    project.write("~/own.key", &somebody.1.serialize_pem());
    let address = format!("localhost:{}", served.address.rsplit(':').next().unwrap());
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(["connect", &format!("wss://{address}")]);
    let own = [project.path("~/own.pem"), project.path("~/own.key")];
    command
        .arg("--tls-certificate")
        .arg(&own[0])
        .arg("--tls-key")
        .arg(&own[1]);
    let project = Client::of(project, Editor::run(command)).leave();
    let stranger = self::authority(&Project::new());
    assert_eq!(over(&served, &project, Some(&stranger)), None);
}
