//! The sandbox of an agent's commands: its level, the notices about it, and the detection of
//! changes that the system cannot prevent.
//!
//! Agents that may not edit anything run read-only, without network; the others may write the
//! project and the paths that builds need. The settings may add or remove restrictions. A
//! command that the sandbox has stopped fails, and the model is notified; the command is not tried
//! again outside.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::files::hidden::HiddenPaths;
use crate::process::control_files;
use crate::process::writable_paths::{describe_opened_by_consent, named_writes, without_named};
use crate::scratch;
use crate::{Failure, ToolContext};
use base::environment::Environment;
use base::reported;
use base::worktree::Worktree;
use config::Settings;
use config::settings::{self, SandboxMode};
use events::{Event, Severity};
use permission::evaluate::only_reads;
use permission::plan::{CommandLine, HiddenFiles, PlannedSandbox, SandboxCapabilities};
use permission::shell::CommandAnalysis;
use permission::{PermissionContext, Rules, SandboxGuarantee, protected};
use sandbox::process::{self, Program, ProgramSlot};
use sandbox::{
    Level, Mechanism, ProvenSandbox, Sandbox, SandboxPolicy, WriteObserver, build_directories,
    existing,
};

/// The choice of the sandbox for an agent's commands: its level, and the settings.
#[derive(Debug, Clone)]
pub struct SandboxChoice {
    sandbox: Arc<Sandbox>,
    level: Level,
    settings: Arc<settings::SandboxSettings>,
    /// True if the project is trusted.
    pub trusted: bool,
    /// True if it is for a single command, so that the user need not be notified.
    is_single_command: bool,
    /// True if the command is known to be harmless.
    is_harmless: bool,
    /// True if the user was notified, for each level.
    is_notified: Arc<[AtomicBool; 2]>,
    /// The description of [`Self::reach`], for each level. It does not change, so that a provider's
    /// cache remains valid.
    reach: Arc<[OnceLock<String>; 2]>,
}

/// The sandbox of one command, or of one program that adjutant itself starts.
#[derive(Debug, Clone)]
pub struct CommandSandbox {
    /// The confirmed restrictions.
    proven: Arc<ProvenSandbox>,
    /// True if the command may use the network.
    network: bool,
    /// The session's directory for temporary files. May not exist yet.
    pub scratch: PathBuf,
    /// The restrictions in force, for people and models. `None` if the settings turn the sandbox
    /// off.
    pub restrictions: Option<String>,
    /// The model's command line; `None` for a program that adjutant itself starts. Paths that the
    /// line names and that its programs need remain visible to it.
    line: Option<Arc<CommandAnalysis>>,
    /// The hidden paths, determined at their first use.
    hidden: OnceLock<HiddenPaths>,
}

impl SandboxChoice {
    /// Returns the choice for a session that has sent no notices yet.
    pub fn new(sandbox: &Arc<Sandbox>) -> Self {
        Self {
            sandbox: sandbox.clone(),
            level: Level::WorkspaceWrite,
            settings: Arc::default(),
            trusted: false,
            is_single_command: false,
            is_harmless: false,
            is_notified: Arc::default(),
            reach: Arc::default(),
        }
    }

    /// Returns a choice with the sandbox turned off.
    #[cfg(any(test, feature = "testing"))]
    pub fn none(environment: &Environment) -> Self {
        let settings = settings::SandboxSettings {
            mode: SandboxMode::Off,
            ..settings::SandboxSettings::default()
        };
        Self {
            settings: Arc::new(settings),
            ..Self::new(&Sandbox::new(environment))
        }
    }

    /// Chooses read-only if the rules allow no change in the project.
    #[must_use]
    pub fn for_agent(&self, rules: &Rules, settings: &Settings) -> Self {
        self.at(
            if only_reads(rules) {
                Level::ReadOnly
            } else {
                Level::WorkspaceWrite
            },
            settings,
        )
    }

    /// Returns the choice with this level and the sandbox settings.
    #[must_use]
    pub fn at(&self, level: Level, settings: &Settings) -> Self {
        Self {
            level,
            settings: settings.sandbox.clone(),
            trusted: settings.trusted,
            ..self.clone()
        }
    }

    /// Chooses read-only for a command that only reads, of an agent that may do more.
    #[must_use]
    pub fn reading(&self) -> Self {
        Self {
            level: Level::ReadOnly,
            is_single_command: self.level != Level::ReadOnly,
            ..self.clone()
        }
    }

