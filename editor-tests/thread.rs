//! Tools must not block the thread that reads messages, whatever a model's arguments or a file
//! contain: compares the CPU time of this thread for a call at two sizes. Waiting and other
//! threads do not count, so that the result is the same on a busy machine.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::loopback::Server;
use crate::model::{Model, script};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 8] = [
    (
        "tools do not block the thread that reads messages: files",
        || check(&FILES),
    ),
    (
        "tools do not block the thread that reads messages: edits",
        || check(&EDITS),
    ),
    (
        "tools do not block the thread that reads messages: patches",
        || check(&PATCHES),
    ),
    (
        "tools do not block the thread that reads messages: output",
        || check(&OUTPUT),
    ),
    (
        "tools do not block the thread that reads messages: arguments",
        || check(&ARGUMENTS),
    ),
    (
        "tools do not block the thread that reads messages: conversations",
        || check(&CONVERSATIONS),
    ),
    (
        "tools do not block the thread that reads messages: servers",
        || check(&SERVERS),
    ),
    (
        "tools have a call in the tests of the thread that reads messages",
        every_tool_is_called,
    ),
];

/// The scenes of all tests.
const SCENES: [&[Scene]; 7] = [
    &FILES,
    &EDITS,
    &PATCHES,
    &OUTPUT,
    &ARGUMENTS,
    &CONVERSATIONS,
    &SERVERS,
];

/// The largest additional CPU time of the thread for the larger call, however large its files
/// and its output are: both the displayed part and the next request have a limit.
const MAX_ADDITIONAL_CPU_TIME: Duration = Duration::from_millis(250);

/// Additional time for each MiB of arguments, which pass through the provider, the client, the
/// store and the next request.
const MAX_CPU_TIME_PER_MIB: Duration = Duration::from_millis(150);

/// A call: a tool and its arguments.
type Called = (&'static str, Value);

/// Makes the call of a scene at one of its sizes.
type Calling = fn(&CallSetup<'_>, usize) -> Called;

/// A name, the calling model, and its call at one of the sizes. The files are created on the way.
struct Scene {
    name: &'static str,
    model: &'static str,
    call: Calling,
    /// The sizes.
    few: usize,
    many: usize,
    /// Number of calls in one answer.
    times: usize,
    /// A call in a prompt before the measured one.
    before: Option<Calling>,
    /// The number of tools of an MCP server; 0 is one with the usual tools, `None` is no server.
    server: Option<usize>,
}

/// The surroundings of a call.
struct CallSetup<'a> {
    project: &'a Project,
    site: &'a Server,
    /// The number of the call.
    run: usize,
}

/// The model that edits, and the one that patches.
const EDITS_WITH: &str = "bench-model";
const PATCHES_WITH: &str = "gpt-5";

const KB: usize = 1_000;
const MB: usize = 1_000_000;

const fn scene(name: &'static str, few: usize, many: usize, call: Calling) -> Scene {
    Scene {
        name,
        model: EDITS_WITH,
        call,
        few,
        many,
        times: 1,
        before: None,
        server: None,
    }
}

const fn twice(name: &'static str, few: usize, many: usize, call: Calling) -> Scene {
    Scene {
        times: 2,
        ..scene(name, few, many, call)
    }
}

const fn patch(name: &'static str, few: usize, many: usize, call: Calling) -> Scene {
    Scene {
        model: PATCHES_WITH,
        ..scene(name, few, many, call)
    }
}

/// Returns the text of a file, by its bytes: lines that differ.
fn lines(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    for at in 0_usize.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!(
            "line {at} of the file, and some words to make it as long as lines are\n"
        ));
    }
    text
}

/// Makes a file of lines.
fn file(scenery: &CallSetup<'_>, bytes: usize) -> String {
    let name = format!("file-{}.txt", scenery.run);
    scenery.project.write(&name, &lines(bytes));
    name
}

/// Makes files in a folder.
fn folder(scenery: &CallSetup<'_>, count: usize) -> String {
    let name = format!("folder-{}", scenery.run);
    for at in 0..count {
        let path = scenery
            .project
            .path(&format!("{name}/{}/file-{at}.txt", at % 20));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "a needle\n").unwrap();
    }
    name
}

