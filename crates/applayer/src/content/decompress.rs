// SPDX-License-Identifier: Apache-2.0
//! Removes content encodings, one after the other.
//!
//! Browsers decode data whatever its header declares. So a decoder that fails before its first output is
//! replaced by the next one (gzip, raw deflate, zlib, in turn), and if all fail the bytes pass unchanged,
//! from the first on (libhtp does the same). The declared decoder (`deflate` means two) is trusted from its
//! first byte of output on; any other one from [`TRUST`] bytes on, or when its data has ended. The output of
//! a trusted decoder stays, and after its failure nothing more is decoded. All this depends on the bytes
//! alone: their division into segments makes no difference ([`Pace::Even`]). In prevention output is never
//! held back for more input ([`Pace::Prompt`]), since receivers do not hold it back either.

use crate::memory::Held as _;

use super::codec::{Codec, Failure};
pub(crate) use super::codec::{CodecStop, Encoding, Pace, Sink};

/// Limit of undecoded bytes that are kept for other decoders.
const HOLD: usize = 1 << 16;
/// Output, in bytes, after which a decoder that was not declared is trusted: text that is mistaken for
/// deflate fails earlier.
const TRUST: usize = 512;
/// Number of decoders that are tried after the first.
const RESTARTS: u8 = 3;

/// Limit of the ratio of a decompressed body to its encoded form.
const BOMB_RATIO: u64 = 2_048;
/// The encoded form counts in steps of this many bytes, so that the division into segments makes no
/// difference.
const BOMB_STEP: u64 = 512;

/// The front of encoded data that a decoder gets at once, and the rest. `wire`: number of encoded bytes
/// before.
pub(crate) fn split_step(wire: u64, data: &[u8]) -> (&[u8], &[u8]) {
    let step = usize::try_from(BOMB_STEP - wire % BOMB_STEP).unwrap_or(1);
    data.split_at_checked(step).unwrap_or((data, &[]))
}

/// The part of decoded bytes within the bound of a body. `wire`: number of encoded bytes before the current
/// step; `decoded`: number of decoded bytes before these; `limit`: bytes that every body may have.
pub(crate) fn within_bound(wire: u64, decoded: u64, limit: u64, data: &[u8]) -> &[u8] {
    let steps = (wire / BOMB_STEP).saturating_add(1);
    let most = limit.max(steps.saturating_mul(BOMB_STEP).saturating_mul(BOMB_RATIO));
    let room = usize::try_from(most.saturating_sub(decoded)).unwrap_or(usize::MAX);
    data.get(..room).unwrap_or(data)
}

/// State of a layer.
enum Phase {
    /// The decoder may be the wrong one: input from the first byte on, and output that is held back.
    Trying { held: Vec<u8>, given: Vec<u8> },
    /// The decoder is the right one.
    Trusted,
    /// All decoders failed: bytes pass unchanged.
    Through,
    /// Nothing more can be decoded, or the sink accepts no more.
    Dead,
}

/// A decoder that other ones may replace.
struct Layer {
    /// The encoding that the header declares.
    announced: Encoding,
    encoding: Encoding,
    codec: Codec,
    pace: Pace,
    restarts: u8,
    phase: Phase,
}

/// Further work after a layer's output.
enum After {
    Nothing,
    /// These bytes and all later ones pass undecoded, through the following layers as well.
    PassThrough(Vec<u8>),
}

impl Layer {
    fn new(encoding: Encoding, pace: Pace) -> Self {
        Layer {
            announced: encoding,
            encoding,
            codec: Codec::new(encoding, pace),
            pace,
            restarts: 0,
            phase: Phase::Trying { held: Vec::new(), given: Vec::new() },
        }
    }

    fn held(&self) -> usize {
        let waiting = match &self.phase {
            Phase::Trying { held, given } => held.held().saturating_add(given.held()),
            Phase::Trusted | Phase::Through | Phase::Dead => 0,
        };
        waiting.saturating_add(self.codec.held())
    }

