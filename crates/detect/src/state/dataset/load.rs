// SPDX-License-Identifier: Apache-2.0
//! Files of sets: one value a line, with a reputation behind a comma for `datarep`, or JSON.

use super::{Dataset, DatasetError, Kind};
use crate::encoding::base64::{self, Mode};
use serde_json::Value;
use std::path::Path;

/// How a file is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A value, or a value, a comma and a reputation, on each line. Strings are in base64.
    #[default]
    Lines,
    /// One JSON value that holds an array of objects; in it, `path` leads to the array and, in each object, `value`
    /// to the value. Strings are plain.
    Json {
        /// Keys to the array, with dots between them; empty for the whole.
        path: String,
        /// Keys to the value in each object.
        value: String,
        /// The value itself is left out of what is kept of its object.
        remove: bool,
    },
    /// One JSON object on each line.
    JsonLines {
        /// Keys to the value in each object.
        value: String,
        /// As above.
        remove: bool,
    },
}

/// Reads a file into a set.
pub(super) fn load(set: &Dataset, path: &Path, bytes: &[u8], format: &Format) -> Result<(), DatasetError> {
    let at = |line: usize, what: &'static str| DatasetError::BadValue { path: path.to_owned(), line, what };
    match format {
        Format::Lines => lines(set, bytes).map_err(|(line, what)| at(line, what)),
        Format::Json { path: keys, value, remove } => {
            let tree: Value = serde_json::from_slice(bytes).map_err(|e| at(e.line(), "this is not JSON"))?;
            let list = follow(&tree, keys).and_then(Value::as_array);
            let list = list.ok_or_else(|| at(0, "there is no array where `array_key` says"))?;
            objects(set, list.iter(), value, *remove).map_err(|what| at(0, what))
        }
        Format::JsonLines { value, remove } => {
            let mut all = Vec::new();
            for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
                if !line.trim_ascii().is_empty() {
                    all.push(serde_json::from_slice(line).map_err(|_| at(number + 1, "this is not JSON"))?);
                }
            }
            objects(set, all.iter(), value, *remove).map_err(|what| at(0, what))
        }
    }
}

fn follow<'v>(tree: &'v Value, keys: &str) -> Option<&'v Value> {
    keys.split('.').filter(|key| !key.is_empty()).try_fold(tree, |value, key| value.get(key))
}

fn objects<'v>(
    set: &Dataset,
    list: impl Iterator<Item = &'v Value>,
    key: &str,
    remove: bool,
) -> Result<(), &'static str> {
    let mut found = false;
    for object in list {
        let Some(value) = follow(object, key) else { continue };
        let text = value.as_str().ok_or("a value is no string")?;
        let bytes = set.kind.parse(text).ok_or("a value is not of the set's type")?;
        if set.kind.key(&bytes).is_none() {
            return Err("a value is not of the set's type");
        }
        set.add(&bytes);
        let kept = if remove { without(object, key) } else { object.to_string() };
        set.set_context(&bytes, kept.as_bytes());
        found = true;
    }
    if found { Ok(()) } else { Err("no object has the key that `value_key` names") }
}

/// An object without the value that keys lead to.
fn without(object: &Value, keys: &str) -> String {
    let mut copy = object.clone();
    let (path, last) = keys.rsplit_once('.').unwrap_or(("", keys));
    let holder = path.split('.').filter(|key| !key.is_empty()).try_fold(&mut copy, |v, key| v.get_mut(key));
    if let Some(Value::Object(holder)) = holder {
        holder.remove(last);
    }
    copy.to_string()
}

