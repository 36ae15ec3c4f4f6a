//! A server or a tool asks the session's model something, which the user has agreed to: one question, no tools of ours,
//! paid by the turn.

use std::sync::Arc;

use futures_util::StreamExt;

use crate::turn::{TurnContext, budget, frame, step};
use events::{Sample, SampleRequest};
use providers::request::{BodyCache, ModelParams};
use providers::{Delta, Request};
use transcript::{Finish, Usage};

/// Asks, and answers whoever wants to know, unless nobody does any more.
pub(super) async fn sample(scope: &TurnContext, wanted: SampleRequest) {
    let SampleRequest { system, messages, max_output, search, temperature, mut reply } = wanted;
    let question = SamplingRequest { system, messages, max_output, search, temperature };
    let answer = tokio::select! {
        answer = question.ask(scope) => answer,
        () = reply.closed() => return,
        () = scope.cancelled.cancelled() => return,
    };
    // Whoever asked may have gone since.
    reply.send(answer).ok();
}

struct SamplingRequest {
    system: Option<String>,
    messages: Vec<providers::request::ModelMessage>,
    max_output: u64,
    search: bool,
    temperature: Option<f64>,
}

/// What was counted is paid for, however it ends.
struct Bill<'a> {
    scope: &'a TurnContext,
    model: Arc<providers::Model>,
    usage: Usage,
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        step::lost(self.scope, &self.model, &self.usage);
    }
}

impl SamplingRequest {
    async fn ask(self, scope: &TurnContext) -> Result<Sample, String> {
        let most = scope.project.settings.budget.cost;
        if let Some(most) = most.filter(|_| scope.budget.is_empty(most)) {
            return Err(budget::spent(most));
        }
        let agent = frame::agent(scope).map_err(|fault| fault.message)?;
        let mut wanted = frame::model(scope, &agent);
        // To search needs no long thoughts.
        wanted.effort = wanted.effort.filter(|_| !self.search);
        let (model, provider) = scope.project.models.find(&wanted).map_err(|e| e.to_string())?;
        if self.search && !provider.searches(&model) {
            return Err(format!("{} does not search the web for {}", model.provider_name, model.name));
        }
        let request = Request {
            system: self.system.into_iter().collect(),
            messages: self.messages,
            tools: Vec::new(),
            must_call: false,
            params: ModelParams {
                temperature: self.temperature.filter(|_| model.temperature),
                top_p: None,
                max_output: model.max_output().min(self.max_output.max(1)),
                options: agent.options.clone(),
                headers: Vec::new(),
                search: self.search,
            },
            session: format!("{}-sample", scope.session),
            body_cache: BodyCache::default(),
            model: model.clone(),
        };
        let mut bill = Bill { scope, model: model.clone(), usage: Usage::default() };
        let mut answer = provider.ask(Arc::new(request));
        let (mut text, mut found, mut finish) = (String::new(), Vec::new(), None);
        while let Some(delta) = answer.next().await {
            match delta.map_err(|e| e.to_string())? {
                Delta::Text { text: more, .. } => text.push_str(&more),
                Delta::Found(pages) => found.extend(pages),
                Delta::Usage(usage) => bill.usage = usage,
                Delta::Finish(end) => finish = Some(end),
                _ => {}
            }
        }
        match finish {
            Some(Finish::Refusal) => Err("the model refused".into()),
            None => Err("the answer was cut off".into()),
            Some(finish) => {
                let (model, cut) = (model.id.to_string(), finish == Finish::Length);
                Ok(Sample { text, found, model, cut })
            }
        }
    }
}