const FILES: [Scene; 10] = [
    scene("read", 100 * KB, 4 * MB, |it, size| {
        ("read", json!({ "filePath": file(it, size) }))
    }),
    scene("read, from the end", 100 * KB, 4 * MB, |it, size| {
        ("read", json!({ "filePath": file(it, size), "offset": -10 }))
    }),
    scene("read a line", 100 * KB, 4 * MB, |it, size| {
        let name = format!("line-{}.txt", it.run);
        it.project.write(&name, &"long ".repeat(size / 5));
        ("read", json!({ "filePath": name }))
    }),
    scene("read a directory", 100, 10 * KB, |it, size| {
        let name = format!("flat-{}", it.run);
        fs::create_dir_all(it.project.path(&name)).unwrap();
        (0..size).for_each(|at| fs::write(it.project.path(&format!("{name}/{at}")), "").unwrap());
        ("read", json!({ "filePath": name }))
    }),
    scene("read a PDF", 100 * KB, 4 * MB, |it, size| {
        let name = format!("pages-{}.pdf", it.run);
        it.project
            .write(&name, &format!("%PDF-1.4\n{}", lines(size)));
        ("read", json!({ "filePath": name }))
    }),
    scene("read with instructions", 10 * KB, 4 * MB, |it, size| {
        it.project
            .write(&format!("told-{}/AGENTS.md", it.run), &lines(size));
        it.project.write(&format!("told-{}/a.txt", it.run), "a\n");
        (
            "read",
            json!({ "filePath": format!("told-{}/a.txt", it.run) }),
        )
    }),
    scene("glob", 100, 10 * KB, |it, size| {
        (
            "glob",
            json!({ "pattern": "*.txt", "path": folder(it, size) }),
        )
    }),
    scene("grep in many files", 100, 10 * KB, |it, size| {
        (
            "grep",
            json!({ "pattern": "needle", "path": folder(it, size) }),
        )
    }),
    scene("grep in a large file", 100 * KB, 4 * MB, |it, size| {
        (
            "grep",
            json!({ "pattern": "words", "path": file(it, size) }),
        )
    }),
    scene("skill", 10 * KB, 5 * MB, |it, size| {
        let name = format!("skill-{}", it.run);
        let head = format!("---\nname: {name}\ndescription: A skill.\n---\n");
        it.project.write(
            &format!("~/.config/opencode/skill/{name}/SKILL.md"),
            &(head + &lines(size)),
        );
        ("skill", json!({ "name": name }))
    }),
];

const EDITS: [Scene; 8] = [
    twice("write over a file", 100 * KB, 4 * MB, |it, size| {
        (
            "write",
            json!({ "filePath": file(it, size), "content": "short\n" }),
        )
    }),
    scene("edit", 100 * KB, 4 * MB, |it, size| {
        let file = file(it, size);
        (
            "edit",
            json!({ "filePath": file, "oldString": "line 700 of", "newString": "line seven hundred of" }),
        )
    }),
    scene("edit the end", 100 * KB, 4 * MB, |it, size| {
        let name = file(it, size);
        let text = format!("{}the end\n", lines(size));
        it.project.write(&name, &text);
        (
            "edit",
            json!({ "filePath": name, "oldString": "the end", "newString": "no end" }),
        )
    }),
    scene("edit all places", 100 * KB, 4 * MB, |it, size| {
        let file = file(it, size);
        (
            "edit",
            json!({ "filePath": file, "oldString": "words", "newString": "letters", "replaceAll": true }),
        )
    }),
    scene("edit, almost as quoted", 100 * KB, 4 * MB, |it, size| {
        let file = file(it, size);
        let quoted = "  line 700 of the file, and some words to make it as long as lines are";
        (
            "edit",
            json!({ "filePath": file, "oldString": quoted, "newString": "gone" }),
        )
    }),
    scene("edit what is not there", 100 * KB, 4 * MB, |it, size| {
        (
            "edit",
            json!({ "filePath": file(it, size), "oldString": "nothing like it\nat all", "newString": "" }),
        )
    }),
    scene("edit in many places", 10, KB, |it, size| {
        let edit = |at| json!({ "oldString": format!("line {at} of"), "newString": format!("row {at} of") });
        let edits: Vec<Value> = (0..size).map(edit).collect();
        (
            "multiedit",
            json!({ "filePath": file(it, size * 100), "edits": edits }),
        )
    }),
    twice("write what differs", 100 * KB, 3 * MB, |it, size| {
        let name = format!("differs-{}.txt", it.run);
        it.project.write(&name, &"other\n".repeat(size / 6));
        ("write", json!({ "filePath": name, "content": lines(size) }))
    }),
];

