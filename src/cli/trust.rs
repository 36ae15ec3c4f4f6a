//! `adjutant trust`: reviews the parts of a project's settings that run or loosen something.

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
    let others = session::user_store::open_store(environment);
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
            format!("Your answer about {shown} is withdrawn.")
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
    // Who declines for good is not asked again.
    if let Some(depth) = review.depth()
        && !args.no
    {
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
        Decision::Unasked | Decision::Postponed | Decision::Refused => false,
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
        Decision::Trusted | Decision::Unasked | Decision::Postponed | Decision::Refused => {
            let can_ask = super::terminal::can_ask();
            let asks = can_ask && !args.yes && !args.no && !review.is_pure;
            if !asks {
                if let Some(introduction) = review.introduction() {
                    super::say(&introduction);
                }
                let all = format!("{}\n{wants}", review.subject(root));
                super::say(all.trim_end_matches('\n'));
            }
            if review.is_pure {
                super::say(
                    "ADJUTANT_PURE or OPENCODE_PURE is set: there are no questions, and no answer is stored.",
                );
                return Ok(u8::from(review.decision == Decision::Unasked));
            }
            let answer = match (args.yes, args.no) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ if asks => confirm_trust(root, review, environment)?,
                _ => None,
            };
            let Some(yes) = answer else {
                return Ok(report_undecided(review));
            };
            let is_postponed = !yes && !args.no && review.decision != Decision::Refused;
            if is_postponed {
                postpone(&here, environment)?;
            } else {
                store_answer(&here, yes, environment).await?;
            }
            super::say(match (yes, is_postponed) {
                (true, _) => {
                    "Trusted. You are asked again when any of these changes; `adjutant trust --revoke` withdraws your trust."
                }
                (false, true) => {
                    "Not trusted for now: you are asked again when any of these changes. To decline for good: `adjutant trust --no`."
                }
                (false, false) => {
                    "Not trusted: these are off, and you are not asked again. `adjutant trust --revoke` undoes that."
                }
            });
            // The command line that answers the question is no answer to another one.
            if yes
                && !args.yes
                && !review.not_installed.is_empty()
                && can_ask
                && confirm_lookup(review, environment)?
            {
                return super::extensions::install(&args.dir, false, environment).await;
            }
        }
    }
    Ok(0)
}

/// Prints that the list above has no effect without an answer. Returns the exit code.
fn report_undecided(review: &Review) -> u8 {
    let state = match review.decision {
        Decision::Refused => "Not trusted",
        Decision::Postponed => "Not trusted for now",
        Decision::Nothing | Decision::Unasked | Decision::Trusted => "Not decided yet",
    };
    let line = if review.items.is_empty() {
        format!("{state}, so calls are asked about. `adjutant trust --yes` or `--no` ends that.")
    } else {
        format!(
            "{state}: these are off. `adjutant trust --yes` turns them on; with `--no` you are not asked again."
        )
    };
    super::say(&line);
    u8::from(review.decision == Decision::Unasked)
}

/// Stores the user's answer about a project, also for other machines.
async fn store_answer(
    here: &ProjectContext,
    yes: bool,
    environment: &Environment,
) -> anyhow::Result<()> {
    let review = &here.loaded.trust;
    change_answer(environment, |store| {
        store.decide(&here.worktree.root, review, yes, environment.now())
    })?;
    share_decision(&here.worktree, environment).await
}

/// Stores "not now", on this machine only.
fn postpone(here: &ProjectContext, environment: &Environment) -> anyhow::Result<()> {
    let review = &here.loaded.trust;
    change_answer(environment, |store| {
        store.postpone(&here.worktree.root, review, environment.now())
    })
}

/// Changes the stored answers, and names the file that an unreadable one was moved to.
fn change_answer(
    environment: &Environment,
    change: impl FnOnce(&mut TrustStore) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let mut store = TrustStore::open(environment);
    let aside = store.moved_copy();
    change(&mut store).context("the answer cannot be saved")?;
    if let Some(aside) = aside {
        super::say(&format!(
            "The answers that could not be read are in {}.",
            aside.display()
        ));
    }
    Ok(())
}

/// Asks whether to look up the plugins that are not installed.
fn confirm_lookup(review: &Review, environment: &Environment) -> anyhow::Result<bool> {
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
    let ask = |words: &str| super::terminal::answer(words, environment);
    let answer = reply::yes_or_no(&question, explained, Some(false), ask)?;
    Ok(answer.unwrap_or(false))
}

