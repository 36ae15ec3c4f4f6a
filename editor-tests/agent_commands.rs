//! Counts of the permission questions that a user gets while a model works: the command lines that
//! a frontier model ran while it solved real tasks, judged under a few sets of rules. None of these
//! questions improves safety. The lines come from the published runs of mini-swe-agent on SWE-bench
//! Verified (MIT); `/testbed` is the project.
//!
//! The suite compares the counts with limits that may only fall;
//! `cargo bench --bench bench -- asked` prints them all.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base::environment::Environment;
use base::worktree::Worktree;
use permission::{
    AccessRequest, Action, PermissionContext, Rules, SandboxGuarantee, command_request, evaluate,
};
use project::agent::Agents;

const ROWS: &[u8] = include_bytes!("data/agent_commands.jsonl.gz");

/// An agent and the settings of its user.
pub struct RuleSet {
    pub name: &'static str,
    pub agent: &'static str,
    pub settings: &'static str,
}

/// The two agents as they come, and three sets of rules that users write.
pub const RULE_SETS: [RuleSet; 5] = [
    RuleSet {
        name: "build",
        agent: "build",
        settings: "{}",
    },
    RuleSet {
        name: "plan",
        agent: "plan",
        settings: "{}",
    },
    RuleSet {
        name: "some denies",
        agent: "build",
        settings: r#"{"permission": {"bash": {"*": "allow", "git push*": "ask", "rm -rf*": "deny", "sudo*": "deny"}}}"#,
    },
    RuleSet {
        name: "some allows",
        agent: "build",
        settings: r#"{"permission": {"bash": {"*": "ask", "git *": "allow", "npm *": "allow", "rm *": "deny",
            "grep *": "allow", "cat *": "allow", "ls *": "allow", "python*": "allow", "pytest*": "allow"}}}"#,
    },
    RuleSet {
        name: "edits are asked",
        agent: "build",
        settings: r#"{"permission": {"edit": "ask"}}"#,
    },
];

/// Mechanisms that a machine may have: none, bubblewrap, or Landlock on a kernel that does not
/// restrict signals.
pub const MACHINES: [&str; 3] = ["none", "bubblewrap", "Landlock"];

/// Returns the guarantee of a machine's sandbox for the commands of an agent.
fn guarantee(machine: &str, agent: &str) -> SandboxGuarantee {
    match (machine, agent) {
        ("none", _) => SandboxGuarantee::None,
        ("bubblewrap", "plan") => SandboxGuarantee::ReadOnly {
            hides_secrets: false,
            blocks_signals: true,
        },
        (_, "plan") => SandboxGuarantee::ReadOnly {
            hides_secrets: false,
            blocks_signals: false,
        },
        ("bubblewrap", _) => SandboxGuarantee::WORKSPACE,
        _ => SandboxGuarantee::Workspace {
            protects_modes: false,
            blocks_signals: false,
        },
    }
}

/// A command line of the data, taken apart once.
pub struct JudgedRow {
    pub id: String,
    pub line: String,
    need: AccessRequest,
}

impl JudgedRow {
    fn task(&self) -> &str {
        self.id.split('#').next().unwrap_or(&self.id)
    }
}

/// A row that is asked about, with the reason.
pub struct Question<'r> {
    pub row: &'r JudgedRow,
    pub reason: String,
}

/// The rows with a project for them, and the rules of each set.
pub struct Rows {
    _dir: tempfile::TempDir,
    pub rows: Vec<JudgedRow>,
    rules: Vec<Rules>,
}

impl Rows {
    /// Takes all rows apart, on all processors.
    pub fn read() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("testbed");
        for folder in [root.join(".git"), top.join("home/.config/adjutant")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let policies: Vec<_> = RULE_SETS.iter().map(|set| policy(&top, set)).collect();
        let (rules, mut places): (Vec<Rules>, Vec<PermissionContext>) =
            policies.into_iter().unzip();
        let context = places.remove(0);
        let lines: Vec<(String, String)> = lines(&root);
        let share = lines
            .len()
            .div_ceil(std::thread::available_parallelism().map_or(1, usize::from));
        let take_apart = |(id, line): &(String, String)| {
            let need = command_request(line, &context);
            JudgedRow {
                id: id.clone(),
                line: line.clone(),
                need,
            }
        };
        let rows = std::thread::scope(|scope| {
            let parts = lines
                .chunks(share)
                .map(|lines| scope.spawn(|| lines.iter().map(take_apart).collect::<Vec<_>>()));
            let parts: Vec<_> = parts.collect();
            parts
                .into_iter()
                .flat_map(|part| part.join().unwrap())
                .collect()
        });
        Self {
            _dir: dir,
            rows,
            rules,
        }
    }

