//! The command line: one file per subcommand.
//!
//! Exit codes: 0 done; 1 it failed; 2 the command line was wrong; 3 the turn ended without a
//! complete answer (refused, a limit was reached); 5 there is no answer because a call was not
//! permitted (with `--strict`: even if there is an answer); 130 interrupted.

mod acp;
mod agents;
mod auth;
mod call_view;
pub(crate) mod command_page;
mod complete;
mod config;
mod connect;
mod credential_input;
mod doctor;
mod events;
mod extensions;
mod form;
pub(crate) mod help;
mod in_process;
mod input;
mod listing;
mod log;
mod mcp;
mod meant;
mod model_request;
mod models;
mod organisation;
mod pages;
mod permissions;
mod project_context;
mod project_lists;
mod redaction;
mod refused;
mod reply;
mod report;
mod run;
mod serve;
mod sessions;
mod stats;
mod strip_types;
mod telemetry;
mod terminal;
mod trust;
mod trust_sharing;
mod wire;
mod work;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{FromArgMatches as _, Parser, Subcommand};
use tokio_util::sync::CancellationToken;

use base::environment::Environment;
use meant::CommandRemedy;
use project_lists::ListKind;
use terminal::{complain, say};

/// A coding agent for editors and terminals
///
/// Editors start `adjutant acp`; people and scripts use `adjutant run "PROMPT"`.
#[derive(Debug, Parser)]
#[command(
    name = "adjutant",
    bin_name = "adjutant",
    version,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Log in at a terminal instead of doing anything else: editors append it to their command.
    #[arg(long, global = true, hide = true)]
    login: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve an editor over the Agent Client Protocol
    ///
    /// Speaks ACP on standard input and output. This is the default command if standard input is
    /// not a terminal.
    Acp(acp::Args),
    /// Serve editors on this machine and others, over WebSocket and HTTP
    ///
    /// ACP is served at /acp, and the events of sessions at /events; /healthz, /readyz and /metrics
    /// are for monitoring. Listens on this machine only, unless the settings allow other machines.
    Serve(Box<serve::Args>),
    /// Connect to a server, for an editor that can only start programs
    ///
    /// Speaks ACP on standard input and output, and reconnects automatically.
    Connect(connect::Args),
    /// Answer one prompt, or hold a conversation at a terminal
    ///
    /// The answer goes to standard output, everything else to standard error.
    ///
    /// Exit codes: 0 done, 1 failed, 2 invalid command line, 3 no complete answer (refused, or a
    /// limit was reached), 5 a call was not permitted and there is no answer (with `--strict`,
    /// even if there is one), 129 hung up, 130 interrupted, 131 quit, 143 terminated.
    Run(Box<run::Args>),
    /// Show, check and change the settings
    Config(config::Args),
    /// Explain what is allowed, and revoke what was granted
    Permissions(permissions::Args),
    /// Show what a project would run or loosen, and decide on trust
    ///
    /// Exits with 1 if there is no decision yet.
    Trust(trust::Args),
    /// List hooks, custom tools and plugins, and install plugins
    ///
    /// Loads them as a session would. Exits with 1 if something does not load.
    Extensions(extensions::Args),
    /// Print the events of running sessions as JSON lines
    ///
    /// The events have the format of OpenCode. They come from every adjutant process that you run
    /// on this machine, including those started later. For `adjutant serve` on another machine,
    /// read its /events.
    Events(events::Args),
    /// List, read and manage sessions
    Sessions(sessions::Args),
    /// Count tokens and cost by day, model and project
    ///
    /// Counts the sessions of every project that are stored here. Input excludes tokens that
    /// providers had cached.
    Stats(stats::Args),
    /// List, show and create agents
    Agents(agents::Args),
    /// Manage API keys and logins
    Auth(auth::Args),
    /// List the skills available in this directory
    Skills(project_lists::Args),
    /// List the formatters that run after an edit
    Formatters(project_lists::Args),
    /// List the language servers that check edits
    Lsp(project_lists::Args),
    /// Check, add and remove MCP servers, log in, and call tools
    ///
    /// Exits with 1 if a server does not work, and with 5 if a call is not allowed.
    Mcp(mcp::Args),
    /// List models with their limits, prices and capabilities
    ///
    /// At a terminal, only a few models of each provider are shown: first those that you use, then
    /// the best. In a pipe, all are listed. Prices are in US dollars per million tokens, for input
    /// and output.
    Models(models::Args),
    /// Check what works on this machine
    ///
    /// Tests everything that it reports (the sandbox, providers, MCP servers) instead of relying on
    /// the settings. Exits with 1 if something does not work; with --report, only if the report
    /// cannot be written.
    Doctor(doctor::DoctorArgs),
    /// Print a completion script for a shell
    ///
    /// It also completes models, modes, agents, sessions and servers that exist.
    ///
    /// For bash, for example: `adjutant completions bash >
    /// ~/.local/share/bash-completion/completions/adjutant`
    Completions {
        /// Shell to complete in
        shell: pages::Shell,
    },
    /// Show a page of the manual
    ///
    /// At a terminal, the program man shows it; without that program, the help is printed instead.
    /// In a pipe or a file, the page is in the format of man.
    ///
    /// For example: `adjutant man sessions export`
    ///
    /// To install all pages: `adjutant man --output ~/.local/share/man/man1`
    Man(pages::ManualArgs),
}

