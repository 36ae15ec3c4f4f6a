//! The model's questions at a terminal: one after the other, numbers or words.

use std::collections::BTreeMap;

use protocol::acp::v1;

/// A field that is asked about.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    /// Where an answer in words of one's own goes.
    own: String,
    /// The question with its options.
    pub(super) words: String,
    labels: Vec<String>,
    several: bool,
}

/// The fields of a form, in order; none where it is no form.
pub(super) fn fields(request: &v1::CreateElicitationRequest) -> Option<Vec<Field>> {
    let v1::ElicitationMode::Form(form) = &request.mode else { return None };
    let properties = &form.requested_schema.properties;
    let field = |(name, property): (&String, &v1::ElicitationPropertySchema)| {
        let (words, options, several) = shown(property);
        let mut text = format!("? {words}\n");
        for (number, (label, description)) in options.iter().enumerate() {
            let more = if description.is_empty() { String::new() } else { format!(": {description}") };
            text += &format!("  {}  {label}{more}\n", number + 1);
        }
        if several {
            text += "  (several: 1, 2)\n";
        }
        let own = format!("{name}{OWN}");
        let own = if properties.contains_key(&own) { own } else { name.clone() };
        let labels = options.into_iter().map(|(label, _)| label).collect();
        Field { name: name.clone(), own, words: text, labels, several }
    };
    Some(properties.iter().filter(|(name, _)| !name.ends_with(OWN)).map(field).collect())
}

impl Field {
    /// Takes a line as the answer; an empty one is none.
    pub(super) fn take(&self, line: &str, content: &mut BTreeMap<String, v1::ElicitationContentValue>) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        let Some(numbers) = numbers(line, self.labels.len(), self.several) else {
            content.insert(self.own.clone(), v1::ElicitationContentValue::String(line.to_owned()));
            return;
        };
        let chosen: Vec<String> = numbers.into_iter().map(|number| self.labels[number].clone()).collect();
        let value = match chosen.as_slice() {
            [one] if !self.several => v1::ElicitationContentValue::String(one.clone()),
            _ => v1::ElicitationContentValue::StringArray(chosen),
        };
        content.insert(self.name.clone(), value);
    }
}

/// What the name of a field for words of one's own ends with.
const OWN: &str = "_own";

/// A property's words, its options with what they mean, and whether several can be chosen.
fn shown(property: &v1::ElicitationPropertySchema) -> (String, Vec<(String, String)>, bool) {
    let pairs = |options: &[v1::EnumOption]| {
        let pair = |option: &v1::EnumOption| (option.value.clone(), option.description.clone().unwrap_or_default());
        options.iter().map(pair).collect()
    };
    match property {
        v1::ElicitationPropertySchema::String(string) => {
            (string.description.clone().unwrap_or_default(), pairs(string.one_of.as_deref().unwrap_or_default()), false)
        }
        v1::ElicitationPropertySchema::Array(array) => {
            let options = match &array.items {
                v1::MultiSelectItems::Titled(items) => pairs(&items.options),
                _ => Vec::new(),
            };
            (array.description.clone().unwrap_or_default(), options, true)
        }
        _ => (String::new(), Vec::new(), false),
    }
}

/// The options that a line names by their numbers; none where it is words.
fn numbers(line: &str, options: usize, several: bool) -> Option<Vec<usize>> {
    let one = |word: &str| word.trim().parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < options);
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
        (fields.iter().map(|field| field.words.as_str()).collect(), serde_json::to_value(content).unwrap())
    }

    #[test]
    fn numbers_or_words() {
        let table = [
            (["2", "1, 2", "so"], json!({ "question1": "b", "question2": ["x", "y"], "question3": "so" })),
            (["mine", "neither", ""], json!({ "question1_own": "mine", "question2_own": "neither" })),
            (["3", "1", "7"], json!({ "question1_own": "3", "question2": ["x"], "question3": "7" })),
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
