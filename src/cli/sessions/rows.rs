//! Lists of sessions. A terminal gets short ids, ages and titles in its width, by directory; a pipe
//! gets one complete line for each session.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};

use crate::cli::terminal;
use crate::cli::terminal::style::{FAINT, STRONG};
use crate::cli::terminal::styled::{Palette, Styled};
use base::environment::{Environment, Timestamp};
use base::id::SessionId;
use base::listing;
use base::text;
use export::conversation::minute;
use store::{Record, Store};

/// The shortest beginning of an id that is shown: the kind and the time of its creation.
const MIN_ID_BYTES: usize = 16;

/// The narrowest terminal in which a title is next to its id and age.
const MIN_COLUMNS: usize = 60;

/// The style of a word that was searched.
const HIT: Style = AnsiColor::Yellow.on_default().bold();

/// The titles of two columns.
const LAST_USED: &str = "last used";
const CHANGED: &str = "changed";

const INDENT: &str = "  ";
const GAP: &str = "  ";

/// A session of a list.
#[derive(Debug)]
pub(super) struct SessionRow {
    pub(super) record: Record,
    /// A text below it.
    pub(super) note: Option<String>,
    /// The number of turns that are undone and can be redone.
    pub(super) undone_turns: usize,
}

impl From<Record> for SessionRow {
    fn from(record: Record) -> Self {
        Self {
            record,
            note: None,
            undone_turns: 0,
        }
    }
}

/// The look of a list in a terminal.
struct TerminalList {
    columns: usize,
    now: Timestamp,
    home: Option<PathBuf>,
    palette: Palette,
    /// The words that were searched, in lower case.
    hits: Vec<String>,
}

/// Prints a list, with the directories of the sessions if `has_places`. A terminal shows the `hits`
/// in titles and notes in a colour.
///
/// # Errors
/// The other sessions cannot be read, from whose ids those of the list must differ.
pub(super) async fn print(
    rows: &[SessionRow],
    has_places: bool,
    hits: &[String],
    store: &Store,
    environment: &Environment,
) -> Result<(), store::Error> {
    if rows.is_empty() {
        return Ok(()); // not a blank line
    }
    let Some(columns) = listing::terminal_width() else {
        for row in rows {
            let undone = match row.undone_turns {
                0 => String::new(),
                turns => format!("  ({} undone)", text::count(turns, "turn")),
            };
            terminal::say(&format!("{}{undone}", line(&row.record, has_places)));
            if let Some(note) = &row.note {
                terminal::say(&format!("    {note}"));
            }
        }
        return Ok(());
    };
    let ids = short_ids(rows, store).await?;
    let list = TerminalList {
        columns,
        now: environment.now(),
        home: environment.home.clone(),
        palette: terminal::palette(environment),
        hits: hits.iter().map(|hit| hit.to_lowercase()).collect(),
    };
    terminal::show(&list.render(rows, ids, has_places));
    Ok(())
}

/// Returns the complete line of a session.
pub(super) fn line(record: &Record, has_place: bool) -> String {
    let directory = if has_place {
        format!("  {}", record.cwd.display())
    } else {
        String::new()
    };
    let title = title(record);
    format!(
        "{}  {}  {title}{directory}",
        record.id,
        minute(record.updated)
    )
}

fn title(record: &Record) -> &str {
    record.title.as_deref().unwrap_or("(no title)")
}

/// The columns of a session in a terminal.
struct Cells<'a> {
    row: &'a SessionRow,
    id: String,
    age: String,
    /// The number of changed files, if there are any.
    changed: String,
}

/// The widths of the columns.
#[derive(Debug, Clone, Copy)]
struct CellWidths {
    id: usize,
    age: usize,
    changed: usize,
}

impl CellWidths {
    /// Returns the widths for a list that has titles of columns.
    fn with_titles(self) -> Self {
        Self {
            age: self.age.max(LAST_USED.len()),
            changed: if self.changed == 0 {
                0
            } else {
                self.changed.max(CHANGED.len())
            },
            ..self
        }
    }
}

