//! Prompts of servers, which a user invokes as `/server:prompt` with positional arguments. The user
//! is asked for missing required arguments, with the server's completions as options.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, CompletionContext, GetPromptRequest, GetPromptRequestParams, GetPromptResult,
    Prompt, Role, ServerResult,
};
use serde_json::{Map, Value, json};

use super::McpServers;
use super::asker::Asker;
use super::connection::McpConnection;
use super::content::ServerContent;
use super::request::{self, RequestCaller};
use base::text;
use events::{
    CommandInfo, FieldKind, FieldOption, FormField, FormPage, FormReply, TextLimits, ToolKind,
};
use project::command;
use tools::{AnyTool, BoxFuture, CallDescription, Failure, PreparedCall, ToolContext, ToolOutput};

/// The number of completions shown for an argument, and the time limit for them.
const MAX_COMPLETIONS: usize = 30;
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest description of a prompt, in characters.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// Returns the command of a prompt, without the slash.
pub(super) fn command(server: &str, prompt: &str) -> String {
    format!("{}:{}", text::plain(server), text::plain(prompt))
}

impl McpServers {
    /// Returns the prompts of the servers that are ready or known, as commands. If two have the
    /// same name, the first one has it.
    pub fn prompts(&self) -> Vec<CommandInfo> {
        let mut all: Vec<CommandInfo> = Vec::new();
        let mut names = HashSet::new();
        for (connection, offer) in self.offers() {
            for prompt in &offer.prompts {
                let name = command(&connection.name, &prompt.name);
                if !names.insert(name.clone()) {
                    continue;
                }
                let text = prompt
                    .description
                    .as_deref()
                    .or(prompt.title.as_deref())
                    .unwrap_or("A prompt");
                let description = text::cut_chars(&text::title(text), MAX_DESCRIPTION_CHARS);
                let hint = hint(prompt);
                all.push(CommandInfo {
                    name,
                    description,
                    hint,
                });
            }
        }
        all
    }

    /// Returns a call that gets the prompt of a command. Waits for a server that is starting,
    /// unless its last start has listed the prompt.
    pub async fn prompt(&self, name: &str, arguments: &str) -> Option<(Arc<dyn AnyTool>, Value)> {
        let (server, _) = name.split_once(':')?;
        let connection = self
            .connections()
            .into_iter()
            .find(|connection| text::plain(&connection.name) == server)?;
        let (connection, prompt) = match self.find_prompt(name) {
            Some(found) => found,
            None if connection.ready_server().is_some() => return None,
            None => {
                // The reason for a failure is reported elsewhere.
                connection.await_ready().await.ok()?;
                self.find_prompt(name)?
            }
        };
        let input = Value::Object(assign_by_position(&prompt, arguments));
        let name = text::cut_chars(
            &format!(
                "{}_{}",
                text::plain(&connection.name),
                text::plain(&prompt.name)
            ),
            64,
        );
        Some((
            Arc::new(GetPrompt {
                name,
                connection,
                prompt: Arc::new(prompt),
            }),
            input,
        ))
    }

    fn find_prompt(&self, name: &str) -> Option<(Arc<McpConnection>, Prompt)> {
        self.offers().into_iter().find_map(|(connection, offer)| {
            let named = offer
                .prompts
                .iter()
                .find(|prompt| command(&connection.name, &prompt.name) == name)?;
            Some((connection, named.clone()))
        })
    }
}

