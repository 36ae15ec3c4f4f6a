//! `permission` in a settings file, as rules. The order is the order of the file; a catch-all `*`
//! within one object is its default, wherever it was written.

use std::path::Path;

use super::file::PERMISSIONS;
use super::lost_denies;
use super::node::{MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode, ProblemSeverity};
use super::script::{ScriptEntry, ScriptKind};
use base::text::nearest;
use base::text::plain;
use permission::lint::{self, LintKind};
use permission::pattern_index::PatternIndex;
use permission::{Action, Rule, Rules, laxer, wildcard};

/// Names of permissions that are read as others: see [`super::legacy`].
const OLD_PERMISSIONS: [&str; 5] = ["write", "patch", "multiedit", "apply_patch", "ls"];

/// Names of permissions that OpenCode has and that nothing here asks for.
const OTHERS: [&str; 2] = ["batch", "invalid"];

/// What tools are called in other agents, in small letters without `-` and `_`, by the permission that covers them here.
/// All that models call them is among these: see `tool::aliases`.
const ELSEWHERE: [(&str, &str); 12] = [
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
    ("read", "view readfile viewfile openfile open cat fileread getfilecontents"),
    ("list", "listdir listdirectory listfiles dir"),
    ("glob", "findfiles filesearch globsearch globfiles"),
    ("grep", "grepsearch rg ripgrep searchfilecontent searchfiles search searchcode textsearch"),
    ("webfetch", "fetch fetchurl browse browser openurl readurl network internet web http"),
    ("websearch", "searchweb googlesearch internetsearch"),
    ("task", "agent agents subagent subagents spawnagent dispatchagent runsubagent"),
    ("skill", "skills useskill loadskill readskill"),
    ("lsp", "languageserver codeintelligence"),
    ("external_directory", "external outside"),
];

/// Reads a checked `permission` value.
pub(crate) fn rules(node: &Node, home: Option<&Path>) -> Rules {
    placed(node, home).into_iter().map(|placed| placed.rule).collect()
}

/// A rule and where it was written.
struct PlacedRule {
    rule: Rule,
    /// The pattern as it was written, homes aside.
    written: String,
    /// Where its pattern stands; of a rule without one its permission.
    key: SourceLocation,
    /// Where its action stands.
    at: SourceLocation,
}

