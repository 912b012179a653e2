// SPDX-License-Identifier: Apache-2.0
//! State of a flow's HTTP/1 parser.

use std::sync::Arc;

use super::ranges::PartialFiles;
use super::settings::HttpSettings;
use super::tx::HttpTxTable;
use super::{request_side, response_side};
use crate::content::files::FileContext;
use crate::frames::Notes;
use crate::transaction::TxId;
use bartizan_base::PerDirection;

/// A flow's parser.
pub(super) struct HttpParser {
    pub(super) settings: Arc<HttpSettings>,
    pub(super) txs: HttpTxTable,
    pub(super) request: request_side::HttpRequestSide,
    pub(super) response: response_side::HttpResponseSide,
    /// Transaction whose request is being parsed.
    pub(super) request_id: TxId,
    /// Transaction whose response is being parsed.
    pub(super) response_id: TxId,
    pub(super) file_context: FileContext,
    pub(super) ranges: PartialFiles,
    pub(super) completed_responses: u64,
    /// The flow switches to another protocol; the inner value names it if it is known.
    pub(super) switch: Option<Option<&'static str>>,
    /// The request that asked for HTTP/2, as frames, once the server has agreed.
    pub(super) upgraded: Vec<u8>,
    /// A request line was the beginning of HTTP/2's preface.
    pub(super) begins_http2: bool,
    pub(super) frames: Notes,
    /// Stream offset of the next byte.
    pub(super) next: PerDirection<u64>,
    /// Messages were completed since the raw stream was inspected.
    pub(super) completed: PerDirection<bool>,
}

impl HttpParser {
    pub(super) fn new(settings: Arc<HttpSettings>) -> Self {
        HttpParser {
            txs: HttpTxTable::new(Arc::clone(&settings)),
            request: request_side::HttpRequestSide::new(settings.strict),
            file_context: FileContext { strict: settings.strict, ..FileContext::default() },
            settings,
            response: response_side::HttpResponseSide::new(),
            request_id: 0,
            response_id: 0,
            ranges: PartialFiles::default(),
            completed_responses: 0,
            switch: None,
            upgraded: Vec::new(),
            begins_http2: false,
            frames: Notes::default(),
            next: PerDirection::default(),
            completed: PerDirection::default(),
        }
    }
}
