//! Compares the tables of environment variables in the manual with the variables that the program
//! reads.

use std::collections::BTreeSet;

use super::pages;
use super::sources;

/// Functions that read a variable; the name is their first argument.
const READERS: &[&str] = &["var", "var_os", "setting", "is_disabled"];

/// Prefixes with the same meaning.
const PREFIXES: [&str; 2] = ["ADJUTANT_", "OPENCODE_"];

/// Variables that libraries read: the directories, and the exporter of telemetry.
const READ_BY_LIBRARIES: &[&str] = &[
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
];

/// Variables that users do not set, and the marks that processes of adjutant carry.
const NOT_FOR_USERS: &[&str] = &[
    "ADJUTANT_CHILD",
    "CARGO_ENCODED_RUSTFLAGS",
    "XDG_RUNTIME_DIR",
];

/// Removes a prefix with the same meaning as another one.
fn without_prefix(name: &str) -> &str {
    PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name)
}

fn is_name(text: &str) -> bool {
    text.len() > 2
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text
            .bytes()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_')
}

/// Returns the names in the first column of the tables of variables of all pages.
fn documented() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in pages::manual() {
        let mut is_table = false;
        for line in text.lines() {
            is_table = line.starts_with("| variable |") || (is_table && line.starts_with('|'));
            if !is_table {
                continue;
            }
            let cell = line.split('|').nth(1).unwrap_or_default();
            for span in pages::spans(cell).0 {
                let name = span.split('=').next().unwrap_or_default();
                if is_name(name) {
                    names.insert(name.to_owned());
                }
            }
        }
    }
    names
}

/// Returns the texts in quotes of the program's sources that may be names of variables, and those
/// of them that a function reads or that have our prefix.
fn in_sources() -> (BTreeSet<String>, BTreeSet<String>) {
    let mut all = BTreeSet::new();
    let mut read = BTreeSet::new();
    for text in sources::texts_of_program() {
        let mut before = "";
        for (at, piece) in text.split('"').enumerate() {
            if at % 2 == 1 && is_name(piece) {
                all.insert(piece.to_owned());
                let function = before.trim_end().strip_suffix('(').unwrap_or_default();
                let ends_with = |reader: &&str| {
                    function.strip_suffix(*reader).is_some_and(|rest| {
                        !rest.ends_with(|c: char| c.is_alphanumeric() || c == '_')
                    })
                };
                if READERS.iter().any(ends_with) || piece.starts_with(PREFIXES[0]) {
                    read.insert(piece.to_owned());
                }
            }
            before = piece;
        }
    }
    (all, read)
}

#[test]
fn tables_of_variables_agree_with_the_program() {
    let documented = documented();
    let (all, read) = in_sources();
    assert!(
        documented.len() > 40 && read.len() > 25,
        "{documented:?} {read:?}"
    );
    let known: BTreeSet<&str> = all.iter().map(|name| without_prefix(name)).collect();
    let unread: Vec<&String> = documented
        .iter()
        .filter(|name| !known.contains(without_prefix(name)))
        .filter(|name| !READ_BY_LIBRARIES.contains(&name.as_str()))
        .collect();
    assert!(
        unread.is_empty(),
        "in a table, but nothing reads them: {unread:?}"
    );
    let described: BTreeSet<&str> = documented.iter().map(|name| without_prefix(name)).collect();
    let missing: Vec<&String> = read
        .iter()
        .filter(|name| !described.contains(without_prefix(name)))
        .filter(|name| !NOT_FOR_USERS.contains(&name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "read, but in no table of the manual: {missing:?}"
    );
}
