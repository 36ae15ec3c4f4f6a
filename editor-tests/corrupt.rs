//! Damage to stored sessions.

use std::fs;
use std::path::{Path, PathBuf};

/// Damages every session file under `data`: `the sessions` (overwritten with rubbish) or
/// `the version` (as if a newer adjutant had written them).
///
/// # Errors
/// If there is no session, or no such damage.
pub fn corrupt(data: &Path, what: &str) -> Result<(), String> {
    let sessions = files_below(data, "ses_");
    if sessions.is_empty() {
        return Err(format!("no session is stored below {}", data.display()));
    }
    for session in sessions {
        match what {
            "the sessions" => fs::write(
                &session,
                "this is no database, whatever it was before\n".repeat(400),
            )
            .map_err(|e| e.to_string())?,
            "the version" => {
                let database = rusqlite::Connection::open(&session).map_err(|e| e.to_string())?;
                database
                    .pragma_update(None, "user_version", 9_999)
                    .map_err(|e| e.to_string())?;
            }
            _ => return Err("the sessions, or the version".into()),
        }
    }
    Ok(())
}

/// Files whose name begins with `prefix`, and that are databases.
fn files_below(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(files_below(&path, prefix));
        } else if name.starts_with(prefix)
            && !name.ends_with("-wal")
            && !name.ends_with("-shm")
            && !name.ends_with("-journal")
        {
            found.push(path);
        }
    }
    found
}
