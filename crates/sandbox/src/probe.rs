//! Tries sandboxes: a process of adjutant attempts forbidden operations in a directory made for
//! them (`trial.rs`). The verdict depends on the state of the directory and of listeners
//! afterwards, in addition to the report of the process.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::trial::{Process, Trial, TrialOutcome};
use super::{
    Level, Mechanism, PendingWrite, ProvenSandbox, Purpose, Sandbox, SandboxPolicy, WriteObserver,
    inside,
};
use crate::process::Program;
use base::lock::lock;

/// The time limit of a trial. A mechanism that hangs is not used.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Tries the mechanisms of this system, best first. Returns the guarantees of the first one that is
/// good enough for a level, or none.
pub(super) async fn probe(sandbox: &Sandbox, level: Level) -> ProvenSandbox {
    let mut failed = Vec::new();
    if sandbox.program.is_none() {
        return ProvenSandbox::none(level, failed);
    }
    sandbox.prepare_launcher().await;
    // Landlock is tried first, because it makes bubblewrap stronger.
    let mut landlock = None;
    if cfg!(target_os = "linux") && !sandbox.is_disabled(Mechanism::Landlock) {
        landlock = Some(attempt(sandbox, level, Mechanism::Landlock, true).await);
    }
    let inner = landlock.as_ref().is_some_and(Result::is_ok);
    for mechanism in sandbox.mechanisms() {
        if sandbox.is_disabled(mechanism) {
            failed.push((
                mechanism,
                format!("left out by {}", super::DISABLED_MECHANISMS_VARIABLE),
            ));
            continue;
        }
        let earlier = if mechanism == Mechanism::Landlock {
            landlock.take()
        } else {
            None
        };
        let tried = match earlier {
            Some(tried) => tried,
            None => attempt(sandbox, level, mechanism, inner).await,
        };
        match tried {
            Ok(proven) => return ProvenSandbox { failed, ..proven },
            Err(why) => failed.push((mechanism, why)),
        }
    }
    ProvenSandbox::none(level, failed)
}

/// Tries Landlock alone. Returns its guarantees if it prevents a command that only reads from any
/// change, from using the network and from signalling other processes.
pub(super) async fn landlock(sandbox: &Sandbox) -> Option<ProvenSandbox> {
    if !cfg!(target_os = "linux")
        || sandbox.program.is_none()
        || sandbox.is_disabled(Mechanism::Landlock)
    {
        return None;
    }
    sandbox.prepare_launcher().await;
    match attempt(sandbox, Level::ReadOnly, Mechanism::Landlock, true).await {
        Ok(proven) => Some(proven).filter(|proven| proven.is_complete() && proven.blocks_signals),
        Err(why) => {
            tracing::info!("Landlock alone does not work: {why}");
            None
        }
    }
}

/// The targets of forbidden operations, which show whether one succeeded.
struct TrialTargets {
    /// The directory with the files to change.
    directory: tempfile::TempDir,
    /// A listener for connections; `None` if none can be opened.
    tcp: Option<TcpListener>,
    /// A receiver of datagrams, on the same port.
    udp: Option<UdpSocket>,
    /// A service of this machine.
    _local: UnixListener,
}

