//! A provider for tests: it says what it was told to say, and remembers what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;

use super::{AnswerStream, Delta, Error, Provider, Request};
use base::lock::locked;
use transcript::{Finish, Usage};

#[derive(Debug, Clone, Default)]
pub struct ScriptedAnswer {
    /// What comes, in order.
    pub pieces: Vec<Result<Delta, Error>>,
    /// Whether it then stays open without a word, until the asker hangs up.
    pub hangs: bool,
}

impl ScriptedAnswer {
    pub fn text(text: &str) -> Self {
        Self::from_iter([
            Delta::Text { index: 0, text: text.into() },
            Delta::Usage(Usage { input: 10, output: 5, ..Usage::default() }),
            Delta::Finish(Finish::Stop),
        ])
    }

    /// Calls of tools with these arguments, and the end. They are named `wire-0`, `wire-1` …
    pub fn calls(calls: &[(&str, serde_json::Value)]) -> Self {
        let named = calls.iter().enumerate().flat_map(|(index, (name, arguments))| {
            [
                Delta::Call { index, id: Some(format!("wire-{index}")), name: (*name).into() },
                Delta::Arguments { index, json: arguments.to_string() },
            ]
        });
        let usage = Delta::Usage(Usage { input: 10, output: 5, ..Usage::default() });
        Self::from_iter(named.chain([usage, Delta::Finish(Finish::ToolCalls)]))
    }

    /// A failure before anything was said.
    pub fn fails(error: Error) -> Self {
        Self { pieces: vec![Err(error)], hangs: false }
    }

    pub fn silence() -> Self {
        Self { pieces: Vec::new(), hangs: true }
    }

    /// The same, and then this failure.
    #[must_use]
    pub fn then_fails(mut self, error: Error) -> Self {
        self.pieces.retain(|piece| !matches!(piece, Ok(Delta::Finish(_))));
        self.pieces.push(Err(error));
        self
    }

    /// The same, and then this, before its end.
    #[must_use]
    pub fn then(mut self, delta: Delta) -> Self {
        let end = self.pieces.iter().position(|piece| matches!(piece, Ok(Delta::Finish(_))));
        self.pieces.insert(end.unwrap_or(self.pieces.len()), Ok(delta));
        self
    }

    /// The same, with another end.
    #[must_use]
    pub fn then_ends(mut self, finish: Finish) -> Self {
        self.pieces.retain(|piece| !matches!(piece, Ok(Delta::Finish(_))));
        self.pieces.push(Ok(Delta::Finish(finish)));
        self
    }

    /// The same without its end, and then silence.
    #[must_use]
    pub fn then_hangs(mut self) -> Self {
        self.pieces.retain(|piece| !matches!(piece, Ok(Delta::Finish(_))));
        self.hangs = true;
        self
    }
}

impl FromIterator<Delta> for ScriptedAnswer {
    fn from_iter<I: IntoIterator<Item = Delta>>(deltas: I) -> Self {
        Self { pieces: deltas.into_iter().map(Ok).collect(), hangs: false }
    }
}

/// Plays scripts, one per request. Asked once too often it fails, which fails the test.
#[derive(Debug, Default)]
pub struct Scripted {
    // A leaf lock: held for a push or a pop, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    scripts: VecDeque<ScriptedAnswer>,
    asked: Vec<Arc<Request>>,
    follows: Vec<bool>,
    paced: bool,
}

impl Scripted {
    /// With these answers, in order.
    pub fn new(scripts: impl IntoIterator<Item = ScriptedAnswer>) -> Arc<Self> {
        let scripts = scripts.into_iter().collect();
        Arc::new(Self { state: Mutex::new(State { scripts, ..State::default() }) })
    }

    /// With these answers, whose pieces come one after the other: everybody else is heard in between.
    pub fn paced(scripts: impl IntoIterator<Item = ScriptedAnswer>) -> Arc<Self> {
        let scripts = scripts.into_iter().collect();
        Arc::new(Self { state: Mutex::new(State { scripts, paced: true, ..State::default() }) })
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Arc<Request>> {
        locked(&self.state).asked.clone()
    }

    /// Which of that came with the request before it, so that a wire need not write all of it again.
    pub fn follows(&self) -> Vec<bool> {
        locked(&self.state).follows.clone()
    }

    /// How many answers were not asked for.
    pub fn left(&self) -> usize {
        locked(&self.state).scripts.len()
    }
}

impl Provider for Scripted {
    fn ask(&self, request: Arc<Request>) -> AnswerStream {
        let mut state = locked(&self.state);
        state.follows.push(request.body_cache.follows());
        // A copy: whoever asks wants the request itself back.
        state.asked.push(Arc::new(Request::clone(&request)));
        let unscripted = || ScriptedAnswer::fails(Error::BadRequest("the script has no more answers".into()));
        let script = state.scripts.pop_front().unwrap_or_else(unscripted);
        let pieces = futures_util::stream::iter(script.pieces);
        if state.paced {
            let paced = pieces.then(|piece| async {
                tokio::task::yield_now().await;
                piece
            });
            return if script.hangs { Box::pin(paced.chain(futures_util::stream::pending())) } else { Box::pin(paced) };
        }
        if script.hangs { Box::pin(pieces.chain(futures_util::stream::pending())) } else { Box::pin(pieces) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, request};
    use transcript::ModelRef;

    fn request() -> Arc<Request> {
        let id = ModelRef { provider: "p".into(), model: "m".into(), effort: None };
        Arc::new(Request {
            model: Arc::new(Model::unknown(id)),
            system: Vec::new(),
            messages: vec![request::ModelMessage::User(vec![request::ModelInput::Text("hi".into())])],
            tools: Vec::new(),
            must_call: false,
            params: request::ModelParams::default(),
            session: "s".into(),
            body_cache: request::BodyCache::default(),
        })
    }

    #[tokio::test]
    async fn plays_its_scripts_in_order_and_then_fails() {
        let scripted = Scripted::new([
            ScriptedAnswer::text("hello"),
            ScriptedAnswer::text("cut").then_fails(Error::Network("gone".into())),
        ]);
        let first: Vec<_> = scripted.ask(request()).collect().await;
        assert_eq!(first.last(), Some(&Ok(Delta::Finish(Finish::Stop))));
        let second: Vec<_> = scripted.ask(request()).collect().await;
        assert_eq!(second.last(), Some(&Err(Error::Network("gone".into()))));
        assert_eq!(scripted.left(), 0);
        assert!(matches!(scripted.ask(request()).next().await, Some(Err(Error::BadRequest(_)))));
        assert_eq!(scripted.asked().len(), 3);
    }
}
