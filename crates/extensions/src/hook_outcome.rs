//! The answers of hooks: `HookAnswer` is that of one hook, decoded from the output of its command;
//! [`HookOutcome`] combines the answers of all hooks and plugins to one event.

use std::process::ExitStatus;

use serde_json::Value;

use super::hook_event::{camel_case, rename_keys};
use base::text;
use config::settings::{HookEntry, HookFormat, HookPoint};

/// The maximum length of a hook's text, in characters.
const MAX_TEXT_CHARS: usize = 10_000;

/// The answer of one hook. The default changes and refuses nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HookAnswer {
    /// Refuses the event, for this reason.
    pub(crate) deny: Option<String>,
    /// Requires a question to the user, for this reason.
    pub(crate) ask: Option<String>,
    /// Permits the call without a question.
    pub(crate) allow: bool,
    /// Replaces the arguments of the call.
    pub(crate) input: Option<Value>,
    /// A text for the model.
    pub(crate) context: Option<String>,
    /// A text for the user.
    pub(crate) notice: Option<String>,
    /// Continues the turn with this text as the next prompt.
    pub(crate) remaining_work: Option<String>,
}

/// The combined outcome of all hooks on an event.
#[derive(Debug, Default, PartialEq)]
pub struct HookOutcome {
    /// The refusal, which names the hook and the reason.
    pub deny: Option<String>,
    /// Requires a question to the user. The text completes a sentence that begins with "because".
    pub ask: Option<String>,
    /// A hook of the user's own permits the call without a question.
    pub allow: bool,
    /// Replaces the arguments of the call.
    pub input: Option<Value>,
    /// Replaces the result of the call.
    pub output: Option<String>,
    /// The last hook or plugin that changed the arguments, for display; empty if none did.
    pub changed_by: String,
    /// Texts for the model, in order.
    pub context: Vec<String>,
    /// Continues the turn with this text as the next prompt.
    pub remaining_work: Option<String>,
}

impl HookOutcome {
    /// Adds a later outcome. The first refusal and the first question take precedence; of changes,
    /// the last one.
    pub(super) fn merge(&mut self, other: Self) {
        self.deny = self.deny.take().or(other.deny);
        self.ask = self.ask.take().or(other.ask);
        self.allow |= other.allow;
        if other.input.is_some() {
            self.input = other.input;
            self.changed_by = other.changed_by;
        }
        self.output = other.output.or(self.output.take());
        self.context.extend(other.context);
        self.remaining_work = self.remaining_work.take().or(other.remaining_work);
    }

    /// Adds the answer of one hook. A hook of a project cannot permit anything.
    pub(super) fn add(&mut self, answer: HookAnswer, hook: &HookEntry) {
        let name = text::title(&hook.name);
        self.deny = answer.deny.map(|why| {
            if why.is_empty() {
                format!("The hook {name} refuses this.")
            } else {
                format!("The hook {name} refuses this: {why}")
            }
        });
        if let Some(why) = answer.ask {
            let why = why.trim_end_matches('.').to_owned();
            self.ask.get_or_insert(if why.is_empty() {
                format!("the hook {name} requires it")
            } else {
                why
            });
        }
        self.allow |= answer.allow && !hook.project;
        if answer.input.is_some() {
            self.input = answer.input;
            self.changed_by.clone_from(&name);
        }
        self.context.extend(
            answer
                .context
                .map(|text| format!("From the hook {name}: {text}")),
        );
        self.remaining_work = self.remaining_work.take().or(answer
            .remaining_work
            .map(|text| format!("From the hook {name}: {text}")));
    }
}

