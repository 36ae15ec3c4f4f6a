//! Models that call tools badly: thirteen small tasks, each done by a model that makes a common
//! mistake first, and knows only the results of its calls. Counts the steps until the files are
//! right.
//!
//! ```text
//! ADJUTANT_HANDS=1 cargo test --test editor model_mistakes/    prints a row for each task: steps,
//!                                                              bytes of the requests
//! ADJUTANT_BINARY=path …                                       the same of another build
//! ```

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::client::Client;
use crate::model::{self, Answer, Model};
use crate::project::Project;

/// Texts of a result from which the model concludes that its call failed.
const FAILURES: [&str; 16] = [
    "not found",
    "no match",
    "must be read",
    "has not been read",
    "read it",
    "read the file",
    "invalid",
    "no tool named",
    "not run: ",
    "not applied",
    "nothing was changed",
    "could not",
    "cannot",
    "does not",
    "exit code: 1",
    "are not a json object",
];

/// Texts of a result that mean success, whatever else it contains.
const SUCCESSES: [&str; 4] = [
    "edit applied at line",
    "in all.",
    "replaced, at lines",
    "file written.",
];

/// Answers of the model, in order, that reach one goal.
type AnswerScript = Vec<String>;

/// A task for the model.
struct Task {
    name: &'static str,
    /// The files before, and as they must be at the end.
    files: BTreeMap<String, String>,
    wanted: BTreeMap<String, String>,
    /// Goals in this order, and the ways that are tried for each; the mistake comes first.
    goals: Vec<Vec<AnswerScript>>,
    /// The largest number of requests: as many as with an agent that rejects nothing.
    steps: usize,
}

/// Every task.
pub fn all() -> Vec<(&'static str, fn())> {
    vec![
        ("rename by edit", || run(&rename_by_edit())),
        ("rename by multiedit", || run(&rename_by_multiedit())),
        ("rename by patch", || run(&rename_by_patch())),
        ("line ends and tabs", || run(&line_ends_and_tabs())),
        (
            "letters that look alike",
            || run(&letters_that_look_alike()),
        ),
        ("line numbers copied", || run(&line_numbers_copied())),
        ("names of another agent", || run(&names_of_another_agent())),
        (
            "a server and its client",
            || run(&a_server_and_its_client()),
        ),
        ("a write that was cut off", || {
            run(&a_write_that_was_cut_off())
        }),
        ("a formatter in between", || run(&a_formatter_in_between())),
        ("instructions of a directory", || {
            run(&instructions_of_a_directory())
        }),
        ("a summary between two reads", || {
            run(&a_summary_between_two_reads())
        }),
        ("a rebase", || run(&a_rebase())),
        ("the first request is small", the_first_request_is_small),
        (
            "sessions of a project share their prompt",
            sessions_of_a_project_share_their_prompt,
        ),
    ]
}

fn call(tool: &str, arguments: &Value) -> String {
    format!("call {tool} {arguments}")
}

fn one(tool: &str, arguments: &Value) -> AnswerScript {
    vec![call(tool, arguments)]
}

fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

/// Eight files that use a name, as they are and as they shall be.
fn eight() -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let text = |n: usize, name: &str| {
        format!("fn user{n}() {{\n    let value = {name}({n});\n    show(value);\n}}\n")
    };
    let all = |name: &str| {
        (1..=8)
            .map(|n| (format!("src/f{n}.rs"), text(n, name)))
            .collect()
    };
    (all("fetch_old"), all("fetch_new"))
}

/// It knows the places from a search, and edits without reading.
fn rename_by_edit() -> Task {
    let (files, wanted) = eight();
    let edit = |n: usize| {
        let path = format!("src/f{n}.rs");
        let old = format!("    let value = fetch_old({n});");
        let new = format!("    let value = fetch_new({n});");
        let edit = call(
            "edit",
            &json!({"filePath": path, "oldString": old, "newString": new}),
        );
        vec![
            vec![edit.clone()],
            vec![call("read", &json!({"filePath": path})), edit],
        ]
    };
    let search = vec![one("grep", &json!({"pattern": "fetch_old"}))];
    Task {
        name: "rename by edit",
        files,
        wanted,
        goals: std::iter::once(search).chain((1..=8).map(edit)).collect(),
        steps: 10,
    }
}

