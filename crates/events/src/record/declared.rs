// SPDX-License-Identifier: Apache-2.0
//! Declared events: one declaration makes the record, its writer, and its rows of the schema and of the
//! reference page.
//!
//! A declared event has one object, named as the event, with the fields of the record in their order. An
//! output writes it if its list of types has the name. Events with more than that (alerts, flows) have
//! writers of their own; objects of theirs whose fields stand in a fixed order are declared by
//! `object!`, too.

use super::common::Common;
use crate::JsonWriter;
use crate::config::HeaderOptions;
use crate::schema::field::EventField;

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

/// Declares the record of an event: its object ([`object!`]), and the event.
macro_rules! record {
    (
        $(#[doc = $about:literal])+
        pub struct $record:ident $(<$life:lifetime>)? = $name:literal {
            $($(#[doc = $text:literal])+ pub $field:ident: $value:ty,)*
        }
    ) => {
        $crate::record::object::object! {
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

pub(crate) use record;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::field::EventFieldType;
    use bartizan_base::Timestamp;
    use serde_json::{Value, json};
    use std::net::IpAddr;

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
            /// The address of a host.
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
