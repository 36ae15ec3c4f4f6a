//! Tools that a provider refuses: it names one in its refusal of a whole request, or its place in the list. Such a tool
//! is set aside for the rest of the session, and the request is made again without it.
//!
//! Only tools of MCP servers and of plugins are set aside; the schemas of the others are ours.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::TurnContext;
use super::frame::Frame;
use crate::event::{Event, Severity};
use crate::lock::locked;
use crate::model::Error;
use crate::model::request::{Request, ToolSpec};
use crate::text;
use crate::tool::AnyTool;
use crate::tool::registry::find_properties;

/// How many tools of one request are set aside one by one. After that, all tools of the same server go.
const MAX_ONE_BY_ONE: usize = 3;

/// What is set aside in a session: by the provider that refused it and the tool's name.
#[derive(Debug, Default)]
pub struct RefusedTools(Mutex<BTreeSet<(String, String)>>);

impl RefusedTools {
    pub fn has(&self, provider: &str, tool: &str) -> bool {
        locked(&self.0).contains(&(provider.to_owned(), tool.to_owned()))
    }

    fn add(&self, provider: &str, tool: &str) {
        locked(&self.0).insert((provider.to_owned(), tool.to_owned()));
    }
}

/// Sets aside the tool that a provider refuses, and takes it out of the request. False where the refusal is about
/// something else. `so_far` counts how often that was done for this request.
pub(super) async fn set_aside(
    scope: &TurnContext,
    frame: &Frame,
    request: &mut Request,
    error: &Error,
    so_far: &mut usize,
) -> bool {
    let Error::BadRequest(why) = error else { return false };
    let find = |name: &str| frame.tools.iter().find(|tool| tool.name() == name);
    let is_foreign = |spec: &&ToolSpec| find_properties(&spec.name).is_none();
    let Some(refused) = named(why, &request.tools).filter(is_foreign) else { return false };
    let server = find(&refused.name).and_then(|tool| tool.server().map(str::to_owned));
    let of_server =
        |name: &str| find(name).and_then(|tool: &std::sync::Arc<dyn AnyTool>| tool.server()) == server.as_deref();
    *so_far += 1;
    let all = *so_far > MAX_ONE_BY_ONE && server.is_some();
    if *so_far > MAX_ONE_BY_ONE + 1 && !all {
        return false;
    }
    let refused = refused.name.clone();
    let gone: Vec<String> = request
        .tools
        .iter()
        .map(|tool| tool.name.clone())
        .filter(|name| *name == refused || all && of_server(name))
        .collect();
    let provider = &frame.model.id.provider;
    gone.iter().for_each(|name| scope.resources.refused_tools.add(provider, name));
    request.tools.retain(|tool| !gone.contains(&tool.name));
    let of = server.map_or_else(String::new, |server| format!(" of the MCP server {server}"));
    let title = match all {
        true => format!("All tools{of} are set aside in this session, because {provider} refuses one after the other."),
        false => format!("The tool {refused}{of} is set aside in this session: {provider} does not take it."),
    };
    let details = Some(text::title(why));
    scope.outlet.event(Event::Notice { severity: Severity::Warning, title, details }).await;
    true
}

/// The tool that a refusal is about: by its place in the list (`tools.3.custom.input_schema`, `tools[3].function`,
/// `tools[0].function_declarations[3]`), else by its name as a word of its own.
fn named<'a>(why: &str, tools: &'a [ToolSpec]) -> Option<&'a ToolSpec> {
    let is_about_tools = ["schema", "tool", "function", "parameters"].iter().any(|word| why.contains(word));
    if !is_about_tools {
        return None;
    }
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let stands_alone = |name: &str| {
        why.match_indices(name).any(|(at, _)| {
            let before = why[..at].chars().next_back();
            let after = why[at + name.len()..].chars().next();
            !before.is_some_and(is_of_name) && !after.is_some_and(is_of_name)
        })
    };
    let place = ["function_declarations[", "functionDeclarations[", "tools.", "tools["].iter().find_map(|before| {
        let (_, rest) = why.split_once(before)?;
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        digits.parse::<usize>().ok()
    });
    // Short names may be words of the sentence.
    let by_name = tools.iter().filter(|tool| stands_alone(&tool.name)).max_by_key(|tool| tool.name.len());
    by_name.filter(|tool| tool.name.contains('_') || quoted(why, &tool.name)).or_else(|| tools.get(place?))
}

fn quoted(why: &str, name: &str) -> bool {
    ["'", "\"", "`"].iter().any(|quote| why.contains(&format!("{quote}{name}{quote}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tool_that_a_provider_names_is_found() {
        let spec = |name: &str| ToolSpec { name: name.into(), description: String::new(), schema: json!({}).into() };
        let tools = ["bash", "db_query", "db_query_all", "deploy"].map(spec);
        let table = [
            ("Invalid schema for function 'db_query': array schema missing items.", Some("db_query")),
            ("Invalid schema for function 'deploy': In context=(), object schema missing properties.", Some("deploy")),
            (
                "tools.2.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12.",
                Some("db_query_all"),
            ),
            ("Invalid 'tools[1].function.parameters': something.", Some("db_query")),
            (
                "* GenerateContentRequest.tools[0].function_declarations[2].parameters.properties[a].items: missing field.",
                Some("db_query_all"),
            ),
            ("the schema of db_query_all is not taken", Some("db_query_all")),
            ("The model `deploy` does not exist.", None),
            ("Unknown parameter: 'reasoning'; tools are fine to deploy", None),
            ("tools.9.custom: no", None),
        ];
        for (why, wanted) in table {
            assert_eq!(named(why, &tools).map(|tool| tool.name.as_str()), wanted, "{why}");
        }
    }
}
