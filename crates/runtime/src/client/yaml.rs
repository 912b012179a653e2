// SPDX-License-Identifier: Apache-2.0
//! JSON as readable YAML that parses to the same value: only words without another meaning are not quoted.

use serde_json::Value;

/// Most characters of a list on one line.
const LINE: usize = 80;

/// The text of a value, with a line end.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(pairs) if !pairs.is_empty() => below(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => below(value, 0, &mut out),
        other => out = scalar(other) + "\n",
    }
    out
}

/// Keys or items, each on a line of its own.
fn below(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(pairs) => {
            for (key, value) in pairs {
                *out += &format!("{indent}{}:", word(key));
                behind(value, depth, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                *out += &format!("{indent}-");
                match item {
                    // The first key follows the dash.
                    Value::Object(pairs) if !pairs.is_empty() => {
                        let mut own = String::new();
                        below(item, depth + 1, &mut own);
                        *out += " ";
                        *out += own.trim_start();
                    }
                    other => behind(other, depth, out),
                }
            }
        }
        _ => {}
    }
}

fn behind(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(pairs) if !pairs.is_empty() => {
            *out += "\n";
            below(value, depth + 1, out);
        }
        Value::Array(items) if !items.is_empty() => {
            let plain = items.iter().all(|item| !item.is_object() && !item.is_array());
            let line = items.iter().map(scalar).collect::<Vec<_>>().join(", ");
            if plain && line.len() <= LINE {
                *out += &format!(" [{line}]\n");
            } else {
                *out += "\n";
                below(value, depth + 1, out);
            }
        }
        other => *out += &format!(" {}\n", scalar(other)),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => word(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// A text: without quotes if it has no other meaning.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-' | '@' | ' ');
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let number = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('/');
    let other = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let free = (begins || number) && text.chars().all(plain) && !text.ends_with(' ');
    if free && !other.contains(&text.to_ascii_lowercase().as_str()) {
        text.to_owned()
    } else {
        // A string of JSON is valid YAML.
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_config::policy::read;
    use bartizan_config::yaml;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_the_same() {
        let value = json!({
            "order": 10, "text": "a: b # c", "empty": {}, "none": null, "list": [], "yes": "yes", "number": "12", "float": "1e5",
            "negative": -4, "net": ["10.0.0.0/8", "2001:db8::/32", "*"], "lines": "a\nb\u{1b}", "": "x", "dash": "-", "space": " a ",
            "rules": [{"allow": "tcp", "to-ports": [80, "8080-8090"]}, {"deny": {"a": [[1, 2], [{"b": "c"}]]}}, [], {}, "!x", "a,b"],
            "long": ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"],
        });
        let written = text(&value);
        let read = read::to_json(&yaml::parse(&written).unwrap_or_else(|error| panic!("{error}\n{written}")));
        assert_eq!(read, value, "{written}");
        for plain in [json!({}), json!([]), json!("x"), json!([1])] {
            assert_eq!(read::to_json(&yaml::parse(&text(&plain)).unwrap()), plain);
        }
        assert_eq!(
            text(&json!({"a": {"b": ["c", 1]}, "d": [{"e": 1, "f": "g h"}]})),
            "a:\n  b: [c, 1]\nd:\n  - e: 1\n    f: g h\n"
        );
    }
}