    /// Chooses the planned sandbox of a command. A known-harmless one loses nothing by read-only;
    /// its sandbox may be another one than that of the agent, which is the one to notify the user
    /// of.
    #[must_use]
    pub fn for_command(&self, sandbox: PlannedSandbox) -> Self {
        match sandbox {
            PlannedSandbox::Harmless => Self {
                is_harmless: true,
                is_single_command: true,
                ..self.reading()
            },
            PlannedSandbox::Agent | PlannedSandbox::Isolated => self.clone(),
        }
    }

    /// Suppresses notices, for a command outside the model's calls. The user is notified with the
    /// first call.
    #[must_use]
    pub fn without_notices(&self) -> Self {
        Self {
            is_notified: Arc::new([AtomicBool::new(true), AtomicBool::new(true)]),
            ..self.clone()
        }
    }

    /// Allows writing in the project, for a program that does not belong to a single agent.
    #[must_use]
    pub fn writing(&self) -> Self {
        Self {
            level: Level::WorkspaceWrite,
            ..self.clone()
        }
    }

    /// Returns whether the level is read-only.
    pub fn reads_only(&self) -> bool {
        self.level == Level::ReadOnly
    }

    /// Describes, for the model, what commands can reach: the confirmed restrictions, otherwise
    /// those of the settings.
    pub fn reach(&self) -> String {
        let [reading, writing] = &*self.reach;
        let reach = if self.reads_only() { reading } else { writing };
        reach.get_or_init(|| self.describe()).clone()
    }

    /// Returns the confirmed restrictions of the agent's sandbox. The first call of a process makes
    /// the trial run.
    pub async fn guarantee(&self) -> SandboxGuarantee {
        self.guarantee_of(&*self.proven_sandbox().await)
    }

    /// Returns the sandboxes of the agent's commands that trial runs have confirmed. The first call
    /// of a process makes the trial runs.
    pub async fn tried(&self) -> TriedSandboxes {
        let harmless = self.for_command(PlannedSandbox::Harmless);
        TriedSandboxes {
            harmless: harmless.proven_sandbox().await,
            agent: self.proven_sandbox().await,
            choice: self.clone(),
        }
    }

    /// Returns whether commands may use the network.
    fn allows_network(&self) -> bool {
        self.settings.network.unwrap_or(!self.reads_only())
    }

    /// Returns the sandbox that a trial run has confirmed, or none if the settings turn it off.
    async fn proven_sandbox(&self) -> Arc<ProvenSandbox> {
        match self.settings.mode {
            SandboxMode::Off => Arc::new(ProvenSandbox::none(self.level, vec![])),
            SandboxMode::Auto | SandboxMode::Required if self.is_harmless => {
                self.sandbox.read_only_guarantees().await
            }
            SandboxMode::Auto | SandboxMode::Required => {
                self.sandbox.guarantees_of(self.level).await
            }
        }
    }

    /// Checks that a sandbox has the restrictions that the settings require.
    fn check_required(&self, proven: &ProvenSandbox) -> Result<(), MissingSandbox> {
        if self.settings.mode == SandboxMode::Required
            && !proven.is_effective(self.allows_network())
        {
            return Err(MissingSandbox {
                reasons: proven.reasons(),
            });
        }
        Ok(())
    }

    /// Returns the capabilities of a sandbox for a command line. `mentions_hidden` searches its
    /// text for hidden files.
    fn capabilities_of(
        &self,
        proven: &ProvenSandbox,
        mentions_hidden: impl FnOnce() -> bool,
    ) -> SandboxCapabilities {
        let guarantee = self.guarantee_of(proven);
        // No other guarantee depends on it, and the search may read the whole project.
        let is_searched =
            !self.is_harmless && matches!(guarantee, SandboxGuarantee::ReadOnly { .. });
        let hidden = if hides_files(proven) {
            HiddenFiles::Invisible
        } else if is_searched && mentions_hidden() {
            HiddenFiles::Mentioned
        } else {
            HiddenFiles::Visible
        };
        SandboxCapabilities {
            guarantee,
            can_isolate: proven.is_complete(),
            is_read_only_unenforced: proven.mechanism.is_none() && self.reads_only(),
            hidden,
        }
    }

