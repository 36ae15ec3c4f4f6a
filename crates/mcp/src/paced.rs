//! A transport whose server cannot make us read at full speed. What it sends unasked (notifications, requests, answers
//! to nothing) is paid for from a budget that fills up steadily; while that is overdrawn, nothing is read, and what
//! the server sends waits in its own buffers. Answers to requests of ours cost nothing.

use std::io::Write;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::{Instant, sleep_until};

/// How many messages a server may send unasked in a second, for as long as it likes.
const RATE: u32 = 200;

/// How many it may send at once.
const BURST: u32 = 1_000;

/// How many bytes count as one more message.
const BYTES: usize = 4 << 10;

pub(super) struct PacedTransport<T> {
    inner: T,
    budget: UnaskedBudget,
    /// How many requests of ours are not answered.
    awaited: usize,
}

impl<T> PacedTransport<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, budget: UnaskedBudget::new(Instant::now()), awaited: 0 }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for PacedTransport<T> {
    type Error = T::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.awaited += usize::from(matches!(item, JsonRpcMessage::Request(_)));
        self.inner.send(item)
    }

    /// Nothing is lost where this is dropped: what was paid for is waited for before the next message is taken.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if let Some(until) = self.budget.overdrawn() {
            sleep_until(until).await;
        }
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) if self.awaited > 0 => self.awaited -= 1,
            message => self.budget.pay(cost(message), Instant::now()),
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

/// A bucket of tokens, as the moment at which it would be full.
struct UnaskedBudget {
    full: Instant,
}

impl UnaskedBudget {
    const EACH: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);

    fn new(now: Instant) -> Self {
        Self { full: now }
    }

    fn pay(&mut self, tokens: u32, now: Instant) {
        // Answers wait behind what was sent before them, so no debt is longer than a second.
        let most = now + Self::EACH * (BURST + RATE);
        self.full = (self.full.max(now) + Self::EACH * tokens).min(most);
    }

    /// When there is something in it again. `None` if there is.
    fn overdrawn(&self) -> Option<Instant> {
        self.full.checked_sub(Self::EACH * BURST).filter(|until| *until > Instant::now())
    }
}

/// How many tokens a message costs.
fn cost(message: &ServerJsonRpcMessage) -> u32 {
    let mut size = ByteCount(0);
    // What was read as JSON can be written as such.
    serde_json::to_writer(&mut size, message).ok();
    u32::try_from(1 + size.0 / BYTES).unwrap_or(BURST)
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

    /// A server that has sent these over and over, and never ends.
    struct Flood(Vec<ServerJsonRpcMessage>, usize);

    impl Transport<RoleClient> for Flood {
        type Error = Infallible;

        fn send(&mut self, _: ClientJsonRpcMessage) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
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

    /// How many messages are read in a minute.
    async fn read(server: &mut PacedTransport<Flood>) -> u32 {
        let (end, mut read) = (Instant::now() + Duration::from_secs(60), 0);
        while tokio::time::timeout_at(end, server.receive()).await.is_ok() && Instant::now() < end {
            read += 1;
        }
        read
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_floods_is_read_at_a_fixed_pace() {
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
            assert!((at_most / 2..=at_most + 1).contains(&read), "{name}: {read}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_requests_are_read_at_once() {
        let answer = message(json!({ "jsonrpc": "2.0", "id": 1, "result": { "x": "y".repeat(1 << 20) } }));
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