/// The lines below a question about trust: its answers, and the line to type at.
const ANSWER_LINES: usize = 5;

/// Asks at the terminal. Returns `None` at the end of the input.
fn confirm_trust(
    root: &Path,
    review: &Review,
    environment: &Environment,
) -> anyhow::Result<Option<bool>> {
    let text = review.question(root);
    let palette = super::terminal::palette(environment);
    let shown = fitted_question(&text, palette, 0, ANSWER_LINES);
    super::terminal::show(&shown);
    let is_cut = shown != palette.question(&text, 0);
    let can_view = is_cut || !review.changes.is_empty() || !review.files().is_empty();
    let keys = if can_view { "y/v/n/?" } else { "y/n/?" };
    let question = format!("Trust {}? [{keys}] ", root.display());
    let mut answers = "  y  Trust\n".to_owned();
    if can_view {
        answers.push_str(&format!("  v  {}\n", view_name(!is_cut)));
    }
    answers.push_str("  n  Not now (never: `adjutant trust --no`)\n  ?  Explain\n");
    super::terminal::show(&Palette::plain(&answers));
    let mut explained =
        "y  turns on all of it until any of it changes; `adjutant trust --revoke` withdraws that\n\
         n  leaves it off, and asks again once any of it changes; `adjutant trust --no` never asks"
            .to_owned();
    if can_view {
        explained.push_str("\nv  shows the whole list, all changes and the files that would run");
    }
    if review.list().contains("looked up on PATH") {
        explained.push_str(
            "\nA program that is looked up on PATH is not covered: you are not asked again when it changes.",
        );
    }
    reply::yes_or_no(&question, &explained, None, |words| {
        let mut line = super::terminal::answer(words, environment)?;
        while can_view && line.as_deref().is_some_and(is_view) {
            show_texts(root, review, environment);
            super::terminal::show(&Palette::plain(&format!("\n{answers}")));
            line = super::terminal::answer(&question, environment)?;
        }
        Ok(line)
    })
}

/// Names the answer that shows more than a question about trust does.
pub(super) fn view_name(is_list_complete: bool) -> &'static str {
    if is_list_complete {
        "View the files that would run"
    } else {
        "View the whole list and the files that would run"
    }
}

/// Renders a question about trust. Of a list that does not fit the terminal together with `others`
/// further lines, only the beginning is shown; `v` shows the rest.
pub(super) fn fitted_question(
    text: &str,
    palette: Palette,
    indent: usize,
    others: usize,
) -> Styled {
    /// The fewest entries that are shown.
    const MIN_ENTRIES: usize = 3;
    let whole = palette.question(text, indent);
    let Some(rows) = super::terminal::rows() else {
        return whole;
    };
    let room = rows.saturating_sub(others);
    let height = |question: &Styled| question.as_str().lines().count();
    if height(&whole) <= room {
        return whole;
    }
    let entries = text.lines().filter(|line| is_entry(line)).count();
    let mut shown = whole;
    // Each entry has at least one line.
    for limit in (MIN_ENTRIES..entries.min(room)).rev() {
        shown = palette.question(&shortened(text, limit), indent);
        if height(&shown) <= room {
            break;
        }
    }
    shown
}

/// Returns the text with only the first `limit` entries of its list, and the number of the others.
fn shortened(text: &str, limit: usize) -> String {
    let mut short = String::new();
    let mut entries = 0;
    for line in text.lines() {
        let is_hidden = is_entry(line) && entries >= limit;
        entries += usize::from(is_entry(line));
        if !is_hidden {
            short.push_str(line);
            short.push('\n');
            continue;
        }
        if entries == limit + 1 {
            let all = text.lines().filter(|line| is_entry(line)).count();
            short.push_str(&format!("- and {} more; `v` shows all\n", all - limit));
        }
    }
    short
}

fn is_entry(line: &str) -> bool {
    line.starts_with("- ")
}

fn is_view(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "v" | "view")
}

/// Prints all items and changes, the differences between the old and the new texts, and the other
/// files that would run.
fn show_texts(root: &Path, review: &Review, environment: &Environment) {
    let palette = super::terminal::palette(environment);
    let all = format!("{}\n\n{}", review.subject(root), review.list());
    let introduction = review.introduction();
    for text in introduction.iter().chain([&all]) {
        super::terminal::show(&palette.question(text, 0));
    }
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
        Ok(text) => palette.numbered(&name, &text, indent),
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
        let decision = match entry.decision {
            Decision::Trusted => "trusted",
            Decision::Unasked => "not trusted for now",
            _ => "not trusted",
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