const PATCHES: [Scene; 4] = [
    patch("patch a large file", 100 * KB, 4 * MB, |it, size| {
        let name = file(it, size);
        let row = |word: &str| {
            format!("line {word} of the file, and some words to make it as long as lines are")
        };
        let text = format!(
            "*** Update File: {name}\n@@\n-{}\n+{}",
            row("700"),
            row("seven hundred")
        );
        (
            "apply_patch",
            json!({ "patchText": format!("*** Begin Patch\n{text}\n*** End Patch") }),
        )
    }),
    patch("patch many places", 10, 2 * KB, |it, size| {
        let name = file(it, size * 700);
        let row = |word: String| {
            format!("line {word} of the file, and some words to make it as long as lines are")
        };
        let hunk = |at: usize| {
            format!(
                "@@\n-{}\n+{}\n",
                row((2 * at).to_string()),
                row(format!("no {at}"))
            )
        };
        let text: String = (0..size).map(hunk).collect();
        (
            "apply_patch",
            json!({ "patchText": format!("*** Begin Patch\n*** Update File: {name}\n{text}*** End Patch") }),
        )
    }),
    patch("patch many files", 10, KB, |it, size| {
        let add = |at| format!("*** Add File: made-{}/{at}.txt\n+one\n", it.run);
        let text: String = (0..size).map(add).collect();
        (
            "apply_patch",
            json!({ "patchText": format!("*** Begin Patch\n{text}*** End Patch") }),
        )
    }),
    patch("patch away a large file", 100 * KB, 4 * MB, |it, size| {
        let name = file(it, size);
        (
            "apply_patch",
            json!({ "patchText": format!("*** Begin Patch\n*** Delete File: {name}\n*** End Patch") }),
        )
    }),
];

const OUTPUT: [Scene; 7] = [
    scene(
        "a command that prints much",
        100 * KB,
        20 * MB,
        |_, size| {
            (
                "bash",
                json!({ "command": format!("yes and some words | head -c {size}") }),
            )
        },
    ),
    scene(
        "a command that prints a long line",
        100 * KB,
        20 * MB,
        |_, size| {
            (
                "bash",
                json!({ "command": format!("head -c {size} /dev/zero | tr '\\0' x") }),
            )
        },
    ),
    scene("a command that prints often", 100, 2 * KB, |_, size| {
        (
            "bash",
            json!({ "command": format!("for ((i = 0; i < {size}; i++)); do echo $i; done") }),
        )
    }),
    scene(
        "a command in the background that prints much",
        100 * KB,
        20 * MB,
        |_, size| {
            let line = format!("yes and some words | head -c {size}");
            (
                "bash",
                json!({ "command": line, "run_in_background": true }),
            )
        },
    ),
    scene("a command that changes files", 10, 2 * KB, |it, size| {
        let line = format!(
            "for ((i = 0; i < {size}; i++)); do echo $i >changed-{}-$i; done",
            it.run
        );
        ("bash", json!({ "command": line }))
    }),
    scene("a page", 10 * KB, 4 * MB, |it, size| {
        (
            "webfetch",
            json!({ "url": format!("{}/{size}", it.site.base()), "format": "markdown" }),
        )
    }),
    scene("a page as text", 10 * KB, 4 * MB, |it, size| {
        (
            "webfetch",
            json!({ "url": format!("{}/{size}", it.site.base()), "format": "text" }),
        )
    }),
];