    fn decode(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<After, CodecStop> {
        match core::mem::replace(&mut self.phase, Phase::Dead) {
            Phase::Dead => Err(CodecStop),
            Phase::Through => {
                self.phase = Phase::Through;
                sink(data).map(|()| After::Nothing)
            }
            Phase::Trusted => {
                self.codec.decode(data, sink).map_err(|_| CodecStop)?;
                self.phase = Phase::Trusted;
                Ok(After::Nothing)
            }
            Phase::Trying { held, given } => self.attempt(held, given, data, sink),
        }
    }

    /// Continues with a decoder that may be the wrong one.
    fn attempt(
        &mut self,
        mut held: Vec<u8>,
        mut given: Vec<u8>,
        data: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<After, CodecStop> {
        let room = HOLD.saturating_sub(held.len()).min(data.len());
        let (head, tail) = data.split_at_checked(room).unwrap_or((data, &[]));
        let known = held.len();
        held.extend_from_slice(head);
        let mut from = known;
        let mut trusted = false;
        loop {
            let enough = if self.is_announced() { 1 } else { TRUST };
            let result = self.codec.decode(crate::content::bytes::after(&held, from), &mut |output| {
                if trusted {
                    return sink(output);
                }
                given.extend_from_slice(output);
                trusted = given.len() >= enough;
                if trusted { sink(&core::mem::take(&mut given)) } else { Ok(()) }
            });
            match result {
                Ok(()) => break,
                Err(Failure::Corrupt) if !trusted => {}
                Err(_) => return Err(CodecStop),
            }
            given.clear();
            from = 0;
            let Some(codec) = self.next_codec() else {
                self.phase = Phase::Through;
                held.extend_from_slice(tail);
                return Ok(After::PassThrough(held));
            };
            self.codec = codec;
        }
        if !trusted && !self.codec.has_ended() && held.len() < HOLD {
            self.phase = Phase::Trying { held, given };
            return Ok(After::Nothing);
        }
        if !given.is_empty() {
            sink(&given)?;
        }
        self.codec.decode(tail, sink).map_err(|_| CodecStop)?;
        self.phase = Phase::Trusted;
        Ok(After::Nothing)
    }

    /// Whether the decoder is one that the header declares. Senders mean either of two forms by `deflate`:
    /// zlib (RFC 9110 section 8.4.1.2), whose first two bytes have a check value, and raw deflate.
    fn is_announced(&self) -> bool {
        self.restarts == 0 || self.announced == Encoding::Deflate && self.encoding == Encoding::Zlib
    }

    fn next_codec(&mut self) -> Option<Codec> {
        if self.restarts >= RESTARTS {
            return None;
        }
        self.restarts += 1;
        self.encoding = match self.encoding {
            Encoding::Gzip | Encoding::Brotli | Encoding::Lzma => Encoding::Deflate,
            Encoding::Deflate => Encoding::Zlib,
            Encoding::Zlib => Encoding::Gzip,
        };
        Some(Codec::new(self.encoding, self.pace))
    }

    /// Ends the input and passes on the output that was held back.
    fn finish(&mut self, sink: &mut Sink<'_>) -> Result<After, CodecStop> {
        let (held, given) = match core::mem::replace(&mut self.phase, Phase::Dead) {
            Phase::Trying { held, given } => (held, given),
            Phase::Trusted => (Vec::new(), Vec::new()),
            Phase::Through | Phase::Dead => return Ok(After::Nothing),
        };
        let mut any = !given.is_empty();
        if any {
            sink(&given)?;
        }
        let result = self.codec.finish(&mut |output| {
            any = true;
            sink(output)
        });
        if result == Err(Failure::Corrupt) && !any && !held.is_empty() {
            let Some(codec) = self.next_codec() else { return Ok(After::PassThrough(held)) };
            self.codec = codec;
            return match self.attempt(Vec::new(), Vec::new(), &held, sink)? {
                After::Nothing => self.finish(sink),
                passes => Ok(passes),
            };
        }
        result.map(|()| After::Nothing).map_err(|_| CodecStop)
    }
}

/// Decodes a body by removing its encodings in turn.
pub(crate) struct BodyDecoder {
    /// The first layer gets the input.
    layers: Vec<Layer>,
}

impl BodyDecoder {
    /// A decoder for encodings in the order in which the sender applied them; `None` if there are none.
    pub(crate) fn new(encodings: &[Encoding], pace: Pace) -> Option<Self> {
        let layers: Vec<Layer> = encodings.iter().rev().map(|e| Layer::new(*e, pace)).collect();
        (!layers.is_empty()).then_some(BodyDecoder { layers })
    }

    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        self.layers.iter().fold(self.layers.held(), |sum, layer| sum.saturating_add(layer.held()))
    }

    /// Decodes a piece of the body. An error means that the rest is lost: it could not be decoded, or the
    /// sink accepts no more.
    pub(crate) fn write(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Result<(), CodecStop> {
        run(&mut self.layers, data, sink)
    }

    /// Ends the body.
    pub(crate) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), CodecStop> {
        let mut layers = self.layers.as_mut_slice();
        while let Some((layer, behind)) = layers.split_first_mut() {
            // A layer that can give no more does not prevent the following ones from giving their output.
            if let Ok(After::PassThrough(held)) = layer.finish(&mut |decoded| run(behind, decoded, sink)) {
                pass(behind, &held, sink)?;
            }
            layers = behind;
        }
        Ok(())
    }
}

fn run(layers: &mut [Layer], data: &[u8], sink: &mut Sink<'_>) -> Result<(), CodecStop> {
    let Some((layer, behind)) = layers.split_first_mut() else { return sink(data) };
    match layer.decode(data, &mut |decoded| run(behind, decoded, sink))? {
        After::Nothing => Ok(()),
        After::PassThrough(held) => pass(behind, &held, sink),
    }
}

/// Passes undecoded bytes, and lets all that follow pass as well.
fn pass(behind: &mut [Layer], held: &[u8], sink: &mut Sink<'_>) -> Result<(), CodecStop> {
    for layer in behind {
        layer.phase = Phase::Through;
    }
    sink(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn deflate(data: &[u8], zlib: bool) -> Vec<u8> {
        if zlib {
            let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            e.write_all(data).expect("vec");
            return e.finish().expect("vec");
        }
        let mut e = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(data).expect("vec");
        e.finish().expect("vec")
    }

    pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(data).expect("vec");
        e.finish().expect("vec")
    }

    fn decode(encodings: &[Encoding], data: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut decoder = BodyDecoder::new(encodings, Pace::Even).expect("layers");
        for piece in data.chunks(step) {
            let _ = decoder.write(piece, &mut |d| {
                out.extend_from_slice(d);
                Ok(())
            });
        }
        let _ = decoder.finish(&mut |d| {
            out.extend_from_slice(d);
            Ok(())
        });
        out
    }

    #[test]
    fn announced_and_other_encodings_decode() {
        let text: Vec<u8> = (0..50_000u32).flat_map(|n| n.to_string().into_bytes()).collect();
        for step in [1, 7, 1460, usize::MAX >> 1] {
            for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zlib, Encoding::Brotli] {
                for data in [gzip(&text), deflate(&text, true), deflate(&text, false)] {
                    assert!(decode(&[encoding], &data, step) == text, "{encoding:?} by {step}");
                }
            }
            let twice = gzip(&deflate(&text, false));
            assert!(decode(&[Encoding::Deflate, Encoding::Gzip], &twice, step) == text);
        }
    }

