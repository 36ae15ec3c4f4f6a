//! Runs OpenCode's hooks of plugins. Each function builds the input of one hook, has [`Scripts`] run it,
//! and applies the output.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ChangedText;
use super::hook_event::HookEvent;
use super::hook_outcome::HookOutcome;
use super::scripts::{HookRun, Scripts};
use super::transform;
use base::text;
use config::settings::HookPoint;
use events::Severity;
use providers::{Model, Request};
use tools::{Failure, ToolContext};
use transcript::ModelRef;

/// Returns the names of the plugins that changed the output, for display.
fn changed_by(run: &HookRun) -> String {
    let names: Vec<String> = run.changed.iter().map(|name| text::title(name)).collect();
    names.join(", ")
}

/// Returns the strings in a list.
fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Runs the plugins' hooks on an event.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn run_hooks(
    scripts: &Arc<Scripts>,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    match hook_event.on {
        HookPoint::ToolBefore => run_tool_before(scripts, hook_event, context).await,
        HookPoint::ToolAfter => run_tool_after(scripts, hook_event, context).await,
        HookPoint::Permission => run_permission_ask(scripts, hook_event, context).await,
        HookPoint::Compaction => run_compacting(scripts, context).await,
        HookPoint::SessionStart
        | HookPoint::Prompt
        | HookPoint::TurnEnd
        | HookPoint::SessionEnd => Ok(HookOutcome::default()),
    }
}

/// Runs `tool.execute.before`, which may change the arguments, or refuse the call by an error.
async fn run_tool_before(
    scripts: &Arc<Scripts>,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let args = hook_event.field("input");
    let input = json!({ "tool": hook_event.tool, "sessionID": context.session.id.as_str(), "callID": hook_event.field("call") });
    let output = json!({ "args": args });
    let mut hook_outcome = HookOutcome::default();
    let Some(run) = scripts
        .run_hook("tool.execute.before", input, output, context)
        .await?
    else {
        return Ok(hook_outcome);
    };
    if let Some((file, why)) = &run.thrown_error {
        hook_outcome.deny = Some(format!(
            "The plugin {} refuses this: {}",
            text::title(file),
            text::cut_chars(why, 2_000)
        ));
    }
    hook_outcome.ask = run
        .unknown
        .as_ref()
        .map(|why| format!("plugins that could have refused it did not run: {why}"));
    let changed = run
        .output
        .get("args")
        .filter(|changed| changed.is_object() && **changed != args)
        .cloned();
    if changed.is_some() {
        hook_outcome.input = changed;
        hook_outcome.changed_by = changed_by(&run);
    }
    Ok(hook_outcome)
}

/// Runs `tool.execute.after`, which may change the result of a call that has succeeded.
async fn run_tool_after(
    scripts: &Arc<Scripts>,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let mut hook_outcome = HookOutcome::default();
    if hook_event.field("ok") != true {
        return Ok(hook_outcome);
    }
    let input = json!({
        "tool": hook_event.tool, "sessionID": context.session.id.as_str(), "callID": hook_event.field("call"),
        "args": hook_event.field("input"),
    });
    let result = hook_event.field("output");
    let output = json!({ "title": hook_event.field("title"), "output": result, "metadata": {} });
    let Some(run) = scripts
        .run_hook("tool.execute.after", input, output, context)
        .await?
    else {
        return Ok(hook_outcome);
    };
    let changed = run
        .output
        .get("output")
        .filter(|changed| **changed != result)
        .and_then(Value::as_str);
    hook_outcome.output = changed.map(str::to_owned);
    Ok(hook_outcome)
}

