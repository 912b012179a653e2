// SPDX-License-Identifier: Apache-2.0
//! The content of records of application protocols, as a short number.

use serde_json::Value;

/// Objects of a record that count, besides that of its own type.
const BESIDE: &[&str] =
    &["email", "smtp", "ftp", "ftp_data", "ssh", "smb", "dcerpc", "tls", "app_proto", "tx_id"];

/// A hash (FNV-1a, folded to 16 bits) of a record's objects. Members in another order are the same.
#[must_use]
pub fn digest(event: &Value, kind: &str) -> u16 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for name in [kind].iter().chain(BESIDE) {
        if let Some(value) = event.get(*name) {
            add(&mut hash, name.as_bytes());
            hash_value(&mut hash, value);
        }
    }
    (hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16
}

fn add(hash: &mut u64, bytes: &[u8]) {
    for byte in bytes.iter().chain(&[0xff]) {
        *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
}

fn hash_value(hash: &mut u64, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            for (name, value) in members {
                add(hash, name.as_bytes());
                hash_value(hash, value);
            }
            add(hash, b"}");
        }
        Value::Array(items) => {
            items.iter().for_each(|item| hash_value(hash, item));
            add(hash, b"]");
        }
        other => add(hash, other.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_counts_and_the_order_does_not() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let one = read(r#"{"ftp":{"command":"RETR","reply":["a","b"]},"timestamp":1}"#);
        let same = read(r#"{"timestamp":2,"ftp":{"reply":["a","b"],"command":"RETR"}}"#);
        let other = read(r#"{"ftp":{"command":"RETR","reply":["b","a"]}}"#);
        assert_eq!(digest(&one, "ftp"), digest(&same, "ftp"));
        assert_ne!(digest(&one, "ftp"), digest(&other, "ftp"));
    }
}
