//! `adjutant trust`: reviews the parts of a project's settings that run or loosen something.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anstyle::Style;
use anyhow::{Context as _, bail};

use base::environment::Environment;
use base::text::diff::LineDiff;
use base::worktree::Worktree;
use config::trust::{ChangedTexts, Decision, Review, TrustEntry, TrustStore};
use session::relocate::share_trust;

use super::project_context::ProjectContext;
use super::reply;
use super::terminal::styled::{Palette, Styled};
use super::trust_sharing::share_decision;

/// Options of `adjutant trust`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List the decisions about all projects
    #[arg(long, conflicts_with_all = ["revoke", "yes", "no", "dir"])]
    list: bool,
    /// Forget the decision about this project
    #[arg(long, conflicts_with_all = ["yes", "no"])]
    revoke: bool,
    /// Trust this project
    #[arg(long, conflicts_with = "no")]
    yes: bool,
    /// Do not trust this project, and do not ask again
    #[arg(long)]
    no: bool,
    /// Print JSON, and ask nothing
    #[arg(long, conflicts_with_all = ["revoke", "yes", "no"])]
    json: bool,
    /// Directory of the project
    #[arg(default_value = ".")]
    dir: PathBuf,
}

impl Args {
    /// Returns whether it changes no decision.
    pub(super) fn only_lists(&self) -> bool {
        self.list || self.json
    }
}

pub(super) async fn trust(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    if args.list {
        return list(args.json, environment);
    }
    let others = session::user_store::store(environment);
    share_trust(
        &others,
        environment,
        &Worktree::find(&args.dir, &[], environment.home.as_deref()),
    )
    .await;
    others.stop().await;
    let here = ProjectContext::read(&args.dir, environment)?;
    let root = &here.worktree.root;
    if args.revoke {
        let was = TrustStore::open(environment)
            .revoke(root)
            .context("the decision cannot be removed")?;
        share_decision(&here.worktree, environment).await?;
        let shown = root.display();
        super::say(&if was {
            format!("Forgotten: {shown}")
        } else {
            format!("No decision about {shown} was stored.")
        });
        return Ok(0);
    }
    let review = &here.loaded.trust;
    if args.json {
        super::terminal::json(&serde_json::to_string_pretty(&review.to_json(root))?);
        return Ok(u8::from(review.decision == Decision::Unasked));
    }
    let mut wants = review.list();
    if let Some(depth) = review.depth() {
        wants.push_str(depth);
        wants.push('\n');
    }
    if let Some(offer) = review.offer() {
        wants.push_str(&offer);
        wants.push('\n');
    }
    let is_about_packages = match review.decision {
        Decision::Nothing => args.yes || args.no,
        Decision::Trusted => args.yes && !review.can_install,
        Decision::Unasked | Decision::Refused => false,
    };
    match review.decision {
        Decision::Nothing | Decision::Trusted
            if is_about_packages && !review.not_installed.is_empty() && !review.is_pure =>
        {
            super::say(wants.trim_end_matches('\n'));
            store_answer(&here, args.yes, environment).await?;
            super::say(if args.yes {
                "Trusted: these may be fetched, and are loaded once they are. `adjutant trust --revoke` withdraws your trust."
            } else {
                "Not trusted: `adjutant extensions install --yes` fetches none of these."
            });
        }
        Decision::Nothing => super::say(
            format!("Nothing in {} needs trust.\n{wants}", root.display()).trim_end_matches('\n'),
        ),
        Decision::Trusted if !args.no => {
            super::say(&format!("{} is trusted:\n{wants}", root.display()))
        }
        Decision::Trusted | Decision::Unasked | Decision::Refused => {
            if let Some(introduction) = review.introduction() {
                super::say(&introduction);
            }
            let all = format!("{}\n{wants}", review.subject(root));
            super::say(all.trim_end_matches('\n'));
            if review.is_pure {
                super::say(
                    "ADJUTANT_PURE or OPENCODE_PURE is set: there are no questions, and no answer is stored.",
                );
                return Ok(u8::from(review.decision == Decision::Unasked));
            }
            let can_ask = std::io::stdin().is_terminal() && super::terminal::is_watched();
            let answer = match (args.yes, args.no) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ if can_ask => confirm_trust(root, review, environment)?,
                _ => None,
            };
            let Some(yes) = answer else {
                let state = if review.decision == Decision::Refused {
                    "Not trusted"
                } else {
                    "Not decided yet"
                };
                if review.items.is_empty() {
                    super::say(
                        "Not decided yet, so calls are asked about. `adjutant trust --yes` or `--no` ends that.",
                    );
                    return Ok(1);
                }
                super::say(&format!(
                    "{state}: these are off. `adjutant trust --yes` turns them on; with `--no` you are not asked again."
                ));
                return Ok(u8::from(review.decision == Decision::Unasked));
            };
            if !yes && !args.no {
                super::say(
                    "Not trusted for now: these are off. `adjutant trust --no` makes that permanent.",
                );
                return Ok(0);
            }
            store_answer(&here, yes, environment).await?;
            super::say(if yes {
                "Trusted. You are asked again when any of these changes; `adjutant trust --revoke` withdraws your trust."
            } else {
                "Not trusted: these are off."
            });
            if yes && !review.not_installed.is_empty() && can_ask && confirm_lookup(review)? {
                return super::extensions::install(&args.dir, false, environment).await;
            }
        }
    }
    Ok(0)
}

