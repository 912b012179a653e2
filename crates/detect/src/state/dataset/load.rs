// SPDX-License-Identifier: Apache-2.0
//! Reads files of sets: one value a line, with a reputation after a comma for `datarep`, or JSON.

use super::{Dataset, DatasetError, DatasetType, SkippedEntries};
use bartizan_applayer::content::base64::{self, Base64Mode};
use serde_json::Value;
use std::path::Path;

/// The format of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Each line has a value, or a value, a comma and a reputation. Strings are in base64.
    #[default]
    Lines,
    /// One JSON value with an array of objects; `path` leads to the array and, in each object, `value` to the
    /// value. Strings are plain.
    Json {
        /// Keys to the array, with dots between them; empty for the whole.
        path: String,
        /// Keys to the value in each object.
        value: String,
        /// The value itself is removed from the object that the set keeps as context.
        remove: bool,
    },
    /// One JSON object on each line.
    JsonLines {
        /// Keys to the value in each object.
        value: String,
        /// As for [`Format::Json`].
        remove: bool,
    },
}

/// Reads a file into a set. Lines and objects that cannot be understood are left out, as in Suricata.
///
/// # Errors
/// The file as a whole does not have the format that the rule names.
pub(super) fn load(
    set: &Dataset,
    path: &Path,
    bytes: &[u8],
    format: &Format,
    skipped: &mut SkippedEntries,
) -> Result<(), DatasetError> {
    let at = |line: usize, what: &'static str| DatasetError::BadValue { path: path.to_owned(), line, what };
    match format {
        Format::Lines => {
            lines(set, path, bytes, skipped);
            Ok(())
        }
        Format::Json { path: keys, value, remove } => {
            let tree: Value = serde_json::from_slice(bytes).map_err(|e| at(e.line(), "this is not JSON"))?;
            let list = follow(&tree, keys).and_then(Value::as_array);
            let list = list.ok_or_else(|| at(1, "there is no array at the place of `array_key`"))?;
            let mut found = list.is_empty();
            for (number, entry) in list.iter().enumerate() {
                match object(set, entry, value, *remove) {
                    Ok(has_key) => found |= has_key,
                    Err(what) => {
                        found = true;
                        skipped.add(path, 1, b"", format!("{what} (object {} of the array)", number + 1));
                    }
                }
            }
            if found { Ok(()) } else { Err(at(1, NO_KEY)) }
        }
        Format::JsonLines { value, remove } => {
            let mut found = None;
            for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let read = serde_json::from_slice::<Value>(line).map_err(|_| "this is not JSON");
                match read.and_then(|entry| object(set, &entry, value, *remove)) {
                    Ok(has_key) => found = Some(found.unwrap_or(false) || has_key),
                    Err(what) => {
                        found = Some(true);
                        skipped.add(path, number + 1, line, what);
                    }
                }
            }
            if found == Some(false) { Err(at(1, NO_KEY)) } else { Ok(()) }
        }
    }
}

/// The error about a file in which no object has the rule's key.
const NO_KEY: &str = "no object has the key of `value_key`";

/// The error about a value that does not have the set's type.
const OTHER_TYPE: &str = "the value does not have the set's type";

fn follow<'v>(tree: &'v Value, keys: &str) -> Option<&'v Value> {
    keys.split('.').filter(|key| !key.is_empty()).try_fold(tree, |value, key| value.get(key))
}

/// Adds the value of an object. Returns whether the object has the key.
fn object(set: &Dataset, object: &Value, key: &str, remove: bool) -> Result<bool, &'static str> {
    let Some(value) = follow(object, key) else { return Ok(false) };
    let text = value.as_str().ok_or("the value is not a string")?;
    let bytes = set.kind.parse(text).ok_or(OTHER_TYPE)?;
    if set.kind.key(&bytes).is_none() {
        return Err(OTHER_TYPE);
    }
    set.add(&bytes);
    let kept = if remove { without(object, key) } else { object.to_string() };
    set.set_context(&bytes, kept.as_bytes());
    Ok(true)
}

