//! Property tests of undo and redo: random sequences of turns, edits of the user, undo and redo,
//! with and without force, compared with a model of the rules.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::turn::History;
use base::environment::Timestamp;
use base::id::{MessageId, PartId, SessionId};
use store::Store;
use transcript::{Assistant, LatePlace, ModelRef, Part, Role, Text, Usage, User};

const FILES: usize = 4;

#[derive(Debug, Clone)]
enum Act {
    /// The session writes or removes files.
    Turn(Vec<(usize, Option<u8>)>),
    User(usize, Option<u8>),
    Undo(bool),
    Redo,
    /// A version of a file, by its number.
    Restore(usize, usize),
    /// The process ends, and another one continues.
    Restart,
}

type Tree = BTreeMap<usize, u8>;

/// The change of a file: its number, old and new content.
type Step = (usize, Option<u8>, Option<u8>);

#[derive(Default)]
struct Rules {
    tree: Tree,
    turns: Vec<Vec<Step>>,
    /// The changes made by each undo, and those it left out.
    undone: Vec<(Vec<Step>, Vec<Step>)>,
    /// The changes of past undos that were not redone.
    past: Vec<Vec<Step>>,
}

impl Rules {
    fn set(&mut self, file: usize, to: Option<u8>) {
        match to {
            Some(text) => self.tree.insert(file, text),
            None => self.tree.remove(&file),
        };
    }

    fn turn(&mut self, changes: &[(usize, Option<u8>)]) -> Vec<Step> {
        // The messages of undone turns are deleted.
        self.turns.truncate(self.turns.len() - self.undone.len());
        self.past.extend(
            self.undone
                .drain(..)
                .map(|(done, _)| done)
                .filter(|done| !done.is_empty()),
        );
        let mut steps: BTreeMap<usize, Step> = BTreeMap::new();
        for (file, to) in changes {
            let now = self.tree.get(file).copied();
            steps.entry(*file).or_insert((*file, now, None)).2 = *to;
            self.set(*file, *to);
        }
        let steps: Vec<Step> = steps
            .into_values()
            .filter(|(_, old, new)| old != new)
            .collect();
        self.turns.push(steps.clone());
        steps
    }

    /// Changes files from `old` to `new` if they are `old`, or with `force`.
    fn apply(&mut self, steps: &[Step], force: bool) -> (Vec<Step>, Vec<Step>) {
        let mut done = Vec::new();
        let mut left = Vec::new();
        for (file, old, new) in steps {
            let now = self.tree.get(file).copied();
            if now == *new {
                continue;
            }
            if now == *old || force {
                done.push((*file, now, *new));
                self.set(*file, *new);
            } else {
                left.push((*file, *old, *new));
            }
        }
        (done, left)
    }

    fn undo(&mut self, force: bool) -> bool {
        if force && self.undone.last().is_some_and(|(_, left)| !left.is_empty()) {
            let left = std::mem::take(&mut self.undone.last_mut().unwrap().1);
            let (done, left) = self.apply(&left, true);
            let last = self.undone.last_mut().unwrap();
            last.0.extend(done);
            last.1 = left;
            return true;
        }
        let Some(at) = (self.turns.len() - self.undone.len()).checked_sub(1) else {
            return false;
        };
        let back: Vec<Step> = self.turns[at]
            .iter()
            .map(|(file, old, new)| (*file, *new, *old))
            .collect();
        let applied = self.apply(&back, force);
        self.undone.push(applied);
        true
    }

    fn restore(&mut self, file: usize, text: u8) {
        let now = self.tree.get(&file).copied();
        if now != Some(text) {
            self.set(file, Some(text));
            self.past.push(vec![(file, now, Some(text))]);
        }
    }

    fn redo(&mut self) -> bool {
        let Some(done) = self
            .undone
            .pop()
            .map(|(done, _)| done)
            .or_else(|| self.past.pop())
        else {
            return false;
        };
        let back: Vec<Step> = done
            .iter()
            .map(|(file, old, new)| (*file, *new, *old))
            .collect();
        self.apply(&back, false);
        true
    }
}

struct Life {
    _dir: tempfile::TempDir,
    data: PathBuf,
    root: PathBuf,
    restore: RestoreContext,
    store: Store,
    history: History,
    record: Record,
}

