//! Converts events to `session/update`, for both live and replayed events. Tool calls are in
//! `v1/tool_call_view.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::acp::v1;
use protocol::rpc::{self, Peer};

use super::content::encode_file;
use super::line::line;
use super::tool_call_view::ToolCallViews;
use super::{files, forms, options, permission_request, requests};
use crate::account_reports::Account;
use crate::meta::{COMPACTED, with_member};
use crate::tool_call_view::{
    MAX_ATTACHED_BYTES, MAX_CHUNK_BYTES, ShownTerminals, subagent_message_text,
};
use crate::view::{
    ChoiceRequest, ClientReply, ConfigOption, DisplayCapabilities, Form, FormAnswer, PLAN_ID,
    PickedAnswer, SessionView, UpdateLines, retry_notice,
};
use base::id::SessionId;
use base::text;
use events::{
    CompactionState, Event, Severity, Status, Subagent, SubagentInfo, SubagentState, SubagentStop,
    UserPiece,
};
use transcript::{Priority, Todo, TodoStatus, attached};

/// The prefix of the ids of notices until the session sets one of its own.
const DEFAULT_NOTICE_PREFIX: &str = "aside";

struct SessionViewV1 {
    peer: Peer,
    display: DisplayCapabilities,
    /// The calls that have not ended.
    tool_calls: ToolCallViews,
    /// The prefix of the ids of notices, which are not part of the history.
    notice_id_prefix: String,
    /// The number of notices so far, for their ids.
    notice_count: u32,
}

/// Creates the view of a session of which the client has seen nothing yet.
pub fn new_view(peer: &Peer, display: DisplayCapabilities) -> Box<dyn SessionView> {
    let tool_calls = ToolCallViews::new(display.terminals, display.raw_text);
    let peer = peer.clone();
    Box::new(SessionViewV1 {
        peer,
        display,
        tool_calls,
        notice_id_prefix: DEFAULT_NOTICE_PREFIX.into(),
        notice_count: 0,
    })
}

impl SessionView for SessionViewV1 {
    fn encode_event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines) {
        out.extend(
            encode(event, self)
                .into_iter()
                .map(|update| line(session, update)),
        );
    }

    fn encode_auth_status(&self, accounts: Vec<Account>) -> Vec<u8> {
        requests::auth_status_update(accounts)
    }

    fn encode_config_options(
        &mut self,
        session: &SessionId,
        config_options: Vec<ConfigOption>,
        out: &mut UpdateLines,
    ) {
        let update = v1::ConfigOptionUpdate::new(options::encode(config_options));
        out.push(line(session, v1::SessionUpdate::ConfigOptionUpdate(update)));
    }

    fn set_out_of_turn_prefix(&mut self, prefix: String) {
        self.notice_id_prefix = prefix;
    }

    fn set_shown_terminals(&mut self, shown_terminals: Arc<ShownTerminals>) {
        self.tool_calls.set_shown_terminals(shown_terminals);
    }

    fn request_permission(
        &mut self,
        session: &SessionId,
        choice: ChoiceRequest,
    ) -> ClientReply<Option<PickedAnswer>> {
        permission_request::send(&self.peer, session, choice, &mut self.tool_calls)
    }

    fn request_form(&mut self, session: &SessionId, form: Form) -> ClientReply<FormAnswer> {
        forms::send_form(&self.peer, session, form)
    }

    fn read_file(&mut self, session: &SessionId, path: PathBuf) -> ClientReply<String> {
        files::read(&self.peer, session, path)
    }

    fn write_file(&mut self, session: &SessionId, path: PathBuf, text: String) -> ClientReply<()> {
        files::write(&self.peer, session, path, text)
    }
}

