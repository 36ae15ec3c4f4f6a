//! Decides whether a file may be restored.

use std::path::PathBuf;

use snapshot::Tracker;
use transcript::{FileChange, FileState};

/// The caution of a restore, which determines the files that it leaves alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RevertCare {
    /// Leaves files alone that others have changed, or may have changed, and those that a redo
    /// could not restore.
    Undo,
    /// Leaves only those files alone whose present content would be lost.
    Force,
    /// Leaves files alone that others have changed.
    Redo,
}

/// The decision on a file.
pub(super) enum FileVerdict {
    Ready,
    AlreadyMade,
    /// It is left alone, for this reason.
    Skip(Obstacle, String),
}

/// The kind of a reason not to restore a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Something would be lost; [`RevertCare::Force`] restores the file.
    Caution,
    /// An attempt failed; another one may succeed.
    Failure,
    /// A content that is needed is not stored, or cannot be stored.
    Loss,
}

/// Judges a file that is to be restored. With `Force`, the old state of the change becomes the
/// present one.
pub(super) fn judge(
    tracker: &Tracker,
    mut change: FileChange,
    unsaved: Option<&str>,
    care: RevertCare,
) -> (FileChange, FileVerdict) {
    let verdict = judge_file(tracker, &mut change, unsaved, care);
    (change, verdict)
}

fn judge_file(
    tracker: &Tracker,
    change: &mut FileChange,
    unsaved: Option<&str>,
    care: RevertCare,
) -> FileVerdict {
    let path = PathBuf::from(&change.path);
    let is = |state: Option<&FileState>| tracker.has_state(&path, state);
    let as_was = match (is(change.new.as_ref()), is(change.old.as_ref())) {
        (Ok(true), _) if unsaved.is_none() => return FileVerdict::AlreadyMade,
        (Ok(_), Ok(as_was)) => as_was,
        (Err(e), _) | (_, Err(e)) => {
            return FileVerdict::Skip(Obstacle::Failure, format!("it cannot be read ({e})"));
        }
    };
    let stored = change
        .new
        .as_ref()
        .map_or(Ok(()), |new| tracker.content(new).map(drop));
    if let Err(e) = stored {
        return FileVerdict::Skip(Obstacle::Loss, e.to_string());
    }
    if as_was && unsaved.is_none() {
        if care == RevertCare::Undo
            && let Some(why) = doubt_reason(tracker, change)
        {
            return FileVerdict::Skip(Obstacle::Caution, why.into());
        }
        return FileVerdict::Ready;
    }
    if care != RevertCare::Force {
        let is_lost = care == RevertCare::Undo && unsaved.is_none() && !tracker.can_store(&path);
        let (obstacle, why) = if unsaved.is_some() {
            (Obstacle::Caution, "it has unsaved changes in the editor")
        } else if is_lost {
            (
                Obstacle::Loss,
                "it has changed since, and is now too large to be saved",
            )
        } else {
            (Obstacle::Caution, "it has changed since")
        };
        return FileVerdict::Skip(obstacle, why.into());
    }
    let now = match unsaved {
        Some(text) => tracker.store(text.as_bytes()).map(Some),
        None => tracker.record_file(&path),
    };
    match now {
        Ok(Some(state)) if state.large => {
            FileVerdict::Skip(Obstacle::Loss, "it is now too large to be saved".into())
        }
        Ok(now) => {
            change.old = now;
            FileVerdict::Ready
        }
        Err(e) => FileVerdict::Skip(
            Obstacle::Failure,
            format!("its current state cannot be saved ({e})"),
        ),
    }
}

/// Returns the reason to leave a file alone although it is as the session left it; `/undo force`
/// restores it.
fn doubt_reason(tracker: &Tracker, change: &FileChange) -> Option<&'static str> {
    if change.compared {
        return Some("another program may have changed it while a command ran");
    }
    let is_lost = |now: &FileState| now.large || tracker.is_content_missing(now);
    change
        .old
        .as_ref()
        .is_some_and(is_lost)
        .then_some("its current content is not saved, so a redo could not restore it")
}