    /// Returns the confirmed restrictions that a verdict may rely on.
    fn guarantee_of(&self, proven: &ProvenSandbox) -> SandboxGuarantee {
        if self.reads_only() && !self.is_harmless && !self.settings.unattended {
            return SandboxGuarantee::None;
        }
        SandboxGuarantee::of(proven, self.allows_network())
    }

    /// Describes the agent's sandbox for the user. The first call of a process makes the trial run.
    pub async fn status(&self) -> String {
        if self.settings.mode == SandboxMode::Off {
            return "off, by the setting `sandbox`".to_owned();
        }
        self.sandbox
            .guarantees_of(self.level)
            .await
            .describe_restrictions(self.allows_network())
    }

    /// Returns whether a sandbox restricts the agent's writes, protects control files, and blocks
    /// the network if that is wanted. The first call of a process makes the trial run.
    pub async fn is_protective(&self) -> bool {
        self.settings.mode != SandboxMode::Off
            && self.sandbox.guarantees_of(self.level).await.is_complete()
    }

    /// Returns whether an earlier trial run has shown [`Self::is_protective`]; false before the
    /// first.
    pub fn is_known_protective(&self) -> bool {
        self.settings.mode != SandboxMode::Off
            && self
                .sandbox
                .known(self.level)
                .is_some_and(ProvenSandbox::is_complete)
    }

    /// Returns whether every write of the agent's commands in the project is reported beforehand,
    /// or no writes are possible. The first call of a process makes the trial run.
    pub async fn reports_writes(&self) -> bool {
        if self.settings.mode == SandboxMode::Off {
            return false;
        }
        let proven = self.sandbox.guarantees_of(self.level).await;
        proven.reports_writes || self.reads_only() && proven.mechanism.is_some()
    }

    /// Returns whether writes may be reported, as far as is known; does not wait for a trial run.
    /// Only Linux reports them.
    pub fn may_report_writes(&self, settings: &Settings) -> bool {
        let tried = self.sandbox.known(Level::WorkspaceWrite);
        settings.sandbox.mode != SandboxMode::Off
            && tried.map_or(cfg!(target_os = "linux"), |proven| proven.reports_writes)
    }

    /// Returns the text of [`Self::reach`] according to the present knowledge.
    fn describe(&self) -> String {
        let known = self.sandbox.known(self.level);
        if self.settings.mode == SandboxMode::Off
            || known.is_some_and(|proven| proven.mechanism.is_none())
        {
            return "Commands run without a sandbox.".to_owned();
        }
        let sandbox = if known.is_some() {
            "a sandbox"
        } else {
            "a sandbox if this system supports it"
        };
        let network = if self.allows_network() {
            "they can use the network"
        } else {
            "they have no network"
        };
        let writes = writes(
            self.level,
            known.map(|proven| proven.protects_control_files),
        );
        format!(
            "Commands run in {sandbox}: they can write {writes}; {network}. $TMPDIR belongs to this session."
        )
    }

    /// Determines the sandbox of a program outside the model's command lines, and notifies the user
    /// at the first one. The first call of a process makes the trial run.
    ///
    /// # Errors
    /// Same as [`Self::prepare_for_command`].
    pub async fn prepare(&self, context: &ToolContext) -> Result<CommandSandbox, Failure> {
        let sandbox = self.prepare_unannounced(None, context).await?;
        self.announce(&sandbox, false, context).await;
        Ok(sandbox)
    }

    /// Determines the sandbox of a command line, and its capabilities for the plan. The user is not
    /// notified yet: see [`Self::announce`].
    ///
    /// # Errors
    /// A message for the model, if the settings require restrictions that the system
    /// cannot enforce.
    pub async fn prepare_for_command(
        &self,
        line: &CommandLine,
        context: &ToolContext,
    ) -> Result<(CommandSandbox, SandboxCapabilities), Failure> {
        let sandbox = self
            .prepare_unannounced(Some(line.analysis.clone()), context)
            .await?;
        // A sandbox does not contain commands that run behind another program, for instance in a
        // container.
        let is_contained = context.session.exec.is_empty();
        let mentions_hidden = || {
            is_contained
                && self
                    .hidden(&sandbox, context)
                    .find_mention(&line.analysis.text, &context.project.environment)
                    .is_some()
        };
        let mut capabilities = self.capabilities_of(&sandbox.proven, mentions_hidden);
        if !is_contained {
            capabilities.guarantee = SandboxGuarantee::None;
            capabilities.can_isolate = false;
        }
        Ok((sandbox, capabilities))
    }