const ARGUMENTS: [Scene; 12] = [
    scene("write", 10 * KB, 5 * MB, |it, size| {
        (
            "write",
            json!({ "filePath": format!("new-{}.txt", it.run), "content": lines(size) }),
        )
    }),
    scene("edit to much", 10 * KB, 5 * MB, |it, size| {
        let name = format!("small-{}.txt", it.run);
        it.project.write(&name, "here\n");
        (
            "edit",
            json!({ "filePath": name, "oldString": "here", "newString": lines(size) }),
        )
    }),
    scene("edit what is much", 10 * KB, 2 * MB, |it, size| {
        let name = format!("small-{}.txt", it.run);
        it.project.write(&name, "here\n");
        (
            "edit",
            json!({ "filePath": name, "oldString": lines(size), "newString": "there" }),
        )
    }),
    scene("a command", 10 * KB, 2 * MB, |_, size| {
        (
            "bash",
            json!({ "command": format!("cat <<'E' | wc -c\n{}E", lines(size)) }),
        )
    }),
    scene("a command of many", KB, 20 * KB, |_, size| {
        ("bash", json!({ "command": "true\n".repeat(size) }))
    }),
    scene("a pattern", 10 * KB, 2 * MB, |_, size| {
        (
            "grep",
            json!({ "pattern": "(words|and)".repeat(size / 11) }),
        )
    }),
    scene("a glob", 10 * KB, 2 * MB, |_, size| {
        ("glob", json!({ "pattern": "{a,b}*".repeat(size / 6) }))
    }),
    scene("todos", 100, 10 * KB, |_, size| {
        let todo = |at| json!({ "content": format!("Do number {at}"), "status": "pending", "priority": "low" });
        (
            "todowrite",
            json!({ "todos": (0..size).map(todo).collect::<Vec<_>>() }),
        )
    }),
    scene("a path", 10 * KB, 2 * MB, |_, size| {
        ("read", json!({ "filePath": "a/".repeat(size / 2) }))
    }),
    scene("a task", 10 * KB, 2 * MB, |_, size| {
        let words = format!("Look. {}", lines(size));
        (
            "task",
            json!({ "description": "Look", "prompt": words, "subagent_type": "explore" }),
        )
    }),
    scene("arguments that do not fit", 10 * KB, 2 * MB, |_, size| {
        (
            "write",
            json!({ "filePath": 7, "contents": { "none": lines(size) } }),
        )
    }),
    scene("a tool that is none", 10 * KB, 2 * MB, |_, size| {
        ("conjure", json!({ "out_of": lines(size) }))
    }),
];

const CONVERSATIONS: [Scene; 5] = [
    Scene {
        before: Some(|_, size| {
            let line = format!("yes and some words | head -c {size}");
            (
                "bash",
                json!({ "command": line, "run_in_background": true }),
            )
        }),
        ..scene(
            "the output of a command in the background",
            100 * KB,
            20 * MB,
            |it, _| {
                (
                    "bash_output",
                    json!({ "bash_id": job(it), "wait": 60_000, "until": "never" }),
                )
            },
        )
    },
    Scene {
        before: Some(|_, size| {
            let line = format!("yes and some words | head -c {size}; sleep 600");
            (
                "bash",
                json!({ "command": line, "run_in_background": true }),
            )
        }),
        ..scene(
            "the end of a command in the background",
            100 * KB,
            20 * MB,
            |it, _| ("bash_stop", json!({ "bash_id": job(it) })),
        )
    },
    scene("a question", 10 * KB, 2 * MB, |_, size| {
        let options = json!([{ "label": "Yes" }, { "label": "No" }]);
        let question = json!({ "question": lines(size), "header": "All", "options": options });
        ("question", json!({ "questions": [question] }))
    }),
    Scene {
        before: Some(|_, _| ("plan_exit", json!({}))),
        ..scene("a reason to plan", 10 * KB, 2 * MB, |_, size| {
            ("plan_enter", json!({ "reason": lines(size) }))
        })
    },
    Scene {
        before: Some(|_, _| ("plan_enter", json!({ "reason": "It is much." }))),
        ..scene("a plan", 10 * KB, 2 * MB, |_, size| {
            ("plan_exit", json!({ "plan": lines(size) }))
        })
    },
];

