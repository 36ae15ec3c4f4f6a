//! What the user's files name on the web: an organisation's defaults and instruction pages. They are
//! fetched beside the conversation and kept on the disk; whoever reads settings reads what is kept.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::remote::{self, Answer, Remote};
use crate::environment::{Environment, private_dir};
use crate::instruction;
use crate::model::http::Client;

/// How long one address may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Fetches the defaults of the organisations that the user logged in to. Gives what the user should
/// know, a sentence each.
pub(super) async fn defaults(client: Arc<Client>, environment: Environment) -> Vec<String> {
    let Ok(wanted) = tokio::task::spawn_blocking(move || remote::wanted(&environment)).await else {
        return Vec::new();
    };
    let mut notices = Vec::new();
    for remote in wanted {
        warm(&client, &remote.address).await;
        if let Err(why) = default(&client, &remote).await {
            let kept = if remote.file.exists() { "what was fetched before holds" } else { "they do not hold" };
            notices.push(format!("The defaults at {} could not be fetched, so {kept}: {why}", remote.address));
        }
    }
    notices
}

async fn default(client: &Client, remote: &Remote) -> Result<(), String> {
    let first = Answer::read(&get(client, &remote.address, &[]).await?)?;
    let further = match &first.further {
        Some((url, headers)) => {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (name.clone(), remote.filled(value))).collect();
            if !remote::is_private(url) {
                return Err(format!("it refers to {url}, which is not an https address"));
            }
            Some(Answer::read(&get(client, url, &headers).await?)?)
        }
        None => None,
    };
    let text = remote::joined(&first, further.as_ref()).to_string();
    keep(remote.file.clone(), text).await
}

/// Fetches an instruction page. Gives what the user should know, if anything.
pub(super) async fn page(client: Arc<Client>, environment: Environment, address: String) -> Option<String> {
    warm(&client, &address).await;
    let file = instruction::kept(&environment, &address);
    let fetched = match get(&client, &address, &[]).await {
        Ok(text) => keep(file.clone(), text).await,
        Err(why) => Err(why),
    };
    let why = fetched.err()?;
    let kept = if file.exists() { "what was fetched before is used" } else { "they are missing" };
    Some(format!("The instructions at {address} could not be fetched, so {kept}: {why}"))
}

/// Reading certificates takes milliseconds that nobody should wait for.
async fn warm(client: &Arc<Client>, address: &str) {
    if address.starts_with("https://") {
        let client = client.clone();
        tokio::task::spawn_blocking(move || client.warm()).await.ok(); // if it fails, so does the request
    }
}

async fn get(client: &Client, address: &str, headers: &[(String, String)]) -> Result<String, String> {
    let fetched = tokio::time::timeout(PATIENCE, client.get("The server", address, headers, instruction::LARGEST));
    match fetched.await {
        Ok(Ok(body)) => Ok(String::from_utf8_lossy(&body).into_owned()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("there was no answer within {} seconds", PATIENCE.as_secs())),
    }
}

/// Keeps a text, if it is another one than before: a file that is written again looks changed.
async fn keep(file: std::path::PathBuf, text: String) -> Result<(), String> {
    let write = move || -> io::Result<()> {
        if std::fs::read_to_string(&file).is_ok_and(|kept| kept == text) {
            return Ok(());
        }
        let dir = file.parent().unwrap_or(Path::new("/"));
        private_dir(dir)?;
        let mut new = tempfile::NamedTempFile::new_in(dir)?;
        new.write_all(text.as_bytes())?;
        new.persist(&file).map(drop).map_err(|e| e.error)
    };
    let written = tokio::task::spawn_blocking(write).await;
    written.map_err(io::Error::other).and_then(|written| written).map_err(|e| format!("it cannot be kept: {e}"))
}
