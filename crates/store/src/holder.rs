//! Who has a session open.

/// Who has a session open, as far as it said so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockHolder {
    /// Its process number on its machine.
    pub pid: Option<u32>,
    /// The name of its machine, where that may be another one.
    pub host: Option<String>,
    /// Where it hears others who want the session, as the backend calls it.
    pub(super) door: Option<String>,
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
