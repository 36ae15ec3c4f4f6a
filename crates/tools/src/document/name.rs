//! What is done to a file's name: it is removed, or moved. Nobody has to read for that what the file holds, so it may be
//! anything, of any size.

use super::super::disk::{self, SetAside};
use super::super::path::{Access, PathKind, ResolvedPath, resolve};
use super::super::seen::KnownFile;
use super::super::{Failure, ToolContext};
use super::{Document, target};
use base::text;

/// Resolves the place of a file to be removed or moved, or the name that one is to get, and reads what is there. What is no
/// text exists, and has none.
///
/// # Errors
/// As [`target`], but for what a file holds; and for links.
pub async fn itself(context: &ToolContext, path: &str) -> Result<Document, Failure> {
    let place = resolve(context, path, Access::Edit)?;
    own_name(context, path, &place)?;
    let opened = target(context, path).await;
    let unread = match &opened {
        Ok(document) => !document.exists,
        Err(failure) => matches!(failure, Failure::Tell(_)),
    };
    if unread
        && place.real.found == PathKind::File
        && let Ok(identity) = disk::identify(&place.real.path)
    {
        return Ok(Document { exists: true, told: false, raw: Some(identity), ..Document::nothing(place) });
    }
    opened
}

/// That a path ends in a file's own name. Where it is a link's, what it leads to is judged, shown and kept for an undo, while
/// whoever removes or moves a link means the link.
fn own_name(context: &ToolContext, path: &str, place: &ResolvedPath) -> Result<(), Failure> {
    if !place.real.linked {
        return Ok(());
    }
    let (given, shown) = (text::escaped(path), &place.shown);
    match std::fs::symlink_metadata(context.absolute(path)) {
        Ok(data) if data.is_symlink() => Err(Failure::Tell(format!(
            "{given} is a link that leads to {shown}. A patch removes and moves files by their own names only: name {shown} if that file is meant, or use rm or mv in bash for the link itself."
        ))),
        // It is written in a way that does not say where its links are: as an address, for instance.
        Err(_) if !place.real.is_absent() => Err(Failure::Tell(format!(
            "A link on the way of {given} leads to {shown}. A patch removes and moves files by their own names only: name {shown} if that file is meant."
        ))),
        _ => Ok(()),
    }
}

impl Document {
    /// Whether it was read as text, or is to become one. Anything else has no text here, although it exists.
    pub fn is_text(&self) -> bool {
        self.raw.is_none()
    }

    /// Whether an undo could bring back what it holds: larger files are not kept (`crates/snapshot/src/lib.rs`).
    pub fn can_be_kept(&self) -> bool {
        self.raw.is_none_or(|raw| raw.length <= disk::LARGEST)
    }

    /// That the file may get another name, by which it might be read without asking. What comes back is a note for the model
    /// where the file has changed since it was read.
    ///
    /// # Errors
    /// To the model, for files that are not read without asking: read it (again), if that can be.
    pub fn check_movable(&mut self, context: &ToolContext) -> Result<Option<String>, Failure> {
        if self.is_text() {
            return self.check_quoted(context);
        }
        if self.readable(context) {
            return Ok(None);
        }
        Err(Failure::Tell(format!(
            "{} is not read without asking, and it is no text that could be read before it is moved. Use mv in bash if it is to be moved.",
            self.place.shown
        )))
    }

    /// This place, where nothing is yet, as the place of a file that will be moved here.
    #[must_use]
    pub fn for_moved(self, file: &Self) -> Self {
        Self { mark: file.mark, told: file.told, ..self }
    }

    /// Moves the file to a place where nothing is, with its bytes and its mode. Directories are made.
    ///
    /// # Errors
    /// To the model, with the system's reason; the file is where it was then.
    pub fn rename(&self, to: &Self, context: &ToolContext) -> Result<(), Failure> {
        to.make_directory()?;
        disk::rename(&self.place.real.path, &to.place.real.path)
            .map_err(|e| Failure::Tell(format!("Cannot move {} to {}: {e}.", self.place.shown, to.place.shown)))?;
        context.session.seen.forget(&self.place.real.path);
        if self.told {
            context.session.seen.note(&to.place.real.path, KnownFile::of(&self.text, self.disk));
        }
        Ok(())
    }

    /// Takes back [`Document::rename`].
    ///
    /// # Errors
    /// The system's.
    pub fn rename_back(&self, to: &Self, context: &ToolContext) -> Result<(), disk::Error> {
        disk::rename(&to.place.real.path, &self.place.real.path)?;
        context.session.seen.forget(&to.place.real.path);
        self.note_if_told(context);
        Ok(())
    }

    /// Removes the file in a way that can be taken back.
    ///
    /// # Errors
    /// To the model, with the system's reason.
    pub fn set_aside(&self, context: &ToolContext) -> Result<SetAside, Failure> {
        let aside = disk::set_aside(&self.place.real.path).map_err(|e| self.undeletable(&e))?;
        context.session.seen.forget(&self.place.real.path);
        Ok(aside)
    }

    /// Takes back [`Document::set_aside`].
    ///
    /// # Errors
    /// Where the file is instead, and why.
    pub fn put_back(&self, aside: SetAside, context: &ToolContext) -> Result<(), String> {
        aside.back().map_err(|(name, e)| format!("it is called {name} now, because {e}"))?;
        self.note_if_told(context);
        Ok(())
    }

    fn note_if_told(&self, context: &ToolContext) {
        if self.told {
            self.note(context);
        }
    }

    /// Why it cannot be removed.
    pub(super) fn undeletable(&self, e: &disk::Error) -> Failure {
        Failure::Tell(format!("Cannot delete {}: {e}.", self.place.shown))
    }
}
