//! Downloads named by the user's files: an organisation's defaults, instruction pages, skills and
//! repositories. They run in the background and are stored on the disk for the readers of settings.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use base::environment::{Environment, private_dir};
use config::reference::RepositoryClone;
use config::remote::{self, DefaultsAnswer, RemoteDefaults};
use project::instruction;
use project::skill::index::{self, FetchedSkill, IndexedSkill, SkillIndex};
use providers::http::HttpClient;
use sandbox::process::{Program, ProgramOwner};

/// The time limit of one address.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches the defaults of the organisations that the user has logged in to. Returns notices for
/// the user, one sentence each.
pub async fn fetch_defaults(client: Arc<HttpClient>, environment: Environment) -> Vec<String> {
    let Ok(wanted) = base::task::spawn_blocking(move || remote::organisations(&environment)).await
    else {
        return Vec::new();
    };
    let mut notices = Vec::new();
    for remote in wanted {
        prepare_client(&client, &remote.address).await;
        if let Err(why) = fetch_defaults_of(&client, &remote).await {
            let fallback = if remote.file.exists() {
                "the earlier version applies"
            } else {
                "what they deny is not known"
            };
            notices.push(format!(
                "The defaults at {} could not be fetched, so {fallback}: {why}",
                remote.address
            ));
        }
    }
    notices
}

async fn fetch_defaults_of(client: &HttpClient, remote: &RemoteDefaults) -> Result<(), String> {
    let first = DefaultsAnswer::read(&get(client, &remote.address, &[]).await?)?;
    let further = match &first.further {
        Some((url, headers)) => {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (name.clone(), remote.substitute_token(value)))
                .collect();
            if !remote::is_private(url) {
                return Err(format!("it refers to {url}, which is not an https address"));
            }
            Some(DefaultsAnswer::read(&get(client, url, &headers).await?)?)
        }
        None => None,
    };
    let text = remote::merge_answers(&first, further.as_ref()).to_string();
    store_text(remote.file.clone(), text).await
}

/// Fetches an instruction page. Returns a notice for the user if that fails.
pub(super) async fn fetch_page(
    client: Arc<HttpClient>,
    environment: Environment,
    address: String,
) -> Option<String> {
    prepare_client(&client, &address).await;
    let file = instruction::cached_page_path(&environment, &address);
    let fetched = match get(&client, &address, &[]).await {
        Ok(text) => store_text(file.clone(), text).await,
        Err(why) => Err(why),
    };
    let why = fetched.err()?;
    let fallback = if file.exists() {
        "the earlier version is used"
    } else {
        "they are missing"
    };
    Some(format!(
        "The instructions at {address} could not be fetched, so {fallback}: {why}"
    ))
}

/// The time limit of all skills of an address.
const SKILLS_TIMEOUT: Duration = Duration::from_secs(60);

/// The skills that are fetched concurrently.
const MAX_CONCURRENT_SKILLS: usize = 8;

/// Fetches an index of skills, and the skills in it that differ from the stored ones. Returns
/// notices for the user.
pub(super) async fn fetch_skills(
    client: Arc<HttpClient>,
    environment: Environment,
    address: String,
) -> Vec<String> {
    prepare_client(&client, &address).await;
    let dir = index::cache_dir(&environment, &address);
    match tokio::time::timeout(
        SKILLS_TIMEOUT,
        fetch_changed_skills(&client, &address, &dir),
    )
    .await
    {
        Ok(Ok(notices)) => notices
            .into_iter()
            .map(|what| format!("The skills at {address}: {what}."))
            .collect(),
        failed => {
            let late = format!(
                "they did not arrive within {} seconds",
                SKILLS_TIMEOUT.as_secs()
            );
            let why = failed.ok().and_then(Result::err).unwrap_or(late);
            let fallback = if dir.exists() {
                "the earlier ones are used"
            } else {
                "they are missing"
            };
            vec![format!(
                "The skills at {address} could not be fetched, so {fallback}: {why}"
            )]
        }
    }
}

