//! Tools and optional fields that a provider rejects: its error for a whole request names a tool,
//! its index in the list, or a field. The request is repeated without it, and if it is accepted
//! then, the tool or field is left out for the rest of the session; a tool only as long as its
//! declaration is the same.
//!
//! Only tools of MCP servers and of plugins are disabled; the schemas of the others are built in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::{Value, json};

use super::TurnContext;
use super::step_context::StepContext;
use base::lock::lock;
use base::text;
use events::{Event, Severity};
use providers::request::{Request, ToolSpec};
use providers::{Error, Model, error_path, optional_fields};
use store::RefusedDeclaration;
use tools::AnyTool;

/// The tools of one server that are disabled one by one. With the next one, all tools of the server
/// are disabled.
const MAX_ONE_BY_ONE: usize = 3;

/// The number of times that one request is repeated without a tool or a field.
const MAX_REPETITIONS: usize = 12;

/// Declarations of tools and optional fields that providers reject in a session.
#[derive(Debug, Default)]
pub struct RefusedTools {
    declarations: Mutex<BTreeSet<RefusedDeclaration>>,
    fields: Mutex<BTreeSet<(ModelKey, &'static str)>>,
}

/// The provider and the name of a model, and the chosen effort if the field depends on it: another
/// effort may be accepted.
type ModelKey = (String, String, Option<String>);

fn key(model: &Model, field: &str) -> ModelKey {
    let effort = if optional_fields::depends_on_effort(field) {
        model.id.effort.clone()
    } else {
        None
    };
    (model.id.provider.clone(), model.id.model.clone(), effort)
}

impl RefusedTools {
    /// Restores the declarations from the record of a session.
    pub fn new(declarations: &[RefusedDeclaration]) -> Self {
        Self {
            declarations: Mutex::new(declarations.iter().cloned().collect()),
            fields: Mutex::default(),
        }
    }

    /// Returns the declarations, for the record of the session.
    pub fn declarations(&self) -> Vec<RefusedDeclaration> {
        lock(&self.declarations).iter().cloned().collect()
    }

    /// Returns the names of the tools of which a provider has rejected a declaration.
    fn tools_refused_by(&self, provider: &str) -> Vec<String> {
        let declarations = lock(&self.declarations);
        let own = declarations
            .iter()
            .filter(|known| known.provider == provider);
        own.map(|known| known.tool.clone()).collect()
    }

    /// True if a provider has rejected a tool with its present declaration.
    pub fn has(&self, provider: &str, tool: &dyn AnyTool) -> bool {
        let declarations = lock(&self.declarations);
        let mut known = declarations
            .iter()
            .filter(|known| known.provider == provider && known.tool == tool.name())
            .peekable();
        if known.peek().is_none() {
            return false;
        }
        let digest = digest(tool);
        known.any(|known| known.digest == digest)
    }

    /// Returns the fields that are left out of requests to a model.
    pub fn fields(&self, model: &Model) -> Vec<&'static str> {
        let fields = lock(&self.fields);
        fields
            .iter()
            .filter(|(of, field)| *of == key(model, field))
            .map(|(_, field)| *field)
            .collect()
    }
}

/// Returns the digest of a tool's declaration.
fn digest(tool: &dyn AnyTool) -> String {
    digest_of(&tool.description(), &tool.schema())
}

/// Returns the digest of a description and a schema, whose members may be in any order: servers do not always send
/// the same one.
fn digest_of(description: &str, schema: &Value) -> String {
    let mut declaration = json!([description, schema]);
    declaration.sort_all_objects();
    let declaration = declaration.to_string();
    let digest = ring::digest::digest(&ring::digest::SHA256, declaration.as_bytes());
    text::hex(digest.as_ref())
}

/// The rejected tools and fields of one request.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The tools that were rejected before; one whose declaration has changed is in the request.
    earlier: Vec<String>,
    tools: Vec<RefusedTool>,
    fields: Vec<RefusedField>,
    /// The number of tools that were rejected one by one, by server.
    by_server: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct RefusedTool {
    /// The names of the tools; more than one if all tools of a server are disabled.
    names: Vec<String>,
    /// The title of the notice to the user.
    title: String,
    /// The provider's message.
    reason: String,
}

#[derive(Debug)]
struct RefusedField {
    name: &'static str,
    /// The provider's message.
    reason: String,
}

impl Refusals {
    pub(super) fn new(known: &RefusedTools, model: &Model) -> Self {
        Self {
            earlier: known.tools_refused_by(&model.id.provider),
            ..Self::default()
        }
    }

    /// Returns the request without the tool or the field that an error rejects; `None` if the
    /// error is about something else.
    pub(super) fn without(
        &mut self,
        step: &StepContext,
        request: &Request,
        error: &Error,
    ) -> Option<Request> {
        let Error::BadRequest(reason) = error else {
            return None;
        };
        if self.tools.len() + self.fields.len() == MAX_REPETITIONS {
            return None;
        }
        self.without_tool(step, request, reason)
            .or_else(|| self.without_field(request, error))
    }

