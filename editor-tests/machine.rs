//! The pages on which no model answers, run again on a machine unlike the one of the tests: for an
//! ordinary user with their own home, in a network with a model server at every default port. The
//! output of a page must not depend on any of it.
//!
//! The suite's own program is started again twice: as the machine
//! ([`serve_if_started_as_machine`]), which is a network namespace with servers at the ports, and
//! in it as the suite ([`leaves_out_models`]). An unsupported setting is skipped and reported.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::on_path;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 1] = [(
    "pages without a model do not depend on the machine",
    pages_without_a_model_do_not_depend_on_the_machine,
)];

/// Starts this program as the machine.
const MACHINE: &str = "--as-a-busy-machine";

/// The variable that leaves only the pages on which no model answers.
const WITHOUT_MODEL_VARIABLE: &str = "ADJUTANT_TEST_WITHOUT_MODEL";

/// Default ports of Ollama, LM Studio, llama.cpp's server and vLLM.
const PORTS: [u16; 4] = [11434, 1234, 8080, 8000];

/// User id of `nobody`.
const NOBODY_UID: &str = "65534";

fn pages_without_a_model_do_not_depend_on_the_machine() {
    if !cfg!(target_os = "linux") {
        return skipped("namespaces are Linux's");
    }
    if let Some(missing) = ["unshare", "setpriv", "ip"]
        .into_iter()
        .find(|program| !on_path(program))
    {
        return skipped(&format!("there is no {missing}"));
    }
    let namespaces: &[&str] = if is_root() {
        &["--net"]
    } else {
        &["--user", "--map-root-user", "--net"]
    };
    let mut tried = Command::new("unshare");
    let tried = tried
        .args(namespaces)
        .args(["ip", "link", "set", "lo", "up"])
        .output()
        .unwrap();
    if !tried.status.success() {
        return skipped(&format!(
            "a network namespace cannot be created: {}",
            String::from_utf8_lossy(&tried.stderr)
        ));
    }
    let home = tempfile::Builder::new()
        .prefix("adjutant-home-")
        .tempdir()
        .unwrap();
    if is_root() {
        assert!(
            Command::new("chown")
                .arg(NOBODY_UID)
                .arg(home.path())
                .status()
                .unwrap()
                .success()
        );
    }
    let mut machine = Command::new("unshare");
    machine
        .args(namespaces)
        .arg(std::env::current_exe().unwrap())
        .arg(MACHINE);
    let output = machine
        .env("HOME", home.path())
        .env_remove("BLESS")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let passed = stdout
        .lines()
        .filter(|line| line.ends_with("... ok"))
        .count();
    assert!(passed >= 40, "only {passed} pages were tried:\n{stdout}");
    assert_eq!(
        std::fs::read_dir(home.path()).unwrap().count(),
        0,
        "the tests left something in the home"
    );
}

/// Acts as the machine, if this program was started as one; exits with the code of the suite.
pub fn serve_if_started_as_machine() {
    if !std::env::args().any(|argument| argument == MACHINE) {
        return;
    }
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    assert!(
        up.is_ok_and(|status| status.success()),
        "the loopback device cannot be set up"
    );
    for port in PORTS {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|stream| answer(stream).unwrap_or_default())
        });
    }
    let program = std::env::current_exe().unwrap();
    let mut suite = if is_outer_root() {
        // The program and the pages may be where only root can read: that is the only right of
        // root that remains.
        let mut suite = Command::new("setpriv");
        let user = [
            &format!("--reuid={NOBODY_UID}"),
            &format!("--regid={NOBODY_UID}"),
            "--clear-groups",
        ];
        suite
            .args(user)
            .args([
                "--inh-caps=+dac_read_search",
                "--ambient-caps=+dac_read_search",
            ])
            .arg(program);
        suite
    } else {
        let mut suite = Command::new("unshare");
        suite
            .args(["--user", "--map-user=1000", "--map-group=1000"])
            .arg(program);
        suite
    };
    let status = suite.env(WITHOUT_MODEL_VARIABLE, "1").status().unwrap();
    std::process::exit(status.code().unwrap_or(1));
}

/// Answers any request with a list of one model.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    let body = r#"{"object":"list","data":[{"id":"a-model-of-this-machine"}]}"#;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Returns whether only pages on which no model answers are run.
pub fn leaves_out_models() -> bool {
    std::env::var_os(WITHOUT_MODEL_VARIABLE).is_some()
}

pub fn has_no_model(page: &Path) -> bool {
    !std::fs::read_to_string(page)
        .unwrap()
        .contains("\n```model")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether this is the machine's root, and not the root of a user namespace with a single
/// user.
fn is_outer_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[expect(
    clippy::print_stdout,
    reason = "the person who runs the tests needs to know what was not tested"
)]
fn skipped(why: &str) {
    println!("skipped: whether pages depend on the machine was not tested: {why}");
}