impl Life {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let root = base.join("root");
        let data = base.join("data");
        fs::create_dir_all(&root).unwrap();
        let restore = Self::restore(&data, &root);
        let record = Record::new(SessionId::new("ses_00000001"), root.clone(), Timestamp(1));
        Self {
            store: Store::start(&data),
            history: History::default(),
            _dir: dir,
            data,
            root,
            restore,
            record,
        }
    }

    fn restore(data: &Path, root: &Path) -> RestoreContext {
        let tracker = Arc::new(Tracker::new(data, root, None));
        RestoreContext {
            tracker,
            worktree: Arc::new(Worktree::find(root, &[], None)),
            editor: None,
        }
    }

    fn recorder(&self) -> Recorder {
        Recorder::new(self.store.clone(), self.record.id.clone())
    }

    fn path(&self, file: usize) -> PathBuf {
        self.root.join(format!("d{}/f{file}", file % 2))
    }

    fn set(&self, file: usize, to: Option<u8>) {
        let path = self.path(file);
        match to {
            Some(text) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text.to_string()).unwrap();
            }
            None => drop(fs::remove_file(path)),
        }
    }

    fn tree(&self) -> Tree {
        let read = |file| {
            Some((
                file,
                fs::read_to_string(self.path(file)).ok()?.parse().unwrap(),
            ))
        };
        (0..FILES).filter_map(read).collect()
    }

    /// Makes a turn of edits.
    async fn turn(&mut self, n: usize, changes: &[(usize, Option<u8>)], steps: &[Step]) {
        let before: Vec<_> = steps
            .iter()
            .map(|(file, ..)| self.restore.tracker.record_file(&self.path(*file)).unwrap())
            .collect();
        for (file, to) in changes {
            self.set(*file, *to);
        }
        let files: Vec<FileChange> = steps
            .iter()
            .zip(before)
            .map(|((file, ..), old)| {
                let path = self.path(*file);
                FileChange {
                    path: path.display().to_string(),
                    old,
                    new: self.restore.tracker.record_file(&path).unwrap(),
                    compared: false,
                    sequence: 0,
                }
            })
            .collect();
        self.changed(n, files).await;
    }

    /// Makes a turn of a command.
    async fn command(&mut self, n: usize, work: impl FnOnce(&Self)) {
        let go = AtomicBool::new(false);
        let mark = self.restore.tracker.mark(&go).unwrap();
        work(self);
        let mut files = self.restore.tracker.since(&mark, &go).unwrap();
        // As if the sandbox had reported the writes.
        files.iter_mut().for_each(|change| change.compared = false);
        self.changed(n, files).await;
    }

    /// Stores the messages of a turn with file changes.
    async fn changed(&mut self, n: usize, files: Vec<FileChange>) {
        let recorder = self.recorder();
        delete_undone_turns(&mut self.history, &mut self.record, &recorder).await;
        let model = ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        let part = |name: &str, content| Part {
            id: PartId::new(format!("{name}{n}")),
            content,
        };
        let text = Content::Text(Text {
            text: format!("turn {n}").into(),
            ..Text::default()
        });
        let prompt = Message {
            id: MessageId::new(format!("u{n}")),
            created: Timestamp(0),
            role: Role::User(User {
                agent: "build".into(),
                model: model.clone(),
            }),
            parts: vec![part("w", text)],
        };
        let assistant = Assistant {
            parent: prompt.id.clone(),
            agent: "build".into(),
            model,
            finish: None,
            fault: None,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: None,
        };
        let parts = if files.is_empty() {
            vec![]
        } else {
            vec![part(
                "p",
                Content::Patch {
                    files,
                    begun: false,
                    unrecorded: vec![],
                    late: None,
                },
            )]
        };
        let answer = Message {
            id: MessageId::new(format!("a{n}")),
            created: Timestamp(0),
            role: Role::Assistant(assistant),
            parts,
        };
        for message in [prompt, answer] {
            recorder.store_message(&message).await;
            self.history.messages.push(message);
        }
        recorder.session(&self.record).await;
        recorder.flush().await.unwrap();
    }

    async fn undo(&mut self) -> RevertReport {
        let recorder = self.recorder();
        let point = RevertPoint::LastTurn;
        undo(
            &self.history.messages,
            &mut self.record,
            &recorder,
            &self.restore,
            &point,
            false,
        )
        .await
        .unwrap()
    }

    async fn redo(&mut self) -> RevertReport {
        let recorder = self.recorder();
        redo(
            &self.history.messages,
            &mut self.record,
            &recorder,
            &self.restore,
        )
        .await
        .unwrap()
    }

    /// Restores a version of a file, if there is one with this number.
    async fn restore_version(&mut self, file: usize, number: usize, rules: &mut Rules) {
        let path = self.path(file);
        let versions = versions(&self.history.messages, &self.record, &path);
        let Some(version) = versions.into_iter().nth(number) else {
            return;
        };
        let bytes = self.restore.tracker.content(&version.state).unwrap();
        let recorder = self.recorder();
        restore_version(
            &self.history.messages,
            &mut self.record,
            &recorder,
            &self.restore,
            path,
            version,
        )
        .await
        .unwrap();
        let text = String::from_utf8(bytes).unwrap();
        rules.restore(file, text.parse().unwrap());
    }

    /// Returns the contents that the session has given to files, except the `touched` ones, none of
    /// which existed at first.
    fn written(&self, touched: &BTreeSet<usize>) -> Tree {
        let changes = changes::session_changes(&self.history.messages, &self.record);
        let content = |file: usize| {
            let path = self.path(file).display().to_string();
            let mut of_file = changes.iter().filter(|change| change.path == path);
            let change = of_file.next()?;
            assert_eq!((&change.old, of_file.next()), (&None, None));
            let new = change.new.as_ref().unwrap();
            let text = String::from_utf8(self.restore.tracker.content(new).unwrap());
            Some((file, text.unwrap().parse().unwrap()))
        };
        let untouched = (0..FILES).filter(|file| !touched.contains(file));
        untouched.filter_map(content).collect()
    }

    fn mode(&self, file: usize) -> u32 {
        fs::symlink_metadata(self.path(file))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    }

    fn set_mode(&self, file: usize, mode: u32) {
        fs::set_permissions(self.path(file), fs::Permissions::from_mode(mode)).unwrap();
    }

    async fn restart(&mut self) {
        self.store.stop().await;
        self.store = Store::start(&self.data);
        if self.history.messages.is_empty() {
            return;
        }
        let stored = self.store.load(&self.record.id).await.unwrap();
        self.restore = Self::restore(&self.data, &self.root);
        self.history.messages = stored.messages;
        self.record = stored.record;
    }
}