/// Stores the user's answer about a project, also for other machines.
async fn store_answer(
    here: &ProjectContext,
    yes: bool,
    environment: &Environment,
) -> anyhow::Result<()> {
    let mut store = TrustStore::open(environment);
    let aside = store.moved_copy();
    store
        .decide(
            &here.worktree.root,
            &here.loaded.trust,
            yes,
            environment.now(),
        )
        .context("the answer cannot be saved")?;
    if let Some(aside) = aside {
        super::say(&format!(
            "The answers that could not be read are in {}.",
            aside.display()
        ));
    }
    share_decision(&here.worktree, environment).await
}

/// Asks whether to look up the plugins that are not installed.
fn confirm_lookup(review: &Review) -> anyhow::Result<bool> {
    let names = base::text::escaped(&review.not_installed.join(", "));
    let (these, them) = if review.not_installed.len() == 1 {
        ("This plugin is", "it")
    } else {
        ("These plugins are", "them")
    };
    let question =
        format!("{these} not installed: {names}. See what npm would install for {them}? [y/N/?] ");
    let explained = "y  looks it up, lists it, and asks again before it installs anything\n\
                     n  skips this; `adjutant extensions install` does it later";
    let answer = reply::yes_or_no(&question, explained, Some(false), super::terminal::answer)?;
    Ok(answer.unwrap_or(false))
}

/// Asks at the terminal. Returns `None` at the end of the input.
fn confirm_trust(
    root: &Path,
    review: &Review,
    environment: &Environment,
) -> anyhow::Result<Option<bool>> {
    let can_view = review.changed_texts().next().is_some() || !review.files().is_empty();
    let keys = if can_view { "y/n/v/?" } else { "y/n/?" };
    let question = format!("Trust {}? [{keys}] ", root.display());
    let mut explained =
        "y  turns on everything listed until any of it changes; `adjutant trust --revoke` withdraws that\n\
         n  leaves it off for now; `adjutant trust --no` leaves it off permanently"
            .to_owned();
    if can_view {
        explained.push_str("\nv  shows what has changed, and the files that would run");
    }
    reply::yes_or_no(&question, &explained, None, |words| {
        let mut line = super::terminal::answer(words)?;
        while can_view && line.as_deref().is_some_and(is_view) {
            show_texts(root, review, environment);
            line = super::terminal::answer(&question)?;
        }
        Ok(line)
    })
}

fn is_view(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "v" | "view")
}

/// Prints the differences between the old and the new texts, and the other files that would run.
fn show_texts(root: &Path, review: &Review, environment: &Environment) {
    let palette = super::terminal::palette(environment);
    let mut shown: Vec<&ChangedTexts> = Vec::new();
    for texts in review.changed_texts() {
        // Several items may run the same file.
        if shown.contains(&texts) {
            continue;
        }
        shown.push(texts);
        let lines = LineDiff::of(&texts.old, &texts.new);
        super::terminal::show(&palette.change(&texts.name, &lines, 2, usize::MAX));
    }
    let is_shown = |file: &Path| {
        let mut files = shown.iter().filter_map(|texts| texts.file.as_deref());
        files.any(|known| known == file)
    };
    for file in review.files().into_iter().filter(|file| !is_shown(file)) {
        super::terminal::show(&whole_file(file, root, palette, 2));
    }
}

/// Returns all lines of a file that would run, or the reason why it cannot be shown.
pub(super) fn whole_file(file: &Path, root: &Path, palette: Palette, indent: usize) -> Styled {
    /// The size of a file that is shown.
    const MAX_BYTES: u64 = 1 << 20;
    let name = file
        .strip_prefix(root)
        .unwrap_or(file)
        .display()
        .to_string();
    match super::input::file(file, MAX_BYTES) {
        Ok(text) => palette.change(&name, &LineDiff::of("", &text), indent, usize::MAX),
        Err(why) => {
            let mut line = palette
                .line(Style::new(), &format!("{why:#}"))
                .indented(indent);
            line.push(&Palette::plain("\n"));
            line
        }
    }
}

fn list(json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let store = TrustStore::open(environment);
    if let Some(problem) = store.problem(TrustStore::path(environment).display().to_string()) {
        bail!("{problem}");
    }
    if json {
        let entry = |(root, entry): (&str, &TrustEntry)| {
            serde_json::json!({ "project": root, "decision": entry.decision, "decided": entry.at.iso(),
                "items": entry.items })
        };
        let all: Vec<serde_json::Value> = store.list().map(entry).collect();
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    let mut any = false;
    for (root, entry) in store.list() {
        any = true;
        let decision = if entry.decision == Decision::Trusted {
            "trusted"
        } else {
            "not trusted"
        };
        super::say(&format!("{root}: {decision} ({})", entry.at.iso()));
        for item in &entry.items {
            super::say(&format!("  - {}", base::text::escaped(item)));
        }
        for package in &entry.packages {
            super::say(&format!(
                "  - plugin {}, which was not installed",
                base::text::escaped(package)
            ));
        }
    }
    if !any {
        super::say("No decisions.");
    }
    Ok(0)
}
