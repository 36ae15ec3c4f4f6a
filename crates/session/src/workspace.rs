//! Directories that a serving host makes for its sessions, and where the commands of a session run there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sessions::{ServedPlaces, Sessions};
use permission::account::AccountAccess;
use sandbox::process;

/// How long making a directory may take: it may be a clone of a large repository.
const PATIENCE: Duration = Duration::from_secs(300);

impl Sessions {
    /// What this process does for the sessions it serves.
    pub(super) fn served(&self) -> ServedPlaces {
        self.served.get().cloned().unwrap_or_default()
    }

    /// Whether the user of these sessions may change what belongs to the account that this process runs as.
    pub fn account(&self) -> AccountAccess {
        self.served().account
    }

    /// Whether a session that works in one directory may be asked for with another: where its host makes them itself,
    /// nobody else knows which one it is.
    pub fn is_place(&self, kept: &Path, asked: &Path) -> bool {
        !self.served().workspace.is_empty() || super::open::same_directory(kept, asked)
    }

    /// The directory in which a session works that was asked for with another: the same one, or one that is made for it.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub(super) async fn directory(&self, session: &str, asked: &Path) -> Result<PathBuf, String> {
        let served = self.served();
        let Some((program, arguments)) = served.workspace.split_first() else { return Ok(asked.to_path_buf()) };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain([session]).collect();
        let known = [("ADJUTANT_SESSION", session), ("ADJUTANT_DIRECTORY", &asked.to_string_lossy())];
        let ran = process::run(program, &arguments, asked, &known, &self.environment, PATIENCE).await;
        let ran = ran.map_err(|e| format!("{program} cannot be run: {e}"))?;
        let said = String::from_utf8_lossy(&ran.stdout);
        if !ran.status.success() {
            let why = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{program} failed ({}): {}", ran.status, why.trim()));
        }
        let path = PathBuf::from(said.trim_end().lines().next_back().unwrap_or_default());
        match path.is_absolute() && path.is_dir() {
            true => Ok(path),
            false => Err(format!("{program} printed no directory that exists: \"{}\"", path.display())),
        }
    }
}
