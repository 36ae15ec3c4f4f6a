//! `adjutant connect`: connects a client that can only start programs to a remote server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use protocol::lines::{self, Outbox};
use reqwest::header::HeaderValue;
use tokio_util::sync::CancellationToken;

use super::terminal::print_note;
use base::environment::Environment;
use providers::http;
use remote::bridge::Bridge;

/// Options of `adjutant connect`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address of the server, such as wss://build.example.com/acp
    url: String,
    /// File with the token, instead of the variable ADJUTANT_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Client certificate for the server, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Key of that certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

/// Relays messages between the client and the server until the client closes the input.
pub(super) async fn connect(args: Args, environment: &Environment) -> ExitCode {
    let (client, url, token) = match prepare(&args, environment) {
        Ok(prepared) => prepared,
        Err(why) => return super::terminal::misused(&why),
    };
    let output = match lines::take_stdout() {
        Ok(output) => output,
        Err(e) => return super::complain(&format!("standard output cannot be used: {e}")),
    };
    let outbox = Outbox::start(output);
    let ended = CancellationToken::new();
    let signal = base::task::spawn(super::signalled(ended.clone(), true));
    let bridge = Bridge::new(client, url, token);
    let tell = |text: &str| print_note(&format!("adjutant: {text}"));
    let done = tokio::select! {
        done = bridge.run(lines::read(std::io::stdin()), &outbox, tell) => done,
        () = ended.cancelled() => Ok(()),
    };
    outbox.close().await;
    signal.abort();
    match (done, signal.await) {
        (Err(e), _) => super::complain(&format!("{e}")),
        (Ok(()), Ok(Some(code))) => ExitCode::from(code),
        (Ok(()), _) => ExitCode::SUCCESS,
    }
}

type Prepared = (reqwest::Client, String, Option<HeaderValue>);

fn prepare(args: &Args, environment: &Environment) -> Result<Prepared, String> {
    let url = match args.url.split_once("://") {
        Some(("ws", rest)) => format!("http://{rest}"),
        Some(("wss", rest)) => format!("https://{rest}"),
        Some(("http" | "https", _)) => args.url.clone(),
        _ => {
            return Err(format!(
                "\"{}\" is not an address such as wss://build.example.com/acp",
                args.url
            ));
        }
    };
    let mut url = reqwest::Url::parse(&url)
        .map_err(|e| format!("\"{}\" is not an address: {e}", args.url))?;
    if url.path() == "/" {
        url.set_path("/acp");
    }
    let token = match (&args.token_file, environment.var("ADJUTANT_TOKEN")) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path);
            Some(
                text.map_err(|e| format!("{} cannot be read: {e}", path.display()))?
                    .trim()
                    .to_owned(),
            )
        }
        (None, token) => token.map(|token| token.trim().to_owned()),
    };
    let loopback = providers::is_loopback(&url);
    if token.is_some() && url.scheme() == "http" && !loopback {
        return Err(format!(
            "the token would be sent unencrypted: use wss:// instead of {}",
            args.url
        ));
    }
    let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
    let mut token = token
        .transpose()
        .map_err(|_| "the token contains characters that are not allowed in a token".to_owned())?;
    if let Some(token) = &mut token {
        token.set_sensitive(true);
    }
    let builder = http::client_builder(environment)
        .map_err(|e| format!("no connection can be made from here: {e}"))?;
    let builder = if loopback {
        builder.no_proxy()
    } else {
        builder
    };
    let builder = match (&args.tls_certificate, &args.tls_key) {
        (Some(certificate), Some(key)) => builder.identity(identity(certificate, key)?),
        _ => builder,
    };
    let client = builder
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true)
        .build();
    let client = client.map_err(|e| format!("no connection can be made from here: {e}"))?;
    Ok((client, url.to_string(), token))
}

/// Returns the certificate with which the client identifies itself to the server.
fn identity(certificate: &Path, key: &Path) -> Result<reqwest::Identity, String> {
    let mut pem = Vec::new();
    for path in [certificate, key] {
        pem.extend(
            std::fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?,
        );
        pem.push(b'\n');
    }
    let unusable = |e| format!("{} and its key cannot be used: {e}", certificate.display());
    reqwest::Identity::from_pem(&pem).map_err(unusable)
}
