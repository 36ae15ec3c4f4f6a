//! The tables of command lines in `crates/project/data`, judged as the program judges them: rules
//! from a settings file through the registry of agents, in a project on disk. Two tables of
//! `crates/permission/data`, which that crate judges with bare rules, are judged here a second time.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Agents;
use base::environment::Environment;
use base::worktree::Worktree;
use permission::testing::records;
use permission::{
    AccessRequest, Action, PermissionContext, Rules, SandboxGuarantee, Verdict, command_request,
    evaluate,
};

/// The maximum number of everyday lines that cause a question although they should not: 8 did when
/// the table was made.
const EVERYDAY_QUESTIONS: usize = 8;

/// Prepares the content of every project: two commits on `main`, and a remote repository.
const PROJECT: &str = r#"
git init -q -b main . && git init -q --bare .r.git && git remote add origin .r.git
mkdir -p src/deep tests
for f in a.txt a1.txt a2.txt b.txt old.txt victim.txt list x src/f.c src/deep/f src/main.rs README.md; do echo alpha > $f; done
printf '[package]\nname = "x"\n' > Cargo.toml
echo '{}' > package.json
echo target > .gitignore
printf '#!/bin/sh\ntouch PWN\n' > evil.sh; cp evil.sh script.sh; chmod +x evil.sh script.sh
git add a.txt a1.txt b.txt src README.md evil.sh .gitignore Cargo.toml package.json && git commit -qm one
echo beta >> a1.txt && git commit -qam two && git push -q origin main
"#;

/// Prepares further files for the older tables.
const OLDER: &str = r"
mkdir -p ..hidden; echo alpha > .env; echo alpha > .env.example; echo alpha > ..hidden/f
ln -s ../out link; ln -s ../out/secret linkf; ln -s src inlink
mkdir -p ../out; echo s > ../out/secret; echo s > ../out/secret.txt
";

/// Prepares further files for the table about control files and secrets.
const ATTACKED: &str = r"
mkdir -p docs tpl/.git/hooks tpl/.vscode .github/workflows .claude .vscode
for f in docs/x.md AGENTS.md tpl/.git/hooks/pre-commit tpl/.vscode/tasks.json tpl/a.c; do echo alpha > $f; done
for f in .github/workflows/ci.yml .vscode/settings.json .git/hooks/pre-commit.sample; do echo alpha > $f; done
printf -- '+++ b/AGENTS.md\n' > control.patch; printf -- '+++ b/a.txt\n' > plain.patch
echo K=1 > .env; echo k > server.pem; ln -s .git/hooks hk; ln -s AGENTS.md notes.txt; ln -s .env plain.txt; ln -s .. up
git archive HEAD > a.tar
";

/// Prepares further files for the table about sandboxes.
const SANDBOXED: &str = r"
mkdir -p docs .vscode ../out
for f in .vscode/settings.json AGENTS.md; do echo alpha > $f; done
printf -- '+++ b/AGENTS.md\n' > control.patch; printf -- '+++ b/a.txt\n' > plain.patch
echo K=1 > .env; echo k > server.pem; echo s > ../out/secret
git archive HEAD > a.tar
";

/// Programs in rules about one command: they are found on every machine that runs the tests.
const PROGRAMS: [&str; 6] = ["lsof", "npm", "cargo", "git", "ls", "rg"];

/// A project, with a home and an unrelated directory next to it.
struct TableFixture {
    dir: tempfile::TempDir,
}

impl TableFixture {
    fn new(preparations: &[&str]) -> Self {
        let fixture = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for folder in ["home/.config/adjutant", "ws", "bin", "out"] {
            std::fs::create_dir_all(fixture.path(folder)).unwrap();
        }
        for program in PROGRAMS {
            std::fs::write(fixture.path("bin").join(program), "").unwrap();
        }
        for preparation in preparations {
            fixture.run(preparation);
        }
        fixture
    }