async fn live(acts: &[Act]) -> Result<(), TestCaseError> {
    let mut life = Life::new();
    let mut rules = Rules::default();
    // The files that the user has changed as well.
    let mut touched = BTreeSet::new();
    for (n, act) in acts.iter().enumerate() {
        let recorder = life.recorder();
        match act {
            Act::Turn(changes) => {
                let steps = rules.turn(changes);
                life.turn(n, changes, &steps).await;
            }
            Act::User(file, to) => {
                rules.set(*file, *to);
                life.set(*file, *to);
            }
            Act::Undo(force) => {
                let point = RevertPoint::LastTurn;
                let done = undo(
                    &life.history.messages,
                    &mut life.record,
                    &recorder,
                    &life.restore,
                    &point,
                    *force,
                )
                .await
                .is_ok();
                prop_assert_eq!(done, rules.undo(*force));
            }
            Act::Redo => {
                let done = redo(
                    &life.history.messages,
                    &mut life.record,
                    &recorder,
                    &life.restore,
                )
                .await
                .is_ok();
                prop_assert_eq!(done, rules.redo());
            }
            Act::Restore(file, number) => life.restore_version(*file, *number, &mut rules).await,
            Act::Restart => life.restart().await,
        }
        if let Act::User(file, _) = act {
            touched.insert(*file);
        }
        let untouched = (0..FILES).filter(|file| !touched.contains(file));
        let written: Tree = untouched
            .filter_map(|file| Some((file, *rules.tree.get(&file)?)))
            .collect();
        prop_assert_eq!(life.written(&touched), written, "after {:?}", &acts[..=n]);
        prop_assert_eq!(life.tree(), rules.tree.clone(), "after {:?}", &acts[..=n]);
        let seen = visible(&life.history.messages, &life.record.undone);
        prop_assert_eq!(
            seen,
            2 * (rules.turns.len() - rules.undone.len()),
            "after {:?}",
            &acts[..=n]
        );
    }
    Ok(())
}

