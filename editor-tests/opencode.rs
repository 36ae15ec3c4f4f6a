//! Tests of the move from OpenCode, with data that the program itself has made
//! (`clients/opencode/data.mjs`): its database while it runs, and the files of older versions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::Client;
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 3] = [
    (
        "OpenCode's database is imported while it is written",
        opencodes_database_is_imported_while_it_is_written,
    ),
    (
        "files of older versions of OpenCode are imported",
        files_of_older_versions_of_opencode_are_imported,
    ),
    (
        "broken data of OpenCode is named",
        broken_data_of_opencode_is_named,
    ),
];

const FIRST: &str = "ses_ddb241c5fffeog6i7PcA25qbJ6";
const SECOND: &str = "ses_ddb23d41cffe5tp6l4JjpJa5u1";
const SUBAGENT: &str = "ses_ddb23de61ffeuaAKWO8QSKEs1a";

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("editor-tests/fixtures/opencode");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn adjutant(project: &Project, arguments: &[&str]) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .args(arguments)
        .current_dir(project.cwd())
        .output()
        .unwrap()
}

fn stdout_of(project: &Project, arguments: &[&str]) -> String {
    let output = adjutant(project, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the files below a directory with their contents.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    found
}

/// Loads a session in an editor, and returns the answer and the updates that show it.
fn loaded(project: &Arc<Project>, session: &str) -> (Value, String) {
    let cwd = project.cwd();
    let mut client = Client::new(project.clone());
    client.request(
        2,
        "session/load",
        &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
    );
    let (answer, updates) = client.answer(2);
    assert!(answer.get("error").is_none(), "{answer}");
    client.leave();
    let updates = updates.iter().map(Value::to_string).collect();
    (answer["result"].clone(), updates)
}

/// Creates OpenCode's database of the fixture, whose sessions belong to the project. The returned
/// connection still has the database open, with its log.
fn create_database(project: &Project) -> rusqlite::Connection {
    let data = project.path("~/.local/share/opencode");
    std::fs::create_dir_all(&data).unwrap();
    let connection = rusqlite::Connection::open(data.join("opencode.db")).unwrap();
    connection
        .query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .unwrap();
    let cwd = project.cwd().display().to_string();
    let sql = fixture("opencode.sql").replace("/harbour/project", &cwd);
    connection.execute_batch(&sql).unwrap();
    connection
}

fn opencodes_database_is_imported_while_it_is_written() {
    let project = Arc::new(Project::new());
    let connection = create_database(&project);
    let data = project.path("~/.local/share/opencode");
    let before = contents(&data);
    assert!(before.contains_key(&data.join("opencode.db-wal")));
    let path = data.display().to_string();
    let printed = stdout_of(&project, &["sessions", "import", &path]);
    for part in [
        "Lanterns of the harbour",
        "A second town",
        "imported 2 sessions and 1 of subagents",
        "not imported: states of files for OpenCode's undo (",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert_eq!(contents(&data), before, "OpenCode's own files");
    let again = stdout_of(&project, &["sessions", "import", &path]);
    assert!(
        again.contains("imported 0 sessions")
            && again.contains("3 sessions had been imported before"),
        "{again}"
    );
    drop(connection);

    let shown = stdout_of(&project, &["sessions", "show", FIRST]);
    for part in [
        "Please look after the lantern file.",
        "- Read lantern.txt",
        "- Edit lantern.txt",
        "- ✗ `echo lamps; exit 3` — exit code 3",
        "- ✗ Read no-such-lamp.txt — failed",
        "The wick is oiled; the glass still wants polish.",
        "(attached: dot.png)",
        "Delegated: ses_ddb23de61ffeuaAKWO8QSKEs1a",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let child = stdout_of(&project, &["sessions", "show", SUBAGENT]);
    assert!(child.contains("Seven boats."), "{child}");
    // The undone prompt is hidden, as in OpenCode.
    let second = stdout_of(&project, &["sessions", "show", SECOND]);
    assert!(
        second.contains("Nothing is done there.") && !second.contains("This one is taken back."),
        "{second}"
    );
    let exported = stdout_of(&project, &["sessions", "export", FIRST]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let record = &exported["session"];
    assert_eq!(record["todos"][0]["content"], "Oil the wick", "{record}");
    assert_eq!(
        record["model"],
        json!({ "provider": "lamps", "model": "lamp-1" })
    );
    // Ten steps at 0.00118, and the subagent's.
    let cost = record["cost"].as_f64().unwrap();
    assert!((cost - 0.012_98).abs() < 1e-9, "{cost}");

    let stats = stdout_of(&project, &["stats", "--json"]);
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(
        [
            &stats["sessions"],
            &stats["total"]["steps"],
            &stats["total"]["input"],
            &stats["total"]["cacheRead"]
        ],
        [&json!(2), &json!(13), &json!(13_000), &json!(2_600)],
        "{stats}"
    );
    let total = stats["total"]["cost"].as_f64().unwrap();
    assert!((total - 13.0 * 0.001_18).abs() < 1e-9, "{total}");
    assert_eq!(stats["models"][0]["model"], "lamps/lamp-1");
    assert_eq!(
        stats["projects"][0]["project"],
        project.cwd().display().to_string()
    );
    let recent = stdout_of(&project, &["stats", "--days", "1"]);
    assert!(recent.starts_with("No model was used since "), "{recent}");

    // A subagent is the mode of its session, and among the modes to choose from.
    let (opened, _) = loaded(&project, SUBAGENT);
    assert_eq!(opened["modes"]["currentModeId"], "general", "{opened}");
    let modes = opened["modes"]["availableModes"].as_array().unwrap();
    assert!(modes.iter().any(|mode| mode["id"] == "general"), "{opened}");
    let (opened, updates) = loaded(&project, FIRST);
    let modes = opened["modes"]["availableModes"].as_array().unwrap();
    assert!(
        !modes.iter().any(|mode| mode["id"] == "general"),
        "{opened}"
    );
    for part in [
        "The file comes first.",
        "\"newText\":\"wick: oiled\\nglass: dull\\n\"",
        "The survey counted seven boats.",
        "iVBORw0KGgo",
    ] {
        assert!(updates.contains(part), "{part}: {updates}");
    }
}

/// Writes an exported session as the files of older versions.
fn write_files(project: &Project, export: &str) -> PathBuf {
    let data = project.path("~/.local/share/opencode");
    let storage = "~/.local/share/opencode/storage";
    let export: Value = serde_json::from_str(export).unwrap();
    let mut info = export["info"].clone();
    info["directory"] = project.cwd().display().to_string().into();
    let session = info["id"].as_str().unwrap();
    project.write(
        &format!("{storage}/session/global/{session}.json"),
        &info.to_string(),
    );
    for message in export["messages"].as_array().unwrap() {
        let mut info = message["info"].clone();
        // The first versions had the model of an answer only.
        if info["role"] == "user" {
            info.as_object_mut().unwrap().remove("model");
            info.as_object_mut().unwrap().remove("agent");
        }
        let id = info["id"].as_str().unwrap();
        project.write(
            &format!("{storage}/message/{session}/{id}.json"),
            &info.to_string(),
        );
        for part in message["parts"].as_array().unwrap() {
            let name = part["id"].as_str().unwrap();
            project.write(
                &format!("{storage}/part/{id}/{name}.json"),
                &part.to_string(),
            );
        }
    }
    data
}

fn files_of_older_versions_of_opencode_are_imported() {
    let project = Arc::new(Project::new());
    let data = write_files(&project, &fixture("first.json"));
    project.write(
        &format!("~/.local/share/opencode/storage/todo/{FIRST}.json"),
        r#"[{"content": "Trim the wick", "status": "in_progress", "priority": "high", "id": "1"}]"#,
    );
    project.write(
        "~/.local/share/opencode/storage/session/global/ses_broken000.json",
        "{",
    );
    let printed = stdout_of(
        &project,
        &["sessions", "import", &data.display().to_string()],
    );
    assert!(
        printed.contains("imported 1 session\n") && printed.contains("unreadable sessions (1)"),
        "{printed}"
    );
    let exported = stdout_of(&project, &["sessions", "export", "last"]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["session"]["todos"][0]["content"], "Trim the wick");
    assert_eq!(exported["messages"][0]["model"]["model"], "lamp-1");
    let (_, updates) = loaded(&project, FIRST);
    assert!(
        updates.contains("The survey counted seven boats."),
        "{updates}"
    );
}

fn broken_data_of_opencode_is_named() {
    let project = Project::new();
    let import = |path: &str| {
        let output = adjutant(&project, &["sessions", "import", path]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let here = project.cwd().display().to_string();
    let nothing = import(&here);
    assert!(nothing.contains("has no sessions of OpenCode"), "{nothing}");
    project.write("opencode.db", "no database");
    let damaged = import(&here);
    assert!(damaged.contains("opencode.db cannot be read"), "{damaged}");
    let refused = adjutant(&project, &["sessions", "import", &here, "--cwd", "."]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("--cwd is for a file with one session"),
        "{refused:?}"
    );
    project.write(
        "export.json",
        r#"{"info": {"id": "ses_00000001"}, "messages": []}"#,
    );
    let shapeless = import(&project.path("export.json").display().to_string());
    assert!(
        shapeless.contains("session ses_00000001 has no directory"),
        "{shapeless}"
    );
}