    /// Copies the fixture.
    fn copy(&self) -> Self {
        let fixture = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let done = command("cp")
            .arg("-a")
            .arg(self.path("."))
            .arg(fixture.path("."))
            .status()
            .unwrap();
        assert!(done.success());
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn run(&self, script: &str) {
        let output = command("bash")
            .args(["-c", script])
            .current_dir(self.path("ws"))
            .env_clear()
            .env("PATH", Environment::read().var("PATH").unwrap())
            .env("HOME", self.path("home"))
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("LC_ALL", "C")])
            .envs([("GIT_AUTHOR_NAME", "x"), ("GIT_AUTHOR_EMAIL", "x@x")])
            .envs([("GIT_COMMITTER_NAME", "x"), ("GIT_COMMITTER_EMAIL", "x@x")])
            .output()
            .unwrap();
        assert!(
            output.stderr.is_empty(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Returns the rules of an agent under the user's settings, and the context of a session.
    /// `first` is put before the directories of `PATH`.
    fn agent(&self, agent: &str, bash: &str, first: &str) -> (Rules, PermissionContext) {
        let settings = if bash.is_empty() {
            "{}".into()
        } else {
            format!(r#"{{"permission": {{"bash": {bash}}}}}"#)
        };
        let file = self.path(&format!("home/{agent}.json"));
        std::fs::write(&file, settings).unwrap();
        let shown = |path: PathBuf| path.display().to_string();
        let environment = Environment::from_vars(BTreeMap::from([
            ("HOME".to_owned(), shown(self.path("home"))),
            ("ADJUTANT_CONFIG".to_owned(), shown(file)),
            (
                "OPENCODE_TEST_MANAGED_CONFIG_DIR".to_owned(),
                shown(self.path("managed")),
            ),
            ("TMPDIR".to_owned(), "/scratch-of-the-session".to_owned()),
            (
                "PATH".to_owned(),
                format!(
                    "{first}/usr/local/bin:/usr/bin:/bin:{}",
                    shown(self.path("bin"))
                ),
            ),
        ]));
        let worktree = Worktree::find(&self.path("ws"), &[], None);
        let loaded = config::load(&environment, &worktree, &worktree.root);
        assert!(!loaded.has_errors(), "{:?}", loaded.problems);
        let (agents, _) = Agents::build(&loaded.settings, &environment, &worktree);
        let rules = agents.get(agent).unwrap().rules.clone();
        (
            rules,
            PermissionContext::new(&environment, &worktree, &worktree.root),
        )
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the rows prepare their projects with the shell they are about"
)]
fn command(program: &str) -> std::process::Command {
    std::process::Command::new(program)
}

fn judge((rules, context): &(Rules, PermissionContext), line: &str) -> Verdict {
    evaluate(rules, &Rules::default(), &command_request(line, context))
}

fn name(action: Action) -> &'static str {
    match action {
        Action::Allow => "allow",
        Action::Ask => "ask",
        Action::Deny => "deny",
    }
}

/// Judges rows on several threads; returns the results in the order of the rows.
fn each<T: Send>(rows: &[Vec<String>], look: impl Fn(&[String]) -> T + Sync) -> Vec<T> {
    let share = rows.len().div_ceil(4).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = rows
            .chunks(share)
            .map(|rows| scope.spawn(|| rows.iter().map(|row| look(row)).collect::<Vec<_>>()))
            .collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap())
            .collect()
    })
}

/// A wrong verdict in a table of settings.
enum WrongVerdict {
    Lax(String),
    Strict(String),
}

#[test]
fn second_table_of_commands_has_expected_verdicts() {
    by_settings(
        include_str!("../../data/permission_cases_2.csv"),
        700,
        &[PROJECT],
    );
}

/// Commands that change control files or read secrets.
#[test]
fn protected_files_table_has_expected_verdicts() {
    by_settings(
        include_str!("../../data/permission_cases_protected.csv"),
        350,
        &[PROJECT, ATTACKED],
    );
}

/// Judges a table whose rows name an agent and its settings.
fn by_settings(table: &str, least: usize, preparations: &[&str]) {
    let rows = records(table);
    assert!(rows.len() > least, "{}", rows.len());
    let plain = TableFixture::new(preparations);
    let mut known: BTreeMap<(&str, &str), (Rules, PermissionContext)> = BTreeMap::new();
    for row in &rows {
        known
            .entry((&row[2], &row[3]))
            .or_insert_with(|| plain.agent(&row[2], &row[3], ""));
    }
    let found = each(&rows, |row| {
        let [id, input, agent, bash, setup, wanted, _, why] = row else {
            panic!("{row:?}")
        };
        let line: String = serde_json::from_str(input).unwrap();
        let verdict = if setup.is_empty() {
            judge(&known[&(agent.as_str(), bash.as_str())], &line)
        } else {
            let fixture = plain.copy();
            fixture.run(&format!("{{ {setup}\n}} 2>&1"));
            judge(
                &fixture.agent(agent, bash, if id.contains("path-dot") { ".:" } else { "" }),
                &line,
            )
        };
        let description = || {
            format!(
                "{id}: {}, wanted {wanted}: {line:?} {:?} ({why})",
                name(verdict.action),
                verdict.reason
            )
        };
        match (wanted.as_str(), verdict.action) {
            ("deny", Action::Allow | Action::Ask) | (">=ask", Action::Allow) => {
                Some(WrongVerdict::Lax(description()))
            }
            ("allow", Action::Ask | Action::Deny) => Some(WrongVerdict::Strict(description())),
            ("deny" | ">=ask" | "allow", _) => None,
            _ => panic!("{row:?}"),
        }
    });
    let mut lax = vec![];
    let mut strict = vec![];
    let mut questions = vec![];
    for (row, wrong) in rows.iter().zip(found) {
        match wrong {
            Some(WrongVerdict::Lax(text)) => lax.push(text),
            Some(WrongVerdict::Strict(text)) if row[0].starts_with("E-") => questions.push(text),
            Some(WrongVerdict::Strict(text)) => strict.push(text),
            None => {}
        }
    }
    let shown = format!(
        "too lax: {}\n{}\ntoo strict: {}\n{}\neveryday questions: {}\n{}",
        lax.len(),
        lax.join("\n"),
        strict.len(),
        strict.join("\n"),
        questions.len(),
        questions.join("\n"),
    );
    assert!(
        lax.is_empty() && strict.is_empty() && questions.len() <= EVERYDAY_QUESTIONS,
        "{shown}"
    );
}

