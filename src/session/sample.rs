//! A server asks the session's model something, which the user has agreed to: one question, no tools, paid by the
//! turn.

use std::sync::Arc;

use futures_util::StreamExt;

use crate::event::{Sample, SampleRequest};
use crate::message::{Finish, Usage};
use crate::model::request::{BodyCache, Params};
use crate::model::{Delta, Request};
use crate::turn::{TurnContext, budget, frame, step};

/// Asks, and answers whoever wants to know, unless nobody does any more.
pub(super) async fn sample(scope: &TurnContext, wanted: SampleRequest) {
    let SampleRequest { system, messages, max_output, temperature, mut reply } = wanted;
    let question = Question { system, messages, max_output, temperature };
    let answer = tokio::select! {
        answer = question.ask(scope) => answer,
        () = reply.closed() => return,
        () = scope.cancelled.cancelled() => return,
    };
    // Whoever asked may have gone since.
    reply.send(answer).ok();
}

struct Question {
    system: Option<String>,
    messages: Vec<crate::model::request::Message>,
    max_output: u64,
    temperature: Option<f64>,
}

/// What was counted is paid for, however it ends.
struct Bill<'a> {
    scope: &'a TurnContext,
    model: Arc<crate::model::Model>,
    usage: Usage,
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        step::lost(self.scope, &self.model, &self.usage);
    }
}

impl Question {
    async fn ask(self, scope: &TurnContext) -> Result<Sample, String> {
        let most = scope.project.settings.budget.cost;
        if let Some(most) = most.filter(|_| scope.budget.is_empty(most)) {
            return Err(budget::spent(most));
        }
        let agent = frame::agent(scope).map_err(|fault| fault.message)?;
        let wanted = frame::model(scope, &agent);
        let (model, provider) = scope.project.models.find(&wanted).map_err(|e| e.to_string())?;
        let request = Request {
            system: self.system.into_iter().collect(),
            messages: self.messages,
            tools: Vec::new(),
            must_call: false,
            params: Params {
                temperature: self.temperature.filter(|_| model.temperature),
                top_p: None,
                max_output: model.max_output().min(self.max_output.max(1)),
                options: agent.options.clone(),
                headers: Vec::new(),
            },
            session: format!("{}-sample", scope.session),
            body_cache: BodyCache::default(),
            model: model.clone(),
        };
        let mut bill = Bill { scope, model: model.clone(), usage: Usage::default() };
        let mut answer = provider.ask(Arc::new(request));
        let (mut text, mut finish) = (String::new(), None);
        while let Some(delta) = answer.next().await {
            match delta.map_err(|e| e.to_string())? {
                Delta::Text { text: more, .. } => text.push_str(&more),
                Delta::Usage(usage) => bill.usage = usage,
                Delta::Finish(end) => finish = Some(end),
                _ => {}
            }
        }
        match finish {
            Some(Finish::Refusal) => Err("the model refused".into()),
            None => Err("the answer was cut off".into()),
            Some(finish) => Ok(Sample { text, model: model.id.to_string(), cut: finish == Finish::Length }),
        }
    }
}
