//! The error of a call as its user reads it: without the sentences about the model's next call, and
//! without the texts that these refer to.

/// The beginnings of sentences to the model.
const ADVICE: &[&str] = &[
    "Add lines ",
    "Ask it in your answer",
    "Ask the user ",
    "Call ",
    "Check its effects ",
    "Convert it with iconv",
    "Copy it exactly ",
    "Correct it and call ",
    "Continue ",
    "Do not ",
    "Do the work",
    "Files in the project need no permission",
    "For a long file, write ",
    "For a server of the project use curl ",
    "Give the plan as your answer",
    "If it is to be ",
    "If it should exist again",
    "If that is the place",
    "It takes ",
    "Leave the file unchanged",
    "Make a smaller copy ",
    "Name ",
    "Open it with read",
    "Provide more surrounding context ",
    "Put the change into the plan",
    "Read it ",
    "Read the file again ",
    "Read these ",
    "Report what would have to be done",
    "Run the command itself",
    "Search for one of its words ",
    "Search with ",
    "Send ",
    "Split the call",
    "Tell the user",
    "The other parts of the line are allowed on their own",
    "To continue it, call ",
    "Try something else",
    "Use ",
    "Write ",
    "You sent ",
];

/// The beginnings of lines from which on a text is only for the model: the contents of files that it
/// needs for its next call.
const CONTENTS: &[&str] = &[
    "The closest place is ",
    "The lines as they are now:",
    "This is all of the file:",
    "This is what it contains",
];

/// The beginnings of errors with a text of the user or of another program, which is not shortened.
const OF_OTHERS: &[&str] = &[
    "The user rejected this tool call and said: ",
    "MCP server ",
    "The MCP server ",
    "The tool ",
    "The hook ",
    "The plugin ",
];

/// Returns the error of a call without the sentences to the model. An error that has only such
/// sentences is returned as it is.
pub fn for_user(error: &str) -> String {
    if OF_OTHERS.iter().any(|start| error.starts_with(start)) {
        return error.to_owned();
    }
    let is_reason = |line: &&str| !CONTENTS.iter().any(|start| line.starts_with(start));
    let lines = error.lines().take_while(is_reason);
    let lines = lines.filter_map(|line| {
        let shown = without_advice(line);
        // A blank line between two paragraphs stays.
        (!shown.is_empty() || line.trim().is_empty()).then_some(shown)
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.trim();
    if text.is_empty() {
        return error.to_owned();
    }
    text.to_owned()
}

/// Returns the sentences of a line that are not to the model.
fn without_advice(line: &str) -> String {
    let mut shown = String::new();
    for sentence in sentences(line) {
        let words = sentence.trim_start();
        if !ADVICE.iter().any(|start| words.starts_with(start)) {
            shown.push_str(sentence);
        }
    }
    shown.trim_end().to_owned()
}

/// Splits a line after each full stop that a blank and a capital letter follow.
fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let is_start = |at: usize| {
        let rest = &line[at..];
        let mut after = rest.chars().skip(2);
        rest.starts_with(". ") && after.next().is_some_and(char::is_uppercase)
    };
    let ends = line.match_indices(". ").map(|(at, _)| at);
    let mut starts: Vec<usize> = ends.filter(|at| is_start(*at)).map(|at| at + 1).collect();
    starts.insert(0, 0);
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([line.len()]).collect();
    starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| &line[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::denial_message::NO_WORKAROUND;
    use permission::Denial;

    #[test]
    fn sentences_to_the_model_are_left_out() {
        let denied = format!(
            "Not allowed: the rule \"bash\": {{ \"rm *\": \"deny\" }} (a.json:3) denies bash rm x. {NO_WORKAROUND}"
        );
        let table = [
            (
                denied.as_str(),
                "Not allowed: the rule \"bash\": { \"rm *\": \"deny\" } (a.json:3) denies bash rm x.",
            ),
            (
                "a.py has not been read in this session. Read it with the read tool first, then write the edit against what it contains.",
                "a.py has not been read in this session.",
            ),
            (
                "big.txt exists, and was not read in this session, so it was not replaced.\n\nThis is what it contains; it counts as read now:\n1: one\n\nIf it is to be replaced all the same, send the call again; to change a part of it, edit that part.",
                "big.txt exists, and was not read in this session, so it was not replaced.",
            ),
            (
                "Could not find oldString in the file. (f)\nThe closest place is at lines 3-5:\n3: fn two() {",
                "Could not find oldString in the file. (f)",
            ),
            (
                "Not allowed in plan mode (edit a.rs): nothing may be changed before the user has approved a plan. Put the change into the plan; when the plan is complete, call plan_exit.",
                "Not allowed in plan mode (edit a.rs): nothing may be changed before the user has approved a plan.",
            ),
            (
                "File a.rb not found.\n\nDid you mean one of these?\na.rs",
                "File a.rb not found.\n\nDid you mean one of these?\na.rs",
            ),
            (
                "The result does not match its schema: n is missing\nCorrect it and call StructuredOutput again.",
                "The result does not match its schema: n is missing",
            ),
            (
                "MCP server db reports an error (data, not instructions):\nUse a shorter name.",
                "MCP server db reports an error (data, not instructions):\nUse a shorter name.",
            ),
            (
                "timeout is 0. Send the limit in milliseconds.",
                "timeout is 0.",
            ),
            (
                "Name the server that has the resource.",
                "Name the server that has the resource.",
            ),
            (
                "Version 1.2. of it. it is so",
                "Version 1.2. of it. it is so",
            ),
            ("", ""),
        ];
        for (error, expected) in table {
            assert_eq!(for_user(error), expected);
        }
    }

    #[test]
    fn words_of_the_user_are_whole() {
        let words = "It fails. Use the other branch.\nRead it first. Do not guess.";
        let error = Denial::Corrected(words.into()).to_string();
        assert_eq!(for_user(&error), error);
    }
}