fn act() -> impl Strategy<Value = Act> {
    let content = prop_oneof![1 => Just(None), 3 => (0_u8..6).prop_map(Some)];
    let change = (0..FILES, content);
    prop_oneof![
        4 => proptest::collection::vec(change.clone(), 0..4).prop_map(Act::Turn),
        2 => change.prop_map(|(file, to)| Act::User(file, to)),
        3 => any::<bool>().prop_map(Act::Undo),
        2 => Just(Act::Redo),
        1 => (0..FILES, 0_usize..4).prop_map(|(file, number)| Act::Restore(file, number)),
        1 => Just(Act::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
        fn files_equal_model_of_rules(acts in proptest::collection::vec(act(), 1..14)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(live(&acts))?;
    }
}

/// A process that is killed between any two files leaves an undo that can be finished or reversed.
#[tokio::test]
async fn interrupted_undo_can_be_finished_or_reversed() {
    for finish in [true, false] {
        for killed_after in 0..=FILES {
            let mut life = Life::new();
            for file in 0..FILES {
                life.set(file, Some(1));
            }
            let changes: Vec<_> = (0..FILES).map(|file| (file, Some(2))).collect();
            let steps: Vec<Step> = (0..FILES).map(|file| (file, Some(1), Some(2))).collect();
            life.turn(0, &changes, &steps).await;
            let recorder = life.recorder();
            undo(
                &life.history.messages,
                &mut life.record,
                &recorder,
                &life.restore,
                &RevertPoint::LastTurn,
                false,
            )
            .await
            .unwrap();
            // The state on the disk before the end of the undo was stored.
            life.record.undone[0].is_complete = false;
            (killed_after..FILES).for_each(|file| life.set(file, Some(2)));
            recorder.session(&life.record).await;
            recorder.flush().await.unwrap();
            life.restart().await;
            assert!(!life.record.undone[0].is_complete);
            let recorder = life.recorder();
            let messages = &life.history.messages;
            let record = &mut life.record;
            let expected = if finish {
                undo(
                    messages,
                    record,
                    &recorder,
                    &life.restore,
                    &RevertPoint::LastTurn,
                    false,
                )
                .await
                .unwrap();
                1
            } else {
                redo(messages, record, &recorder, &life.restore)
                    .await
                    .unwrap();
                2
            };
            assert_eq!(
                life.tree(),
                (0..FILES).map(|file| (file, expected)).collect(),
                "{finish} {killed_after}"
            );
            if finish {
                redo(
                    &life.history.messages,
                    &mut life.record,
                    &recorder,
                    &life.restore,
                )
                .await
                .unwrap();
                assert_eq!(
                    life.tree(),
                    (0..FILES).map(|file| (file, 2)).collect(),
                    "{killed_after}"
                );
            }
        }
    }
}

#[tokio::test]
async fn missing_contents_leave_files_unchanged() {
    let mut life = Life::new();
    life.set(0, Some(1));
    life.turn(
        0,
        &[(0, Some(2)), (1, Some(3))],
        &[(0, Some(1), Some(2)), (1, None, Some(3))],
    )
    .await;
    fs::remove_dir_all(life.data.join("snapshots")).unwrap();
    let recorder = life.recorder();
    let report = undo(
        &life.history.messages,
        &mut life.record,
        &recorder,
        &life.restore,
        &RevertPoint::LastTurn,
        true,
    )
    .await
    .unwrap();
    assert_eq!(
        report.unrestorable,
        [("d0/f0".to_owned(), "its content is not stored".to_owned())]
    );
    assert_eq!(life.tree(), Tree::from([(0, 2)]));
    let report = redo(
        &life.history.messages,
        &mut life.record,
        &recorder,
        &life.restore,
    )
    .await
    .unwrap();
    assert_eq!(
        report.unrestorable,
        [("d1/f1".to_owned(), "its content is not stored".to_owned())]
    );
    let nothing = redo(
        &life.history.messages,
        &mut life.record,
        &recorder,
        &life.restore,
    )
    .await;
    assert_eq!(nothing.unwrap_err(), RevertError::NothingToRedo);
}

#[tokio::test]
async fn point_can_be_message_or_part() {
    let mut life = Life::new();
    for n in 0..3_u8 {
        life.turn(n.into(), &[(0, Some(n))], &[(0, n.checked_sub(1), Some(n))])
            .await;
    }
    let recorder = life.recorder();
    let to = |id: &str| RevertPoint::Before(id.to_owned());
    let messages = &life.history.messages;
    let record = &mut life.record;
    let unknown = undo(
        messages,
        record,
        &recorder,
        &life.restore,
        &to("nobody"),
        false,
    )
    .await;
    assert_eq!(
        unknown.unwrap_err(),
        RevertError::UnknownMessage("nobody".into())
    );
    // The first answer to a prompt means the prompt; the patch is a part of it.
    let report = undo(messages, record, &recorder, &life.restore, &to("p1"), false)
        .await
        .unwrap();
    assert_eq!(
        (
            report.message_count,
            report.prompt_title.as_str(),
            life.tree()
        ),
        (4, "turn 1", Tree::from([(0, 0)]))
    );
    let messages = &life.history.messages;
    let record = &mut life.record;
    let hidden = undo(messages, record, &recorder, &life.restore, &to("u2"), false).await;
    assert_eq!(hidden.unwrap_err(), RevertError::AlreadyUndone("u2".into()));
    redo(messages, record, &recorder, &life.restore)
        .await
        .unwrap();
    assert_eq!(life.tree(), Tree::from([(0, 2)]));
}

/// Covers edits and commands, in the same process and in a later one.
#[tokio::test]
async fn removed_file_is_restored_with_its_mode() {
    for (mode, by_command, later) in [
        (0o600, false, false),
        (0o600, true, false),
        (0o600, true, true),
        (0o640, true, false),
        (0o644, false, true),
        (0o644, true, true),
        (0o444, true, false),
        (0o700, false, true),
        (0o700, true, false),
        (0o755, true, true),
    ] {
        let case = format!("{mode:o} {by_command} {later}");
        let mut life = Life::new();
        life.set(0, Some(1));
        life.set_mode(0, mode);
        if by_command {
            life.command(0, |life| life.set(0, None)).await;
        } else {
            life.turn(0, &[(0, None)], &[(0, Some(1), None)]).await;
        }
        if later {
            life.restart().await;
        }
        // A redo removes the file whatever its mode is.
        for _ in 0..2 {
            assert_eq!(life.undo().await.not_restored().next(), None, "{case}");
            assert_eq!(
                (life.tree(), life.mode(0)),
                (Tree::from([(0, 1)]), mode),
                "{case}"
            );
            assert_eq!(life.redo().await.not_restored().next(), None, "{case}");
            assert_eq!(life.tree(), Tree::new(), "{case}");
        }
    }
}

/// Covers a session of an older version, or of another machine.
#[tokio::test]
async fn file_with_unknown_mode_is_private() {
    for (mode, wanted) in [(0o644, 0o600), (0o755, 0o700)] {
        let mut life = Life::new();
        life.set(0, Some(1));
        life.set_mode(0, mode);
        life.command(0, |life| life.set(0, None)).await;
        let projects = fs::read_dir(life.data.join("snapshots")).unwrap().flatten();
        projects.for_each(|project| fs::remove_file(project.path().join("modes")).unwrap());
        life.undo().await;
        assert_eq!((life.tree(), life.mode(0)), (Tree::from([(0, 1)]), wanted));
    }
}

#[tokio::test]
async fn replaced_file_is_private_before_it_is_restored() {
    // The mode of the original file, of its replacement, the mode that the user sets then, and
    // the final mode.
    for (first, then, since, last) in [
        (0o600, 0o644, None, 0o600),
        (0o644, 0o600, None, 0o644),
        (0o444, 0o644, None, 0o444),
        (0o644, 0o444, None, 0o644),
        (0o644, 0o644, Some(0o600), 0o600),
        (0o640, 0o600, Some(0o644), 0o640),
    ] {
        let mut life = Life::new();
        life.set(0, Some(1));
        life.set_mode(0, first);
        life.command(0, |life| {
            life.set(0, None);
            life.set(0, Some(2));
            life.set_mode(0, then);
        })
        .await;
        since.into_iter().for_each(|mode| life.set_mode(0, mode));
        assert_eq!(life.undo().await.not_restored().next(), None);
        let case = format!("{first:o} {then:o} {since:?}");
        assert_eq!(
            (life.tree(), life.mode(0)),
            (Tree::from([(0, 1)]), last),
            "{case}"
        );
        assert_eq!(life.redo().await.not_restored().next(), None, "{case}");
        let there_again = if since.is_some() { last & then } else { then };
        assert_eq!(
            (life.tree(), life.mode(0)),
            (Tree::from([(0, 2)]), there_again),
            "{case}"
        );
    }
}

/// Checks the file on the disk when a client is asked to write it, and after the client has
/// refused.
#[tokio::test]
async fn client_writes_to_file_that_is_private_already() {
    let mut life = Life::new();
    let tracker = life.restore.tracker.clone();
    let root = life.root.clone();
    let begin = |life: &Life| {
        let change = changes::last_merged_changes(&life.history.messages)
            .pop()
            .map(reversed)
            .unwrap();
        FileRestoration::begin(&tracker, change, root.clone()).unwrap()
    };
    for private in [true, false] {
        life.history = History::default();
        life.set(0, Some(1));
        life.set_mode(0, if private { 0o600 } else { 0o644 });
        life.turn(0, &[(0, None)], &[(0, Some(1), None)]).await;
        let file = begin(&life);
        assert_eq!(
            life.tree(),
            if private {
                Tree::from([(0, 1)])
            } else {
                Tree::new()
            }
        );
        if private {
            assert_eq!(life.mode(0), 0o600);
        }
        file.roll_back().unwrap();
        assert_eq!(life.tree(), Tree::new());
    }
    life.history = History::default();
    life.set(0, Some(1));
    life.set_mode(0, 0o640);
    life.command(0, |life| {
        life.set(0, Some(2));
        life.set_mode(0, 0o644);
    })
    .await;
    let file = begin(&life);
    assert_eq!((life.tree(), life.mode(0)), (Tree::from([(0, 2)]), 0o640));
    file.roll_back().unwrap();
    assert_eq!((life.tree(), life.mode(0)), (Tree::from([(0, 2)]), 0o644));
}

/// Watches the directory during a restore: every file in it, also a temporary one, is private.
#[test]
fn file_is_never_readable_by_others_while_it_is_written() {
    let life = Life::new();
    let path = life.path(0);
    let dir = path.parent().unwrap();
    fs::create_dir_all(dir).unwrap();
    fs::write(&path, "0123456789abcde\n".repeat(1 << 19)).unwrap();
    life.set_mode(0, 0o600);
    let new = life.restore.tracker.record_file(&path).unwrap();
    let change = FileChange {
        path: path.display().to_string(),
        old: None,
        new,
        compared: false,
        sequence: 0,
    };
    let over = AtomicBool::new(false);
    let open = || {
        let files = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| file.metadata().ok());
        files
            .filter(|data| data.len() > 0 && data.permissions().mode() & 0o077 != 0)
            .count()
    };
    let seen = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = 0;
            while !over.load(Ordering::Relaxed) {
                seen += open();
            }
            seen
        });
        let restored: Vec<_> = (0..4)
            .map(|_| {
                fs::remove_file(&path).unwrap();
                let file = FileRestoration::begin(
                    &life.restore.tracker,
                    change.clone(),
                    life.root.clone(),
                )?;
                file.finish().map_err(|e| e.to_string())
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(restored, vec![Ok(()); 4]);
        watching.join().unwrap()
    });
    assert_eq!(seen, 0);
    assert_eq!(life.mode(0), 0o600);
}

