//! The models chosen last, in a small file for each project.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use base::environment::private_dir;
use transcript::ModelRef;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct RecentFile {
    /// For people who read the file, and because two projects may have the same digest.
    project: String,
    models: Vec<ModelRef>,
}

fn path(dir: &Path, project: &str) -> PathBuf {
    let digest = ring::digest::digest(&ring::digest::SHA256, project.as_bytes());
    let name: String = digest
        .as_ref()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    dir.join("projects").join(name + ".json")
}

/// Returns the chosen models, newest first; none if the file is unreadable.
pub(super) fn read(dir: &Path, project: &str) -> Vec<ModelRef> {
    let text = std::fs::read(path(dir, project)).ok();
    let content: RecentFile = text
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    if content.project == project {
        content.models
    } else {
        Vec::new()
    }
}

/// Writes the chosen models.
///
/// # Errors
/// Returns the error of the system if the file cannot be written; it is then unchanged.
pub(super) fn write(dir: &Path, project: String, models: Vec<ModelRef>) -> std::io::Result<()> {
    let path = path(dir, &project);
    let dir = path.parent().unwrap_or(dir);
    private_dir(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&serde_json::to_vec(&RecentFile { project, models })?)?;
    file.persist(&path).map(drop).map_err(|e| e.error)
}
