//! The file changes that a history records, merged per file.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use base::id::MessageId;
use store::{FileLogEntry, Record, visible};
use transcript::{self, Content, FileChange, FileState, Message, UnrecordedWrite};

/// Returns the changes of a session that are in effect, merged per file.
pub fn session_changes(messages: &[Message], record: &Record) -> Vec<FileChange> {
    let mut timeline = Timeline::default();
    for entry in &record.file_log {
        if entry.after.is_none() {
            timeline.restore_all(&entry.files);
        }
    }
    timeline.add_messages(messages, 0, record);
    let in_effect = timeline.in_effect().into_iter().map(|(_, change)| change);
    transcript::merged(in_effect)
}

/// Returns the log entries that replace the messages of a session from `start` on, and the log
/// entries after each of them, when these messages are deleted. They contain the changes that are in
/// effect, each with its place among the late changes of the remaining messages.
pub fn entries_of_deleted(
    messages: &[Message],
    start: usize,
    record: &Record,
) -> Vec<FileLogEntry> {
    let mut timeline = Timeline::default();
    timeline.add_messages(messages, start, record);
    let last = messages.iter().take(start).next_back();
    let after = last.map(|last| last.id.clone());
    let mut in_effect = timeline.in_effect();
    in_effect.sort_by_key(|(after_late, _)| *after_late);
    let entries = in_effect.chunk_by(|(one, _), (next, _)| one == next);
    let entry = |changes: &[(u32, &FileChange)]| FileLogEntry {
        after: after.clone(),
        after_late: changes.first().map_or(0, |(after_late, _)| *after_late),
        files: {
            let files = transcript::merged(changes.iter().map(|(_, change)| *change));
            // After late changes, the numbers place these among the changes of the same job.
            let is_before_late = changes
                .first()
                .is_none_or(|(after_late, _)| *after_late == 0);
            if is_before_late {
                unnumbered(files).collect()
            } else {
                files
            }
        },
    };
    entries.map(entry).collect()
}

/// Adds changes after these messages to the log. Of the changes to a file between two messages or
/// late changes, only the first old and the last new state are stored.
pub fn log_changes(
    record: &mut Record,
    messages: &[Message],
    changes: impl IntoIterator<Item = FileChange>,
) {
    let entry = FileLogEntry {
        after: messages.last().map(|message| message.id.clone()),
        after_late: last_late(messages),
        files: unnumbered(changes).collect(),
    };
    add_to_log(record, entry);
}

/// Removes the sequence numbers of changes whose place in the log is their order.
fn unnumbered(changes: impl IntoIterator<Item = FileChange>) -> impl Iterator<Item = FileChange> {
    changes.into_iter().map(|change| FileChange {
        sequence: 0,
        ..change
    })
}

/// True if changes in the log are numbered: those of a background job whose step was
/// deleted, and those of a step that a background job interrupted.
fn has_sequence(files: &[FileChange]) -> bool {
    files.iter().any(|change| change.sequence > 0)
}

/// Adds an entry to the log, or its changes to the last entry if that has the same place and the
/// same kind.
pub fn add_to_log(record: &mut Record, entry: FileLogEntry) {
    let FileLogEntry {
        after,
        after_late,
        files,
    } = entry;
    let is_of_job = has_sequence(&files);
    let earlier = record.file_log.pop_if(|last| {
        last.after == after
            && last.after_late == after_late
            && has_sequence(&last.files) == is_of_job
    });
    let earlier = earlier.map(|entry| entry.files).unwrap_or_default();
    let all = earlier.into_iter().chain(files);
    let files = if is_of_job {
        transcript::merged(all.collect::<Vec<_>>().iter())
    } else {
        combine_per_file(all)
    };
    if !files.is_empty() {
        record.file_log.push(FileLogEntry {
            after,
            after_late,
            files,
        });
    }
}

/// Combines the changes of each file, from its first state to its last.
fn combine_per_file(changes: impl Iterator<Item = FileChange>) -> Vec<FileChange> {
    let mut by_path: BTreeMap<String, FileChange> = BTreeMap::new();
    for change in changes {
        match by_path.entry(change.path.clone()) {
            Entry::Occupied(mut earlier) => earlier.get_mut().new = change.new,
            Entry::Vacant(free) => drop(free.insert(change)),
        }
    }
    by_path.into_values().collect()
}

