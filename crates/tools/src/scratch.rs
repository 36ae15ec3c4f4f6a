//! The directory for temporary files of a session's commands, their `TMPDIR`.
//!
//! It is in the system's temporary directory under a short name, because the path of a socket is
//! limited to 108 bytes. It belongs to one session in one process: another process that takes over
//! the session has its own, which the end of the first does not affect. Only its owner can access
//! it. It is removed at the end of the session; directories of killed processes are removed with
//! other old files.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::environment::{Environment, private_dir};

/// The maximum length of the path of the system's temporary directory; `/tmp` is used instead of a
/// longer one.
const MAX_SYSTEM_PATH_BYTES: usize = 40;

/// Returns the directory of a session in this process. It may not exist yet. `session` is the
/// session's id, or a name for programs that several sessions share.
pub fn directory(environment: &Environment, session: &str) -> PathBuf {
    let mut name = DefaultHasher::new();
    (&environment.dirs.data, session, std::process::id()).hash(&mut name);
    parent_directory(environment).join(format!("{:016x}", name.finish()))
}

/// Returns the parent of the directories of all of this user's sessions. If another user has taken
/// its name, the parent is among the user's own data.
pub fn parent_directory(environment: &Environment) -> PathBuf {
    let system = environment.tmp();
    let system = if system.as_os_str().len() <= MAX_SYSTEM_PATH_BYTES {
        system
    } else {
        PathBuf::from("/tmp")
    };
    let system = std::fs::canonicalize(&system).unwrap_or(system);
    let own = system.join(format!("adj-{}", rustix::process::geteuid().as_raw()));
    match is_ours(&own) {
        Ok(false) => among_data(environment),
        Ok(true) | Err(_) => own,
    }
}

/// Returns whether a directory is the user's own and no link; an error if it does not exist.
fn is_ours(directory: &Path) -> io::Result<bool> {
    let found = std::fs::symlink_metadata(directory)?;
    Ok(found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
}

/// Returns the parent directory that is used if another user has taken the usual name.
fn among_data(environment: &Environment) -> PathBuf {
    let data = &environment.dirs.data;
    std::fs::canonicalize(data)
        .unwrap_or_else(|_| data.clone())
        .join("scratch")
}

/// Creates the directory of a session, accessible only to its owner.
///
/// # Errors
/// The system's errors, and an error if another user has taken its name.
pub fn create(directory: &Path) -> io::Result<()> {
    let above = directory.parent().unwrap_or(directory);
    private_dir(above)?;
    if !is_ours(above)? {
        return Err(io::Error::other(format!(
            "{} is not this user's",
            above.display()
        )));
    }
    private_dir(directory)
}

/// Removes the directory of a session that has ended, and its parent if it is empty then.
pub fn remove(directory: &Path) {
    // Files that cannot be removed are removed with old ones later.
    std::fs::remove_dir_all(directory).ok();
    if let Some(above) = directory.parent() {
        std::fs::remove_dir(above).ok();
    }
}

/// Removes the directories for which `is_old` is true: those of killed processes.
pub fn clean(environment: &Environment, is_old: impl Fn(&Path) -> bool) {
    for above in [parent_directory(environment), among_data(environment)] {
        let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
        for path in entries
            .map(|entry| entry.path())
            .filter(|path| is_old(path))
        {
            // Files that cannot be removed are tried again the next time.
            std::fs::remove_dir_all(path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn environment(tmp: &Path, home: &Path) -> Environment {
        let shown = |path: &Path| path.display().to_string();
        Environment::from_vars(
            [
                ("HOME".to_owned(), shown(home)),
                ("TMPDIR".into(), shown(tmp)),
            ]
            .into(),
        )
    }

    #[test]
    fn directory_is_short_private_and_removed() {
        let tmp = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let environment = environment(tmp.path(), home.path());
        let one = directory(&environment, "ses_one");
        let other = directory(&environment, "ses_other");
        assert_ne!(one, other);
        assert_eq!(one, directory(&environment, "ses_one"));
        assert!(one.starts_with(std::fs::canonicalize(tmp.path()).unwrap()));
        create(&one).unwrap();
        create(&other).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&one), mode(one.parent().unwrap())), (0o700, 0o700));
        // The path of a socket with an ordinary name fits.
        let socket = one.join("a-socket-of-a-test-with-a-long-name.sock");
        drop(std::os::unix::net::UnixListener::bind(socket).unwrap());
        remove(&one);
        assert!(!one.exists() && other.exists());
        clean(&environment, |_| false);
        assert!(other.exists());
        clean(&environment, |_| true);
        assert!(!other.exists());
        remove(&other);
        assert!(!other.parent().unwrap().exists());
    }

    #[test]
    fn name_taken_by_another_user_is_not_used() {
        let tmp = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let environment = environment(tmp.path(), home.path());
        let taken = parent_directory(&environment);
        let elsewhere = tmp.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &taken).unwrap();
        assert!(parent_directory(&environment).starts_with(&environment.dirs.data));
        create(&taken.join("x")).unwrap_err();
        assert!(!elsewhere.join("x").exists());
    }

    #[test]
    fn long_system_directory_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let long = home.path().join("a".repeat(60));
        assert!(
            directory(&environment(&long, home.path()), "ses")
                .as_os_str()
                .len()
                < 50
        );
    }
}
