//! What a step does to the files, so that it can be shown and taken back.
//!
//! Files that an edit names are looked at just before it and just after. What our own commands write is reported before
//! they do (`sandbox/writes.rs`) and kept in a journal; nothing else is looked at. What a subagent changed, its own
//! session has recorded.
//!
//! Where nothing is reported (no sandbox, tools that others run), the whole project is compared, if that does not take
//! long. That begins a moment after the model has named such a tool, while it still writes the arguments and the user
//! still thinks; the call waits for it. What is found that way may be somebody else's work, and is marked so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinError;
use tokio::time::timeout;

use super::TurnContext;
use base::id::{CallId, MessageId, PartId};
use base::lock::locked;
use base::task::{JoinHandle, spawn_blocking};
use config::settings::HookPoint;
use events::{Event, Severity};
use extensions::any;
use permission::Need;
use permission::shell::Unit;
use sandbox::{PendingWrite, WriteObserver};
use snapshot::{JournalEntries, Mark, Tracker, Untracked, WriteJournal};
use tools::bash::BashTool;
use tools::registry::find_properties;
use tools::task::TaskTool;
use tools::{Tool as _, ToolContext, format};
use transcript::{self, Call, Change, Content, FileChange, FileState, Part, ToolKind, UnkeptReason, UnkeptWrite};

/// How long a tool that was named may turn out to change nothing before the project is compared for it.
const MOMENT: Duration = Duration::from_millis(20);

/// What a step does to the files is seen by this.
pub struct ChangeRecorder {
    tracker: Option<Arc<Tracker>>,
    /// Ends the comparison before the first call, when nobody waits for it any more.
    stop: Arc<AtomicBool>,
    // Leaf locks, held for a moment.
    comparing: Mutex<Option<JoinHandle<Result<Mark, Untracked>>>>,
    /// Told when a call waits: then it begins at once.
    awaited: Arc<Notify>,
    mark: OnceCell<Option<Mark>>,
    named: Mutex<Vec<EditedFile>>,
    /// What commands report.
    journal: Option<Arc<WriteJournal>>,
    /// What calls that are over have written is being looked at.
    looking: Mutex<Vec<JoinHandle<()>>>,
    /// The part that says what the step does to the files, written before it does it.
    part: PartId,
    message: MessageId,
    /// What it was about to do, edit by edit.
    begun: Mutex<Vec<FileChange>>,
}

/// A file that an edit named.
struct EditedFile {
    /// The call that edits it.
    call: CallId,
    path: PathBuf,
    old: Option<FileState>,
    /// The project was compared before the edit.
    marked: bool,
    /// A command had touched it before the edit: the journal knows what it was.
    touched: bool,
}

impl Drop for ChangeRecorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Whether a call may change files it does not name. What a server says of its tools is no promise.
pub fn sweeps(kind: ToolKind, tool: &str) -> bool {
    let own = find_properties(tool).map(|tool| tool.sweeps);
    let acts = matches!(kind, ToolKind::Execute | ToolKind::Delete | ToolKind::Move | ToolKind::Other);
    own.unwrap_or(acts || !mcp::LOOKING.contains(&tool))
}

/// Whether all that a call of a tool of ours starts is reported where its sandbox reports anything: commands, and
/// subagents, whose sessions see to that themselves.
fn reports(tool: &str) -> bool {
    [BashTool::NAME, TaskTool::NAME].contains(&tool)
}

/// Has a journal keep what a call's programs are about to write.
#[derive(Debug)]
struct JournalObserver {
    journal: Arc<WriteJournal>,
    call: CallId,
    /// The call's title, for people.
    title: String,
}

impl WriteObserver for JournalObserver {
    fn started(&self) {
        self.journal.started();
    }

    fn about_to_write(&self, write: PendingWrite) {
        match write {
            PendingWrite::File { path, pid } => self.journal.touch(&path, pid, &self.call),
            PendingWrite::Directory { from, to, exchange } => {
                self.journal.touch_directory(&from, &to, exchange, &self.call);
            }
            PendingWrite::Unknown => self.journal.note_unkept(&self.title, UnkeptReason::Unreported),
        }
    }

    fn refused(&self) {
        self.journal.note_unkept(&self.title, UnkeptReason::Unreported);
    }

