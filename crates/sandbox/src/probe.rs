//! Finding out what holds: a process of ours is put into a sandbox and does what is forbidden, in a
//! directory made for it. What counts is what has happened to the directory and to the listener
//! that waits for it, besides what the process says.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::trial::{Process, Trial, TrialOutcome};
use super::{Level, Mechanism, PendingWrite, ProvenSandbox, Sandbox, SandboxPolicy, WriteObserver, inside};
use crate::process::Program;
use base::lock::locked;

/// How long a trial may take; a mechanism that hangs does not hold.
const LIMIT: Duration = Duration::from_secs(5);

/// Tries the mechanisms of this system, best first.
pub(super) async fn probe(sandbox: &Sandbox, level: Level) -> ProvenSandbox {
    let mut failed = Vec::new();
    if sandbox.program.is_none() {
        return ProvenSandbox::none(level, failed);
    }
    // Landlock is tried first: bubblewrap is stronger with it inside.
    let mut landlock = None;
    if cfg!(target_os = "linux") && !sandbox.disabled(Mechanism::Landlock) {
        landlock = Some(attempt(sandbox, level, Mechanism::Landlock, true).await);
    }
    let inner = landlock.as_ref().is_some_and(Result::is_ok);
    for mechanism in sandbox.mechanisms() {
        if sandbox.disabled(mechanism) {
            failed.push((mechanism, format!("left out by {}", super::DISABLE)));
            continue;
        }
        let tried = match landlock.take_if(|_| mechanism == Mechanism::Landlock) {
            Some(tried) => tried,
            None => attempt(sandbox, level, mechanism, inner).await,
        };
        match tried {
            Ok(held) => return ProvenSandbox { failed, ..held },
            Err(why) => failed.push((mechanism, why)),
        }
    }
    ProvenSandbox::none(level, failed)
}

/// Landlock by itself, where it keeps a command that only reads from everything: changes of any kind, the network,
/// signals to others.
pub(super) async fn landlock(sandbox: &Sandbox) -> Option<ProvenSandbox> {
    if !cfg!(target_os = "linux") || sandbox.program.is_none() || sandbox.disabled(Mechanism::Landlock) {
        return None;
    }
    match attempt(sandbox, Level::ReadOnly, Mechanism::Landlock, true).await {
        Ok(held) => Some(held).filter(|held| held.is_whole() && held.signals),
        Err(why) => {
            tracing::info!("Landlock by itself does not hold: {why}");
            None
        }
    }
}

/// What there is to spoil, and what watches for it.
struct Bait {
    directory: tempfile::TempDir,
    tcp: Option<TcpListener>,
    udp: Option<UdpSocket>,
    _local: UnixListener,
}

impl Bait {
    fn lay(tmp: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("adjutant-try-").tempdir_in(tmp)?;
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("inside/.git/hooks"))?;
        fs::create_dir(path("outside"))?;
        for name in ["inside/.git/config", "outside/file", "outside/moved", "outside/doomed"] {
            fs::write(path(name), name)?;
            fs::set_permissions(path(name), Permissions::from_mode(0o600))?;
        }
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true)?;
        }
        let port = tcp.as_ref().and_then(|tcp| Some(tcp.local_addr().ok()?.port()));
        let udp = port.and_then(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok());
        if let Some(udp) = &udp {
            udp.set_nonblocking(true)?;
        }
        let local = UnixListener::bind(path("inside/socket"))?;
        Ok(Self { tcp, udp, _local: local, directory })
    }

    fn port(&self) -> u16 {
        self.tcp.as_ref().and_then(|tcp| Some(tcp.local_addr().ok()?.port())).unwrap_or(9)
    }

    /// Adds what is seen from outside to what was said.
    fn look(&self, mut done: TrialOutcome) -> TrialOutcome {
        let path = |name: &str| self.directory.path().join(name);
        done.inside &= path("inside/made").exists();
        let intact = |name: &str| fs::read(path(name)).is_ok_and(|bytes| bytes == name.as_bytes());
        done.outside |= !["outside/file", "outside/moved", "outside/doomed"].into_iter().all(intact)
            || path("outside/made").exists()
            || path("outside/folder").exists();
        let mode = fs::metadata(path("outside/file")).map(|data| data.permissions().mode() & 0o777);
        done.modes |= mode.is_ok_and(|mode| mode != 0o600);
        done.control |= !intact("inside/.git/config") || path("inside/.git/hooks/made").exists();
        done.network |= self.tcp.as_ref().is_some_and(|tcp| tcp.accept().is_ok())
            || self.udp.as_ref().is_some_and(|udp| udp.recv(&mut [0; 8]).is_ok());
        done
    }
}

/// What was reported of the trial's own writes.
#[derive(Debug, Default)]
struct ReportedWrites {
    files: Mutex<Vec<PathBuf>>,
}

impl WriteObserver for ReportedWrites {
    fn started(&self) {}

    fn about_to_write(&self, write: PendingWrite) {
        if let PendingWrite::File { path, .. } = write
            && !path.exists()
        {
            locked(&self.files).push(path);
        }
    }

    fn refused(&self) {}

    fn ended(&self) {}
}

