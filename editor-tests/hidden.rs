//! Files hidden from commands, the programs that see them nevertheless, and the files that a yes
//! opens: through the real binary, in the sandbox of this machine.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::client::Client;
use crate::model::{self, Model};
use crate::project::Project;
use crate::sandbox::{elsewhere, only, sandbox_report, turn, words};

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 11] = [
    (
        "commands see no credentials and no services",
        commands_see_no_credentials,
    ),
    (
        "program that needs a credential sees it",
        program_that_needs_credential_sees_it,
    ),
    ("settings hide and show files", settings_hide_and_show),
    (
        "planner's commands see no secrets of the project",
        planner_sees_no_secrets,
    ),
    (
        "file that cannot be hidden is asked about (landlock)",
        file_that_cannot_be_hidden_is_asked_about,
    ),
    ("explanations agree with calls (bwrap)", || {
        explanations_agree_with_calls("bwrap")
    }),
    ("explanations agree with calls (landlock)", || {
        explanations_agree_with_calls("landlock")
    }),
    (
        "allowed file is opened for that call only",
        allowed_file_is_opened_for_that_call,
    ),
    (
        "everyday programs work in the sandbox",
        everyday_programs_work,
    ),
    (
        "commands without the tested sandbox are refused",
        commands_without_tested_sandbox_are_refused,
    ),
    ("doctor lists hidden files", doctor_lists_hidden_files),
];

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nKEY-OF-SSH\n";

/// Returns a project whose home holds credentials; the commands try to read them.
fn fixture(mechanism: &str, settings: &Value, commands: &[&str]) -> Option<(Project, Model)> {
    let calls: Vec<String> = commands
        .iter()
        .map(|command| format!("call bash {}\n---\n", json!({ "command": command })))
        .collect();
    let model = Model::start(model::script(&format!("{}text: Done.", calls.concat())).unwrap());
    let mut project = Project::new();
    project.provider(&model.base(), settings);
    only(&mut project, mechanism);
    for (path, text) in [
        ("~/.aws/credentials", "KEY-OF-AWS"),
        ("~/.config/gh/hosts.yml", "KEY-OF-GH"),
        ("~/.ssh/work", KEY),
        ("~/.ssh/config", "CONFIG-OF-SSH"),
        ("~/.bash_history", "KEY-OF-HISTORY"),
        ("~/.npmrc", "TOKEN-OF-NPM"),
        ("~/moved/config", "KEY-OF-KUBE"),
        (".env", "KEY-OF-PROJECT"),
    ] {
        project.write(path, text);
    }
    let kube = project.path("~/moved/config").display().to_string();
    project.set("KUBECONFIG", Some(&kube));
    let mut doctor = project.command(env!("CARGO_BIN_EXE_adjutant"));
    let output = doctor
        .args(["doctor", "--json"])
        .current_dir(project.cwd())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (report["sandbox"]["workspaceWrite"]["mechanism"] == mechanism).then_some((project, model))
}