fn lines(set: &Dataset, bytes: &[u8]) -> Result<(), (usize, &'static str)> {
    let mut with_reputation: Option<bool> = None;
    for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let at = |what| (number + 1, what);
        let line = core::str::from_utf8(line).map_err(|_| at("the line is not UTF-8"))?.trim();
        if line.is_empty() {
            continue;
        }
        let (value, reputation) = match line.split_once(',') {
            Some((value, reputation)) => (value.trim(), Some(reputation.trim())),
            None => (line, None),
        };
        if *with_reputation.get_or_insert(reputation.is_some()) != reputation.is_some() {
            return Err(at("either all lines have a reputation or none"));
        }
        let reputation = match reputation {
            Some(text) => text.parse().map_err(|_| at("the reputation is no number from 0 to 65535"))?,
            None => 0,
        };
        let bytes = if set.kind == Kind::String {
            let mut decoded = Vec::new();
            if !base64::decode(value.as_bytes(), Mode::Strict, &mut decoded) {
                return Err(at("the string is not in base64"));
            }
            decoded
        } else {
            set.kind.parse(value).ok_or_else(|| at("the value is not of the set's type"))?
        };
        if set.kind.key(&bytes).is_none() {
            return Err(at("the value is not of the set's type"));
        }
        set.add_with(&bytes, reputation);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Datasets, Request};
    use super::*;
    use bartizan_base::Settings;

    fn set(kind: Kind) -> std::sync::Arc<Dataset> {
        let request = Request { name: "x".to_owned(), kind: Some(kind), ..Request::default() };
        Datasets::default().get(&Settings::new(), &request).unwrap()
    }

    fn read(kind: Kind, text: &str, format: &Format) -> Result<std::sync::Arc<Dataset>, String> {
        let set = set(kind);
        load(&set, Path::new("file"), text.as_bytes(), format).map_err(|e| e.to_string())?;
        Ok(set)
    }

    #[test]
    fn values_by_line() {
        let strings = read(Kind::String, "Z29vZ2xlLmNvbQ==\n\nYQ==\r\n", &Format::Lines).unwrap();
        assert_eq!((strings.len(), strings.get(b"google.com"), strings.get(b"a")), (2, Some(0), Some(0)));
        let rated = read(Kind::String, "YQ==, 201\nYg==,7", &Format::Lines).unwrap();
        assert_eq!((rated.get(b"a"), rated.get(b"b")), (Some(201), Some(7)));
        let md5 = read(Kind::Md5, "0123456789abcdef0123456789abcdef,5\n", &Format::Lines).unwrap();
        assert_eq!(md5.get(&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(2)), Some(5));
        let ip = read(Kind::Ip, "192.0.2.1\n2001:db8::1\n", &Format::Lines).unwrap();
        assert_eq!((ip.len(), ip.get(&[192, 0, 2, 1])), (2, Some(0)));
        for (kind, text, wrong) in [
            (Kind::String, "YQ==\n*\n", "line 2"),
            (Kind::Md5, "0123\n", "line 1"),
            (Kind::Ipv4, "2001:db8::1", "line 1"),
            (Kind::String, "YQ==,1\nYg==", "line 2"),
            (Kind::String, "YQ==,high", "line 1"),
        ] {
            assert!(read(kind, text, &Format::Lines).unwrap_err().contains(wrong), "{text}");
        }
    }

    #[test]
    fn values_from_json() {
        let json = |path: &str, value: &str| Format::Json {
            path: path.to_owned(),
            value: value.to_owned(),
            remove: false,
        };
        let nested = r#"{"info": {"threat": [{"host": {"fqdn": "a.example"}, "x": 1}, {"other": 2}]}}"#;
        let set = read(Kind::String, nested, &json("info.threat", "host.fqdn")).unwrap();
        assert_eq!((set.len(), set.get(b"a.example")), (1, Some(0)));
        let context = |set: &Dataset| String::from_utf8(set.context(b"a.example").unwrap().to_vec()).unwrap();
        assert_eq!(context(&set), r#"{"host":{"fqdn":"a.example"},"x":1}"#);
        let stripped =
            Format::Json { path: "info.threat".to_owned(), value: "host.fqdn".to_owned(), remove: true };
        assert_eq!(context(&read(Kind::String, nested, &stripped).unwrap()), r#"{"host":{},"x":1}"#);
        let flat = r#"[{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]"#;
        assert_eq!(read(Kind::Ip, flat, &json("", "ip")).unwrap().len(), 2);
        let by_line = Format::JsonLines { value: "h".to_owned(), remove: false };
        assert_eq!(read(Kind::String, "{\"h\":\"a\"}\n\n{\"h\":\"b\"}\n", &by_line).unwrap().len(), 2);
        assert!(read(Kind::String, "{\"h\":1}", &by_line).is_err());
        assert!(read(Kind::String, "{\"g\":\"a\"}", &by_line).is_err());
        assert!(read(Kind::String, "{\"h\":\"a\"}\n{", &by_line).unwrap_err().contains("line 2"));
        assert!(read(Kind::String, flat, &json("nowhere", "ip")).is_err());
    }
}
