//! The working directories that `adjutant serve` creates for its sessions (setting
//! `serve.workspace`), and the other settings of a host for the sessions that it serves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sessions::{ServingOptions, Sessions};
use permission::account::AccountAccess;
use sandbox::process::Program;

/// The time limit of the command that creates a directory, perhaps by cloning a large repository.
const WORKSPACE_TIMEOUT: Duration = Duration::from_secs(300);

impl Sessions {
    /// Returns the settings of this process for the sessions it serves; the defaults if it serves no
    /// remote clients.
    pub(super) fn serving_options(&self) -> ServingOptions {
        self.serving_options.get().cloned().unwrap_or_default()
    }

    /// Returns the user's right to change property of the account that this process runs as.
    pub fn account(&self) -> AccountAccess {
        self.serving_options().account
    }

    /// True if a session that is `stored` with one directory may be opened with the `requested` one:
    /// if they are the same, or if the host creates the directories, because clients do not know
    /// those.
    pub fn can_be_opened_in(&self, stored: &Path, requested: &Path) -> bool {
        !self.serving_options().workspace_command.is_empty()
            || super::open::same_directory(stored, requested)
    }

    /// Returns the working directory of a session: the `requested` one, or the one that the host's
    /// command creates for it.
    ///
    /// # Errors
    /// If the command fails or prints no existing directory; a text for the user.
    pub(super) async fn working_directory(
        &self,
        session: &str,
        requested: &Path,
    ) -> Result<PathBuf, String> {
        let served = self.serving_options();
        let Some((program, arguments)) = served.workspace_command.split_first() else {
            return Ok(requested.to_path_buf());
        };
        let directory = requested.to_string_lossy();
        let known = [
            ("ADJUTANT_SESSION", session),
            ("ADJUTANT_DIRECTORY", &*directory),
        ];
        let variables = self.environment.vars().chain(known);
        let variables = variables
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let ran = Program::new(program, requested, variables)
            .args(arguments)
            .args([session])
            .owned_by(self.sandbox.owner())
            .run(WORKSPACE_TIMEOUT)
            .await;
        let ran = ran.map_err(|e| format!("{program} cannot be run: {e}"))?;
        let printed = String::from_utf8_lossy(&ran.stdout);
        if !ran.status.success() {
            let why = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{program} failed ({}): {}", ran.status, why.trim()));
        }
        let path = PathBuf::from(printed.trim_end().lines().next_back().unwrap_or_default());
        if !path.is_absolute() || !path.is_dir() {
            return Err(format!(
                "{program} printed no directory that exists: \"{}\"",
                path.display()
            ));
        }
        Ok(path)
    }
}