impl TerminalList {
    /// Returns the list. `ids` are those that are shown of the rows.
    fn render(&self, rows: &[SessionRow], ids: Vec<String>, has_places: bool) -> Styled {
        let cells: Vec<Cells<'_>> = rows
            .iter()
            .zip(ids)
            .map(|(row, id)| Cells {
                row,
                id,
                age: listing::age(row.record.updated, self.now),
                changed: changed_files(&row.record),
            })
            .collect();
        let widths = CellWidths {
            id: cells.iter().map(|cells| cells.id.len()).max().unwrap_or(0),
            age: cells.iter().map(|cells| cells.age.len()).max().unwrap_or(0),
            changed: cells
                .iter()
                .map(|cells| cells.changed.len())
                .max()
                .unwrap_or(0),
        };
        let mut out = Styled::default();
        let has_head = self.columns >= MIN_COLUMNS;
        let widths = if has_head {
            widths.with_titles()
        } else {
            widths
        };
        if has_head {
            let indent = if has_places { INDENT } else { "" };
            self.push_head(widths, indent, &mut out);
        }
        if !has_places {
            for cells in &cells {
                self.push(cells, widths, "", &mut out);
            }
            return out;
        }
        let mut places: Vec<(String, Vec<Cells<'_>>)> = Vec::new();
        let mut indices: HashMap<&Path, usize> = HashMap::new();
        for cells in cells {
            let record = &cells.row.record;
            let index = *indices.entry(&record.cwd).or_insert_with(|| {
                places.push((self.directory(record), Vec::new()));
                places.len() - 1
            });
            places[index].1.push(cells);
        }
        for (number, (directory, all)) in places.iter().enumerate() {
            if number > 0 {
                out.push(&Palette::plain("\n"));
            }
            let directory = listing::shortened_start(directory, self.columns);
            out.push(&self.palette.line(STRONG, &directory));
            out.push(&Palette::plain("\n"));
            for cells in all {
                self.push(cells, widths, INDENT, &mut out);
            }
        }
        out
    }

    /// Returns the directory of a session, with `~` for the home directory.
    fn directory(&self, record: &Record) -> String {
        let home = self.home.as_ref();
        match home.and_then(|home| record.cwd.strip_prefix(home).ok()) {
            Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
            Some(below) => format!("~/{}", below.display()),
            None => record.cwd.display().to_string(),
        }
    }

    fn push(&self, cells: &Cells<'_>, widths: CellWidths, indent: &str, out: &mut Styled) {
        let Cells {
            row,
            id,
            age,
            changed,
        } = cells;
        let CellWidths {
            id: id_width,
            age: age_width,
            changed: changed_width,
        } = widths;
        let start = format!("{indent}{id:id_width$}{GAP}");
        out.push(&Palette::plain(&start));
        let mut facts = format!("{age:>age_width$}");
        if changed_width > 0 {
            facts.push_str(&format!("{GAP}{changed:>changed_width$}"));
        }
        let is_narrow = self.columns < MIN_COLUMNS;
        let (facts, before_title) = if is_narrow {
            (facts.trim_end(), format!("\n{indent}{INDENT}"))
        } else {
            (facts.as_str(), GAP.to_owned())
        };
        out.push(&self.palette.line(FAINT, facts));
        let used = if is_narrow {
            indent.len() + INDENT.len()
        } else {
            start.len() + facts.len() + GAP.len()
        };
        out.push(&Palette::plain(&before_title));
        self.push_line(Style::new(), title(&row.record), used, out);
        if row.undone_turns > 0 {
            let what = if row.undone_turns == 1 { "it" } else { "one" };
            let turns = text::count(row.undone_turns, "turn");
            self.push_note(
                &format!("{turns} undone; /redo restores {what}"),
                indent,
                out,
            );
        }
        if let Some(note) = &row.note {
            self.push_note(note, indent, out);
        }
    }

    /// Appends the titles of the columns.
    fn push_head(&self, widths: CellWidths, indent: &str, out: &mut Styled) {
        let mut head = format!(
            "{indent}{:id$}{GAP}{:>age$}",
            "session",
            LAST_USED,
            id = widths.id,
            age = widths.age
        );
        if widths.changed > 0 {
            head.push_str(&format!("{GAP}{:>1$}", CHANGED, widths.changed));
        }
        out.push(&self.palette.line(FAINT, &format!("{head}{GAP}title")));
        out.push(&Palette::plain("\n"));
    }

    fn push_note(&self, note: &str, indent: &str, out: &mut Styled) {
        let before_note = format!("{indent}{INDENT}{INDENT}");
        out.push(&Palette::plain(&before_note));
        let words: Vec<&str> = note.split_whitespace().collect();
        self.push_line(FAINT, &words.join(" "), before_note.len(), out);
    }

    /// Ends a line, of which some columns are used, with a text that is cut to the rest.
    fn push_line(&self, style: Style, text: &str, used: usize, out: &mut Styled) {
        let text = listing::shortened(text, self.columns.saturating_sub(used));
        for (part, is_hit) in divided(&text, &self.hits) {
            let style = if is_hit { HIT } else { style };
            out.push(&self.palette.line(style, part));
        }
        out.push(&Palette::plain("\n"));
    }
}

/// Divides a text into the words that were searched and the rest.
fn divided<'t>(text: &'t str, hits: &[String]) -> Vec<(&'t str, bool)> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let hit = hits
            .iter()
            .filter_map(|hit| length_of_hit(&text[at..], hit));
        let Some(length) = hit.max() else {
            at += c.len_utf8();
            continue;
        };
        if start < at {
            parts.push((&text[start..at], false));
        }
        parts.push((&text[at..at + length], true));
        at += length;
        start = at;
    }
    if start < text.len() {
        parts.push((&text[start..], false));
    }
    parts
}

