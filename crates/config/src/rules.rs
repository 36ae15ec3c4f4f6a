//! `permission` of a settings file, as rules. Rules keep the order of the file, but a catch-all `*`
//! of an object comes first, as the default.

use std::path::Path;

use super::lost_denies;
use super::node::{MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode, ProblemSeverity};
use super::script::{ScriptEntry, ScriptKind};
use base::text::nearest;
use base::text::plain;
use permission::keys::PERMISSIONS;
use permission::lint::{self, LintKind};
use permission::pattern_index::PatternIndex;
use permission::{Action, Rule, Rules, find_more_permissive, wildcard};

/// Old names of permissions: see [`modern_permission`].
const OLD_PERMISSIONS: [&str; 5] = ["write", "patch", "multiedit", "apply_patch", "ls"];

/// Permissions of OpenCode that no tool here asks for.
const UNUSED_PERMISSIONS: [&str; 2] = ["batch", "invalid"];

/// Names of tools in other agents, in lower case without `-` and `_`, by the permission that covers
/// them here. They include all names that models use: see `tool::aliases`.
const FOREIGN_NAMES: [(&str, &str); 12] = [
    (
        "bash",
        "shell sh zsh powershell pwsh cmd command commands run runcommand runshellcommand localshell execute \
         executecommand exec execcommand terminal runterminalcmd runinterminal process",
    ),
    (
        "edit",
        "create writefile createfile writetofile filewrite savefile newfile strreplaceeditor strreplacebasededittool \
         strreplace replace replaceinfile searchreplace editfile fileedit stringreplace multieditfile multistrreplace \
         applydiff delete deletefile modify update files filesystem fs",
    ),
    (
        "read",
        "view readfile viewfile openfile open cat fileread getfilecontents",
    ),
    ("list", "listdir listdirectory listfiles dir"),
    ("glob", "findfiles filesearch globsearch globfiles"),
    (
        "grep",
        "grepsearch rg ripgrep searchfilecontent searchfiles search searchcode textsearch",
    ),
    (
        "webfetch",
        "fetch fetchurl browse browser openurl readurl network internet web http",
    ),
    ("websearch", "searchweb googlesearch internetsearch"),
    (
        "task",
        "agent agents subagent subagents spawnagent dispatchagent runsubagent",
    ),
    ("skill", "skills useskill loadskill readskill"),
    ("lsp", "languageserver codeintelligence"),
    ("external_directory", "external outside"),
];

/// Reads a checked `permission` value.
pub(crate) fn rules(node: &Node, home: Option<&Path>) -> Rules {
    placed(node, home)
        .into_iter()
        .map(|placed| placed.rule)
        .collect()
}

/// Reads the denial of a permission with a pattern that is not in a settings file, with the same
/// meaning as there. Returns the permission and the pattern.
///
/// # Errors
/// Returns the permission that was probably meant, if the name is that of none.
pub fn denial(
    permission: &str,
    pattern: &str,
    home: Option<&Path>,
) -> Result<(String, String), &'static str> {
    let permission = modern_permission(permission).unwrap_or(permission);
    let is_known = PERMISSIONS.iter().any(|(known, _)| *known == permission)
        || UNUSED_PERMISSIONS.contains(&permission)
        || permission.contains('*');
    if !is_known && let Some(meant) = meant_permission(permission) {
        return Err(meant);
    }
    let pattern = expand(pattern, home);
    let pattern = with_arguments(permission, &pattern, Action::Deny).unwrap_or(pattern);
    Ok((permission.to_owned(), pattern))
}

/// A rule and its location.
struct PlacedRule {
    rule: Rule,
    /// The pattern as written, except that home directories are expanded.
    written: String,
    /// The location of its pattern, or of its permission if it has no pattern.
    key: SourceLocation,
    /// The location of its action.
    at: SourceLocation,
}

