// SPDX-License-Identifier: Apache-2.0
//! Reading input files, plain or compressed.

use crate::error::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Largest text file (rules, policies) that is read into memory, after decompression.
const TEXT_MAX: u64 = 1 << 30;

/// Opens a file, with a message that says what to do when that fails.
pub fn open(path: &Path, what: &str) -> Result<File, Failure> {
    let failed = |reason: &str| Failure::input(format!("cannot open {what} {}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed("no such file; check the path"),
        std::io::ErrorKind::PermissionDenied => failed("permission denied; check who may read it"),
        _ => failed(&error.to_string()),
    })?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(failed("it is a folder; give a file"));
    }
    Ok(file)
}

/// Reads a text file, decompressing gzip and zstd by their magic numbers.
pub fn read_text(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let file = open(path, what)?;
    let failed = |advice: &str, error: std::io::Error| {
        Failure::input(format!("cannot read {what} {}: {error}{advice}", path.display()))
    };
    let mut bytes = Vec::new();
    let (mut reader, tool) = decompressed(file).map_err(|error| failed("; check the disk", error))?;
    let advice = match tool {
        Some(tool) => format!("; the compressed data is damaged or incomplete, check it with `{tool} -t`"),
        None => String::new(),
    };
    let failed = |error| failed(&advice, error);
    reader.as_mut().take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::input(format!("{what} {} is larger than 1 GiB", path.display())));
    }
    Ok(bytes)
}

/// Reads a file that has to be UTF-8: YAML is.
pub fn read_utf8(path: &Path, what: &str) -> Result<String, Failure> {
    let bytes = read_text(path, what)?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = String::from_utf8_lossy(before).lines().next_back().map_or(0, |l| l.chars().count()) + 1;
        let column = if before.ends_with(b"\n") { 1 } else { column };
        Failure::input(format!(
            "{}:{line}:{column}: the {what} is not UTF-8 here; save it as UTF-8",
            path.display()
        ))
    })
}

/// The file's content, decompressed if it begins with the magic number of gzip or zstd, with the tool that knows it.
fn decompressed(file: File) -> std::io::Result<(Box<dyn Read>, Option<&'static str>)> {
    let mut reader = BufReader::new(file);
    let head = reader.fill_buf()?;
    Ok(if head.starts_with(&[0x1f, 0x8b]) {
        (Box::new(flate2::bufread::MultiGzDecoder::new(reader)), Some("gzip"))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(reader).map_err(std::io::Error::other)?;
        (Box::new(decoder), Some("zstd"))
    } else {
        (Box::new(reader), None)
    })
}
