//! The database that stores sessions, as the settings name it.

use std::time::Duration;

use super::file::StoreConfig;
use base::store_place::{AwayLimits, DatabasePlace};

/// The database that is meant; none where no address is given.
pub(super) fn database(written: &StoreConfig) -> Option<DatabasePlace> {
    let mut place = DatabasePlace::new(written.url.as_deref().map(str::trim).filter(|url| !url.is_empty())?);
    let usual = AwayLimits::default();
    place.namespace = written.namespace.clone().unwrap_or(place.namespace);
    place.lease = written.lease_seconds.map_or(place.lease, Duration::from_secs);
    let bytes = written.away_mib.and_then(|mib| usize::try_from(mib.saturating_mul(1 << 20)).ok());
    let time = written.away_minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    place.away = AwayLimits { bytes: bytes.unwrap_or(usual.bytes), time: time.unwrap_or(usual.time) };
    Some(place)
}
