//! Version 2, a draft.

use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v2::ConnectionTo;
use agent_client_protocol::v2::schema::{
    CancelSessionNotification, ContentBlock, Implementation, InitializeRequest, NewSessionRequest,
    PermissionOptionKind, PromptRequest, ReplayFrom, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ResumeSessionRequest, SelectedPermissionOutcome, SessionId, SessionUpdate, StateUpdate,
    StopReason, ToolCallStatus, UpdateSessionNotification,
};
use agent_client_protocol::{Agent, Client, Result, on_receive_notification, on_receive_request};
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
    /// The updates until the session is idle, and the reason for the end of its turn.
    async fn turn(&mut self) -> (Vec<SessionUpdate>, Option<StopReason>) {
        let mut heard = Vec::new();
        loop {
            match self.updates.next().await.expect("an update") {
                SessionUpdate::StateUpdate(StateUpdate::Idle(idle)) if idle.stop_reason.is_some() => {
                    return (heard, idle.stop_reason);
                }
                update => heard.push(update),
            }
        }
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
        .v2()
        .on_receive_notification(
            async move |notification: UpdateSessionNotification, _| {
                sender.unbounded_send(notification.update).ok();
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |asked: RequestPermissionRequest, responder, _| {
                let wanted = answer.lock().unwrap().clone();
                let option = asked.options.iter().find(|option| option.kind == wanted).expect("such an option");
                let selected = SelectedPermissionOutcome::new(option.option_id.clone());
                responder.respond(RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected)))
            },
            on_receive_request!(),
        );
    block_on(client.connect_with(fixture.agent(binary, &["--acp-v2"]), async move |agent: ConnectionTo<Agent>| {
        let me = Implementation::new("rust-client", "1");
        let hello = agent.send_request(InitializeRequest::new(ProtocolVersion::V2, me)).block_task().await?;
        assert_eq!(hello.protocol_version, ProtocolVersion::V2);
        assert!(hello.capabilities.session.is_some());
        talk(agent, editor).await
    }))
}

async fn say(agent: &ConnectionTo<Agent>, session: &SessionId, text: &str) -> Result<()> {
    let prompt = PromptRequest::new(session.clone(), vec![ContentBlock::from(text)]);
    agent.send_request(prompt).block_task().await.map(drop)
}

fn statuses(updates: &[SessionUpdate], status: &ToolCallStatus) -> usize {
    let is = |update: &&SessionUpdate| matches!(update, SessionUpdate::ToolCallUpdate(call) if call.status.value() == Some(status));
    updates.iter().filter(is).count()
}

pub fn talks(binary: &Path, fixture: &TemporaryProject) -> Result<()> {
    let project = fixture.project();
    with(binary, fixture, async move |agent, mut editor| {
        let opened = agent.send_request(NewSessionRequest::new(&project)).block_task().await?;
        let session = opened.session_id;
        say(&agent, &session, "create `a.txt` with `hello`").await?;
        let (heard, reason) = editor.turn().await;
        assert_eq!(reason, Some(StopReason::EndTurn));
        assert_eq!(std::fs::read_to_string(project.join("a.txt")).unwrap().trim(), "hello");
        assert_eq!(statuses(&heard, &ToolCallStatus::Completed), 1);
        let asked =
            |update: &SessionUpdate| matches!(update, SessionUpdate::StateUpdate(StateUpdate::RequiresAction(_)));
        assert!(heard.iter().any(asked));

        *editor.answer.lock().unwrap() = PermissionOptionKind::RejectOnce;
        say(&agent, &session, "create `b.txt` with `hello`").await?;
        let (heard, _) = editor.turn().await;
        assert!(!project.join("b.txt").exists());
        assert_eq!(statuses(&heard, &ToolCallStatus::Failed), 1);

        *editor.answer.lock().unwrap() = PermissionOptionKind::AllowOnce;
        say(&agent, &session, "run `sleep 60`").await?;
        while statuses(&[editor.updates.next().await.expect("an update")], &ToolCallStatus::InProgress) == 0 {}
        agent.send_notification(CancelSessionNotification::new(session))?;
        assert_eq!(editor.turn().await.1, Some(StopReason::Cancelled));

        let nobody = ResumeSessionRequest::new("ses_nobody", &project);
        assert_eq!(i32::from(agent.send_request(nobody).block_task().await.unwrap_err().code), -32002);
        Ok(())
    })
}

pub fn resumes(binary: &Path, fixture: &TemporaryProject) -> Result<()> {
    let project = fixture.project();
    let kept = Mutex::new(None);
    with(binary, fixture, async |agent, mut editor| {
        let session = agent.send_request(NewSessionRequest::new(&project)).block_task().await?.session_id;
        say(&agent, &session, "create `a.txt` with `hello`").await?;
        editor.turn().await;
        *kept.lock().unwrap() = Some(session);
        Ok(())
    })?;
    let session = kept.into_inner().unwrap().expect("a session");
    with(binary, fixture, async |agent, mut editor| {
        let resume =
            ResumeSessionRequest::new(session.clone(), &project).replay_from(ReplayFrom::Start(Default::default()));
        agent.send_request(resume).block_task().await?;
        say(&agent, &session, "run `cat a.txt`").await?;
        let (heard, reason) = editor.turn().await;
        assert_eq!(reason, Some(StopReason::EndTurn));
        assert!(heard.iter().any(|update| matches!(update, SessionUpdate::UserMessage(_))));
        assert_eq!(statuses(&heard, &ToolCallStatus::Completed), 2);
        Ok(())
    })
}