    /// Determines the sandbox of a command without a notice to the user.
    async fn prepare_unannounced(
        &self,
        line: Option<Arc<CommandAnalysis>>,
        context: &ToolContext,
    ) -> Result<CommandSandbox, Failure> {
        let network = self.allows_network();
        let proven = self.proven_sandbox().await;
        self.check_required(&proven).map_err(|missing| {
            Failure::ForModel(format!(
                "{missing} No command is run. Tell the user, who can install bubblewrap, use a kernel with Landlock (Linux 6.2 or later), or set \"sandbox\" to \"auto\". `adjutant doctor` has details."
            ))
        })?;
        let restrictions = match self.settings.mode {
            SandboxMode::Off => None,
            SandboxMode::Auto | SandboxMode::Required => {
                Some(proven.describe_restrictions(network))
            }
        };
        let scratch = scratch::directory(&context.project.environment, context.session.id.as_str());
        Ok(CommandSandbox {
            proven,
            network,
            scratch,
            restrictions,
            line,
            hidden: OnceLock::new(),
        })
    }

    /// Notifies the user of the sandbox with the first command. If the user `is_asked` about the
    /// command, the question describes the sandbox; the notice then comes with the first command
    /// without a question.
    pub async fn announce(&self, sandbox: &CommandSandbox, is_asked: bool, context: &ToolContext) {
        let is_sandboxed = sandbox.proven.mechanism.is_some();
        let is_described = self.is_single_command || is_asked;
        if sandbox.restrictions.is_none() || is_described && is_sandboxed {
            return;
        }
        if let Some(notice) = self.notice_of(&sandbox.proven, sandbox.network)
            && !self.was_reported(&notice, &context.project.cwd).await
        {
            context.client.event_sender.event(notice).await;
        }
    }

    /// Returns the notice on the sandbox, once per session and level. Returns `None` if it was
    /// sent, if the settings turn the sandbox off, and before the first trial run. `cwd` is the
    /// session's directory.
    pub async fn notice(&self, cwd: &Path) -> Option<Event> {
        if self.settings.mode == SandboxMode::Off {
            return None;
        }
        let proven = self.sandbox.known(self.level)?;
        let notice = self.notice_of(proven, self.allows_network())?;
        (!self.was_reported(&notice, cwd).await).then_some(notice)
    }

    /// Returns whether a session in the same directory has shown a notice about this sandbox today,
    /// and remembers it as shown. One about a missing sandbox is always shown.
    async fn was_reported(&self, notice: &Event, cwd: &Path) -> bool {
        let Event::Notice {
            severity: Severity::Info,
            title,
            ..
        } = notice
        else {
            return false;
        };
        let subject = format!("sandbox {}", self.level.as_str());
        let environment = self.sandbox.environment().clone();
        let texts = [title.clone()];
        let cwd = cwd.to_owned();
        let shown = base::task::spawn_blocking(move || {
            reported::shown_before(&environment, &cwd, &subject, &texts)
        });
        !shown.await.unwrap_or_default().is_empty()
    }

    /// Returns the notice on a sandbox, once per session and level.
    fn notice_of(&self, proven: &ProvenSandbox, network: bool) -> Option<Event> {
        let [reading, writing] = &*self.is_notified;
        let is_notified = if self.reads_only() { reading } else { writing };
        if is_notified.swap(true, Ordering::Relaxed) {
            return None;
        }
        if proven.mechanism.is_some() {
            let title = format!(
                "Commands run in a sandbox: {}.",
                proven.describe_restrictions(network)
            );
            return Some(Event::Notice {
                severity: Severity::Info,
                title,
                details: None,
            });
        }
        reading.store(true, Ordering::Relaxed);
        writing.store(true, Ordering::Relaxed);
        Some(Event::Notice {
            severity: Severity::Warning,
            title: "Commands run without a sandbox: a command that you allow can do anything you can do."
                .into(),
            details: Some(format!("{}.", proven.reasons())),
        })
    }

    /// Returns the directories that commands may write, except the scratch directory.
    fn writable_directories(&self, context: &ToolContext) -> Vec<PathBuf> {
        let tree = &context.project.worktree;
        let own = self
            .settings
            .writable
            .iter()
            .map(|path| named(path, context));
        let roots = std::iter::once(tree.root.clone())
            .chain(tree.extra.iter().cloned())
            .chain(tree.git_dirs());
        roots
            .chain(build_directories(&context.project.environment))
            .chain(own)
            .collect()
    }

