//! Counts of the messages of a connection in both directions, and the messages that may have to be
//! sent again.

use std::collections::VecDeque;

use bytes::Bytes;

use super::host::Connection;

/// The maximum size in bytes of the unacknowledged messages.
const MAX_UNACKNOWLEDGED_BYTES: usize = 16 << 20;

/// The number of bytes or messages after which the sender gets an acknowledgement. It stores the
/// messages until then, and stops reading from its client if it stores too much.
const ACKNOWLEDGE_EVERY_BYTES: usize = 1 << 20;
const ACKNOWLEDGE_EVERY_MESSAGES: u64 = 64;

/// The unacknowledged messages, and the number of received ones.
#[derive(Debug, Default)]
pub struct MessageTally {
    /// True if both sides count messages.
    pub counts: bool,
    /// The number of messages received.
    pub received: u64,
    /// The bytes received since the last acknowledgement.
    unacknowledged: usize,
    /// The number of messages in the last acknowledgement.
    acknowledged: u64,
    /// The number of the first stored message.
    first: u64,
    unconfirmed: VecDeque<Bytes>,
    bytes: usize,
}

impl MessageTally {
    /// Creates a tally that stores the messages sent.
    pub fn counting() -> Self {
        Self {
            counts: true,
            ..Self::default()
        }
    }

    /// Counts a received message. Returns whether an acknowledgement is due.
    pub fn record_received(&mut self, bytes: usize) -> bool {
        self.received += 1;
        self.unacknowledged += bytes;
        let many = self.received - self.acknowledged >= ACKNOWLEDGE_EVERY_MESSAGES;
        self.counts && (many || self.unacknowledged >= ACKNOWLEDGE_EVERY_BYTES)
    }

    /// Stores a message that is being sent.
    pub fn sent(&mut self, message: &Bytes) {
        if self.counts {
            self.bytes += message.len();
            self.unconfirmed.push_back(message.clone());
        }
    }

    /// Drops the first `count` messages, which the other side has received.
    pub fn acknowledge(&mut self, count: u64) {
        while self.first < count
            && let Some(message) = self.unconfirmed.pop_front()
        {
            self.bytes -= message.len();
            self.first += 1;
        }
    }

    /// Returns the messages after the first `count`, which the other side has received. `None` if
    /// one of them is no longer stored, or `count` were not sent.
    pub fn missing(&mut self, count: u64) -> Option<Vec<Bytes>> {
        let sent = self.first + self.unconfirmed.len() as u64;
        if count < self.first || count > sent {
            return None;
        }
        self.acknowledge(count);
        Some(self.unconfirmed.iter().cloned().collect())
    }

    /// Returns whether too many bytes are unacknowledged.
    pub fn is_full(&self) -> bool {
        self.bytes > MAX_UNACKNOWLEDGED_BYTES
    }

    /// Returns the payload of a ping, an acknowledgement: eight bytes, `received` in network byte
    /// order; empty if messages are not counted.
    pub fn ping(&mut self) -> Bytes {
        self.unacknowledged = 0;
        self.acknowledged = self.received;
        if self.counts {
            Bytes::copy_from_slice(&self.received.to_be_bytes())
        } else {
            Bytes::new()
        }
    }

    /// Handles the payload of the other side's ping.
    pub fn pinged(&mut self, payload: &[u8]) {
        if let Ok(count) = <[u8; 8]>::try_from(payload)
            && self.counts
        {
            self.acknowledge(u64::from_be_bytes(count));
        }
    }
}

/// A connection with its tally.
pub struct ResumableConnection {
    pub connection: Connection,
    pub tally: MessageTally,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unacknowledged_messages_are_sent_again() {
        let mut tally = MessageTally::counting();
        for n in 0..5_u8 {
            tally.sent(&Bytes::copy_from_slice(&[n]));
        }
        tally.pinged(&2_u64.to_be_bytes());
        tally.pinged(b"hello");
        let missing = |tally: &mut MessageTally, count| {
            tally
                .missing(count)
                .map(|all| all.iter().map(|m| m[0]).collect::<Vec<_>>())
        };
        assert_eq!(missing(&mut tally, 1), None);
        assert_eq!(missing(&mut tally, 6), None);
        assert_eq!(missing(&mut tally, 3), Some(vec![3, 4]));
        assert_eq!(missing(&mut tally, 5), Some(vec![]));
        assert!(!tally.is_full());
        tally.sent(&Bytes::from(vec![0; MAX_UNACKNOWLEDGED_BYTES + 1]));
        assert!(tally.is_full());
        // An acknowledgement is due after enough bytes or messages.
        let mut hearing = MessageTally::counting();
        assert!(
            !hearing.record_received(ACKNOWLEDGE_EVERY_BYTES - 1) && hearing.record_received(1)
        );
        assert_eq!(hearing.ping(), Bytes::copy_from_slice(&2_u64.to_be_bytes()));
        let due: usize = (0..ACKNOWLEDGE_EVERY_MESSAGES)
            .map(|_| usize::from(hearing.record_received(1)))
            .sum();
        assert_eq!(due, 1);
        // A tally that does not count stores nothing.
        let mut plain = MessageTally::default();
        plain.sent(&Bytes::from_static(b"x"));
        assert_eq!((plain.missing(0), plain.ping().len()), (Some(vec![]), 0));
    }
}
