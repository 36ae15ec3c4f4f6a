//! Answers to yes-or-no questions at the terminal. All questions accept the same ones: y, yes, ok;
//! a, always; n, no; ?; in upper or lower case. A reason may follow a no.

/// An answer to a question with a yes and a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypedReply<'t> {
    Yes,
    Always,
    No,
    /// A no with its reason.
    NoBecause(&'t str),
    /// A request to explain the answers.
    Explain,
    /// An empty line.
    Nothing,
    Words(&'t str),
}

/// Parses an answer.
pub(super) fn read(line: &str) -> TypedReply<'_> {
    let line = line.trim();
    match line.to_lowercase().as_str() {
        "y" | "yes" | "ok" | "okay" => TypedReply::Yes,
        "a" | "always" => TypedReply::Always,
        "n" | "no" => TypedReply::No,
        "?" => TypedReply::Explain,
        "" => TypedReply::Nothing,
        _ => reason_of_no(line).map_or(TypedReply::Words(line), TypedReply::NoBecause),
    }
}

/// Returns the reason after a no: `n use ls`, `no, use ls`. The words after `no` alone may be a sentence.
fn reason_of_no(line: &str) -> Option<&str> {
    let end = line.find(|c: char| !c.is_alphabetic())?;
    let (word, rest) = line.split_at(end);
    let has_mark = rest.starts_with([',', ':', ';']);
    let is_no = match word.to_lowercase().as_str() {
        "n" => has_mark || rest.starts_with(' '),
        "no" => has_mark,
        _ => false,
    };
    let reason = rest.trim_start_matches([',', ':', ';', ' ']).trim();
    (is_no && !reason.is_empty()).then_some(reason)
}

/// Asks for yes or no until the answer is one of them: `ask` shows a text and returns the next
/// line, or `None` at the end of the input. `explained` describes the effect of a yes. An empty
/// line selects `default`, if there is one.
pub(super) fn yes_or_no(
    question: &str,
    explained: &str,
    default: Option<bool>,
    mut ask: impl FnMut(&str) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<Option<bool>> {
    let mut shown = question.to_owned();
    loop {
        let Some(line) = ask(&shown)? else {
            return Ok(None);
        };
        match read(&line) {
            TypedReply::Yes => return Ok(Some(true)),
            TypedReply::No => return Ok(Some(false)),
            TypedReply::Nothing if default.is_some() => return Ok(default),
            TypedReply::Explain => shown = format!("{explained}\n{question}"),
            TypedReply::Always => shown = format!("\"Always\" is not offered here.\n{question}"),
            TypedReply::Nothing | TypedReply::NoBecause(_) | TypedReply::Words(_) => {
                let keys = if question.contains("/v/") {
                    "y, v or n"
                } else {
                    "y or n"
                };
                shown = format!("Answer {keys}; ? explains.\n{question}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_recognized_in_any_case() {
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
            ("n use ls", TypedReply::NoBecause("use ls")),
            ("No, use ls\n", TypedReply::NoBecause("use ls")),
            ("no tests please", TypedReply::Words("no tests please")),
            ("n,", TypedReply::Words("n,")),
            ("now", TypedReply::Words("now")),
        ];
        for (line, reply) in table {
            assert_eq!(read(line), reply, "{line:?}");
        }
    }

    #[test]
    fn yes_or_no_question_is_repeated_until_answered() {
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
                "\"Always\" is not offered here.\nTrust it? ",
                "Answer y or n; ? explains.\nTrust it? "
            ]
        );
    }
}