/// Runs the commands, and gives back the project, the questions and all that the model saw.
fn play(
    project: Project,
    model: &Model,
    mode: &str,
) -> (std::sync::Arc<Project>, Vec<Value>, String) {
    let mut client = Client::new(project);
    let session = client.open();
    let (questions, updates) = turn(&mut client, &session, mode);
    let project = client.leave();
    assert_eq!(
        model.problems(),
        Vec::<String>::new(),
        "{}",
        words(&updates)
    );
    (
        project,
        questions,
        model.requests().last().unwrap().to_string(),
    )
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn commands_see_no_credentials() {
    let look = "cat ~/.aws/credentials ~/.config/gh/hosts.yml ~/.ssh/* ~/.bash_history ~/.npmrc ~/moved/config\n\
        ls -A ~/.aws $XDG_RUNTIME_DIR\n\
        for socket in $XDG_RUNTIME_DIR/bus $HOME/.agent; do [ -S $socket ] && echo REACHED; done; true\n";
    let hook = json!({ "look": { "on": "prompt", "command": ["sh", "-c", "sh ~/look.sh > seen-by-hook 2>&1"] } });
    let settings = json!({ "sandbox": "auto", "hook": hook });
    let Some((mut project, model)) = fixture("bwrap", &settings, &["sh look.sh"]) else {
        return;
    };
    project.write("look.sh", look);
    project.write("~/look.sh", look);
    fs::create_dir(project.path("tmp:run")).unwrap();
    let run = project.path("tmp:run");
    let agent = project.path("~/.agent");
    let _sockets = [run.join("bus"), agent.clone()].map(|path| UnixListener::bind(path).unwrap());
    project.set("XDG_RUNTIME_DIR", Some(&run.display().to_string()));
    project.set("SSH_AUTH_SOCK", Some(&agent.display().to_string()));
    let (project, _, sees) = play(project, &model, "build");
    let hook = fs::read_to_string(project.path("seen-by-hook")).unwrap();
    for seen in [&sees, &hook] {
        assert!(
            !seen.contains("KEY-OF") && !seen.contains("REACHED"),
            "{seen}"
        );
        assert!(
            seen.contains("CONFIG-OF-SSH") && seen.contains("TOKEN-OF-NPM"),
            "{seen}"
        );
    }
}

fn program_that_needs_credential_sees_it() {
    let Some(dir) = elsewhere() else { return };
    let commands = [
        "gh pr list",
        "gh pr list | head -1; echo second",
        "gh pr list; sh other.sh",
        "sh other.sh",
        "cat ~/.config/gh/hosts.yml; echo named",
        "git ls-remote ssh://host/x; echo fetched",
        "python3 -c 'import subprocess; subprocess.run([\"git\", \"ls-remote\", \"ssh://host/x\"])'; false",
    ];
    let Some((mut project, model)) = fixture("bwrap", &json!({ "sandbox": "auto" }), &commands)
    else {
        return;
    };
    program(
        &dir.path().join("gh"),
        "#!/bin/sh\ncat ~/.config/gh/hosts.yml || exit 1\n",
    );
    program(&dir.path().join("ssh"), "#!/bin/sh\ncat ~/.ssh/work >&2\n");
    project.write("other.sh", "cat ~/.config/gh/hosts.yml; false\n");
    let path = format!("{}:{}", dir.path().display(), project.variable("PATH"));
    project.set("PATH", Some(&path));
    let mut client = Client::new(project);
    let session = client.open();
    let (_, updates) = turn(&mut client, &session, "build");
    client.leave();
    let results: Vec<String> = updates
        .iter()
        .filter(|update| {
            update["sessionUpdate"] == "tool_call_update" && !update["rawOutput"].is_null()
        })
        .map(|update| update["content"].to_string())
        .collect();
    let seen: Vec<bool> = results
        .iter()
        .map(|result| result.contains("KEY-OF"))
        .collect();
    assert_eq!(
        seen,
        [true, true, false, false, true, true, false],
        "{results:#?}"
    );
    let sees = model.requests().last().unwrap().to_string();
    assert!(
        sees.contains("`~/.config/gh/hosts.yml` is hidden from commands here, but visible to commands made of gh, "),
        "{sees}"
    );
}

fn settings_hide_and_show() {
    let sandbox = json!({ "hide": ["~/.npmrc", "~/moved"], "show": ["aws", "~/.bash_history", "kubernetes"] });
    let commands = ["sh look.sh"];
    let Some((project, model)) = fixture("bwrap", &json!({ "sandbox": sandbox }), &commands) else {
        return;
    };
    project.write(
        "look.sh",
        "cat ~/.aws/credentials ~/.bash_history ~/.npmrc ~/moved/config ~/.config/gh/hosts.yml\n",
    );
    // A project has no say in it.
    project.write(
        "opencode.json",
        r#"{ "sandbox": { "mode": "required", "show": ["forges"] } }"#,
    );
    let (_, _, sees) = play(project, &model, "build");
    for (word, seen) in [
        ("KEY-OF-AWS", true),
        ("KEY-OF-HISTORY", true),
        ("TOKEN-OF-NPM", false),
        ("KEY-OF-GH", false),
    ] {
        assert_eq!(sees.contains(word), seen, "{word}: {sees}");
    }
}

fn planner_sees_no_secrets() {
    let settings = json!({ "sandbox": { "unattended": true } });
    let commands = ["sh look.sh; false", "cat .env; echo named"];
    let Some((project, model)) = fixture("bwrap", &settings, &commands) else {
        return;
    };
    project.write("look.sh", "cat .env; cat plain\n");
    project.write("plain", "PLAIN-TEXT");
    let (_, questions, sees) = play(project, &model, "plan");
    assert_eq!(questions.len(), 1, "{questions:#?}");
    assert!(
        sees.contains("PLAIN-TEXT") && sees.contains(".env` is hidden from commands here"),
        "{sees}"
    );
    // Once, by the line that named it and was allowed.
    assert_eq!(sees.matches("KEY-OF-PROJECT").count(), 1, "{sees}");
}

fn file_that_cannot_be_hidden_is_asked_about() {
    let settings = json!({ "sandbox": { "unattended": true } });
    // The command, and whether it is asked about.
    for (command, asked) in [
        ("sh plain.sh", false),
        ("python3 -c 'print(open(\".env\").read())'", true),
        ("sh plain.sh ~/.aws", true),
        ("sh plain.sh &", true),
    ] {
        let Some((project, model)) = fixture("landlock", &settings, &[command]) else {
            return;
        };
        project.write("plain.sh", "echo plain\n");
        let (_, questions, sees) = play(project, &model, "plan");
        assert_eq!(!questions.is_empty(), asked, "{command}: {sees}");
    }
}

/// Compares the questions about commands with the verdicts of `permissions explain` and
/// `permissions check`, which run nothing.
fn explanations_agree_with_calls(mechanism: &str) {
    let commands = [
        "cat plain.sh",
        "cat TMP/note",
        "sh plain.sh",
        "sh plain.sh ~/.aws",
        "sh plain.sh &",
        "cat .env",
    ];
    let settings = |sandbox: Value| json!({ "sandbox": sandbox });
    for (agent, settings) in [
        ("plan", settings(json!("auto"))),
        ("plan", settings(json!({ "unattended": false }))),
        ("plan", settings(json!({ "network": true }))),
        ("build", settings(json!("required"))),
    ] {
        let temporary = Project::new();
        temporary.write("tmp:note", "noted\n");
        let directory = temporary.path("tmp:.").display().to_string();
        let commands =
            commands.map(|command| command.replace("TMP", directory.trim_end_matches("/.")));
        let lines = commands.each_ref().map(String::as_str);
        let Some((project, model)) = fixture(mechanism, &settings, &lines) else {
            return;
        };
        project.write("plain.sh", "echo plain\n");
        let (project, questions, _) = play(project, &model, agent);
        let asked: Vec<&str> = questions
            .iter()
            .filter_map(|question| question["toolCall"]["rawInput"]["command"].as_str())
            .collect();
        for command in lines {
            let verdict = if asked.contains(&command) {
                "ask"
            } else {
                "allow"
            };
            let arguments = [
                "permissions",
                "explain",
                "--json",
                "--agent",
                agent,
                command,
            ];
            let explained: Value = serde_json::from_str(&output(&project, &arguments, "")).unwrap();
            let question = json!({ "id": 1, "bash": command }).to_string();
            let arguments = ["permissions", "check", "--agent", agent];
            let checked: Value =
                serde_json::from_str(&output(&project, &arguments, &question)).unwrap();
            assert_eq!(
                [&explained[0]["verdict"], &checked["verdict"]],
                [verdict, verdict],
                "{mechanism}, {agent}, {settings}: {command}"
            );
        }
    }
}

/// Returns the output of adjutant, run in the project with this input.
fn output(project: &Project, arguments: &[&str], input: &str) -> String {
    let mut child = project
        .command(env!("CARGO_BIN_EXE_adjutant"))
        .args(arguments)
        .current_dir(project.cwd())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that a yes opens the file in the sandbox, for that call only.
fn allowed_file_is_opened_for_that_call() {
    let Some(outside) = elsewhere() else { return };
    let out = outside.path().display();
    let commands = [
        "echo hook > .git/hooks/pre-commit",
        "git config user.email a@example.org",
        "echo line >> OUT/known",
        "sed -i s/line/changed/ OUT/known",
        "sh evil.sh; echo x > OUT/new",
        "sh evil.sh; echo x > .git/hooks/post-commit",
        "sh evil.sh",
    ]
    .map(|command| command.replace("OUT", &out.to_string()));
    let commands = commands.each_ref().map(String::as_str);
    let Some((project, model)) = fixture("bwrap", &json!({ "sandbox": "auto" }), &commands) else {
        return;
    };
    project.git();
    fs::write(outside.path().join("known"), "first\n").unwrap();
    let evil = format!(
        "echo evil > .git/hooks/pre-commit; echo evil >> .git/config; echo evil > {out}/evil\n"
    );
    project.write("evil.sh", &evil);
    let (project, questions, sees) = play(project, &model, "build");
    assert_eq!(questions.len(), 6, "{questions:#?}");
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        text(&project.path(".git/hooks/pre-commit")),
        "hook\n",
        "{sees}"
    );
    assert_eq!(
        text(&project.path(".git/hooks/post-commit")),
        "x\n",
        "{sees}"
    );
    let config = text(&project.path(".git/config"));
    assert!(
        config.contains("a@example.org") && !config.contains("evil"),
        "{config}"
    );
    assert_eq!(text(&outside.path().join("known")), "first\nchanged\n");
    assert_eq!(text(&outside.path().join("new")), "x\n");
    assert!(!outside.path().join("evil").exists());
}

/// Lines of programs that people use every day; those that are not installed are passed by.
const EVERYDAY: &[(&str, &str)] = &[
    (
        "git",
        "git init -q r && git -C r -c user.name=a -c user.email=a@b commit -q --allow-empty -m a && git -C r log --oneline",
    ),
    (
        "git",
        "git clone -q file://$PWD/r cloned && git -C cloned fetch -q && git -C cloned status --short",
    ),
    (
        "git",
        "git clone -q ssh://host$PWD/r over-ssh && git -C over-ssh log --oneline",
    ),
    (
        "ssh-keygen",
        "git commit -q --allow-empty -m s && git cat-file commit HEAD | grep -q 'SSH SIGNATURE'",
    ),
    (
        "node",
        "node -e 'require(\"fs\").writeFileSync(require(\"os\").tmpdir() + \"/x\", \"x\")'",
    ),
    (
        "npm",
        "mkdir n && cd n && npm init -y >/dev/null && npm pack --silent",
    ),
    ("npm", "cd n && npm config get registry"),
    (
        "python3",
        "python3 -c 'import ssl, sqlite3, tempfile; tempfile.NamedTemporaryFile()'",
    ),
    (
        "python3",
        "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'",
    ),
    ("pip", "pip list >/dev/null && pip config list"),
    ("uv", "uv --version"),
    (
        "cargo",
        "cargo init -q --lib c --vcs none && cd c && cargo build -q --offline",
    ),
    ("rustc", "echo 'fn main() {}' > m.rs && rustc m.rs && ./m"),
    ("go", "go version && go env GOPATH"),
    (
        "make",
        "printf 'all:\\n\\t@echo made\\n' > Makefile && make",
    ),
    (
        "cc",
        "echo 'int main(void) { return 0; }' > m.c && cc -o mc m.c && ./mc",
    ),
    ("docker", "docker --version"),
    ("gh", "gh --version"),
    ("psql", "psql --version"),
    ("sqlite3", "sqlite3 s.db 'create table t (a); select 1;'"),
    ("curl", "curl -sS file://$PWD/Makefile"),
    ("wget", "wget --version >/dev/null"),
    ("ssh", "ssh -V"),
    (
        "ssh-keygen",
        "ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -l -f key.pub",
    ),
    ("gpg", "gpg --version >/dev/null"),
    ("tmux", "tmux -V"),
    ("jq", "echo '{\"a\":1}' | jq .a"),
    ("perl", "perl -pe 's/a/b/' Makefile"),
    ("java", "java -version"),
    ("mvn", "mvn --version"),
    ("tar", "tar czf t.tgz r && tar tzf t.tgz"),
    ("rsync", "rsync -a r/ copy/"),
    ("find", "find . -name '*.rs' | xargs grep -l main"),
    (
        "sort",
        "sort -u Makefile | uniq -c | awk '{ print $1 }' | sed -n 1p",
    ),
    ("mktemp", "f=$(mktemp) && echo x > $f && rm $f"),
    ("ps", "ps aux | head -1 && id -un"),
    ("openssl", "openssl rand -hex 4"),
    ("unzip", "unzip -v | head -1"),
];

fn everyday_programs_work() {
    let Some(dir) = elsewhere() else { return };
    let path = format!(
        "{}:{}",
        dir.path().display(),
        std::env::var("PATH").unwrap()
    );
    let is_here = |name: &str| {
        path.split(':')
            .any(|dir| Path::new(dir).join(name).is_file())
    };
    let lines: Vec<&str> = EVERYDAY
        .iter()
        .filter(|(name, _)| is_here(name))
        .map(|(_, line)| *line)
        .collect();
    let Some((mut project, _model)) = fixture("bwrap", &json!({ "sandbox": "auto" }), &lines)
    else {
        return;
    };
    // It acts as a server would, if the key is there.
    let ssh = "#!/bin/sh\ncase $1 in -V) exit 0;; esac\ngrep -q KEY-OF-SSH ~/.ssh/work || exit 1\nfor last; do :; done\nexec sh -c \"$last\"\n";
    program(&dir.path().join("ssh"), ssh);
    project.set("PATH", Some(&path));
    // Toolchains live in the real home.
    for (name, folder) in [
        ("CARGO_HOME", ".cargo"),
        ("RUSTUP_HOME", ".rustup"),
        ("PYENV_ROOT", ".pyenv"),
    ] {
        let real = std::env::var(name)
            .ok()
            .or_else(|| Some(std::env::home_dir()?.join(folder).display().to_string()));
        project.set(name, real.as_deref());
    }
    project.shell(
        "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/sign && git init -q && git config user.name a && git config user.email a@b && git config commit.gpgsign true && git config gpg.format ssh && \
         git config user.signingkey ~/.ssh/sign",
    );
    let mut client = Client::new(project);
    let session = client.open();
    let (_, updates) = turn(&mut client, &session, "build");
    client.leave();
    let outputs = updates
        .iter()
        .filter(|update| !update["rawOutput"]["exit"].is_null());
    let failed: Vec<String> = outputs
        .clone()
        .filter(|update| update["rawOutput"]["exit"] != 0)
        .map(ToString::to_string)
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(outputs.count(), lines.len());
}

fn doctor_lists_hidden_files() {
    let Some((mut project, _model)) = fixture(
        "bwrap",
        &json!({ "sandbox": { "show": ["gnupg", "nothing"] } }),
        &[],
    ) else {
        return;
    };
    project.set("ADJUTANT_SANDBOX_DISABLE", None);
    let mut doctor = project.command(env!("CARGO_BIN_EXE_adjutant"));
    let output = doctor
        .arg("doctor")
        .current_dir(project.cwd())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("aws: ~/.aws (credentials of AWS): visible to commands made of aws, "),
        "{text}"
    );
    assert!(text.contains("kubernetes: ~/moved/config"), "{text}");
    assert!(
        text.contains(
            "`sandbox.show` names nothing, which is neither a name in this list nor a path"
        ),
        "{text}"
    );
}