async fn fetch_changed_skills(
    client: &HttpClient,
    address: &str,
    dir: &Path,
) -> Result<Vec<String>, String> {
    let below = |parts: &[&str]| {
        index::address_of(address, parts).ok_or_else(|| "this is not an address".to_owned())
    };
    let text = get(client, &below(&["index.json"])?, &[]).await?;
    let index = Arc::new(SkillIndex::read(text.as_bytes())?);
    let directory = dir.to_owned();
    let wanted = index.clone();
    let current = base::task::spawn_blocking(move || index::current(&directory, &wanted)).await;
    let current = current.map_err(|e| e.to_string())?;
    let mut fetched: Vec<FetchedSkill> = Vec::new();
    let mut notices = index.refused.clone();
    let mut fetches = Vec::new();
    for skill in index
        .skills
        .iter()
        .filter(|skill| !current.contains(&skill.name))
    {
        fetches.push(fetch_skill(client, address, skill.clone()));
    }
    let mut coming = futures_util::stream::iter(fetches).buffered(MAX_CONCURRENT_SKILLS);
    let mut left = index::MAX_TOTAL_BYTES;
    while let Some((name, got)) = coming.next().await {
        let size = |files: &Vec<(String, Vec<u8>)>| {
            files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
        };
        match got {
            Ok(files) if size(&files) <= left => {
                left -= size(&files);
                fetched.push((name, files));
            }
            Ok(_) => notices.push(format!("{name} is left out: together they are too large")),
            Err(why) => notices.push(format!(
                "{name} could not be fetched: {}",
                why.trim_end_matches('.')
            )),
        }
    }
    drop(coming);
    let directory = dir.to_owned();
    let stored = base::task::spawn_blocking(move || index::keep(&directory, &index, fetched)).await;
    stored
        .map_err(io::Error::other)
        .and_then(|stored| stored)
        .map_err(|e| format!("they cannot be saved: {e}"))?;
    Ok(notices)
}

/// Fetches all files of a skill, and returns them with its name.
async fn fetch_skill(
    client: &HttpClient,
    address: &str,
    skill: IndexedSkill,
) -> (String, Result<Vec<(String, Vec<u8>)>, String>) {
    let files = fetch_files(client, address, &skill).await;
    (skill.name, files)
}

async fn fetch_files(
    client: &HttpClient,
    address: &str,
    skill: &IndexedSkill,
) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = Vec::new();
    let mut left = index::SKILL;
    for file in &skill.files {
        let url = index::address_of(address, &[&skill.name, file]).unwrap_or_default();
        let max = index::MAX_FILE_BYTES.min(left);
        let got = tokio::time::timeout(
            REQUEST_TIMEOUT,
            client.get("The server", &url, &[], max + 1),
        )
        .await;
        let late = || {
            format!(
                "there was no answer within {} seconds",
                REQUEST_TIMEOUT.as_secs()
            )
        };
        let bytes = got
            .map_err(|_| late())?
            .map_err(|e| format!("{file}: {e}"))?;
        if bytes.len() > max {
            return Err(format!("{file} is larger than {max} bytes"));
        }
        left -= bytes.len();
        files.push((file.clone(), bytes.to_vec()));
    }
    Ok(files)
}

/// The time limit of a git command.
const GIT_TIMEOUT: Duration = Duration::from_secs(120);

/// The age at which a clone is updated.
const UPDATE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Clones a repository that the settings refer to, or updates its clone: only the latest commit of
/// a branch. Returns a notice for the user if that fails.
pub(super) async fn fetch_repository(
    clone: &RepositoryClone,
    environment: &Environment,
    owner: ProgramOwner,
) -> Option<String> {
    let marker = clone.dir.join(".git").join("FETCH_HEAD");
    let exists = clone.dir.join(".git").is_dir();
    let age =
        std::fs::metadata(&marker).or_else(|_| std::fs::metadata(clone.dir.join(".git/HEAD")));
    let age = age
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|at| at.elapsed().ok());
    if exists && age.is_some_and(|age| age < UPDATE_INTERVAL) {
        return None;
    }
    let branch = clone.branch.as_deref().unwrap_or("HEAD");
    let done = if exists {
        update_clone(clone, branch, environment, owner).await
    } else {
        clone_repository(clone, environment, owner).await
    };
    let why = done.err()?;
    let fallback = if exists {
        "the earlier clone is used"
    } else {
        "it is missing"
    };
    Some(format!(
        "The repository {} could not be cloned, so {fallback}: {why}",
        clone.url
    ))
}

async fn update_clone(
    clone: &RepositoryClone,
    branch: &str,
    environment: &Environment,
    owner: ProgramOwner,
) -> Result<(), String> {
    run_git(
        &["fetch", "-q", "--depth=1", "origin", branch],
        &clone.dir,
        environment,
        owner,
    )
    .await?;
    run_git(
        &["reset", "-q", "--hard", "FETCH_HEAD"],
        &clone.dir,
        environment,
        owner,
    )
    .await
}

/// Clones into a temporary directory and renames it, so that no reader finds an incomplete clone.
async fn clone_repository(
    clone: &RepositoryClone,
    environment: &Environment,
    owner: ProgramOwner,
) -> Result<(), String> {
    let parent = clone.dir.parent().unwrap_or(Path::new("/")).to_path_buf();
    let made = || -> io::Result<tempfile::TempDir> {
        private_dir(&parent)?;
        tempfile::tempdir_in(&parent)
    };
    let dir = made().map_err(|e| e.to_string())?;
    let to = dir.path().join("clone").display().to_string();
    let mut args = vec![
        "clone",
        "-q",
        "--depth=1",
        "--single-branch",
        "--no-recurse-submodules",
        "--template=",
    ];
    args.extend(
        clone
            .branch
            .iter()
            .flat_map(|branch| ["--branch", branch.as_str()]),
    );
    args.extend(["--", clone.url.as_str(), to.as_str()]);
    run_git(&args, &parent, environment, owner).await?;
    match std::fs::rename(&to, &clone.dir) {
        Err(_) if clone.dir.is_dir() => Ok(()), // another session was faster
        renamed => renamed.map_err(|e| e.to_string()),
    }
}