/// The effect of sandboxes on verdicts: without one, in bubblewrap, in Landlock before it restricts
/// signals.
#[test]
fn sandbox_table_has_expected_verdicts() {
    let rows = records(include_str!("../../data/sandbox_cases.csv"));
    assert!(rows.len() > 250, "{}", rows.len());
    let fixture = TableFixture::new(&[PROJECT, SANDBOXED]);
    let agents = ["build", "plan"].map(|agent| fixture.agent(agent, "", ""));
    let read_only = |is_bubblewrap| SandboxGuarantee::ReadOnly {
        hides_secrets: false,
        blocks_signals: is_bubblewrap,
    };
    let landlock = SandboxGuarantee::Workspace {
        protects_modes: false,
        blocks_signals: false,
    };
    let wrong = each(&rows, |row| {
        let [id, agent, input, wanted @ .., why] = row else {
            panic!("{row:?}")
        };
        let line: String = serde_json::from_str(input).unwrap();
        let line = line.replace("OUTSIDE", "/opt/outside");
        let (policy, found) = match agent.as_str() {
            "plan" => (
                &agents[1],
                [SandboxGuarantee::None, read_only(true), read_only(false)],
            ),
            _ => (
                &agents[0],
                [
                    SandboxGuarantee::None,
                    SandboxGuarantee::WORKSPACE,
                    landlock,
                ],
            ),
        };
        let mut wrong = vec![];
        for (guarantee, wanted) in found.into_iter().zip(wanted) {
            let verdict = evaluate(
                &policy.0,
                &Rules::default(),
                &AccessRequest {
                    guarantee,
                    ..command_request(&line, &policy.1)
                },
            );
            if name(verdict.action) != wanted {
                wrong.push(describe(
                    id,
                    guarantee.as_str(),
                    &verdict,
                    &format!("{wanted} ({why})"),
                    &line,
                ));
            }
        }
        wrong
    })
    .concat();
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

const R1: &str = r#"{"*": "ask", "git diff*": "allow", "ls*": "allow"}"#;
const R2: &str = r#"{"*": "allow", "rm*": "deny"}"#;
const FREE: &str = r#"{"*": "allow"}"#;

/// The agents of the columns of the older tables.
struct Columns {
    r1: (Rules, PermissionContext),
    r2: (Rules, PermissionContext),
    plan: (Rules, PermissionContext),
    free: (Rules, PermissionContext),
    out: String,
}

impl Columns {
    fn of(fixture: &TableFixture) -> Self {
        Self {
            r1: fixture.agent("build", R1, ""),
            r2: fixture.agent("build", R2, ""),
            plan: fixture.agent("plan", "", ""),
            free: fixture.agent("build", FREE, ""),
            out: fixture.path("out").display().to_string(),
        }
    }
}

fn describe(id: &str, set: &str, verdict: &Verdict, wanted: &str, line: &str) -> String {
    format!(
        "{id} {set}: {}, wanted {wanted}: {line:?} {:?}",
        name(verdict.action),
        verdict.reason
    )
}

#[test]
fn table_of_commands_has_expected_verdicts() {
    let rows = records(include_str!(
        "../../../permission/data/permission_cases.csv"
    ));
    assert!(rows.len() > 150, "{}", rows.len());
    let plain = TableFixture::new(&[PROJECT, OLDER]);
    let default_columns = Columns::of(&plain);
    let wrong = each(&rows, |row| {
        let [
            id,
            class,
            input,
            _,
            _,
            setup,
            r1,
            r1_also,
            r2,
            r2_also,
            plan,
            ..,
        ] = row
        else {
            panic!("{row:?}")
        };
        let fixture = (!setup.is_empty()).then(|| plain.copy());
        if let Some(fixture) = &fixture {
            fixture.run(&format!("{{ {setup}\n}} 2>&1"));
        }
        let own = fixture.as_ref().map(Columns::of);
        let columns = own.as_ref().unwrap_or(&default_columns);
        let line: String = serde_json::from_str(input).unwrap();
        let line = line.replace("/OUT", &columns.out);
        let floor = row
            .last()
            .and_then(|reason| reason.split(' ').next())
            .unwrap();
        let sets = if class == "floor" {
            assert!(["allow", "ask", "deny"].contains(&floor), "{row:?}");
            vec![("all allowed", &columns.free, floor, "")]
        } else {
            vec![
                ("R1", &columns.r1, r1.as_str(), r1_also.as_str()),
                ("R2", &columns.r2, r2, r2_also),
                ("PLAN", &columns.plan, plan, ""),
            ]
        };
        let mut wrong = vec![];
        for (set, agent, wanted, also) in sets {
            let verdict = judge(agent, &line);
            let got = name(verdict.action);
            if !wanted.is_empty() && got != wanted && got != also {
                wrong.push(describe(id, set, &verdict, wanted, &line));
            }
        }
        wrong
    })
    .concat();
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn further_table_of_commands_has_expected_verdicts() {
    by_columns(include_str!(
        "../../../permission/data/permission_cases_more.csv"
    ));
}

/// Options that are abbreviated, joined to their values, separate from them, or unknown.
#[test]
fn options_table_has_expected_verdicts() {
    by_columns(include_str!("../../data/permission_cases_options.csv"));
}

/// Judges a table with one column for each agent.
fn by_columns(table: &str) {
    let rows = records(table);
    assert!(rows.len() > 60, "{}", rows.len());
    let fixture = TableFixture::new(&[PROJECT, OLDER]);
    let columns = Columns::of(&fixture);
    let wrong = each(&rows, |row| {
        let [id, class, input, wants @ .., _] = row else {
            panic!("{row:?}")
        };
        let line: String = serde_json::from_str(input).unwrap();
        let line = line.replace("/OUT", &columns.out);
        let sets = match class.as_str() {
            "floor" => vec![("all allowed", &columns.free)],
            _ => vec![
                ("R1", &columns.r1),
                ("R2", &columns.r2),
                ("PLAN", &columns.plan),
            ],
        };
        let mut wrong = vec![];
        for ((set, agent), wanted) in sets.into_iter().zip(wants) {
            let verdict = judge(agent, &line);
            if name(verdict.action) != wanted {
                wrong.push(describe(id, set, &verdict, wanted, &line));
            }
        }
        wrong
    })
    .concat();
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The programs that were started when the first table was made: the analysis finds each of them if
/// everything is allowed without a question. Programs that other programs start on their own are
/// left out.
#[test]
fn every_started_program_is_found() {
    const BY_ITSELF: [&str; 6] = ["G34", "G13", "D31", "H21", "H38", "E13"];
    let rows = records(include_str!(
        "../../../permission/data/permission_cases.csv"
    ));
    let plain = TableFixture::new(&[PROJECT, OLDER]);
    let default_columns = plain.agent("build", FREE, "");
    let found = each(&rows, |row| {
        let [id, class, input, _, _, setup, ..] = row else {
            panic!("{row:?}")
        };
        if class == "floor" || BY_ITSELF.contains(&id.as_str()) {
            return None;
        }
        let line: String = serde_json::from_str(input).unwrap();
        let fixture = (!setup.is_empty()).then(|| plain.copy());
        let own = fixture.as_ref().map(|fixture| {
            fixture.run(&format!("{{ {setup}\n}} 2>&1"));
            fixture.agent("build", FREE, "")
        });
        let verdict = judge(own.as_ref().unwrap_or(&default_columns), &line);
        if verdict.action != Action::Allow {
            return None;
        }
        let found: Vec<String> = verdict
            .units
            .iter()
            .filter_map(|unit| Some(unit.program.as_ref()?.rsplit('/').next()?.to_owned()))
            .collect();
        // A builtin started as a program or an interpreter's child process is named in the text.
        let lost = row[12].split(' ').find(|program| {
            !program.is_empty()
                && *program != "sh"
                && !found.iter().any(|name| name == program)
                && !line.contains(program)
        });
        Some(lost.map(|program| format!("{id}: {program} started, found {found:?}: {line}")))
    });
    let seen: Vec<Option<String>> = found.into_iter().flatten().collect();
    assert!(seen.len() > 60, "{}", seen.len());
    let wrong: Vec<String> = seen.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
