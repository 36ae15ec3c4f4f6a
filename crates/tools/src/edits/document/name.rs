//! Operations on a file's name: removal and move. They do not need the content, so the file may be
//! of any kind and size.

use super::{Document, target};
use crate::files::disk::{self, SetAside};
use crate::files::path::{Access, PathKind, ResolvedPath, resolve};
use crate::{Failure, ToolContext};
use base::text;

/// Resolves the path of a file to be removed or moved, or its new path, and reads the file. A file
/// that is not text exists, but has no text.
///
/// # Errors
/// Same as [`target`], except for unsupported content; and an error for links.
pub async fn target_by_name(context: &ToolContext, path: &str) -> Result<Document, Failure> {
    let resolved_path = resolve(context, path, Access::Edit)?;
    check_own_name(context, path, &resolved_path)?;
    let opened = target(context, path).await;
    let unread = match &opened {
        Ok(document) => !document.exists,
        Err(failure) => matches!(failure, Failure::ForModel(_)),
    };
    if unread
        && resolved_path.real.kind == PathKind::File
        && let Ok(identity) = disk::identify(&resolved_path.real.path)
    {
        return Ok(Document {
            exists: true,
            is_known: false,
            raw: Some(identity),
            ..Document::absent(resolved_path)
        });
    }
    opened
}

/// Checks that a path ends in a file's own name. For a link, the target would be judged, shown and
/// stored for undo, while the removal or move of a link means the link itself.
fn check_own_name(
    context: &ToolContext,
    path: &str,
    resolved_path: &ResolvedPath,
) -> Result<(), Failure> {
    if !resolved_path.real.is_linked {
        return Ok(());
    }
    let given = text::escaped(path);
    let shown = &resolved_path.shown;
    match std::fs::symlink_metadata(context.absolute(path)) {
        Ok(data) if data.is_symlink() => Err(Failure::ForModel(format!(
            "{given} is a link that leads to {shown}. A patch removes and moves files by their own names only: name {shown} if that file is meant, or use rm or mv in bash for the link itself."
        ))),
        // The path is in a form, such as a URL, that does not show its links.
        Err(_) if !resolved_path.real.is_absent() => Err(Failure::ForModel(format!(
            "A link on the way of {given} leads to {shown}. A patch removes and moves files by their own names only: name {shown} if that file is meant."
        ))),
        _ => Ok(()),
    }
}

impl Document {
    /// Returns whether the file was read as text, or is to be created. Any other file has no text
    /// here, although it exists.
    pub fn is_text(&self) -> bool {
        self.raw.is_none()
    }

    /// Returns whether undo could restore the content: larger files are not stored
    /// (`crates/snapshot/src/lib.rs`).
    pub fn can_be_restored(&self) -> bool {
        self.raw
            .is_none_or(|raw| raw.length <= disk::MAX_FILE_BYTES)
    }

    /// Checks that the file may be moved to a name under which it may be read without asking.
    /// Returns a note for the model if the file has changed since it was read.
    ///
    /// # Errors
    /// A message for the model on files that it may not read without asking: read the file
    /// (again), if possible.
    pub fn check_movable(&mut self, context: &ToolContext) -> Result<Option<String>, Failure> {
        if self.is_text() {
            return self.check_quoted(context);
        }
        if self.readable(context) {
            return Ok(None);
        }
        Err(Failure::ForModel(format!(
            "{} is not read without asking, and it is no text that could be read before it is moved. Use mv in bash if it is to be moved.",
            self.path.shown
        )))
    }

    /// Returns this unused path as the destination of a moved file.
    #[must_use]
    pub fn for_moved(self, file: &Self) -> Self {
        Self {
            mark: file.mark,
            source: file.source.clone(),
            is_known: file.is_known,
            ..self
        }
    }

    /// Moves the file to an unused path, with its bytes and its mode. Creates missing directories.
    ///
    /// # Errors
    /// A message for the model, with the system's reason; the file keeps its path then.
    pub fn rename(&self, to: &Self, context: &ToolContext) -> Result<(), Failure> {
        to.make_directory()?;
        disk::rename(&self.path.real.path, &to.path.real.path).map_err(|e| {
            Failure::ForModel(format!(
                "Cannot move {} to {}: {e}.",
                self.path.shown, to.path.shown
            ))
        })?;
        context.session.seen.forget(&self.path.real.path);
        if self.is_known {
            context
                .session
                .seen
                .record(&to.path.real.path, self.known_file());
        }
        Ok(())
    }

    /// Undoes [`Document::rename`].
    ///
    /// # Errors
    /// The system's errors.
    pub fn rename_back(&self, to: &Self, context: &ToolContext) -> Result<(), disk::Error> {
        disk::rename(&to.path.real.path, &self.path.real.path)?;
        context.session.seen.forget(&to.path.real.path);
        self.record_if_known(context);
        Ok(())
    }

    /// Removes the file in a way that can be undone.
    ///
    /// # Errors
    /// A message for the model, with the system's reason.
    pub fn set_aside(&self, context: &ToolContext) -> Result<SetAside, Failure> {
        let aside = disk::set_aside(&self.path.real.path).map_err(|e| self.undeletable(&e))?;
        context.session.seen.forget(&self.path.real.path);
        Ok(aside)
    }

    /// Undoes [`Document::set_aside`].
    ///
    /// # Errors
    /// The name that the file has instead, and the reason.
    pub fn put_back(&self, aside: SetAside, context: &ToolContext) -> Result<(), String> {
        aside
            .back()
            .map_err(|(name, e)| format!("it is called {name} now, because {e}"))?;
        self.record_if_known(context);
        Ok(())
    }

    /// Records this state as known under its present path if the model knew it before.
    fn record_if_known(&self, context: &ToolContext) {
        if self.is_known {
            self.record_as_read(context);
        }
    }

    /// Returns the error for a file that cannot be removed.
    pub(super) fn undeletable(&self, e: &disk::Error) -> Failure {
        Failure::ForModel(format!("Cannot delete {}: {e}.", self.path.shown))
    }
}
