//! The file changes that a history records, merged per file.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use store::{Record, visible};
use transcript::{self, Content, FileChange, Message, UnrecordedWrite};

/// Returns the changes of a session that are in effect, merged per file: those of its visible
/// messages, and those of redos and restorations that no message records, which are given.
pub fn of_session(
    messages: &[Message],
    record: &Record,
    unrecorded: &[FileChange],
) -> Vec<FileChange> {
    let seen = messages
        .get(..visible(messages, &record.undone))
        .unwrap_or_default();
    with_others(seen, unrecorded)
}

/// Merges the changes of messages with others, each of which is placed by the states of its file.
fn with_others(messages: &[Message], others: &[FileChange]) -> Vec<FileChange> {
    let paths: HashSet<&str> = others.iter().map(|change| change.path.as_str()).collect();
    let (shared, own): (Vec<_>, Vec<_>) =
        recorded(messages).partition(|change| paths.contains(change.path.as_str()));
    let mut by_path: BTreeMap<&str, Vec<&FileChange>> = BTreeMap::new();
    for change in shared {
        by_path.entry(&change.path).or_default().push(change);
    }
    for change in others {
        let changes = by_path.entry(&change.path).or_default();
        let after = changes.iter().rposition(|other| other.new == change.old);
        let before = || changes.iter().position(|other| other.old == change.new);
        let at = after.map(|at| at + 1).or_else(before);
        changes.insert(at.unwrap_or(changes.len()), change);
    }
    transcript::merged(own.into_iter().chain(by_path.into_values().flatten()))
}

/// Returns the changes of some messages, merged per file. A file has several entries if it was
/// changed by others in between.
pub fn runs(messages: &[Message]) -> Vec<FileChange> {
    transcript::merged(recorded(messages))
}

fn recorded(messages: &[Message]) -> impl Iterator<Item = &FileChange> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let patches = parts.filter_map(|part| match &part.content {
        Content::Patch { files, .. } => Some(files),
        _ => None,
    });
    patches.flatten()
}

/// Returns the writes whose earlier state was not stored, each once.
pub fn unrecorded(messages: &[Message]) -> Vec<UnrecordedWrite> {
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
pub fn last_runs(messages: &[Message]) -> Vec<FileChange> {
    let mut runs = runs(messages);
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
    use base::id::{MessageId, PartId};
    use transcript::{FileKind, FileState, ModelRef, Part, Role, User};

    type Step<'a> = &'a [(&'a str, &'a str, &'a str)];

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

    fn message(steps: Step<'_>) -> Message {
        let content = Content::Patch {
            files: changes(steps),
            begun: false,
            unrecorded: Vec::new(),
        };
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
            parts: vec![Part {
                id: PartId::new("p"),
                content,
            }],
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
                (shown(runs(&messages)), shown(last_runs(&messages))),
                (
                    all.iter().map(ToString::to_string).collect(),
                    last.iter().map(ToString::to_string).collect()
                )
            );
        }
    }

    #[test]
    fn changes_of_redos_are_placed_by_their_states() {
        let table: &[(&[Step<'_>], Step<'_>, &[&str])] = &[
            (&[], &[("f", "1", "2")], &["f 1 2"]),
            (&[&[("f", "0", "1")]], &[("f", "1", "2")], &["f 0 2"]),
            (&[&[("f", "2", "3")]], &[("f", "1", "2")], &["f 1 3"]),
            (
                &[&[("f", "0", "1")], &[("f", "2", "3")], &[("g", "-", "1")]],
                &[("f", "1", "2")],
                &["g - 1", "f 0 3"],
            ),
            (&[&[("f", "-", "1")]], &[("f", "1", "-")], &[]),
            (
                &[&[("f", "1", "2")]],
                &[("f", "user", "4")],
                &["f 1 2", "f user 4"],
            ),
        ];
        for (steps, others, wanted) in table {
            let messages: Vec<Message> = steps.iter().map(|step| message(step)).collect();
            let merged = with_others(&messages, &changes(others));
            assert_eq!(shown(merged), *wanted, "{steps:?} {others:?}");
        }
    }
}