/// Returns the length in bytes of a word in lower case at the beginning of a text in any case.
fn length_of_hit(text: &str, hit: &str) -> Option<usize> {
    let mut rest = hit;
    for (at, c) in text.char_indices() {
        if rest.is_empty() {
            return (at > 0).then_some(at);
        }
        for lower in c.to_lowercase() {
            rest = rest.strip_prefix(lower)?;
        }
    }
    (rest.is_empty() && !hit.is_empty()).then_some(text.len())
}

/// Returns the number of files that a session has changed, unless it has changed none.
fn changed_files(record: &Record) -> String {
    match record.diff_stats.map_or(0, |changed| changed.files) {
        0 => String::new(),
        files => text::count(files, "file"),
    }
}

/// Returns the shortest beginning of each id that no other session has, listed or not.
async fn short_ids(rows: &[SessionRow], store: &Store) -> Result<Vec<String>, store::Error> {
    let ids: Vec<SessionId> = rows.iter().map(|row| row.record.id.clone()).collect();
    let neighbours = store.list_neighbours(ids.clone()).await?;
    Ok(shortened_ids(&ids, &neighbours))
}

/// Shortens ids so that none is the beginning of another one, given their neighbours in the order
/// of all ids.
fn shortened_ids(ids: &[SessionId], neighbours: &[SessionId]) -> Vec<String> {
    let all: BTreeSet<&str> = ids
        .iter()
        .chain(neighbours)
        .map(SessionId::as_str)
        .collect();
    let shortened = |id: &SessionId| {
        let id = id.as_str();
        let before = all.range::<&str, _>(..id).next_back();
        let after = all
            .range::<&str, _>((Bound::Excluded(id), Bound::Unbounded))
            .next();
        let common = |other: &&str| {
            let same = id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
            same.count()
        };
        let common = before.into_iter().chain(after).map(common).max();
        let bytes = common.map_or(0, |common| common + 1).max(MIN_ID_BYTES);
        id.get(..bytes).unwrap_or(id).to_owned()
    };
    ids.iter().map(shortened).collect()
}

#[cfg(test)]
mod tests {
    use store::DiffStats;

    use super::*;

    const MINUTE_MILLIS: u64 = 60_000;

    fn row(id: &str, cwd: &str, title: &str, minutes: u64) -> SessionRow {
        let record = Record {
            title: Some(title.into()),
            updated: Timestamp(minutes * MINUTE_MILLIS),
            ..Record::new(SessionId::new(id), cwd.into(), Timestamp(0))
        };
        record.into()
    }

