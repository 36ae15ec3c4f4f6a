//! `plan_exit`: asks the user to approve the plan, and leaves plan mode to carry it out.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::aliases::Aliases;
use crate::files::path::{Access, PathKind, resolve};
use crate::{Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::text;
use events::{Location, SessionRequest, SwitchAgent, ToolKind};
use permission::{AccessRequest, Action};

/// The maximum size of the plan that is shown with the question, in bytes.
const MAX_SHOWN_BYTES: usize = 16 << 10;

#[derive(Default)]
pub struct PlanExitTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// Path of the file with the plan, or the plan itself
    pub plan: Option<String>,
}

impl Tool for PlanExitTool {
    const NAME: &'static str = "plan_exit";
    const DESCRIPTION: &'static str = include_str!("plan_exit.md");
    const KIND: ToolKind = ToolKind::SwitchMode;
    const CONCURRENT: bool = false;
    const AVAILABILITY: Availability = Availability::ByName;
    const PERMISSION_KEY: Option<PermissionKey> =
        Some(PermissionKey::acting("Proposing to leave planning."));
    const ALIASES: Aliases = Aliases {
        tool_names: &["exitplanmode", "exitplan"],
        field_values: &[],
        fields: &[],
    };
    type Input = Input;
    /// The path of the file with the plan, as shown to the model; `None` if no file was named.
    type Ready = Option<String>;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        let named = input.plan.as_deref().filter(|plan| !is_text(plan));
        let path: Option<PathBuf> = named.map(|plan| context.absolute(plan));
        let locations = path
            .into_iter()
            .map(|path| Location { path, line: None })
            .collect();
        CallDescription {
            title: "Carry out the plan".into(),
            locations,
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Option<String>), Failure> {
        let mut question = "The plan is ready. Leave plan mode and carry it out?".to_owned();
        let mut requests = Vec::new();
        let mut request = AccessRequest::new(Self::NAME, "*");
        let mut plan = None;
        let given = input
            .plan
            .as_deref()
            .filter(|given| !given.trim().is_empty());
        if let Some(text) = given.filter(|given| is_text(given)) {
            question.push_str(&format!(
                "\n\n{}",
                text::head(text.trim(), MAX_SHOWN_BYTES).trim_end()
            ));
        } else if let Some(named) = given {
            let resolved_path = resolve(context, named, Access::Read)?;
            if resolved_path.real.kind != PathKind::File {
                return Err(Failure::ForModel(format!(
                    "{} is not a file. Name the file the plan is in, or none.",
                    resolved_path.shown
                )));
            }
            let path = resolved_path.real.path.clone();
            let read = base::task::spawn_blocking(move || base::file::read_regular(&path)).await;
            let bytes = match read {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(e)) => {
                    return Err(Failure::ForModel(format!(
                        "{} cannot be read: {e}.",
                        resolved_path.shown
                    )));
                }
                Err(e) => return Err(Failure::Broken(e.to_string())),
            };
            let text = String::from_utf8_lossy(&bytes);
            question.push_str(&format!(
                "\n\n{}:\n\n{}",
                resolved_path.shown,
                text::head(&text, MAX_SHOWN_BYTES).trim_end()
            ));
            if text.len() > MAX_SHOWN_BYTES {
                question.push_str(&format!(
                    "\n\n... {} more bytes",
                    text.len() - MAX_SHOWN_BYTES
                ));
            }
            request.metadata.insert(
                "plan".into(),
                Value::String(resolved_path.path.display().to_string()),
            );
            plan = Some(resolved_path.shown.clone());
            requests.extend(resolved_path.real.requests(Access::Read));
        }
        // The user decides, whatever the rules allow.
        request.minimum = Some((Action::Ask, question));
        requests.push(request);
        Ok((requests, plan))
    }

    async fn run(&self, plan: Option<String>, context: ToolContext) -> Result<ToolOutput, Failure> {
        let agent = switch_agent("build", &context).await?;
        let plan = plan.map(|plan| format!(" in {plan}")).unwrap_or_default();
        Ok(ToolOutput::text(format!(
            "The user has approved the plan{plan}. The session is in {agent} mode now: carry out the plan."
        )))
    }
}

/// Returns whether the argument is the plan itself, not a file name: a file name has only one line,
/// and does not end a sentence.
fn is_text(plan: &str) -> bool {
    let plan = plan.trim();
    plan.contains('\n')
        || (plan.contains(' ')
            && (plan.ends_with(['.', '!', ':']) || plan.starts_with(['#', '-', '*'])))
}

/// Switches to another agent from the next step on. Returns its name.
pub(crate) async fn switch_agent(agent: &str, context: &ToolContext) -> Result<String, Failure> {
    let (reply, answer) = oneshot::channel();
    let sent = context
        .client
        .session_requests
        .send(SessionRequest::Switch(SwitchAgent {
            agent: agent.into(),
            reply,
        }))
        .await
        .is_ok();
    match answer.await {
        Ok(Some(agent)) => Ok(agent),
        Ok(None) => Err(Failure::for_model(
            "The mode cannot be changed here. Tell the user to change it.",
        )),
        Err(_) if sent && context.cancelled.is_cancelled() => Err(Failure::Cancelled),
        Err(_) => Err(Failure::Broken("the session does not answer".into())),
    }
}
