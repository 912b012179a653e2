// SPDX-License-Identifier: Apache-2.0
//! Declared events: one declaration makes the record, its writer, and its rows of the schema and of the
//! reference page.
//!
//! A declared event has one object, named as the event, with the fields of the record in their order. An
//! output writes it if its list of types has the name. Events with more than that (alerts, flows) have
//! writers of their own; objects of theirs whose fields stand in a fixed order are declared (`object!`), too.

use super::common::Common;
use crate::JsonWriter;
use crate::config::HeaderOptions;
use crate::schema::field::{EventField, EventFieldType};
use bartizan_base::{Reason, Timestamp, Verdict};
use std::net::IpAddr;

/// The declaration of an event, made by `record!`.
#[derive(Debug)]
pub struct EventSpec {
    /// The event's type, which is the name of its object and its name in the settings.
    pub name: &'static str,
    /// The object and its fields.
    pub fields: &'static [EventField],
}

/// A record of a declared event.
pub trait DeclaredRecord {
    /// The declaration.
    fn spec(&self) -> &'static EventSpec;

    /// Writes the fields of the object.
    fn write_fields(&self, w: &mut JsonWriter);

    /// Writes the event.
    fn write(&self, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
        let name = self.spec().name;
        common.begin_packet_event(w, options, name);
        w.object(name);
        self.write_fields(w);
        w.end_object();
        common.finish(w, options);
    }
}

/// A value of a declared record.
pub trait RecordValue {
    /// Its type in the schema.
    const TYPE: EventFieldType;

    /// Writes it under a key; an unknown value is left out.
    fn write(&self, w: &mut JsonWriter, key: &str);
}

/// Implements [`RecordValue`] by methods of [`JsonWriter`], which take the value or what it is written as.
macro_rules! values {
    ($($value:ty = $kind:ident, $method:ident $((|$own:ident| $as:expr))?;)*) => {
        $(impl RecordValue for $value {
            const TYPE: EventFieldType = EventFieldType::$kind;

            fn write(&self, w: &mut JsonWriter, key: &str) {
                w.$method(key, values!(@as *self $(, $own, $as)?));
            }
        })*
    };
    (@as $value:expr) => { $value };
    (@as $value:expr, $own:ident, $as:expr) => {{
        let $own = $value;
        $as
    }};
}

values! {
    &str = Text, str;
    // Bytes of the traffic, as text.
    &[u8] = Text, text;
    i32 = Integer, num;
    u8 = Integer, num;
    u16 = Integer, num;
    u32 = Integer, num;
    u64 = Integer, num;
    bool = Boolean, bool;
    Timestamp = Time, time;
    IpAddr = Text, address;
    // A hardware address.
    [u8; 6] = Text, mac;
    // Digests.
    &[u8; 16] = Text, hex(|digest| digest);
    &[u8; 20] = Text, hex(|digest| digest);
    &[u8; 32] = Text, hex(|digest| digest);
    Verdict = Text, str(|verdict| verdict.name());
    Reason = Text, str(|reason| reason.name());
}

/// A list without items is left out.
impl RecordValue for &[u32] {
    const TYPE: EventFieldType = EventFieldType::IntegerList;

    fn write(&self, w: &mut JsonWriter, key: &str) {
        if !self.is_empty() {
            w.array(key);
            self.iter().for_each(|item| w.item_num(*item));
            w.end_array();
        }
    }
}

impl<V: RecordValue> RecordValue for Option<V> {
    const TYPE: EventFieldType = V::TYPE;

    fn write(&self, w: &mut JsonWriter, key: &str) {
        if let Some(value) = self {
            value.write(w, key);
        }
    }
}

