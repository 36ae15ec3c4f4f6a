//! How many messages a connection has carried each way, and those that may have to be carried again.

use std::collections::VecDeque;

use bytes::Bytes;

use super::host::Connection;

/// How much may wait for somebody to come back, in bytes.
const HELD: usize = 16 << 20;

/// After so many bytes or messages the other side is told how many messages have come: it keeps them until then, and
/// takes no more from its editor when it keeps too much.
const ACKNOWLEDGED_BYTES: usize = 1 << 20;
const ACKNOWLEDGED_MESSAGES: u64 = 64;

/// What was sent and may have to be sent again, and how much has come.
#[derive(Debug, Default)]
pub struct MessageTally {
    /// Whether the other side counts.
    pub counts: bool,
    /// Messages that have come.
    pub heard: u64,
    /// Bytes that have come since the other side was told how many messages have.
    unacknowledged: usize,
    /// How many it was told of.
    acknowledged: u64,
    /// The number of the first that is kept.
    first: u64,
    kept: VecDeque<Bytes>,
    bytes: usize,
}

impl MessageTally {
    /// One that keeps what is sent.
    pub fn counting() -> Self {
        Self { counts: true, ..Self::default() }
    }

    /// Takes note of a message that has come, of so many bytes. True: the other side should be told.
    pub fn hear(&mut self, bytes: usize) -> bool {
        self.heard += 1;
        self.unacknowledged += bytes;
        let many = self.heard - self.acknowledged >= ACKNOWLEDGED_MESSAGES;
        self.counts && (many || self.unacknowledged >= ACKNOWLEDGED_BYTES)
    }

    /// Keeps a message that is sent.
    pub fn sent(&mut self, message: &Bytes) {
        if self.counts {
            self.bytes += message.len();
            self.kept.push_back(message.clone());
        }
    }

    /// So many have come on the other side.
    pub fn arrived(&mut self, count: u64) {
        while self.first < count
            && let Some(message) = self.kept.pop_front()
        {
            self.bytes -= message.len();
            self.first += 1;
        }
    }

    /// What has not come on the other side, where so many have. None: what is wanted is not kept any more.
    pub fn missing(&mut self, count: u64) -> Option<Vec<Bytes>> {
        let sent = self.first + self.kept.len() as u64;
        if count < self.first || count > sent {
            return None;
        }
        self.arrived(count);
        Some(self.kept.iter().cloned().collect())
    }

    /// Whether too much is kept.
    pub fn is_full(&self) -> bool {
        self.bytes > HELD
    }

    /// The payload of a ping, which tells the other side how many messages have come: eight bytes, `heard` in network
    /// order; empty where nobody counts.
    pub fn ping(&mut self) -> Bytes {
        self.unacknowledged = 0;
        self.acknowledged = self.heard;
        if self.counts { Bytes::copy_from_slice(&self.heard.to_be_bytes()) } else { Bytes::new() }
    }

    /// What a ping of the other side says.
    pub fn pinged(&mut self, payload: &[u8]) {
        if let Ok(count) = <[u8; 8]>::try_from(payload)
            && self.counts
        {
            self.arrived(u64::from_be_bytes(count));
        }
    }
}

/// A connection and what is counted of it.
pub struct ResumableConnection {
    pub connection: Connection,
    pub tally: MessageTally,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_come_is_sent_again() {
        let mut tally = MessageTally::counting();
        for n in 0..5_u8 {
            tally.sent(&Bytes::copy_from_slice(&[n]));
        }
        tally.pinged(&2_u64.to_be_bytes());
        tally.pinged(b"hello");
        let missing = |tally: &mut MessageTally, count| {
            tally.missing(count).map(|all| all.iter().map(|m| m[0]).collect::<Vec<_>>())
        };
        assert_eq!(missing(&mut tally, 1), None);
        assert_eq!(missing(&mut tally, 6), None);
        assert_eq!(missing(&mut tally, 3), Some(vec![3, 4]));
        assert_eq!(missing(&mut tally, 5), Some(vec![]));
        assert!(!tally.is_full());
        tally.sent(&Bytes::from(vec![0; HELD + 1]));
        assert!(tally.is_full());
        // What has come is told by bytes and by messages, whichever is first.
        let mut hearing = MessageTally::counting();
        assert!(!hearing.hear(ACKNOWLEDGED_BYTES - 1) && hearing.hear(1));
        assert_eq!(hearing.ping(), Bytes::copy_from_slice(&2_u64.to_be_bytes()));
        assert_eq!((0..ACKNOWLEDGED_MESSAGES).filter(|_| hearing.hear(1)).count(), 1);
        // Who does not count keeps nothing.
        let mut plain = MessageTally::default();
        plain.sent(&Bytes::from_static(b"x"));
        assert_eq!((plain.missing(0), plain.ping().len()), (Some(vec![]), 0));
    }
}