/// A subcommand of a subcommand, or the options of its list.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct CommandOrList<V: Subcommand, L: clap::Args> {
    #[command(subcommand)]
    verb: Option<V>,
    #[command(flatten)]
    listing: L,
}

// The options of a list that has no others. A doc comment would be the help of every such command.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
struct JsonListing {
    /// Print JSON: a list with an object for each entry
    #[arg(long)]
    json: bool,
}

impl Command {
    /// Returns whether the command changes permissions or acts in the user's name, which no agent
    /// may do.
    fn is_for_the_user(&self) -> bool {
        match self {
            Self::Trust(args) => !args.only_lists(),
            Self::Permissions(args) => args.revokes(),
            Self::Sessions(args) => args.is_for_the_user(),
            Self::Agents(args) => matches!(args.verb, Some(agents::Verb::Create(_))),
            Self::Auth(args) => !matches!(args.verb, None | Some(auth::Verb::List(_))),
            Self::Config(args) => args
                .verb
                .as_ref()
                .is_some_and(config::ConfigCommand::changes),
            Self::Mcp(args) => args.acts(),
            Self::Extensions(args) => args.installs(),
            Self::Serve(args) => args.changes_access(),
            Self::Acp(_)
            | Self::Connect(_)
            | Self::Run(_)
            | Self::Models(_)
            | Self::Doctor(_)
            | Self::Events(_)
            | Self::Stats(_)
            | Self::Skills(_)
            | Self::Formatters(_)
            | Self::Lsp(_)
            | Self::Completions { .. }
            | Self::Man(_) => false,
        }
    }
}

/// Parses the command line and runs the command. A command whose output cannot be written fails.
pub fn main() -> ExitCode {
    terminal::code_after_output(run_command_line())
}

