//! A custom tool as the model sees it. The permission is the tool's name.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::host::{CallMessage, HostCall, HostError, HostMessage, PluginHost, ScriptOrigin};
use base::text;
use events::{CallUpdate, ToolKind};
use permission::AccessRequest;
use permission::keys::PERMISSIONS;
use tools::call_timeout::CallTimeout;
use tools::{
    AnyTool, BoxFuture, CallDescription, Failure, FurtherCall, PreparedCall, ToolContext,
    ToolOutput, external_tool, schema,
};
use transcript::File;

/// The longest description of a tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 10_000;
/// The time limit of a call without an answer, a question or progress.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that an aborted call has to end.
const ABORT_GRACE: Duration = Duration::from_millis(150);
/// The largest attachment, in base64.
const MAX_ATTACHMENT_BYTES: usize = 14 << 20;

/// Starts the host that runs a tool, and counts its calls.
pub(super) trait Home: Send + Sync {
    /// Returns the host that runs the tool, starting it if needed, or the reason why there is none.
    fn host<'a>(
        self: Arc<Self>,
        origin: ScriptOrigin,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Result<Arc<PluginHost>, String>, Failure>>;
    /// Counts a call that has ended.
    fn called(&self, at: (ScriptOrigin, &str), spent: Duration, error: Option<String>);
    /// Returns whether a subagent works for a plugin. A tool may be waiting for its answer.
    fn has_subagent_at_work(&self) -> bool;
}

/// A tool that a file exports or a plugin provides.
#[derive(Debug, Clone)]
pub(super) struct CustomTool {
    /// The name for the model.
    pub(super) name: String,
    /// The name in the host.
    pub(super) own: String,
    /// The file that contains it, for display.
    pub(super) file: String,
    pub(super) description: String,
    pub(super) schema: Arc<Value>,
    pub(super) origin: ScriptOrigin,
    pub(super) home: Weak<dyn Home>,
}

impl CustomTool {
    /// Creates the tool from the host's listing.
    pub(super) fn of(listed: &Value, origin: ScriptOrigin, home: &Weak<dyn Home>) -> Option<Self> {
        let words = |key: &str| listed.get(key).and_then(Value::as_str);
        let schema = schema::normalised(listed.get("schema").unwrap_or(&Value::Null));
        let own = words("name")?.to_owned();
        Some(Self {
            name: text::plain(&own).chars().take(64).collect(),
            own,
            file: words("file").unwrap_or_default().to_owned(),
            description: text::cut_chars(
                words("description").unwrap_or_default(),
                MAX_DESCRIPTION_CHARS,
            ),
            schema: Arc::new(schema),
            origin,
            home: home.clone(),
        })
    }
}

impl AnyTool for CustomTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn schema(&self) -> Arc<Value> {
        self.schema.clone()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Other
    }

    fn concurrent(&self) -> bool {
        false
    }

    fn permission(&self) -> &str {
        &self.name
    }

    fn describe(&self, input: &Value, _: &ToolContext) -> Option<CallDescription> {
        Some(CallDescription {
            title: external_tool::title(&self.name, input),
            locations: Vec::new(),
        })
    }

    fn prepare<'a>(
        &'a self,
        input: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<PreparedCall, Failure>> {
        Box::pin(async move {
            let arguments = external_tool::arguments(&self.name, input)?;
            let request = external_tool::access_request(&self.name, &self.name, context);
            let tool = self.clone();
            let run =
                move |context: ToolContext| -> BoxFuture<'static, Result<ToolOutput, Failure>> {
                    Box::pin(async move { tool.begin(arguments, context).await })
                };
            Ok(PreparedCall {
                requests: vec![request],
                run: Box::new(run),
            })
        })
    }
}

impl CustomTool {
    async fn begin(
        self,
        arguments: Map<String, Value>,
        context: ToolContext,
    ) -> Result<ToolOutput, Failure> {
        let failed = |why: String| {
            Failure::ForModel(format!("The tool {} cannot be called: {why}.", self.name))
        };
        let home = self
            .home
            .upgrade()
            .ok_or_else(|| failed("its session has ended".into()))?;
        let host = home.host(self.origin, &context).await?.map_err(failed)?;
        let id = context.call.id.as_str();
        let params = json!({
            "tool": self.own, "call": id, "args": arguments,
            "context": {
                "sessionID": context.session.id.as_str(), "messageID": context.call.message, "agent": context.call.agent,
                "directory": context.project.cwd, "worktree": context.project.worktree.root,
            },
        });
        let began = Instant::now();
        let clock = CallTimeout::start(CALL_TIMEOUT, Instant::now());
        let call = host
            .call(id, params)
            .await
            .map_err(|e| failed(e.to_string()))?;
        self.go_on(call, context, began, clock).await
    }