impl HookAnswer {
    /// Returns the names of the keys that are set, for the log.
    pub(crate) fn summary(&self) -> String {
        let keys = [
            ("deny", self.deny.is_some()),
            ("ask", self.ask.is_some()),
            ("allow", self.allow),
            ("input", self.input.is_some()),
            ("context", self.context.is_some()),
            ("notice", self.notice.is_some()),
            ("continue", self.remaining_work.is_some()),
        ];
        let keys: Vec<&str> = keys
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| name)
            .collect();
        if keys.is_empty() {
            "nothing to say".to_owned()
        } else {
            keys.join(", ")
        }
    }

    /// Decodes the answer of a hook's command from its exit status and output: 0 with JSON or text
    /// on standard output, or 2 for a refusal with the reason on standard error.
    ///
    /// # Errors
    /// Any other exit status, or JSON that does not fit the format. The message completes the
    /// sentence "it failed: ".
    pub(crate) fn decode(
        hook: &HookEntry,
        status: ExitStatus,
        stdout: &[u8],
        stderr: &[u8],
    ) -> Result<Self, String> {
        let plain = |bytes: &[u8]| {
            let (text, _) = text::visible(&String::from_utf8_lossy(bytes));
            text::cut_chars(text.trim(), MAX_TEXT_CHARS)
        };
        match status.code() {
            Some(0) => {}
            Some(2) => return Ok(Self::refusal(hook.on, plain(stderr))),
            code => {
                let output = plain(if stderr.trim_ascii().is_empty() {
                    stdout
                } else {
                    stderr
                });
                let output = text::title(output.lines().last().unwrap_or_default());
                let code =
                    code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
                let colon = if output.is_empty() { "" } else { ": " };
                return Err(format!("{code}{colon}{}", output.trim_end_matches('.')));
            }
        }
        let printed = stdout.trim_ascii();
        if printed.first() != Some(&b'{') {
            // Plain text is for the model, if the event is one whose hooks may add text.
            let takes_text = matches!(hook.on, HookPoint::SessionStart | HookPoint::Prompt);
            let context = Some(plain(printed)).filter(|text| takes_text && !text.is_empty());
            return Ok(Self {
                context,
                ..Self::default()
            });
        }
        let answer: Value =
            serde_json::from_slice(printed).map_err(|e| format!("its answer is not JSON: {e}"))?;
        match hook.format {
            HookFormat::Adjutant => Self::decode_own_format(&answer),
            HookFormat::Claude => Ok(Self::decode_claude_format(hook.on, &answer)),
        }
    }

    /// Returns a refusal if the event can be refused. Otherwise the reason becomes a text for the
    /// model or the user.
    fn refusal(on: HookPoint, why: String) -> Self {
        match on {
            HookPoint::Prompt | HookPoint::ToolBefore | HookPoint::Permission => Self {
                deny: Some(why),
                ..Self::default()
            },
            HookPoint::TurnEnd => Self {
                remaining_work: Some(why),
                ..Self::default()
            },
            HookPoint::ToolAfter => Self {
                context: Some(why),
                ..Self::default()
            },
            HookPoint::SessionStart | HookPoint::Compaction | HookPoint::SessionEnd => Self {
                notice: Some(why),
                ..Self::default()
            },
        }
    }

    /// Decodes an answer in adjutant's format. An unknown key is an error.
    fn decode_own_format(answer: &Value) -> Result<Self, String> {
        const KEYS: [&str; 7] = [
            "deny", "ask", "allow", "input", "context", "notice", "continue",
        ];
        let object = answer.as_object().ok_or("its answer is not an object")?;
        if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!(
                "its answer has an unknown key \"{}\"",
                text::title(key)
            ));
        }
        let text_of = |key: &str| match object.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(None),
            Some(Value::Bool(true)) if ["deny", "ask"].contains(&key) => Ok(Some(String::new())),
            Some(Value::String(text)) => Ok(Some(text::cut_chars(text.trim(), MAX_TEXT_CHARS))),
            Some(_) => Err(format!("\"{key}\" in its answer is not text")),
        };
        let input = object
            .get("input")
            .filter(|input| !input.is_null())
            .cloned();
        if input.as_ref().is_some_and(|input| !input.is_object()) {
            return Err("\"input\" in its answer is not an object".into());
        }
        Ok(Self {
            deny: text_of("deny")?,
            ask: text_of("ask")?,
            allow: object.get("allow").and_then(Value::as_bool) == Some(true),
            input,
            context: text_of("context")?,
            notice: text_of("notice")?,
            remaining_work: text_of("continue")?,
        })
    }

    /// Decodes an answer in the format of Claude Code's hooks.
    fn decode_claude_format(on: HookPoint, answer: &Value) -> Self {
        let text_at = |at: &str| {
            answer
                .pointer(at)
                .and_then(Value::as_str)
                .map(|text| text::cut_chars(text.trim(), MAX_TEXT_CHARS))
        };
        let specific = "/hookSpecificOutput";
        let specific_text = |key: &str| text_at(&format!("{specific}/{key}"));
        let mut decoded = Self {
            context: specific_text("additionalContext"),
            notice: text_at("/systemMessage"),
            ..Self::default()
        };
        let why = text_at("/reason")
            .or_else(|| specific_text("permissionDecisionReason"))
            .unwrap_or_default();
        let decision = specific_text("permissionDecision")
            .or_else(|| specific_text("decision/behavior"))
            .or_else(|| text_at("/decision"));
        match decision.as_deref() {
            Some("deny" | "block") => {
                let why = specific_text("decision/message").unwrap_or(why);
                let refusal = Self::refusal(on, why);
                decoded = Self {
                    context: decoded.context.or(refusal.context),
                    notice: decoded.notice.or(refusal.notice),
                    ..refusal
                };
            }
            Some("ask") => decoded.ask = Some(why),
            Some("allow" | "approve") => decoded.allow = true,
            _ => {}
        }
        if answer.get("continue").and_then(Value::as_bool) == Some(false)
            && on != HookPoint::TurnEnd
        {
            let stop = text_at("/stopReason").unwrap_or_default();
            let refusal = Self::refusal(on, stop);
            decoded.deny = decoded.deny.or(refusal.deny);
            decoded.remaining_work = decoded.remaining_work.or(refusal.remaining_work);
        }
        let input = answer.pointer(&format!("{specific}/updatedInput"));
        let input = input.or_else(|| answer.pointer(&format!("{specific}/decision/updatedInput")));
        decoded.input = input
            .filter(|input| input.is_object())
            .map(|input| rename_keys(input, camel_case));
        decoded
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn hook(on: HookPoint, format: HookFormat) -> HookEntry {
        HookEntry {
            name: "h".into(),
            on,
            tools: Vec::new(),
            pattern: None,
            command: vec!["x".into()],
            limit: Duration::from_secs(1),
            environment: Vec::new(),
            format,
            withheld: None,
            project: false,
            source: String::new(),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn answer_of_a_program_is_read() {
        use HookPoint::{Compaction, Prompt, ToolAfter, ToolBefore, TurnEnd};
        let words = |text: &str| Some(text.to_owned());
        let none = HookAnswer::default;
        let table = [
            (ToolBefore, 0, "", "", Ok(none())),
            (ToolBefore, 0, "chatter", "", Ok(none())),
            (
                Prompt,
                0,
                "On main.\n",
                "",
                Ok(HookAnswer {
                    context: words("On main."),
                    ..none()
                }),
            ),
            (
                ToolBefore,
                2,
                "x",
                "No.\n",
                Ok(HookAnswer {
                    deny: words("No."),
                    ..none()
                }),
            ),
            (
                ToolAfter,
                2,
                "",
                "Bad.",
                Ok(HookAnswer {
                    context: words("Bad."),
                    ..none()
                }),
            ),
            (
                TurnEnd,
                2,
                "",
                "Tests!",
                Ok(HookAnswer {
                    remaining_work: words("Tests!"),
                    ..none()
                }),
            ),
            (
                Compaction,
                2,
                "",
                "Hm.",
                Ok(HookAnswer {
                    notice: words("Hm."),
                    ..none()
                }),
            ),
            (ToolBefore, 1, "", "a\nboom.\n", Err("exit code 1: boom")),
            (
                ToolBefore,
                0,
                "{\"deny\":",
                "",
                Err("its answer is not JSON"),
            ),
            (
                ToolBefore,
                0,
                r#"{"deni":"x"}"#,
                "",
                Err("an unknown key \"deni\""),
            ),
            (
                ToolBefore,
                0,
                r#"{"input":[]}"#,
                "",
                Err("\"input\" in its answer is not an object"),
            ),
            (
                ToolBefore,
                0,
                r#"{"deny":true}"#,
                "",
                Ok(HookAnswer {
                    deny: words(""),
                    ..none()
                }),
            ),
            (
                ToolBefore,
                0,
                r#"{"ask":"why"}"#,
                "",
                Ok(HookAnswer {
                    ask: words("why"),
                    ..none()
                }),
            ),
            (
                ToolBefore,
                0,
                r#"{"allow":true,"input":{"a":1},"context":"c","notice":"n","continue":"go"}"#,
                "",
                Ok(HookAnswer {
                    allow: true,
                    input: Some(json!({"a": 1})),
                    context: words("c"),
                    notice: words("n"),
                    remaining_work: words("go"),
                    ..none()
                }),
            ),
        ];
        for (on, code, stdout, stderr, wanted) in table {
            let status = ExitStatus::from_raw(code << 8);
            let read = HookAnswer::decode(
                &hook(on, HookFormat::Adjutant),
                status,
                stdout.as_bytes(),
                stderr.as_bytes(),
            );
            match (read, wanted) {
                (Ok(read), Ok(wanted)) => assert_eq!(read, wanted, "{stdout} {stderr}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (read, wanted) => panic!("{stdout}: {read:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn answer_in_claude_codes_format_is_read() {
        use HookPoint::{Prompt, ToolAfter, ToolBefore, TurnEnd};
        let words = |text: &str| Some(text.to_owned());
        let none = HookAnswer::default;
        let own = |more: Value| json!({ "hookSpecificOutput": more });
        let table = [
            (
                ToolBefore,
                own(json!({"permissionDecision": "deny", "permissionDecisionReason": "No."})),
                HookAnswer {
                    deny: words("No."),
                    ..none()
                },
            ),
            (
                ToolBefore,
                own(json!({"permissionDecision": "allow"})),
                HookAnswer {
                    allow: true,
                    ..none()
                },
            ),
            (
                ToolBefore,
                own(json!({"permissionDecision": "ask", "updatedInput": {"file_path": "a"}})),
                HookAnswer {
                    ask: words(""),
                    input: Some(json!({"filePath": "a"})),
                    ..none()
                },
            ),
            (
                ToolBefore,
                json!({"decision": "block", "reason": "Old."}),
                HookAnswer {
                    deny: words("Old."),
                    ..none()
                },
            ),
            (
                ToolAfter,
                json!({"decision": "block", "reason": "Fix."}),
                HookAnswer {
                    context: words("Fix."),
                    ..none()
                },
            ),
            (
                TurnEnd,
                json!({"decision": "block", "reason": "More."}),
                HookAnswer {
                    remaining_work: words("More."),
                    ..none()
                },
            ),
            (TurnEnd, json!({"continue": false}), none()),
            (
                Prompt,
                json!({"continue": false, "stopReason": "Not now."}),
                HookAnswer {
                    deny: words("Not now."),
                    ..none()
                },
            ),
            (
                Prompt,
                json!({"systemMessage": "s", "hookSpecificOutput": {"additionalContext": "c"}}),
                HookAnswer {
                    context: words("c"),
                    notice: words("s"),
                    ..none()
                },
            ),
        ];
        for (on, answer, wanted) in table {
            assert_eq!(
                HookAnswer::decode_claude_format(on, &answer),
                wanted,
                "{answer}"
            );
        }
    }

    #[test]
    fn first_refusal_wins_and_project_hook_permits_nothing() {
        let mut hook_outcome = HookOutcome::default();
        let project = HookEntry {
            project: true,
            ..hook(HookPoint::Permission, HookFormat::Adjutant)
        };
        hook_outcome.add(
            HookAnswer {
                allow: true,
                context: Some("one".into()),
                ..HookAnswer::default()
            },
            &project,
        );
        assert!(!hook_outcome.allow, "a project's hook allows nothing");
        hook_outcome.add(
            HookAnswer {
                ask: Some("it is late.".into()),
                ..HookAnswer::default()
            },
            &project,
        );
        hook_outcome.add(
            HookAnswer {
                deny: Some("No.".into()),
                ..HookAnswer::default()
            },
            &project,
        );
        assert_eq!(hook_outcome.ask.as_deref(), Some("it is late"));
        assert_eq!(
            hook_outcome.deny.as_deref(),
            Some("The hook h refuses this: No.")
        );
        assert_eq!(hook_outcome.context, ["From the hook h: one"]);
    }
}