fn run_command_line() -> ExitCode {
    // A process that the program started itself in order to become a command does nothing else
    // before.
    if let Some(code) = sandbox::run_hidden_subcommand() {
        return code;
    }
    std::panic::set_hook(Box::new(terminal::panicked));
    sandbox::protect_process_memory();
    sandbox::process::set_process_name();
    if std::env::args_os().skip(1).eq([strip_types::ARGUMENT]) {
        return strip_types::strip_types();
    }
    let environment = Environment::read();
    if let Some(shell) = environment.var(complete::VARIABLE) {
        return complete::answer(shell, help::command());
    }
    // Clients start it like this. The fast path saves loading the parser with all its texts.
    let plain = std::env::args_os().skip(1).eq(["acp"]);
    let cli = if plain {
        Ok(Cli {
            command: Some(Command::Acp(acp::Args::default())),
            login: false,
        })
    } else {
        command_line(&environment)
    };
    let cli = match cli {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let command = match cli.command {
        _ if cli.login => Command::Auth(CommandOrList {
            verb: Some(auth::Verb::Login {
                provider: None,
                key: false,
                device: false,
            }),
            listing: JsonListing::default(),
        }),
        Some(command) => command,
        None if !std::io::stdin().is_terminal() => Command::Acp(acp::Args::default()),
        None => return terminal::help(help::command(), &environment),
    };
    if command.is_for_the_user()
        && (sandbox::is_sandboxed() || sandbox::process::is_started_by_adjutant(&environment))
    {
        return complain(
            "only the user may do this, but an agent started it: run it in a terminal outside adjutant",
        );
    }
    let done = match &command {
        Command::Config(args) if args.verb.as_ref().is_some_and(config::ConfigCommand::waits) => {
            None
        }
        Command::Config(args) => Some(config::config(
            args.verb
                .as_ref()
                .unwrap_or(&config::ConfigCommand::Show(args.listing)),
            &environment,
        )),
        Command::Agents(agents::Args {
            verb: Some(agents::Verb::Create(_)),
            ..
        }) => None,
        Command::Agents(args) => Some(agents::agents(
            args.verb
                .as_ref()
                .unwrap_or(&agents::Verb::List(args.listing)),
            &environment,
        )),
        Command::Skills(args) => Some(project_lists::list(ListKind::Skills, args, &environment)),
        Command::Formatters(args) => Some(project_lists::list(
            ListKind::Formatters,
            args,
            &environment,
        )),
        Command::Lsp(args) => Some(project_lists::list(
            ListKind::LanguageServers,
            args,
            &environment,
        )),
        Command::Completions { shell } => Some(pages::completions(*shell, help::command())),
        Command::Man(args) => Some(pages::manual(args, &environment)),
        // All other commands need the runtime.
        _ => None,
    };
    match done {
        Some(Ok(code)) => return ExitCode::from(code),
        Some(Err(e)) => return complain(&format!("{e:#}")),
        None => {}
    }
    let _log = log::start(&environment);
    base::open_files::raise();
    // One thread for all waiting halves the CPU per delta compared to two (0.04 s against 0.15 s
    // for 20,000), because no other thread has to be woken. Computation and blocking calls run on
    // threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return complain(&format!("adjutant cannot start its threads: {e}")),
    };
    let code = runtime.block_on(waiting(command, environment));
    // Threads that wait for a disk or a pipe must not delay the exit.
    runtime.shutdown_background();
    code
}

/// Returns the meaning of the command line.
///
/// # Errors
/// Returns the exit code if there is none, or if it asks for help, which was printed.
fn command_line(environment: &Environment) -> Result<Cli, ExitCode> {
    let e = match parse(std::env::args_os()) {
        Ok(cli) => return Ok(cli),
        // A request for help is understood, whatever words are before it.
        Err(e) if e.exit_code() == 0 => return Err(terminal::parsed(&e, environment)),
        Err(e) => e,
    };
    match meant::meaning_of_other_command(std::env::args_os().skip(1)) {
        Some(CommandRemedy::Words(words)) => {
            let first = words.first().cloned();
            parse(std::iter::once("adjutant".into()).chain(words)).map_err(|e| {
                let e = meant::with_next_step(e, first.as_deref());
                terminal::parsed(&e, environment)
            })
        }
        Some(CommandRemedy::Advice(advice)) => Err(terminal::misused(&advice)),
        None => {
            let first = std::env::args_os().nth(1);
            if let Some(advice) = meant::run_option(&e, first.as_deref()) {
                return Err(terminal::misused(&advice));
            }
            if let Some(advice) = meant::server_to_add(&e) {
                return Err(terminal::misused(advice));
            }
            let e = meant::with_near_name(e);
            if let Some(message) = meant::unknown_word(&e) {
                return Err(terminal::misused(&message));
            }
            let e = meant::with_next_step(e, first.as_deref());
            Err(terminal::parsed(&e, environment))
        }
    }
}