    /// Returns the program as it must be started to run in the sandbox. Reads the disk and creates
    /// the scratch directory.
    ///
    /// # Errors
    /// A message for the model, if the sandbox is no longer available: nothing is started
    /// without it.
    pub fn enter(
        &self,
        sandbox: &CommandSandbox,
        context: &ToolContext,
        program: Program,
    ) -> Result<Program, Failure> {
        self.entered(
            sandbox,
            context,
            context.call.write_observer.clone(),
            program,
        )
    }

    /// Does the same as [`Self::enter`] for a program that works for other calls too: its writes
    /// are not attributed to this call.
    ///
    /// # Errors
    /// Same as [`SandboxChoice::enter`].
    pub fn enter_shared(
        &self,
        sandbox: &CommandSandbox,
        context: &ToolContext,
        program: Program,
    ) -> Result<Program, Failure> {
        self.entered(sandbox, context, None, program)
    }

    /// Does the same as [`Self::enter`], with the receiver of the program's writes.
    fn entered(
        &self,
        sandbox: &CommandSandbox,
        context: &ToolContext,
        observer: Option<Arc<dyn WriteObserver>>,
        program: Program,
    ) -> Result<Program, Failure> {
        let program = program.owned_by(self.sandbox.owner());
        self.wrapped(sandbox, context, observer, program).map_err(|why| {
            Failure::ForModel(format!(
                "It was not started, because its sandbox is no longer available: {why}. Nothing runs without the sandbox that was found at the start. Tell the user, who can fix that or restart adjutant; `adjutant doctor` shows the sandbox."
            ))
        })
    }

    /// Waits until another program of the user may run.
    ///
    /// # Errors
    /// Same as [`process::slot`].
    pub(crate) async fn slot(&self) -> io::Result<ProgramSlot> {
        process::slot(self.sandbox.owner()).await
    }

    /// Returns the paths that are hidden from a command; with Landlock, those that would be hidden
    /// if it could hide any.
    fn hidden<'l>(&self, sandbox: &'l CommandSandbox, context: &ToolContext) -> &'l HiddenPaths {
        let project = &context.project;
        let find = || {
            self.find_hidden(
                sandbox.line.as_deref(),
                &project.environment,
                &project.worktree,
            )
        };
        sandbox.hidden.get_or_init(find)
    }

    /// Determines the paths that are hidden from a command line.
    fn find_hidden(
        &self,
        line: Option<&CommandAnalysis>,
        environment: &Environment,
        worktree: &Worktree,
    ) -> HiddenPaths {
        HiddenPaths::find(self.level, &self.settings, line, environment, worktree)
    }

    /// Returns the program wrapped by the sandbox, or the reason why that is not possible.
    fn wrapped(
        &self,
        sandbox: &CommandSandbox,
        context: &ToolContext,
        observer: Option<Arc<dyn WriteObserver>>,
        program: Program,
    ) -> Result<Program, String> {
        let level = self.level;
        let scratch = match scratch::create(&sandbox.scratch) {
            Ok(()) => Some(sandbox.scratch.clone()),
            Err(e) => {
                tracing::warn!("{} cannot be made: {e}", sandbox.scratch.display());
                None
            }
        };
        let program = match &scratch {
            Some(scratch) => program.env("TMPDIR", scratch),
            None => program,
        };
        if sandbox.proven.mechanism.is_none() {
            let nothing = SandboxPolicy {
                level,
                network: true,
                writable: vec![],
                protected: vec![],
                hidden: vec![],
                shown: vec![],
                has_foreign_files: false,
            };
            return self.sandbox.wrap(&sandbox.proven, &nothing, None, program);
        }
        let line = sandbox.line.as_deref();
        let (writable, protected) = match level {
            Level::ReadOnly => (existing(scratch), vec![]),
            Level::WorkspaceWrite => {
                let own: Vec<PathBuf> = self
                    .settings
                    .writable
                    .iter()
                    .map(|path| named(path, context))
                    .collect();
                let wanted = |path: &PathBuf| {
                    let shown = path
                        .strip_prefix(&context.project.worktree.root)
                        .unwrap_or(path);
                    !own.iter().any(|own| path.starts_with(own))
                        && !protected::affects_builds_only(shown)
                };
                let data = std::fs::canonicalize(&context.project.environment.dirs.data).ok();
                let keys = data.into_iter().flat_map(|data| {
                    [
                        data.join("auth.json"),
                        data.join("sessions"),
                        data.join("index.db"),
                    ]
                });
                if sandbox.proven.protects_control_files {
                    control_files::prepare(&context.project.worktree);
                }
                let protected = control_files::control_files(&context.project.worktree)
                    .into_iter()
                    .filter(wanted);
                let mut writable = existing(
                    self.writable_directories(context)
                        .into_iter()
                        .chain(scratch),
                );
                let mut protected = existing(protected);
                for named in line
                    .map(|line| {
                        named_writes(
                            line,
                            &context.policy.context,
                            &context.project.worktree.git_dirs(),
                        )
                    })
                    .unwrap_or_default()
                {
                    writable.extend(named.path_to_open(&writable, &protected));
                    protected = without_named(protected, &named);
                }
                // Nothing makes adjutant's own files writable.
                protected.extend(existing(keys));
                (writable, protected)
            }
        };
        let root = rustix::process::geteuid().is_root();
        let foreign = root && !owned_by_root(&context.project.worktree.root);
        let (hidden, shown) = match sandbox.proven.mechanism {
            Some(Mechanism::Landlock) | None => (vec![], vec![]),
            Some(Mechanism::Bubblewrap | Mechanism::Seatbelt) => {
                let hidden = self.hidden(sandbox, context);
                (hidden.paths.clone(), hidden.shown.clone())
            }
        };
        let policy = SandboxPolicy {
            level,
            network: sandbox.network,
            writable,
            protected,
            hidden,
            shown,
            has_foreign_files: foreign,
        };
        // As root, tar changes the owners of extracted files, which the sandbox forbids.
        let program = if root && !foreign {
            program.env_if_unset("TAR_OPTIONS", "--no-same-owner")
        } else {
            program
        };
        self.sandbox
            .wrap(&sandbox.proven, &policy, observer, program)
    }
}