/// Returns the updates that show an event.
fn encode(event: &Event, view: &mut SessionViewV1) -> Vec<v1::SessionUpdate> {
    use v1::SessionUpdate as U;
    match event {
        Event::User {
            message,
            piece: UserPiece::Text(text),
        } => match attached(text) {
            Some((uri, text)) if text.len() <= MAX_ATTACHED_BYTES => {
                let resource = v1::TextResourceContents::new(text, uri);
                let resource = v1::EmbeddedResourceResource::TextResourceContents(resource);
                let block = v1::ContentBlock::Resource(v1::EmbeddedResource::new(resource));
                let id = v1::MessageId::new(message.share());
                vec![U::UserMessageChunk(
                    v1::ContentChunk::new(block).message_id(id),
                )]
            }
            _ => chunks(text, &message.share())
                .map(U::UserMessageChunk)
                .collect(),
        },
        Event::User {
            message,
            piece: UserPiece::File(file),
        } => {
            let id = v1::MessageId::new(message.share());
            vec![U::UserMessageChunk(
                v1::ContentChunk::new(encode_file(file)).message_id(id),
            )]
        }
        Event::Text { part, delta } => chunks(delta, &part.share())
            .map(U::AgentMessageChunk)
            .collect(),
        Event::Thought { part, delta } => chunks(delta, &part.share())
            .map(U::AgentThoughtChunk)
            .collect(),
        Event::Call(update) => view.tool_calls.updates(update),
        Event::Plan(todos) => {
            let entries = todos.iter().filter_map(encode_todo).collect();
            vec![if view.display.plans {
                U::PlanUpdate(v1::PlanUpdate::new(v1::PlanUpdateContent::items(
                    PLAN_ID, entries,
                )))
            } else {
                U::Plan(v1::Plan::new(entries))
            }]
        }
        Event::Mode(mode) => vec![U::CurrentModeUpdate(v1::CurrentModeUpdate::new(
            mode.clone(),
        ))],
        // Version 1 has no update for it.
        Event::Prompted { .. } => vec![],
        // Options and logins are sent by `updates.rs`.
        Event::Options | Event::Logins => vec![],
        Event::Commands(commands) => {
            let encode_command = |command: &events::CommandInfo| {
                let input = command.hint.as_ref().map(|hint| {
                    v1::AvailableCommandInput::Unstructured(v1::UnstructuredCommandInput::new(
                        hint.as_str(),
                    ))
                });
                v1::AvailableCommand::new(command.name.as_str(), command.description.as_str())
                    .input(input)
            };
            vec![U::AvailableCommandsUpdate(
                v1::AvailableCommandsUpdate::new(commands.iter().map(encode_command).collect()),
            )]
        }
        Event::Info { title, updated } => {
            let mut info = v1::SessionInfoUpdate::new().updated_at(updated.iso());
            if let Some(title) = title {
                info = info.title(title.clone());
            }
            vec![U::SessionInfoUpdate(info)]
        }
        Event::Usage { used, size, cost } => {
            let cost = cost.map(|amount| v1::Cost::new(amount, "USD"));
            vec![U::UsageUpdate(
                v1::UsageUpdate::new(*used, *size).cost(cost),
            )]
        }
        Event::Notice {
            severity,
            title,
            details,
        } => vec![notice(*severity, title, details.as_deref(), view)],
        Event::Compaction { id, auto, state } => compaction(&id.share(), *auto, state, view),
        Event::Status(Status::Retrying {
            attempt,
            limit,
            wait,
            cause,
            is_repeated,
            ..
        }) => {
            let title = retry_notice(cause, *is_repeated, *wait, *attempt, *limit);
            vec![notice(Severity::Warning, &title, None, view)]
        }
        Event::Status(Status::Busy | Status::Compacting | Status::Idle) => vec![],
        Event::Subagent(subagent) => {
            let mut out = vec![U::SubagentUpdate(encode_subagent(subagent))];
            // Present if the subagent is new or its task has changed.
            if subagent.info.is_some() {
                out.extend(
                    view.tool_calls
                        .link_session(&subagent.call, &subagent.session),
                );
            }
            out
        }
        Event::SessionMessage {
            message,
            sender,
            text,
        } => {
            let message = v1::SessionMessage::new(message.share());
            let message = message.sender_session_id(v1::SessionId::new(sender.share()));
            let text = v1::ContentBlock::from(&*subagent_message_text(text));
            vec![U::SessionMessage(message.content(vec![text]))]
        }
        // Sent to the session that the event belongs to; see `updates.rs`.
        Event::InChildSession { .. } => vec![],
    }
}

