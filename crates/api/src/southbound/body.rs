// SPDX-License-Identifier: Apache-2.0
//! Bodies: JSON with bounds, optionally compressed.

use super::error::{DecodeError, EncodeError};
use super::limits;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{Read, Write};

/// Deserializes a body.
pub(super) fn read<T: DeserializeOwned>(message: &'static str, bytes: &[u8]) -> Result<T, DecodeError> {
    check_depth(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| DecodeError::Body { message, what: error.to_string() })
}

/// Serializes a body.
pub(super) fn write<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    serde_json::to_vec(value).map_err(|error| EncodeError::Body(error.to_string()))
}

/// Checks that a message has no body.
pub(super) fn none<T>(message: &'static str, bytes: &[u8], value: T) -> Result<T, DecodeError> {
    if bytes.is_empty() {
        return Ok(value);
    }
    Err(DecodeError::Body {
        message,
        what: format!("it has no body, but {} bytes follow its head", bytes.len()),
    })
}

/// Checks a number of items against its bound.
pub(super) fn bound(
    message: &'static str,
    what: &'static str,
    number: usize,
    most: usize,
) -> Result<(), DecodeError> {
    if number <= most { Ok(()) } else { Err(DecodeError::TooMany { message, what, most }) }
}

/// Checks the depth of objects and arrays, without parsing values.
fn check_depth(bytes: &[u8]) -> Result<(), DecodeError> {
    let (mut depth, mut text, mut escaped) = (0usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'{' | b'[' if !text => {
                depth += 1;
                if depth > limits::JSON_DEPTH {
                    return Err(DecodeError::Depth);
                }
            }
            b'}' | b']' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Compresses a body.
pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .map_err(|error| EncodeError::Body(error.to_string()))
}

/// Undoes [`compress`], up to the bound. Bytes after the compressed body are an error.
pub(super) fn inflate(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = flate2::bufread::ZlibDecoder::new(bytes);
    let mut body = Vec::new();
    let most = u64::try_from(limits::INFLATED_BYTES).unwrap_or(u64::MAX);
    let read = decoder.by_ref().take(most + 1).read_to_end(&mut body);
    if read.is_err() || body.len() > limits::INFLATED_BYTES || !decoder.into_inner().is_empty() {
        return Err(DecodeError::Compression);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_no_brackets_in_strings() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert_eq!(check_depth(&nested(limits::JSON_DEPTH)), Ok(()));
        assert_eq!(check_depth(&nested(limits::JSON_DEPTH + 1)), Err(DecodeError::Depth));
        let text = format!(r#"{{"a":"{}\"[","b":[]}}"#, "[{".repeat(40));
        assert_eq!(check_depth(text.as_bytes()), Ok(()));
    }

    #[test]
    fn what_is_compressed_comes_back_and_bombs_do_not() {
        assert_eq!(inflate(&compress(b"body").unwrap()).unwrap(), b"body");
        let bomb = compress(&vec![b' '; limits::INFLATED_BYTES + 1]).unwrap();
        assert!(bomb.len() < limits::MESSAGE_BYTES);
        assert_eq!(inflate(&bomb), Err(DecodeError::Compression));
        let mut behind = compress(b"body").unwrap();
        behind.push(0);
        assert_eq!(inflate(&behind), Err(DecodeError::Compression));
        assert_eq!(inflate(b""), Err(DecodeError::Compression));
    }
}
