//! Requests of MCP servers and tools to the session's model, approved by the user: one question,
//! without tools, paid by the turn.

use std::sync::Arc;

use futures_util::StreamExt;

use crate::turn::trace::{self, RequestPurpose};
use crate::turn::{TurnContext, budget, step, step_context};
use events::{Sample, SampleRequest};
use providers::request::{BodyCache, ModelParams};
use providers::{Delta, Request, optional_fields};
use transcript::{Finish, Usage};

/// Sends a request to the model and returns its answer, unless the receiver is dropped.
pub(super) async fn sample(turn: &TurnContext, wanted: SampleRequest) {
    let SampleRequest {
        system,
        messages,
        max_output,
        search,
        temperature,
        mut reply,
    } = wanted;
    let question = SamplingRequest {
        system,
        messages,
        max_output,
        search,
        temperature,
    };
    let answer = tokio::select! {
        answer = question.run(turn) => answer,
        () = reply.closed() => return,
        () = turn.cancelled.cancelled() => return,
    };
    // The receiver may have been dropped.
    reply.send(answer).ok();
}

struct SamplingRequest {
    system: Option<String>,
    messages: Vec<providers::request::ModelMessage>,
    max_output: u64,
    search: bool,
    temperature: Option<f64>,
}

/// The usage of a request, which is paid for however the request ends.
struct UsageGuard<'a> {
    turn: &'a TurnContext,
    model: Arc<providers::Model>,
    usage: Usage,
}

impl Drop for UsageGuard<'_> {
    fn drop(&mut self) {
        step::count_unused_answer(self.turn, &self.model, &self.usage);
    }
}

impl SamplingRequest {
    async fn run(self, turn: &TurnContext) -> Result<Sample, String> {
        let limit = turn.project.context.settings.budget.cost;
        if let Some(max) = limit
            && turn.budget.is_spent(limit)
        {
            return Err(budget::spent_message(max));
        }
        let agent = step_context::chosen_agent(turn).map_err(|fault| fault.message)?;
        let mut wanted = step_context::chosen_model(turn, &agent);
        // A search needs no reasoning effort.
        if self.search {
            wanted.effort = None;
        }
        let (model, provider) = turn
            .project
            .models
            .find(&wanted)
            .map_err(|e| e.to_string())?;
        if self.search && !provider.can_search_web(&model) {
            return Err(format!(
                "{} does not search the web for {}",
                model.provider_name, model.name
            ));
        }
        let mut request = Request {
            system: self.system.into_iter().collect(),
            messages: self.messages,
            tools: Vec::new(),
            must_call: false,
            params: ModelParams {
                temperature: if model.temperature {
                    self.temperature
                } else {
                    None
                },
                max_output: model.max_output().min(self.max_output.max(1)),
                options: agent.options.clone(),
                search: self.search,
                // Thinking would use up the limit, which may be low.
                least_effort: true,
                ..ModelParams::default()
            },
            session: format!("{}-sample", turn.session.id),
            body_cache: BodyCache::default(),
            model: model.clone(),
        };
        let mut guard = UsageGuard {
            turn,
            model: model.clone(),
            usage: Usage::default(),
        };
        let mut text = String::new();
        let mut found = Vec::new();
        let mut finish = None;
        let ask = |request: &Request| {
            let answer = provider.stream(Arc::new(request.clone()));
            trace::observe_answer(turn, &request.model, RequestPurpose::Sampling, answer)
        };
        let mut answer = ask(&request);
        while let Some(delta) = answer.next().await {
            match delta {
                Ok(Delta::Text { text: more, .. }) => text.push_str(&more),
                Ok(Delta::FoundPages(pages)) => found.extend(pages),
                Ok(Delta::Usage(usage)) => guard.usage = usage,
                Ok(Delta::Finish(end)) => finish = Some(end),
                Ok(_) => {}
                Err(error) => {
                    let field = optional_fields::rejected_field(&error, &request.params.omitted)
                        .ok_or_else(|| error.to_string())?;
                    request.params.omitted.push(field);
                    text.clear();
                    found.clear();
                    answer = ask(&request);
                }
            }
        }
        match finish {
            Some(Finish::Refusal) => Err("the model refused".into()),
            None => Err("the answer was cut off".into()),
            Some(finish) => {
                let model = model.id.to_string();
                Ok(Sample {
                    text,
                    found,
                    model,
                    cut: finish == Finish::Length,
                })
            }
        }
    }
}