const SERVERS: [Scene; 8] = [
    scene("uses of a name", 100, 5 * KB, |it, size| {
        let name = format!("uses-{}.x", it.run);
        let text = format!("def name{}\n", it.run) + &format!("use name{}\n", it.run).repeat(size);
        it.project.write(&name, &text);
        (
            "lsp",
            json!({ "operation": "findReferences", "filePath": name, "line": 1, "character": 5 }),
        )
    }),
    scene("results of a search", 10 * KB, 2 * MB, |_, size| {
        ("websearch", json!({ "query": size.to_string() }))
    }),
    Scene {
        server: Some(0),
        ..scene("a tool of a server", 10 * KB, 2 * MB, |_, size| {
            ("mine_say", json!({ "text": lines(size) }))
        })
    },
    Scene {
        server: Some(KB),
        ..scene("a tool of many", 10 * KB, 2 * MB, |_, size| {
            let arguments = json!({ "text": lines(size) });
            (
                "call_mcp_tool",
                json!({ "name": "mine_tool_0815", "arguments": arguments }),
            )
        })
    },
    Scene {
        server: Some(KB),
        ..scene("a search for tools", KB, MB, |_, size| {
            ("search_mcp_tools", json!({ "query": lines(size) }))
        })
    },
    Scene {
        server: Some(0),
        ..scene("resources", 10 * KB, 2 * MB, |_, size| {
            ("list_mcp_resources", json!({ "server": lines(size) }))
        })
    },
    Scene {
        server: Some(0),
        ..scene("templates of resources", 10 * KB, 2 * MB, |_, size| {
            (
                "list_mcp_resource_templates",
                json!({ "server": lines(size) }),
            )
        })
    },
    Scene {
        server: Some(0),
        ..scene("a resource", 10 * KB, 2 * MB, |_, size| {
            let uri = format!("note://{}", "n".repeat(size));
            ("read_mcp_resource", json!({ "server": "mine", "uri": uri }))
        })
    },
];

/// Returns the id of the command in the background that the call before this one has started.
fn job(scenery: &CallSetup<'_>) -> String {
    format!("bash_{}", scenery.run + 1)
}

