//! Tools that a model may call although they are not in its list.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    AcceptedArguments, AnyTool, BoxFuture, CallDescription, Failure, PreparedCall, ToolContext,
};
use events::ToolKind;

/// A tool that is not listed in the request. A model may still call it, from habit or because it
/// has found it.
pub struct UnlistedTool(pub Arc<dyn AnyTool>);

impl AnyTool for UnlistedTool {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn description(&self) -> String {
        self.0.description()
    }

    fn schema(&self) -> Arc<Value> {
        self.0.schema()
    }

    fn kind(&self) -> ToolKind {
        self.0.kind()
    }

    fn concurrent(&self) -> bool {
        self.0.concurrent()
    }

    fn permission(&self) -> &str {
        self.0.permission()
    }

    fn is_concurrent(&self, input: &Value, context: &ToolContext) -> bool {
        self.0.is_concurrent(input, context)
    }

    fn rejected(&self) -> Option<&'static str> {
        self.0.rejected()
    }

    fn server(&self) -> Option<&str> {
        self.0.server()
    }

    fn is_foreign(&self) -> bool {
        self.0.is_foreign()
    }

    fn listed(&self) -> bool {
        false
    }

    fn accept(&self, input: Value) -> Result<AcceptedArguments, String> {
        self.0.accept(input)
    }

    fn describe(&self, input: &Value, context: &ToolContext) -> Option<CallDescription> {
        self.0.describe(input, context)
    }

    fn prepare<'a>(
        &'a self,
        input: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<PreparedCall, Failure>> {
        self.0.prepare(input, context)
    }
}
