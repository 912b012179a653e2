// SPDX-License-Identifier: Apache-2.0
//! Declared objects of events: one declaration makes the struct, its writer, and its rows of the schema
//! and of the reference page.

use crate::JsonWriter;
use crate::schema::field::EventFieldType;
use bartizan_base::{Reason, Timestamp, Verdict};
use std::net::IpAddr;

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

/// Declares an object of an event: its struct, its writer and its rows of the schema. The documentation of
/// the object and its fields is their description in the schema and on the reference page. A field has the
/// name that it has in the event, or names it: `process: i32 as "pid"`. With `list`, the items of a list of
/// the event have the same fields.
macro_rules! object {
    (
        $(derive($($trait:ident),+);)?
        $(#[doc = $about:literal])+
        $vis:vis struct $object:ident $(<$life:lifetime>)? = $path:literal, list $list:literal: $of_list:literal {
            $($(#[doc = $text:literal])+ $field_vis:vis $field:ident: $value:ty $(as $key:literal)?,)*
        }
    ) => {
        $crate::record::object::object! {
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
                    path: concat!($list, ".", $crate::record::object::object!(@key $field $($key)?)),
                    kind: <$value as $crate::record::object::RecordValue>::TYPE,
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
                    path: concat!($path, ".", $crate::record::object::object!(@key $field $($key)?)),
                    kind: <$value as $crate::record::object::RecordValue>::TYPE,
                    description: concat!($($text),+).trim_ascii(),
                },)*
            ];
            /// Writes the fields into an object that is open.
            pub(crate) fn write_fields(&self, w: &mut $crate::JsonWriter) {
                $($crate::record::object::RecordValue::write(
                    &self.$field,
                    w,
                    $crate::record::object::object!(@key $field $($key)?),
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

pub(crate) use object;