/// Describes the paths that commands may write at a level, for the model. `control` is true if
/// control files are protected; `None` if that is not known.
fn writes(level: Level, control: Option<bool>) -> &'static str {
    match (level, control) {
        (Level::ReadOnly, _) => "only $TMPDIR",
        (Level::WorkspaceWrite, Some(true)) => {
            "the workspace root, additional directories, package caches, $TMPDIR and /tmp, but not control files (git hooks, settings of agents and editors)"
        }
        (Level::WorkspaceWrite, Some(false)) => {
            "the workspace root, additional directories, package caches, $TMPDIR and /tmp; changes of control files (git hooks, settings of agents and editors) are reported to the user"
        }
        (Level::WorkspaceWrite, None) => {
            "the workspace root, additional directories, package caches, $TMPDIR and /tmp; changes of control files (git hooks, settings of agents and editors) are refused, or reported to the user"
        }
    }
}

/// Returns whether root owns a file.
fn owned_by_root(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0)
}

/// Resolves a path of the settings: relative to the home directory with `~/`, otherwise to the
/// project.
fn named(path: &str, context: &ToolContext) -> PathBuf {
    match (path.strip_prefix("~/"), &context.project.environment.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => context.project.worktree.root.join(path),
    }
}

/// Returns whether hidden paths are actually invisible for commands in a sandbox.
fn hides_files(proven: &ProvenSandbox) -> bool {
    matches!(
        proven.mechanism,
        Some(Mechanism::Bubblewrap | Mechanism::Seatbelt)
    )
}

/// The reason why no command is run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "The settings require a sandbox for commands, and this system has none that meets them ({reasons})."
)]
pub struct MissingSandbox {
    reasons: String,
}

/// The sandboxes of an agent's commands that trial runs have confirmed, for queries that run no
/// command.
#[derive(Debug)]
pub struct TriedSandboxes {
    choice: SandboxChoice,
    /// The sandbox of known-harmless commands.
    harmless: Arc<ProvenSandbox>,
    /// The sandbox of the agent's other commands.
    agent: Arc<ProvenSandbox>,
}