/// An object as JSON without the value that `keys` leads to.
fn without(object: &Value, keys: &str) -> String {
    let mut copy = object.clone();
    let (path, last) = keys.rsplit_once('.').unwrap_or(("", keys));
    let holder = path.split('.').filter(|key| !key.is_empty()).try_fold(&mut copy, |v, key| v.get_mut(key));
    if let Some(Value::Object(holder)) = holder {
        holder.remove(last);
    }
    copy.to_string()
}

fn lines(set: &Dataset, path: &Path, bytes: &[u8], skipped: &mut SkippedEntries) {
    let mut with_reputation: Option<bool> = None;
    for (number, text) in bytes.split(|b| *b == b'\n').enumerate() {
        if text.trim_ascii().is_empty() {
            continue;
        }
        if let Err(what) = line(set, text, &mut with_reputation) {
            skipped.add(path, number + 1, text, what);
        }
    }
}

/// Adds the value of a line. `with_reputation`: whether lines have reputations, decided by the first line.
fn line(set: &Dataset, text: &[u8], with_reputation: &mut Option<bool>) -> Result<(), &'static str> {
    let text = core::str::from_utf8(text).map_err(|_| "the line is not UTF-8")?.trim();
    let (value, reputation) = match text.split_once(',') {
        Some((value, reputation)) => (value.trim(), Some(reputation.trim())),
        None => (text, None),
    };
    if with_reputation.is_some_and(|rated| rated != reputation.is_some()) {
        return Err("some lines have a reputation and some do not; give one on all lines or on none");
    }
    let rated = reputation.is_some();
    let reputation = match reputation {
        Some(text) => text.parse().map_err(|_| "the reputation is not a number from 0 to 65535")?,
        None => 0,
    };
    let bytes = if set.kind == DatasetType::String {
        let mut decoded = Vec::new();
        if !base64::decode(value.as_bytes(), Base64Mode::Strict, &mut decoded) {
            return Err("the string is not in base64");
        }
        decoded
    } else {
        set.kind.parse(value).ok_or(OTHER_TYPE)?
    };
    if set.kind.key(&bytes).is_none() {
        return Err(OTHER_TYPE);
    }
    // A line that is left out does not decide the format of the others.
    with_reputation.get_or_insert(rated);
    set.add_with(&bytes, reputation);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{DatasetSpec, Datasets};
    use super::*;
    use bartizan_base::SettingsMap;

    fn set(kind: DatasetType) -> std::sync::Arc<Dataset> {
        let request = DatasetSpec { name: "x".to_owned(), kind: Some(kind), ..DatasetSpec::default() };
        Datasets::default().get(&SettingsMap::new(), &request).unwrap()
    }

    fn read(kind: DatasetType, text: &str, format: &Format) -> Result<std::sync::Arc<Dataset>, String> {
        read_some(kind, text, format).map(|(set, skipped)| {
            assert!(skipped.is_empty(), "{skipped:?}");
            set
        })
    }

    /// The set, and the lines that are left out of it.
    fn read_some(
        kind: DatasetType,
        text: &str,
        format: &Format,
    ) -> Result<(std::sync::Arc<Dataset>, Vec<usize>), String> {
        let (set, mut skipped) = (set(kind), SkippedEntries::default());
        load(&set, Path::new("file"), text.as_bytes(), format, &mut skipped).map_err(|e| e.to_string())?;
        Ok((set, skipped.entries().iter().map(|entry| entry.line).collect()))
    }

    #[test]
    fn values_by_line() {
        let strings = read(DatasetType::String, "Z29vZ2xlLmNvbQ==\n\nYQ==\r\n", &Format::Lines).unwrap();
        assert_eq!((strings.len(), strings.get(b"google.com"), strings.get(b"a")), (2, Some(0), Some(0)));
        let rated = read(DatasetType::String, "YQ==, 201\nYg==,7", &Format::Lines).unwrap();
        assert_eq!((rated.get(b"a"), rated.get(b"b")), (Some(201), Some(7)));
        let md5 = read(DatasetType::Md5, "0123456789abcdef0123456789abcdef,5\n", &Format::Lines).unwrap();
        assert_eq!(md5.get(&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(2)), Some(5));
        let ip = read(DatasetType::Ip, "192.0.2.1\n2001:db8::1\n", &Format::Lines).unwrap();
        assert_eq!((ip.len(), ip.get(&[192, 0, 2, 1])), (2, Some(0)));
    }

    #[test]
    fn lines_that_cannot_be_understood_are_left_out() {
        let digest = "0123456789abcdef0123456789abcdef";
        let sha256 = digest.repeat(2);
        for (kind, text, lines, values) in [
            (DatasetType::String, "YQ==\n*\nYg==\nYQ\n".to_owned(), vec![2, 4], 2),
            (DatasetType::String, "*\n\n".to_owned(), vec![1], 0),
            (DatasetType::Md5, format!("0123\n{digest}\n{digest}00\nzz\n"), vec![1, 3, 4], 1),
            (DatasetType::Sha256, format!("{digest}\n{sha256}\n"), vec![1], 1),
            (
                DatasetType::Ipv4,
                "2001:db8::1\n192.0.2.1\n192.0.2.0/24\n192.0.2.300\n".to_owned(),
                vec![1, 3, 4],
                1,
            ),
            (DatasetType::Ip, "bad\n2001:db8::1\n2001:db8::/32\n192.0.2.1\n".to_owned(), vec![1, 3], 2),
            (DatasetType::String, "YQ==,1\nYg==\nYw==,2\n".to_owned(), vec![2], 2),
            (DatasetType::String, "Yg==\nYQ==,1\n".to_owned(), vec![2], 1),
            (DatasetType::String, "YQ==,high\nYg==,65536\nYw==,65535\nZA==,-1".to_owned(), vec![1, 2, 4], 1),
        ] {
            let (set, skipped) = read_some(kind, &text, &Format::Lines).unwrap();
            assert_eq!((skipped, set.len()), (lines, values), "{text}");
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
        let set = read(DatasetType::String, nested, &json("info.threat", "host.fqdn")).unwrap();
        assert_eq!((set.len(), set.get(b"a.example")), (1, Some(0)));
        let context = |set: &Dataset| String::from_utf8(set.context(b"a.example").unwrap().to_vec()).unwrap();
        assert_eq!(context(&set), r#"{"host":{"fqdn":"a.example"},"x":1}"#);
        let stripped =
            Format::Json { path: "info.threat".to_owned(), value: "host.fqdn".to_owned(), remove: true };
        assert_eq!(context(&read(DatasetType::String, nested, &stripped).unwrap()), r#"{"host":{},"x":1}"#);
        let flat = r#"[{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]"#;
        assert_eq!(read(DatasetType::Ip, flat, &json("", "ip")).unwrap().len(), 2);
        let by_line = Format::JsonLines { value: "h".to_owned(), remove: false };
        assert_eq!(read(DatasetType::String, "{\"h\":\"a\"}\n\n{\"h\":\"b\"}\n", &by_line).unwrap().len(), 2);
        assert!(read(DatasetType::String, "{\"g\":\"a\"}", &by_line).is_err());
        assert!(read(DatasetType::String, flat, &json("nowhere", "ip")).is_err());
        assert!(read(DatasetType::String, "[{", &json("", "ip")).unwrap_err().contains("line 1"));
        assert!(read(DatasetType::String, "[]", &json("", "ip")).unwrap().is_empty());
        // Objects that cannot be understood are left out.
        let some = "{\"h\":1}\n{\"h\":\"a\"}\n{\n{\"g\":\"b\"}\n{\"h\":\"c\"}\n";
        let (set, skipped) = read_some(DatasetType::String, some, &by_line).unwrap();
        assert_eq!((set.len(), skipped), (2, vec![1, 3]));
        let some = r#"[{"ip": "192.0.2.1"}, {"ip": "bad"}, {"ip": 5}, {"x": 1}, {"ip": "2001:db8::1"}]"#;
        let (set, skipped) = read_some(DatasetType::Ip, some, &json("", "ip")).unwrap();
        assert_eq!((set.len(), skipped.len()), (2, 2));
    }
}