/// The changes of a session in the order in which they were made.
#[derive(Default)]
struct Timeline<'c> {
    files: HashMap<&'c str, FileTimeline<'c>>,
    /// For each change so far, the number of the last late change of an earlier message before it
    /// that concerns the same file.
    after_late: Vec<u32>,
    /// The number of the last late change of an earlier message so far, by the path of its file.
    last_late: HashMap<&'c str, u32>,
}

struct FileTimeline<'c> {
    /// The state before the first change.
    first: &'c Option<FileState>,
    /// The changes in effect, with their places in the order of all changes.
    in_effect: Vec<(usize, &'c FileChange)>,
}

impl<'c> Timeline<'c> {
    /// Adds the changes of the messages from `start` on, and of the log entries between them; the
    /// earlier ones only have late changes in between. Messages are left out that are hidden by an
    /// undo of which the log has no changes.
    fn add_messages(&mut self, messages: &'c [Message], start: usize, record: &'c Record) {
        let end = if record.undone.iter().all(|undone| undone.is_logged) {
            messages.len()
        } else {
            visible(messages, &record.undone)
        };
        for recorded in in_order(messages.get(..end).unwrap_or_default(), &record.file_log) {
            let RecordedChange { change, batch } = recorded;
            if batch.message < start {
                let last_late = self.last_late.entry(&change.path).or_default();
                *last_late = batch.late.max(*last_late);
            } else if batch.is_logged {
                self.restore(change);
            } else {
                self.add(change);
            }
        }
    }

    fn restore_all(&mut self, files: &'c [FileChange]) {
        for change in files {
            self.restore(change);
        }
    }

    fn add(&mut self, change: &'c FileChange) {
        let place = self.after_late.len();
        let last_late = self.last_late.get(change.path.as_str()).copied();
        self.after_late.push(last_late.unwrap_or_default());
        self.file(change).in_effect.push((place, change));
    }

    /// Adds a change that may restore an earlier state of its file. The changes after that state
    /// are then no longer in effect, even if another program has changed the file in between.
    fn restore(&mut self, change: &'c FileChange) {
        let file = self.file(change);
        let in_effect = &mut file.in_effect;
        let after = in_effect
            .iter()
            .rposition(|(_, earlier)| earlier.new == change.new);
        let before = || {
            in_effect
                .iter()
                .position(|(_, earlier)| earlier.old == change.new)
        };
        if *file.first == change.new {
            in_effect.clear();
        } else if let Some(at) = after {
            in_effect.truncate(at + 1);
        } else if let Some(at) = before() {
            in_effect.truncate(at);
        } else {
            self.add(change);
        }
    }

    fn file(&mut self, change: &'c FileChange) -> &mut FileTimeline<'c> {
        self.files
            .entry(&change.path)
            .or_insert_with(|| FileTimeline {
                first: &change.old,
                in_effect: Vec::new(),
            })
    }

    /// Returns the changes in effect, in order, each with the number of the last late change of an
    /// earlier message before it that concerns the same file.
    fn in_effect(self) -> Vec<(u32, &'c FileChange)> {
        let files = self.files.into_values();
        let in_effect: BTreeMap<usize, &FileChange> =
            files.flat_map(|file| file.in_effect).collect();
        let after_late = |place: usize| self.after_late.get(place).copied().unwrap_or_default();
        let in_effect = in_effect.into_iter();
        in_effect
            .map(|(place, change)| (after_late(place), change))
            .collect()
    }
}

/// Changes that were recorded together.
#[derive(Clone, Copy)]
struct Batch<'c> {
    files: &'c [FileChange],
    /// The index of the message that has recorded them, or after which they were logged.
    message: usize,
    /// The index of the last message before they were recorded, or of that message.
    after: usize,
    /// Their number if they are late changes, or that of the last late changes before them if they
    /// were logged; 0 otherwise.
    late: u32,
    is_logged: bool,
}

/// A change of a file, and the changes that were recorded together with it.
#[derive(Clone, Copy)]
struct RecordedChange<'c> {
    change: &'c FileChange,
    batch: Batch<'c>,
}