impl TriedSandboxes {
    /// Returns the capabilities of the sandbox of a command line, as a call would get them.
    ///
    /// # Errors
    /// [`MissingSandbox`] if the call would be refused.
    pub fn of_command(
        &self,
        line: &CommandLine,
        worktree: &Worktree,
    ) -> Result<SandboxCapabilities, MissingSandbox> {
        let sandbox = line.sandbox();
        let choice = self.choice.for_command(sandbox);
        let proven = match sandbox {
            PlannedSandbox::Harmless => &self.harmless,
            PlannedSandbox::Agent | PlannedSandbox::Isolated => &self.agent,
        };
        choice.check_required(proven)?;
        let environment = choice.sandbox.environment();
        let mentions_hidden = || {
            choice
                .find_hidden(Some(&line.analysis), environment, worktree)
                .find_mention(&line.analysis.text, environment)
                .is_some()
        };
        Ok(choice.capabilities_of(proven, mentions_hidden))
    }

    /// Returns the level of the sandbox that a command runs in, whether or not it answers
    /// questions; `None` without a sandbox.
    pub fn level(&self, sandbox: PlannedSandbox) -> Option<Level> {
        let proven = match sandbox {
            PlannedSandbox::Harmless => &self.harmless,
            PlannedSandbox::Agent | PlannedSandbox::Isolated => &self.agent,
        };
        proven.mechanism.map(|_| proven.level)
    }

    /// Returns the capabilities of the agent's sandbox, as far as they do not depend on a command.
    pub fn of_agent(&self) -> SandboxCapabilities {
        self.choice.capabilities_of(&self.agent, || true)
    }
}

impl CommandSandbox {
    /// Returns the sandbox with the restrictions of a plan: an isolated one has no network.
    #[must_use]
    pub fn planned(self, sandbox: PlannedSandbox) -> Self {
        match sandbox {
            PlannedSandbox::Harmless | PlannedSandbox::Agent => self,
            PlannedSandbox::Isolated => Self {
                network: false,
                restrictions: self
                    .restrictions
                    .map(|_| self.proven.describe_restrictions(false)),
                ..self
            },
        }
    }

    /// Describes the effects that a command line can have in it. `None` if the settings turn the sandbox off.
    pub(super) fn describe_effect(
        &self,
        line: &CommandAnalysis,
        context: &PermissionContext,
    ) -> Option<String> {
        self.restrictions.as_ref()?;
        let guarantee = match (self.proven.mechanism, self.proven.level) {
            (None, _) => SandboxGuarantee::None,
            (Some(_), Level::ReadOnly) => SandboxGuarantee::READ_ONLY,
            (Some(_), Level::WorkspaceWrite) => SandboxGuarantee::WORKSPACE,
        };
        let opened = match guarantee {
            SandboxGuarantee::Workspace { .. } => describe_opened_by_consent(line, context),
            SandboxGuarantee::None | SandboxGuarantee::ReadOnly { .. } => String::new(),
        };
        let effect = guarantee.effect(line.is_read_only());
        Some(format!("{}: {effect}{opened}", guarantee.as_str()))
    }

    /// Explains, for the model, that a command may have failed because a path is hidden, see
    /// [`HiddenPaths::explain_failure`].
    pub fn hidden_path_hint(
        &self,
        output: &str,
        command: &str,
        environment: &Environment,
    ) -> Option<String> {
        if !hides_files(&self.proven) {
            return None;
        }
        self.hidden
            .get()?
            .explain_failure(output, command, environment)
    }

    /// Explains, for the model, that the sandbox may have caused a failure. Returns `None` if the
    /// output does not suggest that.
    pub fn explain_failure(&self, output: &str) -> Option<String> {
        self.proven.mechanism?;
        const FILES: [&str; 6] = [
            "Read-only file system",
            "Permission denied",
            "Operation not permitted",
            "no new privileges",
            "EROFS",
            "EACCES",
        ];
        const NETWORK: [&str; 8] = [
            "Network is unreachable",
            "Could not resolve host",
            "Temporary failure in name resolution",
            "Name or service not known",
            "getaddrinfo",
            "EAI_AGAIN",
            "ENETUNREACH",
            "failed to lookup address",
        ];
        let what = if !self.network && contains_any(output, &NETWORK) {
            "has no network"
        } else if contains_any(output, &FILES) || (!self.network && output.contains("EPERM")) {
            let network = if self.network {
                ""
            } else {
                "; it has no network"
            };
            &format!(
                "can write {}{network}",
                writes(self.proven.level, Some(self.proven.protects_control_files))
            )
        } else {
            return None;
        };
        Some(format!(
            "The sandbox may have caused the failure ({}): the command {what}. It was not run outside the sandbox. If it must be, say so and let the user decide; the setting is \"sandbox\".",
            self.restrictions.as_deref().unwrap_or_default()
        ))
    }
}

