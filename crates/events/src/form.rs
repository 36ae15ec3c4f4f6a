//! Requests to the user from a source other than the model, such as an MCP server: a form to fill
//! in, or a URL to visit.

use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::QuestionOption;
use base::id::{CallId, SessionId};

/// A form or a URL for the user.
#[derive(Debug)]
pub struct FormRequest {
    /// The call that waits for the answer, if any.
    pub call: Option<CallId>,
    /// The session in which the editor shows the call, if it is not the user's own.
    pub session: Option<SessionId>,
    /// The source of the request, shown above it: "The MCP server demo asks".
    pub requester: String,
    /// The subject, in the source's words.
    pub message: String,
    /// The fields or the URL.
    pub page: FormPage,
    /// Resolves when the purpose of a URL is achieved. If dropped, that is never reported.
    pub finished: Option<oneshot::Receiver<()>>,
    /// The sender of the answer. Dropping it means that the request cannot be shown; dropping the
    /// receiver withdraws the request.
    pub reply: oneshot::Sender<FormReply>,
}

/// The content of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum FormPage {
    /// The fields, in order. Without fields, the form asks for a plain yes.
    Fields(Vec<FormField>),
    /// A URL to open; adjutant never opens it.
    Url(String),
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq)]
pub struct FormField {
    /// The key of the answer.
    pub key: String,
    pub title: String,
    /// The whole question, if the title does not contain it.
    pub description: Option<String>,
    /// True if the form cannot be accepted without this field.
    pub required: bool,
    pub kind: FieldKind,
}

/// The kind and limits of a field's value.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldKind {
    Text(TextLimits),
    /// A number.
    Number {
        /// True if it has to be an integer.
        whole: bool,
        /// The smallest accepted number, if there is a limit.
        min: Option<f64>,
        /// The largest accepted number, if there is a limit.
        max: Option<f64>,
        default: Option<f64>,
    },
    /// Yes or no, with the default.
    Switch(Option<bool>),
    /// One of the options, with the value of the default.
    SingleChoice(Vec<FieldOption>, Option<String>),
    /// Any number of options, within limits.
    MultipleChoice(Vec<FieldOption>, ChoiceLimits),
}

/// The limits of a text, and its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextLimits {
    /// The minimum length, in characters.
    pub min_length: Option<u32>,
    /// The maximum length, in characters.
    pub max_length: Option<u32>,
    /// The format, for the editor; it is not checked here.
    pub format: Option<TextFormat>,
    pub default: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    Email,
    Uri,
    Date,
    DateTime,
}

/// The limits of a multiple choice, and its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChoiceLimits {
    /// The minimum number of chosen options.
    pub min_items: Option<u64>,
    /// The maximum number of chosen options.
    pub max_items: Option<u64>,
    /// The values of the options that are chosen by default.
    pub default: Option<Vec<String>>,
}

/// An option of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldOption {
    /// The value in the answer.
    pub value: String,
    /// The text that the user sees.
    pub label: String,
    /// The consequence of the choice; may be empty.
    pub description: String,
}

impl From<QuestionOption> for FieldOption {
    fn from(option: QuestionOption) -> Self {
        Self {
            value: option.label.clone(),
            label: option.label,
            description: option.description,
        }
    }
}

/// The user's reaction to a form.
#[derive(Debug, Clone, PartialEq)]
pub enum FormReply {
    /// Accepted, with these values.
    Accepted(Map<String, Value>),
    Declined,
    Cancelled,
    /// Not shown, because the editor cannot.
    NotShown,
}