/// Returns the rules of a `permission` value with their locations.
fn placed(node: &Node, home: Option<&Path>) -> Vec<PlacedRule> {
    let mut rules = Vec::new();
    let mut push = |permission: &str, pattern: &str, key: &SourceLocation, node: &Node| {
        if let Some(action) = node.as_text().and_then(action) {
            let written = expand(pattern, home);
            let pattern =
                with_arguments(permission, &written, action).unwrap_or_else(|| written.clone());
            let rule = Rule {
                permission: permission.to_owned(),
                pattern,
                action,
                source: node.at.short(),
            };
            rules.push(PlacedRule {
                rule,
                written,
                key: key.clone(),
                at: node.at.clone(),
            });
        }
    };
    match &node.value {
        NodeValue::Text(_) => push("*", "*", &node.at, node),
        NodeValue::Map(entries) => {
            for entry in default_first(entries) {
                match &entry.node.value {
                    NodeValue::Map(patterns) => {
                        for pattern in default_first(patterns) {
                            push(&entry.key, &pattern.key, &pattern.at, &pattern.node);
                        }
                    }
                    _ => push(&entry.key, "*", &entry.at, &entry.node),
                }
            }
        }
        _ => {}
    }
    rules
}

/// Reports questionable rules of a joined tree, over all layers: rules that never decide, lift
/// nothing, match nothing or cover more than they seem to. Rules that never decide within their own
/// file are reported already, in `known`. Reads directories of the project.
pub(crate) fn questionable(
    tree: &Node,
    tools: &ToolNames,
    home: Option<&Path>,
    root: &Path,
    known: &[Problem],
) -> Vec<Problem> {
    let general = tree
        .get("permission")
        .map(|node| ("permission".to_owned(), node));
    let agents = tree
        .get("agent")
        .map(Node::entries)
        .unwrap_or_default()
        .iter()
        .filter_map(|agent| {
            Some((
                format!("agent.{}.permission", agent.key),
                agent.node.get("permission")?,
            ))
        });
    let mut problems = Vec::new();
    for (path, node) in general.into_iter().chain(agents) {
        for entry in node.entries() {
            problems.extend(unknown_permission(entry, &path, tools));
        }
        let placed = placed(node, home);
        let rules: Rules = placed.iter().map(|placed| placed.rule.clone()).collect();
        // Rules of the user apply to every project.
        for PlacedRule { rule, at, .. } in placed.iter().filter(|placed| placed.at.origin.project) {
            if let Some(folder) = lint::missing_folder(rule, root) {
                let key = format!("{path}.{}.{}", rule.permission, rule.pattern);
                problems.push(missing_folder(rule, folder, at, key, root));
            }
        }
        for PlacedRule {
            rule, written, at, ..
        } in placed
            .iter()
            .filter(|placed| placed.rule.pattern != placed.written)
        {
            let word = if rule.action == Action::Deny {
                "denies"
            } else {
                "asks about"
            };
            let text = format!(
                "\"{written}\" is read as \"{written}\" and \"{}\": it {word} the command with any arguments",
                rule.pattern
            );
            let key = format!("{path}.{}.{written}", rule.permission);
            problems.push(Problem::new(
                ProblemSeverity::Note,
                ProblemCode::OddRule,
                at,
                key,
                text,
            ));
        }
        for lint in lint::lint(&rules, Some(root)) {
            let Some(PlacedRule {
                rule,
                written,
                key,
                at,
            }) = placed.get(lint.rule_index)
            else {
                continue;
            };
            let (severity, code) = match lint.kind {
                LintKind::CoversLongerWords => (ProblemSeverity::Note, ProblemCode::OddRule),
                LintKind::NeverDecides => (ProblemSeverity::Warning, ProblemCode::UnreachableRule),
                LintKind::MatchesNothing | LintKind::LiftsNothing => {
                    (ProblemSeverity::Warning, ProblemCode::OddRule)
                }
            };
            if known
                .iter()
                .any(|known| known.code == code && known.location == *key)
            {
                continue;
            }
            let key = format!("{path}.{}.{written}", rule.permission);
            problems.push(Problem::new(severity, code, at, key, lint.message));
        }
    }
    problems
}

