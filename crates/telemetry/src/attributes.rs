//! The names of OpenTelemetry's semantic conventions for generative AI, and our additions.

pub(crate) const OPERATION: &str = "gen_ai.operation.name";
pub(crate) const PROVIDER: &str = "gen_ai.provider.name";
pub(crate) const MODEL: &str = "gen_ai.request.model";
pub(crate) const AGENT: &str = "gen_ai.agent.name";
pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(crate) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(crate) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(crate) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(crate) const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
pub(crate) const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub(crate) const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
pub(crate) const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub(crate) const TOKEN_TYPE: &str = "gen_ai.token.type";
pub(crate) const TOOL: &str = "gen_ai.tool.name";
pub(crate) const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub(crate) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(crate) const TOOL_RESULT: &str = "gen_ai.tool.call.result";
pub(crate) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub(crate) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(crate) const ERROR: &str = "error.type";

pub(crate) const OUTCOME: &str = "adjutant.turn.outcome";
pub(crate) const STEPS: &str = "adjutant.turn.steps";
pub(crate) const PURPOSE: &str = "adjutant.request.purpose";
pub(crate) const COST: &str = "adjutant.cost.usd";
pub(crate) const PERMISSION: &str = "adjutant.question.permission";
pub(crate) const REPLY: &str = "adjutant.question.reply";

/// Returns the name that the conventions have for a provider, or else its own id.
pub(crate) fn provider(id: &str) -> &str {
    match id {
        "google" => "gcp.gemini",
        "google-vertex" | "google-vertex-anthropic" => "gcp.vertex_ai",
        "amazon-bedrock" => "aws.bedrock",
        "azure" => "azure.ai.openai",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        "moonshotai" => "moonshot_ai",
        id => id,
    }
}
