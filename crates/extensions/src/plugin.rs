//! Runs OpenCode's hooks of plugins: the input of each hook, and the effect of its output.

use std::sync::Arc;

use serde_json::{Value, json};

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
fn who(run: &HookRun) -> String {
    let names: Vec<String> = run.changed.iter().map(|name| text::title(name)).collect();
    names.join(", ")
}

fn texts(value: &Value) -> Vec<String> {
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
        HookPoint::ToolBefore => before(scripts, hook_event, context).await,
        HookPoint::ToolAfter => after(scripts, hook_event, context).await,
        HookPoint::Permission => permission(scripts, hook_event, context).await,
        HookPoint::Compaction => compaction(scripts, context).await,
        HookPoint::SessionStart
        | HookPoint::Prompt
        | HookPoint::TurnEnd
        | HookPoint::SessionEnd => Ok(HookOutcome::default()),
    }
}

async fn before(
    scripts: &Arc<Scripts>,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let args = hook_event.fact("input");
    let input = json!({ "tool": hook_event.tool, "sessionID": context.session.id.as_str(), "callID": hook_event.fact("call") });
    let output = json!({ "args": args });
    let mut hook_outcome = HookOutcome::default();
    let Some(run) = scripts
        .hook("tool.execute.before", input, output, context)
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
        hook_outcome.changed_by = who(&run);
    }
    Ok(hook_outcome)
}

async fn after(
    scripts: &Arc<Scripts>,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let mut hook_outcome = HookOutcome::default();
    if hook_event.fact("ok") != true {
        return Ok(hook_outcome);
    }
    let input = json!({
        "tool": hook_event.tool, "sessionID": context.session.id.as_str(), "callID": hook_event.fact("call"),
        "args": hook_event.fact("input"),
    });
    let result = hook_event.fact("output");
    let output = json!({ "title": hook_event.fact("title"), "output": result, "metadata": {} });
    let Some(run) = scripts
        .hook("tool.execute.after", input, output, context)
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

async fn permission(
    scripts: &Arc<Scripts>,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let verdict = hook_event.fact("verdict");
    let call = hook_event.fact("call");
    let input = json!({
        "id": call, "type": hook_event.fact("permission"), "pattern": hook_event.fact("patterns"), "callID": call,
        "permission": hook_event.fact("permission"), "patterns": hook_event.fact("patterns"),
        "sessionID": context.session.id.as_str(), "messageID": context.call.message, "title": hook_event.fact("title"),
        "metadata": hook_event.fact("input"), "time": { "created": context.project.environment.now().0 },
    });
    let mut hook_outcome = HookOutcome::default();
    let output = json!({ "status": verdict });
    let Some(run) = scripts
        .hook("permission.ask", input, output, context)
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
        Some("deny") => hook_outcome.deny = Some(format!("The plugin {} refuses this.", who(&run))),
        Some("ask") if verdict != "ask" => {
            hook_outcome.ask = Some(format!("the plugin {} requires it", who(&run)))
        }
        Some("allow") if verdict == "ask" => {
            hook_outcome.allow = !run.by_project && !run.changed.is_empty()
        }
        _ => {}
    }
    Ok(hook_outcome)
}

