//! FD18: a session that a power cut, a disk or an edit has damaged cannot be read, or only in part.
//! Listing, showing and opening it report the damage and the place of the damaged file, and the
//! session can be continued: no loss is silent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::model::{self, Model};
use crate::parallel::{repetitions, run_in_parallel};
use crate::program::adjutant;
use crate::project::Project;

const PAGE: usize = 4096;

/// The contents of a session's files: the database and its log.
#[derive(Clone)]
struct SessionImage {
    database: Option<Vec<u8>>,
    log: Option<Vec<u8>>,
}

/// A damaged session, and how it came about.
struct DamagedState {
    name: String,
    image: SessionImage,
    /// The index knows nothing of it either.
    is_unknown: bool,
}

/// A session with two prompts.
struct Fixture {
    project: Arc<Project>,
    session: String,
    data: PathBuf,
    /// Its agent was killed: the log is there; and it has left: there is none.
    images: [SessionImage; 2],
    _model: Model,
}

const ANSWERS: [&str; 2] = ["The first answer.", "The second answer."];

impl Fixture {
    fn new() -> Self {
        let answers = ANSWERS.map(|text| format!("text: {text}\n")).join("---\n");
        let model = Model::unwatched(model::script(&answers).unwrap());
        let project = Arc::new(Project::new());
        project.provider(&model.base(), &json!({}));
        let mut client = Client::new(project.clone());
        let session = client.open();
        for id in [2, 3] {
            client.prompt(id, &session, &"Tell me. ".repeat(900));
            client.answer(id);
        }
        client.editor.signal(Signal::KILL);
        client.lost();
        let data = project.path("~/.local/share/adjutant");
        let mut fixture = Self {
            project,
            session,
            data,
            images: [const {
                SessionImage {
                    database: None,
                    log: None,
                }
            }; 2],
            _model: model,
        };
        fixture.images[0] = fixture.image();
        let mut client = Client::new(fixture.project.clone());
        fixture.load(&mut client, 1);
        client.leave();
        fixture.images[1] = fixture.image();
        fixture
    }

    fn path(&self) -> PathBuf {
        self.data
            .join("sessions")
            .join(format!("{}.db", self.session))
    }

    fn log(&self) -> PathBuf {
        self.path().with_extension("db-wal")
    }

    fn image(&self) -> SessionImage {
        SessionImage {
            database: fs::read(self.path()).ok(),
            log: fs::read(self.log()).ok(),
        }
    }

    /// Replaces the session by a state, and removes the files of other states.
    fn put(&self, state: &DamagedState, index: &Path) {
        fs::remove_dir_all(self.data.join("sessions")).unwrap();
        fs::create_dir(self.data.join("sessions")).unwrap();
        for suffix in ["", "-wal", "-shm"] {
            fs::remove_file(self.data.join(format!("index.db{suffix}"))).ok();
        }
        if !state.is_unknown {
            fs::copy(index, self.data.join("index.db")).unwrap();
        }
        for (path, bytes) in [
            (self.path(), &state.image.database),
            (self.log(), &state.image.log),
        ] {
            if let Some(bytes) = bytes {
                fs::write(path, bytes).unwrap();
            }
        }
    }

    /// Loads a session; returns the answer and the text of all updates.
    fn load(&self, client: &mut Client, id: u64) -> (Value, String) {
        let params =
            json!({ "sessionId": self.session, "cwd": self.project.cwd(), "mcpServers": [] });
        client.request(id, "session/load", &params);
        let (answer, updates) = client.answer(id);
        let texts: Vec<&str> = updates
            .iter()
            .filter_map(|update| update["content"]["text"].as_str())
            .collect();
        (answer, texts.join("\n"))
    }

    /// Tries a state, and returns the mistakes.
    fn try_out(&self, state: &DamagedState, index: &Path, all_read: &AtomicUsize) -> Vec<String> {
        let mut wrong = Vec::new();
        let name = format!(
            "{}{}",
            state.name,
            if state.is_unknown { ", unknown" } else { "" }
        );
        let mut is_wrong = |what: &str, seen: &str| wrong.push(format!("{name}: {what}: {seen}"));
        let is_whole = |text: &str| ANSWERS.iter().all(|said| text.contains(said));
        self.put(state, index);
        let output = adjutant(&self.project, &["sessions", "--all"], "");
        let listed = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if !listed.contains(&self.session) {
            is_wrong("it is in no list", &listed);
        }
        let output = adjutant(&self.project, &["sessions", "show", &self.session], "");
        let shown = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        if !is_whole(&shown)
            && !["damaged", "missing", "empty or gone", "is empty"]
                .iter()
                .any(|word| shown.contains(word))
        {
            is_wrong("shown in silence", &shown);
        }
        let mut client = Client::new(self.project.clone());
        let (answer, updates) = self.load(&mut client, 1);
        let is_told = updates.contains("could not be read");
        if answer["error"].is_object() {
            is_wrong("not opened", &answer.to_string());
            client.leave();
            return wrong;
        }
        if !is_whole(&updates) && !is_told {
            is_wrong("opened in silence", &updates);
        }
        all_read.fetch_add(usize::from(is_whole(&updates)), Ordering::Relaxed);
        // The reported copy exists.
        for path in updates
            .split(" saved as ")
            .skip(1)
            .filter_map(|rest| rest.split(['\n', ' ', ';']).next())
        {
            let path = path.trim_end_matches('.');
            if !Path::new(path).exists() {
                is_wrong("not saved where the notice says", path);
            }
        }
        self._model.send(model::script("text: Gone on.\n").unwrap());
        client.prompt(2, &self.session, "Go on.");
        let (answer, _) = client.answer(2);
        if answer["result"]["stopReason"] != "end_turn" {
            is_wrong("not gone on with", &answer.to_string());
        }
        client.editor.signal(Signal::KILL);
        client.lost();
        let mut client = Client::new(self.project.clone());
        let (_, again) = self.load(&mut client, 1);
        if !again.contains("Gone on.") || again.contains("could not be read") {
            is_wrong("what was said since", &again);
        }
        client.leave();
        wrong
    }
}

