//! Converts events to `session/update`, for both live and replayed events. Tool calls are in
//! `tool_call_view.rs`.

use std::sync::Arc;

use protocol::acp::v2;
use protocol::rpc::{self, Peer};

use super::content::encode_file;
use super::line::line;
use super::requests::encode_usage;
use super::tool_call_view::ToolCallViews;
use super::{forms, options, permission_request, requests};
use crate::account_reports::Account;
use crate::error::RequestError;
use crate::tool_call_view::{MAX_ATTACHED_BYTES, MAX_CHUNK_BYTES, subagent_message_text};
use crate::view::{
    self, ChoiceRequest, ClientReply, ConfigOption, DisplayCapabilities, Form, FormAnswer, PLAN_ID,
    PickedAnswer, SessionActivity, SessionView, UpdateLines,
};
use base::id::SessionId;
use base::text;
use events::{
    CommandInfo, CompactionState, Event, Severity, Status, Subagent, SubagentInfo, SubagentState,
    SubagentStop, UserPiece,
};
use session::turn::TurnOutcome;
use transcript::{FaultKind, Priority, Todo, TodoStatus, attached};

struct SessionViewV2 {
    peer: Peer,
    /// The calls that the client knows, with the content of those that have not ended.
    tool_calls: ToolCallViews,
}

/// Creates the view of a session of which nothing has been shown. Version 2 shows everything, so
/// the capabilities are ignored.
pub fn new_view(peer: &Peer, _: DisplayCapabilities) -> Box<dyn SessionView> {
    Box::new(SessionViewV2 {
        peer: peer.clone(),
        tool_calls: ToolCallViews::default(),
    })
}

