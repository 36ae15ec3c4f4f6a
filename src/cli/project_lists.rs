//! `adjutant skills`, `adjutant formatters` and `adjutant lsp`: the texts and programs of a
//! directory that an agent uses, with their states.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::listing::{self, ListEntry};
use super::project_context::ProjectContext;
use base::environment::Environment;
use base::listing::EntryState;
use base::text;
use config::ProblemSeverity;
use config::trust::TrustKind;

/// Options of these lists.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON: a list with an object for each entry
    #[arg(long)]
    json: bool,
}

/// A list of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Skills,
    Formatters,
    LanguageServers,
}

/// Prints a list. Exit code 1 if an entry does not work.
pub(super) fn list(kind: ListKind, args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let (entries, unneeded) = match kind {
        ListKind::Skills => (skills(&here), Vec::new()),
        ListKind::Formatters => formatters(&here, environment),
        ListKind::LanguageServers => language_servers(&here, environment),
    };
    let failed = entries
        .iter()
        .any(|entry| entry.state == EntryState::Failed);
    if args.json {
        let all: Vec<Value> = entries
            .iter()
            .chain(&unneeded)
            .map(ListEntry::to_json)
            .collect();
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(u8::from(failed));
    }
    if entries.is_empty() && unneeded.is_empty() {
        super::say(match kind {
            ListKind::Skills => "There are no skills here.",
            ListKind::Formatters => {
                "No formatter runs after an edit: \"formatter\": true in the settings turns on the usual ones."
            }
            ListKind::LanguageServers => {
                "No language server is used: \"lsp\": true in the settings turns on the usual ones."
            }
        });
    } else if !entries.is_empty() {
        super::say(&listing::list(&entries));
    }
    if !unneeded.is_empty() {
        let names: Vec<&str> = unneeded.iter().map(|entry| entry.name.as_str()).collect();
        super::say(&format!(
            "Known, and not installed or not for this project: {}.",
            names.join(", ")
        ));
    }
    if let Some(notice) = here.loaded.trust.notice() {
        super::say(&notice);
    }
    Ok(u8::from(failed))
}

fn skills(here: &ProjectContext) -> Vec<ListEntry> {
    let rules = here.agents.default().rules.clone();
    let allowed: Vec<&str> = here
        .skills
        .allowed(&rules)
        .map(|skill| skill.name.as_str())
        .collect();
    let mut entries: Vec<ListEntry> = here
        .skills
        .all()
        .map(|skill| {
            let description = skill.description.as_deref().unwrap_or("no description");
            let dir = here.worktree.relative(&skill.dir);
            let (state, why) = if allowed.contains(&skill.name.as_str()) {
                (EntryState::Active, "")
            } else {
                (EntryState::Off, "denied by the rules: ")
            };
            let about = format!("{why}{} ({dir})", text::title(description));
            ListEntry {
                name: text::escaped(&skill.name),
                state,
                about: text::escaped(&about),
            }
        })
        .collect();
    for address in &here.missing_skills {
        entries.push(ListEntry {
            name: text::escaped(address),
            state: EntryState::NotInstalled,
            about: "fetched when a session starts".to_owned(),
        });
    }
    entries.extend(listing::withheld(
        &here.loaded.trust,
        TrustKind::Fetches,
        "skills",
    ));
    let is_broken = |problem: &&config::Problem| {
        problem.severity == ProblemSeverity::Error
            && problem.location.origin.name.ends_with("SKILL.md")
    };
    for problem in here.problems.iter().filter(is_broken) {
        let file = Path::new(&problem.location.origin.name);
        let folder = file.parent().and_then(Path::file_name).unwrap_or_default();
        entries.push(ListEntry {
            name: text::escaped(&folder.to_string_lossy()),
            state: EntryState::Failed,
            about: text::escaped(&format!("{} ({})", problem.what(), file.display())),
        });
    }
    entries
}

/// Returns a file of the directory that has one of these extensions; it need not exist.
fn sample(here: &ProjectContext, extensions: &[String]) -> PathBuf {
    let ending = extensions.first().map(String::as_str).unwrap_or_default();
    if ending.starts_with('.') {
        here.cwd.join(format!("file{ending}"))
    } else {
        here.cwd.join(ending)
    }
}

/// Describes a program for a list.
fn program(path: &Path, here: &ProjectContext, extensions: &[String]) -> String {
    let path = if path.starts_with(&here.worktree.root) {
        here.worktree.relative(path)
    } else {
        path.display().to_string()
    };
    text::escaped(&format!("{path}, for {}", extensions.join(" ")))
}