/// Returns a damaged session for every way in which a file can be damaged here.
fn states(images: &[SessionImage; 2], random: &mut fastrand::Rng) -> Vec<DamagedState> {
    let mut states = Vec::new();
    for (image, name) in images.iter().zip(["killed", "left"]) {
        let database = image.database.clone().unwrap();
        let mut add = |how: String, database: Option<Vec<u8>>, log: Option<Vec<u8>>| {
            for is_unknown in [false, true] {
                let image = SessionImage {
                    database: database.clone(),
                    log: log.clone(),
                };
                // A loss that also covers the evidence of it cannot be reported.
                let has_log = image.log.as_ref().is_some_and(|log| !log.is_empty());
                if !is_unknown || image.database.is_some() && (has_log || name == "left") {
                    states.push(DamagedState {
                        name: format!("{name}, {how}"),
                        image,
                        is_unknown,
                    });
                }
            }
        };
        add("gone".into(), None, image.log.clone());
        for length in [
            0,
            1,
            99,
            100,
            512,
            PAGE,
            PAGE + 1,
            2 * PAGE,
            3 * PAGE,
            database.len() - PAGE,
            database.len() - 1,
        ] {
            add(
                format!("cut to {length}"),
                Some(database[..length].to_vec()),
                image.log.clone(),
            );
        }
        let mut without =
            |how: String, from: usize, to: usize, random: Option<&mut fastrand::Rng>| {
                let mut bytes = database.clone();
                match random {
                    Some(random) => bytes[from..to].fill_with(|| random.u8(..)),
                    None => bytes[from..to].fill(0),
                }
                add(how, Some(bytes), image.log.clone());
            };
        for (from, to) in [
            (0, 16),
            (0, 100),
            (16, 32),
            (56, 60),
            (60, 64),
            (100, PAGE),
            (0, database.len()),
        ] {
            without(format!("{from} to {to} zero"), from, to, None);
            without(format!("{from} to {to} noise"), from, to, Some(random));
        }
        for page in 0..database.len() / PAGE {
            without(
                format!("page {page} zero"),
                page * PAGE,
                (page + 1) * PAGE,
                None,
            );
            without(
                format!("page {page} noise"),
                page * PAGE,
                (page + 1) * PAGE,
                Some(random),
            );
        }
        if let Some(log) = &image.log {
            add("without its log".into(), Some(database.clone()), None);
            add(
                "its log empty".into(),
                Some(database.clone()),
                Some(Vec::new()),
            );
            for share in 1..8 {
                let mut cut = log.clone();
                cut.truncate(log.len() * share / 8);
                add(
                    format!("{share}/8 of its log"),
                    Some(database.clone()),
                    Some(cut),
                );
            }
            let mut noise = log.clone();
            noise[..32].fill_with(|| random.u8(..));
            add(
                "its log's head noise".into(),
                Some(database.clone()),
                Some(noise.clone()),
            );
            add(
                "nothing left but noise".into(),
                Some(vec![0x55; 3 * PAGE]),
                Some(noise),
            );
        }
    }
    states
}

pub(super) fn fd18_unreadable_session_is_reported() {
    let tried = AtomicUsize::new(0);
    let all_read = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let every = repetitions(1, 5);
    run_in_parallel(4, |lane| {
        let fixture = Fixture::new();
        let index = fixture.data.join("index.kept");
        let known = fixture.data.join("index.db");
        rusqlite::Connection::open(&known)
            .unwrap()
            .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
            .unwrap();
        fs::copy(&known, &index).unwrap();
        let mut random = fastrand::Rng::with_seed(18_255);
        for state in states(&fixture.images, &mut random)
            .iter()
            .skip(lane)
            .step_by(4)
            .step_by(every)
        {
            tried.fetch_add(1, Ordering::Relaxed);
            wrong
                .lock()
                .unwrap()
                .extend(fixture.try_out(state, &index, &all_read));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let tried = tried.into_inner();
    let all_read = all_read.into_inner();
    eprintln!("{tried} damaged sessions: {all_read} read whole, of the others it was said");
    assert!(
        wrong.is_empty(),
        "{} of {tried}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