impl FieldKind {
    /// Returns the value of an empty field, if it has a default.
    pub fn default(&self) -> Option<Value> {
        match self {
            Self::Text(limits) => limits.default.clone().map(Value::String),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the default of a whole number is one"
            )]
            Self::Number {
                whole: true,
                default,
                ..
            } => default.map(|number| Value::from(number as i64)),
            Self::Number { default, .. } => default
                .and_then(serde_json::Number::from_f64)
                .map(Value::Number),
            Self::Switch(default) => default.map(Value::Bool),
            Self::SingleChoice(_, default) => default.clone().map(Value::String),
            Self::MultipleChoice(_, limits) => limits.default.clone().map(Value::from),
        }
    }

    /// Converts the input, the chosen values or a single text, to the field's type. Returns `None`
    /// if the field does not accept it.
    pub fn value(&self, words: &[String]) -> Option<Value> {
        let first = words.first();
        match self {
            Self::Text(limits) => {
                let text = first?;
                let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
                let fits = limits.min_length.is_none_or(|min| length >= min)
                    && limits.max_length.is_none_or(|max| length <= max);
                fits.then(|| Value::String(text.clone()))
            }
            Self::Number {
                whole: true,
                min,
                max,
                ..
            } => {
                let number: i64 = first?.trim().parse().ok()?;
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "compared with limits that are floating-point themselves"
                )]
                let fits = within(number as f64, *min, *max);
                fits.then(|| number.into())
            }
            Self::Number { min, max, .. } => {
                let number: f64 = first?.trim().parse().ok()?;
                within(number, *min, *max)
                    .then(|| serde_json::Number::from_f64(number).map(Value::Number))?
            }
            Self::Switch(_) => match first?.trim().to_ascii_lowercase().as_str() {
                "yes" | "y" | "true" => Some(true.into()),
                "no" | "n" | "false" => Some(false.into()),
                _ => None,
            },
            Self::SingleChoice(options, _) => {
                let word = first?;
                options
                    .iter()
                    .any(|option| option.value == *word)
                    .then(|| Value::String(word.clone()))
            }
            Self::MultipleChoice(options, limits) => {
                let offered = |word: &&String| options.iter().any(|option| option.value == **word);
                let given: Vec<&String> = words.iter().filter(offered).collect();
                let count = given.len() as u64;
                let fits = limits.min_items.is_none_or(|min| count >= min)
                    && limits.max_items.is_none_or(|max| count <= max);
                fits.then(|| given.into_iter().cloned().collect())
            }
        }
    }
}

fn within(number: f64, min: Option<f64>, max: Option<f64>) -> bool {
    number.is_finite() && min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max)
}

impl FormPage {
    /// Returns the accepted form with this input: for each field the input if the field accepts it,
    /// or its default if there is no input. Input without a field is ignored. Returns `Cancelled`
    /// if a required field has no value.
    pub fn accepted(&self, filled: impl Fn(&str) -> Vec<String>) -> FormReply {
        let mut content = Map::new();
        let fields = match self {
            Self::Fields(fields) => fields.as_slice(),
            Self::Url(_) => &[],
        };
        for field in fields {
            let words = filled(&field.key);
            let value = if words.is_empty() {
                field.kind.default()
            } else {
                field.kind.value(&words)
            };
            match value {
                Some(value) => drop(content.insert(field.key.clone(), value)),
                None if field.required => return FormReply::Cancelled,
                None => {}
            }
        }
        FormReply::Accepted(content)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_accepts_only_fitting_values() {
        let options = |labels: &[&str]| -> Vec<FieldOption> {
            let one = |label: &&str| FieldOption {
                value: (*label).to_owned(),
                label: label.to_uppercase(),
                description: String::new(),
            };
            labels.iter().map(one).collect()
        };
        let text = FieldKind::Text(TextLimits {
            min_length: Some(2),
            max_length: Some(3),
            ..TextLimits::default()
        });
        let whole = FieldKind::Number {
            whole: true,
            min: Some(1.0),
            max: Some(9.0),
            default: None,
        };
        let number = FieldKind::Number {
            whole: false,
            min: None,
            max: Some(1.5),
            default: None,
        };
        let one = FieldKind::SingleChoice(options(&["a", "b"]), None);
        let many = FieldKind::MultipleChoice(
            options(&["a", "b"]),
            ChoiceLimits {
                min_items: Some(1),
                ..ChoiceLimits::default()
            },
        );
        type Table<'a> = [(&'a FieldKind, &'a [&'a str], Option<Value>); 19];
        let table: Table<'_> = [
            (&text, &["äö"], Some(json!("äö"))),
            (&text, &["a"], None),
            (&text, &["abcd"], None),
            (&text, &[], None),
            (&whole, &[" 7 "], Some(json!(7))),
            (&whole, &["7.5"], None),
            (&whole, &["10"], None),
            (&whole, &["seven"], None),
            (&number, &["1.5"], Some(json!(1.5))),
            (&number, &["2"], None),
            (&number, &["NaN"], None),
            (&FieldKind::Switch(None), &["yes"], Some(json!(true))),
            (&FieldKind::Switch(None), &["No"], Some(json!(false))),
            (&FieldKind::Switch(None), &["maybe"], None),
            (&one, &["b"], Some(json!("b"))),
            (&one, &["A"], None),
            (&many, &["b", "z"], Some(json!(["b"]))),
            (&many, &["z"], None),
            (&many, &["a", "b"], Some(json!(["a", "b"]))),
        ];
        for (kind, words, expected) in table {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(kind.value(&words), expected, "{kind:?} {words:?}");
        }
    }
}
