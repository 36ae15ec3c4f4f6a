//! Forms at a terminal: the fields are asked one after the other, and answered by numbers or text.

use protocol::acp::v1;

use super::reply::{self, TypedReply};

/// A field of a form.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    /// The field that receives a free-text answer; `None` if only the options are answers.
    own: Option<String>,
    /// The question and its options.
    pub(super) question: String,
    /// The ways to answer, in lines.
    pub(super) legend: String,
    /// The value and the label of each option.
    options: Vec<(String, String)>,
    takes: AnswerType,
    /// True if there must be an answer, and no default replaces it.
    is_needed: bool,
    /// True if the default replaces a missing answer.
    has_default: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerType {
    Words,
    Several,
    Switch,
    Integer,
    Number,
}

/// The meaning of a line that is typed at a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldReply {
    /// An answer. An empty one leaves the field out.
    Answer(FieldAnswer),
    /// No answer: a text to show before the next line is read.
    Again(String),
    /// A line that may be a mistake: its meaning with a request to confirm it by an empty line, and
    /// the answer that it would be.
    Unlikely(String, FieldAnswer),
}

/// The values of a field and of the text next to it, with the names of their properties.
pub(super) type FieldAnswer = Vec<(String, v1::ElicitationContentValue)>;

/// The request to confirm that a question is skipped.
const SKIPS: &str = "Nothing is chosen. Press Enter again to skip this question, or answer it.";

/// The request to confirm a line that may be a mistake.
const SENDS: &str = "Press Enter to send it, or answer again.";

/// Returns the fields of a form in order, or `None` if the request is not a form.
pub(super) fn fields(request: &v1::CreateElicitationRequest) -> Option<Vec<Field>> {
    let v1::ElicitationMode::Form(form) = &request.mode else {
        return None;
    };
    let properties = &form.requested_schema.properties;
    let required = form
        .requested_schema
        .required
        .as_deref()
        .unwrap_or_default();
    let field = |(name, property): (&String, &v1::ElicitationPropertySchema)| {
        let shown = shown(property);
        let is_required = required.contains(name);
        let own = format!("{name}{FREE_TEXT_SUFFIX}");
        let own = if properties.contains_key(&own) {
            Some(own)
        } else if shown.options.is_empty() {
            Some(name.clone())
        } else {
            None
        };
        let question = question(&shown, is_required);
        let legend = legend(&shown, own.is_some(), is_required);
        let options = shown.options.into_iter();
        Field {
            name: name.clone(),
            own,
            question,
            legend,
            options: options.map(|(value, label, _)| (value, label)).collect(),
            takes: shown.takes,
            is_needed: is_required && shown.default.is_none(),
            has_default: shown.default.is_some(),
        }
    };
    Some(
        properties
            .iter()
            .filter(|(name, _)| !name.ends_with(FREE_TEXT_SUFFIX))
            .map(field)
            .collect(),
    )
}

/// Returns the text of a question, with its numbered options.
fn question(shown: &Shown, is_required: bool) -> String {
    let mut text = format!("? {}", shown.words);
    if shown.takes == AnswerType::Switch {
        text += " (y/n)";
    }
    match &shown.default {
        Some(default) => text += &format!(" [{default}]"),
        None if is_required => text += " (must be answered)",
        None => {}
    }
    text.push('\n');
    for (number, (_, label, description)) in (1..).zip(&shown.options) {
        let more = if description.is_empty() {
            String::new()
        } else {
            format!(": {description}")
        };
        text += &format!("  {number}  {label}{more}\n");
    }
    text
}

/// Returns the ways to answer a question: the choices, and the keys.
fn legend(shown: &Shown, takes_own: bool, is_required: bool) -> String {
    let several = shown.takes == AnswerType::Several;
    let mut ways = Vec::new();
    if !shown.options.is_empty() {
        let numbers = numbers_of(shown.options.len());
        ways.push(if several {
            format!("Answer {numbers} (several: 1, 2)")
        } else {
            format!("Answer {numbers}")
        });
        if takes_own {
            ways.push("or in your own words".to_owned());
        }
    }
    let ways = ways.join(", ");
    let skips = match &shown.default {
        Some(_) => "Enter: what is in brackets",
        None if is_required => "",
        None => "Enter skips",
    };
    let keys = [skips, "? explains"];
    let keys: Vec<&str> = keys.into_iter().filter(|key| !key.is_empty()).collect();
    let lines = [ways, keys.join("; ")];
    let lines = lines.iter().filter(|line| !line.is_empty());
    lines.map(|line| format!("  {line}\n")).collect()
}