    fn ended(&self) {
        self.journal.ended(&self.call);
    }
}

/// Whether a call is a command line of which every part is known to change nothing.
fn only_reads(needs: &[Need]) -> bool {
    let mut lines = needs.iter().filter_map(|need| need.command.as_ref()).peekable();
    lines.peek().is_some() && lines.all(|line| line.is_read_only())
}

/// Whether a command hands work to a service: what that writes, nobody reports.
fn uses_a_service(needs: &[Need]) -> bool {
    let lines = needs.iter().filter_map(|need| need.command.as_ref());
    lines.flat_map(|line| &line.units).any(Unit::runs_in_container)
}

impl ChangeRecorder {
    /// Nothing is looked at yet.
    pub fn new(scope: &TurnContext, message: &MessageId) -> Self {
        let tracker = scope.resources.snapshots.clone().filter(|_| scope.project.settings.snapshot);
        Self {
            journal: tracker.clone().map(|tracker| Arc::new(WriteJournal::new(tracker))),
            tracker,
            stop: Arc::default(),
            comparing: Mutex::default(),
            awaited: Arc::default(),
            mark: OnceCell::new(),
            named: Mutex::default(),
            looking: Mutex::default(),
            part: PartId::new(scope.environment.fresh(PartId::PREFIX)),
            message: message.clone(),
            begun: Mutex::default(),
        }
    }

    /// The model has named a tool.
    pub fn announced(&self, scope: &TurnContext, kind: ToolKind, tool: &str) {
        let replaced = scope.project.settings.replace_tools.iter().any(|replaced| replaced == tool);
        let reported = tool == TaskTool::NAME
            || reports(tool)
                && scope.permissions.confinement.may_report(&scope.project.settings)
                && scope.resources.exec.is_empty();
        if sweeps(kind, tool) && (replaced || !reported) && !self.mark.initialized() {
            self.compare();
        }
    }

    /// What the programs of a call report to.
    pub fn observer(&self, call: &CallId, title: &str) -> Option<Arc<dyn WriteObserver>> {
        let journal = self.journal.clone()?;
        Some(Arc::new(JournalObserver { journal, call: call.clone(), title: title.to_owned() }))
    }

    fn compare(&self) {
        let Some(tracker) = self.tracker.clone() else { return };
        let mut comparing = locked(&self.comparing);
        if comparing.is_none() {
            let (stop, awaited) = (self.stop.clone(), self.awaited.clone());
            *comparing = Some(base::task::spawn(async move {
                timeout(MOMENT, awaited.notified()).await.ok();
                let compared = spawn_blocking(move || tracker.mark(&stop)).await;
                compared.unwrap_or_else(|e| Err(Untracked::Failed(e.to_string())))
            }));
        }
    }