    /// Follows a call to its end, or to its next question.
    fn go_on(
        self,
        call: HostCall,
        context: ToolContext,
        began: Instant,
        clock: CallTimeout,
    ) -> BoxFuture<'static, Result<ToolOutput, Failure>> {
        Box::pin(self.follow(call, context, began, clock))
    }

    async fn follow(
        self,
        mut call: HostCall,
        context: ToolContext,
        began: Instant,
        mut clock: CallTimeout,
    ) -> Result<ToolOutput, Failure> {
        loop {
            let message = tokio::select! {
                biased;
                () = context.cancelled.cancelled() => {
                    call.host.notify("abort", json!({ "call": context.call.id.as_str() })).await;
                    // The host may still answer.
                    tokio::time::timeout(ABORT_GRACE, call.next()).await.ok();
                    return Err(Failure::Cancelled);
                }
                message = call.next() => message,
                () = clock.run_out() => {
                    let now = Instant::now();
                    if self.home.upgrade().is_some_and(|home| home.has_subagent_at_work()) {
                        clock.record_progress(now);
                        if clock.deadline().is_some_and(|until| until > now) {
                            continue;
                        }
                    }
                    let why = clock.why(now);
                    self.counted(began, Some(why.clone()));
                    call.host.end();
                    return Err(Failure::ForModel(format!("The tool {} was ended: {why}.", self.name)));
                }
            };
            match message {
                CallMessage::Answered(answer) => {
                    self.counted(began, answer.as_ref().err().map(ToString::to_string));
                    return self.output(answer);
                }
                CallMessage::FromHost(HostMessage::Metadata(update)) => {
                    let title = update.get("title").and_then(Value::as_str).map(text::title);
                    let metadata = update.get("metadata").and_then(Value::as_object).cloned();
                    context
                        .progress(CallUpdate {
                            title,
                            metadata,
                            ..CallUpdate::default()
                        })
                        .await;
                    clock.record_progress(Instant::now());
                }
                CallMessage::FromHost(HostMessage::RequestPermission { id, params }) => {
                    let requests = vec![self.access_request(&params)];
                    clock.set_waits_for_user(true, Instant::now());
                    let run = move |context: ToolContext| -> BoxFuture<'static, Result<ToolOutput, Failure>> {
                        Box::pin(async move {
                            call.host.answer(id, json!({ "allowed": true })).await;
                            clock.set_waits_for_user(false, Instant::now());
                            self.go_on(call, context, began, clock).await
                        })
                    };
                    let call = PreparedCall {
                        requests,
                        run: Box::new(run),
                    };
                    return Err(Failure::NeedsPermission(Box::new(FurtherCall {
                        call,
                        is_allowed: false,
                    })));
                }
            }
        }
    }

    fn counted(&self, began: Instant, error: Option<String>) {
        if let Some(home) = self.home.upgrade() {
            home.called((self.origin, &self.file), began.elapsed(), error);
        }
    }

    /// Returns the access request of a tool's question.
    fn access_request(&self, params: &Value) -> AccessRequest {
        let texts = |key: &str| -> Vec<String> {
            let list = params
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let permission = params
            .get("permission")
            .and_then(Value::as_str)
            .unwrap_or(&self.name);
        let patterns = Some(texts("patterns")).filter(|patterns| !patterns.is_empty());
        let metadata = params
            .get("metadata")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        // A permission of a built-in tool is never granted permanently to a foreign tool.
        let ours = PERMISSIONS.iter().any(|(key, _)| *key == permission);
        AccessRequest {
            patterns: patterns.unwrap_or_else(|| vec!["*".into()]),
            always: if ours { Vec::new() } else { texts("always") },
            metadata,
            ..AccessRequest::new(permission, "*")
        }
    }

    fn output(&self, answer: Result<Value, HostError>) -> Result<ToolOutput, Failure> {
        let name = &self.name;
        let result = answer.map_err(|e| match e {
            HostError::Reported {
                message,
                arguments: true,
                ..
            } => Failure::ForModel(format!(
                "The tool {name} was called with invalid arguments: {message}."
            )),
            HostError::Reported { message, .. } if !message.trim().is_empty() => {
                Failure::ForModel(message)
            }
            e => Failure::ForModel(format!(
                "The tool {name} failed: {e}. Its effects so far are unknown."
            )),
        })?;
        let words = |key: &str| {
            result
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut text = words("output");
        let mut attachments = Vec::new();
        for file in result
            .get("attachments")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            match attachment(file) {
                Ok(file) => attachments.push(file),
                Err(what) => text.push_str(&format!("\n[{what}, left out]")),
            }
        }
        let metadata = result
            .get("metadata")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        Ok(ToolOutput {
            title: words("title"),
            text,
            metadata,
            attachments,
            ..ToolOutput::default()
        })
    }
}

/// Returns a file in a tool's result. Only files in `data:` URLs are accepted.
fn attachment(file: &Value) -> Result<File, String> {
    let words = |key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
    let url = words("url").unwrap_or_default();
    let (head, data) = url.split_once(";base64,").unwrap_or_default();
    let mime = words("mime")
        .or_else(|| head.strip_prefix("data:").map(str::to_owned))
        .unwrap_or_default();
    let known = mime.starts_with("image/") || mime == "application/pdf";
    if !known || data.is_empty() || data.len() > MAX_ATTACHMENT_BYTES {
        return Err(if mime.is_empty() {
            "an attachment".to_owned()
        } else {
            text::title(&mime)
        });
    }
    let name = words("filename").map(|name| {
        Path::new(&name)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into()
    });
    Ok(File {
        mime,
        name,
        uri: None,
        data: Some(data.to_owned()),
        is_rejected: false,
    })
}
