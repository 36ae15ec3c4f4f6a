//! Diagnostics of files: requested if the server supports that, otherwise awaited.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::{LspClient, TSSERVER};
use super::types::{self, Diagnostic, ReportedDiagnostics};

/// The time after the last diagnostics of a file in which a server may publish more.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// The time to wait for published diagnostics of other files, after those of the changed file.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(2);
/// The time to wait for a server that reports work in progress, in addition to the time of its
/// answers.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

impl LspClient {
    /// Returns the diagnostics of open files: the most important ones first, `others` after them.
    /// Waits until `until` at most, slightly longer if the server reports work in progress, and not
    /// at all if an earlier wait has timed out.
    pub async fn diagnose(
        &self,
        first: &[PathBuf],
        others: &[PathBuf],
        until: Instant,
    ) -> Vec<ReportedDiagnostics> {
        let until = if self.is_silent() {
            Instant::now()
        } else {
            until
        };
        let mut reported = join_all(first.iter().map(|path| self.one(path, until))).await;
        if reported.iter().any(|reported| reported.all.is_none()) && !self.is_busy() {
            self.mark_silent();
        }
        let ability = self.abilities();
        let mut later = until;
        if !ability.pull && !ability.tsserver {
            // The server does not report when the others are done, so it must check them again.
            others.iter().for_each(|path| self.recheck(path));
            later = until.min(Instant::now() + OTHERS_TIMEOUT);
        }
        reported.extend(join_all(others.iter().map(|path| self.one(path, later))).await);
        if self.is_busy() && !self.is_silent() {
            self.wait_until_idle(until.max(Instant::now()) + BUSY_TIMEOUT)
                .await;
            reported = join_all(
                reported
                    .iter()
                    .map(|reported| self.one(&reported.path, Instant::now() + OTHERS_TIMEOUT)),
            )
            .await;
        }
        reported
    }

    /// Waits until the server has analysed a file that was just opened.
    pub async fn wait_until_analysed(&self, path: &Path, until: Instant) {
        let until = if self.is_silent() {
            Instant::now()
        } else {
            until
        };
        self.one(path, until).await;
    }

    async fn one(&self, path: &Path, until: Instant) -> ReportedDiagnostics {
        let ability = self.abilities();
        let all = if ability.tsserver {
            self.pull_from_tsserver(path, until).await
        } else if ability.pull {
            self.pull_diagnostics(path, until).await
        } else {
            self.wait_for_published(path, until).await
        };
        ReportedDiagnostics {
            path: path.to_owned(),
            all,
        }
    }

    /// Requests the diagnostics from tsserver, which does not publish anything for a file that was
    /// clean and still is.
    async fn pull_from_tsserver(&self, path: &Path, until: Instant) -> Option<Vec<Diagnostic>> {
        let query = async |command: &str| {
            let arguments = json!([command, {"file": path}]);
            let params = json!({"command": TSSERVER, "arguments": arguments});
            let answer = timeout_at(until, self.request("workspace/executeCommand", params))
                .await
                .ok()?
                .ok()?;
            let body = answer.get("body")?.as_array()?.clone();
            Some(
                body.iter()
                    .filter_map(Diagnostic::of_tsserver)
                    .collect::<Vec<_>>(),
            )
        };
        let (syntax, meaning) = tokio::join!(
            query("syntacticDiagnosticsSync"),
            query("semanticDiagnosticsSync")
        );
        let mut all = syntax?;
        let meaning = meaning?;
        all.extend(meaning);
        Some(all)
    }

    /// Requests the diagnostics, and adds the published ones.
    async fn pull_diagnostics(&self, path: &Path, until: Instant) -> Option<Vec<Diagnostic>> {
        let params = json!({"textDocument": {"uri": types::uri(path)}});
        let mut answer = Err(String::new());
        // A request that was interrupted by a change is repeated.
        for _ in 0..3 {
            answer = timeout_at(
                until,
                self.request("textDocument/diagnostic", params.clone()),
            )
            .await
            .ok()?;
            if answer.is_ok() {
                break;
            }
        }
        let items = answer
            .ok()?
            .get("items")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let mut all: Vec<Diagnostic> = items.iter().filter_map(Diagnostic::read).collect();
        let published = self.published_for(path).filter(|published| published.fresh);
        for diagnostic in published.into_iter().flat_map(|published| published.all) {
            if !all.contains(&diagnostic) {
                all.push(diagnostic);
            }
        }
        Some(all)
    }

    async fn wait_for_published(&self, path: &Path, until: Instant) -> Option<Vec<Diagnostic>> {
        let mut updates = self.updates();
        loop {
            updates.mark_unchanged();
            let published = self.published_for(path).filter(|published| published.fresh);
            let settled_at = published
                .as_ref()
                .map(|published| published.when + SETTLE_TIME);
            if let Some(published) = published
                && (settled_at <= Some(Instant::now()) || until <= Instant::now())
            {
                return Some(published.all);
            }
            tokio::select! {
                () = sleep_until(settled_at.map_or(until, |settled_at| settled_at.min(until))) => {
                    settled_at?;
                }
                changed = updates.changed() => changed.ok()?,
                () = self.gone.cancelled() => return None,
            }
        }
    }

    /// Waits until the server reports that its work is done.
    pub async fn wait_until_idle(&self, until: Instant) {
        let mut updates = self.updates();
        let done = async {
            while self.is_busy() {
                if updates.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = timeout_at(until, done) => {}
            () = self.gone.cancelled() => {}
        }
    }
}