async fn compaction(scripts: &Arc<Scripts>, context: &ToolContext) -> Result<HookOutcome, Failure> {
    let input = json!({ "sessionID": context.session.id.as_str() });
    let output = json!({ "context": [], "prompt": null });
    let mut hook_outcome = HookOutcome::default();
    if let Some(run) = scripts
        .hook("experimental.session.compacting", input, output, context)
        .await?
    {
        hook_outcome.context = texts(&run.output["context"]);
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

/// Returns a prompt's texts as changed by plugins: the existing ones, then added ones, each with
/// whether it is for the model only. `None` if nothing was changed.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn texts_of(
    scripts: &Arc<Scripts>,
    hook: (&str, Value),
    texts: &[String],
    context: &ToolContext,
) -> Result<Option<Vec<(String, bool)>>, Failure> {
    let session = context.session.id.as_str();
    let part = |(at, words): (usize, &String)| json!({ "id": format!("prt_{at}"), "sessionID": session, "messageID": "msg", "type": "text", "text": words });
    let parts: Vec<Value> = texts.iter().enumerate().map(part).collect();
    let message = json!({ "id": "msg", "sessionID": session, "role": "user", "agent": context.call.agent, "time": { "created": 0 } });
    let output = json!({ "message": message, "parts": parts });
    let Some(run) = scripts.hook(hook.0, hook.1, output, context).await? else {
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
    let text = |part: &Value| {
        let synthetic = part.get("synthetic").and_then(Value::as_bool) == Some(true);
        Some((
            part.get("text").and_then(Value::as_str)?.to_owned(),
            synthetic,
        ))
    };
    Ok(Some(parts.iter().filter_map(text).collect()))
}

/// Applies the changes of plugins to a request: system prompt, tool definitions, messages and
/// parameters.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn request(
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
        .hook("experimental.chat.system.transform", input, output, context)
        .await?
    {
        let system = texts(&run.output["system"]);
        if scripts.record_system_prompt(&request.system, &system) {
            let names = if run.changed.is_empty() {
                "A plugin".to_owned()
            } else {
                who(&run)
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
    definitions(scripts, request, context).await?;
    messages(scripts, request, context).await?;
    params(scripts, request, &model, context).await
}

/// Applies changes to tool definitions.
async fn definitions(
    scripts: &Arc<Scripts>,
    request: &mut Request,
    context: &ToolContext,
) -> Result<(), Failure> {
    if scripts.handles_hook("tool.definition") {
        for tool in &mut request.tools {
            let output = json!({ "description": tool.description, "parameters": *tool.schema });
            let input = json!({ "toolID": tool.name.as_str() });
            let Some(run) = scripts
                .hook("tool.definition", input, output, context)
                .await?
            else {
                break;
            };
            if run.changed.is_empty() {
                continue;
            }
            if let Some(words) = run.output.get("description").and_then(Value::as_str) {
                tool.description = words.to_owned();
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

/// Applies changes to the messages of this request.
async fn messages(
    scripts: &Arc<Scripts>,
    request: &mut Request,
    context: &ToolContext,
) -> Result<(), Failure> {
    if scripts.handles_hook("experimental.chat.messages.transform") {
        let before = transform::messages(request, context.session.id.as_str(), &context.call.agent);
        let output = json!({ "messages": before });
        let ran = scripts
            .hook(
                "experimental.chat.messages.transform",
                json!({}),
                output,
                context,
            )
            .await?;
        if let Some(run) = ran.filter(|run| !run.changed.is_empty())
            && transform::take(request, &before, &run.output["messages"])
        {
            let title = format!(
                "{} adds or removes messages, which has no effect here: it may only change their text.",
                who(&run)
            );
            scripts.notify(Severity::Info, title, None);
        }
    }
    Ok(())
}

/// Applies changes to temperature and other parameters, and adds headers.
async fn params(
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
        .hook(
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
        let sent = headers.filter_map(|(name, value)| {
            Some((name.to_ascii_lowercase(), value.as_str()?.to_owned()))
        });
        request.params.headers = sent
            .filter(|(name, value)| is_header(name, value))
            .collect();
    }
    if let Some(run) = scripts
        .hook("chat.params", input, output, context)
        .await?
        .filter(|run| !run.changed.is_empty())
    {
        let params = &mut request.params;
        params.temperature = run.output.get("temperature").and_then(Value::as_f64);
        params.top_p = run.output.get("topP").and_then(Value::as_f64);
        if let Some(most) = run.output.get("maxOutputTokens").and_then(Value::as_u64) {
            params.max_output = most.min(params.max_output);
        }
        if let Some(options) = run.output.get("options").and_then(Value::as_object) {
            params.options = options.clone();
        }
    }
    Ok(())
}

/// Returns whether a plugin may send this header. Headers that carry credentials or control the
/// body are excluded.
fn is_header(name: &str, value: &str) -> bool {
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
pub(super) async fn variables(
    scripts: &Arc<Scripts>,
    context: &ToolContext,
) -> Result<Vec<(String, String)>, Failure> {
    let input = json!({
        "cwd": context.project.cwd, "sessionID": context.session.id.as_str(), "callID": context.call.id.as_str(),
    });
    let Some(run) = scripts
        .hook("shell.env", input, json!({ "env": {} }), context)
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
        let named = !name.is_empty() && !name.contains(['=', '\0']);
        match permission::shell::variable_danger(name) {
            _ if !named => {}
            Some(danger) => {
                let title = format!(
                    "{} sets {}, which {danger}; it is left out.",
                    who(&run),
                    text::title(name)
                );
                scripts.notify(Severity::Warning, title, None);
            }
            None => variables.push((name.clone(), value.to_owned())),
        }
    }
    Ok(variables)
}

/// Returns whether a turn continues automatically after compaction.
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
        .hook(
            "experimental.compaction.autocontinue",
            input,
            output,
            context,
        )
        .await?;
    Ok(run.is_none_or(|run| run.output.get("enabled").and_then(Value::as_bool) != Some(false)))
}

/// Returns the model that plugins choose for small tasks, given the main model.
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
        .hook(
            "experimental.provider.small_model",
            input,
            json!({}),
            context,
        )
        .await?;
    Ok(run.and_then(|run| {
        let word = |at: &str| {
            run.output
                .pointer(at)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let provider = word("/model/providerID").unwrap_or_else(|| main.provider.clone());
        let model = word("/model/id").or_else(|| word("/model/modelID"))?;
        Some(ModelRef {
            provider,
            model,
            effort: None,
        })
    }))
}

/// Returns a text of the model as changed by plugins.
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn complete(
    scripts: &Arc<Scripts>,
    (message, part): (&str, &str),
    text: &str,
    context: &ToolContext,
) -> Result<Option<String>, Failure> {
    let input =
        json!({ "sessionID": context.session.id.as_str(), "messageID": message, "partID": part });
    let run = scripts
        .hook(
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
