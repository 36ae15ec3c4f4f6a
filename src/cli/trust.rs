//! `adjutant trust`: what a project's files may run and loosen.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::config::trust::{Decision, Store};
use crate::environment::Environment;

use super::place::Here;

/// Options of `adjutant trust`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List what was said about which project.
    #[arg(long, conflicts_with_all = ["revoke", "dir"])]
    list: bool,
    /// Forget what was said about the project.
    #[arg(long)]
    revoke: bool,
    /// A directory of the project.
    #[arg(default_value = ".")]
    dir: PathBuf,
}

pub(super) fn trust(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    if args.list {
        return Ok(list(environment));
    }
    let here = Here::read(&args.dir, environment)?;
    let root = &here.worktree.root;
    if args.revoke {
        let was = Store::open(environment).revoke(root).context("it cannot be forgotten")?;
        let shown = root.display();
        super::say(&if was { format!("forgotten: {shown}") } else { format!("nothing was said about {shown}") });
        return Ok(0);
    }
    let review = &here.loaded.trust;
    match review.decision {
        Decision::Nothing => super::say(&format!("Nothing in {} needs trust.", root.display())),
        Decision::Trusted => super::say(&format!("{} is trusted:\n{}", root.display(), review.list())),
        Decision::Unasked | Decision::Refused => {
            super::say(&format!("The files of {} would do this:\n{}", root.display(), review.list()));
            if std::io::stdin().is_terminal() && !agreed(root)? {
                super::say("Not trusted: these stay off.");
                return Ok(0);
            }
            let kept = Store::open(environment).decide(root, review, true, environment.now());
            kept.context("the answer cannot be kept")?;
            super::say("Trusted. `adjutant trust --revoke` takes it back; a change of any of these asks again.");
        }
    }
    Ok(0)
}

/// Asks at the terminal.
fn agreed(root: &Path) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    write!(out, "Trust {}? [y/N] ", root.display())?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "yes"))
}

fn list(environment: &Environment) -> u8 {
    let store = Store::open(environment);
    let mut any = false;
    for (root, entry) in store.list() {
        any = true;
        let decision = if entry.decision == Decision::Trusted { "trusted" } else { "not trusted" };
        super::say(&format!("{root}: {decision} ({})", entry.at.iso()));
        for item in &entry.items {
            super::say(&format!("  - {}", crate::text::escaped(item)));
        }
    }
    if !any {
        super::say("Nothing was said about any project.");
    }
    0
}
