//! `adjutant extensions`: lists the hooks, custom tools and plugins of a project, and installs the
//! plugins that are npm packages.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::json;

use super::project_context::ProjectContext;
use super::trust_sharing::share_decision;
use super::{listing, reply};
use base::environment::Environment;
use base::listing::{EntryState, table};
use base::text;
use config::package::{MissingPackage, PackageRecord, PackageSpec, cache};
use config::trust::{Decision, TrustItem, TrustKind, TrustStore};
use extensions::inventory::{self, Inventory, ListedExtension};
use extensions::packages::{self, PlannedPackage};
use extensions::scripts::Scripts;
use extensions::usage_stats;

/// Options of `adjutant extensions`.
pub(super) type Args = super::CommandOrList<Verb, Listing>;

impl Args {
    /// Returns whether it installs something, which only the user may do.
    pub(super) fn installs(&self) -> bool {
        self.verb.is_some()
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Listing {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory of the project
    #[arg(default_value = ".")]
    dir: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Install the npm packages that the settings name as plugins
    ///
    /// Uses npm or bun. Lists every package before it fetches any, and runs none of their scripts.
    /// The packages are stored in adjutant's own cache; your consent covers exactly these.
    Install {
        /// Do not ask. Fetches nothing for a project that you have not trusted: `adjutant trust`
        #[arg(long)]
        yes: bool,
        /// Directory of the project
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
}

pub(super) async fn extensions(args: Args, environment: &Environment) -> anyhow::Result<u8> {
    match args.verb {
        Some(Verb::Install { yes, dir }) => install(&dir, yes, environment).await,
        None => list(&args.listing, environment).await,
    }
}

/// Loads the extensions once, as a session would. Exit code 1 if one of them does not load.
async fn list(args: &Listing, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(&args.dir, environment)?;
    let settings = &here.loaded.settings;
    let found = here
        .load_extension_inventory(Scripts::default(), environment)
        .await;
    let usage = usage_stats::read(environment, &here.worktree.root);
    let mut entries = inventory::list_extensions(settings, &found, &usage);
    entries.extend(unused(&here));
    let is_broken = is_broken(&found)
        || entries
            .iter()
            .any(|entry| entry.state == EntryState::Failed);
    if args.json {
        let mut data = inventory::to_json(settings, &found, &usage);
        data["withheld"] = here
            .loaded
            .trust
            .is_withheld()
            .then(|| here.loaded.trust.names())
            .into();
        data["entries"] = entries
            .iter()
            .map(|entry| {
                json!({ "kind": entry.kind, "name": entry.name, "state": entry.state.code(), "about": entry.about })
            })
            .collect();
        super::terminal::json(&serde_json::to_string_pretty(&data)?);
        return Ok(u8::from(is_broken));
    }
    if entries.is_empty() {
        super::say("There are no hooks, custom tools or plugins here.");
    } else {
        let rows: Vec<[String; 4]> = entries
            .iter()
            .map(|entry| {
                [
                    text::escaped(&entry.name),
                    entry.kind.to_owned(),
                    entry.state.as_str().to_owned(),
                    text::escaped(&entry.about),
                ]
            })
            .collect();
        super::say(&table(&["name", "kind", "state", "about"], &rows));
    }
    if !found.report.runtime.is_empty() {
        super::say(&format!("JavaScript runs in {}.", found.report.runtime));
    }
    if let Some(notice) = here.loaded.trust.notice() {
        super::say(&notice);
    }
    Ok(u8::from(is_broken))
}

fn is_broken(found: &Inventory) -> bool {
    found.failure.is_some() || !found.report.failures.is_empty()
}

/// Returns the hooks, custom tools and plugins that are not in use, with the reasons.
fn unused(here: &ProjectContext) -> Vec<ListedExtension> {
    let loaded = &here.loaded;
    let mut entries = Vec::new();
    let waiting = |item: &TrustItem, kind: &'static str| {
        let detail = item.shown_detail();
        let detail = detail.strip_prefix("is loaded, and ").unwrap_or(&detail);
        ListedExtension {
            kind,
            name: item
                .key
                .strip_prefix("hook.")
                .unwrap_or(&item.key)
                .to_owned(),
            state: loaded.trust.withheld_state(),
            about: format!("{detail} ({})", item.location.short()),
        }
    };
    let hooks = loaded.trust.withheld(TrustKind::Hook);
    entries.extend(hooks.map(|item| waiting(item, "hook")));
    let scripts = loaded.trust.withheld(TrustKind::Extension);
    entries.extend(scripts.map(|item| waiting(item, kind_of_file(&item.key))));
    for package in &loaded.missing_packages {
        let about = if package.project && loaded.trust.is_withheld() {
            "trust the project, then `adjutant extensions install` fetches it"
        } else {
            "`adjutant extensions install` fetches it"
        };
        entries.push(ListedExtension {
            kind: "plugin",
            name: package.spec.clone(),
            state: EntryState::NotInstalled,
            about: format!("{about} ({})", package.location.short()),
        });
    }
    for script in &loaded.unusable_scripts {
        entries.push(ListedExtension {
            kind: script.kind.as_str(),
            name: script.name.clone(),
            state: if script.is_foreign {
                EntryState::Off
            } else {
                EntryState::Failed
            },
            about: format!("{} ({})", script.why, script.location.short()),
        });
    }
    for (kind, name) in &loaded.disabled_extensions {
        entries.push(ListedExtension {
            kind,
            name: name.clone(),
            state: EntryState::Off,
            about: "ADJUTANT_PURE or OPENCODE_PURE is set".to_owned(),
        });
    }
    for (name, location) in loaded.switched_off("hook", "disabled") {
        entries.push(ListedExtension {
            kind: "hook",
            name,
            state: EntryState::Off,
            about: format!("switched off in {}", location.short()),
        });
    }
    let inside = [
        ".on",
        ".command",
        ".tool",
        ".pattern",
        ".timeout",
        ".environment",
        ".format",
    ];
    let is_known = |name: &str| {
        let mut hooks = loaded.settings.hooks.iter();
        hooks.any(|hook| hook.name == name)
    };
    for hook in listing::unused(&here.problems, "hook", &inside, is_known) {
        entries.push(ListedExtension {
            kind: "hook",
            name: hook.name,
            state: EntryState::Failed,
            about: format!("{} ({})", hook.why, hook.source),
        });
    }
    entries
}

/// Returns the kind of a file by its folder.
fn kind_of_file(name: &str) -> &'static str {
    let folder = Path::new(name).parent().and_then(Path::file_name);
    let is_tool = folder.is_some_and(|folder| folder == "tool" || folder == "tools");
    if is_tool { "tool" } else { "plugin" }
}

/// Installs the packages that the settings name as plugins. Exit code 1 if one of them is not
/// installed afterwards.
pub(super) async fn install(
    dir: &Path,
    yes: bool,
    environment: &Environment,
) -> anyhow::Result<u8> {
    let here = ProjectContext::read(dir, environment)?;
    let review = &here.loaded.trust;
    if review.is_pure {
        bail!("ADJUTANT_PURE or OPENCODE_PURE is set: no plugin is loaded, so none is installed");
    }
    let missing = &here.loaded.missing_packages;
    if missing.is_empty() {
        super::say("No plugin is missing: each one that the settings name is installed.");
        return Ok(0);
    }
    // At a terminal, the answer to the question below is the user's trust in exactly these
    // packages.
    let can_ask = matches!(review.decision, Decision::Nothing | Decision::Trusted) && !yes;
    let waits = |package: &&MissingPackage| package.project && !review.can_install && !can_ask;
    let mut specs: Vec<&str> = Vec::new();
    for package in missing.iter().filter(|package| !waits(package)) {
        if !specs.contains(&package.spec.as_str()) {
            specs.push(&package.spec);
        }
    }
    let waiting: Vec<&str> = missing
        .iter()
        .filter(waits)
        .map(|package| package.spec.as_str())
        .collect();
    if !waiting.is_empty() {
        let why = if review.decision == Decision::Trusted {
            "you have not trusted these plugins of this project"
        } else {
            "this project is not trusted"
        };
        super::say(&format!(
            "Not installed, because {why}: {}. `adjutant trust` shows what it would do, and \
             `adjutant trust --yes` lets its plugins be installed.",
            text::escaped(&waiting.join(", "))
        ));
    }
    let mut planned = Vec::new();
    for spec in &specs {
        match packages::plan(spec, environment).await {
            Ok(plan) => {
                super::say(&described(&plan));
                planned.push(plan);
            }
            Err(why) => super::say(&format!("{spec} {why}.")),
        }
    }
    if planned.is_empty() {
        return Ok(1);
    }
    let has_agreed = !yes && agreed(environment)?;
    if !(yes || has_agreed) {
        let asks_for_trust = missing.iter().any(|package| package.project) && !review.can_install;
        super::say(if asks_for_trust {
            "Nothing was installed; `adjutant trust --yes`, then `--yes` here, install these without asking."
        } else {
            "Nothing was installed; `--yes` installs these without asking."
        });
        return Ok(1);
    }
    let mut installed = Vec::new();
    for plan in planned {
        let spec = plan.record.spec.clone();
        match plan.install(environment).await {
            Ok(record) => {
                super::say(&format!("Installed {}.", record.summary()));
                installed.push(record);
            }
            Err(why) => super::say(&format!("{spec} {why}.")),
        }
    }
    let is_whole = installed.len() == specs.len() && waiting.is_empty();
    let is_loaded = consent(&here, &installed, has_agreed, environment).await?;
    Ok(u8::from(!(is_whole && is_loaded)))
}

/// Describes an installation before it is made: every package with its version and its digest.
fn described(plan: &PlannedPackage) -> String {
    const SHOWN_DIGEST_CHARS: usize = 20;
    let record = &plan.record;
    let wanted = PackageSpec::parse(&record.spec).and_then(|spec| spec.wanted);
    let chosen = match wanted {
        None => " (no version is named; this is the newest)".to_owned(),
        Some(wanted) if wanted == record.version => String::new(),
        Some(wanted) => format!(" (for \"{wanted}\")"),
    };
    let rows: Vec<[String; 3]> = record
        .packages
        .iter()
        .map(|entry| {
            let digest: String = entry.integrity.chars().take(SHOWN_DIGEST_CHARS).collect();
            [
                text::escaped(&entry.name),
                text::escaped(&entry.version),
                format!("{}…", text::escaped(&digest)),
            ]
        })
        .collect();
    let scripts = match plan.script_count {
        0 => String::new(),
        1 => "One of them has an install script, which is not run.\n".to_owned(),
        n => format!("{n} of them have install scripts, which are not run.\n"),
    };
    format!(
        "{}{chosen}:\n{}{scripts}",
        text::escaped(&record.summary()),
        table(&["package", "version", "integrity"], &rows)
    )
}

/// Asks at the terminal, if there is one.
fn agreed(environment: &Environment) -> anyhow::Result<bool> {
    if !super::terminal::can_ask() {
        return Ok(false);
    }
    let question = format!(
        "Fetch these packages into {}, and load the plugins? [y/N/?] ",
        cache(environment).display()
    );
    let explained =
        "y  installs exactly these, and your consent covers only these; n  installs nothing";
    let ask = |words: &str| super::terminal::answer(words, environment);
    let answer = reply::yes_or_no(&question, explained, Some(false), ask)?;
    Ok(answer.unwrap_or(false))
}

/// Stores the user's consent to the installed packages, if they are all that has changed in a
/// project that may install them, or that needed no trust and about which the user has answered the
/// question (`has_agreed`). Returns whether the packages are loaded from now on.
async fn consent(
    before: &ProjectContext,
    installed: &[PackageRecord],
    has_agreed: bool,
    environment: &Environment,
) -> anyhow::Result<bool> {
    let after = ProjectContext::read(&before.cwd, environment)?;
    let review = &after.loaded.trust;
    if !matches!(review.decision, Decision::Unasked | Decision::Postponed) {
        return Ok(!review.is_withheld());
    }
    if before.loaded.trust.is_withheld() {
        return Ok(true);
    }
    let is_installed = |item: &&TrustItem| installed.iter().any(|record| item.is_package(record));
    let rest: Vec<&TrustItem> = review
        .items
        .iter()
        .filter(|item| !is_installed(item))
        .collect();
    let known: Vec<&TrustItem> = before.loaded.trust.items.iter().collect();
    if rest != known {
        super::say("Something else in this project has changed: `adjutant trust` asks about it.");
        return Ok(false);
    }
    if !has_agreed && !before.loaded.trust.can_install {
        return Ok(true);
    }
    let mut store = TrustStore::open(environment);
    store
        .decide(&after.worktree.root, review, true, environment.now())
        .context("your consent cannot be saved")?;
    share_decision(&after.worktree, environment).await?;
    super::say(
        "They are loaded in this project from now on; `adjutant trust --revoke` withdraws your consent.",
    );
    Ok(true)
}