/// Runs git without hooks, without filters chosen by the repository, and without questions at a
/// terminal.
async fn run_git(
    args: &[&str],
    cwd: &Path,
    environment: &Environment,
    owner: ProgramOwner,
) -> Result<(), String> {
    let safe = [
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "protocol.ext.allow=never",
    ];
    let args = safe.into_iter().chain(args.iter().copied());
    let program = Program::with_environment("git", cwd, environment)
        .args(args)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "true")
        .env("SSH_ASKPASS", "true")
        .owned_by(owner);
    match program.run(GIT_TIMEOUT).await {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => {
            let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
            Err(printed
                .lines()
                .rfind(|line| !line.trim().is_empty())
                .unwrap_or("git failed")
                .trim()
                .to_owned())
        }
        Err(e) => Err(e.to_string()),
    }
}

/// Prepares the client on a thread that may block, because reading certificates takes milliseconds.
async fn prepare_client(client: &Arc<HttpClient>, address: &str) {
    if address.starts_with("https://") {
        let client = client.clone();
        base::task::spawn_blocking(move || client.load_certificates())
            .await
            .ok(); // if it fails, so does the request
    }
}

async fn get(
    client: &HttpClient,
    address: &str,
    headers: &[(String, String)],
) -> Result<String, String> {
    let fetched = tokio::time::timeout(
        REQUEST_TIMEOUT,
        client.get("The server", address, headers, instruction::MAX_FILE_BYTES),
    );
    match fetched.await {
        Ok(Ok(body)) => Ok(String::from_utf8_lossy(&body).into_owned()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!(
            "there was no answer within {} seconds",
            REQUEST_TIMEOUT.as_secs()
        )),
    }
}

/// Stores a text, unless the file has it already: a file that is written again would count as
/// changed.
async fn store_text(file: std::path::PathBuf, text: String) -> Result<(), String> {
    let write = move || -> io::Result<()> {
        if std::fs::read_to_string(&file).is_ok_and(|stored| stored == text) {
            return Ok(());
        }
        let dir = file.parent().unwrap_or(Path::new("/"));
        private_dir(dir)?;
        let mut new = tempfile::NamedTempFile::new_in(dir)?;
        new.write_all(text.as_bytes())?;
        new.persist(&file).map(drop).map_err(|e| e.error)
    };
    let written = base::task::spawn_blocking(write).await;
    written
        .map_err(io::Error::other)
        .and_then(|written| written)
        .map_err(|e| format!("it cannot be saved: {e}"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[tokio::test]
    async fn repository_is_cloned_once_and_failure_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().display().to_string();
        let path = std::env::join_paths(["/usr/local/bin", "/usr/bin", "/bin"])
            .unwrap()
            .into_string()
            .unwrap();
        let vars = BTreeMap::from([
            ("HOME".to_owned(), home),
            ("PATH".to_owned(), path),
            ("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".to_owned()),
        ]);
        let environment = Environment::from_vars(vars);
        let owner = ProgramOwner::ADJUTANT;
        let origin = dir.path().join("origin");
        std::fs::create_dir(&origin).unwrap();
        run_git(&["init", "-q", "-b", "next"], &origin, &environment, owner)
            .await
            .unwrap();
        std::fs::write(origin.join("hello.txt"), "Hello.").unwrap();
        run_git(&["add", "-A"], &origin, &environment, owner)
            .await
            .unwrap();
        let who = [
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
            "commit",
            "-qm",
            "first",
        ];
        run_git(&who, &origin, &environment, owner).await.unwrap();
        let url = format!("file://{}", origin.display());
        let mut clone = RepositoryClone {
            url,
            branch: Some("next".into()),
            dir: dir.path().join("cache").join("references").join("origin"),
        };
        assert_eq!(fetch_repository(&clone, &environment, owner).await, None);
        assert_eq!(
            std::fs::read_to_string(clone.dir.join("hello.txt")).unwrap(),
            "Hello."
        );
        assert_eq!(
            fetch_repository(&clone, &environment, owner).await,
            None,
            "it is there"
        );
        clone.branch = Some("nowhere".into());
        clone.dir = dir.path().join("cache/references/other");
        let notice = fetch_repository(&clone, &environment, owner).await.unwrap();
        assert!(notice.contains("so it is missing"), "{notice}");
        assert!(!clone.dir.exists(), "{notice}");
    }
}