/// Removes the sandbox after its trial, or replaces it by another program of its name: a command
/// that was allowed because of it is not started.
fn commands_without_tested_sandbox_are_refused() {
    let Some(dir) = elsewhere() else { return };
    let real = std::env::var("PATH")
        .unwrap()
        .split(':')
        .map(|dir| Path::new(dir).join("bwrap"))
        .find(|file| file.is_file());
    let Some(real) = real else { return };
    let first = dir.path().join("first");
    let second = dir.path().join("second");
    let install = |dir: &Path, text: Option<&str>| {
        fs::create_dir_all(dir).unwrap();
        let file = dir.join("bwrap");
        match text {
            Some(text) => fs::write(&file, text).unwrap(),
            None => drop(fs::copy(&real, &file).unwrap()),
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    };
    install(&first, None);
    let call = |name: &str| {
        format!(
            "call bash {}\n---\ntext: Done.",
            json!({ "command": format!("touch {name}") })
        )
    };
    let model = Model::start(
        model::script(&format!("{}\n---\n{}", call("before"), call("after"))).unwrap(),
    );
    let mut project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    only(&mut project, "bwrap");
    let path = format!(
        "{}:{}:{}",
        first.display(),
        second.display(),
        std::env::var("PATH").unwrap()
    );
    project.set("PATH", Some(&path));
    if sandbox_report(&project, "workspaceWrite")["mechanism"] != "bwrap" {
        return;
    }
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(3, &session, "Go.");
    client.answer(3);
    fs::remove_file(first.join("bwrap")).unwrap();
    install(
        &second,
        Some("#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift; \"$@\"\n"),
    );
    client.prompt(4, &session, "Go on.");
    client.answer(4);
    let project = client.leave();
    assert!(project.path("before").exists());
    assert!(!project.path("after").exists());
    let sees = model.requests().last().unwrap().to_string();
    assert!(
        sees.contains("bwrap is gone. Nothing runs without the sandbox that was found"),
        "{sees}"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}
