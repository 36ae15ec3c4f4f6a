//! Directories that a serving host makes for its sessions, and the way commands of a session run
//! there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sessions::{ServingOptions, Sessions};
use permission::account::AccountAccess;
use sandbox::process::Program;

/// The time limit of making a directory, which may be a clone of a large repository.
const WORKSPACE_TIMEOUT: Duration = Duration::from_secs(300);

impl Sessions {
    /// Returns the settings of this process for the sessions it serves.
    pub(super) fn serving_options(&self) -> ServingOptions {
        self.serving_options.get().cloned().unwrap_or_default()
    }

    /// Returns whether the user of these sessions may change property of the account that this
    /// process runs as.
    pub fn account(&self) -> AccountAccess {
        self.serving_options().account
    }

    /// Returns whether a session of one directory may be opened with another: always if the host
    /// makes the directories itself, because clients do not know them.
    pub fn can_be_opened_in(&self, stored: &Path, requested: &Path) -> bool {
        !self.serving_options().workspace_command.is_empty()
            || super::open::same_directory(stored, requested)
    }

    /// Returns the working directory of a session that was requested with `requested`: the same
    /// one, or one that the host makes for it.
    ///
    /// # Errors
    /// The reason why there is none, as a text for the user.
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