    #[test]
    fn shortened_ids_differ_from_their_neighbours() {
        let table: [(&[&str], &[&str], &[&str]); 4] = [
            (&["ses_0123456789abcdef"], &[], &["ses_0123456789ab"]),
            (
                &["ses_0123456789abcdef", "ses_0123456789abcxyz"],
                &[],
                &["ses_0123456789abcd", "ses_0123456789abcx"],
            ),
            (
                &["ses_0123456789abcdef"],
                &["ses_0123456789abcdee", "ses_0123456789b"],
                &["ses_0123456789abcdef"],
            ),
            // One is the beginning of another, and one is short.
            (
                &["ses_0123456789abcdef", "ses_1"],
                &["ses_0123456789abcdefg", "ses_0"],
                &["ses_0123456789abcdef", "ses_1"],
            ),
        ];
        for (ids, neighbours, expected) in table {
            let of = |ids: &[&str]| ids.iter().map(|id| SessionId::new(*id)).collect::<Vec<_>>();
            assert_eq!(
                shortened_ids(&of(ids), &of(neighbours)),
                expected,
                "{ids:?}"
            );
        }
    }

    fn list(columns: usize) -> TerminalList {
        TerminalList {
            columns,
            now: Timestamp(100 * MINUTE_MILLIS),
            home: Some("/home/me".into()),
            hits: Vec::new(),
            palette: Palette::of(
                &std::fs::File::open("/dev/null").unwrap(),
                &Environment::from_vars(std::collections::BTreeMap::new()),
            ),
        }
    }

    #[test]
    fn searched_words_are_marked_in_any_case() {
        for (text, hits, expected) in [
            ("A Test, TESTED", "test", "A [Test], [TEST]ED"),
            ("ÄRGER", "ärg", "[ÄRG]ER"),
            ("abc", "b bc", "a[bc]"),
            ("abc", "", "abc"),
        ] {
            let hits: Vec<String> = hits.split(' ').map(str::to_owned).collect();
            let marked = divided(text, &hits).into_iter().map(|(part, is_hit)| {
                if is_hit {
                    format!("[{part}]")
                } else {
                    part.to_owned()
                }
            });
            assert_eq!(marked.collect::<String>(), expected);
        }
    }

    #[test]
    fn list_fits_the_terminal() {
        let mut rows = [
            row(
                "ses_01a2289e9db20000ugw9",
                "/home/me/work/beta",
                "Rewrite the parser of the settings in small steps",
                99,
            ),
            row("ses_01a2289de57310000kqA", "/home/me", "Why", 95),
            row(
                "ses_01a2289de57320000kqA",
                "/home/me/work/beta",
                "A lamp",
                10,
            ),
        ];
        rows[2].note =
            Some("It is\noiled, and burns all the night through as if it were new".into());
        rows[1].undone_turns = 2;
        rows[0].record.diff_stats = Some(DiffStats {
            files: 1,
            additions: 2,
            deletions: 0,
        });
        let places = "  \
            session            last used  changed  title\n\
            ~/work/beta\n  \
            ses_01a2289e9db2   1 min ago   1 file  Rewrite the parser…\n  \
            ses_01a2289de5732    1 h ago           A lamp\n      \
            It is oiled, and burns all the night through as if it…\n\n\
            ~\n  \
            ses_01a2289de5731  5 min ago           Why\n      2 turns undone; /redo restores one\n";
        let wide = "\
            session            last used  changed  title\n\
            ses_01a2289e9db2   1 min ago   1 file  Rewrite the parser of the settings in small steps\n\
            ses_01a2289de5731  5 min ago           Why\n    2 turns undone; /redo restores one\n\
            ses_01a2289de5732    1 h ago           A lamp\n    \
            It is oiled, and burns all the night through as if it were new\n";
        let narrow = "\
            ses_01a2289e9db2   1 min ago  1 file\n  \
            Rewrite the parser of the settings in…\n\
            ses_01a2289de5731  5 min ago\n  Why\n    2 turns undone; /redo restores one\n\
            ses_01a2289de5732    1 h ago\n  A lamp\n    \
            It is oiled, and burns all the nigh…\n";
        for (columns, has_places, expected) in
            [(60, true, places), (120, false, wide), (40, false, narrow)]
        {
            let ids = ["ses_01a2289e9db2", "ses_01a2289de5731", "ses_01a2289de5732"];
            let ids = ids.map(str::to_owned).to_vec();
            let shown = list(columns).render(&rows, ids, has_places);
            assert_eq!(shown.as_str(), expected, "{columns}");
        }
    }
}