/// The same with `replaceAll`, a file a call.
fn rename_by_multiedit() -> Task {
    let (files, wanted) = eight();
    let edit = |n: usize| {
        let path = format!("src/f{n}.rs");
        let edits =
            json!([{"oldString": "fetch_old", "newString": "fetch_new", "replaceAll": true}]);
        let edit = call("multiedit", &json!({"filePath": path, "edits": edits}));
        vec![
            vec![edit.clone()],
            vec![call("read", &json!({"filePath": path})), edit],
        ]
    };
    let search = vec![one(
        "bash",
        &json!({"command": "cat src/*.rs", "description": "look"}),
    )];
    Task {
        name: "rename by multiedit",
        files,
        wanted,
        goals: std::iter::once(search).chain((1..=8).map(edit)).collect(),
        steps: 10,
    }
}

/// One patch for all, whose sections are in no order.
fn rename_by_patch() -> Task {
    let (files, wanted) = eight();
    let section = |n: usize| {
        format!(
            "*** Update File: src/f{n}.rs\n@@\n fn user{n}() {{\n-    let value = fetch_old({n});\n+    let value = fetch_new({n});\n     show(value);\n"
        )
    };
    let patch = |all: String| {
        call(
            "apply_patch",
            &json!({"patchText": format!("*** Begin Patch\n{all}*** End Patch\n")}),
        )
    };
    let whole = patch([3, 1, 8, 2, 5, 4, 7, 6].map(section).concat());
    let mut after_reading: AnswerScript = (1..=8)
        .map(|n| call("read", &json!({"filePath": format!("src/f{n}.rs")})))
        .collect();
    after_reading.push(whole.clone());
    let search = vec![one("grep", &json!({"pattern": "fetch_old"}))];
    Task {
        name: "rename by patch",
        files,
        wanted,
        goals: vec![search, vec![vec![whole], after_reading]],
        steps: 3,
    }
}

/// A file with tabs and CRLF, edited with spaces and line feeds.
fn line_ends_and_tabs() -> Task {
    let edit = json!({"filePath": "a.c", "oldString": "    if (x) {\n        go();\n    }", "newString": "    if (x) {\n        stop();\n    }"});
    let exact = json!({"filePath": "a.c", "oldString": "go();", "newString": "stop();"});
    Task {
        name: "line ends and tabs",
        files: files(&[(
            "a.c",
            "void f(int x)\r\n{\r\n\tif (x) {\r\n\t\tgo();\r\n\t}\r\n}\r\n",
        )]),
        wanted: files(&[(
            "a.c",
            "void f(int x)\r\n{\r\n\tif (x) {\r\n\t\tstop();\r\n\t}\r\n}\r\n",
        )]),
        goals: vec![
            vec![one("read", &json!({"filePath": "a.c"}))],
            vec![one("edit", &edit), one("edit", &exact)],
        ],
        steps: 3,
    }
}

/// A hyphen that does not break and quotes of a typesetter, typed as on a keyboard.
fn letters_that_look_alike() -> Task {
    let before = "# Start\u{2011}up\n\nIt\u{2019}s \u{201c}fast\u{201d} today.\n";
    let edit = json!({"filePath": "a.md", "oldString": "It's \"fast\" today.", "newString": "It is quick today."});
    let whole = json!({"filePath": "a.md", "content": "# Start\u{2011}up\n\nIt is quick today.\n"});
    Task {
        name: "letters that look alike",
        files: files(&[("a.md", before)]),
        wanted: files(&[("a.md", "# Start\u{2011}up\n\nIt is quick today.\n")]),
        goals: vec![
            vec![one("read", &json!({"filePath": "a.md"}))],
            vec![one("edit", &edit), one("write", &whole)],
        ],
        steps: 3,
    }
}

