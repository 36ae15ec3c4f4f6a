//! Asks the user whether a project is trusted, once for exactly the things that its files would run
//! or loosen. Without a clear answer, these things remain disabled.

use serde_json::json;
use tokio::sync::oneshot;

use crate::turn::TurnContext;
use base::text;
use config::trust::{ChangedTexts, Decision, Review, TrustStore};
use events::{CallUpdate, Confirmation, Event, Progress, ToolKind, TurnMessage};
use permission::account::AccountProperty;
use transcript::{Change, Location};

const TITLE: &str = "Trust this project?";

/// The consequence of "not now".
const POSTPONED: &str = "You are asked again when any of this changes. `adjutant trust` asks now; `adjutant trust --no` declines for good.";

pub(super) enum TrustOutcome {
    /// The things become effective.
    Trusted,
    /// They remain disabled; the text is for the user.
    Withheld(Option<String>),
    /// They remain disabled, and are not asked about again until they change.
    Postponed,
}

/// Asks unless the user was asked before, and stores the answer.
pub(super) async fn ask_once(review: &Review, turn: &TurnContext) -> TrustOutcome {
    if review.decision != Decision::Unasked || review.is_pure {
        return TrustOutcome::Withheld(review.notice());
    }
    if let Err(why) = turn
        .session
        .permissions
        .account
        .check(AccountProperty::Trust)
    {
        let notice = review.notice();
        return TrustOutcome::Withheld(Some(text::sentences([
            notice.as_deref().unwrap_or_default(),
            &why,
        ])));
    }
    let Some(yes) = ask_user(review, turn).await else {
        return TrustOutcome::Withheld(review.notice());
    };
    match (store_answer(review, yes, turn).await, yes) {
        (Ok(()), true) => TrustOutcome::Trusted,
        (Ok(()), false) => TrustOutcome::Postponed,
        (Err(e), true) => TrustOutcome::Withheld(Some(format!(
            "Your decision could not be saved ({e}), so the project is not trusted and its settings stay off."
        ))),
        (Err(e), false) => TrustOutcome::Withheld(Some(format!(
            "Your decision could not be saved ({e}), so the next session asks again."
        ))),
    }
}

/// Stores the answer, and shares trust with other machines.
async fn store_answer(review: &Review, yes: bool, turn: &TurnContext) -> Result<(), String> {
    let environment = turn.session.common.environment.clone();
    let root = turn.project.context.worktree.root.clone();
    let review = review.clone();
    let written = base::task::spawn_blocking(move || {
        let mut store = TrustStore::open(&environment);
        let now = environment.now();
        if !yes {
            store
                .postpone(&root, &review, now)
                .map_err(|e| e.to_string())?;
            return Ok(None);
        }
        store
            .decide(&root, &review, true, now)
            .map_err(|e| e.to_string())?;
        Ok(store
            .entry(&root)
            .map(|entry| serde_json::to_string(entry).unwrap_or_default()))
    });
    let Some(entry) = written.await.unwrap_or_else(|e| Err(e.to_string()))? else {
        return Ok(());
    };
    let project = turn.project.context.worktree.shared_name();
    let shared = turn.session.recorder.share_trust(&project, entry).await;
    shared.map_err(|e| format!("your decision could not be shared with other machines: {e}"))
}

/// Shows the question as a call of its own, because some clients show questions only together with
/// calls.
async fn ask_user(review: &Review, turn: &TurnContext) -> Option<bool> {
    let call = turn.new_call_id();
    let text = review.question(&turn.project.context.worktree.root);
    let update_call = |update: CallUpdate| turn.event_sender.event(Event::Call(Box::new(update)));
    let items: Vec<String> = review.items.iter().map(ToString::to_string).collect();
    let facts = json!({ "project": turn.project.context.worktree.root, "wants": items });
    let locations = locations(review);
    let update = CallUpdate {
        title: Some(TITLE.into()),
        kind: Some(ToolKind::Other),
        input: Some(facts.clone()),
        locations: (!locations.is_empty()).then_some(locations),
        ..CallUpdate::of(&call)
    };
    update_call(update).await;
    let (reply, answer) = oneshot::channel();
    let title = TITLE.to_owned();
    let question = Confirmation {
        call: call.clone(),
        title,
        facts,
        text,
        changes: changes(review),
        yes: "Trust",
        no: "Not now",
        reply,
    };
    if !turn
        .event_sender
        .send(TurnMessage::Confirm(Box::new(question)))
        .await
    {
        return None;
    }
    let answer = tokio::select! {
        answer = answer => answer.ok(),
        () = turn.cancelled.cancelled() => None,
    };
    let (progress, title) = match answer {
        Some(true) => (Progress::Completed, "This project is trusted"),
        Some(false) => (Progress::Failed, "Not trusted for now"),
        None => (Progress::Failed, "Not answered: trust this project?"),
    };
    update_call(CallUpdate {
        title: Some(title.into()),
        progress: Some(progress),
        output: (answer == Some(false)).then(|| POSTPONED.to_owned()),
        ..CallUpdate::of(&call)
    })
    .await;
    answer
}

/// Returns the files that the project would run, for clients that open them.
fn locations(review: &Review) -> Vec<Location> {
    /// The most files that are named.
    const MAX_LOCATIONS: usize = 50;
    let files = review.files().into_iter().take(MAX_LOCATIONS);
    let locations = files.map(|file| Location {
        path: file.to_owned(),
        line: None,
    });
    locations.collect()
}

/// Returns the changes of files since the last answer. Those of settings are in the text.
fn changes(review: &Review) -> Vec<Change> {
    let of_file = |texts: &ChangedTexts| {
        Some(Change {
            path: texts.file.as_ref()?.display().to_string(),
            old: Some(texts.old.as_str().into()),
            new: texts.new.as_str().into(),
            deleted: false,
            part: None,
        })
    };
    let all = review.changed_texts().filter_map(of_file);
    all.flat_map(|change| change.parts()).collect()
}
