// SPDX-License-Identifier: Apache-2.0
//! Bounds of HTTP, for docs/limits.md.

use super::{likely, log, settings::HttpSettings, tx};
use crate::content::mime::{form_names, multipart};
use crate::content::{codec, files};
use bartizan_base::Reason::AppLayerError;
use bartizan_base::limit::LimitTrace::{Event, NotNeeded, Nothing, Refused, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Flow "white space, method, request line in which prevention looks for a request that no pattern knows" = "{}, {}, {}"
        [bytes(likely::BLANK_MAX), bytes(likely::WORD_MAX), bytes(likely::LINE_MAX)] in ["applayer/protocols/http/likely.rs"],
        "more white space counts as HTTP; else no such request", [NotNeeded];
    Protocol "HTTP: line and header bytes"
        = "`meta-field-limit` ({}); prevention: {}, as a line and its headers together"
        [bytes(HttpSettings::default().field_limit), bytes(tx::MAX_HEADER_BLOCK)]
        in ["applayer/protocols/http/settings.rs", "applayer/protocols/http/tx.rs"],
        "event, parsing of the flow ends; prevention goes on below its limit (tickets, large cookies) and blocks beyond it",
        [Event("http.request_field_too_long"), Event("http.response_field_too_long"), Refused(AppLayerError)];
    Protocol "HTTP: headers of a message" = "`headers-limit` ({})" [count(HttpSettings::default().headers_limit)]
        in ["applayer/protocols/http/settings.rs"], "event",
        [Event("http.request_too_many_headers"), Event("http.response_too_many_headers")];
    Protocol "HTTP: decompressed bytes"
        = "`compression-bomb-limit` ({}), `compression-bomb-count` ({}) bodies of a flow beyond it, layers `response-body-decompress-layer-limit` ({}; words without an encoding do not count)"
        [bytes(HttpSettings::default().bomb_limit), count(HttpSettings::default().bomb_count), HttpSettings::default().layer_limit.map_or("no bound".to_owned(), count)]
        in ["applayer/protocols/http/settings.rs"],
        "event, decompression of the body ends; after so many such bodies another event, and further bodies of the flow are decompressed all the same (Suricata ends it); a body with more codings, or in zstd, is inspected as it comes, though clients decode it",
        [Event("http.compression_bomb"), Event("http.compression_bomb_limit_reached"), Event("http.too_many_encoding_layers")];
    Protocol "HTTP/1 and HTTP/2, in prevention: decompressed bytes of one segment" = "{}" [bytes(crate::content::files::FRESH_MAX)]
        in ["applayer/content/files.rs"],
        "event; this and a body beyond `compression-bomb-limit` are refused where rules still look at the body (`response-body-limit`)",
        [Event("http.compression_bomb"), Refused(AppLayerError)];
    Protocol "HTTP: a CR alone in a header (`X: y\\rContent-Length: 20`); `Content-Length`, `Transfer-Encoding` or `Content-Encoding` folded, with white space at its name, or after a line that some receivers do not take for a field (no colon, a name with white space, a control or a byte beyond ASCII); a chunk's line or end that is more than digits, blanks and an extension; white space that only Python knows (0x1c to 0x1f, 0x85, 0xa0) in or after a method; a request with chunks and a length, with chunks in version 1.0, or with codings of which one is unknown or `chunked` is not the last; in such an answer an extension of a chunk"
        = "live prevention: an error of the parser, by `app-layer.error-policy`, since receivers differ over it; passive and over captures: read as libhtp does" []
        in ["applayer/protocols/http/headers.rs", "applayer/protocols/http/fields.rs", "applayer/protocols/http/request.rs", "applayer/protocols/http/request_body.rs"],
        "passive: servers that end line or headers there (Python's `http.server`) read a body; `http.uri` does not see a request after it, `http.request_body` does", [Event("http.request_body_unexpected"), Refused(AppLayerError)];
    Protocol "HTTP: raw header bytes kept" = "{}; prevention: {}" [bytes(tx::MAX_RAW_HEADERS), bytes(tx::MAX_HEADER_BLOCK)]
        in ["applayer/protocols/http/tx.rs"], "the rest is parsed and not kept; prevention refuses", [Nothing, Refused(AppLayerError)];
    Protocol "HTTP: repetitions of a header joined" = "{}; prevention: all that the limit of headers allows"
        [count(tx::MAX_REPETITIONS)] in ["applayer/protocols/http/tx.rs"], "further ones are not joined",
        [Told("the event of the first repetition")];
    Protocol "HTTP: files of a direction of a transaction (those of a form)" = "{}; prevention: {}" [count(files::MAX_FILES), count(files::MAX_FILES_STRICT)]
        in ["applayer/content/files.rs"], "further ones are not tracked; prevention refuses", [Nothing, Refused(AppLayerError)];
    Protocol "HTTP: forms over whose parts receivers differ: a content type with several boundaries, one in pieces, encoded, with escapes, white space, commas or text after its quotes; a boundary that does not begin a line and end it, or lines that end in other ways than the first boundary's; a part's header with a line that is no field or is blank, with controls, of a part that is a form itself, or whose content is encoded"
        = "live prevention: an error of the parser, by `app-layer.error-policy`; passive and over captures: read as Suricata does" []
        in ["applayer/content/mime/multipart.rs", "applayer/content/mime/form_names.rs"],
        "passive: receivers may find files that `file.name` and `file.data` do not show; `http.request_body` does", [Nothing, Refused(AppLayerError)];
    Protocol "HTTP: a CONNECT with content that may begin a tunnel, or with first bytes of another protocol before the answer"
        = "live prevention: an error of the parser, by `app-layer.error-policy`" []
        in ["applayer/protocols/http/connect.rs"], "other content is a body, and requests after it are requests, until the server agrees",
        [Refused(AppLayerError)];
    Protocol "HTTP: content packed with LZMA" = "its dictionary, up to {}" [bytes(codec::LZMA_MEMORY)]
        in ["applayer/content/codec.rs"], "output that the decoder holds back is inspected with the end of the body; other encodings are inspected as they come in live prevention", [Nothing];
    Protocol "HTTP: header of a part of a form, boundary, names in a part" = "{}, {}, {} (prevention)"
        [bytes(multipart::MAX_HEADER), bytes(form_names::MAX_BOUNDARY), count(form_names::MAX_NAMES)]
        in ["applayer/content/mime/multipart.rs", "applayer/content/mime/form_names.rs"],
        "prevention blocks longer ones, and those that receivers read differently", [Refused(AppLayerError)];
    Protocol "HTTP: boundary of a form, passively" = "{}" [bytes(multipart::MAX_BOUNDARY)]
        in ["applayer/content/mime/multipart.rs"], "the body is no form: its files are not found", [Nothing];
    Protocol "HTTP: length of the names of files" = "{}" [bytes(files::MAX_NAME)] in ["applayer/content/files.rs"],
        "event, the name is cut; not in prevention", [Event("http.file_name_too_long")];
    File "bytes of a body that an alert shows (`http-body`)" = "{}, the latest ones" [bytes(log::MAX_BODY)]
        in ["applayer/protocols/http/log.rs"], "the beginning is not shown", [NotNeeded];
};