impl SessionView for SessionViewV2 {
    fn encode_event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines) {
        if let Event::Subagent(subagent) = event {
            return self.encode_subagent(session, subagent, out);
        }
        out.extend(
            encode(event, &mut self.tool_calls)
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
        let update = v2::ConfigOptionUpdate::new(options::encode(config_options));
        out.push(line(session, v2::SessionUpdate::ConfigOptionUpdate(update)));
    }

    fn encode_activity(
        &mut self,
        session: &SessionId,
        state: &SessionActivity,
        out: &mut UpdateLines,
    ) {
        let state = match state {
            SessionActivity::Running => v2::StateUpdate::Running(v2::RunningStateUpdate::new()),
            SessionActivity::Waiting => {
                v2::StateUpdate::RequiresAction(v2::RequiresActionStateUpdate::new())
            }
            SessionActivity::Idle(None) => v2::StateUpdate::Idle(v2::IdleStateUpdate::new()),
            SessionActivity::Idle(Some(ended)) => {
                let stop_reason = stop_reason(ended.result.outcome.clone());
                v2::StateUpdate::Idle(
                    v2::IdleStateUpdate::new()
                        .stop_reason(stop_reason)
                        .usage(encode_usage(&ended.result.usage))
                        .meta(ended.meta()),
                )
            }
        };
        out.push(line(session, v2::SessionUpdate::StateUpdate(state)));
    }

    fn encode_replay_end(&mut self, session: &SessionId, out: &mut UpdateLines) {
        let update = v2::SessionUpdate::ReplayComplete(v2::ReplayComplete::new());
        out.push(line(session, update));
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
}

impl SessionViewV2 {
    /// Encodes the state of a subagent twice: in its own session, and as an update in its parent's.
    /// A new session is announced in the parent's before anything is sent in it.
    fn encode_subagent(&mut self, parent: &SessionId, subagent: &Subagent, out: &mut UpdateLines) {
        let association = encode_subagent_update(subagent);
        let association = line(parent, v2::SessionUpdate::SubagentUpdate(association));
        let state = subagent.state.as_ref().map(child_state);
        let state =
            state.map(|state| line(&subagent.session, v2::SessionUpdate::StateUpdate(state)));
        if subagent.info.is_none() {
            out.extend(state);
            out.push(association);
            return;
        }
        out.push(association);
        out.extend(state);
        let reference = self
            .tool_calls
            .link_session(&subagent.call, &subagent.session);
        out.extend(reference.map(|update| line(parent, update)));
    }
}

/// Encodes the update that shows a subagent in its parent's session. The only operation that it
/// offers is to cancel, if the subagent is stoppable.
fn encode_subagent_update(subagent: &Subagent) -> v2::SubagentUpdate {
    let mut update = v2::SubagentUpdate::new(subagent.session.share());
    if let Some(SubagentInfo {
        title,
        agent,
        is_stoppable: stoppable,
    }) = &subagent.info
    {
        let cancel = stoppable.then(v2::SessionCancelCapabilities::new);
        let capabilities = v2::SubagentSessionCapabilities::new().cancel(cancel);
        update = update
            .title(title.clone())
            .description(agent.clone())
            .capabilities(capabilities);
    }
    match &subagent.state {
        Some(state) => update.state(child_state(state)),
        None => update,
    }
}

fn child_state(state: &SubagentState) -> v2::StateUpdate {
    let reason = match state {
        SubagentState::Working => {
            return v2::StateUpdate::Running(v2::RunningStateUpdate::new());
        }
        SubagentState::Waiting => {
            return v2::StateUpdate::RequiresAction(v2::RequiresActionStateUpdate::new());
        }
        SubagentState::Over(SubagentStop::Done) => v2::StopReason::EndTurn,
        SubagentState::Over(SubagentStop::Cancelled) => v2::StopReason::Cancelled,
        SubagentState::Over(SubagentStop::Refused) => v2::StopReason::Refusal,
        SubagentState::Over(SubagentStop::MaxTokens) => v2::StopReason::MaxTokens,
        SubagentState::Over(SubagentStop::StepLimit) => v2::StopReason::MaxTurnRequests,
        SubagentState::Over(SubagentStop::Failed(why)) => {
            let error = v2::Error::new(rpc::code::INTERNAL, why.as_str());
            v2::StopReason::Error(v2::ErrorStopReason::new().error(error))
        }
    };
    v2::StateUpdate::Idle(v2::IdleStateUpdate::new().stop_reason(reason))
}

fn stop_reason(outcome: TurnOutcome) -> v2::StopReason {
    match outcome {
        // A steered turn ends normally: the steering message starts the next one.
        TurnOutcome::Ended
        | TurnOutcome::NotDone
        | TurnOutcome::Rejected
        | TurnOutcome::Steered => v2::StopReason::EndTurn,
        TurnOutcome::Cancelled => v2::StopReason::Cancelled,
        TurnOutcome::Refused => v2::StopReason::Refusal,
        TurnOutcome::MaxTokens => v2::StopReason::MaxTokens,
        TurnOutcome::StepLimit => v2::StopReason::MaxTurnRequests,
        TurnOutcome::Failed(fault) if fault.kind == FaultKind::Interrupted => {
            v2::StopReason::Cancelled
        }
        TurnOutcome::Failed(fault) => {
            let error = rpc::Error::from(RequestError::from(fault));
            let error = v2::Error::new(error.code, error.message).data(error.data);
            v2::StopReason::Error(v2::ErrorStopReason::new().error(error))
        }
    }
}

/// Returns the updates that show an event.
fn encode(event: &Event, tool_calls: &mut ToolCallViews) -> Vec<v2::SessionUpdate> {
    use v2::SessionUpdate as U;
    match event {
        Event::User {
            message,
            piece: UserPiece::Text(text),
        } => match attached(text) {
            Some((uri, text)) if text.len() <= MAX_ATTACHED_BYTES => {
                let resource = v2::TextResourceContents::new(text, uri);
                let resource = v2::EmbeddedResourceResource::TextResourceContents(resource);
                let block = v2::ContentBlock::Resource(v2::EmbeddedResource::new(resource));
                vec![U::UserMessageChunk(v2::ContentChunk::new(
                    block,
                    message.share(),
                ))]
            }
            _ => chunks(text, message.share())
                .map(U::UserMessageChunk)
                .collect(),
        },
        Event::User {
            message,
            piece: UserPiece::File(file),
        } => {
            vec![U::UserMessageChunk(v2::ContentChunk::new(
                encode_file(file),
                message.share(),
            ))]
        }
        // The response to `session/prompt` contains the id of the message.
        Event::Prompted { .. } => vec![],
        Event::Text { part, delta } => chunks(delta, part.share())
            .map(U::AgentMessageChunk)
            .collect(),
        Event::Thought { part, delta } => chunks(delta, part.share())
            .map(U::AgentThoughtChunk)
            .collect(),
        Event::Call(update) => {
            let mut out = Vec::new();
            tool_calls.updates(update, &mut out);
            out
        }
        Event::Plan(todos) => {
            let plan = v2::PlanItems::new(PLAN_ID, todos.iter().map(plan_entry).collect());
            vec![U::PlanUpdate(v2::PlanUpdate::new(
                v2::PlanUpdateContent::Items(plan),
            ))]
        }
        // `UpdateSender::event` sends the config options and the logins.
        Event::Mode(_) | Event::Options | Event::Logins => vec![],
        Event::Commands(list) => {
            vec![U::AvailableCommandsUpdate(
                v2::AvailableCommandsUpdate::new(encode_commands(list)),
            )]
        }
        Event::Info { title, updated } => {
            let mut info = v2::SessionInfoUpdate::new().updated_at(updated.iso());
            if let Some(title) = title {
                info = info.title(title.clone());
            }
            vec![U::SessionInfoUpdate(info)]
        }
        Event::Usage { used, size, cost } => {
            let mut usage = v2::UsageUpdate::new(*used, *size);
            if let Some(amount) = cost {
                usage = usage.cost(v2::Cost::new(*amount, "USD"));
            }
            vec![U::UsageUpdate(usage)]
        }
        Event::Notice {
            severity,
            title,
            details,
        } => vec![notice(*severity, title, details.as_deref())],
        Event::Compaction { id, state, .. } => {
            vec![compaction(&id.share(), state)]
        }
        Event::Status(Status::Retrying {
            attempt,
            limit,
            wait,
            cause,
            is_repeated,
            ..
        }) => {
            let again = view::retry_notice(cause, *is_repeated, *wait, *attempt, *limit);
            vec![notice(Severity::Warning, &again, None)]
        }
        // The state is reported when a turn begins, waits and ends.
        Event::Status(Status::Busy | Status::Compacting | Status::Idle) => vec![],
        Event::SessionMessage {
            message,
            sender,
            text,
        } => {
            let message = v2::SessionMessage::new(message.share());
            let message = message.sender_session_id(v2::SessionId::new(sender.share()));
            let text = v2::ContentBlock::from(&*subagent_message_text(text));
            vec![U::SessionMessage(message.content(vec![text]))]
        }
        // Sent in two sessions; see `SessionViewV2::encode_subagent`.
        Event::Subagent(_) => vec![],
        // Sent to the session that the event belongs to; see `updates.rs`.
        Event::InChildSession { .. } => vec![],
    }
}

/// Encodes the list of slash commands.
pub(super) fn encode_commands(list: &[CommandInfo]) -> Vec<v2::AvailableCommand> {
    let encode_command = |command: &CommandInfo| {
        let input = command
            .hint
            .as_ref()
            .map(|hint| v2::AvailableCommandInput::Text(v2::TextCommandInput::new(hint)));
        v2::AvailableCommand::Command(
            v2::Command::new(&command.name, &command.description).input(input),
        )
    };
    list.iter().map(encode_command).collect()
}

/// Splits a text into chunks of at most [`MAX_CHUNK_BYTES`] bytes, so that an encoded line stays
/// below 1 MiB.
fn chunks<'a>(
    text: &'a str,
    message: Arc<str>,
) -> impl Iterator<Item = v2::ContentChunk> + use<'a> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, more) = rest.split_at(rest.floor_char_boundary(MAX_CHUNK_BYTES).max(1));
        rest = more;
        Some(v2::ContentChunk::new(piece.into(), message.clone()))
    })
}