fn numbers_of(options: usize) -> String {
    match options {
        1 => "1".to_owned(),
        2 => "1 or 2".to_owned(),
        options => format!("1 to {options}"),
    }
}

impl Field {
    /// Adds the place of the question among several to its text.
    pub(super) fn number(&mut self, number: usize, count: usize) {
        if let Some(question) = self.question.strip_prefix("? ") {
            self.question = format!("? {number} of {count}: {question}");
        }
    }

    /// Reads a line as the answer.
    pub(super) fn read(&self, line: &str) -> FieldReply {
        use v1::ElicitationContentValue as Put;
        let line = line.trim();
        let here = |put| FieldReply::Answer(vec![(self.name.clone(), put)]);
        match (reply::read(line), self.takes) {
            (TypedReply::Explain, _) => FieldReply::Again(self.explained()),
            (TypedReply::Nothing, _) if self.is_needed => {
                FieldReply::Again("This must be answered; Ctrl-C stops the run.".to_owned())
            }
            (TypedReply::Nothing, _) if self.is_skipped_after_confirmation() => {
                FieldReply::Unlikely(SKIPS.to_owned(), Vec::new())
            }
            (TypedReply::Nothing, _) => FieldReply::Answer(Vec::new()),
            (TypedReply::Yes, AnswerType::Switch) => here(Put::Boolean(true)),
            (TypedReply::No, AnswerType::Switch) => here(Put::Boolean(false)),
            (_, AnswerType::Switch) => FieldReply::Again("Answer y or n; ? explains.".to_owned()),
            (_, AnswerType::Integer) => match line.parse() {
                Ok(whole) => here(Put::Integer(whole)),
                Err(_) => FieldReply::Again("Answer with a whole number.".to_owned()),
            },
            (_, AnswerType::Number) => match (line.parse(), line.parse()) {
                (Ok(whole), _) => here(Put::Integer(whole)),
                (_, Ok(number)) => here(Put::Number(number)),
                _ => FieldReply::Again("Answer with a number.".to_owned()),
            },
            (_, AnswerType::Words | AnswerType::Several) if self.options.is_empty() => {
                FieldReply::Answer(self.own_words(line))
            }
            (reply, AnswerType::Words | AnswerType::Several) => self.choice(line, reply),
        }
    }

    /// Returns whether an empty line needs a second one: at a choice, where a key that was pressed
    /// by mistake would decide in the user's place.
    fn is_skipped_after_confirmation(&self) -> bool {
        !self.has_default && !self.options.is_empty() && self.own.is_some()
    }

    /// Reads a line as one of the options or several of them, each by its number or its name,
    /// possibly with a comment.
    fn choice(&self, line: &str, reply: TypedReply<'_>) -> FieldReply {
        // A name may contain a comma.
        if let Some(option) = self.option_named(line) {
            return FieldReply::Answer(self.chosen(vec![option]));
        }
        let all = numbers_of(self.options.len());
        let mut chosen: Vec<usize> = Vec::new();
        let mut comment: Vec<&str> = Vec::new();
        for piece in line.split([',', ';']).map(str::trim) {
            let (numbers, rest) = numbers(piece);
            if let Some(wrong) = numbers
                .iter()
                .find(|number| !(1..=self.options.len()).contains(*number))
            {
                let why = format!("There is no choice {wrong}: answer {all}.");
                let is_number =
                    |c: char| c.is_ascii_digit() || c.is_whitespace() || ",;.".contains(c);
                return if line.chars().all(is_number) {
                    FieldReply::Again(why)
                } else {
                    self.unlikely(why, line)
                };
            }
            chosen.extend(numbers.iter().map(|number| number - 1));
            match self.option_named(rest) {
                Some(option) => chosen.push(option),
                None if rest.is_empty() => {}
                None => comment.push(rest),
            }
        }
        if chosen.is_empty() {
            let is_answer = matches!(reply, TypedReply::Yes | TypedReply::No | TypedReply::Always);
            if let Some(option) = self.option_like(line)
                && !is_answer
            {
                let label = &self.options[option].1;
                let taken_as = format!("Taken as: {label}. {SENDS}");
                return FieldReply::Unlikely(taken_as, self.chosen(vec![option]));
            }
            return if is_answer || self.own.is_none() {
                self.unlikely(format!("\"{line}\" is none of the choices: {all}."), line)
            } else {
                FieldReply::Answer(self.own_words(line))
            };
        }
        let mut seen = Vec::new();
        chosen.retain(|option| {
            let is_new = !seen.contains(option);
            seen.push(*option);
            is_new
        });
        if chosen.len() > 1 && self.takes != AnswerType::Several {
            return FieldReply::Again(format!("Only one can be chosen: answer {all}."));
        }
        if comment.is_empty() {
            return FieldReply::Answer(self.chosen(chosen));
        }
        self.with_comment(chosen, &comment.join(", "))
    }