    fn without_field(&mut self, request: &Request, error: &Error) -> Option<Request> {
        let name = optional_fields::rejected_field(error, &request.params.omitted)?;
        self.fields.push(RefusedField {
            name,
            reason: error.to_string(),
        });
        let mut fewer = request.clone();
        fewer.params.omitted.push(name);
        Some(fewer)
    }

    fn without_tool(
        &mut self,
        step: &StepContext,
        request: &Request,
        reason: &str,
    ) -> Option<Request> {
        let find = |name: &str| step.tools.iter().find(|tool| tool.name() == name);
        let now = self.tools.iter().flat_map(|refused| &refused.names);
        let is_sent = |name: &&str| request.tools.iter().any(|spec| spec.name == *name);
        let left_out: Vec<&str> = self
            .earlier
            .iter()
            .chain(now)
            .map(String::as_str)
            .filter(|name| !is_sent(name))
            .collect();
        let spec = find_refused(reason, &request.tools, &left_out)?;
        let tool = find(&spec.name).filter(|tool| tool.is_foreign())?;
        let name = tool.name();
        let provider = &step.model.id.provider;
        let mut refused = RefusedTool {
            names: vec![name.to_owned()],
            title: String::new(),
            reason: reason.to_owned(),
        };
        let of = tool
            .server()
            .map_or_else(String::new, |server| format!(" of the MCP server {server}"));
        refused.title = format!(
            "The tool {name}{of} is disabled in this session: {provider} does not accept it."
        );
        if let Some(server) = tool.server() {
            let count = self.by_server.entry(server.to_owned()).or_default();
            *count += 1;
            if *count > MAX_ONE_BY_ONE {
                let all = request
                    .tools
                    .iter()
                    .filter(|spec| find(&spec.name).and_then(|tool| tool.server()) == Some(server));
                refused.names = all.map(|spec| spec.name.clone()).collect();
                refused.title = format!(
                    "All tools{of} are disabled in this session, because {provider} rejects one after the other."
                );
            }
        }
        let mut fewer = request.clone();
        fewer
            .tools
            .retain(|spec| !refused.names.contains(&spec.name));
        self.tools.push(refused);
        Some(fewer)
    }

    /// Disables the rejected tools and fields after the request was accepted, and notifies the
    /// user.
    pub(super) async fn disable_refused(&mut self, turn: &TurnContext, step: &StepContext) {
        let provider = &step.model.id.provider;
        for RefusedField { name, reason } in self.fields.drain(..) {
            lock(&turn.session.common.refused_tools.fields).insert((key(&step.model, name), name));
            let title = format!(
                "The option {name} is not sent to {} in this session: {provider} does not accept it.",
                step.model.id
            );
            let details = Some(text::title(&reason));
            turn.event_sender
                .event(Event::Notice {
                    severity: Severity::Warning,
                    title,
                    details,
                })
                .await;
        }
        for RefusedTool {
            names,
            title,
            reason,
        } in self.tools.drain(..)
        {
            let refused = step
                .tools
                .iter()
                .filter(|tool| names.iter().any(|name| name == tool.name()));
            let refused = refused.map(|tool| RefusedDeclaration {
                provider: provider.clone(),
                tool: tool.name().to_owned(),
                digest: digest(tool.as_ref()),
            });
            lock(&turn.session.common.refused_tools.declarations).extend(refused);
            let details = Some(text::title(&reason));
            turn.event_sender
                .event(Event::Notice {
                    severity: Severity::Warning,
                    title,
                    details,
                })
                .await;
        }
    }
}

/// Parts of error messages that are about the declaration of a tool.
const DECLARATION: [&str; 9] = [
    "invalid schema for function",
    "(tools",
    "(functions",
    "body.tools",
    "input_schema",
    "function_declarations[",
    "functiondeclarations[",
    "function.parameters",
    "invalid_function_parameters",
];

/// Parts of error messages that are about tool calls in the conversation, or about the model's
/// output.
const CALL: [&str; 6] = [
    "did not match schema",
    "tool call validation",
    "thought_signature",
    "tool_calls",
    "messages[",
    "messages.",
];