/// Returns whether an output contains one of these texts.
fn contains_any(output: &str, signs: &[&str]) -> bool {
    signs.iter().any(|sign| output.contains(sign))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use sandbox::Mechanism;

    fn sandbox(level: Level, network: bool, mechanism: Option<Mechanism>) -> CommandSandbox {
        let proven = Arc::new(ProvenSandbox {
            mechanism,
            ..ProvenSandbox::none(level, vec![])
        });
        CommandSandbox {
            proven,
            network,
            scratch: PathBuf::new(),
            restrictions: Some("words".into()),
            line: None,
            hidden: OnceLock::new(),
        }
    }

    #[test]
    fn sandbox_is_blamed_only_for_matching_failures() {
        use Level::{ReadOnly, WorkspaceWrite};
        let proven = Some(Mechanism::Landlock);
        let table = [
            (
                ReadOnly,
                false,
                proven,
                "touch: a: Permission denied",
                Some("can write only $TMPDIR; it has no"),
            ),
            (
                ReadOnly,
                true,
                proven,
                "sh: 1: a: Read-only file system",
                Some("can write only $TMPDIR. It"),
            ),
            (
                WorkspaceWrite,
                true,
                proven,
                "Operation not permitted",
                Some("settings of agents and editors) are reported"),
            ),
            (
                WorkspaceWrite,
                true,
                proven,
                "Could not resolve host: x",
                None,
            ),
            (
                WorkspaceWrite,
                false,
                proven,
                "Could not resolve host: x",
                Some("has no network"),
            ),
            (WorkspaceWrite, true, proven, "assertion failed", None),
            (ReadOnly, false, None, "Permission denied", None),
        ];
        for (level, network, mechanism, output, wanted) in table {
            let blame = sandbox(level, network, mechanism).explain_failure(output);
            assert_eq!(blame.is_some(), wanted.is_some(), "{output}");
            assert!(
                blame
                    .unwrap_or_default()
                    .contains(wanted.unwrap_or_default()),
                "{output}"
            );
        }
    }

    #[test]
    fn reach_does_not_change_after_first_use() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::from_vars(BTreeMap::from([(
            "HOME".to_owned(),
            home.path().display().to_string(),
        )]));
        let unknown = SandboxChoice::new(&Sandbox::new(&environment));
        let reach = unknown.reach();
        assert!(reach.starts_with(
            "Commands run in a sandbox if this system supports it: they can write the workspace root"
        ));
        assert!(
            reach.contains("are refused, or reported to the user; they can use the network."),
            "{reach}"
        );
        let reading = unknown.reading().reach();
        assert!(
            reading.contains("they can write only $TMPDIR; they have no network. $TMPDIR belongs"),
            "{reading}"
        );
        // The text does not change with the settings.
        let settings = Arc::new(settings::SandboxSettings {
            mode: SandboxMode::Off,
            ..settings::SandboxSettings::default()
        });
        assert_eq!(
            SandboxChoice {
                settings,
                ..unknown
            }
            .reach(),
            reach
        );
        let off = SandboxChoice::none(&environment).reach();
        assert!(off.starts_with("Commands run without a sandbox"), "{off}");
    }

    #[test]
    fn only_reads_depends_on_last_edit_rules() {
        use permission::Action::{Allow, Ask, Deny};
        use permission::Rule;
        let built_in = |list: &[(&str, &str, permission::Action)]| Rules::built_in(list);
        let user = |pattern: &str, action| Rule {
            permission: "edit".into(),
            pattern: pattern.into(),
            action,
            source: "opencode.json:1".into(),
        };
        assert!(!only_reads(&built_in(&[])));
        assert!(!only_reads(&built_in(&[("*", "*", Allow)])));
        assert!(only_reads(&built_in(&[
            ("*", "*", Allow),
            ("edit", "*", Deny),
            ("edit", "plans/*", Allow)
        ])));
        assert!(only_reads(&built_in(&[
            ("*", "*", Deny),
            ("read", "*", Allow)
        ])));
        let mut rules = built_in(&[("edit", "*", Deny)]);
        rules.extend([user("docs/*", Ask)]);
        assert!(!only_reads(&rules));
        rules.extend([user("*", Deny)]);
        assert!(only_reads(&rules));
    }
}
