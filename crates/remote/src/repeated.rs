//! Answers that were cut off when a server was lost, and are generated again by another server. The
//! client has seen the beginning: if the new answer begins with the same text, that part is not
//! shown again, and the rest continues the old message.

/// The maximum length of a compared text, in bytes.
const MAX_COMPARED: usize = 256 << 10;

/// The last text of the model that the client was shown in a session, with no other update after
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastText {
    /// The id of its message.
    id: String,
    text: String,
}

impl LastText {
    /// Adds a piece of text, which may begin another message.
    pub(super) fn shown(last: Option<Self>, id: &str, text: &str) -> Option<Self> {
        let before = last
            .filter(|last| last.id == id)
            .map(|last| last.text)
            .unwrap_or_default();
        (before.len() + text.len() <= MAX_COMPARED).then(|| Self {
            id: id.to_owned(),
            text: before + text,
        })
    }
}

/// The treatment of a piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RepeatedPiece {
    Pass,
    /// The client has seen this piece.
    Seen,
    /// To be replaced by this message id and text.
    Instead(String, String),
}

/// The comparison of a new answer with the text that the client has seen.
#[derive(Debug)]
pub(super) struct RepeatedAnswer {
    seen: LastText,
    /// The number of bytes of that text which the new answer has repeated.
    repeated: usize,
    /// The id of the new answer's message.
    id: Option<String>,
    is_over: bool,
}

impl RepeatedAnswer {
    pub(super) fn new(seen: LastText) -> Self {
        Self {
            seen,
            repeated: 0,
            id: None,
            is_over: false,
        }
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
    fn repeated_answer_continues_the_interrupted_one() {
        let table: [(&str, Pieces, Pieces); 7] = [
            (
                "in one piece",
                &[("b", "Once upon a time")],
                &[("a", " a time")],
            ),
            (
                "in many",
                &[("b", "Onc"), ("b", "e up"), ("b", "on a"), ("b", " time")],
                &[("a", " a"), ("a", " time")],
            ),
            (
                "exactly",
                &[("b", "Once upon"), ("b", " a time")],
                &[("a", " a time")],
            ),
            (
                "another one",
                &[("b", "Once"), ("b", " more"), ("b", "!")],
                &[("b", "Once more"), ("b", "!")],
            ),
            ("gone on with", &[("b", " a time")], &[("b", " a time")]),
            (
                "a further message",
                &[("b", "Once upon a"), ("c", "Once upon")],
                &[("a", " a"), ("c", "Once upon")],
            ),
            (
                "the same message",
                &[("a", " a time"), ("b", "Once upon")],
                &[("a", " a time"), ("b", "Once upon")],
            ),
        ];
        for (name, made, wanted) in table {
            let seen = LastText::shown(LastText::shown(None, "a", "Once"), "a", " upon").unwrap();
            let mut answer = RepeatedAnswer::new(seen);
            let shown = made
                .iter()
                .filter_map(|(id, text)| match answer.hear(id, text) {
                    RepeatedPiece::Pass => Some(((*id).to_owned(), (*text).to_owned())),
                    RepeatedPiece::Seen => None,
                    RepeatedPiece::Instead(id, text) => Some((id, text)),
                });
            let shown: Vec<(String, String)> = shown.collect();
            let wanted: Vec<(String, String)> = wanted
                .iter()
                .map(|(id, text)| ((*id).to_owned(), (*text).to_owned()))
                .collect();
            assert_eq!(shown, wanted, "{name}");
        }
    }
}