async fn attempt(
    sandbox: &Sandbox,
    level: Level,
    mechanism: Mechanism,
    landlock: bool,
) -> Result<ProvenSandbox, String> {
    if mechanism == Mechanism::Bubblewrap && sandbox.bwrap().is_none() {
        return Err("there is no bwrap on PATH".into());
    }
    let own = sandbox.own(&[]).ok_or("the program is not known")?;
    let tmp = sandbox.environment.tmp();
    let bait = base::task::spawn_blocking(move || Bait::lay(&tmp)).await.map_err(|e| e.to_string())?;
    let bait = bait.map_err(|e| format!("it could not be tried in {}: {e}", sandbox.environment.tmp().display()))?;
    let directory = fs::canonicalize(bait.directory.path()).map_err(|e| e.to_string())?;
    let path = |name: &str| directory.join(name);
    let policy = SandboxPolicy {
        level,
        network: false,
        writable: vec![path("inside")],
        protected: match level {
            Level::ReadOnly => vec![],
            Level::WorkspaceWrite => vec![path("inside/.git/hooks"), path("inside/.git/config")],
        },
        hidden: vec![],
        shown: vec![],
        foreign: false,
    };
    let trial = Trial { directory: directory.clone(), port: bait.port(), prober: Process::look(std::process::id()) };
    let orders = inside::Orders { trial: Some(trial.clone()), ..inside::Orders::default() };
    let held = ProvenSandbox { mechanism: Some(mechanism), landlock, ..ProvenSandbox::none(level, vec![]) };
    // Commands at the other level write nothing that is recorded.
    let reports = level == Level::WorkspaceWrite && mechanism != Mechanism::Seatbelt;
    let reports = reports.then(|| Arc::new(ReportedWrites::default()));
    let observer = reports.clone().map(|reports| reports as Arc<dyn WriteObserver>);
    let env = base::variables::Variables::default().tame(&sandbox.environment);
    let program = match mechanism {
        // The lock and the trial are one process.
        Mechanism::Landlock | Mechanism::Bubblewrap => {
            sandbox.wrapped(&held, &policy, orders, observer, Program::new("true", &directory, env))
        }
        Mechanism::Seatbelt => {
            let program = Program::new(own, &directory, env).args(orders.args());
            sandbox.wrapped(&held, &policy, inside::Orders::default(), None, program)
        }
    };
    let program = program?;
    let ran = program.run(LIMIT).await.map_err(|e| format!("it could not be started: {e}"))?;
    if !ran.status.success() {
        let why = String::from_utf8_lossy(&ran.stderr);
        return Err(base::text::title(why.trim().lines().last().unwrap_or("it ended at once")));
    }
    let done: TrialOutcome =
        serde_json::from_slice(&ran.stdout).map_err(|e| format!("the trial said nonsense: {e}"))?;
    let done = base::task::spawn_blocking(move || bait.look(done)).await.map_err(|e| e.to_string())?;
    // Each write waits until it was reported, so this is complete when the trial has ended.
    let reported = reports.is_some_and(|reports| locked(&reports.files).contains(&path("inside/made")));
    Ok(ProvenSandbox { reported, ..judge(&held, &done)? })
}

fn judge(held: &ProvenSandbox, done: &TrialOutcome) -> Result<ProvenSandbox, String> {
    if !done.inside {
        return Err("nothing could be written where it should be".into());
    }
    if done.outside {
        return Err("files outside could be changed".into());
    }
    if done.secrets {
        return Err("the variables and the memory of adjutant could be read".into());
    }
    if done.capabilities && cfg!(target_os = "linux") {
        return Err("capabilities were kept".into());
    }
    if held.level == Level::ReadOnly && done.modes {
        return Err("modes of files outside could be changed".into());
    }
    if held.level == Level::ReadOnly && done.local && held.mechanism != Some(Mechanism::Seatbelt) {
        return Err("services of this machine could be reached".into());
    }
    Ok(ProvenSandbox {
        offline: !done.network && !done.local,
        control: !done.control,
        modes: !done.modes,
        signals: !done.signals,
        ..held.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_can_still_be_done_is_not_claimed() {
        let held = |level| ProvenSandbox { mechanism: Some(Mechanism::Landlock), ..ProvenSandbox::none(level, vec![]) };
        let done = |what: &str| TrialOutcome {
            inside: !what.contains("inside"),
            outside: what.contains("outside"),
            modes: what.contains("modes"),
            control: what.contains("control"),
            network: what.contains("network"),
            local: what.contains("local"),
            signals: what.contains("signals"),
            secrets: what.contains("secrets"),
            capabilities: what.contains("capabilities"),
        };
        // What could be done; whether it holds as read-only, and as workspace-write.
        let table = [
            ("", true, true),
            ("inside", false, false),
            ("outside", false, false),
            ("modes", false, true),
            ("control", true, true),
            ("network", true, true),
            ("local", false, true),
            ("signals", true, true),
            ("secrets", false, false),
            #[cfg(target_os = "linux")]
            ("capabilities", false, false),
        ];
        for (what, read_only, workspace) in table {
            assert_eq!(judge(&held(Level::ReadOnly), &done(what)).is_ok(), read_only, "{what}");
            assert_eq!(judge(&held(Level::WorkspaceWrite), &done(what)).is_ok(), workspace, "{what}");
        }
        let judged = judge(&held(Level::WorkspaceWrite), &done("modes control network signals")).unwrap();
        assert!(!judged.offline && !judged.control && !judged.modes && !judged.signals);
    }

    /// The trial finds every open door where nothing is locked.
    #[test]
    fn a_trial_without_a_sandbox_does_everything() {
        let bait = Bait::lay(&std::env::temp_dir()).unwrap();
        let trial = Trial {
            directory: bait.directory.path().to_owned(),
            port: bait.port(),
            prober: Process::look(std::process::id()),
        };
        let tried = trial.attempt();
        assert!(tried.outside && tried.local && tried.signals && tried.secrets, "{tried:?}");
        let done = bait.look(TrialOutcome { inside: true, ..TrialOutcome::default() });
        assert!(done.inside && done.outside && done.modes && done.control && done.network, "{done:?}");
    }
}
