//! The database that stores sessions, as configured.

use std::time::Duration;

use super::file::StoreConfig;
use base::store_location::{DatabaseLocation, OutageLimits};

/// Resolves the database. `None` if no address is given.
pub(super) fn database(written: &StoreConfig) -> Option<DatabaseLocation> {
    let url = written
        .url
        .as_deref()
        .map(str::trim)
        .filter(|url| !url.is_empty())?;
    let mut location = DatabaseLocation::new(url);
    let defaults = OutageLimits::default();
    location.namespace = written.namespace.clone().unwrap_or(location.namespace);
    location.lease = written
        .lease_seconds
        .map_or(location.lease, Duration::from_secs);
    let bytes = written
        .away_mib
        .and_then(|mib| usize::try_from(mib.saturating_mul(1 << 20)).ok());
    let time = written
        .away_minutes
        .map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    location.outage_limits = OutageLimits {
        bytes: bytes.unwrap_or(defaults.bytes),
        time: time.unwrap_or(defaults.time),
    };
    Some(location)
}
