//! The notice about a provider whose key is not set, and which is used without one: with the first
//! request of a day in a project.

use super::TurnContext;
use base::reported;
use events::{Event, Severity};
use providers::Model;

/// Notifies the user that requests to a model are sent without the key that the settings name,
/// unless the notice was shown today, or the user would not see it.
pub(super) async fn report(turn: &TurnContext, model: &Model) {
    let Some(unset) = &model.unset_key else {
        return;
    };
    let session = &turn.session;
    if !session.common.shows_notices || session.depth > 0 {
        return;
    }
    let title = format!("{} is used without a key: {unset}.", model.provider_name);
    let environment = turn.session.common.environment.clone();
    let root = turn.project.context.worktree.root.clone();
    let subject = format!("key of {}", model.id.provider);
    let texts = [title.clone()];
    let shown = base::task::spawn_blocking(move || {
        reported::shown_before(&environment, &root, &subject, &texts)
    });
    if !shown.await.unwrap_or_default().is_empty() {
        return;
    }
    let notice = Event::Notice {
        severity: Severity::Warning,
        title,
        details: None,
    };
    turn.event_sender.event(notice).await;
}