/// Runs `permission.ask`, which may change the verdict. A plugin of a project cannot allow anything.
async fn run_permission_ask(
    scripts: &Arc<Scripts>,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let verdict = hook_event.field("verdict");
    let call = hook_event.field("call");
    let input = json!({
        "id": call, "type": hook_event.field("permission"), "pattern": hook_event.field("patterns"), "callID": call,
        "permission": hook_event.field("permission"), "patterns": hook_event.field("patterns"),
        "sessionID": context.session.id.as_str(), "messageID": context.call.message, "title": hook_event.field("title"),
        "metadata": hook_event.field("input"), "time": { "created": context.project.environment.now().0 },
    });
    let mut hook_outcome = HookOutcome::default();
    let output = json!({ "status": verdict });
    let Some(run) = scripts
        .run_hook("permission.ask", input, output, context)
        .await?
    else {
        return Ok(hook_outcome);
    };
    if let Some(why) = &run.unknown {
        hook_outcome.ask = Some(format!(
            "plugins that could have refused it did not run: {why}"
        ));
    }
    match run.output.get("status").and_then(Value::as_str) {
        Some("deny") => {
            hook_outcome.deny = Some(format!("The plugin {} refuses this.", changed_by(&run)))
        }
        Some("ask") if verdict != "ask" => {
            hook_outcome.ask = Some(format!("the plugin {} requires it", changed_by(&run)))
        }
        Some("allow") if verdict == "ask" => {
            hook_outcome.allow = !run.is_changed_by_project && !run.changed.is_empty()
        }
        _ => {}
    }
    Ok(hook_outcome)
}

/// Runs `experimental.session.compacting`, which may add texts for the summary.
async fn run_compacting(
    scripts: &Arc<Scripts>,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let input = json!({ "sessionID": context.session.id.as_str() });
    let output = json!({ "context": [], "prompt": null });
    let mut hook_outcome = HookOutcome::default();
    if let Some(run) = scripts
        .run_hook("experimental.session.compacting", input, output, context)
        .await?
    {
        hook_outcome.context = strings(&run.output["context"]);
        let prompt = run
            .output
            .get("prompt")
            .and_then(Value::as_str)
            .filter(|prompt| !prompt.trim().is_empty());
        hook_outcome
            .context
            .extend(prompt.map(|prompt| format!("Write the summary like this: {prompt}")));
    }
    Ok(hook_outcome)
}

/// Returns texts as plugins have changed them in a hook: the existing ones, then added ones. Returns
/// `None` if nothing was changed.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn change_texts(
    scripts: &Arc<Scripts>,
    (hook, input): (&str, Value),
    texts: &[String],
    context: &ToolContext,
) -> Result<Option<Vec<ChangedText>>, Failure> {
    let session = context.session.id.as_str();
    let part = |(at, text): (usize, &String)| json!({ "id": format!("prt_{at}"), "sessionID": session, "messageID": "msg", "type": "text", "text": text });
    let parts: Vec<Value> = texts.iter().enumerate().map(part).collect();
    let message = json!({ "id": "msg", "sessionID": session, "role": "user", "agent": context.call.agent, "time": { "created": 0 } });
    let output = json!({ "message": message, "parts": parts });
    let Some(run) = scripts.run_hook(hook, input, output, context).await? else {
        return Ok(None);
    };
    if run.changed.is_empty() {
        return Ok(None);
    }
    let parts = run
        .output
        .get("parts")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let decode = |part: &Value| {
        Some(ChangedText {
            text: part.get("text").and_then(Value::as_str)?.to_owned(),
            is_for_model_only: part.get("synthetic").and_then(Value::as_bool) == Some(true),
        })
    };
    Ok(Some(parts.iter().filter_map(decode).collect()))
}

/// Applies the changes of plugins to a request: system prompt, tool definitions, messages and
/// parameters.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn change_request(
    scripts: &Arc<Scripts>,
    request: &mut Request,
    context: &ToolContext,
) -> Result<(), Failure> {
    let session = context.session.id.as_str();
    let model = json!({
        "id": request.model.id.model, "modelID": request.model.id.model, "providerID": request.model.id.provider,
        "name": request.model.name, "limit": { "context": request.model.context.unwrap_or_default() },
    });
    let input = json!({ "sessionID": session, "model": model });
    let output = json!({ "system": request.system });
    if let Some(run) = scripts
        .run_hook("experimental.chat.system.transform", input, output, context)
        .await?
    {
        let system = strings(&run.output["system"]);
        if scripts.record_system_prompt(&request.system, &system) {
            let names = if run.changed.is_empty() {
                "A plugin".to_owned()
            } else {
                changed_by(&run)
            };
            let title = format!(
                "{names} changes the system prompt each time although nothing else has changed, so no provider can cache it and each step costs more."
            );
            for file in &run.changed {
                scripts.record_unstable_prompt(file);
            }
            scripts.notify(Severity::Warning, title, None);
        }
        request.system = system;
    }
    change_definitions(scripts, request, context).await?;
    change_messages(scripts, request, context).await?;
    change_params(scripts, request, &model, context).await
}