/// Returns the time of the processor that the thread of the runtime has taken: the first one of the
/// process.
fn taken(pid: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Starts a site with a page of the size that its path names, and a search engine that finds as
/// many bytes as the query names.
fn site() -> Server {
    let page = |size: usize| {
        let item = "<li><a href=\"/x\">A place</a> and <b>some</b> words &amp; signs.</li>\n";
        format!(
            "<html><body><h1>A page</h1><ul>{}</ul></body></html>",
            item.repeat(size / item.len())
        )
    };
    let results = |size: usize| {
        let one = json!({ "title": "T", "url": "https://a.example", "content": lines(size / 20) });
        json!({ "results": vec![one; 20] }).to_string()
    };
    Server::start(move |received| {
        let path = received.path();
        let digits: String = path.chars().filter(char::is_ascii_digit).collect();
        let size = digits.parse().unwrap_or_default();
        if path.starts_with("/search") {
            return (
                200,
                "content-type: application/json\r\n".into(),
                results(size),
            );
        }
        (200, "content-type: text/html\r\n".into(), page(size))
    })
}

/// Tests that every tool is called by a scene, so that a new one is not forgotten.
fn every_tool_is_called() {
    let project = Project::new();
    let site = site();
    let called: BTreeSet<&str> = SCENES
        .iter()
        .flat_map(|scenes| scenes.iter())
        .enumerate()
        .map(|(run, scene)| {
            let scenery = CallSetup {
                project: &project,
                site: &site,
                run,
            };
            (scene.call)(&scenery, scene.few).0
        })
        // A name that no tool has is a call of this one.
        .map(|name| if name == "conjure" { "invalid" } else { name })
        .collect();
    let own = tools::BUILT_IN_TOOLS.iter().map(|tool| tool.name);
    let missing: Vec<&str> = own
        .chain(mcp::READ_ONLY_TOOLS.iter().copied())
        .filter(|name| !called.contains(name))
        .collect();
    assert!(missing.is_empty(), "without a scene: {missing:?}");
}

fn check(scenes: &[Scene]) {
    let site = site();
    let mut wrong = Vec::new();
    let only = std::env::var("ADJUTANT_THREAD").unwrap_or_default();
    for scene in scenes.iter().filter(|scene| scene.name.contains(&only)) {
        let (few, many, bytes) = measured(scene, &site);
        let most = few
            + MAX_ADDITIONAL_CPU_TIME
            + MAX_CPU_TIME_PER_MIB * u32::try_from(bytes >> 10).unwrap() / 1024;
        let line = format!(
            "{}: {few:?} for {}, {many:?} for {}, at most {most:?}",
            scene.name, scene.few, scene.many
        );
        if std::env::var_os("ADJUTANT_THREAD").is_some() {
            eprintln!("{line}");
        }
        if many > most {
            wrong.push(line);
        }
    }
    assert!(
        wrong.is_empty(),
        "the thread is kept:\n{}",
        wrong.join("\n")
    );
}

/// Measures the CPU time of the thread for either call, and the bytes of the larger one's
/// arguments.
fn measured(scene: &Scene, site: &Server) -> (Duration, Duration, usize) {
    let model = Model::unwatched(Vec::new());
    let mut project = Project::new();
    project.set("SEARXNG_URL", Some(&site.base()));
    let one = json!({ "name": "Bench", "limit": { "context": 100_000_000, "output": 8_000 } });
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let language = json!({ "command": [own, "--language-server", "push"], "extensions": [".x"] });
    let mut more = json!({
        "model": format!("bench/{}", scene.model),
        "lsp": { "x": language },
        "provider": { "bench": { "models": { EDITS_WITH: one.clone(), PATCHES_WITH: one } } },
        "permission": { "*": "allow" },
        "webfetch": { "private": ["127.0.0.1"] },
    });
    if let Some(tools) = scene.server {
        let mut command = vec![own.to_owned(), "--mcp-server".to_owned()];
        if tools > 0 {
            command.push(format!("--tools={tools}"));
        }
        more["mcp"] = json!({ "mine": { "type": "local", "command": command } });
    }
    project.provider(&model.base(), &more);
    // The first use of anything costs more, once.
    let sizes = [scene.few, scene.few, scene.many];
    let calls: Vec<(Option<Called>, Called)> = sizes
        .into_iter()
        .enumerate()
        .map(|(run, size)| {
            let scenery = CallSetup {
                project: &project,
                site,
                run,
            };
            let before = scene.before.map(|call| call(&scenery, size));
            (before, (scene.call)(&scenery, size))
        })
        .collect();
    let bytes = calls[2].1.1.to_string().len() * scene.times;
    let mut client = Client::new(project);
    let session = client.open();
    let mut id = 1;
    let mut prompt = |client: &mut Client, (tool, input): &Called, times: usize| {
        id += 1;
        let rest = "---\ntext: Done.\n".repeat(if *tool == "task" { 2 } else { 1 });
        let call = format!("call {tool} {input}\n").repeat(times);
        model.send(script(&format!("{call}{rest}")).unwrap());
        client.prompt(id, &session, &format!("Do number {id}."));
        finished(client, id);
    };
    let times = calls.iter().map(|(before, call)| {
        if let Some(before) = before {
            prompt(&mut client, before, 1);
        }
        let pid = client.editor.pid();
        let began = taken(pid);
        prompt(&mut client, call, scene.times);
        taken(pid) - began
    });
    let times: Vec<Duration> = times.collect();
    client.editor.finish();
    (times[1], times[2], bytes)
}

/// Waits for the answer to a prompt, and answers every request. Skips the updates unparsed: they
/// are too many.
fn finished(client: &mut Client, id: u64) {
    loop {
        let line = client
            .editor
            .receive(3 * RESPONSE_TIMEOUT)
            .expect("the agent says nothing any more");
        if line.starts_with(r#"{"jsonrpc":"2.0","method":"session/update""#) {
            continue;
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == id && message.get("method").is_none() {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return;
        }
        if message["method"] == "session/request_permission" {
            // The first option allows, or is the first answer to a question.
            let option = &message["params"]["options"][0]["optionId"];
            let outcome = json!({ "outcome": "selected", "optionId": option });
            let answer =
                json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "outcome": outcome } });
            client.editor.send(&answer.to_string());
        }
    }
}