/// Reports a rule about a directory that does not exist. It takes effect as soon as the directory
/// is created, so this is a mistake only if another one has a similar name.
fn missing_folder(
    rule: &Rule,
    folder: &str,
    at: &SourceLocation,
    key: String,
    root: &Path,
) -> Problem {
    let (parent, name) = folder.rsplit_once('/').unwrap_or(("", folder));
    let siblings = std::fs::read_dir(root.join(parent)).into_iter().flatten();
    let siblings: Vec<String> = siblings
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    if let Some(near) = nearest(name, siblings.iter().map(String::as_str)) {
        let text = format!(
            "\"{}\" has no effect now: there is no directory {folder}",
            rule.pattern
        );
        let problem = Problem::warning(ProblemCode::OddRule, at, key, text);
        return problem.hint(format!("did you mean \"{near}\"?"));
    }
    let text = format!(
        "\"{}\" takes effect when there is a directory {folder}",
        rule.pattern
    );
    Problem::note(ProblemCode::OddRule, at, key, text)
}

/// Returns the meaning of a deny or ask rule about commands without a wildcard: `X *`, which also
/// matches `X`. A user who denies `rm -rf` means it with any arguments. `None` for any other rule.
fn with_arguments(permission: &str, pattern: &str, action: Action) -> Option<String> {
    let bare = pattern.trim_end();
    let covers_arguments = permission == "bash"
        && action != Action::Allow
        && !bare.is_empty()
        && !bare.contains(['*', '?']);
    covers_arguments.then(|| format!("{bare} *"))
}

/// Reports a permission that no tool of adjutant, of a server or of a custom file has. If it does
/// more than allow, it may have been meant to deny an existing tool.
fn unknown_permission(entry: &MapEntry, path: &str, tools: &ToolNames) -> Option<Problem> {
    let key = entry.key.as_str();
    let is_known = PERMISSIONS.iter().any(|(known, _)| *known == key)
        || UNUSED_PERMISSIONS.contains(&key)
        || key.contains('*');
    if is_known || tools.has(key, entry.at.origin.project) {
        return None;
    }
    let meant = meant_permission(key);
    if meant.is_none() && tools.may_have(key, entry.at.origin.project) {
        return None;
    }
    let text = format!("no tool asks for \"{key}\"");
    let mut problem = Problem::warning(
        ProblemCode::UnknownPermission,
        &entry.at,
        format!("{path}.{key}"),
        text,
    );
    problem.can_hide_deny = lost_denies::is_stricter(&entry.node);
    Some(problem.hint(match meant {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("write \"{key}*\" if it is a tool of another project"),
    }))
}

/// True if a problem is a permission whose name resembles that of another one. A permission of any
/// other name may belong to a tool of another project.
pub fn is_misspelt_permission(problem: &Problem) -> bool {
    let name = problem.key.rsplit('.').next().unwrap_or_default();
    problem.code == ProblemCode::UnknownPermission && meant_permission(name).is_some()
}

/// Returns the permission that has an old name.
pub(crate) fn modern_permission(key: &str) -> Option<&'static str> {
    match key {
        "patch" | "multiedit" | "write" | "apply_patch" => Some("edit"),
        "ls" => Some("list"),
        _ => None,
    }
}

/// Returns the permission that a name probably means: a similar one, or the one of a tool in other
/// agents. `None` if there is none.
pub(crate) fn meant_permission(key: &str) -> Option<&'static str> {
    let known = PERMISSIONS
        .iter()
        .map(|(key, _)| *key)
        .chain(OLD_PERMISSIONS);
    let plain: String = key
        .chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect();
    let foreign = || {
        FOREIGN_NAMES
            .iter()
            .find(|(_, names)| names.split(' ').any(|name| name == plain))
    };
    nearest(key, known).or_else(|| foreign().map(|(permission, _)| *permission))
}

/// Returns the permission of a tool of another program, such as `MultiEdit`. `None` if adjutant has
/// no such tool.
pub(crate) fn permission_of_tool(name: &str) -> Option<&'static str> {
    let plain = name.to_ascii_lowercase();
    let known = PERMISSIONS.iter().map(|(key, _)| *key);
    let exact = known.into_iter().find(|known| *known == plain);
    let other = || match plain.as_str() {
        "notebookedit" => Some("edit"),
        "notebookread" => Some("read"),
        name => modern_permission(name),
    };
    exact.or_else(other).or_else(|| {
        let is_meant = |(_, names): &&(&str, &str)| names.split(' ').any(|name| name == plain);
        let meant = FOREIGN_NAMES.iter().find(is_meant);
        meant.map(|(permission, _)| *permission)
    })
}

