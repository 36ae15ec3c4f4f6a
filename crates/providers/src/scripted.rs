//! The mock provider of the tests ([`ScriptedProvider`]): it answers requests from scripts
//! ([`ScriptedAnswer`]), and records the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;

use super::{AnswerStream, Delta, Error, Provider, Request};
use base::lock::lock;
use transcript::{Finish, Usage};

/// The script of one answer.
#[derive(Debug, Clone, Default)]
pub struct ScriptedAnswer {
    /// The deltas and errors, in order.
    pub pieces: Vec<Result<Delta, Error>>,
    /// True if the answer then stays open without data, until the receiver drops it.
    pub hangs: bool,
}

impl ScriptedAnswer {
    /// Creates a complete answer with one text.
    pub fn text(text: &str) -> Self {
        Self::from_iter([
            Delta::Text {
                index: 0,
                text: text.into(),
            },
            Delta::Usage(Usage {
                input: 10,
                output: 5,
                ..Usage::default()
            }),
            Delta::Finish(Finish::Stop),
        ])
    }

    /// Creates an answer with calls of these tools, each with its arguments. The ids are `wire-0`, `wire-1` …
    pub fn calls(calls: &[(&str, serde_json::Value)]) -> Self {
        let named = calls
            .iter()
            .enumerate()
            .flat_map(|(index, (name, arguments))| {
                [
                    Delta::Call {
                        index,
                        id: Some(format!("wire-{index}")),
                        name: (*name).into(),
                    },
                    Delta::Arguments {
                        index,
                        json: arguments.to_string(),
                    },
                ]
            });
        let usage = Delta::Usage(Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        });
        Self::from_iter(named.chain([usage, Delta::Finish(Finish::ToolCalls)]))
    }

    /// Creates an answer that fails before any content.
    pub fn failing(error: Error) -> Self {
        Self {
            pieces: vec![Err(error)],
            hangs: false,
        }
    }

    /// Creates an answer that never sends anything.
    pub fn hanging() -> Self {
        Self {
            pieces: Vec::new(),
            hangs: true,
        }
    }

    /// Replaces the finish with an error.
    #[must_use]
    pub fn then_fails(mut self, error: Error) -> Self {
        self.pieces
            .retain(|piece| !matches!(piece, Ok(Delta::Finish(_))));
        self.pieces.push(Err(error));
        self
    }

    /// Inserts a delta before the finish.
    #[must_use]
    pub fn with_delta(mut self, delta: Delta) -> Self {
        let end = self
            .pieces
            .iter()
            .position(|piece| matches!(piece, Ok(Delta::Finish(_))));
        self.pieces
            .insert(end.unwrap_or(self.pieces.len()), Ok(delta));
        self
    }

    /// Replaces the finish reason.
    #[must_use]
    pub fn with_finish(mut self, finish: Finish) -> Self {
        self.pieces
            .retain(|piece| !matches!(piece, Ok(Delta::Finish(_))));
        self.pieces.push(Ok(Delta::Finish(finish)));
        self
    }

    /// Replaces the finish with silence.
    #[must_use]
    pub fn then_hangs(mut self) -> Self {
        self.pieces
            .retain(|piece| !matches!(piece, Ok(Delta::Finish(_))));
        self.hangs = true;
        self
    }
}

impl FromIterator<Delta> for ScriptedAnswer {
    fn from_iter<I: IntoIterator<Item = Delta>>(deltas: I) -> Self {
        Self {
            pieces: deltas.into_iter().map(Ok).collect(),
            hangs: false,
        }
    }
}

/// Plays scripts, one per request. A request beyond the last script fails with
/// [`Error::BadRequest`].
#[derive(Debug, Default)]
pub struct ScriptedProvider {
    // A leaf lock: held for a push or a pop, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The scripts of the next answers.
    scripts: VecDeque<ScriptedAnswer>,
    /// The requests so far.
    requests: Vec<Arc<Request>>,
    /// For each request, true if its body cache held the preceding request.
    has_preceding: Vec<bool>,
    /// True to yield to other tasks between the deltas.
    paced: bool,
}

impl ScriptedProvider {
    /// Creates a provider with these answers, in order.
    pub fn new(scripts: impl IntoIterator<Item = ScriptedAnswer>) -> Arc<Self> {
        let scripts = scripts.into_iter().collect();
        Arc::new(Self {
            state: Mutex::new(State {
                scripts,
                ..State::default()
            }),
        })
    }

    /// Creates a provider with these answers, which yields to other tasks between the deltas.
    pub fn paced(scripts: impl IntoIterator<Item = ScriptedAnswer>) -> Arc<Self> {
        let scripts = scripts.into_iter().collect();
        Arc::new(Self {
            state: Mutex::new(State {
                scripts,
                paced: true,
                ..State::default()
            }),
        })
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        lock(&self.state).requests.clone()
    }

    /// Returns for each request true if its body cache held the preceding one, whose encoded body can
    /// be reused.
    pub fn has_preceding(&self) -> Vec<bool> {
        lock(&self.state).has_preceding.clone()
    }

    /// Returns the number of answers that are left.
    pub fn left(&self) -> usize {
        lock(&self.state).scripts.len()
    }
}

impl Provider for ScriptedProvider {
    fn stream(&self, request: Arc<Request>) -> AnswerStream {
        let mut state = lock(&self.state);
        state.has_preceding.push(request.body_cache.has_preceding());
        // A copy, because the caller later unwraps its `Arc`.
        state.requests.push(Arc::new(Request::clone(&request)));
        let unscripted =
            || ScriptedAnswer::failing(Error::BadRequest("the script has no more answers".into()));
        let script = state.scripts.pop_front().unwrap_or_else(unscripted);
        let pieces = futures_util::stream::iter(script.pieces);
        if state.paced {
            let paced = pieces.then(|piece| async {
                tokio::task::yield_now().await;
                piece
            });
            return if script.hangs {
                Box::pin(paced.chain(futures_util::stream::pending()))
            } else {
                Box::pin(paced)
            };
        }
        if script.hangs {
            Box::pin(pieces.chain(futures_util::stream::pending()))
        } else {
            Box::pin(pieces)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, request};
    use transcript::ModelRef;

    fn request() -> Arc<Request> {
        let id = ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        Arc::new(Request {
            model: Arc::new(Model::unknown(id)),
            system: Vec::new(),
            messages: vec![request::ModelMessage::User(vec![
                request::ModelInput::Text("hi".into()),
            ])],
            tools: Vec::new(),
            must_call: false,
            params: request::ModelParams::default(),
            session: "s".into(),
            body_cache: request::BodyCache::default(),
        })
    }

    #[tokio::test]
    async fn scripts_are_played_in_order() {
        let scripted = ScriptedProvider::new([
            ScriptedAnswer::text("hello"),
            ScriptedAnswer::text("cut").then_fails(Error::Network("gone".into())),
        ]);
        let first: Vec<_> = scripted.stream(request()).collect().await;
        assert_eq!(first.last(), Some(&Ok(Delta::Finish(Finish::Stop))));
        let second: Vec<_> = scripted.stream(request()).collect().await;
        assert_eq!(second.last(), Some(&Err(Error::Network("gone".into()))));
        assert_eq!(scripted.left(), 0);
        assert!(matches!(
            scripted.stream(request()).next().await,
            Some(Err(Error::BadRequest(_)))
        ));
        assert_eq!(scripted.requests().len(), 3);
    }
}
