//! The file changes that a history records, merged per file.

use std::collections::{BTreeSet, HashSet};

use transcript::{self, Content, FileChange, Message, UnrecordedWrite};

/// Returns the changes of some messages, merged per file. A file has several entries if it was
/// changed by others in between.
pub fn runs(messages: &[Message]) -> Vec<FileChange> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let patches = parts.filter_map(|part| match &part.content {
        Content::Patch { files, .. } => Some(files),
        _ => None,
    });
    transcript::merged(patches.flatten())
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

    fn message(changes: &[(&str, &str, &str)]) -> Message {
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
        let content = Content::Patch {
            files: changes.iter().map(file_change).collect(),
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
        type Step<'a> = &'a [(&'a str, &'a str, &'a str)];
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
        let shown = |runs: Vec<FileChange>| {
            let state = |state: &Option<FileState>| {
                state
                    .as_ref()
                    .map_or("-".to_owned(), |state| state.hash.clone())
            };
            runs.iter()
                .map(|run| format!("{} {} {}", run.path, state(&run.old), state(&run.new)))
                .collect::<Vec<_>>()
        };
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
}
