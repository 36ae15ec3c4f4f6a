//! The process that has a session open.

/// The process that has a session open, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockHolder {
    /// The process id on its machine.
    pub pid: Option<u32>,
    /// The name of its machine, if that may be another one.
    pub host: Option<String>,
    /// It is about to end: it receives no requests any more.
    pub is_exiting: bool,
    /// The address at which it receives requests for the session, in the form of the backend.
    pub(super) request_address: Option<String>,
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
