//! The process that has a session open.

use std::time::Duration;

/// The process that has a session open, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockHolder {
    /// The process id on its machine.
    pub pid: Option<u32>,
    /// The name of its machine, if that may be another one.
    pub host: Option<String>,
    /// It is about to end: it receives no requests any more.
    pub is_exiting: bool,
    /// The time after which it loses the session unless it renews its lease; `None` if it has the
    /// session until it ends.
    pub lease_left: Option<Duration>,
    /// The address at which it receives requests for the session, in the form of the backend.
    pub(super) request_address: Option<String>,
}

impl LockHolder {
    /// Returns a process of this machine.
    pub fn process(pid: Option<u32>) -> Self {
        Self {
            pid,
            ..Self::default()
        }
    }

    /// True if this is known to be another process than `other`.
    pub fn is_other_process(&self, other: &Self) -> bool {
        let differs = (self.pid, &self.host) != (other.pid, &other.host);
        self.pid.is_some() && other.pid.is_some() && differs
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another adjutant process")?;
        match (self.pid, &self.host) {
            (Some(pid), Some(host)) => write!(f, " (number {pid} on {host})"),
            (Some(pid), None) => write!(f, " (number {pid})"),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_process_is_one_with_another_known_number_or_machine() {
        let holder = |pid, host: Option<&str>| LockHolder {
            pid,
            host: host.map(str::to_owned),
            ..LockHolder::default()
        };
        let table = [
            ((Some(1), None), (Some(1), None), false),
            ((Some(1), None), (Some(2), None), true),
            ((Some(1), Some("a")), (Some(1), Some("b")), true),
            // A process that has just taken the lock has not written its number yet.
            ((None, None), (Some(1), None), false),
            ((Some(1), None), (None, None), false),
        ];
        for ((pid, host), (other_pid, other_host), wanted) in table {
            let is_other = holder(pid, host).is_other_process(&holder(other_pid, other_host));
            assert_eq!(
                is_other, wanted,
                "{pid:?} {host:?} {other_pid:?} {other_host:?}"
            );
        }
    }
}
