//! Requests about positions and symbols.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::client::LspClient;
use super::types::{
    self, Diagnostic, FileRange, Position, Range, ReportedDiagnostics, Symbol, TextEdit,
};
use super::units::Units;

/// A kind of navigation from a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Navigation {
    Definition,
    References,
    Implementation,
}

impl LspClient {
    /// Returns the units in which the server counts characters.
    pub fn units(&self) -> Units {
        self.abilities().units
    }

    /// Sends a request and waits for its answer until `until`.
    async fn answer(
        &self,
        what: (&str, &str),
        params: Value,
        until: Instant,
    ) -> Result<Value, String> {
        let (provider, method) = what;
        if !self.offers(provider) {
            return Err("it does not provide that".into());
        }
        match timeout_at(until, self.request(method, params)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.mark_silent();
                Err("it did not answer in time".into())
            }
        }
    }

    /// Returns the targets of a navigation from a position.
    ///
    /// # Errors
    /// A message that follows "it".
    pub async fn places(
        &self,
        what: Navigation,
        path: &Path,
        at: Position,
        until: Instant,
    ) -> Result<Vec<FileRange>, String> {
        let what = match what {
            Navigation::Definition => ("definitionProvider", "textDocument/definition"),
            Navigation::References => ("referencesProvider", "textDocument/references"),
            Navigation::Implementation => ("implementationProvider", "textDocument/implementation"),
        };
        let mut params = document_position(path, at);
        params["context"] = json!({"includeDeclaration": true});
        Ok(FileRange::read_all(
            &self.answer(what, params, until).await?,
        ))
    }

    /// Returns the hover text of a position.
    ///
    /// # Errors
    /// Same as [`LspClient::places`].
    pub async fn hover(&self, path: &Path, at: Position, until: Instant) -> Result<String, String> {
        let answer = self
            .answer(
                ("hoverProvider", "textDocument/hover"),
                document_position(path, at),
                until,
            )
            .await?;
        Ok(types::hover(&answer))
    }

    /// Returns the declarations of a file.
    ///
    /// # Errors
    /// Same as [`LspClient::places`].
    pub async fn symbols(&self, path: &Path, until: Instant) -> Result<Vec<Symbol>, String> {
        let params = json!({"textDocument": {"uri": types::uri(path)}});
        let answer = self
            .answer(
                ("documentSymbolProvider", "textDocument/documentSymbol"),
                params,
                until,
            )
            .await?;
        Ok(Symbol::read_all(&answer))
    }

    /// Returns the declarations of the project whose names match the query.
    ///
    /// # Errors
    /// Same as [`LspClient::places`].
    pub async fn find(&self, query: &str, until: Instant) -> Result<Vec<Symbol>, String> {
        let params = json!({"query": query});
        let answer = self
            .answer(
                ("workspaceSymbolProvider", "workspace/symbol"),
                params,
                until,
            )
            .await?;
        Ok(Symbol::read_all(&answer))
    }

    /// Returns the callers of a function, or the functions that it calls: each with its file, and
    /// the ranges of the calls, which are in the caller's file.
    ///
    /// # Errors
    /// Same as [`LspClient::places`].
    pub async fn calls(
        &self,
        incoming: bool,
        path: &Path,
        at: Position,
        until: Instant,
    ) -> Result<Vec<(Symbol, Vec<Range>)>, String> {
        let prepare = ("callHierarchyProvider", "textDocument/prepareCallHierarchy");
        let items = self
            .answer(prepare, document_position(path, at), until)
            .await?;
        let Some(item) = items.as_array().and_then(|items| items.first()) else {
            return Ok(Vec::new());
        };
        let (method, key) = if incoming {
            ("incomingCalls", "from")
        } else {
            ("outgoingCalls", "to")
        };
        let method = format!("callHierarchy/{method}");
        let answer = self
            .answer(
                ("callHierarchyProvider", &method),
                json!({"item": item}),
                until,
            )
            .await?;
        let read_call = |call: &Value| {
            let who = call.get(key)?;
            let mut symbol = Symbol::read_all(&json!([who])).pop()?;
            symbol.path = who.get("uri").and_then(Value::as_str).and_then(types::path);
            let ranges = call
                .get("fromRanges")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            Some((
                symbol,
                ranges
                    .filter_map(|range| serde::Deserialize::deserialize(range).ok())
                    .collect(),
            ))
        };
        Ok(answer
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(read_call)
            .collect())
    }

    /// Returns the diagnostics of all files, if the server supports that.
    ///
    /// # Errors
    /// Same as [`LspClient::places`].
    pub async fn workspace_diagnostics(
        &self,
        until: Instant,
    ) -> Result<Vec<ReportedDiagnostics>, String> {
        if !self.has_workspace_diagnostics() {
            return Ok(Vec::new());
        }
        let params = json!({"previousResultIds": []});
        let answer = self
            .answer(
                ("diagnosticProvider", "workspace/diagnostic"),
                params,
                until,
            )
            .await?;
        let read_report = |report: &Value| {
            let path = types::path(report.get("uri")?.as_str()?)?;
            let items = report.get("items")?.as_array()?;
            Some(ReportedDiagnostics {
                path,
                all: Some(items.iter().filter_map(Diagnostic::read).collect()),
            })
        };
        Ok(answer
            .get("items")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(read_report)
            .collect())
    }

    /// Returns the edits that rename a symbol.
    ///
    /// # Errors
    /// Same as [`LspClient::places`].
    pub async fn rename(
        &self,
        path: &Path,
        at: Position,
        name: &str,
        until: Instant,
    ) -> Result<Vec<(PathBuf, Vec<TextEdit>)>, String> {
        let mut params = document_position(path, at);
        params["newName"] = name.into();
        types::edits(
            &self
                .answer(("renameProvider", "textDocument/rename"), params, until)
                .await?,
        )
    }
}

fn document_position(path: &Path, at: Position) -> Value {
    json!({"textDocument": {"uri": types::uri(path)}, "position": at})
}
