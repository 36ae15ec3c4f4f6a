//! Forms at a terminal: the fields are asked one after the other, and answered by numbers or text.

use std::collections::BTreeMap;

use protocol::acp::v1;

use super::reply::{self, TypedReply};

/// A field of a form.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    /// The field that receives a free-text answer.
    own: String,
    pub(super) words: String,
    /// The value of each option.
    labels: Vec<String>,
    takes: AnswerType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerType {
    Words,
    Several,
    Switch,
    Number,
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
        let Shown {
            words,
            default,
            options,
            takes,
        } = shown(property);
        let mut text = format!("? {words}");
        if takes == AnswerType::Switch {
            text += " (y/n)";
        }
        match default {
            Some(default) => text += &format!(" [{default}]"),
            None if required.contains(name) => text += " (must be answered)",
            None => {}
        }
        text.push('\n');
        for (number, (_, label, description)) in options.iter().enumerate() {
            let more = if description.is_empty() {
                String::new()
            } else {
                format!(": {description}")
            };
            text += &format!("  {}  {label}{more}\n", number + 1);
        }
        if takes == AnswerType::Several {
            text += "  (several: 1, 2)\n";
        }
        let own = format!("{name}{OWN}");
        let own = if properties.contains_key(&own) {
            own
        } else {
            name.clone()
        };
        let labels = options.into_iter().map(|(value, ..)| value).collect();
        Field {
            name: name.clone(),
            own,
            words: text,
            labels,
            takes,
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

impl Field {
    /// Returns whether the field is answered with yes or no.
    pub(super) fn is_switch(&self) -> bool {
        self.takes == AnswerType::Switch
    }

    /// Stores a line as the answer. An empty line is no answer.
    pub(super) fn take(
        &self,
        line: &str,
        content: &mut BTreeMap<String, v1::ElicitationContentValue>,
    ) {
        use v1::ElicitationContentValue as Put;
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        let several = self.takes == AnswerType::Several;
        let put = match numbers(line, self.labels.len(), several) {
            Some(numbers) => {
                let chosen: Vec<String> = numbers
                    .into_iter()
                    .map(|number| self.labels[number].clone())
                    .collect();
                match chosen.as_slice() {
                    [one] if !several => Put::String(one.clone()),
                    _ => Put::StringArray(chosen),
                }
            }
            None => {
                let put = match self.takes {
                    AnswerType::Switch => match reply::read(line) {
                        TypedReply::Yes => Put::Boolean(true),
                        TypedReply::No => Put::Boolean(false),
                        _ => return,
                    },
                    AnswerType::Number => match (line.parse(), line.parse()) {
                        (Ok(whole), _) => Put::Integer(whole),
                        (_, Ok(number)) => Put::Number(number),
                        _ => return,
                    },
                    AnswerType::Words | AnswerType::Several => Put::String(line.to_owned()),
                };
                content.insert(self.own.clone(), put);
                return;
            }
        };
        content.insert(self.name.clone(), put);
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
            takes: AnswerType::Number,
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

/// Returns the options that a line selects by number, or `None` if it is text.
fn numbers(line: &str, options: usize, several: bool) -> Option<Vec<usize>> {
    let one = |word: &str| {
        word.trim()
            .parse::<usize>()
            .ok()?
            .checked_sub(1)
            .filter(|at| *at < options)
    };
    let all: Vec<usize> = line.split(',').map(one).collect::<Option<_>>()?;
    (all.len() == 1 || several).then_some(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answered(lines: &[&str]) -> (String, Value) {
        let request = json!({
            "mode": "form", "sessionId": "s", "message": "m",
            "requestedSchema": { "type": "object", "properties": {
                "question1": { "type": "string", "title": "H", "description": "Which?",
                    "oneOf": [{ "const": "a", "title": "a", "description": "first" }, { "const": "b", "title": "b" }] },
                "question1_own": { "type": "string", "title": "H: something else" },
                "question2": { "type": "array", "description": "Which of them?",
                    "items": { "anyOf": [{ "const": "x", "title": "x" }, { "const": "y", "title": "y" }] } },
                "question2_own": { "type": "string" },
                "question3": { "type": "string", "description": "Why?" },
            }},
        });
        let fields = fields(&serde_json::from_value(request).unwrap()).unwrap();
        let mut content = BTreeMap::new();
        for (field, line) in fields.iter().zip(lines) {
            field.take(&format!("{line}\n"), &mut content);
        }
        (
            fields.iter().map(|field| field.words.as_str()).collect(),
            serde_json::to_value(content).unwrap(),
        )
    }

    #[test]
    fn line_selects_options_by_number_or_is_text() {
        let table = [
            (
                ["2", "1, 2", "so"],
                json!({ "question1": "b", "question2": ["x", "y"], "question3": "so" }),
            ),
            (
                ["mine", "neither", ""],
                json!({ "question1_own": "mine", "question2_own": "neither" }),
            ),
            (
                ["3", "1", "7"],
                json!({ "question1_own": "3", "question2": ["x"], "question3": "7" }),
            ),
            (["1, 2", "", ""], json!({ "question1_own": "1, 2" })),
            (["", "", ""], json!({})),
        ];
        for (lines, content) in table {
            assert_eq!(answered(&lines).1, content, "{lines:?}");
        }
        let (shown, _) = answered(&["1", "1", "1"]);
        assert_eq!(
            shown,
            "? Which?\n  1  a: first\n  2  b\n? Which of them?\n  1  x\n  2  y\n  (several: 1, 2)\n? Why?\n"
        );
    }
}