    /// Returns the rows that a set of rules asks about on a machine.
    pub fn questions(&self, set: usize, machine: &str) -> Vec<Question<'_>> {
        let guarantee = guarantee(machine, RULE_SETS[set].agent);
        let judge = |row: &JudgedRow| {
            evaluate(
                &self.rules[set],
                &Rules::default(),
                &AccessRequest {
                    guarantee,
                    ..row.need.clone()
                },
            )
        };
        let judged = self.rows.iter().map(|row| (row, judge(row)));
        let asked = judged.filter(|(_, verdict)| verdict.action == Action::Ask);
        asked
            .map(|(row, verdict)| Question {
                row,
                reason: verdict.reason.unwrap_or_default(),
            })
            .collect()
    }
}

/// Returns the number of tasks with at least one of these questions.
pub fn tasks(questions: &[Question<'_>]) -> usize {
    questions
        .iter()
        .map(|question| question.row.task())
        .collect::<BTreeSet<_>>()
        .len()
}

fn lines(root: &Path) -> Vec<(String, String)> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(ROWS)
        .read_to_string(&mut text)
        .unwrap();
    let root = root.display().to_string();
    let read = |line: &str| {
        let (id, line): (String, String) = serde_json::from_str(line).unwrap();
        (id, line.replace("/testbed", &root))
    };
    // The first line states their source.
    text.lines().skip(1).map(read).collect()
}

/// Returns the rules of an agent under the settings of a user, and the context of its commands.
fn policy(top: &Path, set: &RuleSet) -> (Rules, PermissionContext) {
    let home = top.join("home");
    std::fs::write(home.join(".config/adjutant/adjutant.json"), set.settings).unwrap();
    let shown = |path: &PathBuf| path.display().to_string();
    let environment = Environment::from_vars(BTreeMap::from([
        ("HOME".to_owned(), shown(&home)),
        (
            "OPENCODE_TEST_MANAGED_CONFIG_DIR".to_owned(),
            shown(&top.join("nowhere")),
        ),
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
    ]));
    let worktree = Worktree::find(&top.join("testbed"), &[], None);
    let loaded = config::load(&environment, &worktree, &worktree.root);
    let (agents, _) = Agents::build(&loaded.settings, &environment, &worktree);
    let rules = agents.get(set.agent).unwrap().rules.clone();
    (
        rules,
        PermissionContext::new(&environment, &worktree, &worktree.root),
    )
}

/// Limits: agent, machine, commands asked about, tasks with a question. A change that lowers a
/// count lowers its limit here too.
const MAX_QUESTIONS: [(&str, &str, usize, usize); 5] = [
    ("build", "none", 330, 125),
    ("build", "bubblewrap", 4, 2),
    ("build", "Landlock", 4, 2),
    ("plan", "bubblewrap", 0, 0),
    ("plan", "Landlock", 0, 0),
];

/// A question about one of these commands buys nothing.
pub fn questions_only_fall() {
    let rows = Rows::read();
    assert_eq!(rows.rows.len(), 9_745);
    for (set, machine, max_commands, max_tasks) in MAX_QUESTIONS {
        assert!(MACHINES.contains(&machine), "{machine}");
        let at = RULE_SETS
            .iter()
            .position(|known| known.name == set)
            .unwrap();
        let questions = rows.questions(at, machine);
        let shown: Vec<String> = questions
            .iter()
            .map(|question| {
                format!(
                    "{}: {}: {}",
                    question.row.id, question.reason, question.row.line
                )
            })
            .collect();
        let found = questions.len();
        let tasks = tasks(&questions);
        assert!(
            found <= max_commands && tasks <= max_tasks,
            "{set}, {machine}: {found} commands in {tasks} tasks\n{}",
            shown.join("\n")
        );
    }
}