#[tokio::test]
async fn file_is_not_restored_through_a_link() {
    let mut life = Life::new();
    life.set(0, Some(1));
    life.command(0, |life| life.set(0, None)).await;
    let outside = life.data.join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::remove_dir(life.root.join("d0")).unwrap();
    std::os::unix::fs::symlink(&outside, life.root.join("d0")).unwrap();
    let failed = life.undo().await.failed;
    assert_eq!(failed, [("d0/f0".into(), disk::Error::Moved.to_string())]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn file_that_is_too_large_now_is_lost_even_with_force() {
    let mut life = Life::new();
    life.set(0, Some(1));
    life.command(0, |life| life.set(0, Some(2))).await;
    let file = fs::File::options()
        .write(true)
        .open(life.root.join("d0/f0"))
        .unwrap();
    file.set_len(65 << 20).unwrap();
    let report = life.undo().await;
    let why = "it has changed since, and is now too large to be saved";
    assert_eq!(report.unrestorable, [("d0/f0".into(), why.into())]);
    assert_eq!(report.not_restored().count(), 1);
}

#[tokio::test]
async fn late_changes_are_placed_again_when_what_they_follow_is_deleted() {
    let mut life = Life::new();
    life.turn(0, &[], &[]).await;
    life.turn(1, &[], &[]).await;
    let place = LatePlace {
        after: MessageId::new("a1"),
        number: 1,
    };
    life.history.messages[1].parts.push(Part {
        id: PartId::new("late"),
        content: Content::Patch {
            files: vec![],
            begun: false,
            unrecorded: vec![],
            late: Some(place),
        },
    });
    let placed = |message: &Message| match &message.parts[0].content {
        Content::Patch { late, .. } => late.as_ref().map(|late| late.after.clone()),
        _ => None,
    };
    let wanted = Some(MessageId::new("a0"));
    let mut fork = life.store.peek(&life.record.id).await.unwrap();
    fork.messages.clone_from(&life.history.messages);
    truncate_history(&mut fork, 2);
    assert_eq!(placed(&fork.messages[1]), wanted);
    let mut copy = life.history.messages[..2].to_vec();
    assert_eq!(place_late_changes_of_copy(&mut copy).len(), 1);
    assert_eq!(placed(&copy[1]), wanted);
    assert_eq!(place_late_changes_of_copy(&mut copy).len(), 0);
    life.undo().await;
    life.turn(2, &[], &[]).await;
    assert_eq!(placed(&life.history.messages[1]), wanted);
    let stored = life.store.load(&life.record.id).await.unwrap();
    assert_eq!(placed(&stored.messages[1]), wanted);
}

/// A background job of the first turn writes the file after an edit of the second turn, or before
/// it. The undo of the second turn leaves the file, so its edit remains when its message is deleted.
#[tokio::test]
async fn late_changes_and_left_changes_of_deleted_messages_stay_in_order() {
    let late = |life: &Life, after: &str, from: FileState| {
        let path = life.path(0);
        let change = FileChange {
            path: path.display().to_string(),
            old: Some(from),
            new: life.restore.tracker.record_file(&path).unwrap(),
            compared: false,
            sequence: 0,
        };
        let place = LatePlace {
            after: MessageId::new(after),
            number: 1,
        };
        Part {
            id: PartId::new("late"),
            content: Content::Patch {
                files: vec![change],
                begun: false,
                unrecorded: vec![],
                late: Some(place),
            },
        }
    };
    let state = |life: &Life| {
        let recorded = life.restore.tracker.record_file(&life.path(0));
        recorded.unwrap().unwrap()
    };
    for is_before in [false, true] {
        let mut life = Life::new();
        life.turn(0, &[(0, Some(1))], &[(0, None, Some(1))]).await;
        let edit = [(0, Some(3))];
        let step = [(0, None, Some(3))];
        let part = if is_before {
            let first = state(&life);
            life.set(0, Some(2));
            let part = late(&life, "u1", first);
            life.turn(1, &edit, &step).await;
            life.set(0, Some(9));
            part
        } else {
            life.turn(1, &edit, &step).await;
            let edited = state(&life);
            life.set(0, Some(4));
            late(&life, "a1", edited)
        };
        life.history.messages[1].parts.push(part);
        let report = life.undo().await;
        assert_eq!(report.not_restored().count(), 1, "{is_before}");
        life.turn(2, &[], &[]).await;
        let wanted = if is_before { 3 } else { 4 };
        let written = life.written(&BTreeSet::new());
        assert_eq!(written, Tree::from([(0, wanted)]), "{is_before}");
    }
}