fn notice(severity: Severity, title: &str, details: Option<&str>) -> v2::SessionUpdate {
    let severity = match severity {
        Severity::Info => v2::NoticeSeverity::Info,
        Severity::Warning => v2::NoticeSeverity::Warning,
        Severity::Error => v2::NoticeSeverity::Error,
    };
    let notice = v2::Notice::new(severity, text::escaped(title.trim()));
    v2::SessionUpdate::Notice(
        notice.description(details.map(|details| text::shown(details).into_owned())),
    )
}

fn compaction(id: &Arc<str>, state: &CompactionState) -> v2::SessionUpdate {
    let update = |status| v2::CompactionUpdate::new(id.clone()).status(status);
    let update = match state {
        CompactionState::InProgress => update(v2::CompactionStatus::InProgress),
        CompactionState::Writing {
            delta,
            is_restart: false,
        } => {
            let chunk = v2::CompactionSummaryChunk::new(id.clone(), delta.as_str().into());
            return v2::SessionUpdate::CompactionSummaryChunk(chunk);
        }
        CompactionState::Writing {
            delta,
            is_restart: true,
        } => update(v2::CompactionStatus::InProgress)
            .summary(vec![v2::ContentBlock::from(delta.as_str())]),
        CompactionState::Completed { summary, .. } => update(v2::CompactionStatus::Completed)
            .summary(vec![v2::ContentBlock::from(summary.as_str())]),
        CompactionState::Failed(why) => update(v2::CompactionStatus::Failed).error(why.clone()),
        CompactionState::Cancelled => update(v2::CompactionStatus::Cancelled),
    };
    v2::SessionUpdate::CompactionUpdate(update)
}

fn plan_entry(todo: &Todo) -> v2::PlanEntry {
    let priority = match todo.priority {
        Priority::High => v2::PlanEntryPriority::High,
        Priority::Medium => v2::PlanEntryPriority::Medium,
        Priority::Low => v2::PlanEntryPriority::Low,
    };
    let status = match todo.status {
        TodoStatus::Pending => v2::PlanEntryStatus::Pending,
        TodoStatus::InProgress => v2::PlanEntryStatus::InProgress,
        TodoStatus::Completed => v2::PlanEntryStatus::Completed,
        TodoStatus::Cancelled => v2::PlanEntryStatus::Cancelled,
    };
    v2::PlanEntry::new(todo.content.as_str(), priority, status)
}