impl TrialTargets {
    /// Creates the targets in a directory for temporary files.
    fn create(tmp: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("adjutant-try-")
            .tempdir_in(tmp)?;
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("inside/.git/hooks"))?;
        fs::create_dir(path("outside"))?;
        for name in [
            "inside/.git/config",
            "outside/file",
            "outside/moved",
            "outside/doomed",
        ] {
            fs::write(path(name), name)?;
            fs::set_permissions(path(name), Permissions::from_mode(0o600))?;
        }
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true)?;
        }
        let port = tcp
            .as_ref()
            .and_then(|tcp| Some(tcp.local_addr().ok()?.port()));
        let udp = port.and_then(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok());
        if let Some(udp) = &udp {
            udp.set_nonblocking(true)?;
        }
        let local = UnixListener::bind(path("inside/socket"))?;
        Ok(Self {
            tcp,
            udp,
            _local: local,
            directory,
        })
    }

    /// Returns the port of the listeners; without any, one on which nothing listens.
    fn port(&self) -> u16 {
        self.tcp
            .as_ref()
            .and_then(|tcp| Some(tcp.local_addr().ok()?.port()))
            .unwrap_or(9)
    }

    /// Adds the visible effects to the results that the process has reported.
    fn add_effects(&self, mut done: TrialOutcome) -> TrialOutcome {
        let path = |name: &str| self.directory.path().join(name);
        done.inside &= path("inside/made").exists();
        let intact = |name: &str| fs::read(path(name)).is_ok_and(|bytes| bytes == name.as_bytes());
        done.outside |= !["outside/file", "outside/moved", "outside/doomed"]
            .into_iter()
            .all(intact)
            || path("outside/made").exists()
            || path("outside/folder").exists();
        let mode = fs::metadata(path("outside/file")).map(|data| data.permissions().mode() & 0o777);
        done.modes |= mode.is_ok_and(|mode| mode != 0o600);
        done.control |= !intact("inside/.git/config") || path("inside/.git/hooks/made").exists();
        done.network |= self.tcp.as_ref().is_some_and(|tcp| tcp.accept().is_ok())
            || self
                .udp
                .as_ref()
                .is_some_and(|udp| udp.recv(&mut [0; 8]).is_ok());
        done
    }
}

/// The files that a trial has created, as far as that was reported beforehand.
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
            lock(&self.files).push(path);
        }
    }

    fn refused(&self) {}

    fn ended(&self) {}
}

/// Tries a mechanism. If the launcher in memory cannot be executed in it, such as without the
/// `/proc` of its descriptor, adjutant's own executable is tried in its place.
async fn attempt(
    sandbox: &Sandbox,
    level: Level,
    mechanism: Mechanism,
    landlock: bool,
) -> Result<ProvenSandbox, String> {
    if mechanism == Mechanism::Bubblewrap && sandbox.bwrap().is_none() {
        return Err("there is no bwrap on PATH".into());
    }
    let claimed = ProvenSandbox {
        mechanism: Some(mechanism),
        includes_landlock: landlock,
        ..ProvenSandbox::none(level, vec![])
    };
    let failed = match run(sandbox, &claimed).await {
        Err(TrialFailure::NotStarted(why)) if sandbox.has_launcher_in_memory() => why,
        tried => return tried.map_err(TrialFailure::into_reason),
    };
    let claimed = ProvenSandbox {
        needs_executable: true,
        ..claimed
    };
    let tried = run(sandbox, &claimed).await;
    if tried.is_ok() {
        tracing::info!(
            "{}: adjutant's own executable starts commands, because the launcher in memory does not: {failed}",
            mechanism.key()
        );
    }
    tried.map_err(TrialFailure::into_reason)
}

/// The reason why a trial has no good result.
enum TrialFailure {
    /// The restricted process did not start, or did not come to its end.
    NotStarted(String),
    /// The mechanism is not good enough, or cannot be tried.
    Rejected(String),
}

impl TrialFailure {
    fn into_reason(self) -> String {
        let (Self::NotStarted(why) | Self::Rejected(why)) = self;
        why
    }
}

impl From<String> for TrialFailure {
    fn from(why: String) -> Self {
        Self::Rejected(why)
    }
}

