//! [`CustomTool`], a tool of a script with the interface of the built-in ones, so that the model can call it.
//! The name of its permission is the name of the tool. A [`HostProvider`] starts the host that runs it.

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

/// The maximum length of a tool's description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 10_000;
/// The time limit of a call. A question to the user suspends it, and progress restarts it.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that an aborted call has to end.
const ABORT_GRACE: Duration = Duration::from_millis(150);
/// The maximum size of an attachment in base64, in bytes.
const MAX_ATTACHMENT_BYTES: usize = 14 << 20;

/// Starts the hosts that run tools, and counts the calls.
pub(super) trait HostProvider: Send + Sync {
    /// Returns the host for scripts of an origin, and starts it if needed. Returns the reason if it
    /// cannot be started.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    fn host<'a>(
        self: Arc<Self>,
        origin: ScriptOrigin,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Result<Arc<PluginHost>, String>, Failure>>;
    /// Counts a call that has ended. `script` is the file that has the tool.
    fn count_tool_call(&self, script: (ScriptOrigin, &str), spent: Duration, error: Option<String>);
    /// Returns whether a subagent works for a plugin. A tool may be waiting for its answer.
    fn has_working_subagent(&self) -> bool;
}

/// A tool that a file exports or a plugin provides.
#[derive(Debug, Clone)]
pub(super) struct CustomTool {
    /// The name for the model.
    pub(super) name: String,
    /// The name in the host, as the script has it.
    pub(super) host_name: String,
    /// The name of the file that contains it, for display.
    pub(super) file: String,
    pub(super) description: String,
    pub(super) schema: Arc<Value>,
    pub(super) origin: ScriptOrigin,
    pub(super) host_provider: Weak<dyn HostProvider>,
}

impl CustomTool {
    /// Decodes a tool in the host's list. Returns `None` if it has no name.
    pub(super) fn decode(
        listed: &Value,
        origin: ScriptOrigin,
        host_provider: &Weak<dyn HostProvider>,
    ) -> Option<Self> {
        let text_of = |key: &str| listed.get(key).and_then(Value::as_str);
        let schema = schema::normalised(listed.get("schema").unwrap_or(&Value::Null));
        let host_name = text_of("name")?.to_owned();
        Some(Self {
            name: text::plain(&host_name).chars().take(64).collect(),
            host_name,
            file: text_of("file").unwrap_or_default().to_owned(),
            description: text::cut_chars(
                text_of("description").unwrap_or_default(),
                MAX_DESCRIPTION_CHARS,
            ),
            schema: Arc::new(schema),
            origin,
            host_provider: host_provider.clone(),
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
                    Box::pin(async move { tool.start(arguments, context).await })
                };
            Ok(PreparedCall {
                requests: vec![request],
                run: Box::new(run),
            })
        })
    }
}

impl CustomTool {
    /// Starts a call in the host and follows it.
    async fn start(
        self,
        arguments: Map<String, Value>,
        context: ToolContext,
    ) -> Result<ToolOutput, Failure> {
        let failed = |why: String| {
            Failure::ForModel(format!("The tool {} cannot be called: {why}.", self.name))
        };
        let host_provider = self
            .host_provider
            .upgrade()
            .ok_or_else(|| failed("its session has ended".into()))?;
        let host = host_provider
            .host(self.origin, &context)
            .await?
            .map_err(failed)?;
        let id = context.call.id.as_str();
        let params = json!({
            "tool": self.host_name, "call": id, "args": arguments,
            "context": {
                "sessionID": context.session.id.as_str(), "messageID": context.call.message, "agent": context.call.agent,
                "directory": context.project.cwd, "worktree": context.project.worktree.root,
            },
        });
        let began = Instant::now();
        let timeout = CallTimeout::start(CALL_TIMEOUT, Instant::now());
        let call = host
            .call(id, params)
            .await
            .map_err(|e| failed(e.to_string()))?;
        self.follow_boxed(call, context, began, timeout).await
    }