/// Returns the tool whose declaration is rejected: by its index in the list
/// (`tools.3.custom.input_schema`, `tools[3].function`, `tools[0].function_declarations[3]`), or
/// else the first whose name occurs as a separate word, unless that one was left out.
fn find_refused<'a>(why: &str, tools: &'a [ToolSpec], left_out: &[&str]) -> Option<&'a ToolSpec> {
    let folded = why.to_ascii_lowercase();
    let place_in = |lists: [&str; 2]| {
        lists
            .into_iter()
            .find_map(|list| error_path::find_index(&folded, list))
    };
    let in_declarations = place_in(error_path::DECLARATION_LISTS);
    let in_tools = place_in(error_path::TOOL_LISTS);
    let is_about_one = in_tools.is_some() || DECLARATION.iter().any(|words| folded.contains(words));
    if !is_about_one || CALL.iter().any(|words| folded.contains(words)) {
        return None;
    }
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let first_place = |name: &str| {
        let mut places = why.match_indices(name).map(|(at, _)| at);
        places.find(|at| {
            let before = why[..*at].chars().next_back();
            let after = why[at + name.len()..].chars().next();
            !before.is_some_and(is_of_name) && !after.is_some_and(is_of_name)
        })
    };
    let named = || {
        let sent = tools.iter().map(|tool| (&*tool.name, Some(tool)));
        let unsent = left_out.iter().map(|name| (*name, None));
        let places = sent
            .chain(unsent)
            .filter_map(|(name, tool)| Some((first_place(name)?, name, tool)));
        let first = places.min_by_key(|(at, name, _)| (*at, usize::MAX - name.len()));
        first.and_then(|(_, _, tool)| tool)
    };
    // Gateways change the order of tools, but not their names.
    if let Some(name) = declared_name(why) {
        if left_out.contains(&name) {
            return None;
        }
        if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
            return Some(tool);
        }
    }
    match in_declarations.or(in_tools) {
        Some(index) => tools.get(index),
        None => named(),
    }
}

/// Returns the name of the function whose declaration a message is about, if it is quoted.
fn declared_name(why: &str) -> Option<&str> {
    const QUOTES: [char; 3] = ['\'', '"', '`'];
    let (_, rest) = why.split_once("function ")?;
    let rest = rest.strip_prefix(QUOTES)?;
    Some(&rest[..rest.find(QUOTES)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_depends_on_content_and_not_on_order_of_members() {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let digest = |schema: &str| digest_of("Looks.", &parse(schema));
        let first =
            digest(r#"{"type":"object","properties":{"a":{"type":"string","default":1},"b":{}}}"#);
        let second =
            digest(r#"{"properties":{"b":{},"a":{"default":1,"type":"string"}},"type":"object"}"#);
        let other =
            digest(r#"{"type":"object","properties":{"a":{"type":"string","default":2},"b":{}}}"#);
        assert_eq!(first, second);
        assert_ne!(first, other);
        assert_ne!(first, digest_of("Looks twice.", &parse("{}")));
    }

    #[test]
    fn rejected_tool_is_found_in_error() {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            schema: json!({}).into(),
        };
        let tools = ["bash", "db_query", "db_query_all", "deploy"].map(spec);
        let table = [
            (
                "Invalid schema for function 'db_query': array schema missing items.",
                Some("db_query"),
            ),
            (
                "Invalid schema for function 'deploy': In context=('properties', 'db_query'), no.",
                Some("deploy"),
            ),
            (
                "tools.2.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12.",
                Some("db_query_all"),
            ),
            (
                "Invalid 'tools[1].function.parameters': something.",
                Some("db_query"),
            ),
            (
                "* GenerateContentRequest.tools[0].function_declarations[2].parameters.properties[a].items: missing field.",
                Some("db_query_all"),
            ),
            (
                "Invalid schema for function 'db_query': no (tools[3].function.parameters).",
                Some("db_query"),
            ),
            (
                "Array schema missing items (tools[3].function.parameters).",
                Some("deploy"),
            ),
            (
                "body.tools.3.function.parameters: Input should be a valid dictionary.",
                Some("deploy"),
            ),
            (
                r#"[{"code":"invalid_type","path":["tools",3,"function"],"message":"no"}]"#,
                Some("deploy"),
            ),
            (
                r#"{"loc": ["body", "tools", 2, "function", "parameters"], "msg": "no"}"#,
                Some("db_query_all"),
            ),
            (
                "['tools', 1, 'input_schema'] is not allowed",
                Some("db_query"),
            ),
            ("#/tools/1/function/parameters: no array", Some("db_query")),
            ("body -> tools -> 1 -> function: no array", Some("db_query")),
            ("functions[1].parameters: no array", Some("db_query")),
            (
                "toolConfig.tools.2.member.toolSpec.inputSchema: no object",
                Some("db_query_all"),
            ),
            ("deploy: the array has no items (tools).", Some("deploy")),
            ("Too many tools: 130 instead of 128.", None),
            // Tools that are not in the request any more.
            ("Invalid schema for function 'gone': not as deploy.", None),
            (
                "Invalid schema for function 'deploy': not as gone.",
                Some("deploy"),
            ),
            ("The model `deploy` does not exist.", None),
            (
                "Unknown parameter: 'reasoning'; the tool deploy is fine",
                None,
            ),
            ("tools.9.custom: no", None),
            // Errors about the model's output, and about the conversation.
            (
                "tool call validation failed: parameters for tool db_query did not match schema: errors: [/domain: no]",
                None,
            ),
            (
                "Function call is missing a thought_signature in functionCall parts: function call db_query",
                None,
            ),
            (
                "messages.3.tool_calls: {'function': {'name': 'db_query'}}: invalid function.parameters",
                None,
            ),
        ];
        for (why, wanted) in table {
            assert_eq!(
                find_refused(why, &tools, &["gone"]).map(|tool| tool.name.as_str()),
                wanted,
                "{why}"
            );
        }
    }
}