    /// A call is about to act. Returns when what it may change is known; sooner when the turn is
    /// cancelled.
    pub async fn before(&self, scope: &TurnContext, call: &Call, needs: &[Need], context: &ToolContext) {
        let Some(tracker) = &self.tracker else { return };
        let (kind, tool) = (call.kind, call.tool.as_str());
        let changes: Vec<Arc<Change>> = needs.iter().flat_map(|need| need.changes.clone()).collect();
        // A hook may change anything.
        let settings = &scope.project.settings;
        let hooked = any(settings, HookPoint::ToolBefore) || any(settings, HookPoint::ToolAfter);
        // So may a custom tool in the place of one of ours.
        let replaced = settings.replace_tools.iter().any(|replaced| replaced == tool);
        let acts = replaced || kind.acts() || sweeps(kind, tool) || !changes.is_empty();
        if !acts || !hooked && only_reads(needs) {
            return;
        }
        // What stands before each command may run it where nothing is reported.
        let reported = context.session.exec.is_empty() && context.confinement.reports().await;
        let sweeping = replaced || sweeps(kind, tool) || (changes.is_empty() && kind == ToolKind::Edit);
        if sweeping {
            let seen = !replaced && (tool == TaskTool::NAME || reported && reports(tool));
            if !seen || hooked && !reported {
                self.compared(scope, &call.title).await;
            } else if let (Some(journal), true) = (&self.journal, uses_a_service(needs)) {
                journal.note_unkept(&call.title, UnkeptReason::Unreported);
            }
            return;
        }
        // So may a formatter that follows what a file names to other files.
        let formatted = changes.iter().any(|change| format::any(settings, Path::new(&change.path)));
        if !reported && (hooked || formatted) {
            self.compared(scope, &call.title).await;
        }
        // What the edit finds is not what an earlier call is blamed for.
        let looking = std::mem::take(&mut *locked(&self.looking));
        for looking in looking {
            looking.await.ok();
        }
        let (tracker, marked) = (tracker.clone(), self.mark.get().is_some_and(Option::is_some));
        let (journal, id) = (self.journal.clone(), call.call.clone());
        let look = move || -> Vec<(EditedFile, FileChange)> {
            let one = |change: Arc<Change>| {
                let path = resolved(Path::new(&change.path));
                let looked = before(&tracker, &path, &change)
                    .and_then(|old| Ok((after_edit(&tracker, old.as_ref(), &change)?, old)));
                match looked {
                    Ok((new, old)) => {
                        let name = path.display().to_string();
                        let begun = FileChange { path: name, old: old.clone(), new, compared: false };
                        let touched = journal.as_ref().is_some_and(|journal| journal.has_touched(&path));
                        Some((EditedFile { call: id.clone(), path, old, marked, touched }, begun))
                    }
                    Err(e) => {
                        tracing::warn!("what {} was is not kept: {e}", path.display());
                        None
                    }
                }
            };
            changes.into_iter().filter_map(one).collect()
        };
        let fresh = spawn_blocking(look).await.unwrap_or_default();
        if fresh.is_empty() {
            return;
        }
        let files = {
            let mut named = locked(&self.named);
            let mut begun = locked(&self.begun);
            for (fresh, change) in fresh {
                begun.push(change);
                named.push(fresh);
            }
            begun.clone()
        };
        // Before anything is done: a process that is killed meanwhile must know what it was about to do.
        if let Some(tracker) = &self.tracker {
            scope.record.contents(tracker, &files).await;
        }
        let part = Part { id: self.part.clone(), content: Content::Patch { files, begun: true, unkept: Vec::new() } };
        scope.record.part(&self.message, &part).await;
        scope.record.handed_over().await;
    }

    /// A call is over. What it wrote is looked at before the user saves anything else, as far as that can be done.
    pub async fn after(&self, scope: &TurnContext, call: &CallId) {
        let Some(journal) = self.journal.clone() else { return };
        journal.add(scope.child_changes.take());
        let edited: Vec<EditedFile> =
            locked(&self.named).extract_if(.., |file| file.call == *call && !file.marked).collect();
        if edited.is_empty() && journal.is_empty() {
            return;
        }
        let (id, waits) = (call.clone(), !edited.is_empty());
        let looking = spawn_blocking(move || {
            for EditedFile { path, old, touched, .. } in edited {
                if let Err(e) = journal.finish_edit(&id, &path, old, touched) {
                    tracing::warn!("what became of {} is not kept: {e}", path.display());
                    journal.note_unkept(&path.display().to_string(), UnkeptReason::Unreadable);
                }
            }
            journal.finish(&id);
        });
        // An edit is looked at in a moment; a command may have written very many files, and nobody waits for those.
        if waits {
            looking.await.ok();
        } else {
            locked(&self.looking).push(looking);
        }
    }

    /// Has the project been compared before a call, unless the turn is cancelled.
    async fn compared(&self, scope: &TurnContext, title: &str) {
        tokio::select! {
            () = self.marked(scope) => {}
            () = scope.cancelled.cancelled() => {}
        }
        if let (Some(None), Some(journal)) = (self.mark.get(), &self.journal) {
            journal.note_unkept(title, UnkeptReason::Unreported);
        }
    }

    async fn marked(&self, scope: &TurnContext) {
        let mark = || async {
            self.compare();
            self.awaited.notify_one();
            let comparing = locked(&self.comparing).take();
            match comparing?.await.unwrap_or_else(|e| Err(Untracked::Failed(e.to_string()))) {
                Ok(mark) => Some(mark),
                Err(off) => {
                    self.tell(scope, &off).await;
                    None
                }
            }
        };
        self.mark.get_or_init(mark).await;
    }

