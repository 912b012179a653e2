// SPDX-License-Identifier: Apache-2.0
//! Reading input files, plain or compressed.

use crate::error::Failure;
use bartizan_config::kind::FileKind;
use bartizan_packet::capture::Decompressed;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest text file (rules, policies) that is read into memory, after decompression.
pub const TEXT_MAX: u64 = 1 << 30;
/// Expected compression ratio of rules.
const PACKED: u64 = 10;
/// Most bytes reserved before anything is read.
const ROOM_MAX: u64 = 128 << 20;

/// Opens a file; a failure has a message with the remedy.
pub fn open(path: &Path, what: &str) -> Result<File, Failure> {
    let failed = |reason: &str| Failure::input(format!("cannot open {what} {}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed("no such file; check the path"),
        std::io::ErrorKind::PermissionDenied => failed("permission denied; check its permissions"),
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
    let size = file.metadata().map_or(0, |about| about.len());
    let reader = Decompressed::new(Box::new(file)).map_err(|error| failed("; check the disk", error))?;
    let advice = match reader.compression() {
        Some(tool) => {
            format!("; the compressed data is damaged or incomplete, check it with `{} -t`", tool.name())
        }
        None => String::new(),
    };
    let failed = |error| failed(&advice, error);
    // Reserves memory at once: a text that grows piece by piece takes twice its memory meanwhile. Unused
    // reserve takes none.
    let room = if reader.compression().is_some() { size.saturating_mul(PACKED) } else { size };
    let mut bytes = Vec::with_capacity(usize::try_from(room.min(ROOM_MAX)).unwrap_or(0));
    reader.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::input(format!("{what} {} is larger than 1 GiB", path.display())));
    }
    Ok(bytes)
}

/// Reads a file that must be UTF-8, such as YAML.
pub fn read_utf8(path: &Path, what: &str) -> Result<String, Failure> {
    let bytes = read_text(path, what)?;
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = String::from_utf8_lossy(before).lines().next_back().map_or(0, |l| l.chars().count()) + 1;
        let column = if before.ends_with(b"\n") { 1 } else { column };
        Failure::input(format!(
            "{}:{line}:{column}: the {what} is not UTF-8 here; save it as UTF-8",
            path.display()
        ))
    })
}

/// Refuses a configuration file of another kind, with the option that it belongs to.
pub fn is_no_other(path: &Path, text: &str, wanted: FileKind) -> Result<(), Failure> {
    let Some(found) = FileKind::of(text).filter(|found| *found != wanted) else { return Ok(()) };
    let path = path.display();
    let what = match wanted {
        FileKind::Host => "a host file",
        FileKind::Policy => "a policy file",
        FileKind::Suricata => "a suricata.yaml",
    };
    let advice = match found {
        FileKind::Suricata => format!(
            "it is a suricata.yaml; use `--suricata-config {path}` (`bartizan check --suricata-config \
             {path}`, `bartizan run --suricata-config {path} --tap INTERFACE`) or name it in a host file \
             (`suricata-config: {path}`)"
        ),
        FileKind::Host => format!(
            "it is a host file; `bartizan run -c {path}` runs it, `bartizan -T -c {path}` checks it with its policy and rules"
        ),
        FileKind::Policy => format!(
            "it is a policy file; use `--policy {path}` or name it in a host file (`policy: {path}`); `bartizan check {path}` checks it"
        ),
    };
    Err(Failure::input(format!("{path} is not {what}: {advice}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_text_is_read_whole_or_refused() {
        let folder = std::env::temp_dir().join(format!("bartizan-input-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("r.rules");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_text(&path, "rule file").map(|text| String::from_utf8(text).unwrap())
        };
        let zstd = |text: &str| {
            ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
        };
        let gzip = |text: &str| {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            std::io::Write::write_all(&mut out, text.as_bytes()).unwrap();
            out.finish().unwrap()
        };
        let long: String = (0..40_000).map(|n| format!("line {n}\n")).collect();
        for (pack, name) in [(&zstd as &dyn Fn(&str) -> Vec<u8>, "zstd"), (&gzip, "gzip")] {
            let both = [pack(&long), pack("second\n")].concat();
            assert_eq!(read(&both).unwrap(), format!("{long}second\n"), "{name}");
            // Cut at any place, also within the second part.
            for cut in [10, pack(&long).len() / 2, pack(&long).len() + 6, both.len() - 9] {
                let error = read(&both[..cut]).unwrap_err().to_string();
                assert!(error.contains(&format!("`{name} -t`")), "{name} {cut}: {error}");
            }
        }
        // A skippable frame between two others.
        let skip = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        assert_eq!(read(&[zstd("a"), skip.clone(), zstd("b")].concat()).unwrap(), "ab");
        assert!(read(&[zstd("a"), skip[..9].to_vec()].concat()).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
