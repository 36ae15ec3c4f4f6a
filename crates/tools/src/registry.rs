//! The list of tools, and the selection for an agent and a model.

use std::sync::Arc;

use crate::aliases::Aliases;
use crate::todowrite::TodowriteTool;
use crate::unlisted::UnlistedTool;
use crate::{AnyTool, Availability, BUILT_IN_TOOLS, PermissionKey, Tool, erase};
use permission::{AccessRequest, Action, Rules, evaluate};
use providers::Model;

/// The properties of a tool that do not depend on a call.
#[derive(Clone, Debug)]
pub struct ToolProperties {
    /// [`Tool::NAME`]
    pub name: &'static str,
    /// [`Tool::PERMISSION`]
    pub permission: &'static str,
    /// [`Tool::PERMISSION_KEY`]
    pub permission_key: Option<PermissionKey>,
    /// [`Tool::AVAILABILITY`]
    pub availability: Availability,
    /// [`Tool::WRITES_UNNAMED_FILES`]
    pub writes_unnamed_files: bool,
    /// [`Tool::KEEPS_OUTPUT`]
    pub keeps_output: bool,
    /// [`Tool::KEEPS_INPUT`]
    pub keeps_input: bool,
    /// [`Tool::ALIASES`]
    pub aliases: Aliases,
    /// Creates the tool.
    pub(crate) make: fn() -> Arc<dyn AnyTool>,
}

/// Returns the properties of a tool.
pub(crate) const fn properties<T: Tool + Default>() -> ToolProperties {
    ToolProperties {
        name: T::NAME,
        permission: T::PERMISSION,
        permission_key: T::PERMISSION_KEY,
        availability: T::AVAILABILITY,
        writes_unnamed_files: T::WRITES_UNNAMED_FILES,
        keeps_output: T::KEEPS_OUTPUT,
        keeps_input: T::KEEPS_INPUT,
        aliases: T::ALIASES,
        make: || erase(T::default()),
    }
}

/// Returns the properties of the tool of exactly this name; `None` for external tools.
pub fn find_properties(name: &str) -> Option<&'static ToolProperties> {
    BUILT_IN_TOOLS.iter().find(|tool| tool.name == name)
}

/// The tools of a session, in the order in which they were added.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    tools: Vec<Arc<dyn AnyTool>>,
}

impl ToolRegistry {
    /// Returns the built-in tools.
    pub fn built_in() -> Self {
        Self {
            tools: BUILT_IN_TOOLS.iter().map(|tool| (tool.make)()).collect(),
        }
    }

    /// Returns the tool of exactly this name.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn AnyTool>> {
        self.tools.iter()
    }

    /// Returns the tools that a model may call, sorted by name, and `made`, those that were created
    /// for this step. A tool that is denied for everything is left out, unless a part of it has a
    /// permission of its own: then it is unlisted, but callable. So are the edit tools that the
    /// model was not trained on.
    pub fn callable(
        &self,
        rules: &Rules,
        model: &Model,
        made: Vec<Arc<dyn AnyTool>>,
    ) -> Vec<Arc<dyn AnyTool>> {
        let patches = edits_with_patches(&model.api_id);
        let is_allowed = |name: &str| {
            evaluate(rules, &Rules::default(), &AccessRequest::new(name, "*")).action
                != Action::Deny
        };
        let is_part_callable = |tool: &Arc<dyn AnyTool>| {
            let mut parts = INDEPENDENT_PARTS.iter();
            parts.any(|(of, key)| *of == tool.name() && !rules.hides(key))
        };
        let offer = |tool: &Arc<dyn AnyTool>| {
            if rules.hides(tool.permission()) {
                return is_part_callable(tool)
                    .then(|| Arc::new(UnlistedTool(tool.clone())) as Arc<dyn AnyTool>);
            }
            let is_listed = match find_properties(tool.name()).map(|tool| tool.availability) {
                Some(Availability::PerStep) => return None,
                Some(Availability::ByName) if !is_allowed(tool.name()) => return None,
                Some(Availability::PatchModels) => patches,
                Some(Availability::OtherModels) => !patches,
                Some(Availability::ByName | Availability::Everyone) | None => true,
            };
            if is_listed {
                Some(tool.clone())
            } else {
                Some(Arc::new(UnlistedTool(tool.clone())) as Arc<dyn AnyTool>)
            }
        };
        let mut tools: Vec<_> = self.tools.iter().filter_map(offer).collect();
        tools.extend(made);
        tools.sort_by(|a, b| a.name().cmp(b.name()));
        tools
    }
}