    /// Says once what cannot be undone later.
    async fn tell(&self, scope: &TurnContext, off: &Untracked) {
        tracing::warn!("the project is not compared: {off}");
        if *off != Untracked::Stopped && self.tracker.as_ref().is_some_and(|tracker| tracker.tell()) {
            let title = "What commands change in the files cannot be undone here; edits can.".into();
            let notice = Event::Notice { severity: Severity::Warning, title, details: Some(off.to_string()) };
            scope.outlet.event(notice).await;
        }
    }

    /// The step is over: what it changed is looked for from now on, while others go on. Nothing may act
    /// until [`StepChanges::kept`] has returned. None where it cannot have changed anything.
    pub fn finish(mut self, scope: &TurnContext) -> Option<StepChanges> {
        let (tracker, journal) = (self.tracker.clone()?, self.journal.clone()?);
        let mark = self.mark.take().flatten();
        let named = std::mem::take(&mut *locked(&self.named));
        let mut done = scope.child_changes.take();
        if journal.is_open() {
            // What goes on in the background may write until it ends.
            scope.resources.late_changes.expect(&self.message, &self.part, &journal);
        }
        if mark.is_none() && named.is_empty() && journal.is_empty() && done.files.is_empty() && done.unkept.is_empty() {
            return None;
        }
        let looking = std::mem::take(&mut *locked(&self.looking));
        let look = move || {
            let (entries, off) = after(&tracker, mark.as_ref(), named, &journal);
            done.files.extend(entries.files);
            done.unkept.extend(entries.unkept);
            (done, off)
        };
        let looked = base::task::spawn(async move {
            for looking in looking {
                looking.await.ok();
            }
            spawn_blocking(look).await
        });
        Some(StepChanges { looked, recorder: self })
    }
}

/// What a step changed, which is being found out.
pub struct StepChanges {
    looked: JoinHandle<Result<(JournalEntries, Option<Untracked>), JoinError>>,
    recorder: ChangeRecorder,
}

impl StepChanges {
    /// The part that says so, and its message. It is kept by then. None where nothing was changed.
    pub async fn kept(self, scope: &TurnContext) -> Option<(MessageId, Part)> {
        let looked = self.looked.await.flatten();
        let recorder = self.recorder;
        let failed = |e: JoinError| (JournalEntries::default(), Some(Untracked::Failed(e.to_string())));
        let (JournalEntries { files, unkept }, off) = looked.unwrap_or_else(failed);
        if let Some(off) = off {
            recorder.tell(scope, &off).await;
        }
        let unwritten = locked(&recorder.begun).is_empty();
        let nothing = files.is_empty() && unkept.is_empty();
        if nothing && unwritten {
            return None;
        }
        if let Some(tracker) = &recorder.tracker {
            scope.record.contents(tracker, &files).await;
        }
        if let Some(parent) = &scope.parent_changes {
            parent.add(&files, &unkept);
        }
        let part = Part { id: recorder.part.clone(), content: Content::Patch { files, begun: false, unkept } };
        scope.record.part(&recorder.message, &part).await;
        (!nothing).then(|| (recorder.message.clone(), part))
    }
}

/// What a file was before an edit. Where the editor held changes that were not saved, the edit was
/// made to those, and they are what has to come back.
fn before(tracker: &Tracker, path: &Path, change: &Change) -> std::io::Result<Option<FileState>> {
    let saved = tracker.look(path)?;
    let Some(text) = &change.old else { return Ok(saved) };
    let bytes = saved.as_ref().and_then(|state| tracker.content(state).ok());
    let same = bytes.is_some_and(|bytes| {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        bytes == text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes()
    });
    if same {
        return Ok(saved);
    }
    let kind = saved.map(|state| state.kind).unwrap_or_default();
    Ok(Some(FileState { kind, ..tracker.keep(text.as_bytes())? }))
}

/// What a file is meant to be after an edit. An empty text is no file, or an empty one.
fn after_edit(tracker: &Tracker, old: Option<&FileState>, change: &Change) -> std::io::Result<Option<FileState>> {
    const MARK: &str = "\u{feff}";
    if change.new.is_empty() && old.is_some() {
        return Ok(None);
    }
    let marked = old.and_then(|old| tracker.content(old).ok()).is_some_and(|old| old.starts_with(MARK.as_bytes()));
    let mark = if marked && !change.new.starts_with(MARK) { MARK } else { "" };
    let kind = old.map(|old| old.kind).unwrap_or_default();
    Ok(Some(FileState { kind, ..tracker.keep(format!("{mark}{}", change.new).as_bytes())? }))
}

