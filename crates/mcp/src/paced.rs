//! A transport that limits the rate at which a server can make us read. Unsolicited messages
//! (notifications, requests, responses to no request) are charged to a budget that refills
//! steadily. While it is overdrawn, nothing is read and messages wait in the server's buffers.
//! Responses to our requests are free.

use std::io::Write;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

/// The sustained rate of unsolicited messages, per second.
const RATE: u32 = 200;

/// The burst of unsolicited messages.
const BURST: u32 = 1_000;

/// The number of bytes that count as one more message.
const BYTES_PER_TOKEN: usize = 4 << 10;

pub(super) struct PacedTransport<T> {
    inner: T,
    budget: UnsolicitedBudget,
    /// The number of our unanswered requests.
    unanswered: usize,
}

impl<T> PacedTransport<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner,
            budget: UnsolicitedBudget::new(Instant::now()),
            unanswered: 0,
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for PacedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.unanswered += usize::from(matches!(item, JsonRpcMessage::Request(_)));
        self.inner.send(item)
    }

    /// Cancellation-safe: the budget is awaited before the next message is taken.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if let Some(until) = self.budget.overdrawn() {
            sleep_until(until).await;
        }
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) if self.unanswered > 0 => {
                self.unanswered -= 1
            }
            message => self.budget.pay(cost(message), Instant::now()),
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

/// A token bucket, stored as the time at which it will be full.
struct UnsolicitedBudget {
    full: Instant,
}

impl UnsolicitedBudget {
    const TOKEN_INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);

    fn new(now: Instant) -> Self {
        Self { full: now }
    }

    fn pay(&mut self, tokens: u32, now: Instant) {
        // Responses wait behind earlier messages, so the debt is limited to one second.
        let most = now + Self::TOKEN_INTERVAL * (BURST + RATE);
        self.full = (self.full.max(now) + Self::TOKEN_INTERVAL * tokens).min(most);
    }

    /// Returns the time at which the budget is positive again, or `None` if it is.
    fn overdrawn(&self) -> Option<Instant> {
        self.full
            .checked_sub(Self::TOKEN_INTERVAL * BURST)
            .filter(|until| *until > Instant::now())
    }
}

/// Returns the cost of a message in tokens.
fn cost(message: &ServerJsonRpcMessage) -> u32 {
    u32::try_from(1 + byte_count(message) / BYTES_PER_TOKEN).unwrap_or(BURST)
}

/// Returns the size of a message as JSON.
pub(super) fn byte_count(message: &impl Serialize) -> usize {
    let mut size = ByteCount(0);
    // A message that was parsed from JSON can be serialized again.
    serde_json::to_writer(&mut size, message).ok();
    size.0
}

struct ByteCount(usize);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde_json::json;

    use super::*;

    /// A server that sends the same messages forever.
    struct Flood(Vec<ServerJsonRpcMessage>, usize);

    impl Transport<RoleClient> for Flood {
        type Error = Infallible;

        fn send(
            &mut self,
            _: ClientJsonRpcMessage,
        ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            std::future::ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
            self.1 += 1;
            self.0.get(self.1 % self.0.len()).cloned()
        }

        async fn close(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }

    fn message(json: serde_json::Value) -> ServerJsonRpcMessage {
        serde_json::from_value(json).unwrap()
    }

    /// Returns the number of messages read in a minute.
    async fn read(server: &mut PacedTransport<Flood>) -> u32 {
        let end = Instant::now() + Duration::from_secs(60);
        let mut read = 0;
        while tokio::time::timeout_at(end, server.receive()).await.is_ok() && Instant::now() < end {
            read += 1;
        }
        read
    }

    #[tokio::test(start_paused = true)]
    async fn flooding_server_is_read_at_a_fixed_pace() {
        let log = |text: &str| json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": text } });
        let large = log(&"x".repeat(1 << 20));
        let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
        let most = BURST + 60 * RATE;
        for (name, sent, at_most) in [
            ("notifications", log("x"), most),
            ("large ones", large, most / 200),
            ("requests", question, most),
            ("answers to nothing", answer, most),
        ] {
            let mut server = PacedTransport::new(Flood(vec![message(sent)], 0));
            let read = read(&mut server).await;
            assert!(
                (at_most / 2..=at_most + 1).contains(&read),
                "{name}: {read}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_requests_are_read_at_once() {
        let answer =
            message(json!({ "jsonrpc": "2.0", "id": 1, "result": { "x": "y".repeat(1 << 20) } }));
        let mut server = PacedTransport::new(Flood(vec![answer], 0));
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let request: ClientJsonRpcMessage = serde_json::from_value(request).unwrap();
        let began = Instant::now();
        for _ in 0..5_000 {
            server.send(request.clone()).await.unwrap();
            server.receive().await.unwrap();
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