/// Returns the hint of the arguments: `who [how]`.
fn hint(prompt: &Prompt) -> Option<String> {
    let describe = |argument: &rmcp::model::PromptArgument| match argument.required {
        Some(true) => text::title(&argument.name),
        _ => format!("[{}]", text::title(&argument.name)),
    };
    let all: Vec<String> = prompt.arguments.iter().flatten().map(describe).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Assigns the typed words to the arguments by position. The last argument takes the rest.
fn assign_by_position(prompt: &Prompt, typed: &str) -> Map<String, Value> {
    let words = command::words(typed);
    let names: Vec<&str> = prompt
        .arguments
        .iter()
        .flatten()
        .map(|argument| argument.name.as_str())
        .collect();
    let value = |(at, name): (usize, &&str)| {
        let value = if at + 1 == names.len() {
            let rest = words.get(at..)?;
            if rest.is_empty() {
                return None;
            }
            rest.join(" ")
        } else {
            (*words.get(at)?).to_owned()
        };
        Some(((*name).to_owned(), Value::String(value)))
    };
    names.iter().enumerate().filter_map(value).collect()
}

/// A tool that gets a prompt. It is not offered to a model.
struct GetPrompt {
    name: String,
    connection: Arc<McpConnection>,
    prompt: Arc<Prompt>,
}

impl AnyTool for GetPrompt {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        String::new()
    }

    fn schema(&self) -> Arc<Value> {
        Arc::new(json!({"type": "object", "properties": {}}))
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Fetch
    }

    fn concurrent(&self) -> bool {
        false
    }

    fn permission(&self) -> &str {
        &self.name
    }

    fn describe(&self, _: &Value, _: &ToolContext) -> Option<CallDescription> {
        let title = text::title(&format!(
            "{}: prompt {}",
            self.connection.name, self.prompt.name
        ));
        Some(CallDescription {
            title,
            locations: Vec::new(),
        })
    }

    fn prepare<'a>(
        &'a self,
        input: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<PreparedCall, Failure>> {
        let connection = self.connection.clone();
        let prompt = self.prompt.clone();
        let arguments = input.as_object().cloned().unwrap_or_default();
        Box::pin(async move {
            let run =
                move |context: ToolContext| -> BoxFuture<'static, Result<ToolOutput, Failure>> {
                    Box::pin(async move { get(&connection, &prompt, arguments, &context).await })
                };
            // The user has requested the prompt explicitly, so no permission is needed.
            Ok(PreparedCall {
                requests: Vec::new(),
                run: Box::new(run),
            })
        })
    }
}

async fn get(
    connection: &McpConnection,
    prompt: &Prompt,
    mut arguments: Map<String, Value>,
    context: &ToolContext,
) -> Result<ToolOutput, Failure> {
    ask_for_missing_arguments(connection, prompt, &mut arguments, context).await?;
    let params = GetPromptRequestParams::new(prompt.name.clone()).with_arguments(arguments);
    let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
    match request::request(connection, request, &RequestCaller::for_tool_call(context)).await? {
        ServerResult::GetPromptResult(result) => {
            let content = content(result);
            let text = content.text();
            let attachments = content.attachments;
            Ok(ToolOutput {
                display: Some(text.clone()),
                text,
                attachments,
                ..ToolOutput::default()
            })
        }
        _ => Err(Failure::ForModel(format!(
            "The MCP server {} answered with something that is not a prompt.",
            connection.name
        ))),
    }
}