fn after(
    tracker: &Tracker,
    mark: Option<&Mark>,
    named: Vec<EditedFile>,
    journal: &WriteJournal,
) -> (JournalEntries, Option<Untracked>) {
    let compared = mark.map(|mark| tracker.since(mark, &AtomicBool::new(false)));
    let (changes, off) = match compared {
        None => (Vec::new(), None),
        Some(Ok(changes)) => (changes, None),
        Some(Err(off)) => (Vec::new(), Some(off)),
    };
    let JournalEntries { files: reported, mut unkept } = journal.take();
    if off.is_some() {
        unkept.push(UnkeptWrite { what: "the calls of a step".into(), why: UnkeptReason::Unreported });
    }
    // What is reported is known better than what was found by comparing.
    let mut files: BTreeMap<String, Vec<FileChange>> = BTreeMap::new();
    for change in &reported {
        files.entry(change.path.clone()).or_default().push(change.clone());
    }
    for change in changes {
        let known = files.entry(change.path.clone()).or_default();
        match known.last() {
            Some(last) if last.new == change.new => {}
            // What was found goes beyond what was reported.
            Some(last) => known.push(FileChange { old: last.new.clone(), ..change }),
            None => known.push(change),
        }
    }
    for file in named {
        // What was compared before the edit is known from the comparison, changed or not.
        let compared = file.marked && off.is_none() && tracker.knows(&file.path);
        let Some(name) = file.path.to_str().map(str::to_owned) else { continue };
        let known = files.entry(name).or_default();
        // A call of this session has changed it.
        known.iter_mut().for_each(|change| change.compared = false);
        if compared {
            continue;
        }
        // The edit was cut off: what the file is now is the best that is known.
        let old = known.last().map(|known| known.new.clone());
        let change = changed(tracker, EditedFile { old: old.unwrap_or(file.old.clone()), ..file });
        known.extend(change);
    }
    let files = transcript::merged(files.values().flatten());
    (JournalEntries { files, unkept }, off)
}

/// What became of a file that an edit has named.
fn changed(tracker: &Tracker, file: EditedFile) -> Option<FileChange> {
    let EditedFile { path, old, .. } = file;
    let name = path.to_str()?.to_owned();
    match tracker.look(&path) {
        Ok(new) => (new != old).then_some(FileChange { path: name, old, new, compared: false }),
        Err(e) => {
            tracing::warn!("what became of {name} is not kept: {e}");
            None
        }
    }
}

/// A path with the symlinks on its way resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let exists = path.ancestors().find_map(|dir| Some((dir, std::fs::canonicalize(dir).ok()?)));
    match exists {
        Some((dir, real)) => match path.strip_prefix(dir) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use permission::{PermissionContext, command_need};

    #[test]
    fn commands_that_only_read_or_use_a_service_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let place =
            PermissionContext { root: dir.path().into(), cwd: dir.path().into(), ..PermissionContext::default() };
        let of = |lines: &[&str]| lines.iter().map(|line| command_need(line, &place)).collect::<Vec<_>>();
        let read = Need::new("read", "a.txt");
        for lines in [&["echo a"][..], &["ls | wc -l"], &["ls", "cat a"]] {
            assert!(only_reads(&of(lines)), "{lines:?}");
            assert!(only_reads(&[of(lines), vec![read.clone()]].concat()), "{lines:?}, and what it reads");
        }
        for lines in
            [&["echo a > b"][..], &["make"], &["ls; touch a"], &["ls", "rm a"], &["$(cat x)"], &["ls $(touch a)"]]
        {
            assert!(!only_reads(&of(lines)), "{lines:?}");
        }
        for (line, wanted) in [
            ("docker run -v .:/src img make", true),
            ("cd x && docker compose up -d", true),
            ("podman exec c touch a", true),
            ("docker ps", false),
            ("make", false),
        ] {
            assert_eq!(uses_a_service(&of(&[line])), wanted, "{line}");
        }
        // What is no command says nothing of what it changes.
        assert!(!only_reads(&[]) && !only_reads(&[read]));
    }
}