/// Copies the line numbers that `read` prints into an edit.
fn line_numbers_copied() -> Task {
    let wrong = json!({"filePath": "a.py", "oldString": "2:     return 1\n3: ", "newString": "    return 2\n"});
    let right =
        json!({"filePath": "a.py", "oldString": "    return 1", "newString": "    return 2"});
    Task {
        name: "line numbers copied",
        files: files(&[("a.py", "def f():\n    return 1\n\ndef g():\n    return 3\n")]),
        wanted: files(&[("a.py", "def f():\n    return 2\n\ndef g():\n    return 3\n")]),
        goals: vec![
            vec![one("read", &json!({"filePath": "a.py"}))],
            vec![one("edit", &wrong), one("edit", &right)],
        ],
        steps: 3,
    }
}

/// Tools and arguments as another agent calls them.
fn names_of_another_agent() -> Task {
    let theirs = json!({"file_path": "a.txt", "old_str": "one", "new_str": "two"});
    let ours = json!({"filePath": "a.txt", "oldString": "one", "newString": "two"});
    let edits = json!({"path": "b.txt", "edits": "[{\"old_string\":\"one\",\"new_string\":\"two\",\"replace_all\":\"true\"}]"});
    let our_edits = json!({"filePath": "b.txt", "edits": [{"oldString": "one", "newString": "two", "replaceAll": true}]});
    Task {
        name: "names of another agent",
        files: files(&[("a.txt", "one\n"), ("b.txt", "one one\n")]),
        wanted: files(&[("a.txt", "two\n"), ("b.txt", "two two\n")]),
        goals: vec![
            vec![
                one("View", &json!({"path": "a.txt"})),
                one("read", &json!({"filePath": "a.txt"})),
            ],
            vec![one("str_replace", &theirs), one("edit", &ours)],
            vec![
                one("Bash", &json!({"cmd": "cat b.txt"})),
                one(
                    "bash",
                    &json!({"command": "cat b.txt", "description": "look"}),
                ),
            ],
            vec![one("MultiEdit", &edits), one("edit", &our_edits)],
        ],
        steps: 5,
    }
}

/// A server in the background of a shell, which logs; then a client queries it.
fn a_server_and_its_client() -> Task {
    let serve = "while sleep 0.02; do echo tick; echo tick >> ticks; done";
    let ask = "a=$(wc -l < ticks); sleep 0.5; b=$(wc -l < ticks); rm stop; test \"$b\" -gt \"$a\"";
    let ask = call(
        "bash",
        &json!({"command": ask, "description": "see whether it serves"}),
    );
    let started = call(
        "bash",
        &json!({"command": serve, "description": "serve", "run_in_background": true}),
    );
    Task {
        name: "a server and its client",
        files: files(&[("stop", "")]),
        wanted: files(&[]),
        goals: vec![
            vec![one(
                "bash",
                &json!({"command": format!("({serve}) & sleep 0.2"), "description": "serve"}),
            )],
            vec![
                vec![ask.clone()],
                vec![
                    "call bash {\"command\":\"touch stop\",\"description\":\"again\"}".into(),
                    started,
                    ask,
                ],
            ],
        ],
        steps: 3,
    }
}

/// A file that is too long for one answer.
fn a_write_that_was_cut_off() -> Task {
    let whole: String = (0..40).map(|n| format!("line {n}\n")).collect();
    let (first, second) = whole.split_at(whole.find("line 20").unwrap());
    let cut = format!("raw data: {}\nfinish length", {
        let arguments = format!(
            "{{\"filePath\":\"long.txt\",\"content\":\"{}",
            first.replace('\n', "\\n")
        );
        let call = json!({"index": 0, "id": "cut-1", "type": "function", "function": {"name": "write", "arguments": arguments}});
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench-model",
            "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]})
    });
    let last = first.lines().last().unwrap_or_default();
    let parts = vec![
        call("write", &json!({"filePath": "long.txt", "content": first})),
        call(
            "edit",
            &json!({"filePath": "long.txt", "oldString": last, "newString": format!("{last}\n{}", second.trim_end_matches('\n'))}),
        ),
    ];
    Task {
        name: "a write that was cut off",
        files: files(&[]),
        wanted: files(&[("long.txt", &whole)]),
        goals: vec![vec![vec![cut], parts]],
        steps: 4,
    }
}