/// Returns the formatters, and the known ones that are not needed here.
fn formatters(
    here: &ProjectContext,
    environment: &Environment,
) -> (Vec<ListEntry>, Vec<ListEntry>) {
    let mut entries = Vec::new();
    let mut unneeded = Vec::new();
    let settings = &here.loaded.settings;
    for formatter in &settings.formatters {
        let name = text::escaped(&formatter.name);
        let file = sample(here, &formatter.extensions);
        match formatter.run(&file, &here.worktree.root, environment) {
            Ok(Some(run)) => entries.push(ListEntry {
                name,
                state: if run.of_project && !settings.trusted {
                    here.loaded.trust.withheld_state()
                } else {
                    EntryState::Active
                },
                about: program(&run.command.0, here, &formatter.extensions),
            }),
            Ok(None) => unneeded.push(ListEntry {
                name,
                state: EntryState::Off,
                about: "not installed, or not for this project".to_owned(),
            }),
            Err(missing) => entries.push(ListEntry {
                name,
                state: EntryState::NotInstalled,
                about: format!("there is no program {}", text::escaped(&missing.program)),
            }),
        }
    }
    let inside = [".command", ".extensions", ".environment", ".disabled"];
    let is_known = |name: &str| settings.formatters.iter().any(|known| known.name == name);
    finish(
        &mut entries,
        (here, "formatter", TrustKind::Formatter),
        &inside,
        is_known,
    );
    (entries, unneeded)
}

/// Returns the language servers, and the known ones that are not needed here.
fn language_servers(
    here: &ProjectContext,
    environment: &Environment,
) -> (Vec<ListEntry>, Vec<ListEntry>) {
    let mut entries = Vec::new();
    let mut unneeded = Vec::new();
    let settings = &here.loaded.settings;
    for server in &settings.language_servers {
        let name = text::escaped(&server.name);
        let file = sample(here, &server.extensions);
        match server.run(&file, &here.worktree.root, environment) {
            Ok(Some(run)) => entries.push(ListEntry {
                name,
                state: if settings.trusted {
                    EntryState::Active
                } else {
                    here.loaded.trust.withheld_state()
                },
                about: program(&run.command.0, here, &server.extensions),
            }),
            Ok(None) => unneeded.push(ListEntry {
                name,
                state: EntryState::Off,
                about: "not for this project".to_owned(),
            }),
            Err(missing) => {
                let about = format!("there is no program {}", text::escaped(&missing.program));
                let (list, about) = match missing.install {
                    Some(install) => (&mut unneeded, format!("{about}; {install}")),
                    None => (&mut entries, about),
                };
                list.push(ListEntry {
                    name,
                    state: EntryState::NotInstalled,
                    about,
                });
            }
        }
    }
    let inside = [
        ".command",
        ".extensions",
        ".env",
        ".initialization",
        ".disabled",
    ];
    let is_known = |name: &str| {
        settings
            .language_servers
            .iter()
            .any(|known| known.name == name)
    };
    finish(
        &mut entries,
        (here, "lsp", TrustKind::LanguageServer),
        &inside,
        is_known,
    );
    (entries, unneeded)
}

/// Adds the entries of a section of the settings that are not used.
fn finish(
    entries: &mut Vec<ListEntry>,
    (here, section, kind): (&ProjectContext, &str, TrustKind),
    inside: &[&str],
    is_known: impl Fn(&str) -> bool,
) {
    let loaded = &here.loaded;
    let withheld = listing::withheld(&loaded.trust, kind, section);
    let fresh = |entry: &ListEntry| entries.iter().all(|known| known.name != entry.name);
    let unused = listing::unused(&here.problems, section, inside, is_known);
    let failed: Vec<ListEntry> = unused.iter().map(ListEntry::failed).collect();
    let is_failed = |entry: &ListEntry| failed.iter().any(|other| other.name == entry.name);
    let withheld: Vec<ListEntry> = withheld
        .into_iter()
        .filter(fresh)
        .filter(|entry| !is_failed(entry))
        .collect();
    entries.extend(withheld);
    let off = loaded.switched_off(section, "disabled");
    let off = off
        .iter()
        .map(|(name, location)| ListEntry::off(name, location));
    let off: Vec<ListEntry> = off
        .filter(|entry| entries.iter().all(|known| known.name != entry.name))
        .collect();
    entries.extend(off);
    entries.extend(failed);
}