    /// Returns [`CustomTool::follow`] as a boxed future, because it calls itself.
    fn follow_boxed(
        self,
        call: HostCall,
        context: ToolContext,
        began: Instant,
        timeout: CallTimeout,
    ) -> BoxFuture<'static, Result<ToolOutput, Failure>> {
        Box::pin(self.follow(call, context, began, timeout))
    }

    /// Follows a call to its end, or to its next question. The question is returned as
    /// [`Failure::NeedsPermission`], with a function that continues the call.
    async fn follow(
        self,
        mut call: HostCall,
        context: ToolContext,
        began: Instant,
        mut timeout: CallTimeout,
    ) -> Result<ToolOutput, Failure> {
        loop {
            let message = tokio::select! {
                biased;
                () = context.cancelled.cancelled() => {
                    call.host.notify("abort", json!({ "call": context.call.id.as_str() })).await;
                    // The host may still answer.
                    tokio::time::timeout(ABORT_GRACE, call.next_message()).await.ok();
                    return Err(Failure::Cancelled);
                }
                message = call.next_message() => message,
                () = timeout.run_out() => {
                    let now = Instant::now();
                    if self.host_provider.upgrade().is_some_and(|host_provider| host_provider.has_working_subagent()) {
                        timeout.record_progress(now);
                        if timeout.deadline().is_some_and(|until| until > now) {
                            continue;
                        }
                    }
                    let why = timeout.why(now);
                    self.count_call(began, Some(why.clone()));
                    call.host.end();
                    return Err(Failure::ForModel(format!("The tool {} was ended: {why}.", self.name)));
                }
            };
            match message {
                CallMessage::Answered(answer) => {
                    self.count_call(began, answer.as_ref().err().map(ToString::to_string));
                    return self.decode_output(answer);
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
                    timeout.record_progress(Instant::now());
                }
                CallMessage::FromHost(HostMessage::RequestPermission { id, params }) => {
                    let requests = vec![self.access_request(&params)];
                    timeout.set_waits_for_user(true, Instant::now());
                    let run = move |context: ToolContext| -> BoxFuture<'static, Result<ToolOutput, Failure>> {
                        Box::pin(async move {
                            call.host.answer(id, json!({ "allowed": true })).await;
                            timeout.set_waits_for_user(false, Instant::now());
                            self.follow_boxed(call, context, began, timeout).await
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

    fn count_call(&self, began: Instant, error: Option<String>) {
        if let Some(host_provider) = self.host_provider.upgrade() {
            host_provider.count_tool_call((self.origin, &self.file), began.elapsed(), error);
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
        let is_built_in = PERMISSIONS.iter().any(|(key, _)| *key == permission);
        AccessRequest {
            patterns: patterns.unwrap_or_else(|| vec!["*".into()]),
            always: if is_built_in {
                Vec::new()
            } else {
                texts("always")
            },
            metadata,
            ..AccessRequest::new(permission, "*")
        }
    }

    /// Decodes the answer of a call.
    fn decode_output(&self, answer: Result<Value, HostError>) -> Result<ToolOutput, Failure> {
        let name = &self.name;
        let result = answer.map_err(|e| match e {
            HostError::Reported {
                message,
                has_invalid_arguments: true,
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
        let text_of = |key: &str| {
            result
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut text = text_of("output");
        let mut attachments = Vec::new();
        for file in result
            .get("attachments")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            match decode_attachment(file) {
                Ok(file) => attachments.push(file),
                Err(name) => text.push_str(&format!("\n[{name}, left out]")),
            }
        }
        let metadata = result
            .get("metadata")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        Ok(ToolOutput {
            title: text_of("title"),
            text,
            metadata,
            attachments,
            ..ToolOutput::default()
        })
    }
}

/// Decodes a file in a tool's result. Only images and PDF files in `data:` URLs are accepted. The error is
/// the kind of the file.
fn decode_attachment(file: &Value) -> Result<File, String> {
    let text_of = |key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
    let url = text_of("url").unwrap_or_default();
    let (head, data) = url.split_once(";base64,").unwrap_or_default();
    let mime = text_of("mime")
        .or_else(|| head.strip_prefix("data:").map(str::to_owned))
        .unwrap_or_default();
    let is_supported = mime.starts_with("image/") || mime == "application/pdf";
    if !is_supported || data.is_empty() || data.len() > MAX_ATTACHMENT_BYTES {
        return Err(if mime.is_empty() {
            "an attachment".to_owned()
        } else {
            text::title(&mime)
        });
    }
    let name = text_of("filename").map(|name| {
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