    /// Returns the option with a name.
    fn option_named(&self, name: &str) -> Option<usize> {
        let name = name.to_lowercase();
        self.options
            .iter()
            .position(|(value, label)| label.to_lowercase() == name || value.to_lowercase() == name)
    }

    /// Returns the only option whose name begins with a text, or else the only one with a word that
    /// does.
    fn option_like(&self, part: &str) -> Option<usize> {
        const MIN_CHARS: usize = 2;
        let part = part.to_lowercase();
        if part.chars().count() < MIN_CHARS {
            return None;
        }
        let only = |fits: &dyn Fn(&str) -> bool| {
            let all = self.options.iter().enumerate();
            let mut fitting = all.filter(|(_, (_, label))| fits(&label.to_lowercase()));
            let (option, _) = fitting.next()?;
            fitting.next().is_none().then_some(option)
        };
        only(&|label| label.starts_with(&part))
            .or_else(|| only(&|label| label.split_whitespace().any(|word| word.starts_with(&part))))
    }

    /// Returns the options with a comment, and the meaning of the line.
    fn with_comment(&self, chosen: Vec<usize>, comment: &str) -> FieldReply {
        if self.own.is_none() {
            let all = numbers_of(self.options.len());
            return FieldReply::Again(format!("Only choices are taken here: answer {all}."));
        }
        let labels = chosen.iter().filter_map(|option| self.options.get(*option));
        let labels: Vec<&str> = labels.map(|(_, label)| label.as_str()).collect();
        let labels = labels.join(", ");
        let taken_for = format!("Taken as: {labels}, with your comment: {comment}. {SENDS}");
        let answer = if self.takes == AnswerType::Several {
            let mut answer = self.chosen(chosen);
            answer.extend(self.own_words(comment));
            answer
        } else {
            self.own_words(&format!("{labels} (comment: {comment})"))
        };
        FieldReply::Unlikely(taken_for, answer)
    }

    fn chosen(&self, options: Vec<usize>) -> FieldAnswer {
        use v1::ElicitationContentValue as Put;
        let options = options.into_iter().filter_map(|at| self.options.get(at));
        let mut values: Vec<String> = options.map(|(value, _)| value.clone()).collect();
        let put = if self.takes == AnswerType::Several {
            Put::StringArray(values)
        } else {
            let Some(value) = values.pop() else {
                return Vec::new();
            };
            Put::String(value)
        };
        vec![(self.name.clone(), put)]
    }

    fn own_words(&self, line: &str) -> FieldAnswer {
        let own = self.own.clone().unwrap_or_else(|| self.name.clone());
        let put = v1::ElicitationContentValue::String(line.to_owned());
        vec![(own, put)]
    }

    /// Asks again; if the user's own words are an answer, they can be confirmed.
    fn unlikely(&self, why: String, line: &str) -> FieldReply {
        if self.own.is_some() {
            FieldReply::Unlikely(format!("{why} {SENDS}"), self.own_words(line))
        } else {
            FieldReply::Again(why)
        }
    }

    /// Explains the answers, one in each line.
    fn explained(&self) -> String {
        let mut lines = Vec::new();
        match self.takes {
            AnswerType::Switch => {
                lines.push("y  yes".to_owned());
                lines.push("n  no".to_owned());
            }
            AnswerType::Integer => lines.push("a whole number  is the answer".to_owned()),
            AnswerType::Number => lines.push("a number  is the answer".to_owned()),
            AnswerType::Words | AnswerType::Several => {
                let all = numbers_of(self.options.len());
                if !self.options.is_empty() {
                    lines.push(format!("{all}  chooses what has this number"));
                    lines.push("NAME  or a part of it chooses it, too".to_owned());
                }
                if self.takes == AnswerType::Several {
                    lines.push("1, 2  chooses both".to_owned());
                }
                if self.own.is_some() && !self.options.is_empty() {
                    lines.push("1, but TEXT  chooses it, with a comment".to_owned());
                }
                if self.own.is_some() {
                    lines.push("any other text  is your own answer".to_owned());
                }
            }
        }
        if self.has_default {
            lines.push("Enter  answers what is in brackets".to_owned());
        } else if !self.is_needed {
            lines.push("Enter  gives no answer to this question".to_owned());
        }
        lines.push("Ctrl-D  answers none of the questions".to_owned());
        format!("  {}", lines.join("\n  "))
    }
}