impl RecordedChange<'_> {
    /// True if the change was made before another one of its file, which is stored earlier.
    /// The clocks of different processes may differ, so their numbers are not compared. The messages
    /// from that of a background job on, until its changes were recorded, are of one process.
    fn precedes(&self, earlier: &Self) -> bool {
        let is_of_same_process = self.batch.is_logged
            || earlier.batch.message == self.batch.message
            || earlier.batch.after > self.batch.message;
        let sequence = self.change.sequence;
        is_of_same_process && 0 < sequence && sequence < earlier.change.sequence
    }
}

/// Returns the changes of messages, and of the log entries between them, in the order in which they
/// were made: late changes and log entries follow the message that preceded them, in the order of
/// the late changes' numbers. Since the last undo or redo, a background job may have written a file
/// between two calls of these messages.
fn in_order<'c>(messages: &'c [Message], log: &'c [FileLogEntry]) -> Vec<RecordedChange<'c>> {
    let batches = batches(messages, log).into_iter();
    let mut changes: Vec<RecordedChange<'c>> = batches.flat_map(Batch::changes).collect();
    let mut places_of: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, recorded) in changes.iter().enumerate() {
        let path = recorded.change.path.as_str();
        places_of.entry(path).or_default().push(place);
    }
    for places in places_of.into_values() {
        for last in 1..places.len() {
            for pair in places[..=last].windows(2).rev() {
                if !changes[pair[1]].precedes(&changes[pair[0]]) {
                    break;
                }
                changes.swap(pair[0], pair[1]);
            }
        }
    }
    changes
}

impl<'c> Batch<'c> {
    fn changes(self) -> impl Iterator<Item = RecordedChange<'c>> {
        let recorded = move |change| RecordedChange {
            change,
            batch: self,
        };
        self.files.iter().map(recorded)
    }
}

/// Returns the changes of messages, and of the log entries between them, as they were recorded
/// together: late changes and log entries follow the message that preceded them, in the order of the
/// late changes' numbers.
fn batches<'c>(messages: &'c [Message], log: &'c [FileLogEntry]) -> Vec<Batch<'c>> {
    let mut places: HashMap<&MessageId, usize> = HashMap::new();
    let mut batches = Vec::new();
    for (at, message) in messages.iter().enumerate().rev() {
        places.insert(&message.id, at);
        for part in &message.parts {
            let Content::Patch { files, late, .. } = &part.content else {
                continue;
            };
            let (after, late) = match late {
                Some(late) => {
                    let after = places.get(&late.after).copied();
                    // A message that is missing follows these.
                    (after.unwrap_or(messages.len() - 1), late.number)
                }
                None => (at, 0),
            };
            let batch = Batch {
                files,
                message: at,
                after,
                late,
                is_logged: false,
            };
            batches.push(batch);
        }
    }
    for entry in log {
        let after = entry.after.as_ref().and_then(|after| places.get(after));
        if let Some(at) = after {
            let batch = Batch {
                files: &entry.files,
                message: *at,
                after: *at,
                late: entry.after_late,
                is_logged: true,
            };
            batches.push(batch);
        }
    }
    batches.sort_by_key(|batch| (batch.after, batch.late, batch.is_logged));
    batches
}

/// Returns the number of the last late changes of messages; 0 if there are none.
pub fn last_late(messages: &[Message]) -> u32 {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let numbers = parts.filter_map(|part| match &part.content {
        Content::Patch { late, .. } => Some(late.as_ref()?.number),
        _ => None,
    });
    numbers.max().unwrap_or(0)
}

/// Returns the changes of some messages in the order in which they were made, each with the index of
/// the message that has recorded it.
pub fn message_changes(messages: &[Message]) -> impl Iterator<Item = (usize, &FileChange)> {
    let recorded = in_order(messages, &[]).into_iter();
    recorded.map(|RecordedChange { change, batch }| (batch.message, change))
}

/// Returns the changes of some messages, merged per file. A file has several entries if it was
/// changed by others in between.
pub fn merged_changes(messages: &[Message]) -> Vec<FileChange> {
    transcript::merged(message_changes(messages).map(|(_, change)| change))
}

/// Returns the writes whose earlier state was not stored, each once.
pub fn unrecorded_writes(messages: &[Message]) -> Vec<UnrecordedWrite> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let patches = parts.filter_map(|part| match &part.content {
        Content::Patch { unrecorded, .. } => Some(unrecorded),
        _ => None,
    });
    patches
        .flatten()
        .cloned()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Returns the last entry of each file: the changes that can be undone without undoing those of