/// Splits a text into chunks of at most [`MAX_CHUNK_BYTES`], so that no JSON-RPC message is too long.
fn chunks<'a>(
    text: &'a str,
    message_id: &'a Arc<str>,
) -> impl Iterator<Item = v1::ContentChunk> + use<'a> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, more) = rest.split_at(rest.floor_char_boundary(MAX_CHUNK_BYTES).max(1));
        rest = more;
        Some(v1::ContentChunk::new(piece.into()).message_id(v1::MessageId::new(message_id.clone())))
    })
}

/// Encodes a subagent's session. The user may cancel it while it runs, and do nothing else with it.
fn encode_subagent(subagent: &Subagent) -> v1::SubagentUpdate {
    let reason = |stop: &SubagentStop| match stop {
        SubagentStop::Done => v1::IdleStopReason::EndTurn,
        SubagentStop::Cancelled => v1::IdleStopReason::Cancelled,
        SubagentStop::Refused => v1::IdleStopReason::Refusal,
        SubagentStop::MaxTokens => v1::IdleStopReason::MaxTokens,
        SubagentStop::StepLimit => v1::IdleStopReason::MaxTurnRequests,
        SubagentStop::Failed(why) => {
            let error = v1::Error::new(rpc::code::INTERNAL, why.as_str());
            v1::IdleStopReason::Error(v1::ErrorStopReason::new().error(error))
        }
    };
    let state = |activity: &SubagentState| match activity {
        SubagentState::Working => v1::StateUpdate::Running(v1::RunningStateUpdate::new()),
        SubagentState::Waiting => {
            v1::StateUpdate::RequiresAction(v1::RequiresActionStateUpdate::new())
        }
        SubagentState::Over(stop) => {
            v1::StateUpdate::Idle(v1::IdleStateUpdate::new().stop_reason(reason(stop)))
        }
    };
    let mut update = v1::SubagentUpdate::new(subagent.session.share());
    if let Some(SubagentInfo {
        title,
        agent,
        is_stoppable: stoppable,
    }) = &subagent.info
    {
        let cancel = stoppable.then(v1::SessionCancelCapabilities::new);
        let capabilities = v1::SubagentSessionCapabilities::new().cancel(cancel);
        update = update
            .title(title.clone())
            .description(agent.clone())
            .capabilities(capabilities);
    }
    match &subagent.state {
        Some(activity) => update.state(state(activity)),
        None => update,
    }
}

/// Encodes a notice: as ACP's `notice` update if the client supports it, otherwise as a thought,
/// which every client shows and none takes for the answer.
fn notice(
    severity: Severity,
    title: &str,
    details: Option<&str>,
    view: &mut SessionViewV1,
) -> v1::SessionUpdate {
    if view.display.notices {
        let severity = match severity {
            Severity::Info => v1::NoticeSeverity::Info,
            Severity::Warning => v1::NoticeSeverity::Warning,
            Severity::Error => v1::NoticeSeverity::Error,
        };
        let notice = v1::Notice::new(severity, text::escaped(title.trim()));
        return v1::SessionUpdate::Notice(
            notice.description(details.map(|details| text::shown(details).into_owned())),
        );
    }
    view.notice_count += 1;
    let text = format!(
        "{}\n\n",
        text::sentences([title, details.unwrap_or_default()])
    );
    let chunk = v1::ContentChunk::new((&*text::shown(&text)).into());
    v1::SessionUpdate::AgentThoughtChunk(chunk.message_id(v1::MessageId::new(format!(
        "{}-{}",
        view.notice_id_prefix, view.notice_count
    ))))
}