/// A formatter of the project changes the edited text; the next edit begins at its former end.
fn a_formatter_in_between() -> Task {
    let first = json!({"filePath": "a.js", "oldString": "let a=1;", "newString": "let a=2;"});
    let format = json!({"command": "sed -i 's/=/ = /' a.js", "description": "format"});
    let second = call(
        "edit",
        &json!({"filePath": "a.js", "oldString": "let b = 1;", "newString": "let b = 2;"}),
    );
    Task {
        name: "a formatter in between",
        files: files(&[("a.js", "let a=1;\nlet b=1;\n")]),
        wanted: files(&[("a.js", "let a = 2;\nlet b = 2;\n")]),
        goals: vec![
            vec![one("read", &json!({"filePath": "a.js"}))],
            vec![one("edit", &first)],
            vec![one("bash", &format)],
            vec![
                vec![second.clone()],
                vec![call("read", &json!({"filePath": "a.js"})), second],
            ],
        ],
        steps: 5,
    }
}

/// The first edit breaks a rule of the directory, which the model has not seen.
fn instructions_of_a_directory() -> Task {
    let edit = |new: &str| {
        let input = json!({"filePath": "web/a.js", "oldString": "a()", "newString": new});
        one("edit", &input)
    };
    Task {
        name: "instructions of a directory",
        files: files(&[("web/AGENTS.md", "No semicolons.\n"), ("web/a.js", "a()\n")]),
        wanted: files(&[("web/AGENTS.md", "No semicolons.\n"), ("web/a.js", "b()\n")]),
        goals: vec![vec![edit("b();"), edit("b()")]],
        steps: 3,
    }
}

/// Two files are read in one message, and the window is full: nothing may be read again.
fn a_summary_between_two_reads() -> Task {
    let text = |name: &str| -> String { (0..40).map(|n| format!("{name} {n}\n")).collect() };
    let read = |name: &str| call("read", &json!({"filePath": name}));
    let both = format!("{}\n{}\nusage 97000 10", read("a.txt"), read("b.txt"));
    let edit = |name: &str| {
        let old = format!("{name} 20");
        let new = format!("{name} twenty");
        let path = format!("{name}.txt");
        one(
            "edit",
            &json!({"filePath": path, "oldString": old, "newString": new}),
        )
    };
    let changed = |name: &str| text(name).replace(&format!("{name} 20"), &format!("{name} twenty"));
    Task {
        name: "a summary between two reads",
        files: files(&[("a.txt", &text("a")), ("b.txt", &text("b"))]),
        wanted: files(&[("a.txt", &changed("a")), ("b.txt", &changed("b"))]),
        goals: vec![vec![vec![both]], vec![edit("a")], vec![edit("b")]],
        steps: 4,
    }
}

/// The name of the task with two branches.
const REBASE: &str = "a rebase";

/// Makes the branch `side`, which conflicts with `main`.
const BRANCHES: &str = "git config user.name A && git config user.email a@example.org && git switch -qc side && echo side > a.txt && git commit -qam side && \
                        git switch -q main && echo main > a.txt && git commit -qam main && git switch -q side";