/// Tools of which a part has a permission of its own, with that permission. Models call the part
/// from habit, because it is a separate tool of OpenCode.
const INDEPENDENT_PARTS: [(&str, &str); 1] = [(TodowriteTool::NAME, "todoread")];

/// Returns whether a model was trained to edit with patches.
fn edits_with_patches(model: &str) -> bool {
    model.contains("gpt-") && !model.contains("oss") && !model.contains("gpt-4")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use permission::keys::PERMISSIONS;
    use transcript::ModelRef;

    fn names(rules: &[(&str, &str, Action)], model: &str) -> String {
        let model = Model::unknown(ModelRef::parse(&format!("p/{model}")).unwrap());
        let tools = ToolRegistry::built_in().callable(&Rules::built_in(rules), &model, Vec::new());
        tools
            .iter()
            .filter(|tool| tool.listed())
            .map(|tool| tool.name())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// A rule for a name that models use for a tool applies to that tool.
    #[test]
    fn rules_know_the_names_that_models_use() {
        let acts = [
            "bash",
            "edit",
            "read",
            "glob",
            "grep",
            "webfetch",
            "websearch",
            "task",
            "skill",
            "lsp",
        ];
        let tools = BUILT_IN_TOOLS
            .iter()
            .filter(|tool| acts.contains(&tool.name) || tool.permission == "edit");
        let names = tools.flat_map(|tool| tool.aliases.tool_names);
        let unknown: Vec<_> = names
            .filter(|name| config::meant_permission(name).is_none())
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn tools_are_offered_by_rules_and_model() {
        const DENY: Action = Action::Deny;
        const ALLOW: Action = Action::Allow;
        type Case<'a> = (&'a [(&'a str, &'a str, Action)], &'a str, &'a str, &'a str);
        // Rules, a model, tools that it gets, tools that it does not get.
        let table: &[Case<'_>] = &[
            (
                &[],
                "claude-x",
                "edit write bash",
                "apply_patch lsp websearch task structured_output",
            ),
            (&[], "gpt-5", "apply_patch bash", "edit write"),
            (&[], "gpt-oss-120b", "edit write", "apply_patch"),
            (&[], "gpt-4.1", "edit write", "apply_patch"),
            (
                &[("edit", "*", DENY)],
                "claude-x",
                "bash read",
                "edit write",
            ),
            (
                &[
                    ("plan_exit", "*", DENY),
                    ("*", "*", ALLOW),
                    ("plan_enter", "*", DENY),
                ],
                "gpt-5",
                "apply_patch read question",
                "plan_enter plan_exit",
            ),
            (
                &[("edit", "*", DENY), ("edit", "plans/*", ALLOW)],
                "claude-x",
                "edit write",
                "",
            ),
            (
                &[("bash", "rm *", DENY)],
                "claude-x",
                "bash bash_output",
                "",
            ),
            (
                &[("*", "*", DENY), ("read", "*", ALLOW)],
                "claude-x",
                "read",
                "bash edit question",
            ),
        ];
        for (rules, model, offered, missing) in table {
            let names = names(rules, model);
            let has = |name: &str| names.split(' ').any(|other| other == name);
            assert!(offered.split(' ').all(has), "{rules:?} {model}: {names}");
            assert!(!missing.split(' ').any(has), "{rules:?} {model}: {names}");
            assert!(names.split(' ').is_sorted());
        }
    }

    /// Returns whether a text mentions a tool. A name that is also an English word counts only
    /// where it is used as a name.
    fn mentions(text: &str, tool: &str) -> bool {
        const ENGLISH: [&str; 8] = [
            "read", "edit", "write", "task", "skill", "question", "grep", "lsp",
        ];
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        text.match_indices(tool).any(|(at, _)| {
            let before = &text[..at];
            let after = &text[at + tool.len()..];
            if before.ends_with(is_letter) || after.starts_with(is_letter) {
                return false;
            }
            let leads = ["use ", "Use ", "with ", "call ", "that ", "can "];
            let is_led = leads.iter().any(|word| before.ends_with(word));
            // "read" follows other verbs as well.
            let is_in_list =
                tool != "read" && (before.ends_with(", ") || before.ends_with(" and "));
            let goes_on = [" a", " the", " what", " or ", " directories"]
                .iter()
                .any(|word| after.starts_with(word));
            !ENGLISH.contains(&tool) || (is_led || is_in_list) && !goes_on
        })
    }

    /// The finished prompt and the descriptions of each agent with a model of each family name only
    /// tools that are offered.
    #[test]
    fn texts_name_only_offered_tools() {
        use project::system::{family, render};
        let fixture = crate::test::TestProject::new();
        let context = fixture.context();
        let (agents, _) = project::agent::Agents::build(
            &config::Settings::default(),
            &context.project.environment,
            &context.project.worktree,
        );
        let families = [
            "claude-x",
            "o3",
            "gpt-5",
            "gpt-6",
            "gpt-5-codex",
            "gemini-3",
            "kimi-k2",
            "muse",
            "trinity",
            "usual",
        ];
        let denials: [&[&str]; 6] = [
            &[],
            &["read"],
            &["grep", "glob"],
            &["edit"],
            &["webfetch"],
            &["task", "skill", "bash"],
        ];
        let mut finished = 0;
        for model_id in families {
            let model = Model::unknown(ModelRef::parse(&format!("p/{model_id}")).unwrap());
            for name in ["build", "plan", "general", "explore", "scout"] {
                let Some(agent) = agents.get(name) else {
                    continue;
                };
                for denied in denials {
                    let rules: Vec<_> =
                        denied.iter().map(|key| (*key, "*", Action::Deny)).collect();
                    let rules = agent.rules.clone().then(&Rules::built_in(&rules));
                    let per_step = BUILT_IN_TOOLS.iter().filter(|tool| {
                        tool.availability == Availability::PerStep
                            && tool.name != "invalid"
                            && !rules.hides(tool.permission)
                    });
                    let made = per_step.map(|tool| (tool.make)()).collect();
                    let tools = ToolRegistry::built_in().callable(&rules, &model, made);
                    let listed: Vec<_> = tools.iter().filter(|tool| tool.listed()).collect();
                    let names: Vec<&str> = listed.iter().map(|tool| tool.name()).collect();
                    let own = agent.prompt.as_deref().map(str::to_owned);
                    let prompt = own.unwrap_or_else(|| prompts::family(family(model_id, "p")));
                    let texts = listed.iter().map(|tool| tool.description());
                    let text: String = std::iter::once(prompt)
                        .chain(texts)
                        .map(|text| render(&text, &names) + "\n")
                        .collect();
                    assert!(!text.contains("{?") && !text.contains("{tools"), "{text}");
                    for tool in BUILT_IN_TOOLS
                        .iter()
                        .filter(|tool| !names.contains(&tool.name))
                    {
                        assert!(
                            !mentions(&text, tool.name),
                            "{model_id}, {name}, without {denied:?}: {} in\n{text}",
                            tool.name
                        );
                    }
                    finished += 1;
                }
            }
        }
        assert!(finished >= 200, "{finished}");
    }

    /// Edit tools that are not listed are callable, as far as the rules allow.
    #[test]
    fn habits_are_routed_to_tools_that_are_not_listed() {
        let callable = |rules: &[(&str, &str, Action)], model: &str| {
            let model = Model::unknown(ModelRef::parse(&format!("p/{model}")).unwrap());
            ToolRegistry::built_in().callable(&Rules::built_in(rules), &model, Vec::new())
        };
        let meant = |tools: &[Arc<dyn AnyTool>], name: &str, input: &serde_json::Value| {
            use crate::argument_repair::{find_tool, listing_arguments};
            let whole = listing_arguments(tools, name, input);
            find_tool(tools, name, whole.as_ref().unwrap_or(input))
        };
        let edits =
            serde_json::json!({"filePath": "a", "edits": [{"oldString": "b", "newString": "c"}]});
        let patch = serde_json::json!({"patchText": "*** Begin Patch\n*** End Patch"});
        let none = serde_json::json!({});
        let directory = serde_json::json!({"path": "src", "ignore": ["*.o"]});
        let table = [
            ("gpt-5", "multiedit", &edits, Some("edit")),
            ("claude-x", "multiedit", &edits, Some("edit")),
            ("claude-x", "apply_patch", &patch, Some("apply_patch")),
            ("gpt-5", "list", &directory, Some("read")),
            ("claude-x", "LS", &directory, Some("read")),
            ("gpt-5", "list", &none, Some("read")),
            ("gpt-5", "read", &none, Some("read")),
            ("gpt-5", "todoread", &none, Some("todowrite")),
            ("claude-x", "TodoRead", &none, Some("todowrite")),
            ("gpt-5", "plan_exit", &none, None),
        ];
        for (model, name, input, expected) in table {
            let denied = [("plan_exit", "*", Action::Deny)];
            let tool = meant(&callable(&denied, model), name, input);
            assert_eq!(
                tool.as_ref().map(|tool| tool.name()),
                expected,
                "{model} {name}"
            );
        }
        let denied = [
            ("edit", "*", Action::Deny),
            ("read", "*", Action::Deny),
            ("todowrite", "*", Action::Deny),
            ("todoread", "*", Action::Deny),
        ];
        for (model, name, input, _) in table {
            let tool = meant(&callable(&denied, model), name, input);
            assert!(
                tool.is_none_or(|tool| tool.name() == "plan_exit"),
                "{model} {name}"
            );
        }
        // The todo list may be read by those who may not write it.
        let tools = callable(&denied[..3], "gpt-5");
        assert!(
            !tools
                .iter()
                .any(|tool| tool.listed() && tool.name() == "todowrite")
        );
        let tool = meant(&tools, "todoread", &none);
        assert_eq!(tool.as_ref().map(|tool| tool.name()), Some("todowrite"));
    }

    #[test]
    fn tool_names_are_unique() {
        let registry = ToolRegistry::built_in();
        assert!(registry.find("read").is_some() && registry.find("Read").is_none());
        let names: std::collections::BTreeSet<&str> =
            registry.all().map(|tool| tool.name()).collect();
        assert_eq!(names.len(), BUILT_IN_TOOLS.len());
    }

    /// Permissions that are named after no tool.
    const GENERAL_KEYS: [(&str, PermissionKey); 4] = [
        (
            "*",
            PermissionKey::acting("Every tool that has no rule of its own."),
        ),
        (
            "codesearch",
            PermissionKey::reading("Searching public code."),
        ),
        (
            "external_directory",
            PermissionKey::reading(
                "Accessing anything outside the project; patterns are directories.",
            ),
        ),
        (
            "doom_loop",
            PermissionKey::reading("Continuing when the model repeats itself."),
        ),
    ];

    /// Compares a file with its generated content, or writes it.
    #[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
    fn bless(path: &str, expected: &str) {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, expected).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(
            found == expected,
            "BLESS=1 cargo test -p tools generated writes {path}:\n{expected}"
        );
    }

    /// The settings know the permissions of tools, which are declared with the tools.
    #[test]
    fn generated_permissions_are_those_of_the_tools() {
        let own = BUILT_IN_TOOLS
            .iter()
            .filter_map(|tool| Some((tool.name, tool.permission_key?)));
        let [everything, others @ ..] = GENERAL_KEYS;
        let keys: Vec<_> = [everything]
            .into_iter()
            .chain(own)
            .chain(crate::PARTIAL_KEYS)
            .chain(others)
            .collect();
        let mut text = "\
//! The permissions that settings may name, generated from the tools:
//! `BLESS=1 cargo test -p tools generated` writes this file.

/// The known keys of a permission object, with their subjects. MCP servers add more.
#[rustfmt::skip]
pub const PERMISSIONS: &[(&str, &str)] = &[
"
        .to_owned();
        for (name, key) in &keys {
            text += &format!("    ({name:?}, {:?}),\n", key.subject);
        }
        text += "\
];

/// The permissions of agents that only look for something.
#[rustfmt::skip]
pub const READ_ONLY_PERMISSIONS: &[&str] = &[
";
        for (name, _) in keys.iter().filter(|(_, key)| key.only_reads) {
            text += &format!("    {name:?},\n");
        }
        bless("../permission/src/keys.rs", &(text + "];\n"));
    }

    /// Returns the path of a file by its name: directly in `src`, or in one of its folders.
    fn source_file(name: &str) -> PathBuf {
        let src = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        let entries = std::fs::read_dir(src).unwrap();
        let folders = entries.map(|entry| entry.unwrap().path());
        [src.to_owned()]
            .into_iter()
            .chain(folders)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
            .unwrap_or_else(|| panic!("there is no {name} in {src:?}"))
    }

    /// Returns the purpose and the limits of a tool from the doc of its file, as cells of a table.
    fn documented(name: &str) -> [String; 2] {
        let path = source_file(&format!("{name}.rs"));
        let source = std::fs::read_to_string(&path).unwrap();
        let doc: Vec<&str> = source
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(str::trim)
            .collect();
        let mut paragraphs = doc.split(|line| line.is_empty()).map(|part| part.join(" "));
        let first = paragraphs.next().unwrap();
        let purpose = first
            .strip_prefix(&format!("`{name}`: "))
            .unwrap_or_else(|| panic!("the doc of {path:?} does not begin with its purpose"));
        let limits = paragraphs.find_map(|text| Some(text.strip_prefix("Limits: ")?.to_owned()));
        [purpose.to_owned(), limits.unwrap_or_default()]
            .map(|cell| cell.strip_suffix('.').unwrap_or(&cell).replace('|', "\\|"))
    }

    /// The manual's table of tools has the docs of the built-in ones, then rows about others. Its
    /// list of calls that run in parallel begins with the built-in ones.
    #[test]
    fn generated_parts_of_the_manual_are_declared_by_tools() {
        const HEAD: &str = "| tool | purpose | limits |\n|---|---|---|\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rows) = page.split_once(HEAD).unwrap();
        let (rows, after) = rows.split_once("\n\n").unwrap();
        let tools = || BUILT_IN_TOOLS.iter().filter(|tool| tool.name != "invalid");
        let mut table: Vec<String> = tools()
            .map(|tool| {
                let [purpose, limits] = documented(tool.name);
                format!("| `{}` | {purpose} | {limits} |", tool.name).replace("|  |", "| |")
            })
            .collect();
        let is_other = |row: &&str| {
            let name = row.trim_start_matches("| `").split('`').next();
            tools().all(|tool| Some(tool.name) != name)
        };
        table.extend(rows.lines().filter(is_other).map(str::to_owned));
        let after = with_parallel_tools(after);
        let expected = format!("{before}{HEAD}{}\n\n{after}", table.join("\n"));
        bless("../../docs/tools.md", &expected);
    }

    /// Returns the text with the names of the tools that only read and run in parallel. A subagent
    /// runs in parallel too, but may change files.
    fn with_parallel_tools(text: &str) -> String {
        const START: &str = "run in parallel:\n";
        const END: &str = ",\n`search_mcp_tools`";
        let (before, names) = text.split_once(START).unwrap();
        let (_, after) = names.split_once(END).unwrap();
        let names: Vec<String> = BUILT_IN_TOOLS
            .iter()
            .filter(|tool| (tool.make)().concurrent() && !tool.writes_unnamed_files)
            .map(|tool| format!("`{}`", tool.name))
            .collect();
        format!("{before}{START}{}{END}{after}", names.join(", "))
    }

    /// A description, and a permission that settings may name, belong to a tool.
    #[test]
    fn each_tool_has_description_and_known_permission() {
        for tool in BUILT_IN_TOOLS.iter().filter(|tool| tool.name != "invalid") {
            let file = source_file(&format!("{}.md", tool.name));
            let words = std::fs::read_to_string(&file).unwrap();
            let first = words.lines().next().unwrap();
            assert!(
                (tool.make)().description().starts_with(first),
                "{file:?} is not what the model reads"
            );
            let named = PERMISSIONS.iter().any(|(key, _)| *key == tool.permission);
            assert!(
                named,
                "settings cannot name the permission {}",
                tool.permission
            );
        }
    }

    #[test]
    fn descriptions_and_schemas_are_short() {
        let registry = ToolRegistry::built_in();
        let mut size = 0;
        for tool in registry.all().filter(|tool| tool.name() != "invalid") {
            assert!(!tool.description().is_empty(), "{}", tool.name());
            let schema = tool.schema();
            assert_eq!(schema["type"], "object", "{}", tool.name());
            let text = schema.to_string();
            assert!(
                !text.contains("\"null\"")
                    && !text.contains("$ref")
                    && !text.contains("\"format\":\""),
                "{text}"
            );
            size += tool.description().len() + text.len();
        }
        assert!(size < 14_000, "{size} bytes for all, apply_patch included");
    }
}