/// Applies the changes of plugins to tool definitions (`tool.definition`).
async fn change_definitions(
    scripts: &Arc<Scripts>,
    request: &mut Request,
    context: &ToolContext,
) -> Result<(), Failure> {
    if scripts.handles_hook("tool.definition") {
        for tool in &mut request.tools {
            let output = json!({ "description": tool.description, "parameters": *tool.schema });
            let input = json!({ "toolID": tool.name.as_str() });
            let Some(run) = scripts
                .run_hook("tool.definition", input, output, context)
                .await?
            else {
                break;
            };
            if run.changed.is_empty() {
                continue;
            }
            if let Some(description) = run.output.get("description").and_then(Value::as_str) {
                tool.description = description.to_owned();
            }
            if let Some(schema) = run
                .output
                .get("parameters")
                .filter(|schema| schema.is_object())
            {
                tool.schema = Arc::new(schema.clone());
            }
        }
    }
    Ok(())
}

/// Applies the changes of plugins to the messages of a request (`experimental.chat.messages.transform`).
async fn change_messages(
    scripts: &Arc<Scripts>,
    request: &mut Request,
    context: &ToolContext,
) -> Result<(), Failure> {
    if scripts.handles_hook("experimental.chat.messages.transform") {
        let before =
            transform::encode_messages(request, context.session.id.as_str(), &context.call.agent);
        let output = json!({ "messages": before });
        let ran = scripts
            .run_hook(
                "experimental.chat.messages.transform",
                json!({}),
                output,
                context,
            )
            .await?;
        if let Some(run) = ran.filter(|run| !run.changed.is_empty())
            && transform::apply_changes(request, &before, &run.output["messages"])
        {
            let title = format!(
                "{} adds or removes messages, which has no effect here: it may only change their text.",
                changed_by(&run)
            );
            scripts.notify(Severity::Info, title, None);
        }
    }
    Ok(())
}

/// Applies the changes of plugins to the parameters of a request, and adds their headers
/// (`chat.params`, `chat.headers`).
async fn change_params(
    scripts: &Arc<Scripts>,
    request: &mut Request,
    model: &Value,
    context: &ToolContext,
) -> Result<(), Failure> {
    let session = context.session.id.as_str();
    let params = &request.params;
    let input = json!({
        "sessionID": session, "agent": context.call.agent, "model": model,
        "provider": { "id": request.model.id.provider }, "message": { "sessionID": session, "role": "user" },
    });
    let output = json!({
        "temperature": params.temperature, "topP": params.top_p, "maxOutputTokens": params.max_output,
        "options": params.options,
    });
    if let Some(run) = scripts
        .run_hook(
            "chat.headers",
            input.clone(),
            json!({ "headers": {} }),
            context,
        )
        .await?
    {
        let headers = run
            .output
            .get("headers")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let named = headers.filter_map(|(name, value)| {
            Some((name.to_ascii_lowercase(), value.as_str()?.to_owned()))
        });
        request.params.headers = named
            .filter(|(name, value)| is_allowed_header(name, value))
            .collect();
    }
    if let Some(run) = scripts
        .run_hook("chat.params", input, output, context)
        .await?
        .filter(|run| !run.changed.is_empty())
    {
        let params = &mut request.params;
        params.temperature = run.output.get("temperature").and_then(Value::as_f64);
        params.top_p = run.output.get("topP").and_then(Value::as_f64);
        if let Some(max) = run.output.get("maxOutputTokens").and_then(Value::as_u64) {
            params.max_output = max.min(params.max_output);
        }
        if let Some(options) = run.output.get("options").and_then(Value::as_object) {
            params.options = options.clone();
        }
    }
    Ok(())
}