/// Runs a trial of a sandbox, and returns its guarantees.
async fn run(sandbox: &Sandbox, claimed: &ProvenSandbox) -> Result<ProvenSandbox, TrialFailure> {
    let ProvenSandbox {
        level,
        mechanism: tried,
        ..
    } = *claimed;
    let executable = sandbox
        .executable(&[])
        .ok_or_else(|| "the program is not known".to_owned())?;
    let tmp = sandbox.environment.tmp();
    let targets = base::task::spawn_blocking(move || TrialTargets::create(&tmp))
        .await
        .map_err(|e| e.to_string())?;
    let targets = targets.map_err(|e| {
        format!(
            "it could not be tried in {}: {e}",
            sandbox.environment.tmp().display()
        )
    })?;
    let directory = fs::canonicalize(targets.directory.path()).map_err(|e| e.to_string())?;
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
        has_foreign_files: false,
    };
    let trial = Trial {
        directory: directory.clone(),
        port: targets.port(),
        prober: Process::read(std::process::id()),
    };
    // Writes of read-only commands are not recorded.
    let reports = level == Level::WorkspaceWrite && tried != Some(Mechanism::Seatbelt);
    let reports = reports.then(|| Arc::new(ReportedWrites::default()));
    let observer = reports
        .clone()
        .map(|reports| reports as Arc<dyn WriteObserver>);
    let env = base::child_environment::Variables::default().for_model_program(&sandbox.environment);
    let program = Program::new(executable, &directory, env)
        .args(inside::trial_args(&trial))
        .owned_by(sandbox.owner());
    let program = sandbox.wrapped(claimed, &policy, Purpose::Trial, observer, program)?;
    let ran = program.run(TRIAL_TIMEOUT).await.map_err(|e| {
        let why = format!("it could not be started: {e}");
        match e.kind() {
            // A second trial would hang too.
            io::ErrorKind::TimedOut => TrialFailure::Rejected(why),
            _ => TrialFailure::NotStarted(why),
        }
    })?;
    if !ran.status.success() {
        let why = String::from_utf8_lossy(&ran.stderr);
        return Err(TrialFailure::NotStarted(base::text::title(
            why.trim().lines().last().unwrap_or("it ended at once"),
        )));
    }
    let done: TrialOutcome = serde_json::from_slice(&ran.stdout)
        .map_err(|e| format!("the trial gave an unreadable result: {e}"))?;
    let done = base::task::spawn_blocking(move || targets.add_effects(done))
        .await
        .map_err(|e| e.to_string())?;
    // Each write waits for its report, so all reports have arrived when the trial has ended.
    let reported =
        reports.is_some_and(|reports| lock(&reports.files).contains(&path("inside/made")));
    Ok(ProvenSandbox {
        reports_writes: reported,
        ..judge(claimed, &done)?
    })
}

/// Returns the guarantees of a sandbox according to a trial, or the reason why it is not used.
fn judge(claimed: &ProvenSandbox, done: &TrialOutcome) -> Result<ProvenSandbox, String> {
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
    if claimed.level == Level::ReadOnly && done.modes {
        return Err("permission bits of files outside could be changed".into());
    }
    if claimed.level == Level::ReadOnly
        && done.local
        && claimed.mechanism != Some(Mechanism::Seatbelt)
    {
        return Err("services of this machine could be reached".into());
    }
    Ok(ProvenSandbox {
        blocks_network: !done.network && !done.local,
        protects_control_files: !done.control,
        protects_modes: !done.modes,
        blocks_signals: !done.signals,
        ..claimed.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_operations_are_not_claimed_as_prevented() {
        let claimed = |level| ProvenSandbox {
            mechanism: Some(Mechanism::Landlock),
            ..ProvenSandbox::none(level, vec![])
        };
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
        // The operations that succeeded; whether the mechanism is accepted as read-only, and as
        // workspace-write.
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
            assert_eq!(
                judge(&claimed(Level::ReadOnly), &done(what)).is_ok(),
                read_only,
                "{what}"
            );
            assert_eq!(
                judge(&claimed(Level::WorkspaceWrite), &done(what)).is_ok(),
                workspace,
                "{what}"
            );
        }
        let judged = judge(
            &claimed(Level::WorkspaceWrite),
            &done("modes control network signals"),
        )
        .unwrap();
        assert!(
            !judged.blocks_network
                && !judged.protects_control_files
                && !judged.protects_modes
                && !judged.blocks_signals
        );
    }

    /// Checks that the trial succeeds in every operation if nothing is restricted.
    #[test]
    fn trial_without_sandbox_succeeds_in_everything() {
        let targets = TrialTargets::create(&std::env::temp_dir()).unwrap();
        let trial = Trial {
            directory: targets.directory.path().to_owned(),
            port: targets.port(),
            prober: Process::read(std::process::id()),
        };
        let tried = trial.attempt();
        assert!(
            tried.outside && tried.local && tried.signals && tried.secrets,
            "{tried:?}"
        );
        let done = targets.add_effects(TrialOutcome {
            inside: true,
            ..TrialOutcome::default()
        });
        assert!(
            done.inside && done.outside && done.modes && done.control && done.network,
            "{done:?}"
        );
    }
}
