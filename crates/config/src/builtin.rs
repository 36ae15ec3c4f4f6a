//! The built-in agents, as data, and the default rules.

use std::path::Path;

use super::settings::Mode;
use base::environment::Environment;
use permission::Action::{self, Allow, Ask, Deny};
use permission::keys::READ_ONLY_PERMISSIONS;
use permission::{Rule, Rules, rule};

/// A built-in agent.
#[derive(Debug)]
pub struct BuiltInAgent {
    pub name: &'static str,
    pub description: &'static str,
    pub mode: Mode,
    pub hidden: bool,
    /// The system prompt, if it has its own.
    pub prompt: Option<&'static str>,
    /// Rules below the user's: the user may tighten and loosen them.
    pub(crate) default_rules: &'static [(&'static str, &'static str, Action)],
    /// Rules above the user's: only `agent.<name>.permission` loosens them.
    pub(crate) enforced_rules: &'static [(&'static str, &'static str, Action)],
    /// The permissions it is limited to; within them the user's rules apply.
    pub(crate) allowed_permissions: Option<&'static [&'static str]>,
    /// True if its shell is read-only: known-harmless commands run, commands known to change
    /// something are denied, and all others are asked about.
    pub(crate) read_only: bool,
}

const PLAIN: BuiltInAgent = BuiltInAgent {
    name: "",
    description: "",
    mode: Mode::Primary,
    hidden: false,
    prompt: None,
    default_rules: &[],
    enforced_rules: &[],
    allowed_permissions: None,
    read_only: false,
};

pub const AGENTS: [BuiltInAgent; 8] = [
    BuiltInAgent {
        name: "build",
        description: "Does the work: reads, edits and runs what the rules allow.",
        default_rules: &[("question", "*", Allow), ("plan_enter", "*", Allow)],
        ..PLAIN
    },
    BuiltInAgent {
        name: "plan",
        description: "Explores and plans. Changes nothing but its plan files.",
        default_rules: &[
            ("question", "*", Allow),
            ("plan_exit", "*", Allow),
            ("bash", "*", Ask),
        ],
        enforced_rules: &[
            ("task", "general", Deny),
            ("edit", "*", Deny),
            ("edit", ".opencode/plans/*.md", Allow),
            ("edit", ".opencode/plan/*.md", Allow),
            ("edit", ".adjutant/plans/*.md", Allow),
        ],
        read_only: true,
        ..PLAIN
    },
    BuiltInAgent {
        name: "general",
        description: "Researches questions and carries out tasks of several steps on its own. Several can work in parallel.",
        mode: Mode::Subagent,
        enforced_rules: &[("todowrite", "*", Deny)],
        ..PLAIN
    },
    BuiltInAgent {
        name: "explore",
        description: "Searches the project quickly and changes nothing: files by pattern, code by content, answers to how \
                      something works. Say how thorough to be: quick, medium or very thorough.",
        mode: Mode::Subagent,
        prompt: Some(prompts::agent::EXPLORE),
        allowed_permissions: Some(READ_ONLY_PERMISSIONS),
        read_only: true,
        ..PLAIN
    },
    BuiltInAgent {
        name: "scout",
        description: "Researches what lies outside the project and changes nothing: the source of dependencies, \
                      documentation, the web.",
        mode: Mode::Subagent,
        prompt: Some(prompts::agent::SCOUT),
        allowed_permissions: Some(READ_ONLY_PERMISSIONS),
        read_only: true,
        ..PLAIN
    },
    BuiltInAgent {
        name: "compaction",
        description: "Summarises a session that outgrew the model's window.",
        hidden: true,
        prompt: Some(prompts::agent::COMPACTION),
        allowed_permissions: Some(&[]),
        ..PLAIN
    },
    BuiltInAgent {
        name: "summary",
        description: "Describes what a session did, for a pull request.",
        hidden: true,
        prompt: Some(prompts::agent::SUMMARY),
        allowed_permissions: Some(&[]),
        ..PLAIN
    },
    BuiltInAgent {
        name: "title",
        description: "Names a session.",
        hidden: true,
        prompt: Some(prompts::agent::TITLE),
        allowed_permissions: Some(&[]),
        ..PLAIN
    },
];