/// The names of tools that are not built in.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    /// Prefixes of the permissions of MCP and custom tools; whether each is from the project.
    names: Vec<(String, bool)>,
    /// True if there are plugins or custom tools, which may use a permission of any name: the
    /// user's, the project's.
    scripts: [bool; 2],
    /// True if the project's tools are not in use, so that they do not count for the user's rules.
    is_withheld: bool,
}

impl ToolNames {
    /// Collects the names in all layers, including those of an untrusted project. `layers` are the
    /// nodes of the layers, and whether each is a project's.
    pub(crate) fn of<'n>(
        layers: impl Iterator<Item = (&'n Node, bool)>,
        scripts: &[ScriptEntry],
    ) -> Self {
        let mut found = Self::default();
        for (node, project) in layers {
            let servers = node.get("mcp").map(Node::entries).unwrap_or_default();
            found.names.extend(
                servers
                    .iter()
                    .map(|server| (plain(&server.key).into_owned(), project)),
            );
            let plugins = node.get("plugin").map(|node| &node.value);
            let has_plugins = matches!(plugins, Some(NodeValue::List(list)) if !list.is_empty());
            found.scripts[usize::from(project)] |= has_plugins;
        }
        scripts
            .iter()
            .for_each(|script| found.scripts[usize::from(script.project)] = true);
        for script in scripts
            .iter()
            .filter(|script| script.kind == ScriptKind::Tool)
        {
            let name = script.path.file_stem().and_then(|stem| stem.to_str());
            found
                .names
                .extend(name.map(|name| (plain(name).into_owned(), script.project)));
        }
        found
    }

    /// Excludes the tools of an untrusted project, for all rules except the project's.
    #[must_use]
    pub(crate) fn without_project(self, is_withheld: bool) -> Self {
        Self {
            is_withheld,
            ..self
        }
    }

    fn has(&self, key: &str, of_project: bool) -> bool {
        let is_in_use = |project: bool| !project || of_project || !self.is_withheld;
        let begins = |name: &str| {
            key.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        self.names
            .iter()
            .any(|(name, project)| is_in_use(*project) && begins(name))
    }

    /// Returns whether an unknown name may still be a permission: one of a plugin or custom tool,
    /// or a tool of a server that only the editor or another project has.
    fn may_have(&self, key: &str, of_project: bool) -> bool {
        let [own, project] = self.scripts;
        own || project && (of_project || !self.is_withheld)
            || key.contains(['_', '-', '.', ':', '/'])
    }
}

fn default_first(entries: &[MapEntry]) -> impl Iterator<Item = &MapEntry> {
    let (first, rest): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.key == "*");
    first.into_iter().chain(rest)
}

pub(crate) fn action(word: &str) -> Option<Action> {
    match word {
        "allow" => Some(Action::Allow),
        "ask" => Some(Action::Ask),
        "deny" => Some(Action::Deny),
        _ => None,
    }
}

/// Expands `~`, `~/x`, `$HOME` and `$HOME/x` in a pattern.
fn expand(pattern: &str, home: Option<&Path>) -> String {
    let rest = pattern
        .strip_prefix("$HOME")
        .or_else(|| pattern.strip_prefix('~'));
    match (rest, home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            format!("{}{rest}", home.display())
        }
        _ => pattern.to_owned(),
    }
}

/// Reports rules that can never decide, in a whole file.
pub(crate) fn report_unreachable_in(node: &Node, problems: &mut Vec<Problem>) {
    if let Some(permission) = node.get("permission") {
        report_unreachable(permission, "permission", problems);
    }
    for agent in node.get("agent").map(Node::entries).unwrap_or_default() {
        if let Some(permission) = agent.node.get("permission") {
            report_unreachable(
                permission,
                &format!("agent.{}.permission", agent.key),
                problems,
            );
        }
    }
}