/// A rebase with a conflict, which is continued without an editor.
fn a_rebase() -> Task {
    let bash = |command: &str| {
        one(
            "bash",
            &json!({"command": command, "description": "rebase"}),
        )
    };
    let resolve = one(
        "write",
        &json!({"filePath": "a.txt", "content": "main and side\n"}),
    );
    let check = "git diff --quiet HEAD && test \"$(git rev-list --count HEAD)\" = 3 && rm stop";
    Task {
        name: REBASE,
        files: files(&[("a.txt", "one\n"), ("stop", "")]),
        wanted: files(&[("a.txt", "main and side\n")]),
        goals: vec![
            vec![bash(
                "git rebase main 2> /dev/null; test -d .git/rebase-merge",
            )],
            vec![vec![call("read", &json!({"filePath": "a.txt"}))]],
            vec![resolve],
            vec![
                bash("git add a.txt && git rebase --continue"),
                bash("git add a.txt && GIT_EDITOR=true git rebase --continue"),
            ],
            vec![bash(check)],
        ],
        steps: 7,
    }
}

/// Position of the model in its task.
struct Responder {
    goals: Vec<Vec<AnswerScript>>,
    goal: usize,
    way: usize,
    step: usize,
    lost: bool,
}

impl Responder {
    fn answer(&mut self, request: &Value) -> Vec<Answer> {
        if !request["tools"].is_array() {
            return model::script("text: \"## Objective\\n\\n- to change what was read\"").unwrap();
        }
        // A summary is followed by a note.
        let last = request["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .rev()
            .skip_while(|message| message["role"] == "user");
        let results: Vec<String> = last
            .take_while(|message| message["role"] == "tool")
            .map(|message| message["content"].to_string().to_lowercase())
            .collect();
        if !results.is_empty() {
            let says =
                |result: &String, words: &[&str]| words.iter().any(|words| result.contains(words));
            let failed = results
                .iter()
                .any(|result| says(result, &FAILURES) && !says(result, &SUCCESSES));
            let ways = &self.goals[self.goal];
            match (failed, self.step + 1 < ways[self.way].len()) {
                (true, _) => (self.way, self.step) = (self.way + 1, 0),
                (false, true) => self.step += 1,
                (false, false) => (self.goal, self.way, self.step) = (self.goal + 1, 0, 0),
            }
        }
        let words = match self.goals.get(self.goal).map(|ways| ways.get(self.way)) {
            Some(Some(way)) => way[self.step].clone(),
            Some(None) => {
                self.lost = true;
                "text: I do not know how.".to_owned()
            }
            None => "text: Done.".to_owned(),
        };
        model::script(&words).unwrap()
    }
}

/// The most bytes of a first request: system prompt, tools, and a short prompt, with a model that
/// edits by text and one that edits by patches.
const MAX_FIRST_REQUEST_BYTES: usize = 14_000;

fn the_first_request_is_small() {
    for api_id in ["usual", "claude-x", "gpt-5"] {
        let (tell, told) = std::sync::mpsc::channel();
        let model = Model::answering_with(move |request| {
            let tools = request["tools"].as_array().into_iter().flatten();
            let names: Vec<String> = tools
                .map(|tool| tool["function"]["name"].to_string())
                .collect();
            tell.send(names).ok();
            model::script("text: Done.").unwrap()
        });
        let project = Project::new();
        let models = json!({ api_id: { "name": "Bench", "limit": { "context": 100_000, "output": 8_000 } } });
        let settings = json!({ "model": format!("bench/{api_id}"), "provider": { "bench": { "models": models } } });
        project.provider(&model.base(), &settings);
        let mut client = Client::new(project);
        let session = client.open();
        client.prompt(2, &session, "Hello.");
        client.answer(2);
        client.leave();
        let first = model
            .received_requests()
            .into_iter()
            .find(|request| request.tools)
            .unwrap();
        if std::env::var_os("ADJUTANT_HANDS").is_some() {
            eprintln!("| first request, {api_id} | | {} | |", first.bytes);
        }
        assert!(
            first.bytes < MAX_FIRST_REQUEST_BYTES,
            "{api_id}: {} bytes",
            first.bytes
        );
        let names = told.iter().find(|names| !names.is_empty()).unwrap();
        for name in ["\"list\"", "\"multiedit\"", "\"todoread\""] {
            assert!(
                !names.contains(&name.to_owned()),
                "{name} is offered: {names:?}"
            );
        }
    }
}

/// The most bytes of a system prompt that differ between two sessions of a project.
const MAX_OWN_BYTES: usize = 400;

/// Two sessions of a project have the same system prompt up to the session's own part at its end,
/// which follows the project's instructions. Providers' caches depend on it.
fn sessions_of_a_project_share_their_prompt() {
    let (tell, told) = std::sync::mpsc::channel();
    let model = Model::answering_with(move |request| {
        let system = request["messages"][0]["content"]
            .as_str()
            .map(str::to_owned);
        tell.send((system, request["tools"].clone())).ok();
        model::script("text: Done.").unwrap()
    });
    let project = Project::new();
    project.provider(&model.base(), &json!({}));
    project.write("AGENTS.md", "Be kind to all who read this.\n");
    let mut client = Client::new(project);
    let mut id = 1;
    for words in ["Hello.", "Good evening."] {
        let session = client.open();
        id += 1;
        client.prompt(id, &session, words);
        client.answer(id);
    }
    client.leave();
    let prompts: Vec<String> = told
        .try_iter()
        .filter(|(_, tools)| tools.is_array())
        .filter_map(|(system, _)| system)
        .collect();
    let [one, other] = &prompts[..] else {
        panic!("{prompts:?}");
    };
    let pairs = one.bytes().zip(other.bytes());
    let same = pairs.take_while(|(one, other)| one == other).count();
    let own = &one[same..];
    assert_ne!(one, other, "each has its mark");
    assert!(
        own.len() < MAX_OWN_BYTES && !own.contains("Be kind"),
        "{own}"
    );
    assert!(one[..same].contains("Be kind"), "{one}");
    if std::env::var_os("ADJUTANT_HANDS").is_some() {
        eprintln!("| shared system prompt | | {same} of {} | |", one.len());
    }
}

fn run(task: &Task) {
    let mut mind = Responder {
        goals: task.goals.clone(),
        goal: 0,
        way: 0,
        step: 0,
        lost: false,
    };
    let model = Model::answering_with(move |request| mind.answer(request));
    let project = Project::new();
    // Patches are offered to the models that were taught to write them.
    let models =
        json!({ "gpt-5": { "name": "Bench", "limit": { "context": 100_000, "output": 8_000 } } });
    let taught = json!({ "model": "bench/gpt-5", "provider": { "bench": { "models": models } }, "permission": "allow" });
    let usual = json!({ "permission": "allow" });
    project.provider(
        &model.base(),
        if task.name.ends_with("patch") {
            &taught
        } else {
            &usual
        },
    );
    for (path, text) in &task.files {
        project.write(path, text);
    }
    if task.name == REBASE {
        project.git();
        project.shell(BRANCHES);
    }
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Do it.");
    let (answer, _) = client.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let cwd = client.project.cwd();
    let steps = model
        .received_requests()
        .iter()
        .filter(|request| request.tools)
        .count();
    let bytes: usize = model
        .received_requests()
        .iter()
        .map(|request| request.bytes)
        .sum();
    let requests = model.requests();
    let mut wrong = Vec::new();
    for (path, text) in &task.wanted {
        let found = fs::read_to_string(cwd.join(path)).unwrap_or_else(|e| e.to_string());
        if found != *text {
            wrong.push(format!("{path}: {found:?}"));
        }
    }
    for path in task
        .files
        .keys()
        .filter(|path| !task.wanted.contains_key(*path))
    {
        if cwd.join(path).exists() {
            wrong.push(format!("{path} is still there"));
        }
    }
    client.leave();
    if std::env::var_os("ADJUTANT_HANDS").is_some() {
        let state = if wrong.is_empty() { "right" } else { "WRONG" };
        eprintln!(
            "| {} | {steps} of {} | {bytes} | {state} |",
            task.name, task.steps
        );
        return;
    }
    let last = requests.last().map(ToString::to_string).unwrap_or_default();
    assert!(wrong.is_empty(), "{wrong:?}\n{last}");
    assert!(
        steps <= task.steps,
        "{steps} steps instead of {}:\n{last}",
        task.steps
    );
}