/// The suffix of a field for free text.
const FREE_TEXT_SUFFIX: &str = "_own";

/// A property in the form for display.
struct Shown {
    words: String,
    /// The value without an answer.
    default: Option<String>,
    /// The value, the label and the description of each option.
    options: Vec<(String, String, String)>,
    takes: AnswerType,
}

fn shown(property: &v1::ElicitationPropertySchema) -> Shown {
    let words = |words: &Option<String>, title: &Option<String>| {
        words.clone().or_else(|| title.clone()).unwrap_or_default()
    };
    let triple = |option: &v1::EnumOption| {
        (
            option.value.clone(),
            option.title.clone(),
            option.description.clone().unwrap_or_default(),
        )
    };
    match property {
        v1::ElicitationPropertySchema::String(text) => Shown {
            words: words(&text.description, &text.title),
            default: text.default.clone(),
            options: text.one_of.iter().flatten().map(triple).collect(),
            takes: AnswerType::Words,
        },
        v1::ElicitationPropertySchema::Array(array) => {
            let options = match &array.items {
                v1::MultiSelectItems::Titled(items) => items.options.iter().map(triple).collect(),
                _ => Vec::new(),
            };
            let default = array.default.as_ref().map(|all| all.join(", "));
            Shown {
                words: words(&array.description, &array.title),
                default,
                options,
                takes: AnswerType::Several,
            }
        }
        v1::ElicitationPropertySchema::Boolean(switch) => Shown {
            words: words(&switch.description, &switch.title),
            default: switch
                .default
                .map(|yes| if yes { "y" } else { "n" }.to_owned()),
            options: Vec::new(),
            takes: AnswerType::Switch,
        },
        v1::ElicitationPropertySchema::Integer(number) => Shown {
            words: words(&number.description, &number.title),
            default: number.default.map(|number| number.to_string()),
            options: Vec::new(),
            takes: AnswerType::Integer,
        },
        v1::ElicitationPropertySchema::Number(number) => Shown {
            words: words(&number.description, &number.title),
            default: number.default.map(|number| number.to_string()),
            options: Vec::new(),
            takes: AnswerType::Number,
        },
        _ => Shown {
            words: String::new(),
            default: None,
            options: Vec::new(),
            takes: AnswerType::Words,
        },
    }
}