/// Asks the user for the required arguments that are missing.
async fn ask_for_missing_arguments(
    connection: &McpConnection,
    prompt: &Prompt,
    arguments: &mut Map<String, Value>,
    context: &ToolContext,
) -> Result<(), Failure> {
    let wanted = prompt
        .arguments
        .iter()
        .flatten()
        .filter(|argument| argument.required == Some(true));
    let missing: Vec<_> = wanted
        .filter(|argument| !arguments.contains_key(&argument.name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let usage = || {
        let name = command(&connection.name, &prompt.name);
        Failure::ForModel(format!(
            "it wants arguments: /{name} {}",
            hint(prompt).unwrap_or_default()
        ))
    };
    if !connection.facts.is_attended {
        return Err(usage());
    }
    let can_complete = connection.offer().is_some_and(|offer| offer.can_complete);
    let mut fields = Vec::new();
    for argument in &missing {
        let title = text::title(argument.title.as_deref().unwrap_or(&argument.name));
        let words = argument
            .description
            .as_deref()
            .map(text::title)
            .filter(|words| !words.is_empty());
        let proposals = if can_complete {
            complete_argument(connection, prompt, &argument.name, arguments).await
        } else {
            Vec::new()
        };
        let own = FieldKind::Text(TextLimits::default());
        let key = argument.name.clone();
        if proposals.is_empty() {
            fields.push(FormField {
                key,
                title,
                description: words,
                required: true,
                kind: own,
            });
            continue;
        }
        let more = format!("{title}: something else");
        let kind = FieldKind::SingleChoice(proposals, None);
        fields.push(FormField {
            key: key.clone(),
            title,
            description: words,
            required: false,
            kind,
        });
        fields.push(FormField {
            key: format!("{key}_own"),
            title: more,
            description: None,
            required: false,
            kind: own,
        });
    }
    let message = format!(
        "The prompt {} needs more information.",
        text::title(&prompt.name)
    );
    let requester = format!("The MCP server {}", text::title(&connection.name));
    match Asker::for_tool_call(context)
        .show_form(requester, message, FormPage::Fields(fields), None)
        .await
    {
        FormReply::Accepted(content) => {
            for argument in missing {
                let answer = |key: &str| {
                    content
                        .get(key)
                        .and_then(Value::as_str)
                        .filter(|answer| !answer.trim().is_empty())
                };
                let own = format!("{}_own", argument.name);
                let Some(answer) = answer(&own).or_else(|| answer(&argument.name)) else {
                    return Err(usage());
                };
                arguments.insert(argument.name.clone(), Value::String(answer.to_owned()));
            }
            Ok(())
        }
        FormReply::NotShown => Err(usage()),
        FormReply::Declined | FormReply::Cancelled => Err(Failure::ForModel(
            "the user did not say what it wants to know".into(),
        )),
    }
}

/// Returns the server's completions of an argument.
async fn complete_argument(
    connection: &McpConnection,
    prompt: &Prompt,
    argument: &str,
    known: &Map<String, Value>,
) -> Vec<FieldOption> {
    let known = known
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let known = CompletionContext::with_arguments(known.collect::<HashMap<_, _>>());
    let completions = async {
        let ready = connection.await_ready().await.ok()?;
        ready
            .peer
            .complete_prompt_argument(&prompt.name, argument, "", Some(known))
            .await
            .ok()
    };
    let Ok(Some(proposed)) = tokio::time::timeout(COMPLETION_TIMEOUT, completions).await else {
        return Vec::new();
    };
    let option = |value: String| FieldOption {
        label: text::title(&value),
        value,
        description: String::new(),
    };
    proposed
        .values
        .into_iter()
        .filter(|value| !value.trim().is_empty())
        .take(MAX_COMPLETIONS)
        .map(option)
        .collect()
}

/// Returns the content of a prompt. Names the speakers if there is more than one.
fn content(result: GetPromptResult) -> ServerContent {
    let has_several_roles = result
        .messages
        .iter()
        .any(|message| message.role != Role::User);
    let mut content = ServerContent::default();
    for message in result.messages {
        let from = content.texts.len();
        content.block(message.content);
        let role_name = if message.role == Role::User {
            "User"
        } else {
            "Assistant"
        };
        if has_several_roles && let Some(text) = content.texts.get_mut(from) {
            *text = format!("{role_name}: {text}");
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(arguments: &Value) -> Prompt {
        serde_json::from_value(json!({"name": "greet", "arguments": arguments})).unwrap()
    }

    #[test]
    fn typed_arguments_are_assigned_by_position() {
        let two = json!([{"name": "who", "required": true}, {"name": "how"}]);
        let table = [
            (
                two.clone(),
                "Ann kindly",
                json!({"who": "Ann", "how": "kindly"}),
            ),
            (
                two.clone(),
                "\"Ann Lee\" very kindly, please",
                json!({"who": "Ann Lee", "how": "very kindly, please"}),
            ),
            (two.clone(), "Ann", json!({"who": "Ann"})),
            (two.clone(), "  ", json!({})),
            (
                json!([{"name": "all"}]),
                "one two three",
                json!({"all": "one two three"}),
            ),
            (json!([]), "nobody takes this", json!({})),
        ];
        for (arguments, typed, expected) in table {
            assert_eq!(
                Value::Object(assign_by_position(&prompt(&arguments), typed)),
                expected,
                "{typed}"
            );
        }
        assert_eq!(hint(&prompt(&two)).unwrap(), "who [how]");
        assert_eq!(hint(&prompt(&json!([]))), None);
        assert_eq!(command("my server", "a.b"), "my_server:a_b");
    }

    #[test]
    fn prompt_with_several_speakers_names_them() {
        let text = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
        let table = [
            (json!([text("user", "a"), text("user", "b")]), "a\n\nb"),
            (
                json!([text("user", "a"), text("assistant", "b")]),
                "User: a\n\nAssistant: b",
            ),
        ];
        for (messages, expected) in table {
            let result = serde_json::from_value(json!({"messages": messages})).unwrap();
            assert_eq!(content(result).text(), expected);
        }
    }
}
