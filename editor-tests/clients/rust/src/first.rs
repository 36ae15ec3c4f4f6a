//! Version 1.

use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, LoadSessionRequest, NewSessionRequest, PermissionOptionKind,
    PromptRequest, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionId, SessionNotification, SessionUpdate, StopReason, ToolCallStatus,
};
use agent_client_protocol::{Agent, Client, Error, Result, on_receive_notification, on_receive_request};
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::executor::block_on;

use crate::TemporaryProject;

/// The state of an editor: the updates, and its answers to questions.
struct Editor {
    updates: UnboundedReceiver<SessionUpdate>,
    answer: Arc<Mutex<PermissionOptionKind>>,
}

impl Editor {
    /// The updates so far.
    fn heard(&mut self) -> Vec<SessionUpdate> {
        std::iter::from_fn(|| self.updates.try_recv().ok()).collect()
    }
}

fn with<F>(binary: &Path, fixture: &TemporaryProject, talk: impl FnOnce(ConnectionTo<Agent>, Editor) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send,
{
    let (sender, updates) = unbounded();
    let answer = Arc::new(Mutex::new(PermissionOptionKind::AllowOnce));
    let editor = Editor { updates, answer: answer.clone() };
    let client = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _| {
                sender.unbounded_send(notification.update).ok();
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |asked: RequestPermissionRequest, responder, _| {
                let wanted = *answer.lock().unwrap();
                let option = asked.options.iter().find(|option| option.kind == wanted).expect("such an option");
                let selected = SelectedPermissionOutcome::new(option.option_id.clone());
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected)))
            },
            on_receive_request!(),
        );
    block_on(client.connect_with(fixture.agent(binary, &[]), async move |agent: ConnectionTo<Agent>| {
        let hello = agent.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
        assert_eq!(hello.protocol_version, ProtocolVersion::V1);
        assert!(hello.agent_capabilities.load_session);
        talk(agent, editor).await
    }))
}

async fn say(agent: &ConnectionTo<Agent>, session: &SessionId, text: &str) -> Result<StopReason> {
    let prompt = PromptRequest::new(session.clone(), vec![ContentBlock::from(text)]);
    Ok(agent.send_request(prompt).block_task().await?.stop_reason)
}

fn statuses(updates: &[SessionUpdate], status: ToolCallStatus) -> usize {
    let is = |update: &&SessionUpdate| matches!(update, SessionUpdate::ToolCallUpdate(call) if call.fields.status == Some(status));
    updates.iter().filter(is).count()
}

pub fn talks(binary: &Path, fixture: &TemporaryProject) -> Result<()> {
    let project = fixture.project();
    with(binary, fixture, async move |agent, mut editor| {
        let opened = agent.send_request(NewSessionRequest::new(&project)).block_task().await?;
        let session = opened.session_id;
        assert!(opened.config_options.is_some_and(|options| options.iter().any(|option| &*option.id.0 == "approvals")));
        assert_eq!(say(&agent, &session, "create `a.txt` with `hello`").await?, StopReason::EndTurn);
        assert_eq!(std::fs::read_to_string(project.join("a.txt")).unwrap().trim(), "hello");
        assert_eq!(statuses(&editor.heard(), ToolCallStatus::Completed), 1);

        *editor.answer.lock().unwrap() = PermissionOptionKind::RejectOnce;
        say(&agent, &session, "create `b.txt` with `hello`").await?;
        assert!(!project.join("b.txt").exists());
        assert_eq!(statuses(&editor.heard(), ToolCallStatus::Failed), 1);

        *editor.answer.lock().unwrap() = PermissionOptionKind::AllowOnce;
        let prompt = PromptRequest::new(session.clone(), vec![ContentBlock::from("run `sleep 60`")]);
        let turn = agent.send_request(prompt);
        while statuses(&[editor.updates.next().await.expect("an update")], ToolCallStatus::InProgress) == 0 {}
        agent.send_notification(CancelNotification::new(session))?;
        assert_eq!(turn.block_task().await?.stop_reason, StopReason::Cancelled);

        let relative = agent.send_request(NewSessionRequest::new("relative")).block_task().await;
        assert_eq!(relative.unwrap_err().code, Error::invalid_params().code);
        Ok(())
    })
}

pub fn loads(binary: &Path, fixture: &TemporaryProject) -> Result<()> {
    let project = fixture.project();
    let kept = Mutex::new(None);
    with(binary, fixture, async |agent, _| {
        let session = agent.send_request(NewSessionRequest::new(&project)).block_task().await?.session_id;
        say(&agent, &session, "create `a.txt` with `hello`").await?;
        *kept.lock().unwrap() = Some(session);
        Ok(())
    })?;
    let session = kept.into_inner().unwrap().expect("a session");
    with(binary, fixture, async |agent, mut editor| {
        agent.send_request(LoadSessionRequest::new(session.clone(), &project)).block_task().await?;
        let heard = editor.heard();
        assert!(heard.iter().any(|update| matches!(update, SessionUpdate::UserMessageChunk(_))));
        assert_eq!(statuses(&heard, ToolCallStatus::Completed), 1);
        assert_eq!(say(&agent, &session, "run `cat a.txt`").await?, StopReason::EndTurn);
        Ok(())
    })
}
