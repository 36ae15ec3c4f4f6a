//! `adjutant sessions`: what was said and done before.

mod files;

use anyhow::anyhow;

use crate::environment::Environment;
use crate::id::SessionId;
use crate::store::Store;

/// What to do with a session. It is named by its id, or by `last`: the last one in this directory.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Take the last turn of a session back, its changes of files included. Exit code 1 when files were
    /// left alone because they have changed since.
    Revert {
        /// The session.
        id: String,
        /// Go back to before this message, or the step this part belongs to.
        #[arg(long)]
        to: Option<String>,
        /// Set files back that have changed since as well.
        #[arg(long)]
        force: bool,
        /// Bring back what was taken back last.
        #[arg(long, conflicts_with_all = ["to", "force"])]
        redo: bool,
    },
    /// Print what a session changed in the files, as a unified diff.
    Diff {
        /// The session.
        #[arg(default_value = "last")]
        id: String,
        /// Only how many lines of each file.
        #[arg(long)]
        stat: bool,
    },
}

pub(super) async fn sessions(verb: Verb, environment: &Environment) -> anyhow::Result<u8> {
    let store = Store::start(&environment.dirs.data);
    let done = carry_out(verb, &store, environment).await;
    store.stop().await;
    done
}

async fn carry_out(verb: Verb, store: &Store, environment: &Environment) -> anyhow::Result<u8> {
    match verb {
        Verb::Revert { id, to, force, redo } => {
            let id = find(store, &id).await?;
            let way = if redo { files::Way::Forth } else { files::Way::Back { to, force } };
            files::revert(store, environment, &id, way).await
        }
        Verb::Diff { id, stat } => {
            let id = find(store, &id).await?;
            files::diff(store, environment, &id, stat).await
        }
    }
}

async fn find(store: &Store, name: &str) -> anyhow::Result<SessionId> {
    if name != "last" {
        return Ok(SessionId::new(name));
    }
    let cwd = std::fs::canonicalize(".")?;
    let page = store.list(Some(&cwd), None, 1).await?;
    page.sessions.first().map(|record| record.id.clone()).ok_or_else(|| anyhow!("there are no sessions here"))
}