/// Returns the default rules.
pub(crate) fn base(environment: &Environment, directories: &[impl AsRef<Path>]) -> Rules {
    rule::base(
        &environment.dirs.data,
        &environment.tmp().join("adjutant"),
        directories,
    )
}

/// Returns the directory of long tool results.
pub(crate) fn outputs(environment: &Environment) -> std::path::PathBuf {
    environment.dirs.data.join("tool-output")
}

/// Returns a rule about a directory outside the project.
pub(crate) fn outside(dir: &Path, action: Action) -> Rule {
    Rule {
        permission: "external_directory".into(),
        pattern: format!("{}/*", dir.display()),
        action,
        source: "built in".into(),
    }
}

/// Returns the rules of a built-in agent, before the settings of this agent itself.
pub(crate) fn rules(
    agent: &BuiltInAgent,
    base: &Rules,
    user: &Rules,
    environment: &Environment,
    relative_plans: &str,
) -> Rules {
    let mut rules = match agent.allowed_permissions {
        None => {
            let mut offered = Rules::built_in(agent.default_rules);
            if agent.name == "plan" {
                // The user's rules still decide about other directories; the plan files belong to
                // the agent.
                offered.extend([outside(&environment.dirs.data.join("plans"), Allow)]);
            }
            base.clone().then(&offered).then(user)
        }
        Some(allowed) => limited(allowed, agent.read_only, base, user),
    };
    if agent.name == "scout" {
        let dependencies = dependencies(environment);
        rules = rules.then(&dependencies.iter().map(|dir| outside(dir, Allow)).collect());
        // The user's rules about other directories still apply after that.
        rules = rules.then(
            &user
                .iter()
                .filter(|rule| rule.permission == "external_directory")
                .cloned()
                .collect(),
        );
    }
    // If the user denies all edits, plan files are no exception.
    let edits_denied = user
        .iter()
        .any(|rule| rule.permission == "edit" && rule.pattern == "*" && rule.action == Deny);
    let guards = Rules::built_in(agent.enforced_rules);
    let is_used =
        |guard: &&Rule| !(edits_denied && guard.permission == "edit" && guard.action == Allow);
    rules = rules.then(&guards.iter().filter(is_used).cloned().collect());
    if agent.name == "plan" && !edits_denied {
        rules = rules.then(&Rules::built_in(&[("edit", relative_plans, Allow)]));
    }
    if agent.read_only {
        rules = rules.then(&Rules::read_only());
    }
    rules
}

/// Denies everything except some permissions, within which the default and the user's rules apply.
/// A user's wildcard applies to each of them and to nothing else.
fn limited(allowed: &[&str], read_only: bool, base: &Rules, user: &Rules) -> Rules {
    let mut rules = Rules::built_in(&[("*", "*", Deny)]);
    for key in allowed {
        let first = if *key == "bash" && read_only {
            Ask
        } else {
            Allow
        };
        rules.extend(Rules::built_in(&[(key, "*", first)]).iter().cloned());
        rules.extend(base.iter().filter(|rule| rule.permission == *key).cloned());
        let theirs = user
            .iter()
            .filter(|rule| permission::wildcard::matches(&rule.permission, key));
        rules.extend(theirs.map(|rule| Rule {
            permission: (*key).into(),
            ..rule.clone()
        }));
    }
    rules
}

/// Returns the usual directories of the sources of dependencies, which are public code.
fn dependencies(environment: &Environment) -> Vec<std::path::PathBuf> {
    let below_home = [
        ".cargo/registry",
        ".cargo/git/checkouts",
        ".rustup/toolchains",
        "go/pkg/mod",
        ".m2/repository",
        ".gradle/caches/modules-2",
        ".npm/_npx",
        ".bun/install/cache",
        ".gem",
    ];
    let home = environment
        .home
        .iter()
        .flat_map(|home| below_home.iter().map(|dir| home.join(dir)));
    home.chain(["/usr/include", "/usr/share/doc"].map(std::path::PathBuf::from))
        .collect()
}