    #[test]
    fn what_is_not_encoded_passes() {
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zlib] {
            assert_eq!(
                decode(&[encoding], b"X5O!P%@AP[4 plain text here", 100),
                b"X5O!P%@AP[4 plain text here"
            );
        }
    }

    #[test]
    fn lzma_decodes() {
        let text = b"lzma lzma lzma lzma lzma".repeat(100);
        let mut data = Vec::new();
        lzma_rs::lzma_compress(&mut &text[..], &mut data).expect("vec");
        for step in [1, 50, 10_000] {
            assert!(decode(&[Encoding::Lzma], &data, step) == text, "by {step}");
        }
    }

    #[test]
    fn truncated_and_trailing_data() {
        let data = gzip(b"hello hello hello hello");
        let cut = &data[..data.len() - 9];
        assert!(decode(&[Encoding::Gzip], cut, 3).starts_with(b"hello"));
        let mut more = data.clone();
        more.extend_from_slice(b"rubbish");
        assert_eq!(decode(&[Encoding::Gzip], &more, 5), b"hello hello hello hello");
    }

    /// Sixty lines of text as the brotli library writes them.
    const BROTLI: &[u8] =
        b"\x1b\x0e\x06\x80\x1c\x09\x36\x4e\x72\xbb\xc6\x8e\x62\xf5\x46\xe7\x74\x4b\xd5\x10\xe5\x00\x9e\x99\
        \x65\x66\x68\x14\xd9\x09\x20\x9b\xd2\x20\x55\xa4\xfe\xc4\xc5\xcb\xd3\x41\xed\xd0\x3d\xbf\x34\x6c\
        \x89\x28\xe9\xdc\xb9\x0e\xe7\x1e\xfd\x19\x6f\xd9\xf7\x4f\x22\x21\x29\x75\x85\x98\xc6\xc4\x90\x4a\
        \x11\x2d\x66\x6c\x2d\x89\xf4\xe8\xcd\x3f\xcd\x18\xab\x8c\xa8\x36\x32\xdd\x19\x4c\x26\x35\x24\x51\
        \x41\xa2\x55\xe9\x8e\x16\x8a\x69\x1e\xed\x36\xdb\xcc\xac\x24\x10\x4d\x00\x6d\x28\x21\x2d\x71\x08\
        \x3b\x0a\x54\xd2\x7a\xf7\x9a\x69\x7e\x9a\xcd\xa9\xb4\xa6\x72\x14\x6e\x63\x06\x51\x77\xb2\x1f";

    /// A short text as the brotli library flushes it, with the stream still open.
    const BROTLI_FLUSHED: &[u8] = b"\x8b\x05\x00\x00\xa4\x41\xca\xe8\xf0\x54\x21\xaa\x04\x88\x5f\xf2\x0c";

    /// A deflate block of fixed codes: `count` times `x`, then a length and a distance that points before the
    /// data.
    fn broken_behind(count: usize) -> Vec<u8> {
        let bits = core::iter::once((0b011, 3)) // the last block; fixed codes
            .chain(core::iter::repeat_n((0b0001_0101, 8), count))
            .chain([(0b100_0000, 7), (0b11111, 5), (0, 8)]);
        let (mut bytes, mut place) = (vec![0u8], 0);
        // The block's head is written least bit first, codes as they stand (reversed here).
        for (value, length) in bits {
            for n in 0..length {
                if place == 8 {
                    bytes.push(0);
                    place = 0;
                }
                *bytes.last_mut().expect("one") |= ((value >> n & 1) as u8) << place;
                place += 1;
            }
        }
        bytes.extend_from_slice(b"the rest");
        bytes
    }

    #[test]
    fn a_failure_shows_the_same_however_the_body_is_cut() {
        let text = b"a text that is not encoded, and long enough to be something else".repeat(3);
        let few = broken_behind(30);
        let many = broken_behind(TRUST);
        let zlib = [b"\x78\x9c", few.as_slice()].concat();
        let cases: [(Encoding, &[u8], Vec<u8>); 9] = [
            // The declared decoder is trusted, and its output stays.
            (Encoding::Deflate, &few, b"x".repeat(30)),
            // So little output of another decoder is not trusted.
            (Encoding::Gzip, &few, few.clone()),
            (Encoding::Gzip, &many, b"x".repeat(TRUST)),
            (Encoding::Zlib, &zlib, b"x".repeat(30)),
            (Encoding::Gzip, &zlib, zlib.clone()),
            (Encoding::Deflate, &text, text.clone()),
            (Encoding::Gzip, &text, text.clone()),
            (Encoding::Brotli, &text, text.clone()),
            (Encoding::Brotli, b"X5O!P%@AP", b"X5O!P%@AP".to_vec()),
        ];
        for (n, (encoding, data, expected)) in cases.iter().enumerate() {
            for step in [1, 2, 3, 5, 40, 10_000] {
                let got = decode(&[*encoding], data, step);
                assert!(got == *expected, "{n} by {step}: {} bytes", got.len());
            }
        }
    }

    /// RFC 1952 section 2.2: gzip data is a series of members, and receivers decode all of them.
    #[test]
    fn members_of_gzip_are_read_one_after_the_other() {
        let padded = [gzip(b"first "), vec![0; 700], gzip(b""), gzip(b"second "), gzip(b"third")].concat();
        let broken = [gzip(b"first "), gzip(b"second ")[..12].to_vec(), vec![0xff; 40]].concat();
        let other = [gzip(b"first "), b"no gzip data".to_vec(), gzip(b"second ")].concat();
        let many = [gzip(b"a"), gzip(b"").repeat(5_000), gzip(b"z")].concat();
        for step in [1, 2, 7, 1000, 1 << 20] {
            let all = |data: &[u8]| decode(&[Encoding::Gzip], data, step);
            assert_eq!(all(&padded), b"first second third", "{step}");
            assert_eq!(all(&other), b"first ", "{step}");
            assert_eq!(all(&many), b"az", "{step}");
            assert_eq!(all(&broken), decode(&[Encoding::Gzip], &broken, 1 << 20), "{step}");
            assert!(all(&broken).starts_with(b"first "), "{step}");
            // Without output a declared decoder is not in doubt.
            let empty = [gzip(b""), broken.clone()].concat();
            assert!(all(&empty).starts_with(b"first "), "{step}");
            // The same holds if gzip is not declared.
            let wrong = decode(&[Encoding::Deflate], &padded, step);
            assert_eq!(wrong, b"first second third", "{step}");
        }
    }

    /// In prevention, output that is held back would leave without inspection.
    #[test]
    fn what_was_announced_is_shown_from_its_first_byte_on() {
        let text = b"a short text";
        for (encoding, data) in [
            (Encoding::Gzip, gzip(text)),
            (Encoding::Deflate, deflate(text, false)),
            (Encoding::Deflate, deflate(text, true)),
            (Encoding::Brotli, BROTLI_FLUSHED.to_vec()),
        ] {
            let mut decoder = BodyDecoder::new(&[encoding], Pace::Prompt).expect("layers");
            let mut out = Vec::new();
            let _ = decoder.write(&data, &mut |d| {
                out.extend_from_slice(d);
                Ok(())
            });
            assert_eq!(out, text, "{encoding:?}: before the body has ended");
        }
    }

    /// Wherever a stream of brotli is cut, the output so far is complete, as a client decodes it.
    #[test]
    fn promptly_no_byte_waits_for_the_next_one() {
        let shown = |pace, end: usize, step| {
            let mut out = Vec::new();
            let mut decoder = BodyDecoder::new(&[Encoding::Brotli], pace).expect("layers");
            for piece in BROTLI[..end].chunks(step) {
                let _ = decoder.write(piece, &mut |d| {
                    out.extend_from_slice(d);
                    Ok(())
                });
            }
            out.len()
        };
        for end in 1..=BROTLI.len() {
            let bytewise = shown(Pace::Prompt, end, 1);
            for step in [7, 16, 40, BROTLI.len()] {
                assert_eq!(shown(Pace::Prompt, end, step), bytewise, "{end} by {step}");
            }
            assert!(shown(Pace::Even, end, 1) <= bytewise, "{end}");
        }
    }

    #[test]
    fn brotli_decodes() {
        let text: String = (0..60).map(|n| format!("the line {} of this page; ", n * n % 97)).collect();
        for step in [1, 50, 10_000] {
            assert_eq!(decode(&[Encoding::Brotli], BROTLI, step), text.as_bytes());
        }
    }

    #[test]
    fn damaged_data_shows_the_same_however_it_is_cut() {
        let text: Vec<u8> = (0..3000u32).flat_map(|n| (n * n % 977).to_string().into_bytes()).collect();
        let mut lzma = Vec::new();
        lzma_rs::lzma_compress(&mut &text[..], &mut lzma).expect("vec");
        let sources = [gzip(&text), deflate(&text, true), deflate(&text, false), lzma, BROTLI.to_vec(), text];
        let mut numbers = bartizan_testkit::random::Random::new(1);
        let mut random = move |below: usize| numbers.below(below);
        use Encoding::{Brotli, Deflate, Gzip, Lzma, Zlib};
        for round in 0..5000 {
            let mut data = sources[random(sources.len())].clone();
            // Often near the beginning, where the decoder is chosen.
            for _ in 0..random(4) {
                let within = if random(2) == 0 { data.len() } else { data.len().min(40) };
                data[random(within)] = random(256) as u8;
            }
            let one = if data.starts_with(&BROTLI[..4]) && random(3) > 0 { Brotli } else { Gzip };
            let one = if one == Brotli { one } else { [Gzip, Deflate, Zlib, Brotli, Lzma][random(5)] };
            let two = [Gzip, Deflate, Lzma][random(3)];
            let encodings = if random(4) == 0 { vec![one, two] } else { vec![one] };
            let whole = decode(&encodings, &data, data.len());
            for step in [1, 7, 100 + random(1400)] {
                assert!(decode(&encodings, &data, step) == whole, "{round}: {encodings:?} by {step}");
            }
        }
    }
}