/// Returns whether a plugin may send this header. Headers that carry credentials or control the
/// body are excluded.
fn is_allowed_header(name: &str, value: &str) -> bool {
    const RESERVED_HEADERS: [&str; 6] = [
        "authorization",
        "cookie",
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
    ];
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty()
        && name.chars().all(token)
        && value
            .chars()
            .all(|c| c == '\t' || c == ' ' || c.is_ascii_graphic())
        && !RESERVED_HEADERS.contains(&name)
        && !base::child_environment::is_secret(name)
}

/// Returns the environment variables that plugins add to a command. Leaves out variables that would
/// make programs run something else.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn command_variables(
    scripts: &Arc<Scripts>,
    context: &ToolContext,
) -> Result<Vec<(String, String)>, Failure> {
    let input = json!({
        "cwd": context.project.cwd, "sessionID": context.session.id.as_str(), "callID": context.call.id.as_str(),
    });
    let Some(run) = scripts
        .run_hook("shell.env", input, json!({ "env": {} }), context)
        .await?
    else {
        return Ok(Vec::new());
    };
    let mut variables = Vec::new();
    for (name, value) in run
        .output
        .get("env")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let Some(value) = value.as_str().filter(|value| !value.contains('\0')) else {
            continue;
        };
        let is_valid_name = !name.is_empty() && !name.contains(['=', '\0']);
        match permission::shell::variable_danger(name) {
            _ if !is_valid_name => {}
            Some(danger) => {
                let title = format!(
                    "{} sets {}, which {danger}; it is left out.",
                    changed_by(&run),
                    text::title(name)
                );
                scripts.notify(Severity::Warning, title, None);
            }
            None => variables.push((name.clone(), value.to_owned())),
        }
    }
    Ok(variables)
}

/// Returns whether plugins let a turn continue automatically after compaction.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn continues_after_compaction(
    scripts: &Arc<Scripts>,
    model: &Model,
    overflow: bool,
    context: &ToolContext,
) -> Result<bool, Failure> {
    let session = context.session.id.as_str();
    let input = json!({
        "sessionID": session, "agent": context.call.agent, "overflow": overflow,
        "model": { "id": model.id.model, "modelID": model.id.model, "providerID": model.id.provider },
        "provider": { "id": model.id.provider }, "message": { "sessionID": session, "role": "user" },
    });
    let output = json!({ "enabled": true });
    let run = scripts
        .run_hook(
            "experimental.compaction.autocontinue",
            input,
            output,
            context,
        )
        .await?;
    Ok(run.is_none_or(|run| run.output.get("enabled").and_then(Value::as_bool) != Some(false)))
}

/// Returns the model that plugins choose for small tasks next to this main model.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn small_model(
    scripts: &Arc<Scripts>,
    main: &ModelRef,
    context: &ToolContext,
) -> Result<Option<ModelRef>, Failure> {
    let input = json!({ "provider": { "id": main.provider } });
    let run = scripts
        .run_hook(
            "experimental.provider.small_model",
            input,
            json!({}),
            context,
        )
        .await?;
    Ok(run.and_then(|run| {
        let string_at = |at: &str| {
            run.output
                .pointer(at)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let provider = string_at("/model/providerID").unwrap_or_else(|| main.provider.clone());
        let model = string_at("/model/id").or_else(|| string_at("/model/modelID"))?;
        Some(ModelRef {
            provider,
            model,
            effort: None,
        })
    }))
}

/// Returns a complete text of the model as plugins have changed it, or `None` if they do not change
/// it.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn change_answer(
    scripts: &Arc<Scripts>,
    (message, part): (&str, &str),
    text: &str,
    context: &ToolContext,
) -> Result<Option<String>, Failure> {
    let input =
        json!({ "sessionID": context.session.id.as_str(), "messageID": message, "partID": part });
    let run = scripts
        .run_hook(
            "experimental.text.complete",
            input,
            json!({ "text": text }),
            context,
        )
        .await?;
    let changed = run.and_then(|run| {
        run.output
            .get("text")
            .and_then(Value::as_str)
            .map(str::to_owned)
    });
    Ok(changed.filter(|changed| changed != text))
}