/// Reports rules of one object that can never decide, because a later rule matches everything they
/// match. A deny still decides if the later rule is an allow: a broader allow does not lift it.
pub(crate) fn report_unreachable(permission: &Node, path: &str, problems: &mut Vec<Problem>) {
    let entries: Vec<&MapEntry> = default_first(permission.entries()).collect();
    report_hidden(&entries, path, problems);
    for entry in entries {
        let patterns: Vec<&MapEntry> = default_first(entry.node.entries()).collect();
        report_hidden(&patterns, &format!("{path}.{}", entry.key), problems);
    }
}

fn report_hidden(entries: &[&MapEntry], path: &str, problems: &mut Vec<Problem>) {
    let index = PatternIndex::new(entries.iter().map(|entry| &*entry.key));
    for (at, entry) in entries.iter().enumerate() {
        let Some(verdict) = entry.node.as_text().and_then(action) else {
            continue;
        };
        let is_hider = |position: &usize| {
            if *position <= at {
                return false;
            }
            let Some(later) = entries.get(*position) else {
                return false;
            };
            let Some(other) = later.node.as_text().and_then(action) else {
                return false;
            };
            let is_broader = !later.key.contains('?') && wildcard::matches(&later.key, &entry.key);
            is_broader && (verdict != Action::Deny || other == Action::Deny)
        };
        // A rule with the same action as the later one does no harm.
        let differs = |position: &usize| {
            let later = entries
                .get(*position)
                .and_then(|later| later.node.as_text());
            later.and_then(action) != Some(verdict)
        };
        let hider = index.candidates(&entry.key).filter(is_hider).min();
        let hider = hider.filter(differs);
        if let Some(later) = hider.and_then(|position| entries.get(position)) {
            let text = format!(
                "this rule never decides: the later rule \"{}\" matches everything it matches",
                later.key
            );
            let problem = Problem::warning(
                ProblemCode::UnreachableRule,
                &entry.at,
                format!("{path}.{}", entry.key),
                text,
            );
            problems.push(problem.hint("move it after that one"));
        }
    }
}

/// Returns the user's rules that a project may not loosen: every deny, and the user's exceptions
/// from earlier denies. They are appended to the project's rules.
pub(crate) fn user_denies(user: &Rules) -> Rules {
    let mut denies = Rules::default();
    for rule in user.iter() {
        let extended = denies.clone().then(&Rules::from(vec![rule.clone()]));
        if rule.action == Action::Deny
            || find_more_permissive(&extended, &[&denies], Action::Deny).is_some()
        {
            denies = extended;
        }
    }
    // Collected into one part, because every part of `Rules` is searched separately.
    denies.iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> String {
        let origin = super::super::node::ConfigOrigin {
            name: "f".into(),
            path: None,
            layer: super::super::node::Layer::Global,
            project: false,
        };
        let node = super::super::jsonc::parse(json, &std::sync::Arc::new(origin), &mut Vec::new())
            .unwrap();
        text(&rules(&node, Some(Path::new("/home/u"))))
    }

    fn text(rules: &Rules) -> String {
        let rule = |rule: &Rule| format!("{} {} {:?}", rule.permission, rule.pattern, rule.action);
        rules.iter().map(rule).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn permission_values_become_rules() {
        let table = [
            (r#""ask""#, "* * Ask"),
            (r#"{"edit": "deny"}"#, "edit * Deny"),
            (
                r#"{"bash": {"git *": "allow", "*": "ask"}, "*": "deny"}"#,
                "* * Deny; bash * Ask; bash git * Allow",
            ),
            (
                r#"{"external_directory": {"~/x": "allow", "$HOME/y": "ask", "~z": "deny"}}"#,
                "external_directory /home/u/x Allow; external_directory /home/u/y Ask; external_directory ~z Deny",
            ),
            (
                r#"{"bash": {"rm -rf": "deny", "git push": "ask", "git push origin": "allow", "sudo*": "deny"}}"#,
                "bash rm -rf * Deny; bash git push * Ask; bash git push origin Allow; bash sudo* Deny",
            ),
            (
                r#"{"edit": {"src/a": "deny"}, "bash": "deny"}"#,
                "edit src/a Deny; bash * Deny",
            ),
        ];
        for (json, expected) in table {
            assert_eq!(read(json), expected, "{json}");
        }
    }
}