/// The rules of a `permission` value, each with its place.
fn placed(node: &Node, home: Option<&Path>) -> Vec<PlacedRule> {
    let mut rules = Vec::new();
    let mut push = |permission: &str, pattern: &str, key: &SourceLocation, node: &Node| {
        if let Some(action) = node.as_text().and_then(action) {
            let written = expand(pattern, home);
            let pattern = with_arguments(permission, &written, action).unwrap_or_else(|| written.clone());
            let rule = Rule { permission: permission.to_owned(), pattern, action, source: node.at.short() };
            rules.push(PlacedRule { rule, written, key: key.clone(), at: node.at.clone() });
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

/// What is odd about the rules of a joined tree, over all layers: rules that can never decide, that
/// lift nothing, that match nothing, that say more than they seem to. Of a rule that its own file shows
/// never to decide, `known` tells already. Looks at the disk.
pub(crate) fn odd(tree: &Node, tools: &ToolNames, home: Option<&Path>, root: &Path, known: &[Problem]) -> Vec<Problem> {
    let general = tree.get("permission").map(|node| ("permission".to_owned(), node));
    let agents = tree
        .get("agent")
        .map(Node::entries)
        .unwrap_or_default()
        .iter()
        .filter_map(|agent| Some((format!("agent.{}.permission", agent.key), agent.node.get("permission")?)));
    let mut problems = Vec::new();
    for (way, node) in general.into_iter().chain(agents) {
        for entry in node.entries() {
            problems.extend(unknown_permission(entry, &way, tools));
        }
        let placed = placed(node, home);
        let rules: Rules = placed.iter().map(|placed| placed.rule.clone()).collect();
        // A rule of the user's is meant for every project.
        for PlacedRule { rule, at, .. } in placed.iter().filter(|placed| placed.at.origin.project) {
            if let Some(folder) = lint::missing_folder(rule, root) {
                let text = format!("\"{}\" matches nothing here: there is no directory {folder}", rule.pattern);
                problems.push(Problem::warning(
                    ProblemCode::OddRule,
                    at,
                    format!("{way}.{}.{}", rule.permission, rule.pattern),
                    text,
                ));
            }
        }
        for PlacedRule { rule, written, at, .. } in placed.iter().filter(|placed| placed.rule.pattern != placed.written)
        {
            let word = if rule.action == Action::Deny { "denies" } else { "asks about" };
            let text = format!(
                "\"{written}\" is read as \"{written}\" and \"{}\": it {word} the command with any arguments",
                rule.pattern
            );
            let key = format!("{way}.{}.{written}", rule.permission);
            problems.push(Problem::new(ProblemSeverity::Note, ProblemCode::OddRule, at, key, text));
        }
        for lint in lint::lint(&rules, Some(root)) {
            let Some(PlacedRule { rule, written, key, at }) = placed.get(lint.at) else { continue };
            let (severity, code) = match lint.kind {
                LintKind::CoversLongerWords => (ProblemSeverity::Note, ProblemCode::OddRule),
                LintKind::NeverDecides => (ProblemSeverity::Warning, ProblemCode::UnreachableRule),
                LintKind::MatchesNothing | LintKind::LiftsNothing => (ProblemSeverity::Warning, ProblemCode::OddRule),
            };
            if known.iter().any(|known| known.code == code && known.location == *key) {
                continue;
            }
            let key = format!("{way}.{}.{written}", rule.permission);
            problems.push(Problem::new(severity, code, at, key, lint.message));
        }
    }
    problems
}

/// Returns how a rule about commands is read that has no wildcard and does not allow: `X *`, which also matches `X`.
/// Whoever denies `rm -rf` means what is removed with it. None for any other rule.
fn with_arguments(permission: &str, pattern: &str, action: Action) -> Option<String> {
    let bare = pattern.trim_end();
    let is_read_so = permission == "bash" && action != Action::Allow && !bare.is_empty() && !bare.contains(['*', '?']);
    is_read_so.then(|| format!("{bare} *"))
}

/// Tells of a permission that no tool of ours, of a server or of a custom file has. If it does more than allow, it may
/// have been meant to deny something that there is.
fn unknown_permission(entry: &MapEntry, way: &str, tools: &ToolNames) -> Option<Problem> {
    let key = entry.key.as_str();
    let is_known = PERMISSIONS.iter().any(|(known, _)| *known == key) || OTHERS.contains(&key) || key.contains('*');
    if is_known || tools.has(key, entry.at.origin.project) {
        return None;
    }
    let meant = meant_permission(key);
    if meant.is_none() && tools.may_have(key, entry.at.origin.project) {
        return None;
    }
    let text = format!("no tool asks for \"{key}\"");
    let mut problem = Problem::warning(ProblemCode::UnknownPermission, &entry.at, format!("{way}.{key}"), text);
    problem.can_hide_deny = lost_denies::is_stricter(&entry.node);
    Some(problem.hint(match meant {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("write \"{key}*\" if it is a tool of another project"),
    }))
}

/// Returns the permission that was meant by a name: one that resembles it, or what other agents call so. `None` if it is
/// no such name.
pub(crate) fn meant_permission(key: &str) -> Option<&'static str> {
    let known = PERMISSIONS.iter().map(|(key, _)| *key).chain(OLD_PERMISSIONS);
    let plain: String = key.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect();
    let elsewhere = || ELSEWHERE.iter().find(|(_, names)| names.split(' ').any(|name| name == plain));
    nearest(key, known).or_else(|| elsewhere().map(|(permission, _)| *permission))
}

/// The names of tools that are not the program's own.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    /// What the permissions of servers' tools and of custom tools begin with; whether a project's file says so.
    names: Vec<(String, bool)>,
    /// There are plugins or custom tools, which may ask for a permission of any name once they run: the user's, the
    /// project's.
    scripts: [bool; 2],
    /// What the project brings is not in use, and tells nothing about the user's rules.
    is_withheld: bool,
}

impl ToolNames {
    /// Finds the names in all layers, those of a project that is not trusted included. `layers` are what each says, and
    /// whether it is a project's.
    pub(crate) fn of<'n>(layers: impl Iterator<Item = (&'n Node, bool)>, scripts: &[ScriptEntry]) -> Self {
        let mut found = Self::default();
        for (node, project) in layers {
            let servers = node.get("mcp").map(Node::entries).unwrap_or_default();
            found.names.extend(servers.iter().map(|server| (plain(&server.key).into_owned(), project)));
            let plugins = node.get("plugin").map(|node| &node.value);
            let has_plugins = matches!(plugins, Some(NodeValue::List(list)) if !list.is_empty());
            found.scripts[usize::from(project)] |= has_plugins;
        }
        scripts.iter().for_each(|script| found.scripts[usize::from(script.project)] = true);
        for script in scripts.iter().filter(|script| script.kind == ScriptKind::Tool) {
            let name = script.path.file_stem().and_then(|stem| stem.to_str());
            found.names.extend(name.map(|name| (plain(name).into_owned(), script.project)));
        }
        found
    }

    /// Takes out what an untrusted project brings, for all rules but its own.
    #[must_use]
    pub(crate) fn without_project(self, is_withheld: bool) -> Self {
        Self { is_withheld, ..self }
    }

    fn has(&self, key: &str, of_project: bool) -> bool {
        let is_in_use = |project: bool| !project || of_project || !self.is_withheld;
        let begins = |name: &str| key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        self.names.iter().any(|(name, project)| is_in_use(*project) && begins(name))
    }

    /// Whether a name that is not known may be a permission all the same: one that a plugin or custom tool asks for, or a
    /// tool of a server that only the editor or another project has.
    fn may_have(&self, key: &str, of_project: bool) -> bool {
        let [own, project] = self.scripts;
        own || project && (of_project || !self.is_withheld) || key.contains(['_', '-', '.', ':', '/'])
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

/// `~`, `~/x`, `$HOME` and `$HOME/x` in a pattern.
fn expand(pattern: &str, home: Option<&Path>) -> String {
    let rest = pattern.strip_prefix("$HOME").or_else(|| pattern.strip_prefix('~'));
    match (rest, home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", home.display()),
        _ => pattern.to_owned(),
    }
}

/// Tells of rules that can never decide, in a whole file.
pub(crate) fn unreachable_in(node: &Node, problems: &mut Vec<Problem>) {
    if let Some(permission) = node.get("permission") {
        unreachable(permission, "permission", problems);
    }
    for agent in node.get("agent").map(Node::entries).unwrap_or_default() {
        if let Some(permission) = agent.node.get("permission") {
            unreachable(permission, &format!("agent.{}.permission", agent.key), problems);
        }
    }
}

/// Tells of rules of one object that can never decide, because a later one fits all they fit. A deny
/// still decides where the later one is an allow: it is not lifted by something broader.
pub(crate) fn unreachable(permission: &Node, way: &str, problems: &mut Vec<Problem>) {
    let entries: Vec<&MapEntry> = default_first(permission.entries()).collect();
    hidden(&entries, way, problems);
    for entry in entries {
        let patterns: Vec<&MapEntry> = default_first(entry.node.entries()).collect();
        hidden(&patterns, &format!("{way}.{}", entry.key), problems);
    }
}

fn hidden(entries: &[&MapEntry], way: &str, problems: &mut Vec<Problem>) {
    let index = PatternIndex::new(entries.iter().map(|entry| &*entry.key));
    for (at, entry) in entries.iter().enumerate() {
        let Some(verdict) = entry.node.as_text().and_then(action) else { continue };
        let hides = |place: &usize| {
            let Some(later) = entries.get(*place).filter(|_| *place > at) else { return false };
            let Some(other) = later.node.as_text().and_then(action) else { return false };
            let broader = !later.key.contains('?') && wildcard::matches(&later.key, &entry.key);
            broader && (verdict != Action::Deny || other == Action::Deny)
        };
        if let Some(later) = index.candidates(&entry.key).filter(hides).min().and_then(|place| entries.get(place)) {
            let text = format!("this rule never decides: \"{}\" after it fits everything it fits", later.key);
            let problem =
                Problem::warning(ProblemCode::UnreachableRule, &entry.at, format!("{way}.{}", entry.key), text);
            problems.push(problem.hint("write it after that one"));
        }
    }
}

/// The rules of the user that a project's may not loosen: every deny, and what the user excepted from
/// those before it. They stand again after the project's rules.
pub(crate) fn denies_kept(user: &Rules) -> Rules {
    let mut kept = Rules::default();
    for rule in user.iter() {
        let with = kept.clone().then(&Rules::from(vec![rule.clone()]));
        if rule.action == Action::Deny || laxer(&with, &[&kept], Action::Deny).is_some() {
            kept = with;
        }
    }
    // One piece: by pieces of few rules each would be looked up by itself.
    kept.iter().cloned().collect()
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
        let node = super::super::jsonc::parse(json, &std::sync::Arc::new(origin), &mut Vec::new()).unwrap();
        text(&rules(&node, Some(Path::new("/home/u"))))
    }

    fn text(rules: &Rules) -> String {
        let rule = |rule: &Rule| format!("{} {} {:?}", rule.permission, rule.pattern, rule.action);
        rules.iter().map(rule).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn forms() {
        let table = [
            (r#""ask""#, "* * Ask"),
            (r#"{"edit": "deny"}"#, "edit * Deny"),
            (r#"{"bash": {"git *": "allow", "*": "ask"}, "*": "deny"}"#, "* * Deny; bash * Ask; bash git * Allow"),
            (
                r#"{"external_directory": {"~/x": "allow", "$HOME/y": "ask", "~z": "deny"}}"#,
                "external_directory /home/u/x Allow; external_directory /home/u/y Ask; external_directory ~z Deny",
            ),
            (
                r#"{"bash": {"rm -rf": "deny", "git push": "ask", "git push origin": "allow", "sudo*": "deny"}}"#,
                "bash rm -rf * Deny; bash git push * Ask; bash git push origin Allow; bash sudo* Deny",
            ),
            (r#"{"edit": {"src/a": "deny"}, "bash": "deny"}"#, "edit src/a Deny; bash * Deny"),
        ];
        for (json, expected) in table {
            assert_eq!(read(json), expected, "{json}");
        }
    }
}
