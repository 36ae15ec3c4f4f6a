//! An answer that was cut off with its server, and is made again on another one. The editor has seen the beginning of it:
//! where the new answer begins with the same words, they are not shown twice, and what follows goes on where they ended.

/// The longest text that is compared, in bytes.
const MAX_COMPARED: usize = 256 << 10;

/// The last text of a model that an editor was shown in a session, nothing having come after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastText {
    /// The message it is of.
    id: String,
    text: String,
}

impl LastText {
    /// Takes note of more text, which may be of another message.
    pub(super) fn shown(last: Option<Self>, id: &str, text: &str) -> Option<Self> {
        let before = last.filter(|last| last.id == id).map(|last| last.text).unwrap_or_default();
        (before.len() + text.len() <= MAX_COMPARED).then(|| Self { id: id.to_owned(), text: before + text })
    }
}

/// What becomes of a piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RepeatedPiece {
    Pass,
    /// The editor has seen it.
    Seen,
    /// It is shown as this text of this message.
    Instead(String, String),
}

/// Compares a new answer with the beginning that was seen.
#[derive(Debug)]
pub(super) struct RepeatedAnswer {
    seen: LastText,
    /// How much of that the new answer has repeated, in bytes.
    repeated: usize,
    /// The new answer's message.
    id: Option<String>,
    is_over: bool,
}

impl RepeatedAnswer {
    pub(super) fn new(seen: LastText) -> Self {
        Self { seen, repeated: 0, id: None, is_over: false }
    }

    pub(super) fn hear(&mut self, id: &str, text: &str) -> RepeatedPiece {
        let is_new = self.id.get_or_insert_with(|| id.to_owned()) != id || self.seen.id == id;
        if self.is_over || is_new {
            self.is_over = true;
            return RepeatedPiece::Pass;
        }
        let (before, rest) = self.seen.text.split_at(self.repeated);
        if let Some(further) = text.strip_prefix(rest) {
            self.repeated = self.seen.text.len();
            return match further {
                "" => RepeatedPiece::Seen,
                further => RepeatedPiece::Instead(self.seen.id.clone(), further.to_owned()),
            };
        }
        if rest.starts_with(text) {
            self.repeated += text.len();
            return RepeatedPiece::Seen;
        }
        self.is_over = true;
        RepeatedPiece::Instead(id.to_owned(), format!("{before}{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pieces = &'static [(&'static str, &'static str)];

    #[test]
    fn answer_made_again_goes_on_where_it_was_cut_off() {
        let table: [(&str, Pieces, Pieces); 7] = [
            ("in one piece", &[("b", "Once upon a time")], &[("a", " a time")]),
            ("in many", &[("b", "Onc"), ("b", "e up"), ("b", "on a"), ("b", " time")], &[("a", " a"), ("a", " time")]),
            ("exactly", &[("b", "Once upon"), ("b", " a time")], &[("a", " a time")]),
            ("another one", &[("b", "Once"), ("b", " more"), ("b", "!")], &[("b", "Once more"), ("b", "!")]),
            ("gone on with", &[("b", " a time")], &[("b", " a time")]),
            ("a further message", &[("b", "Once upon a"), ("c", "Once upon")], &[("a", " a"), ("c", "Once upon")]),
            ("the same message", &[("a", " a time"), ("b", "Once upon")], &[("a", " a time"), ("b", "Once upon")]),
        ];
        for (name, made, wanted) in table {
            let seen = LastText::shown(LastText::shown(None, "a", "Once"), "a", " upon").unwrap();
            let mut answer = RepeatedAnswer::new(seen);
            let shown = made.iter().filter_map(|(id, text)| match answer.hear(id, text) {
                RepeatedPiece::Pass => Some(((*id).to_owned(), (*text).to_owned())),
                RepeatedPiece::Seen => None,
                RepeatedPiece::Instead(id, text) => Some((id, text)),
            });
            let shown: Vec<(String, String)> = shown.collect();
            let wanted: Vec<(String, String)> =
                wanted.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect();
            assert_eq!(shown, wanted, "{name}");
        }
    }
}
