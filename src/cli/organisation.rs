//! `adjutant auth login https://…`: a login to an organisation, which brings its defaults
//! (`.well-known/opencode`).

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use super::credential_input::{ask_secret, line, report_stored};
use super::say;
use base::environment::Environment;
use base::text;
use config::remote;
use providers::auth::Auth;
use providers::http::HttpClient;

/// The time limit of the request for an organisation's page.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer of an organisation's server, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Returns whether the name of a provider is the address of an organisation.
pub(super) fn is_address(name: &str) -> bool {
    name.starts_with("https://") || name.starts_with("http://")
}

/// Returns an address without the slashes at its end, the form in which it is stored.
pub(super) fn base(address: &str) -> &str {
    address.trim_end_matches('/')
}

/// Logs in to an organisation: stores its token, and fetches its defaults.
pub(super) async fn login(address: &str, environment: &Environment) -> anyhow::Result<u8> {
    let base = base(address);
    if !remote::is_private(base) {
        bail!("{base} is not an https address, so a token would be sent unencrypted");
    }
    let client = Arc::new(HttpClient::new(environment));
    let page = format!("{base}/.well-known/opencode");
    let fetched = client.get("The organisation's server", &page, &[], MAX_ANSWER_BYTES);
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, fetched)
        .await
        .with_context(|| {
            format!(
                "{page} did not answer within {} seconds; nothing was changed",
                REQUEST_TIMEOUT.as_secs()
            )
        })?
        .with_context(|| format!("{page} cannot be fetched; nothing was changed"))?;
    let answer: Value = serde_json::from_slice(&answer)
        .with_context(|| format!("{page} is not JSON; nothing was changed"))?;
    if !answer.is_object() {
        bail!("{page} is not an object; nothing was changed");
    }
    let entry = match answer.get("auth").filter(|auth| !auth.is_null()) {
        Some(auth) => {
            let name = auth
                .get("env")
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
                .ok_or_else(|| {
                    anyhow!("{page} does not name the variable of its token (auth.env); nothing was changed")
                })?;
            json!({ "type": "wellknown", "key": name, "token": token(base, auth)? })
        }
        // An organisation may publish its defaults for everyone.
        None => json!({ "type": "wellknown", "key": "", "token": "" }),
    };
    let path = Auth::path(environment);
    Auth::change_file(&path, |all| drop(all.insert(base.to_owned(), entry)))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    let is_replaced = environment.setting("AUTH_CONTENT").is_some();
    report_stored(base, &path, is_replaced);
    let notices = session::fetch::fetch_defaults(client, environment.clone()).await;
    for notice in &notices {
        super::terminal::print_note(notice);
    }
    if notices.is_empty() {
        say(
            "Its defaults apply from now on, below your own settings; `adjutant config` shows them.",
        );
    }
    Ok(u8::from(!notices.is_empty()))
}

/// Reads the token. The organisation names a command that prints it; adjutant runs no command that
/// a server names.
fn token(base: &str, auth: &Value) -> anyhow::Result<String> {
    let command: Vec<_> = auth
        .get("command")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(text::shell_quoted)
        .collect();
    let command = text::title(&command.join(" "));
    let is_terminal = std::io::stdin().is_terminal();
    let token = if is_terminal {
        // A part of the question, which is on the terminal wherever the output goes.
        let hint = if command.is_empty() {
            String::new()
        } else {
            format!(
                "{base} says that this command prints your token; adjutant does not run it:\n\n  {command}\n\n"
            )
        };
        ask_secret(&format!("{hint}Token for {base}: "))?.unwrap_or_default()
    } else {
        line()?
    };
    if token.is_empty() {
        let from = if command.is_empty() {
            String::new()
        } else {
            format!(" ({base} says that this prints it: {command})")
        };
        bail!(
            "no token was given; nothing was changed. Pipe it in{from}: COMMAND | adjutant auth login {base}"
        );
    }
    Ok(token)
}