/// Returns the numbers at the beginning of a text, and the rest of it.
fn numbers(text: &str) -> (Vec<usize>, &str) {
    let mut numbers = Vec::new();
    let mut rest = text;
    loop {
        let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = word.trim_end_matches(['.', ':', ')']).parse();
        let Ok(number) = number else {
            return (numbers, rest);
        };
        numbers.push(number);
        rest = more.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn form() -> Vec<Field> {
        let request = json!({
            "mode": "form", "sessionId": "s", "message": "m",
            "requestedSchema": { "type": "object", "required": ["kind", "count"], "properties": {
                "count": { "type": "integer", "description": "How many?" },
                "kind": { "type": "string", "description": "Of which kind?",
                    "oneOf": [{ "const": "k1", "title": "Kind one" }, { "const": "k2", "title": "Kind two" }] },
                "question1": { "type": "string", "title": "H", "description": "Which?",
                    "oneOf": [{ "const": "a", "title": "a", "description": "first" }, { "const": "b", "title": "b" }] },
                "question1_own": { "type": "string", "title": "H: something else" },
                "question2": { "type": "array", "description": "Which of them?",
                    "items": { "anyOf": [{ "const": "x", "title": "x" }, { "const": "y", "title": "y" }] } },
                "question2_own": { "type": "string" },
                "question3": { "type": "string", "description": "Why?" },
                "sure": { "type": "boolean", "description": "Sure?", "default": true },
            }},
        });
        fields(&serde_json::from_value(request).unwrap()).unwrap()
    }

    /// Describes the meaning of a line: the answer, the reason to ask again, or both.
    fn meaning(field: &Field, line: &str) -> Value {
        let answer = |values: FieldAnswer| {
            let values = values.into_iter().map(|(name, put)| (name, json!(put)));
            Value::Object(values.collect())
        };
        match field.read(&format!("{line}\n")) {
            FieldReply::Answer(values) if values.is_empty() => Value::Null,
            FieldReply::Answer(values) => answer(values),
            FieldReply::Again(why) => why.into(),
            FieldReply::Unlikely(why, values) => {
                let meaning = why.strip_suffix(SENDS).unwrap_or(&why).trim_end();
                json!([meaning, answer(values)])
            }
        }
    }

    #[test]
    fn line_selects_options_by_number_or_name_or_is_text() {
        let form = form();
        let field = |name: &str| form.iter().find(|field| field.name == name).unwrap();
        let no = "There is no choice 9: answer 1 or 2.";
        let needed = "This must be answered; Ctrl-C stops the run.";
        let table = [
            ("question1", "2", json!({ "question1": "b" })),
            ("question1", "B", json!({ "question1": "b" })),
            ("question1", "mine", json!({ "question1_own": "mine" })),
            ("question1", "9", json!(no)),
            (
                "question1",
                "0",
                json!("There is no choice 0: answer 1 or 2."),
            ),
            (
                "question1",
                "1, 2",
                json!("Only one can be chosen: answer 1 or 2."),
            ),
            (
                "question1",
                "y",
                json!(["\"y\" is none of the choices: 1 or 2.", { "question1_own": "y" }]),
            ),
            ("question1", "", json!([SKIPS, {}])),
            ("question2", "1, 2", json!({ "question2": ["x", "y"] })),
            ("question2", "2 1 2", json!({ "question2": ["y", "x"] })),
            ("question2", "1", json!({ "question2": ["x"] })),
            ("question2", "1,9", json!(no)),
            ("question2", "1, y", json!({ "question2": ["x", "y"] })),
            ("question2", "Y; x", json!({ "question2": ["y", "x"] })),
            (
                "question2",
                "1, and docs",
                json!(["Taken as: x, with your comment: and docs.",
                    { "question2": ["x"], "question2_own": "and docs" }]),
            ),
            (
                "question1",
                "2 but also a, please",
                json!(["Taken as: b, with your comment: but also a, please.",
                    { "question1_own": "b (comment: but also a, please)" }]),
            ),
            ("question1", "1.", json!({ "question1": "a" })),
            (
                "question1",
                "9 of them",
                json!([no, { "question1_own": "9 of them" }]),
            ),
            (
                "question1",
                "mine, not that",
                json!({ "question1_own": "mine, not that" }),
            ),
            (
                "kind",
                "1 but red",
                json!("Only choices are taken here: answer 1 or 2."),
            ),
            (
                "question2",
                "neither",
                json!({ "question2_own": "neither" }),
            ),
            ("question3", "7", json!({ "question3": "7" })),
            ("question3", "", Value::Null),
            ("kind", "kind TWO", json!({ "kind": "k2" })),
            (
                "kind",
                "mine",
                json!("\"mine\" is none of the choices: 1 or 2."),
            ),
            (
                "kind",
                "kind t",
                json!(["Taken as: Kind two.", { "kind": "k2" }]),
            ),
            (
                "kind",
                "ind",
                json!("\"ind\" is none of the choices: 1 or 2."),
            ),
            (
                "kind",
                "ONE",
                json!(["Taken as: Kind one.", { "kind": "k1" }]),
            ),
            (
                "kind",
                "kind",
                json!("\"kind\" is none of the choices: 1 or 2."),
            ),
            ("kind", "9", json!(no)),
            ("kind", "", json!(needed)),
            ("count", "12", json!({ "count": 12 })),
            ("count", "1.5", json!("Answer with a whole number.")),
            ("count", "many", json!("Answer with a whole number.")),
            ("sure", "Y", json!({ "sure": true })),
            ("sure", "maybe", json!("Answer y or n; ? explains.")),
            ("sure", "", Value::Null),
        ];
        for (name, line, expected) in table {
            assert_eq!(meaning(field(name), line), expected, "{name}: {line:?}");
        }
    }

    #[test]
    fn form_names_the_answers() {
        let shown: String = form()
            .iter()
            .map(|field| format!("{}{}", field.question, field.legend))
            .collect();
        let expected = "\
? How many? (must be answered)
  ? explains
? Of which kind? (must be answered)
  1  Kind one
  2  Kind two
  Answer 1 or 2
  ? explains
? Which?
  1  a: first
  2  b
  Answer 1 or 2, or in your own words
  Enter skips; ? explains
? Which of them?
  1  x
  2  y
  Answer 1 or 2 (several: 1, 2), or in your own words
  Enter skips; ? explains
? Why?
  Enter skips; ? explains
? Sure? (y/n) [y]
  Enter: what is in brackets; ? explains
";
        assert_eq!(shown, expected);
        let form = form();
        let several = form.iter().find(|field| field.name == "question2").unwrap();
        let explained = "  1 or 2  chooses what has this number\n  NAME  or a part of it chooses it, too\n  1, 2  chooses both\n  1, but TEXT  chooses it, with a comment\n  any other text  is your own answer\n  Enter  gives no answer to this question\n  Ctrl-D  answers none of the questions";
        assert_eq!(meaning(several, "?"), explained);
    }
}
