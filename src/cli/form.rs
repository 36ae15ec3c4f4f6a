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
    pub(super) words: String,
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
    /// An answer, with the name of its property; `None` leaves the field out.
    Answer(Option<(String, v1::ElicitationContentValue)>),
    /// No answer: a text to show before the next line is read.
    Again(String),
    /// Words of the user that look like a mistake: the reason, and the answer that they would be.
    Unlikely(String, (String, v1::ElicitationContentValue)),
}

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
        let own = format!("{name}{OWN}");
        let own = if properties.contains_key(&own) {
            Some(own)
        } else if shown.options.is_empty() {
            Some(name.clone())
        } else {
            None
        };
        let words = question(&shown, is_required);
        let legend = legend(&shown, own.is_some(), is_required);
        let options = shown.options.into_iter();
        Field {
            name: name.clone(),
            own,
            words,
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
            .filter(|(name, _)| !name.ends_with(OWN))
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
            format!("{numbers}, several as 1, 2")
        } else {
            numbers
        });
        if takes_own {
            ways.push("your own words".to_owned());
        }
    }
    let ways = ways.join("; ");
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
    /// Reads a line as the answer.
    pub(super) fn read(&self, line: &str) -> FieldReply {
        use v1::ElicitationContentValue as Put;
        let line = line.trim();
        let here = |put| FieldReply::Answer(Some((self.name.clone(), put)));
        match (reply::read(line), self.takes) {
            (TypedReply::Explain, _) => FieldReply::Again(self.explained()),
            (TypedReply::Nothing, _) if self.is_needed => {
                FieldReply::Again("This must be answered; Ctrl-C stops the run.".to_owned())
            }
            (TypedReply::Nothing, _) => FieldReply::Answer(None),
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
                self.own_words(line)
            }
            (reply, AnswerType::Words | AnswerType::Several) => self.choice(line, reply),
        }
    }

    /// Reads a line as one of the options, or several of them.
    fn choice(&self, line: &str, reply: TypedReply<'_>) -> FieldReply {
        let several = self.takes == AnswerType::Several;
        let is_named = |(value, label): &&(String, String)| {
            let line = line.to_lowercase();
            label.to_lowercase() == line || value.to_lowercase() == line
        };
        if let Some((value, _)) = self.options.iter().find(is_named) {
            return self.chosen(vec![value.clone()]);
        }
        let all = numbers_of(self.options.len());
        let Some(numbers) = numbers(line) else {
            let is_answer = matches!(reply, TypedReply::Yes | TypedReply::No | TypedReply::Always);
            return if is_answer || self.own.is_none() {
                self.unlikely(format!("\"{line}\" is none of the choices: {all}."), line)
            } else {
                self.own_words(line)
            };
        };
        let option = |number: &usize| {
            let at = number.checked_sub(1)?;
            self.options.get(at).map(|(value, _)| value.clone())
        };
        if let Some(wrong) = numbers.iter().find(|number| option(number).is_none()) {
            return self.unlikely(format!("There is no choice {wrong}: answer {all}."), line);
        }
        if numbers.len() > 1 && !several {
            return FieldReply::Again(format!("Only one can be chosen: answer {all}."));
        }
        let mut chosen: Vec<String> = Vec::new();
        for value in numbers.iter().filter_map(option) {
            if !chosen.contains(&value) {
                chosen.push(value);
            }
        }
        self.chosen(chosen)
    }

    fn chosen(&self, mut values: Vec<String>) -> FieldReply {
        use v1::ElicitationContentValue as Put;
        let put = match (self.takes, values.pop()) {
            (AnswerType::Several, last) => {
                values.extend(last);
                Put::StringArray(values)
            }
            (_, Some(one)) => Put::String(one),
            (_, None) => return FieldReply::Answer(None),
        };
        FieldReply::Answer(Some((self.name.clone(), put)))
    }

    fn own_words(&self, line: &str) -> FieldReply {
        let own = self.own.clone().unwrap_or_else(|| self.name.clone());
        let put = v1::ElicitationContentValue::String(line.to_owned());
        FieldReply::Answer(Some((own, put)))
    }

    /// Asks again; if the user's own words are an answer, they can be confirmed.
    fn unlikely(&self, why: String, line: &str) -> FieldReply {
        match &self.own {
            Some(own) => {
                let put = v1::ElicitationContentValue::String(line.to_owned());
                FieldReply::Unlikely(why, (own.clone(), put))
            }
            None => FieldReply::Again(why),
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
                }
                if self.takes == AnswerType::Several {
                    lines.push("1, 2  chooses both".to_owned());
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
const OWN: &str = "_own";

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

/// Returns the numbers in a line, or `None` if it is text.
fn numbers(line: &str) -> Option<Vec<usize>> {
    let words = line.split([',', ';', ' ']).filter(|word| !word.is_empty());
    let all: Vec<usize> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
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
        let answer = |(name, put): (String, v1::ElicitationContentValue)| json!({ name: put });
        match field.read(&format!("{line}\n")) {
            FieldReply::Answer(put) => put.map_or(Value::Null, answer),
            FieldReply::Again(why) => why.into(),
            FieldReply::Unlikely(why, put) => json!([why, answer(put)]),
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
            ("question1", "9", json!([no, { "question1_own": "9" }])),
            (
                "question1",
                "0",
                json!(["There is no choice 0: answer 1 or 2.", { "question1_own": "0" }]),
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
            ("question1", "", Value::Null),
            ("question2", "1, 2", json!({ "question2": ["x", "y"] })),
            ("question2", "2 1 2", json!({ "question2": ["y", "x"] })),
            ("question2", "1", json!({ "question2": ["x"] })),
            ("question2", "1,9", json!([no, { "question2_own": "1,9" }])),
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
            .map(|field| format!("{}{}", field.words, field.legend))
            .collect();
        let expected = "\
? How many? (must be answered)
  ? explains
? Of which kind? (must be answered)
  1  Kind one
  2  Kind two
  1 or 2
  ? explains
? Which?
  1  a: first
  2  b
  1 or 2; your own words
  Enter skips; ? explains
? Which of them?
  1  x
  2  y
  1 or 2, several as 1, 2; your own words
  Enter skips; ? explains
? Why?
  Enter skips; ? explains
? Sure? (y/n) [y]
  Enter: what is in brackets; ? explains
";
        assert_eq!(shown, expected);
        let form = form();
        let several = form.iter().find(|field| field.name == "question2").unwrap();
        let explained = "  1 or 2  chooses what has this number\n  1, 2  chooses both\n  any other text  is your own answer\n  Enter  gives no answer to this question\n  Ctrl-D  answers none of the questions";
        assert_eq!(meaning(several, "?"), explained);
    }
}
