//! What somebody types at the terminal to answer a question. The same in every place that asks: y, yes, ok; a, always;
//! n, no; ?; in capital letters as well.

/// An answer to a question with a yes and a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypedReply<'t> {
    Yes,
    Always,
    No,
    /// What do the answers mean?
    Explain,
    /// Nothing was typed.
    Nothing,
    Words(&'t str),
}

/// Reads an answer from a line.
pub(super) fn read(line: &str) -> TypedReply<'_> {
    let line = line.trim();
    match line.to_lowercase().as_str() {
        "y" | "yes" | "ok" | "okay" => TypedReply::Yes,
        "a" | "always" => TypedReply::Always,
        "n" | "no" => TypedReply::No,
        "?" => TypedReply::Explain,
        "" => TypedReply::Nothing,
        _ => TypedReply::Words(line),
    }
}

/// Asks for a plain yes or no until there is one: `ask` shows words and gives the line that answers them; none at the
/// end of the input. `explained` says what follows from a yes. Nothing typed is the answer of `default`, if there is
/// one.
pub(super) fn yes_or_no(
    question: &str,
    explained: &str,
    default: Option<bool>,
    mut ask: impl FnMut(&str) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<Option<bool>> {
    let mut shown = question.to_owned();
    loop {
        let Some(line) = ask(&shown)? else { return Ok(None) };
        match read(&line) {
            TypedReply::Yes => return Ok(Some(true)),
            TypedReply::No => return Ok(Some(false)),
            TypedReply::Nothing if default.is_some() => return Ok(default),
            TypedReply::Explain => shown = format!("{explained}\n{question}"),
            TypedReply::Always => shown = format!("There is no \"always\" here. {question}"),
            TypedReply::Nothing | TypedReply::Words(_) => shown = format!("Answer y or n; ? explains. {question}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_mean_what_they_say_in_any_case() {
        let table = [
            ("y", TypedReply::Yes),
            (" Y \n", TypedReply::Yes),
            ("yes", TypedReply::Yes),
            ("Ok", TypedReply::Yes),
            ("a", TypedReply::Always),
            ("A", TypedReply::Always),
            ("n", TypedReply::No),
            ("N", TypedReply::No),
            ("NO", TypedReply::No),
            ("?", TypedReply::Explain),
            ("\n", TypedReply::Nothing),
            ("yse", TypedReply::Words("yse")),
            ("use ls instead\n", TypedReply::Words("use ls instead")),
        ];
        for (line, reply) in table {
            assert_eq!(read(line), reply, "{line:?}");
        }
    }

    #[test]
    fn a_yes_or_no_is_asked_until_it_is_one() {
        let answered = |lines: &[&str], default| {
            let mut lines = lines.iter();
            let mut shown = Vec::new();
            let answer = yes_or_no("Trust it? ", "It may run things.", default, |words| {
                shown.push(words.to_owned());
                Ok(lines.next().map(|line| (*line).to_owned()))
            });
            (answer.unwrap(), shown)
        };
        assert_eq!(answered(&["Y"], None).0, Some(true));
        assert_eq!(answered(&["", "n"], None).0, Some(false));
        assert_eq!(answered(&[""], Some(false)).0, Some(false));
        assert_eq!(answered(&[], None).0, None);
        let (answer, shown) = answered(&["?", "a", "sure", "ok"], None);
        assert_eq!(answer, Some(true));
        assert_eq!(
            shown,
            [
                "Trust it? ",
                "It may run things.\nTrust it? ",
                "There is no \"always\" here. Trust it? ",
                "Answer y or n; ? explains. Trust it? "
            ]
        );
    }
}
