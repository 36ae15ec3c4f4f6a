//! `adjutant doctor --report`: one file for a bug report, with the findings, the settings, the end
//! of the log and a recording of a connection. Keys are redacted.

use std::fmt::Write as _;
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::project_context::ProjectContext;
use super::redaction::KnownKeys;
use base::environment::{Environment, private_dir, private_file};
use base::text;
use session::models::ModelSources;

/// The end of the log that is included, in bytes.
const MAX_LOG_BYTES: u64 = 64 << 10;

/// The end of a recording that is included, in bytes. Trackers of issues refuse larger files.
const MAX_RECORDING_BYTES: u64 = 8 << 20;

/// A part of a report.
struct Section {
    /// The content in a few words, for the list at the top of the file.
    about: String,
    text: String,
}

/// Writes a report to a new file, by default in the state directory, and prints its content in a
/// few words. `findings` is the text of `adjutant doctor`, `recording` a log of a connection.
///
/// # Errors
/// If the recording cannot be read, or the file exists or cannot be written.
pub(super) fn write(
    file: Option<&Path>,
    recording: Option<&Path>,
    findings: String,
    environment: &Environment,
) -> anyhow::Result<()> {
    let mut keys = KnownKeys::new(environment);
    keys.read_project(Path::new("."));
    // The keys in a recording are known for all sections.
    let recorded = recording
        .map(|path| recorded(path, &mut keys))
        .transpose()?;
    let doctor = Section {
        about: "the findings of `adjutant doctor`".to_owned(),
        text: findings,
    };
    let mut sections = vec![doctor, settings(environment), log(environment)];
    for section in &mut sections {
        section.text = keys.redacted(&section.text);
    }
    sections.extend(recorded);

    let now = environment.now().iso();
    let mut list = String::new();
    for section in &sections {
        let _ = writeln!(list, "- {}", text::escaped(&section.about));
    }
    let mut report =
        format!("Report of adjutant, {now}. Known keys are redacted. It contains:\n{list}");
    for section in &sections {
        let _ = writeln!(report, "\n== {} ==\n", text::escaped(&section.about));
        report.push_str(text::shown(&section.text).trim_end());
        report.push('\n');
    }
    let path = report_path(file, &now, environment)?;
    create(&path, &report)?;

    let mut words = format!("The report is in {}. It contains:\n{list}", path.display());
    words.push_str("Known keys are redacted, and only you can read it. ");
    words.push_str(if recording.is_some() {
        "It contains the recorded conversation: read it before you attach it to a bug report."
    } else {
        "Read it before you attach it to a bug report. If the fault is between an editor and \
         adjutant, record it (`adjutant acp --log-wire FILE`) and add --wire FILE."
    });
    super::say(&words);
    Ok(())
}

/// Returns the absolute path of the report.
fn report_path(
    file: Option<&Path>,
    now: &str,
    environment: &Environment,
) -> anyhow::Result<PathBuf> {
    if let Some(file) = file {
        return std::path::absolute(file)
            .with_context(|| format!("the report cannot be written to {}", file.display()));
    }
    // Outside the project, so that it is not committed.
    let dir = &environment.dirs.state;
    private_dir(dir)
        .with_context(|| format!("the report cannot be written to {}", dir.display()))?;
    Ok(dir.join(format!("report-{}.txt", now.replace(':', "-"))))
}

fn create(path: &Path, report: &str) -> anyhow::Result<()> {
    match private_file().create_new(true).write(true).open(path) {
        Ok(mut file) => file
            .write_all(report.as_bytes())
            .with_context(|| format!("the report cannot be written to {}", path.display())),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{} exists already: name a new file", path.display())
        }
        Err(e) => {
            Err(e).with_context(|| format!("the report cannot be written to {}", path.display()))
        }
    }
}

/// Lists the settings with their sources and problems.
fn settings(environment: &Environment) -> Section {
    let about = "the settings with their sources, and their problems".to_owned();
    let text = match ProjectContext::read(Path::new("."), environment) {
        Ok(here) => {
            let problems = here.every_problem(&ModelSources::new(environment));
            let settings = config::show(&here.loaded, &problems);
            format!("{settings}\n{}", config::check(&here.loaded, &problems))
        }
        Err(e) => format!("They cannot be read: {e:#}"),
    };
    Section { about, text }
}

/// Returns the end of the newest log.
fn log(environment: &Environment) -> Section {
    let empty = || Section {
        about: "no log: nothing was logged".to_owned(),
        text: String::new(),
    };
    let Some(path) = super::log::newest(environment) else {
        return empty();
    };
    match end_of(&path, MAX_LOG_BYTES) {
        Ok((text, _)) if text.is_empty() => empty(),
        Ok((text, cut)) => {
            let lines = text::count(text.lines().count(), "line");
            let last = if cut { "the last " } else { "" };
            Section {
                about: format!("the log {}: {last}{lines}", path.display()),
                text,
            }
        }
        Err(e) => Section {
            about: format!("no log: {} cannot be read: {e}", path.display()),
            text: String::new(),
        },
    }
}

/// Reads a recording of a connection, which may have been made by another program. Redacts keys
/// also by the names of members, and adds the keys in it to the known ones.
fn recorded(path: &Path, keys: &mut KnownKeys) -> anyhow::Result<Section> {
    let (text, cut) = end_of(path, MAX_RECORDING_BYTES)
        .with_context(|| format!("the recording {} cannot be read", path.display()))?;
    let lines: Vec<Result<Value, &str>> = text
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|_| line))
        .collect();
    for message in lines.iter().flatten() {
        keys.add_from(message);
    }
    let count = text::count(lines.len(), "line");
    let mut redacted = String::new();
    for line in lines {
        match line {
            Ok(mut message) => {
                keys.redact(&mut message);
                let _ = writeln!(redacted, "{message}");
            }
            Err(line) => {
                let _ = writeln!(redacted, "{}", keys.redacted(line));
            }
        }
    }
    let last = if cut { "the last " } else { "" };
    Ok(Section {
        about: format!("the recording {}: {last}{count}", path.display()),
        text: redacted,
    })
}

/// Reads whole lines at the end of a file, at most `most` bytes, and whether lines before them were
/// left out.
fn end_of(path: &Path, most: u64) -> io::Result<(String, bool)> {
    let mut file = base::file::open_regular(path)?;
    let size = file.metadata()?.len();
    let start = size.saturating_sub(most);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    // A log may grow in the meantime.
    file.take(most).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    if start == 0 {
        return Ok((text.into_owned(), false));
    }
    let whole = text.split_once('\n').map_or("", |(_, rest)| rest);
    Ok((whole.to_owned(), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_file_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "first\nsecond\nthird\n").unwrap();
        let table = [
            (100, "first\nsecond\nthird\n", false),
            (19, "first\nsecond\nthird\n", false),
            (15, "second\nthird\n", true),
            (8, "third\n", true),
            (3, "", true),
        ];
        for (most, text, cut) in table {
            assert_eq!(
                end_of(&path, most).unwrap(),
                (text.to_owned(), cut),
                "{most}"
            );
        }
    }
}
