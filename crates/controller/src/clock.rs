// SPDX-License-Identifier: Apache-2.0
//! The controller's clocks, wall and monotonic, or ones that a test or simulation sets; and times as texts.
//!
//! Source: RFC 3339 (timestamps), RFC 9110, section 5.6.7 (dates of HTTP).

use bartizan_events::{expand_time, micros_of};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Gives the time. The wall clock may jump either way: stored data is ordered by generations, never by times.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970.
    fn now(&self) -> u64;

    /// Microseconds of a monotonic clock that nobody sets, for durations and waits.
    fn steady(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> u64 {
        // A clock before 1970 counts as 1970.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn steady(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that changes only when a test sets it: wall time and monotonic time.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64, AtomicU64);

impl ManualClock {
    /// Sets the wall time, forwards or backwards, in microseconds since 1970.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Release);
    }

    /// Advances both clocks.
    pub fn pass(&self, micros: u64) {
        self.0.fetch_add(micros, Ordering::AcqRel);
        self.1.fetch_add(micros, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn steady(&self) -> u64 {
        self.1.load(Ordering::Acquire)
    }
}

/// A time in a request, in microseconds since 1970: that number, or RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenTime(pub u64);

impl<'de> Deserialize<'de> for WrittenTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = WrittenTime;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time from 1970 to 9999 as RFC 3339 writes it (`2027-01-31T12:00:00Z`), or microseconds since 1970")
            }
            fn visit_u64<E: de::Error>(self, micros: u64) -> Result<WrittenTime, E> {
                Ok(WrittenTime(micros))
            }
            fn visit_i64<E: de::Error>(self, micros: i64) -> Result<WrittenTime, E> {
                u64::try_from(micros)
                    .map(WrittenTime)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(micros), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<WrittenTime, E> {
                // Readers of texts hand numbers over as they are written.
                let time = text.parse().ok().or_else(|| micros_of(text));
                time.map(WrittenTime).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(TimeVisitor)
    }
}

impl JsonSchema for WrittenTime {
    fn schema_name() -> Cow<'static, str> {
        "PointInTime".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A time: RFC 3339 (`2027-01-31T12:00:00Z`), or microseconds since 1970.",
            "anyOf": [
                { "type": "integer", "format": "int64", "minimum": 0 },
                { "type": "string", "maxLength": 40 },
            ],
        })
    }
}

/// Formats a time for HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`. `micros` counts from 1970.
#[must_use]
pub fn http_date(micros: u64) -> String {
    expand_time("%a, %d %b %Y %T GMT", micros / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_read_as_numbers_and_as_people_write_them() {
        let read =
            |value: serde_json::Value| serde_json::from_value::<WrittenTime>(value).ok().map(|time| time.0);
        assert_eq!(read(json!(5)), Some(5));
        assert_eq!(read(json!("2023-11-14T22:13:20Z")), Some(1_700_000_000_000_000));
        assert_eq!(read(json!("2023-11-15 00:13:20.25+02:00")), Some(1_700_000_000_250_000));
        assert_eq!(read(json!("9999-12-31T23:59:59Z")), Some(253_402_300_799_000_000));
        let early =
            serde_json::from_value::<WrittenTime>(json!("1969-12-31T23:59:59Z")).expect_err("too early");
        assert!(early.to_string().contains("a time from 1970 to 9999"), "{early}");
        for wrong in [json!(-1), json!("tomorrow"), json!("2023-11-14"), json!(1.5), json!(null)] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn dates_of_http_are_those_of_the_calendar() {
        for (micros, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777_999_999, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_868_799_000_000, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (951_868_800_000_000, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (4_107_542_399_000_000, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400_000_000, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(micros), date);
        }
    }
}
