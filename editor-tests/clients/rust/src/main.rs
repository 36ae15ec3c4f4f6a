//! The Rust SDK as a client, in both versions of the protocol: `cargo run -- path/to/adjutant`.
//!
//! The SDK refuses what does not fit its types. The offline model understands plain orders, so
//! everything here happens without a provider.

mod first;
mod second;

use std::path::{Path, PathBuf};

use agent_client_protocol::{AcpAgent, AcpAgentConfig, Result};

/// An empty home and an empty project; gone when it goes.
pub struct TemporaryProject {
    root: PathBuf,
}

impl TemporaryProject {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("adjutant-rust-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join("project")).unwrap();
        std::fs::create_dir_all(root.join("home/.config/adjutant")).unwrap();
        let root = root.canonicalize().unwrap();
        let settings = r#"{"model": "offline/offline", "permission": {"edit": "ask", "bash": "ask"}}"#;
        std::fs::write(root.join("home/.config/adjutant/adjutant.json"), settings).unwrap();
        Self { root }
    }

    pub fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    /// The agent, as an editor would start it.
    pub fn agent(&self, binary: &Path, words: &[&str]) -> AcpAgent {
        let home = self.root.join("home").display().to_string();
        let config = AcpAgentConfig::new(binary).arg("acp").args(words.iter().copied());
        AcpAgent::new(config.env("HOME", home).env("ADJUTANT_DISABLE_TITLES", "1"))
    }
}

impl Drop for TemporaryProject {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.root).ok();
    }
}

fn main() {
    let binary = PathBuf::from(std::env::args_os().nth(1).expect("the path of adjutant"));
    let checks: [(&str, fn(&Path, &TemporaryProject) -> Result<()>); 4] = [
        ("version 1: a turn that asks, a refusal, a cancel", first::talks),
        ("version 1: a session loaded by another process", first::loads),
        ("version 2: a turn that asks, a refusal, a cancel", second::talks),
        ("version 2: a session resumed by another process", second::resumes),
    ];
    let mut failed = 0;
    for (name, check) in checks {
        let fixture = TemporaryProject::new(if name.starts_with("version 1") { "first" } else { "second" });
        match check(&binary, &fixture) {
            Ok(()) => println!("ok    {name}"),
            Err(e) => {
                failed += 1;
                println!("FAIL  {name}\n      {e}: {:?}", e.data);
            }
        }
    }
    println!("{} passed, {failed} failed", checks.len() - failed);
    std::process::exit(i32::from(failed > 0));
}