/// Encodes a compaction: as its own update if the client supports that, otherwise as a notice at
/// the beginning and a sentence at the end. The sentence is an answer if the user requested the compaction,
/// and a thought if it was automatic.
fn compaction(
    id: &Arc<str>,
    auto: bool,
    state: &CompactionState,
    view: &mut SessionViewV1,
) -> Vec<v1::SessionUpdate> {
    if !view.display.compaction {
        let text = match state {
            // A compaction takes a while, so a notice reports its beginning.
            CompactionState::InProgress => {
                return vec![notice(
                    Severity::Info,
                    "Summarising the conversation to free context.",
                    None,
                    view,
                )];
            }
            CompactionState::Completed { before, after, .. } => {
                format!("{}\n\n", compaction_text(*before, *after))
            }
            // Only a summary that is used is shown.
            CompactionState::Writing { .. }
            // The turn ends with the failure, and reports the reason.
            | CompactionState::Failed(_) | CompactionState::Cancelled => return vec![],
        };
        let wrap = if auto {
            v1::SessionUpdate::AgentThoughtChunk
        } else {
            v1::SessionUpdate::AgentMessageChunk
        };
        return chunks(&text, id).map(wrap).collect();
    }
    let update = |status| v1::CompactionUpdate::new(id.to_string(), status);
    let update = match state {
        CompactionState::InProgress => update(v1::CompactionStatus::InProgress),
        CompactionState::Writing {
            delta,
            is_restart: false,
        } => {
            let chunk = v1::CompactionSummaryChunk::new(id.clone(), delta.as_str().into());
            return vec![v1::SessionUpdate::CompactionSummaryChunk(chunk)];
        }
        CompactionState::Writing {
            delta,
            is_restart: true,
        } => update(v1::CompactionStatus::InProgress)
            .summary(vec![v1::ContentBlock::from(delta.as_str())]),
        CompactionState::Completed {
            before,
            after,
            summary,
        } => {
            let sizes = serde_json::json!({ "before": before, "after": after });
            update(v1::CompactionStatus::Completed)
                .summary(vec![v1::ContentBlock::from(summary.as_str())])
                .meta(with_member(COMPACTED, sizes))
        }
        CompactionState::Failed(why) => update(v1::CompactionStatus::Failed).error(why.clone()),
        CompactionState::Cancelled => update(v1::CompactionStatus::Cancelled),
    };
    vec![v1::SessionUpdate::CompactionUpdate(update)]
}

/// Describes the effect of a compaction. The size before it is unknown (0) in imported sessions.
fn compaction_text(before: u64, after: u64) -> String {
    if before == 0 {
        return "Compacted the conversation.".to_owned();
    }
    let old = text::thousands(before);
    let new = text::thousands(after);
    if after < before {
        format!("Compacted the conversation: {old} → about {new} tokens.")
    } else {
        format!(
            "Compacted the conversation, which did not become shorter: {old} → about {new} tokens."
        )
    }
}

/// Encodes a task of the plan; `None` if version 1 has no status for it.
fn encode_todo(todo: &Todo) -> Option<v1::PlanEntry> {
    let priority = match todo.priority {
        Priority::High => v1::PlanEntryPriority::High,
        Priority::Medium => v1::PlanEntryPriority::Medium,
        Priority::Low => v1::PlanEntryPriority::Low,
    };
    let status = match todo.status {
        TodoStatus::Pending => v1::PlanEntryStatus::Pending,
        TodoStatus::InProgress => v1::PlanEntryStatus::InProgress,
        TodoStatus::Completed => v1::PlanEntryStatus::Completed,
        // v1 has no status for it, and a cancelled task is no longer part of the plan.
        TodoStatus::Cancelled => return None,
    };
    Some(v1::PlanEntry::new(todo.content.as_str(), priority, status))
}