/// Parses a command line, which begins with the name of the program.
fn parse(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = help::command();
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}

/// Runs a command that needs the runtime.
async fn waiting(command: Command, environment: Environment) -> ExitCode {
    let done = match command {
        Command::Acp(args) => return acp::acp(&args, environment).await,
        Command::Serve(args) => return serve::serve(*args, environment).await,
        Command::Connect(args) => return connect::connect(args, &environment).await,
        Command::Run(args) => return run::run(*args, environment).await,
        Command::Permissions(args) => permissions::permissions(args, &environment).await,
        Command::Sessions(args) => sessions::sessions(args, &environment).await,
        Command::Stats(args) => stats::stats(&args, &environment).await,
        Command::Auth(args) => {
            let verb = args.verb.unwrap_or(auth::Verb::List(args.listing));
            auth::auth(verb, &environment).await
        }
        Command::Mcp(args) => mcp::mcp(args, &environment).await,
        Command::Trust(args) => trust::trust(&args, &environment).await,
        Command::Doctor(args) => doctor::doctor(&args, &environment).await,
        Command::Events(args) => events::events(&args, &environment).await,
        Command::Extensions(args) => extensions::extensions(args, &environment).await,
        Command::Config(config::Args {
            verb: Some(verb), ..
        }) => config::waiting(&verb, &environment).await,
        Command::Models(args) => models::models(&args, &environment).await,
        Command::Agents(agents::Args {
            verb: Some(agents::Verb::Create(wish)),
            ..
        }) => agents::create(&wish, &environment).await,
        // These were run before the runtime was started.
        Command::Config(_)
        | Command::Agents(_)
        | Command::Skills(_)
        | Command::Formatters(_)
        | Command::Lsp(_)
        | Command::Completions { .. }
        | Command::Man(_) => Ok(0),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => complain(&format!("{e:#}")),
    }
}

/// Returns whether the program accepts this command line; missing arguments are allowed. `words`
/// begin with the name of the program.
///
/// # Errors
/// Returns the parser's message, in one line.
#[cfg(test)]
pub(crate) fn understands(words: &[String]) -> Result<(), String> {
    use clap::error::ErrorKind::MissingRequiredArgument;
    let others = words.iter().skip(1).map(OsString::from);
    let words: Vec<OsString> = match meant::meaning_of_other_command(others) {
        Some(CommandRemedy::Words(meant)) => {
            std::iter::once("adjutant".into()).chain(meant).collect()
        }
        _ => words.iter().map(OsString::from).collect(),
    };
    match Cli::try_parse_from(words) {
        Err(e) if e.exit_code() != 0 && e.kind() != MissingRequiredArgument => {
            Err(e.to_string().lines().next().unwrap_or_default().to_owned())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Waits for a signal to end, and cancels `ended`. Returns the exit code for the signal. With
/// `interrupt` off, another task handles Ctrl-C.
async fn signalled(ended: CancellationToken, interrupt: bool) -> Option<u8> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup()).ok()?;
    let mut terminate = signal(SignalKind::terminate()).ok()?;
    // Installed in either case: without a handler, Ctrl-C would kill the process before the other
    // task listens, and a session would stay open.
    let ctrl_c = signal(SignalKind::interrupt()).ok();
    let interrupted = async {
        match ctrl_c {
            Some(mut signal) if interrupt => signal.recv().await,
            _ => std::future::pending().await,
        }
    };
    let code = tokio::select! {
        _ = hangup.recv() => 129,
        _ = interrupted => 130,
        _ = terminate.recv() => 143,
        () = ended.cancelled() => return None,
    };
    ended.cancel();
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::Cli;

    #[test]
    fn every_subcommand_is_known_to_the_command_analysis() {
        let command = <Cli as clap::CommandFactory>::command();
        for name in command.get_subcommands().map(clap::Command::get_name) {
            assert!(permission::shell::is_subcommand(name), "{name}");
        }
    }
}