/// Declares an object of an event: its struct, its writer and its rows of the schema. The documentation of the
/// object and its fields is their description in the schema and on the reference page. A field has the name that it
/// has in the event, or names it: `process: i32 as "pid"`. With `list`, the items of a list of the event have the
/// same fields.
macro_rules! object {
    (
        $(derive($($trait:ident),+);)?
        $(#[doc = $about:literal])+
        $vis:vis struct $object:ident $(<$life:lifetime>)? = $path:literal, list $list:literal: $of_list:literal {
            $($(#[doc = $text:literal])+ $field_vis:vis $field:ident: $value:ty $(as $key:literal)?,)*
        }
    ) => {
        $crate::record::declared::object! {
            $(derive($($trait),+);)?
            $(#[doc = $about])+
            $vis struct $object $(<$life>)? = $path {
                $($(#[doc = $text])+ $field_vis $field: $value $(as $key)?,)*
            }
        }

        impl $(<$life>)? $object $(<$life>)? {
            /// The list and the fields of its items.
            pub(crate) const LIST: &'static [$crate::schema::field::EventField] = &[
                $crate::schema::field::EventField {
                    path: $list,
                    kind: $crate::schema::field::EventFieldType::Objects,
                    description: $of_list,
                },
                $($crate::schema::field::EventField {
                    path: concat!($list, ".", $crate::record::declared::object!(@key $field $($key)?)),
                    kind: <$value as $crate::record::declared::RecordValue>::TYPE,
                    description: concat!($($text),+).trim_ascii(),
                },)*
            ];
        }
    };
    (
        $(derive($($trait:ident),+);)?
        $(#[doc = $about:literal])+
        $vis:vis struct $object:ident $(<$life:lifetime>)? = $path:literal {
            $($(#[doc = $text:literal])+ $field_vis:vis $field:ident: $value:ty $(as $key:literal)?,)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug $(, $($trait),+)?)]
        $vis struct $object $(<$life>)? {
            $($(#[doc = $text])+ $field_vis $field: $value,)*
        }

        impl $(<$life>)? $object $(<$life>)? {
            /// The object and its fields.
            pub(crate) const FIELDS: &'static [$crate::schema::field::EventField] = &[
                $crate::schema::field::EventField {
                    path: $path,
                    kind: $crate::schema::field::EventFieldType::Object,
                    description: concat!($($about),+).trim_ascii(),
                },
                $($crate::schema::field::EventField {
                    path: concat!($path, ".", $crate::record::declared::object!(@key $field $($key)?)),
                    kind: <$value as $crate::record::declared::RecordValue>::TYPE,
                    description: concat!($($text),+).trim_ascii(),
                },)*
            ];
            /// Writes the fields into an object that is open.
            pub(crate) fn write_fields(&self, w: &mut $crate::JsonWriter) {
                $($crate::record::declared::RecordValue::write(
                    &self.$field,
                    w,
                    $crate::record::declared::object!(@key $field $($key)?),
                );)*
            }

            /// Writes the object under its name.
            #[allow(dead_code)] // Items of lists and records have no name, or write more.
            pub(crate) fn write_object(&self, w: &mut $crate::JsonWriter) {
                w.object($path.rsplit_once('.').map_or($path, |(_, name)| name));
                self.write_fields(w);
                w.end_object();
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}

/// Declares the record of an event: its object ([`object!`]), and the event.
macro_rules! record {
    (
        $(#[doc = $about:literal])+
        pub struct $record:ident $(<$life:lifetime>)? = $name:literal {
            $($(#[doc = $text:literal])+ pub $field:ident: $value:ty,)*
        }
    ) => {
        $crate::record::declared::object! {
            $(#[doc = $about])+
            pub struct $record $(<$life>)? = $name {
                $($(#[doc = $text])+ pub $field: $value,)*
            }
        }

        impl $(<$life>)? $record $(<$life>)? {
            /// The declaration.
            pub const SPEC: &'static $crate::record::declared::EventSpec =
                &$crate::record::declared::EventSpec { name: $name, fields: Self::FIELDS };
        }

        impl $(<$life>)? $crate::record::declared::DeclaredRecord for $record $(<$life>)? {
            fn spec(&self) -> &'static $crate::record::declared::EventSpec {
                Self::SPEC
            }

            fn write_fields(&self, w: &mut $crate::JsonWriter) {
                $record::write_fields(self, w);
            }
        }
    };
}

pub(crate) use object;
pub(crate) use record;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    record! {
        /// A probe
        /// of tests.
        pub struct ProbeRecord<'a> = "probe" {
            /// Text.
            pub word: &'a str,
            /// Bytes.
            pub bytes: &'a [u8],
            /// A number that may be unknown.
            pub number: Option<u64>,
            /// A flag.
            pub flag: bool,
            /// A time.
            pub seen: Timestamp,
            /// An address.
            pub host: IpAddr,
        }
    }

    #[test]
    fn one_declaration_makes_the_event_and_its_schema() {
        let mut record = ProbeRecord {
            word: "a\"b",
            bytes: b"\xff",
            number: Some(7),
            flag: true,
            seen: Timestamp::from_nanos(1_000),
            host: IpAddr::from([192, 0, 2, 1]),
        };
        let written = |record: &ProbeRecord<'_>| {
            let mut writer = JsonWriter::new();
            record.write(&mut writer, &HeaderOptions::default(), &Common::default());
            let event: Value = serde_json::from_slice(writer.bytes()).unwrap();
            assert_eq!(
                crate::schema::check_with(
                    &[crate::schema::TABLES, &[ProbeRecord::SPEC.fields]].concat(),
                    &event
                ),
                Ok(())
            );
            assert_eq!(event["event_type"], "probe");
            event["probe"].clone()
        };
        let time = "1970-01-01T00:00:00.000001+0000";
        let mut expected = json!({"word": "a\"b", "bytes": "\\xff", "number": 7, "flag": true, "seen": time, "host": "192.0.2.1"});
        assert_eq!(written(&record), expected);
        record.number = None;
        expected.as_object_mut().unwrap().remove("number");
        assert_eq!(written(&record), expected);
        let rows: Vec<_> =
            ProbeRecord::SPEC.fields.iter().map(|field| (field.path, field.description)).collect();
        assert_eq!(rows[..2], [("probe", "A probe of tests."), ("probe.word", "Text.")]);
        assert_eq!(ProbeRecord::SPEC.fields[3].kind, EventFieldType::Integer);
    }
}
