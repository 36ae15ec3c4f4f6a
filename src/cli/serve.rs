//! `adjutant serve`: serves editors on this machine and others.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::acp::DraftSwitch;
use super::telemetry::TelemetryExport;
use super::terminal::{misused, print_note, say};
use super::work;
use base::environment::{Environment, private_file};
use base::worktree::Worktree;
use config::settings::{ServeSettings, TlsFiles};
use remote::host::Host;
use remote::observe::EventOffer;
use remote::tokens::Tokens;
use remote::{listen, tokens};

/// Options of `adjutant serve`. They take the place of what the settings say.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address to listen on [default: 127.0.0.1:4200]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Allow only this directory and those below it. Can be repeated
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,
    /// File with the tokens of clients that may connect
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate to serve with, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    draft: DraftSwitch,
    /// Answer prompts queued in the database, N at a time (4 if no number is given)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "4")]
    work: Option<usize>,
    /// Create a token, print it once, add it to the token file, and exit
    #[arg(long, value_name = "NAME")]
    new_token: Option<String>,
    /// User that the new token belongs to
    #[arg(long, value_name = "USER", requires = "new_token")]
    user: Option<String>,
}

impl Args {
    /// Returns whether it changes the set of clients that may connect.
    pub(super) fn changes_access(&self) -> bool {
        self.new_token.is_some()
    }
}

/// Serves until a signal arrives.
pub(super) async fn serve(args: Args, environment: Environment) -> ExitCode {
    let settings = settings(&args, &environment);
    if let Some(name) = &args.new_token {
        return match new_token(name, args.user.as_deref(), &settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => super::complain(&why),
        };
    }
    let listen: SocketAddr = match settings.listen.parse() {
        Ok(listen) => listen,
        Err(_) => {
            return misused(&format!(
                "\"{}\" is not an address with a port, such as 127.0.0.1:4200",
                settings.listen
            ));
        }
    };
    match run(settings, listen, &args, environment).await {
        Ok(code) => ExitCode::from(code),
        Err(why) => super::complain(&why),
    }
}

/// Returns the settings of the user's own files and the command line. Settings of projects do not
/// apply.
fn settings(args: &Args, environment: &Environment) -> ServeSettings {
    let own = environment
        .home
        .clone()
        .unwrap_or_else(|| PathBuf::from("/"));
    let worktree = Worktree::find(&own, &[], environment.home.as_deref());
    let mut settings = config::load(environment, &worktree, &own).settings.serve;
    if let Some(listen) = &args.listen {
        settings.listen.clone_from(listen);
    }
    if !args.root.is_empty() {
        settings.roots = Some(args.root.clone());
    }
    if let Some(file) = &args.token_file {
        settings.token_file = Some(file.clone());
    }
    if let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) {
        let clients = settings.tls.take().and_then(|tls| tls.clients);
        settings.tls = Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            clients,
        });
    }
    settings
}

/// Creates a token. It is printed, and only its digest is stored.
fn new_token(name: &str, user: Option<&str>, settings: &ServeSettings) -> Result<(), String> {
    let (token, line) = tokens::make(name, user)?;
    let Some(path) = &settings.token_file else {
        return Err(
            "name the token file: --token-file FILE, or serve.token_file in the settings".into(),
        );
    };
    let known = Tokens::new(
        &settings.tokens,
        Some(path).filter(|path| path.exists()).map(|path| &**path),
    )?;
    if known.has(name) {
        return Err(format!(
            "there is a token named \"{name}\" already; remove its line, or choose another name"
        ));
    }
    // An editor may have omitted the newline at the end of the file.
    let unfinished =
        std::fs::read_to_string(path).is_ok_and(|text| !text.is_empty() && !text.ends_with('\n'));
    let gap = if unfinished { "\n" } else { "" };
    let file = private_file().create(true).append(true).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{gap}{line}"));
    written.map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    say(&token);
    print_note(&format!(
        "{} stores its SHA-256; the token itself is not shown again.",
        path.display()
    ));
    Ok(())
}

/// The time limit for turns to end at a step, after the drain limit.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

async fn run(
    settings: ServeSettings,
    listen: SocketAddr,
    args: &Args,
    environment: Environment,
) -> Result<u8, String> {
    let stop = CancellationToken::new();
    let ended = CancellationToken::new();
    let tls = settings.tls.as_ref().map(listen::tls).transpose()?;
    let drain = settings.drain;
    let secure = tls.is_some();
    let draft = args.draft.is_on(&environment);
    let telemetry = TelemetryExport::new(&environment);
    let host = Host::new(environment, settings, listen, draft, ended)?;
    // The only place that sets it.
    host.telemetry.set(telemetry.start()).ok();
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|e| format!("cannot listen on {listen}: {e}"))?;
    let address = listener
        .local_addr()
        .map_err(|e| format!("cannot listen on {listen}: {e}"))?;
    let scheme = if secure { "wss" } else { "ws" };
    print_note(&format!("adjutant serves at {scheme}://{address}/acp"));
    if host.admission.is_open() {
        print_note(
            "Every user of this machine may connect; --token-file restricts that to those who have a token.",
        );
    }
    let at_work = match args.work {
        Some(at_once) => {
            let sessions = host.own_sessions();
            if !sessions.store.is_shared().await {
                return Err(
                    "prompts can be queued only in a database: set store.url in your settings"
                        .into(),
                );
            }
            print_note(&format!(
                "It answers prompts from the store, {at_once} at a time."
            ));
            Some(base::task::spawn(work::work(
                sessions,
                at_once.max(1),
                host.draining.clone(),
            )))
        }
        None => None,
    };
    let signal = base::task::spawn(super::signalled(stop.clone(), true));
    let own = host.own_sessions();
    let readers = EventOffer::start(&own.events, &own.environment);
    let serving = base::task::spawn(listen::listen(host.clone(), listener, tls));
    stop.cancelled().await;
    let code = signal.await.ok().flatten().unwrap_or_default();
    let turns = host.turns();
    if turns > 0 {
        print_note(&format!(
            "Waiting for {turns} turns to end, {} seconds at most.",
            drain.as_secs()
        ));
    }
    let again = CancellationToken::new();
    let left = host.clone();
    let over = async move {
        left.drain().await;
        if let Some(at_work) = at_work {
            at_work.await.ok();
        }
    };
    let at_a_step = async {
        tokio::time::sleep(drain).await; // the limit that was set
        print_note("Running turns end at their next step.");
        host.leave();
        tokio::time::sleep(STEP_TIMEOUT).await; // a step that takes longer is cut off
    };
    tokio::select! {
        () = over => {}
        () = at_a_step => print_note("Running turns are cancelled."),
        _ = super::signalled(again, true) => print_note("Running turns are cancelled."),
    }
    // Prompts from the store that are cut off continue on another host.
    host.leave();
    host.finish().await;
    readers.finish().await;
    telemetry.finish().await;
    serving.abort();
    // SIGTERM is the regular way to stop the server.
    Ok(if code == 143 { 0 } else { code })
}