/// others.
pub fn last_merged_changes(messages: &[Message]) -> Vec<FileChange> {
    let mut runs = merged_changes(messages);
    let mut seen = HashSet::new();
    runs.reverse();
    runs.retain(|run| seen.insert(run.path.clone()));
    runs.reverse();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::environment::Timestamp;
    use base::id::{PartId, SessionId};
    use store::UndoEntry;
    use transcript::{FileKind, LatePlace, ModelRef, Part, Role, User};

    type Step<'a> = &'a [(&'a str, &'a str, &'a str)];
    /// The changes of a message, and the logged ones after it.
    type Round<'a> = (Step<'a>, Step<'a>);

    fn changes(steps: Step<'_>) -> Vec<FileChange> {
        let state = |hash: &str| {
            (hash != "-").then(|| FileState {
                hash: hash.into(),
                kind: FileKind::Plain,
                large: false,
            })
        };
        let file_change = |(path, old, new): &(&str, &str, &str)| FileChange {
            path: (*path).into(),
            old: state(old),
            new: state(new),
            compared: false,
            sequence: 0,
        };
        steps.iter().map(file_change).collect()
    }

    fn shown(runs: Vec<FileChange>) -> Vec<String> {
        let state = |state: &Option<FileState>| {
            state
                .as_ref()
                .map_or("-".to_owned(), |state| state.hash.clone())
        };
        runs.iter()
            .map(|run| format!("{} {} {}", run.path, state(&run.old), state(&run.new)))
            .collect()
    }

    fn patch(steps: Step<'_>, late: Option<LatePlace>) -> Part {
        Part {
            id: PartId::new("p"),
            content: Content::Patch {
                files: changes(steps),
                begun: false,
                unrecorded: Vec::new(),
                late,
            },
        }
    }

    fn message(steps: Step<'_>) -> Message {
        let model = ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        Message {
            id: MessageId::new("m"),
            created: Timestamp(0),
            role: Role::User(User {
                agent: "build".into(),
                model,
            }),
            parts: vec![patch(steps, None)],
        }
    }

    #[test]
    fn changes_are_merged_unless_file_was_changed_in_between() {
        let table: &[(&[Step<'_>], &[&str], &[&str])] = &[
            (
                &[&[("f", "1", "2")], &[("f", "2", "3")]],
                &["f 1 3"],
                &["f 1 3"],
            ),
            (&[&[("f", "1", "2")], &[("f", "2", "1")]], &[], &[]),
            (
                &[&[("f", "-", "2")], &[("f", "2", "-")], &[("f", "-", "4")]],
                &["f - 4"],
                &["f - 4"],
            ),
            (
                &[&[("f", "1", "2")], &[("f", "user", "3")]],
                &["f 1 2", "f user 3"],
                &["f user 3"],
            ),
            (
                &[&[("f", "1", "2"), ("g", "1", "2")], &[("g", "2", "3")]],
                &["f 1 2", "g 1 3"],
                &["f 1 2", "g 1 3"],
            ),
        ];
        for (steps, all, last) in table {
            let messages: Vec<Message> = steps.iter().map(|step| message(step)).collect();
            assert_eq!(
                (
                    shown(merged_changes(&messages)),
                    shown(last_merged_changes(&messages))
                ),
                (
                    all.iter().map(ToString::to_string).collect(),
                    last.iter().map(ToString::to_string).collect()
                )
            );
        }
    }

    #[test]
    fn restorations_end_later_changes() {
        let table: &[(&[Round<'_>], &[&str])] = &[
            // An undo, and an undo of a file that a restoration has reverted before.
            (&[(&[("f", "1", "2")], &[("f", "2", "1")])], &[]),
            (
                &[(&[("f", "1", "2")], &[("f", "2", "1"), ("f", "1", "1")])],
                &[],
            ),
            // An undo and a redo.
            (
                &[(&[("f", "1", "2")], &[("f", "2", "1"), ("f", "1", "2")])],
                &["f 1 2"],
            ),
            // A redo that left one of two files in place.
            (
                &[(
                    &[("f", "-", "1"), ("g", "-", "1")],
                    &[("f", "1", "-"), ("g", "1", "-"), ("f", "-", "1")],
                )],
                &["f - 1"],
            ),
            // A redo of deleted messages, and later changes.
            (&[(&[], &[("f", "1", "2")])], &["f 1 2"]),
            (
                &[
                    (&[("f", "0", "1")], &[("f", "1", "2")]),
                    (&[("f", "2", "3")], &[]),
                ],
                &["f 0 3"],
            ),
            // A version from the middle.
            (
                &[
                    (&[("f", "1", "2")], &[]),
                    (&[("f", "2", "3")], &[("f", "3", "2")]),
                ],
                &["f 1 2"],
            ),
            // Changes of others in between.
            (&[(&[("f", "1", "2")], &[("f", "user", "1")])], &[]),
            (
                &[
                    (&[("f", "1", "2")], &[]),
                    (&[("f", "user", "3")], &[("f", "3", "user")]),
                ],
                &["f 1 2"],
            ),
            (
                &[(&[("f", "1", "2")], &[("f", "user", "4")])],
                &["f 1 2", "f user 4"],
            ),
        ];
        for (rounds, wanted) in table {
            let mut record = Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(0));
            let mut messages = Vec::new();
            for (n, (steps, logged)) in rounds.iter().enumerate() {
                messages.push(Message {
                    id: MessageId::new(format!("msg_{n}")),
                    ..message(steps)
                });
                for change in changes(logged) {
                    log_changes(&mut record, &messages, [change]);
                }
            }
            assert_eq!(
                shown(session_changes(&messages, &record)),
                *wanted,
                "{rounds:?}"
            );
        }
    }

    /// Changes to files, in the order in which they were made.
    enum Entry<'a> {
        Message(Step<'a>),
        /// Of a background job of the first message.
        Late(Step<'a>),
        Logged(Step<'a>),
    }

    #[test]
    fn late_changes_follow_what_preceded_them() {
        use Entry::{Late, Logged, Message};
        let table: &[(&[Entry<'_>], &[&str])] = &[
            // Before and after an undo.
            (
                &[
                    Message(&[("f", "-", "1")]),
                    Late(&[("f", "1", "2")]),
                    Logged(&[("f", "2", "-")]),
                ],
                &[],
            ),
            (
                &[
                    Message(&[("f", "-", "1")]),
                    Message(&[]),
                    Logged(&[("f", "1", "-")]),
                    Late(&[("f", "-", "2")]),
                ],
                &["f - 2"],
            ),
            // Between an undo and another one, and after that.
            (
                &[
                    Message(&[("f", "-", "1")]),
                    Logged(&[("f", "1", "-")]),
                    Late(&[("f", "-", "2")]),
                    Logged(&[("f", "2", "-")]),
                ],
                &[],
            ),
            (
                &[
                    Message(&[("f", "-", "1")]),
                    Logged(&[("f", "1", "-")]),
                    Late(&[("f", "-", "2")]),
                    Logged(&[("f", "2", "-")]),
                    Late(&[("f", "-", "1")]),
                ],
                &["f - 1"],
            ),
            // Among later messages.
            (
                &[
                    Message(&[("f", "1", "2")]),
                    Message(&[("f", "2", "3")]),
                    Late(&[("f", "3", "4")]),
                ],
                &["f 1 4"],
            ),
            (
                &[
                    Message(&[]),
                    Late(&[("f", "1", "2")]),
                    Late(&[("f", "2", "3")]),
                    Message(&[("f", "3", "4")]),
                ],
                &["f 1 4"],
            ),
        ];
        for (number, (entries, wanted)) in table.iter().enumerate() {
            let mut record = Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(0));
            let mut messages = Vec::new();
            for entry in *entries {
                match entry {
                    Message(steps) => messages.push(transcript::Message {
                        id: MessageId::new(format!("msg_{}", messages.len())),
                        ..message(steps)
                    }),
                    Late(steps) => {
                        let place = LatePlace {
                            after: messages.last().unwrap().id.clone(),
                            number: last_late(&messages) + 1,
                        };
                        let late = patch(steps, Some(place));
                        messages[0].parts.push(late);
                    }
                    Logged(steps) => log_changes(&mut record, &messages, changes(steps)),
                }
            }
            let in_effect = shown(session_changes(&messages, &record));
            assert_eq!(in_effect, *wanted, "{number}");
            if record.file_log.is_empty() {
                assert_eq!(shown(merged_changes(&messages)), *wanted, "{number}");
            }
        }
    }

    /// A change with its sequence number.
    type Numbered<'a> = (u64, &'a str, &'a str, &'a str);

    /// Changes after a first message.
    #[derive(Debug, Default)]
    struct Concurrent<'a> {
        /// Of a second message; they are recorded after a third one.
        step: &'a [Numbered<'a>],
        /// Of background jobs of the first message.
        jobs: &'a [&'a [Numbered<'a>]],
        /// Of background jobs whose message was deleted.
        deleted_jobs: &'a [&'a [Numbered<'a>]],
        restored: Step<'a>,
    }

    impl Concurrent<'_> {
        fn stored(&self) -> (Vec<Message>, Record) {
            let mut record = Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(0));
            let mut messages = Vec::from([&[][..], &[], &[]].map(message));
            for (at, message) in messages.iter_mut().enumerate() {
                message.id = MessageId::new(format!("msg_{at}"));
            }
            let last = messages[2].id.clone();
            messages[1].parts = vec![numbered_patch(self.step, None)];
            for job in self.jobs {
                let place = LatePlace {
                    after: last.clone(),
                    number: last_late(&messages) + 1,
                };
                let late = numbered_patch(job, Some(place));
                messages[0].parts.push(late);
            }
            for job in self.deleted_jobs {
                let entry = FileLogEntry {
                    after: Some(last.clone()),
                    after_late: last_late(&messages),
                    files: numbered(job),
                };
                add_to_log(&mut record, entry);
            }
            log_changes(&mut record, &messages, changes(self.restored));
            (messages, record)
        }
    }

    fn numbered(all: &[Numbered<'_>]) -> Vec<FileChange> {
        let numbered = |(sequence, path, old, new): &Numbered<'_>| FileChange {
            sequence: *sequence,
            ..changes(&[(path, old, new)]).remove(0)
        };
        all.iter().map(numbered).collect()
    }

    fn numbered_patch(all: &[Numbered<'_>], late: Option<LatePlace>) -> Part {
        let mut part = patch(&[], late);
        if let Content::Patch { files, .. } = &mut part.content {
            *files = numbered(all);
        }
        part
    }

    /// Deletes the messages after the first, as the next prompt after an undo does.
    fn delete_later(messages: &mut Vec<Message>, record: &mut Record) {
        let entries = entries_of_deleted(messages, 1, record);
        messages.truncate(1);
        let first = &mut messages[0];
        for part in &mut first.parts {
            if let Content::Patch {
                late: Some(late), ..
            } = &mut part.content
            {
                late.after = first.id.clone();
            }
        }
        record.file_log.clear();
        for entry in entries {
            add_to_log(record, entry);
        }
    }

    #[test]
    fn changes_of_a_file_are_in_their_sequence() {
        let step: &[Numbered<'_>] = &[(1, "f", "0", "1"), (3, "f", "2", "3")];
        let table: &[(Concurrent<'_>, &[&str])] = &[
            // Between two calls, before the first, and after the last.
            (
                Concurrent {
                    step,
                    jobs: &[&[(2, "f", "1", "2")]],
                    ..Concurrent::default()
                },
                &["f 0 3"],
            ),
            (
                Concurrent {
                    step: &[(2, "f", "1", "2")],
                    jobs: &[&[(1, "f", "0", "1")]],
                    ..Concurrent::default()
                },
                &["f 0 2"],
            ),
            (
                Concurrent {
                    step: &[(1, "f", "0", "1")],
                    jobs: &[&[(2, "f", "1", "2")]],
                    ..Concurrent::default()
                },
                &["f 0 2"],
            ),
            // Of two jobs, of which the second one wrote first, and which take turns.
            (
                Concurrent {
                    jobs: &[&[(2, "f", "1", "2")], &[(1, "f", "0", "1")]],
                    ..Concurrent::default()
                },
                &["f 0 2"],
            ),
            (
                Concurrent {
                    jobs: &[
                        &[(1, "f", "0", "1"), (3, "f", "2", "3")],
                        &[(2, "f", "1", "2")],
                    ],
                    ..Concurrent::default()
                },
                &["f 0 3"],
            ),
            // The job writes again after the last call.
            (
                Concurrent {
                    step,
                    jobs: &[&[(2, "f", "1", "2"), (4, "f", "3", "4")]],
                    ..Concurrent::default()
                },
                &["f 0 4"],
            ),
            // The user wrote before and after the job.
            (
                Concurrent {
                    step,
                    jobs: &[&[(2, "f", "user", "job")]],
                    ..Concurrent::default()
                },
                &["f 0 1", "f user job", "f 2 3"],
            ),
            // Only one of the job's files was changed by the calls.
            (
                Concurrent {
                    step: &[(1, "f", "0", "1"), (4, "f", "2", "3"), (5, "h", "0", "1")],
                    jobs: &[&[(2, "f", "1", "2"), (3, "g", "0", "1")]],
                    ..Concurrent::default()
                },
                &["f 0 3", "h 0 1", "g 0 1"],
            ),
            // Of a job whose message was deleted, before an undo of the call.
            (
                Concurrent {
                    step,
                    deleted_jobs: &[&[(2, "f", "1", "2")]],
                    ..Concurrent::default()
                },
                &["f 0 3"],
            ),
            (
                Concurrent {
                    step,
                    deleted_jobs: &[&[(2, "f", "1", "2")], &[(4, "f", "3", "4")]],
                    restored: &[("f", "4", "0")],
                    ..Concurrent::default()
                },
                &[],
            ),
            // Sessions that were stored without numbers.
            (
                Concurrent {
                    step: &[(0, "f", "0", "1"), (0, "f", "2", "3")],
                    jobs: &[&[(0, "f", "1", "2")]],
                    ..Concurrent::default()
                },
                &["f 0 1", "f 2 3", "f 1 2"],
            ),
        ];
        for (concurrent, wanted) in table {
            let (mut messages, mut record) = concurrent.stored();
            let in_effect = shown(session_changes(&messages, &record));
            assert_eq!(in_effect, *wanted, "{concurrent:?}");
            if record.file_log.is_empty() {
                assert_eq!(shown(merged_changes(&messages)), *wanted, "{concurrent:?}");
            }
            if concurrent.step.iter().all(|(sequence, ..)| *sequence > 0) {
                delete_later(&mut messages, &mut record);
                let in_effect = shown(session_changes(&messages, &record));
                assert_eq!(in_effect, *wanted, "{concurrent:?}, deleted");
            }
        }
    }

    #[test]
    fn sequence_numbers_of_different_processes_are_not_compared() {
        let mut messages = [&[][..], &[]].map(message);
        for (at, message) in messages.iter_mut().enumerate() {
            message.id = MessageId::new(format!("msg_{at}"));
        }
        messages[0].parts = vec![numbered_patch(&[(9, "f", "0", "1")], None)];
        messages[1].parts = vec![numbered_patch(&[(3, "f", "1", "2")], None)];
        assert_eq!(shown(merged_changes(&messages)), ["f 0 2"]);
    }

    #[test]
    fn late_changes_after_a_message_outside_the_slice_come_last() {
        let place = |number| LatePlace {
            after: MessageId::new("msg_2"),
            number,
        };
        let mut messages = [&[][..], &[("f", "1", "2")], &[]].map(message);
        for (at, message) in messages.iter_mut().enumerate() {
            message.id = MessageId::new(format!("msg_{at}"));
        }
        for (number, steps) in [(2, &[("f", "3", "4")]), (1, &[("f", "2", "3")])] {
            let late = patch(steps, Some(place(number)));
            messages[0].parts.push(late);
        }
        assert_eq!(shown(merged_changes(&messages)), ["f 1 4"]);
        assert_eq!(shown(merged_changes(&messages[..2])), ["f 1 4"]);
        assert_eq!(shown(merged_changes(&messages[..1])), ["f 2 4"]);
    }

    #[test]
    fn messages_of_unlogged_undo_are_left_out() {
        let messages = [message(&[("f", "1", "2")])];
        let mut record = Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(0));
        record.undone.push(UndoEntry {
            from: messages[0].id.clone(),
            files: Vec::new(),
            skipped_files: Vec::new(),
            is_complete: true,
            is_logged: false,
        });
        assert_eq!(session_changes(&messages, &record), []);
    }
}
